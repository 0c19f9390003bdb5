"""The official signing library and payres accept each other's signatures."""

import time

import msgspec
import pytest

from payres.core.protocol.errors import Rejected
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes, private_pem
from payres.core.signatures.sign import Message, sign
from payres.core.signatures.verify import Verified
from tests.helpers import Json, verify_message
from tests.interop.conftest import RunScenario

KID = "key-1"
TOKEN = {"authorization": "GNAP 2Rp4mX"}
TYPE = {"content-type": "application/json"}
BODY = (
    '{"incomingAmount":{"value":"100","assetCode":"USD","assetScale":2},"metadata":{"note":"\N{EURO SIGN} and \u00e9"}}'
)
REQUESTS: dict[str, Json] = {
    "GET": {"method": "GET", "url": "https://a.example/alice", "headers": TYPE},
    "GET, authorized": {
        "method": "GET",
        "url": "https://a.example/quotes?first=2&wallet-address=https%3A%2F%2Fa.example%2Falice",
        "headers": TYPE | TOKEN,
    },
    "POST": {"method": "POST", "url": "https://a.example/", "headers": TYPE, "body": BODY},
    "POST, authorized": {
        "method": "POST",
        "url": "http://a.example:8443/incoming-payments",
        "headers": TYPE | TOKEN,
        "body": BODY,
    },
    "POST, authorized, without body": {"method": "POST", "url": "https://a.example/token/1", "headers": TYPE | TOKEN},
    "DELETE": {"method": "DELETE", "url": "https://a.example/token/1", "headers": {}},
    "DELETE, authorized": {"method": "DELETE", "url": "https://a.example/continue/1", "headers": TOKEN},
}


PRIVATE_KEY = generate_private_key()
JWK = jwk_from_public_bytes(KID, PRIVATE_KEY.public_key().public_bytes_raw())


@pytest.fixture(scope="module")
def verdicts(run_scenario: RunScenario) -> dict[str, Json]:
    """What the official library makes of our signatures, and its own, for all requests at once."""
    requests = {name: {"signed": _signed(request), "plain": request} for name, request in REQUESTS.items()}
    key = {"jwk": msgspec.to_builtins(JWK), "privateKey": private_pem(PRIVATE_KEY).decode()}
    return run_scenario("signatures", {**key, "requests": requests})


@pytest.mark.parametrize("name", REQUESTS)
def test_official_verifier_accepts_our_signature(verdicts: dict[str, Json], name: str) -> None:
    verdict = verdicts[name]
    assert verdict["accepted"]
    assert verdict["keyId"] == KID
    assert not verdict["acceptedWithAnotherMethod"]
    assert not verdict["acceptedAtAnotherUrl"]


@pytest.mark.parametrize("name", REQUESTS)
def test_our_verifier_accepts_the_official_signature(verdicts: dict[str, Json], name: str) -> None:
    request, now = REQUESTS[name], time.time_ns() // 1000
    message = _message({**request, "headers": verdicts[name]["headers"]})
    verified = verify_message(message, JWK, now)
    assert isinstance(verified, Verified)
    assert verified.keyid == KID
    elsewhere = verify_message(msgspec.structs.replace(message, target_uri=f"{request['url']}x"), JWK, now)
    assert isinstance(elsewhere, Rejected)
    assert elsewhere.reason == "signature_mismatch"


def _signed(request: Json) -> Json:
    """The request with our signature, its headers in lower case as a server gets them."""
    added = sign(_message(request), PRIVATE_KEY.sign, KID, int(time.time()))
    return {**request, "headers": request["headers"] | {name.lower(): value for name, value in added.items()}}


def _message(request: Json) -> Message:
    headers = {name.lower().encode(): value.encode() for name, value in request["headers"].items()}
    return Message(request["method"], request["url"], list(headers.items()), request.get("body", "").encode())
