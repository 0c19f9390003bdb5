"""Answers of a hostile server to a payres that asks it: key sets made to exhaust whoever reads them."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import httpx2
import pytest

from payres.core.protocol.limits import MAX_FETCHED_BYTES, MAX_JWKS_KEYS
from payres.core.remote.transport import Bounds
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from tests.conftest import Refused
from tests.helpers import TIMEOUT
from tests.http_server import serving
from tests.instance import Instance
from tests.signing_client import Client

QUOTE = {"type": "quote", "actions": ["create"]}
FEW_SECONDS = 0.4


class Bomber:
    """Answers whatever it is asked with `parts`, one after the other, until the other side has enough."""

    origin: str
    parts: Callable[[], Iterator[bytes]]

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            handler.connection.settimeout(TIMEOUT)
            for part in self.parts():
                handler.wfile.write(part)


@pytest.fixture
def bomber() -> Iterator[Bomber]:
    made = Bomber()
    with serving(made) as port:
        made.origin = f"http://127.0.0.1:{port}"
        yield made


def whole(body: bytes, headers: bytes = b"") -> Callable[[], Iterator[bytes]]:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n" % (len(body), headers)
    return lambda: iter([head + body])


def endless(head: bytes, part: bytes) -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        yield head
        while True:
            yield part

    return parts


def drip() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n"
    for _ in range(30):
        yield b" "
        threading.Event().wait(0.05)


OK = b"HTTP/1.1 200 OK\r\n"
JWK = {"kid": "key-9", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": "A" * 43}
BOMBS: dict[str, Callable[[], Iterator[bytes]]] = {
    "longer than is read": whole(b'{"keys":[' + b" " * MAX_FETCHED_BYTES + b"]}"),
    "says that it is long": endless(OK + b"content-length: 99999999999\r\n\r\n", b" " * 65536),
    "endless": endless(OK + b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "endless headers": endless(OK, b"x: " + b"y" * 60000 + b"\r\n"),
    "endless 100 Continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "compressed": whole(gzip.compress(b" " * 10_000_000), b"content-encoding: gzip\r\n"),
    "nested": whole(b'{"keys":' + b"[" * 60_000 + b"}"),
    "nested whole": whole(b'{"keys":' + b"[" * 30_000 + b"]" * 30_000 + b"}"),
    "many keys": whole(
        json.dumps({"keys": [{"kid": str(n)} | dict(list(JWK.items())[1:]) for n in range(600)]}).encode()
    ),
    "one kid many times": whole(json.dumps({"keys": [JWK] * 600}).encode()),
    "long kid": whole(json.dumps({"keys": [JWK | {"kid": "k" * 60_000}]}).encode()),
    "long number": whole(b'{"keys":' + b"9" * 60_000 + b"}"),
    "large exponent": whole(b'{"keys":[1e999999999]}'),
    "invalid UTF-8": whole(b'{"keys":["\xff\xfe\xed\xa0\x80"]}'),
    "keys of no point": whole(json.dumps({"keys": [JWK | {"kid": "key-1", "x": "_" * 42 + "8"}]}).encode()),
    "redirects to itself": whole(b"", b"location: /shop/jwks.json\r\n"),
    "nothing": whole(b""),
    "no HTTP": lambda: iter([b"\0" * 100_000]),
    "drips": drip,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_jwks_bombs(
    shared: Instance,
    bomber: Bomber,
    anonymous: httpx2.Client,
    refused: Refused,
    bomb: Callable[[], Iterator[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is refused as the unknown key that it is, in the time that one exchange may take, and nobody else waits.

    For an answer that has not come in time the client may ask again."""
    if bomb is drip:  # which never ends, and is given up soon
        monkeypatch.setattr(shared.context.http, "_bounds", Bounds(seconds=FEW_SECONDS))
    bomber.parts = bomb
    found: list[httpx2.Response] = []
    asking = threading.Thread(
        target=lambda: found.append(shared.client.request_grant(QUOTE, client=f"{bomber.origin}/shop"))
    )
    asking.start()
    assert anonymous.get(shared.wallet("alice")).status_code == 200
    asking.join()
    reason = found[0].json()["error"]["details"].get("reason")
    expected = {(400, "unknown_key"), (401, "unknown_key"), (401, "signature_mismatch")}  # 400 if the set can be read
    answered = found[0].status_code, reason
    assert answered == (503, None) if bomb is drip else answered in expected, found[0].text
    assert len(found[0].content) < 2000


def test_jwks_bombs_leave_no_more_keys_than_a_client_may_have(shared: Instance, bomber: Bomber) -> None:
    """The first 32 of a long key set are kept, the attacker's own among them or not."""
    key = generate_private_key()
    mine = jwk_from_public_bytes("mine", key.public_key().public_bytes_raw())
    others = [JWK | {"kid": str(number)} for number in range(200)]
    client = f"{bomber.origin}/shop"
    about = (client, key, mine, shared.base_url, shared.clock, shared.approve)
    keyset = [{"kid": "mine", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": mine.x}, *others]
    bomber.parts = whole(json.dumps({"keys": keyset}).encode())
    asking = Client(*about)
    try:
        assert asking.request_grant(QUOTE).status_code == 200
    finally:
        asking.close()
    query = "SELECT count(*) FROM client_key k JOIN client c ON c.id = k.client_id WHERE c.identity = ?"
    kept = shared.read(lambda tx: tx.execute(query, (client,)).fetchone()[0])
    assert kept == MAX_JWKS_KEYS
