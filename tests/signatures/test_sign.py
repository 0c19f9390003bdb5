"""Signing: the exact shape servers expect, and that our own verifier takes it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.signatures.base import Message
from payres.signatures.digest import content_digest
from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.signatures.sign import sign
from payres.signatures.verify import Verified
from tests.helpers import verify_message

CREATED = 1_618_884_473
PRIVATE = generate_private_key()
KEY = jwk_from_public_bytes("key-1", PRIVATE.public_key().public_bytes_raw())
BODY = b'{"a":1}'
JSON = (b"content-type", b"application/json")
AUTHORIZATION = (b"authorization", b"GNAP token")


def arrived(message: Message, added: dict[str, str]) -> Message:
    """Return the message as a server sees it."""
    lines = [(name.lower().encode(), value.encode()) for name, value in added.items()]
    return msgspec.structs.replace(message, headers=[*message.headers, *lines])


@pytest.mark.parametrize(
    ("message", "components", "names"),
    [
        (Message("GET", "https://a.example/x", []), '"@method" "@target-uri"', []),
        (Message("GET", "https://a.example/x", [JSON]), '"@method" "@target-uri"', []),
        (Message("GET", "https://a.example/x", [AUTHORIZATION]), '"@method" "@target-uri" "authorization"', []),
        (
            Message("POST", "https://a.example/x", [JSON], BODY),
            '"@method" "@target-uri" "content-digest" "content-length" "content-type"',
            ["Content-Digest", "Content-Length"],
        ),
        (
            Message("POST", "https://a.example/x", [JSON, AUTHORIZATION, (b"content-length", b"7")], BODY),
            '"@method" "@target-uri" "authorization" "content-digest" "content-length" "content-type"',
            ["Content-Digest"],
        ),
        (
            Message(
                "POST",
                "https://a.example/x",
                [JSON, (b"content-digest", content_digest(BODY, "sha-256").encode())],
                BODY,
            ),
            '"@method" "@target-uri" "content-digest" "content-length" "content-type"',
            ["Content-Length"],
        ),
    ],
    ids=["get", "get-with-type", "get-with-token", "post", "post-with-length", "post-with-digest"],
)
def test_sign_covers_what_the_official_client_covers(message: Message, components: str, names: list[str]) -> None:
    added = sign(message, PRIVATE.sign, "key-1", CREATED)
    assert list(added) == [*names, "Signature-Input", "Signature"]
    assert added["Signature-Input"] == f'sig1=({components});keyid="key-1";created={CREATED}'
    verified = verify_message(arrived(message, added), KEY, CREATED * 1_000_000)
    assert verified == Verified("sig1", "key-1", CREATED, None, None)


def test_sign_adds_digest_and_length_of_the_body() -> None:
    added = sign(Message("POST", "https://a.example/", [JSON], BODY), PRIVATE.sign, "key-1", CREATED)
    assert added["Content-Digest"] == content_digest(BODY)
    assert added["Content-Length"] == "7"


def test_sign_escapes_the_keyid() -> None:
    message = Message("GET", "https://a.example/", [])
    added = sign(message, PRIVATE.sign, 'a"b\\c', CREATED)
    assert ';keyid="a\\"b\\\\c";' in added["Signature-Input"]
    key = jwk_from_public_bytes('a"b\\c', PRIVATE.public_key().public_bytes_raw())
    assert isinstance(verify_message(arrived(message, added), key, CREATED * 1_000_000), Verified)


@pytest.mark.parametrize(
    ("message", "keyid", "sentence"),
    [
        (Message("POST", "https://a.example/", [], BODY), "k", "needs a content-type"),
        (Message("GET", "https://a.example/", []), "clé", "disallowed characters"),
        (Message("GET", "https://a.example/\n", []), "k", "has a line break"),
        (Message("GET", "https://a.example/", [(b"authorization", b"GNAP a\r\nb")]), "k", "has a line break"),
    ],
)
def test_sign_refuses(message: Message, keyid: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sign(message, PRIVATE.sign, keyid, CREATED)


@given(
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.from_regex(r"https://[a-z]{1,9}\.example(:[0-9]{4})?/[!-~]{0,30}", fullmatch=True),
    st.binary(max_size=60),
    st.booleans(),
    st.from_regex(r"[ -~]{1,60}", fullmatch=True),
)
def test_sign_makes_what_verify_message_accepts(
    method: str, target_uri: str, body: bytes, with_token: bool, keyid: str
) -> None:
    message = Message(method, target_uri, [JSON, AUTHORIZATION] if with_token else [JSON], body)
    complete = arrived(message, sign(message, PRIVATE.sign, keyid, CREATED))
    key = jwk_from_public_bytes(keyid, PRIVATE.public_key().public_bytes_raw())
    assert isinstance(verify_message(complete, key, CREATED * 1_000_000), Verified)
