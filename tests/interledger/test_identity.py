from base64 import b64decode
from pathlib import Path

import httpx2
import pytest

from payres.application import create_app
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SECOND
from payres.core.remote.connection import FetchFailed
from payres.core.signatures.jwk import JWK, jwk_from_public_bytes
from payres.core.signatures.sign import Message, signature_base
from payres.core.signatures.verify import is_signature
from payres.interledger.identity import OwnIdentity
from payres.interledger.node import node_of
from payres.operator import keys, wallets
from payres.testing.clock import MovableClock
from tests.instance import Instance, run_instance

SEED = bytes(range(32))
ADDRESS = "https://pay.example/.well-known/pay"
OWN = "/.well-known/pay"


@pytest.fixture
def identity() -> OwnIdentity:
    return OwnIdentity(ADDRESS, SEED, MovableClock(1_700_000_000 * SECOND + 999_999, frozen=True))


def check(identity: OwnIdentity, message: Message, signed: dict[str, str]) -> None:
    """Raises unless the headers sign the message with the identity's key."""
    parameters = signed["Signature-Input"].removeprefix("sig1=")
    components = parameters[1 : parameters.index(")")].replace('"', "").split(" ")
    signature = b64decode(signed["Signature"].removeprefix("sig1=:").removesuffix(":"))
    assert is_signature(signature, signature_base(message, components, parameters), identity.jwk)


@pytest.mark.parametrize(
    ("url", "as_sent"),
    [
        ("https://pay.example/incoming-payments/1", "https://pay.example/incoming-payments/1"),
        ("https://pay.example", "https://pay.example/"),
        ("https://PAY.example:443/a?b=c#d", "https://pay.example/a?b=c"),
        ("http://127.0.0.1:8080/a%2Fb", "http://127.0.0.1:8080/a%2Fb"),
        ("https://pay.example/ä", "https://pay.example/%C3%A4"),
    ],
)
def test_sign_covers_the_url_as_it_is_sent(identity: OwnIdentity, url: str, as_sent: str) -> None:
    signed = identity.sign("GET", url, {"Authorization": "GNAP t"})
    assert signed["Authorization"] == "GNAP t"
    assert f'("@method" "@target-uri" "authorization");keyid="{identity.kid}"' in signed["Signature-Input"]
    assert signed["Signature-Input"].endswith(";created=1700000000")
    check(identity, Message("GET", as_sent, [(b"authorization", b"GNAP t")]), signed)
    built = httpx2.Request("GET", url)
    assert f"{built.url.scheme}://{built.url.netloc.decode()}{built.url.raw_path.decode()}" == as_sent


def test_sign_covers_the_body(identity: OwnIdentity) -> None:
    signed = identity.sign("POST", "https://pay.example/", {"Content-Type": "application/json"}, b"{}")
    lines = [(name.lower().encode(), value.encode()) for name, value in signed.items()]
    check(identity, Message("POST", "https://pay.example/", lines, b"{}"), signed)
    assert '"content-digest" "content-length" "content-type"' in signed["Signature-Input"]


def test_sign_fails_as_a_fetch_does(identity: OwnIdentity) -> None:
    for url, authorization, words in (
        ("http://[::1", "GNAP t", "not an absolute"),
        ("https://pay.example/", "GNAP t\n", "cannot be signed"),
    ):
        with pytest.raises(FetchFailed, match=words) as failure:
            identity.sign("GET", url, {"Authorization": authorization})
        assert (failure.value.reason, failure.value.retryable) == ("unreachable", False)


def listed(instance: Instance, anonymous: httpx2.Client) -> list[JWK]:
    answer = anonymous.get(f"{instance.base_url}{OWN}/jwks.json")
    assert answer.status_code == 200
    return [JWK(**key) for key in answer.json()["keys"]]


async def test_own_key_outlives_a_restart(tmp_path: Path) -> None:
    async def key_in(name: str) -> JWK:
        app = create_app(Settings(database=str(tmp_path / name)))
        async with app.router.lifespan_context(app):
            identity: OwnIdentity = node_of(app.state.context).identity
            return identity.jwk

    own = await key_in("payres.db")
    assert await key_in("other.db") != own
    assert await key_in("payres.db") == own


def test_own_key_stands_beside_those_of_the_wallet(tmp_path: Path, anonymous: httpx2.Client) -> None:
    with run_instance(tmp_path / "payres.db") as instance:
        own = node_of(instance.context).identity.jwk
        instance.create_wallet(OWN[1:])
        added = jwk_from_public_bytes("mine", bytes(range(32)))
        instance.write(lambda tx: keys.add_key(tx, OWN[1:], added))
        assert listed(instance, anonymous) == [own, added]
        instance.write(lambda tx: wallets.deactivate(tx, OWN[1:]))
        assert listed(instance, anonymous) == [own]


def test_own_key_is_in_the_did_document(shared: Instance, anonymous: httpx2.Client) -> None:
    document = anonymous.get(f"{shared.base_url}{OWN}/did.json").json()
    assert document["id"] == shared.context.urls.did(OWN[1:])
    assert node_of(shared.context).identity.jwk in [
        JWK(**method["publicKeyJwk"]) for method in document["verificationMethod"]
    ]
