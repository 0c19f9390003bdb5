"""The signature base: RFC 9421's examples, and what cannot be part of one. Signing: the exact shape servers expect."""

from base64 import b64decode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.errors import SignatureError
from payres.core.signatures.fields import content_digest
from payres.core.signatures.jwk import JWK, generate_private_key, jwk_from_public_bytes
from payres.core.signatures.sign import Message, field_value, prepare, sign, signature_base
from payres.core.signatures.verify import Verified, is_signature
from tests.helpers import verify_message

# RFC 9421 section 2 and appendix B.2
RFC_MESSAGE = Message(
    "POST",
    "https://example.com/foo?param=Value&Pet=dog",
    [
        (b"host", b"example.com"),
        (b"date", b"Tue, 20 Apr 2021 02:07:55 GMT"),
        (b"content-type", b"application/json"),
        (b"content-length", b"18"),
    ],
    b'{"hello": "world"}',
)


def lines(message: Message, *components: str) -> list[str]:
    return signature_base(message, components, "()").decode().split("\n")


def test_signature_base_reproduces_rfc_9421_b_2_6() -> None:
    components = ("date", "@method", "@path", "@authority", "content-type", "content-length")
    parameters = (
        '("date" "@method" "@path" "@authority" "content-type" "content-length")'
        ';created=1618884473;keyid="test-key-ed25519"'
    )
    base = signature_base(RFC_MESSAGE, components, parameters)
    assert base.decode() == (
        '"date": Tue, 20 Apr 2021 02:07:55 GMT\n'
        '"@method": POST\n'
        '"@path": /foo\n'
        '"@authority": example.com\n'
        '"content-type": application/json\n'
        '"content-length": 18\n'
        f'"@signature-params": {parameters}'
    )
    signature = b64decode("wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==")
    assert is_signature(signature, base, JWK(kid="test-key-ed25519", x="JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"))


@pytest.mark.parametrize(
    ("component", "target_uri", "value"),
    [
        ("@target-uri", "https://www.example.com/path?param=value", "https://www.example.com/path?param=value"),
        ("@authority", "https://www.example.com/path?param=value", "www.example.com"),
        ("@authority", "https://WWW.Example.com:443/", "www.example.com"),
        ("@authority", "HTTP://example.com:80", "example.com"),
        ("@authority", "http://example.com:443/", "example.com:443"),
        ("@authority", "https://[2001:DB8::1]:8443/x", "[2001:db8::1]:8443"),
        ("@scheme", "HTTPS://www.example.com/", "https"),
        ("@path", "https://www.example.com/path?param=value", "/path"),
        ("@path", "https://www.example.com", "/"),
        ("@path", "https://www.example.com?x", "/"),
        ("@path", "https://www.example.com/a%2Fb//c/", "/a%2Fb//c/"),
        (
            "@query",
            "https://www.example.com/path?param=value&foo=bar&baz=bat%2Dman",
            "?param=value&foo=bar&baz=bat%2Dman",
        ),
        ("@query", "https://www.example.com/path", "?"),
        ("@query", "https://www.example.com/path?", "?"),
        ("@query", "https://www.example.com/path?queryString", "?queryString"),
        ("@query", "https://www.example.com/path?a?b", "?a?b"),
        ("@request-target", "https://www.example.com/path?param=value", "/path?param=value"),
        ("@request-target", "https://www.example.com/path?", "/path?"),
        ("@request-target", "https://www.example.com", "/"),
    ],
)
def test_signature_base_derives_components_from_the_target_uri(component: str, target_uri: str, value: str) -> None:
    assert lines(Message("GET", target_uri, []), component)[0] == f'"{component}": {value}'


