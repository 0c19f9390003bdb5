"""What a hostile peer may send: bodies, headers and targets that no honest program writes, and seeded fuzz of parsers.

FUZZ_CASES says how often each parser is fuzzed, FUZZ_SEED where the series begins.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import httpx2
import msgspec
import pytest

from payres.core.grants.spending_limits import parse_interval
from payres.core.http.requests import idempotency_key
from payres.core.http.responses import check_accept
from payres.core.protocol.errors import DomainError, Rejected
from payres.core.protocol.gnap import GrantRequest
from payres.core.protocol.wire import (
    IncomingPaymentRequest,
    OutgoingPaymentRequest,
    QuoteRequest,
    decode,
    metadata_text,
)
from payres.core.signatures.fields import content_digest
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes, parse_jwk
from payres.core.signatures.sign import Message, sign
from payres.core.signatures.verify import Verified
from payres.html.language import Language
from payres.html.sentences import length_words
from payres.interledger import oer, packets, stream
from payres.interledger.oer import CodecError, OctetReader, parse_timestamp
from payres.interledger.stream import SharedSecret, encrypt_gcm
from tests.conftest import Refused
from tests.helpers import verify_message
from tests.instance import Instance
from tests.raw_requests import ask, signed

FUZZ_CASES = int(os.environ.get("FUZZ_CASES", "2000"))
FUZZ_SEED = int(os.environ.get("FUZZ_SEED", "20261121"))

POST = b"POST /incoming-payments HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
CREATE = {"type": "incoming-payment", "actions": ["create", "read"]}


# Bodies


# Besides those of tests/specification/test_errors.py and test_incoming_payments.
BODIES = {
    "deep arrays, closed": b"[" * 30_000 + b"]" * 30_000,
    "deep and unknown": b'{"walletAddress":"%b","unknown":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "overlong UTF-8": b'{"walletAddress":"%b","metadata":{"a":"\xc0\xaf"}}',
    "UTF-16": '{"walletAddress":"x"}'.encode("utf-16"),
    "zero byte": b'{"walletAddress":"%b\x00"}',
    "large exponent": b'{"walletAddress":"%b","incomingAmount":{"value":"1","assetCode":"USD","assetScale":1e400}}',
    "long number": b'{"walletAddress":"%b","incomingAmount":{"value":"1","assetCode":"USD","assetScale":'
    + b"9" * 50_000,
    "numbers for texts": b'{"walletAddress":' + b"1" * 50_000 + b"}",
    "long member": b'{"walletAddress":"%b","' + b"a" * 60_000 + b'":1}',
    "many members": b'{"walletAddress":"%b",' + b",".join(b'"%d":1' % n for n in range(6000)) + b"}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_hostile_json(shared: Instance, refused: Refused, body: bytes) -> None:
    token = shared.client.grant(CREATE)
    body = body.replace(b"%b", shared.wallet("bob").encode())
    answer = shared.client.request("POST", "/incoming-payments", token=token, raw=body)
    refused(answer, 400, "invalid_request")


def test_duplicate_json_keys_in_the_limits_of_a_grant(shared: Instance, refused: Refused) -> None:
    small, large = (json.dumps({"value": value, "assetCode": "USD", "assetScale": 2}) for value in ("100", "90000"))
    limits = f'{{"debitAmount":{small},"debitAmount":{large}}}'
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": shared.wallet("alice"), "limits": "LIMITS"}
    ask = {
        "client": shared.client.wallet_address,
        "access_token": {"access": [item]},
        "interact": {"start": ["redirect"]},
    }
    body = json.dumps(ask).replace('"LIMITS"', limits)
    answer = shared.client.request("POST", "/", raw=body.encode())
    refused(answer, 400, "invalid_request", field="access_token.access[0].limits.debitAmount")


# Headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", "GNAP stolen"),
        ("content-type", "text/plain"),
        ("content-digest", content_digest(b"other")),
        ("signature-input", 'sig1=("@method");created=1;keyid="key-1"'),
        ("signature", "sig1=:AAAA:"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_duplicate_headers(shared: Instance, name: str, value: str, first: bool) -> None:
    """A header that is there twice is signed as both or refused; never is one checked and the other used."""
    body = json.dumps({"walletAddress": shared.wallet("bob")}).encode()
    headers = signed(shared, "POST", f"{shared.base_url}/incoming-payments", shared.client.grant(CREATE), body)
    assert ask(shared, "POST", "/incoming-payments", headers, body).status == 201
    doubled = [(name, value), *headers] if first else [*headers, (name, value)]
    assert ask(shared, "POST", "/incoming-payments", doubled, body).status in {400, 401, 415}


@pytest.mark.parametrize(
    "lies",
    [
        {"host": "evil.example"},
        {"host": "evil.example", "x-forwarded-host": "evil.example", "x-forwarded-proto": "https"},
        {"host": "", "forwarded": "for=1.2.3.4;host=evil.example;proto=https"},
        {"host": "h", "x-original-url": "/bob", "x-rewrite-url": "/bob", "x-forwarded-prefix": "/evil"},
        {"host": "127.0.0.1", "forwarded": "host=evil.example;proto=https"},
        {"host": "h", "x-http-method-override": "DELETE"},
    ],
)
def test_host_and_forwarded_headers_that_lie(shared: Instance, anonymous: httpx2.Client, lies: dict[str, str]) -> None:
    """No address that the server gives out, and nothing that it verifies, is made from what a request says."""
    wallet = anonymous.get(shared.wallet("alice"), headers=lies)
    assert wallet.json()["id"] == shared.wallet("alice")
    assert "evil" not in wallet.text + str(wallet.headers)
    body = json.dumps({"walletAddress": shared.wallet("bob")}).encode()
    token = shared.client.grant(CREATE)
    for origin, status in ((shared.base_url, 201), ("http://evil.example", 401)):
        for target in (
            "/incoming-payments",
            f"{shared.base_url}/incoming-payments",
            "http://evil.example/incoming-payments",
        ):
            _, *headers = signed(shared, "POST", f"{origin}/incoming-payments", token, body)
            answer = ask(shared, "POST", target, [*lies.items(), *headers], body)
            assert answer.status == status, (origin, target)
    refusal = anonymous.get(f"{shared.base_url}/incoming-payments", headers=lies)
    assert refusal.headers["www-authenticate"] == f"GNAP as_uri={shared.base_url}/"


# Targets


def confused(target: str) -> list[str]:
    """Other spellings of a target, some of which a careless reader takes for the same."""
    first, rest = target[1], target[2:]
    return [
        *(f"/%{ord(first):02x}{rest}", f"/./{first}{rest}", f"/x/../{first}{rest}", f"/%2e/{first}{rest}"),
        *(f"//{first}{rest}", f"{target}/", f"{target}//", f"{target}?", f"{target}?x=1", f"{target};x=1"),
        *(f"{target}%00", f"{target}%2f", f"{target}%3fx", f"{target}.json", f"/{first.upper()}{rest}"),
        *(f"\\{first}{rest}", f"/evil.example{target}"),
    ]


def test_target_uri_confusion(shared: Instance) -> None:
    """A signature is over the target as it was sent: for no other spelling of it does it count.

    The one exception is a bare question mark, which many clients cut off before they sign; it adds nothing.
    """
    body, target = json.dumps({"walletAddress": shared.wallet("bob")}).encode(), "/incoming-payments"
    headers = signed(shared, "POST", f"{shared.base_url}/incoming-payments", shared.client.grant(CREATE), body)
    for spelling in confused(target):
        status = ask(shared, "POST", spelling, headers, body).status
        assert status in ({201} if spelling == f"{target}?" else {400, 401, 404, 405}), spelling


def test_absolute_form_targets(shared: Instance) -> None:
    """The path counts, and the authority is ours whatever the line says."""
    body = json.dumps({"walletAddress": shared.wallet("bob")}).encode()
    headers = signed(shared, "POST", f"{shared.base_url}/incoming-payments", shared.client.grant(CREATE), body)
    for origin in (shared.base_url, "http://evil.example", "https://evil.example:1"):
        assert ask(shared, "POST", f"{origin}/incoming-payments", headers, body).status == 201
        assert ask(shared, "POST", f"{origin}/quotes", headers, body).status == 401
    for target in ("http:///incoming-payments", "incoming-payments", "*", "evil.example:443", "ftp://h/"):
        assert ask(shared, "POST", target, headers, body).status in {400, 404, 405}


@pytest.mark.parametrize(
    "target",
    [
        *("/%ff", "/%ed%a0%80", "/%00", "/interact/%00/%ff", "/incoming-payments/%ff", "/alice#x", "/al\\ice", "/%"),
        "/" + "a/" * 5000,
    ],
)
def test_strange_targets(shared: Instance, target: str) -> None:
    assert ask(shared, "GET", target).status in ({200} if "#" in target else {400, 404})


# Fuzz


def mutated(random: Random, samples: Sequence[bytes]) -> bytes:
    """Bytes that are nearly a sample: cut, doubled, spliced, with other bytes in places; now and then pure noise."""
    if random.random() < 0.05:
        return random.randbytes(random.randrange(200))
    data = bytearray(random.choice(samples))
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0:
                del data[at : at + random.randrange(1, 9)]
            case 1:
                data[at:at] = random.randbytes(random.randrange(1, 5))
            case 2:
                data[at : at + 1] = bytes([random.choice(b'"\\():;=,*?%/-.[]{}<> \t\r\n\x00\xff\x7f0A+')])
            case 3:
                data[at:at] = data[at : at + random.randrange(1, 40)] * random.randrange(1, 4)
            case 4:
                other = random.choice(samples)
                data[at:] = other[random.randrange(len(other) + 1) :]
            case _:
                data[at : at + 1] = bytes([random.randrange(256)])
    return bytes(data)


def fuzz(name: str, samples: Sequence[bytes], parse: Callable[[bytes], object], *refusals: type[Exception]) -> None:
    """Whatever is parsed is taken or refused with the exception for it; any other would be an answer of 500."""
    random = Random(f"{FUZZ_SEED} {name}")
    for _ in range(FUZZ_CASES):
        data = mutated(random, samples)
        with suppress(*refusals):
            parse(data)


KEY = generate_private_key()
PUBLIC = jwk_from_public_bytes("key-1", KEY.public_key().public_bytes_raw())
NOW = 1_800_000_000
BODY = b'{"walletAddress":"https://pay.example/bob"}'
LINES = [(b"authorization", b"GNAP token"), (b"content-type", b"application/json"), (b"content-length", b"43")]
SIGNED = Message("POST", "https://pay.example/quotes?a=%3A", LINES, BODY)
SIGNATURE = {name.lower(): value.encode() for name, value in sign(SIGNED, KEY.sign, "key-1", NOW).items()}


@pytest.mark.parametrize("name", ["signature-input", "signature", "content-digest"])
def test_fuzz_of_signatures(name: str) -> None:
    samples = [SIGNATURE[name], SIGNATURE[name] + b", " + SIGNATURE[name].replace(b"sig1", b"sig2")]

    def verify(value: bytes) -> None:
        fields = {key.encode(): one for key, one in (SIGNATURE | {name: value}).items()}
        outcome = verify_message(
            msgspec.structs.replace(SIGNED, headers=[*LINES, *fields.items()]), PUBLIC, NOW * 1_000_000
        )
        assert isinstance(outcome, Verified | Rejected)
        msgspec.json.encode(outcome)

    fuzz(name, samples, verify)


GRANT = {
    "client": "https://shop.example/pay",
    "access_token": {
        "access": [
            {"type": "incoming-payment", "actions": ["create", "read-all"]},
            {
                "type": "outgoing-payment",
                "actions": ["create"],
                "identifier": "https://pay.example/alice",
                "limits": {"debitAmount": {"value": "1", "assetCode": "USD", "assetScale": 2}, "interval": "R/x/P1M"},
            },
        ]
    },
    "interact": {"start": ["redirect"], "finish": {"method": "redirect", "uri": "https://a.example", "nonce": "n"}},
    "subject": {"sub_ids": [{"id": "https://pay.example/alice", "format": "uri"}]},
}
PAYMENT = {"walletAddress": "https://a.example", "metadata": {"a": [1, {"b": "\u00e9\U0001f600\\"}]}, "expiresAt": "x"}
SHAPES = [GrantRequest, IncomingPaymentRequest, QuoteRequest, OutgoingPaymentRequest]


@pytest.mark.parametrize("shape", SHAPES)
def test_fuzz_of_json(shape: type[Any]) -> None:
    decoder = msgspec.json.Decoder(shape)
    samples = [json.dumps(body).encode() for body in (GRANT, PAYMENT)] + [
        json.dumps(PAYMENT, ensure_ascii=False).encode()
    ]

    def read(data: bytes) -> None:
        metadata = getattr(decode(decoder, data), "metadata", None)
        if metadata is not None:
            metadata_text(metadata)

    fuzz(shape.__name__, samples, read, DomainError)


def test_fuzz_of_jwks() -> None:
    fuzz("jwk", [msgspec.json.encode(PUBLIC)], parse_jwk, ValueError)


def test_fuzz_of_headers() -> None:
    samples = [b'application/json;q=0.5, */*;q="1"', b"text/html, application/*;q=0", b'"01a1-key"', b'"a\\"b"']
    fuzz("accept", samples, lambda data: check_accept([(b"accept", data)]), DomainError)
    fuzz("key", samples, lambda data: idempotency_key([(b"idempotency-key", data)]), DomainError)


INTERVALS = [
    b"R12/2026-01-01T00:00:00Z/P1M",
    b"R/P1Y2M3W4DT5H6M7.5S/2027-01-01T00:00:00+14:00",
    b"R-1/2026-02-28T23:59:60Z/2026-03-01T00:00:00Z",
    b"R/1970-01-01T00:00:00Z/PT0.000001S",
]


def test_fuzz_of_intervals() -> None:
    def read(data: bytes) -> None:
        interval = parse_interval(data.decode("latin-1"))
        index = interval.window_at(NOW * 1_000_000)
        assert index is None or interval.boundary(index) <= NOW * 1_000_000 < interval.boundary(index + 1)
        assert length_words(Language("en", NOW), interval)

    fuzz("intervals", INTERVALS, read, ValueError)


PREPARE = packets.Prepare(1000, NOW * 1_000_000, b"c" * 32, "test.payres.bob", b"data" * 20)
CONFIGURATION = b"\x11test.payres.child\x02\x03USD"  # as IL-DCP answers (RFC 31)
REPLIES: list[packets.Reply] = [packets.Fulfill(b"f" * 32, b"data"), packets.Fulfill(bytes(32), CONFIGURATION)]
REJECT = packets.Reject(packets.Code.AMOUNT_TOO_LARGE, "test.payres", "too large", packets.too_large_data(2, 1))
PLAIN = stream.StreamPacket(
    7,
    stream.PacketType.PREPARE,
    5,
    (stream.StreamMoney(1, 2), stream.ConnectionNewAddress("test.a"), stream.StreamClose(1, 3, "abc")),
)


def test_fuzz_of_oer_and_packets() -> None:
    samples = [oer.encode_packet(packet) for packet in (PREPARE, *REPLIES, REJECT)]

    def prepare(data: bytes) -> None:
        decoded = oer.decode_prepare(data)
        assert oer.decode_prepare(oer.encode_packet(decoded)) == decoded

    def reply(data: bytes) -> None:
        decoded = oer.decode_reply(data)
        assert oer.decode_reply(oer.encode_packet(decoded)) == decoded
        if isinstance(decoded, packets.Reject):
            str(decoded)

    fuzz("prepare", samples, prepare, CodecError)
    fuzz("reply", samples, reply, CodecError)
    fuzz("uint", samples, lambda data: OctetReader(data).var_uint(saturate=True), CodecError)
    fuzz("text", samples, lambda data: OctetReader(data).text(), CodecError)
    fuzz("timestamp", [b"20261121085803123"], parse_timestamp, CodecError)


def test_fuzz_of_stream() -> None:
    secret = SharedSecret(b"s" * 32)
    plain, sealed = stream.encode_stream_packet(PLAIN), secret.encrypt_packet(PLAIN)

    def frames(data: bytes) -> None:
        decoded = stream.decode_stream_packet(data)
        assert stream.decode_stream_packet(stream.encode_stream_packet(decoded)) == decoded

    def opened(data: bytes) -> None:
        secret.decrypt_packet(data)
        assert data == sealed

    fuzz("frames", [plain], frames, CodecError)
    fuzz("sealed", [sealed], opened, CodecError)
    seal = partial(encrypt_gcm, secret._cipher, iv=bytes(12))
    fuzz("sealed nonsense", [plain], lambda data: secret.decrypt_packet(seal(data)), CodecError)
