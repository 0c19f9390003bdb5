"""What the official SDKs send, byte for byte, verifies: signatures made outside this program."""

import pytest

from payres.signatures.jwk import JWK
from payres.signatures.sign import Message
from payres.signatures.verify import Verified
from tests.helpers import verify_message

CREATED = 1_618_884_473
# RFC 9421 appendix B.1.4
KEY = JWK(kid="test-key-ed25519", x="JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs")
HEADERS = [
    (b"host", b"auth.example"),
    (b"accept", b"application/json"),
    (b"authorization", b"GNAP T"),
    (b"content-type", b"application/json"),
    (b"content-length", b"22"),
    (
        b"content-digest",
        b"sha-512=:oF7khhfZBSrLREQiuuJCr7dGSfKpDT+k8xQG0+J11ym0mpT9ax9Ydu25exLXg20nYNsujJai2PyVdS6qS3z6Dg==:",
    ),
]

JS_COMPONENTS = '("@method" "@target-uri" "authorization" "content-digest" "content-length" "content-type")'
JS_INPUT = f'sig1={JS_COMPONENTS};keyid="test-key-ed25519";created=1618884473'
JS_SIGNATURE = "DDigaEPJtVgJyWsxhmWQWovvHGGli79TMsjLxsfgW0pnBVonu3UkUeCgJ1C0/0fdYPzETKDsdBfryx94b7ViCQ=="
GO_INPUT = f'sig1={JS_COMPONENTS};created=1618884473;keyid="test-key-ed25519";alg="ed25519"'
GO_SIGNATURE = "I4kRMrsunuY7+rRW2IKVawyNFxYpAr/nrLYhSX6tRTbeDE6jso9WCn1SWw16JLH8ioV4vIvIxE7WEruaLjyeAA=="
PYTHON_INPUT = (
    'sig1=("content-type" "content-digest" "content-length" "authorization" "@method" "@target-uri")'
    ';created=1618884473;keyid="test-key-ed25519";alg="ed25519"'
)
PYTHON_SIGNATURE = "PN/c05mAoti+rPlxciQUCE2Cp0xDnYpHpCkxrE9VZIcUEGX0Y9yuiNUHzT4950Pqgub3PNk0DxJ+JJgShVYRDw=="
RUST_INPUT = (
    "sig1=(@method @target-uri content-type authorization content-digest content-length)"
    ';created=1618884473;keyid="test-key-ed25519"'
)
RUST_SIGNATURE = "s5JRf1c5CantbdOBBTmgZy1+zIfM0BOmJhpr/GZnUEnPvNAX0yCgpoz+PxM1Beg5uKqcWD9eK2g3M9spBmI7DA=="

SHAPES = {
    "javascript": (JS_INPUT, f"sig1=:{JS_SIGNATURE}:"),
    "php": (JS_INPUT, f"sig1={JS_SIGNATURE}"),
    "go-and-dotnet": (GO_INPUT, f"sig1=:{GO_SIGNATURE}:"),
    "python": (PYTHON_INPUT, f"sig1=:{PYTHON_SIGNATURE}:"),
    "rust-labelled": (RUST_INPUT, f"sig1=:{RUST_SIGNATURE}:"),
    "rust": (RUST_INPUT, RUST_SIGNATURE),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_verify_message_accepts_what_an_sdk_sends(shape: str) -> None:
    signature_input, signature = SHAPES[shape]
    headers = [*HEADERS, (b"signature-input", signature_input.encode()), (b"signature", signature.encode())]
    message = Message("POST", "https://auth.example/continue/1", headers, b'{"interact_ref":"abc"}')
    verified = verify_message(message, KEY, CREATED * 1_000_000)
    assert verified == Verified("test-key-ed25519", CREATED, None)