def test_signature_base_canonicalises_headers_as_rfc_9421_2_1_shows() -> None:
    headers = [
        (b"host", b"www.example.com"),
        (b"date", b"Tue, 20 Apr 2021 02:07:56 GMT"),
        (b"x-ows-header", b"  Leading and trailing whitespace.\t  "),
        (b"x-obs-fold-header", b"Obsolete\r\n    line folding.  "),
        (b"cache-control", b"max-age=60"),
        (b"example-dict", b" a=1,    b=2;x=1;y=2,   c=(a   b   c)"),
        (b"cache-control", b"   must-revalidate"),
        (b"x-empty-header", b""),
    ]
    message = Message("GET", "https://www.example.com/", headers)
    names = ["x-ows-header", "x-obs-fold-header", "cache-control", "example-dict", "x-empty-header"]
    assert lines(message, *names)[:-1] == [
        '"x-ows-header": Leading and trailing whitespace.',
        '"x-obs-fold-header": Obsolete line folding.',
        '"cache-control": max-age=60, must-revalidate',
        '"example-dict": a=1,    b=2;x=1;y=2,   c=(a   b   c)',
        '"x-empty-header": ',
    ]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"a \t\r\n \t b", b"a b"),
        (b"a\n b", b"a b"),
        (b"a\r\n \r\n b", b"a b"),
        (b"\r\n a\r\n\t", b"a"),
        (b"a\r\nb", b"a\r\nb"),
        # Read again from each of its spaces, it would take hours.
        (b"a" + b" " * 5_000_000 + b"\n", b"a" + b" " * 5_000_000 + b"\n"),
    ],
    ids=["spaces", "bare-lf", "twice", "edges", "no-fold", "long-run"],
)
def test_field_value_unfolds(line: bytes, value: bytes) -> None:
    assert field_value([line]) == value


def test_signature_base_keeps_header_bytes_that_are_not_ascii() -> None:
    message = Message("GET", "https://example.com/", [(b"x-name", b"caf\xc3\xa9 \xff")])
    assert signature_base(message, ["x-name"], "()").startswith(b'"x-name": caf\xc3\xa9 \xff\n')


BREAKS = [(b"x-break", b'a\n"@method": DELETE'), (b"x-return", b"a\rb"), (b"x-null", b"a\0b")]


@pytest.mark.parametrize(
    ("method", "target_uri", "component", "reason"),
    [
        ("GET", "https://a.example/", "x-absent", "component_not_in_message"),
        *(
            ("GET", "https://a.example/", component, "unsupported_component")
            for component in ("@status", "@query-param", "@signature-params", "@")
        ),
        *(("GET", "https://a.example/", name.decode(), "malformed_component") for name, _ in BREAKS),
        ("GET\n", "https://a.example/", "@method", "malformed_component"),
        ("GET", 'https://a.example/\n"@path": /x', "@target-uri", "malformed_component"),
        ("GET", "/relative", "@path", "malformed_component"),
        ("GET", "", "@authority", "malformed_component"),
        ("GET", "https:///path", "@scheme", "malformed_component"),
    ],
)
def test_signature_base_refuses(method: str, target_uri: str, component: str, reason: str) -> None:
    with pytest.raises(SignatureError) as caught:
        lines(Message(method, target_uri, BREAKS), component)
    assert (caught.value.rejected.reason, caught.value.rejected.component) == (reason, component)


CREATED = 1_618_884_473
PRIVATE = generate_private_key()
KEY = jwk_from_public_bytes("key-1", PRIVATE.public_key().public_bytes_raw())
BODY = b'{"a":1}'
JSON = (b"content-type", b"application/json")
AUTHORIZATION = (b"authorization", b"GNAP token")
IDEMPOTENCY = (b"idempotency-key", b"once")


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
            Message("POST", "https://a.example/x", [JSON, IDEMPOTENCY], BODY),
            '"@method" "@target-uri" "content-digest" "content-length" "content-type" "idempotency-key"',
            ["Content-Digest", "Content-Length"],
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
    ids=["get", "get-with-type", "get-with-token", "post", "post-with-length", "post-with-key", "post-with-digest"],
)
def test_sign_covers_what_the_official_client_covers(message: Message, components: str, names: list[str]) -> None:
    added = sign(message, PRIVATE.sign, "key-1", CREATED, also=["idempotency-key"])
    assert list(added) == [*names, "Signature-Input", "Signature"]
    assert added["Signature-Input"] == f'sig1=({components});keyid="key-1";created={CREATED}'
    unsigned = prepare(message, "key-1", CREATED, also=["idempotency-key"])
    assert unsigned.signed(PRIVATE.sign(unsigned.base)) == added  # in two steps
    verified = verify_message(arrived(message, added), KEY, CREATED * 1_000_000)
    assert isinstance(verified, Verified)
    assert (verified.keyid, verified.created, verified.nonce) == ("key-1", CREATED, None)
    assert verified.signature == b64decode(added["Signature"].removeprefix("sig1=:").removesuffix(":"))


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
