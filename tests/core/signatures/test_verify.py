"""Verification: every reason to refuse, any changed bit, any garbage, several signatures, other spellings."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.errors import Rejected
from payres.core.signatures.fields import content_digest, covered_components
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.core.signatures.sign import Message, signature_base
from payres.core.signatures.verify import Unverified, Verified, is_signature, parse, verify
from tests.helpers import verify_message

CREATED = 1_618_884_473
NOW = CREATED * 1_000_000
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = jwk_from_public_bytes("k", PRIVATE.public_key().public_bytes_raw())
TARGET = "https://wallet.example/incoming-payments?wallet-address=https%3A%2F%2Fwallet.example%2Falice"
AUTHORIZATION = (b"authorization", b"GNAP token")
BODY = b'{"hello":"world"}'
CONTENT = [
    (b"content-type", b"application/json"),
    (b"content-length", b"17"),
    (b"content-digest", content_digest(BODY).encode()),
]
COVER_ALL = '("@method" "@target-uri" "authorization" "content-digest" "content-length" "content-type")'
COVER_LINE = '("@method" "@target-uri")'
PARAMETERS = f';keyid="k";created={CREATED}'

Headers = Sequence[tuple[bytes, bytes]]


def signed(
    components: str = COVER_LINE,
    parameters: str = PARAMETERS,
    headers: Headers = (),
    body: bytes = b"",
    method: str = "GET",
    target_uri: str = TARGET,
) -> Message:
    """Sign whatever is asked for, right or wrong."""
    message = Message(method, target_uri, list(headers), body)
    text = components + parameters
    signature = PRIVATE.sign(signature_base(message, covered_components(components), text))
    return with_signature(message, f"sig1={text}", f"sig1=:{b64encode(signature).decode()}:")


def with_signature(message: Message, signature_input: str, signature: str) -> Message:
    lines = [(b"signature-input", signature_input.encode()), (b"signature", signature.encode())]
    return msgspec.structs.replace(message, headers=[*message.headers, *lines])


def unsigned(signature_input: str | bytes | None, signature: str | bytes | None, body: bytes = b"") -> Message:
    headers = []
    for name, value in ((b"signature-input", signature_input), (b"signature", signature)):
        if value is not None:
            headers.append((name, value.encode() if isinstance(value, str) else value))
    return Message("GET", TARGET, headers, body)


def without(message: Message, name: bytes) -> Message:
    return msgspec.structs.replace(message, headers=[line for line in message.headers if line[0] != name])


def plus(message: Message, *lines: tuple[bytes, bytes]) -> Message:
    return msgspec.structs.replace(message, headers=[*message.headers, *lines])


SIGNATURE = f":{b64encode(bytes(64)).decode()}:"
FULL = signed(COVER_ALL, headers=[AUTHORIZATION, *CONTENT], body=BODY, method="POST")
LINE = signed()

ACCEPTED = {
    "line": LINE,
    "full": FULL,
    "alg": signed(parameters=PARAMETERS + ';alg="ed25519"'),
    "tag": signed(parameters=PARAMETERS + ';tag="gnap"'),
    "nonce and expires": signed(parameters=PARAMETERS + f';nonce="n";expires={CREATED + 9}'),
    "unknown parameter": signed(parameters=PARAMETERS + ";x=1"),
    "extra header": signed('("@method" "@target-uri" "host")', headers=[(b"host", b"wallet.example")]),
    "every derived component": signed(
        '("@method" "@target-uri" "@authority" "@scheme" "@path" "@query" "@request-target")'
    ),
    "digest of the empty body, covered": signed(
        '("@method" "@target-uri" "content-digest")', headers=[(b"content-digest", content_digest(b"").encode())]
    ),
    "digest of the empty body, not covered (PHP)": signed(headers=[(b"content-digest", content_digest(b"").encode())]),
    "wrong digest without a body, not covered": signed(headers=[(b"content-digest", b"undefined")]),
    "content digest on two lines": signed(
        '("@method" "@target-uri" "content-digest")',
        headers=[
            (b"content-digest", content_digest(BODY, "sha-256").encode()),
            (b"content-digest", content_digest(BODY).encode()),
        ],
        body=BODY,
    ),
    "only the digest of the content": signed('("@method" "@target-uri" "content-digest")', headers=CONTENT, body=BODY),
    "empty authorization": signed('("@method" "@target-uri" "authorization")', headers=[(b"authorization", b"")]),
}

REFUSED: list[tuple[str, str | None, Message]] = [
    ("missing_signature", None, Message("GET", TARGET, [])),
    ("missing_signature", None, without(LINE, b"signature")),
    ("missing_signature", None, without(LINE, b"signature-input")),
    ("missing_signature", None, unsigned(" \t", SIGNATURE)),
    ("malformed_signature_input", None, plus(LINE, (b"signature-input", b"undefined"))),
    ("malformed_signature_input", None, plus(LINE, (b"signature-input", b'sig1=("@method")'))),
    ("malformed_signature", None, plus(LINE, (b"signature", f"sig1={SIGNATURE}".encode()))),
    ("too_many_signatures", None, unsigned("s1=()", ", ".join(f"s{n}={SIGNATURE}" for n in range(5)))),
    ("repeated_header", "authorization", plus(FULL, AUTHORIZATION)),
    ("missing_component", "@method", signed("()")),
    ("missing_component", "@method", signed('("@target-uri")')),
    ("missing_component", "@target-uri", signed('("@method" "@path" "@query" "@authority")')),
    ("missing_component", "authorization", signed(headers=[AUTHORIZATION])),
    ("missing_component", "authorization", plus(LINE, (b"authorization", b""))),
    ("missing_component", "content-digest", signed(headers=CONTENT, body=BODY)),
    ("missing_digest", "content-digest", signed(body=BODY)),
    ("missing_digest", "content-digest", msgspec.structs.replace(LINE, body=b"x")),
    ("duplicate_component", "@method", unsigned(f'sig1=("@method" "@method"){PARAMETERS}', f"sig1={SIGNATURE}")),
    ("unsupported_component", "@method", unsigned('sig1=("@method";req)', f"sig1={SIGNATURE}")),
    ("malformed_component", "@target-uri", msgspec.structs.replace(LINE, target_uri=TARGET + "\n")),
    ("component_not_in_message", "authorization", without(FULL, b"authorization")),
    ("component_not_in_message", "content-length", without(FULL, b"content-length")),
    ("missing_digest", "content-digest", without(FULL, b"content-digest")),
    ("unknown_key", None, signed(parameters=f';keyid="K";created={CREATED}')),
    ("created_too_old", None, signed(parameters=f';keyid="k";created={CREATED - 301}')),
    ("created_in_future", None, signed(parameters=f';keyid="k";created={CREATED + 61}')),
    ("expired", None, signed(parameters=PARAMETERS + f";expires={CREATED}")),
    (
        "digest_malformed",
        "content-digest",
        signed('("@method" "@target-uri" "content-digest")', headers=[(b"content-digest", b"sha-512=\xff")], body=BODY),
    ),
    (
        "digest_unsupported",
        "content-digest",
        signed('("@method" "@target-uri" "content-digest")', headers=[(b"content-digest", b"md5=:AA==:")], body=BODY),
    ),
    ("digest_mismatch", "content-digest", msgspec.structs.replace(FULL, body=BODY + b"\n")),
    ("digest_mismatch", "content-digest", msgspec.structs.replace(FULL, body=b"")),
    ("signature_mismatch", None, unsigned(f"sig1={COVER_LINE}{PARAMETERS}", f"sig1={SIGNATURE}")),
    ("signature_mismatch", None, msgspec.structs.replace(LINE, method="DELETE")),
    ("signature_mismatch", None, plus(FULL, (b"content-type", b"application/json"))),
]


@pytest.mark.parametrize("message", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_verify_message_accepts(message: Message) -> None:
    verified = verify_message(message, KEY, NOW)
    assert isinstance(verified, Verified), verified
    nonce = "n" if message is ACCEPTED["nonce and expires"] else None
    assert (verified.keyid, verified.created, verified.nonce, verified.x) == ("k", CREATED, nonce, KEY.x)


@pytest.mark.parametrize(("reason", "component", "message"), REFUSED)
def test_verify_message_refuses(reason: str, component: str | None, message: Message) -> None:
    rejected = verify_message(message, KEY, NOW)
    assert isinstance(rejected, Rejected)
    assert (rejected.reason, rejected.component) == (reason, component)
    assert 20 <= len(rejected.description) <= 250
    assert (rejected.signature_base is not None) == (reason == "signature_mismatch")


def test_verify_message_shows_the_base_it_computed_when_nothing_else_is_wrong() -> None:
    message = msgspec.structs.replace(FULL, method="PUT", target_uri="https://wallet.example/caf\u00e9")
    rejected = verify_message(message, KEY, NOW)
    assert isinstance(rejected, Rejected)
    assert rejected.signature_base == (
        '"@method": PUT\n'
        '"@target-uri": https://wallet.example/caf\u00e9\n'
        '"authorization": GNAP token\n'
        f'"content-digest": {content_digest(BODY)}\n'
        '"content-length": 17\n'
        '"content-type": application/json\n'
        f'"@signature-params": {COVER_ALL}{PARAMETERS}'
    )


@pytest.mark.parametrize(
    ("later", "expires", "reason"),
    [
        (0, None, None),
        (300_000_000, None, None),
        (300_000_001, None, "created_too_old"),
        (-60_000_000, None, None),
        (-60_000_001, None, "created_in_future"),
        (0, 1, None),
        (999_999, 1, None),
        (1_000_000, 1, "expired"),
        (0, -1, "expired"),
        (301_000_000, 1000, "created_too_old"),  # expires extends nothing
        (-NOW, None, "created_in_future"),
        (10**30, None, "created_too_old"),
    ],
)
def test_freshness_at_its_edges(later: int, expires: int | None, reason: str | None) -> None:
    message = LINE if expires is None else signed(parameters=f"{PARAMETERS};expires={CREATED + expires}")
    found = verify_message(message, KEY, NOW + later)
    assert (found.reason if isinstance(found, Rejected) else None) is reason


def test_freshness_follows_the_setting_and_says_so() -> None:
    assert isinstance(verify_message(LINE, KEY, NOW + 9_999_000_000, max_age=10_000), Verified)
    rejected = verify_message(LINE, KEY, NOW + 6_000_000, max_age=5)
    assert isinstance(rejected, Rejected)
    assert "is 6 s old, and 5 s are allowed" in rejected.description


# Several signatures


def labelled(message: Message, label: str) -> tuple[str, str]:
    """Return the two header values of a message signed as sig1 under another label."""
    values = dict(message.headers)
    return (
        values[b"signature-input"].decode().replace("sig1=", f"{label}=", 1),
        values[b"signature"].decode().replace("sig1=", f"{label}=", 1),
    )


def combined(*pairs: tuple[str, str]) -> Message:
    return unsigned(", ".join(pair[0] for pair in pairs), ", ".join(pair[1] for pair in pairs))


PROXY = (
    f'proxy=("@status" "x-forwarded";req);created={CREATED};keyid="rsa"',
    f"proxy=:{b64encode(bytes(256)).decode()}:",
)
STALE = labelled(signed(parameters=f';keyid="k";created={CREATED - 999}'), "stale")
GOOD = labelled(signed(parameters=PARAMETERS + ';nonce="good"'), "good")
OTHERS = labelled(signed(parameters=f';keyid="other";created={CREATED};nonce="o"'), "others")
FORGED = (f"forged={COVER_LINE}{PARAMETERS}", f"forged={SIGNATURE}")


@pytest.mark.parametrize(
    "pairs",
    [
        [GOOD, PROXY],
        [PROXY, GOOD],
        [STALE, PROXY, OTHERS, GOOD],
        [FORGED, GOOD],
        [("unsigned=()", f"surplus={SIGNATURE}"), GOOD],
    ],
)
def test_verify_message_finds_the_acceptable_one_among_several(pairs: list[tuple[str, str]]) -> None:
    verified = verify_message(combined(*pairs), KEY, NOW)
    assert isinstance(verified, Verified)
    assert verified.nonce == "good"


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([PROXY, STALE], "malformed_signature"),
        ([STALE, PROXY], "created_too_old"),
        ([STALE, FORGED], "signature_mismatch"),
        ([OTHERS, STALE], "unknown_key"),
        ([FORGED, FORGED], "malformed_signature_input"),
    ],
)
def test_verify_message_reports_the_first_failure_when_none_is_good(pairs: list[tuple[str, str]], reason: str) -> None:
    rejected = verify_message(combined(*pairs), KEY, NOW)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason


def test_parse_drops_only_the_signatures_that_cover_a_wrong_digest() -> None:
    covering = signed('("@method" "@target-uri" "content-digest")', headers=[(b"content-digest", b"undefined")])
    message = plus(combined(labelled(covering, "covering"), GOOD), (b"content-digest", b"undefined"))
    verified = verify_message(message, KEY, NOW)
    assert isinstance(verified, Verified)
    assert verified.nonce == "good"


# Other spellings of the target


@pytest.mark.parametrize(
    ("signed_uri", "sent_uri", "accepted"),
    [
        ("https://a.example/x?w=https:%2F%2Fb", "https://a.example/x?w=https%3A%2F%2Fb", True),
        ("https://a.example/x?w=https%3A%2F%2Fb", "https://a.example/x?w=https:%2F%2Fb", False),
        ("https://a.example/x?w=https://b", "https://a.example/x?w=https%3A%2F%2Fb", False),
        ("https://a.example/x:y", "https://a.example/x%3Ay", False),
        ("https://a.example/x:y?z=:", "https://a.example/x%3Ay?z=%3A", False),
        ("https://a.example/x?w=a:b", "https://a.example/x?w=a%3ab", False),
        ("https://a.example/x?w=a b", "https://a.example/x?w=a%20b", False),
    ],
)
def test_verify_message_tries_a_colon_for_its_escape_in_the_query_only(
    signed_uri: str, sent_uri: str, accepted: bool
) -> None:
    message = msgspec.structs.replace(signed(target_uri=signed_uri), target_uri=sent_uri)
    assert isinstance(verify_message(message, KEY, NOW), Verified) is accepted


@pytest.mark.parametrize(
    ("signed_uri", "sent_uri", "accepted"),
    [
        ("https://a.example/x?", "https://a.example/x", True),
        ("https://a.example/x", "https://a.example/x?", True),
        ("https://a.example/?", "https://a.example/", True),
        ("https://a.example/x??", "https://a.example/x", False),
        ("https://a.example/x", "https://a.example/x??", False),
        ("https://a.example/x?y", "https://a.example/x", False),
        ("https://a.example/x", "https://a.example/x?y", False),
        ("https://a.example/x?y?", "https://a.example/x?y", False),
        ("https://a.example/y?", "https://a.example/x", False),
    ],
)
@pytest.mark.parametrize("also", ["", ' "@query"', ' "@request-target"', ' "@path"'])
def test_verify_message_takes_a_bare_question_mark_for_none(
    signed_uri: str, sent_uri: str, accepted: bool, also: str
) -> None:
    original = signed(f'("@method" "@target-uri"{also})', target_uri=signed_uri)
    message = msgspec.structs.replace(original, target_uri=sent_uri)
    assert isinstance(verify_message(message, KEY, NOW), Verified) is accepted


# Properties

LINES = {name: position for position, (name, _) in enumerate(FULL.headers)}


def with_line(line: int, name: bytes, value: bytes) -> Message:
    headers = list(FULL.headers)
    headers[line] = (name, value)
    return msgspec.structs.replace(FULL, headers=headers)


def flips(original: bytes) -> Iterator[bytes]:
    """The text with each of its bits changed."""
    for position, byte in enumerate(original):
        for bit in range(8):
            yield original[:position] + bytes([byte ^ 1 << bit]) + original[position + 1 :]


def flipped_messages() -> Iterator[Message]:
    """The message with each bit changed of its method, target, body, header names and header values."""
    for part in ("method", "target_uri"):
        for text in flips(getattr(FULL, part).encode()):
            yield msgspec.structs.replace(FULL, **{part: text.decode("latin-1")})
    yield from (msgspec.structs.replace(FULL, body=body) for body in flips(FULL.body))
    for line, (name, value) in enumerate(FULL.headers):
        yield from (with_line(line, other, value) for other in flips(name))
        yield from (with_line(line, name, other) for other in flips(value))


def test_verify_message_refuses_every_changed_bit(record_property: Callable[[str, object], None]) -> None:
    assert isinstance(verify_message(FULL, KEY, NOW), Verified)
    answers = [verify_message(message, KEY, NOW) for message in flipped_messages()]
    refused = [answer for answer in answers if isinstance(answer, Rejected)]
    record_property("flips", len(answers))
    record_property("flips_refused", len(refused))
    assert len(refused) == len(answers) > 4000


# Whitespace at the end is trimmed (RFC 9421 section 2.1), and a comma would start another, unsigned member.
TAILS = st.binary(min_size=1, max_size=9).filter(lambda tail: tail.strip(b" \t\r\n") != b"" and b"," not in tail)


@given(st.sampled_from(sorted(LINES)), TAILS)
def test_verify_message_refuses_a_header_value_extended(name: bytes, tail: bytes) -> None:
    value = FULL.headers[LINES[name]][1] + tail
    assert isinstance(verify_message(with_line(LINES[name], name, value), KEY, NOW), Rejected)


@pytest.mark.parametrize("name", sorted(LINES))
@pytest.mark.parametrize("byte", [b"a", b" ", b"\t", b'"', b"(", b"\\", b"\n", b"\xff", b"\0", b",", b":", b"="])
def test_verify_message_refuses_a_100_kb_header_quickly(name: bytes, byte: bytes) -> None:
    assert isinstance(verify_message(with_line(LINES[name], name, byte * 100_000), KEY, NOW), Rejected)


@pytest.mark.parametrize("target_uri", ["", "\ud800", "https://\udfff/?%3A", "x" * 100_000, "?" * 1000 + "%3A"])
def test_verify_message_refuses_a_strange_target(target_uri: str) -> None:
    rejected = verify_message(msgspec.structs.replace(FULL, target_uri=target_uri), KEY, NOW)
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "signature_mismatch"


@given(st.binary(min_size=32, max_size=32))
def test_verify_refuses_with_any_other_32_bytes_as_key(raw: bytes) -> None:
    # Also bytes that are no point of the curve: the answer is a refusal, not an exception.
    unverified = parse(LINE, 300, NOW)
    assert isinstance(unverified, Unverified)
    assert isinstance(verify(unverified, {"k": jwk_from_public_bytes("k", raw)}), Rejected)


EDGE_CASES = json.loads(Path(__file__).with_name("ed25519_edge_cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", range(len(EDGE_CASES)))
def test_keys_and_points_of_small_order_or_not_canonical_sign_nothing(number: int) -> None:
    """Twelve cases on which Ed25519 libraries differ (Chalkias, Garillot, Nikolaenko 2020).

    The third has points of mixed order, and no way to verify alone tells it from an ordinary one.
    """
    case = {name: bytes.fromhex(text) for name, text in EDGE_CASES[number].items()}
    key = jwk_from_public_bytes("k", case["public_key"])
    assert is_signature(case["signature"], case["message"], key) == (number == 3)
