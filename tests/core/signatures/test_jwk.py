"""JWKs: RFC vectors, what decodes and what is refused, PEM."""

import json
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from payres.core.signatures.jwk import (
    JWK,
    encode_jwk,
    generate_private_key,
    jwk_from_pem,
    jwk_from_public_bytes,
    parse_jwk,
    private_pem,
    public_bytes,
    thumbprint,
)

# RFC 8037 appendix A.1 to A.3
RFC_8037_D = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
RFC_8037_X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
RFC_8037_THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"

GOOD: dict[str, Any] = {"kid": "k", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": RFC_8037_X}


def test_thumbprint_gives_the_vector_of_rfc_8037() -> None:
    assert thumbprint(JWK(kid="any", x=RFC_8037_X)) == RFC_8037_THUMBPRINT


def test_public_key_and_jwk_from_public_bytes_are_inverse() -> None:
    raw = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    jwk = jwk_from_public_bytes("k", raw)
    assert jwk == JWK(kid="k", x=RFC_8037_X)
    assert public_bytes(jwk.x) == raw


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_jwk_from_public_bytes_refuses_another_length(length: int) -> None:
    with pytest.raises(ValueError, match="x must be 32 bytes"):
        jwk_from_public_bytes("k", bytes(length))


@pytest.mark.parametrize("data", [GOOD, msgspec.json.encode(GOOD), msgspec.json.encode(GOOD).decode()])
def test_parse_jwk_takes_bytes_text_and_objects(data: bytes | str | dict[str, Any]) -> None:
    assert parse_jwk(data) == JWK(kid="k", x=RFC_8037_X)


@pytest.mark.parametrize(
    "members",
    [
        {"use": "sig"},
        {"use": None},
        {"key_ops": ["verify"], "x5t": "ignored", "nested": {"d": "not the key's own member"}},
        {"kid": "x" * 256},
        {"kid": 'quotes " and spaces'},
    ],
)
def test_parse_jwk_accepts_and_ignores(members: dict[str, Any]) -> None:
    assert parse_jwk(GOOD | members).x == RFC_8037_X


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"d": RFC_8037_D}, "private member 'd'"),
        ({"d": None}, "private member 'd'"),
        ({"alg": "ES256"}, "alg is 'ES256'; only 'EdDSA' is supported"),
        ({"kty": "EC"}, "kty is 'EC'; only 'OKP' is supported"),
        ({"crv": "X25519"}, "crv is 'X25519'; only 'Ed25519' is supported"),
        ({"crv": "x" * 40}, r"crv is 'x{40}';"),
        ({"crv": "x" * 41}, r"crv is 'x{40}\.\.\.'"),
        ({"use": "enc"}, "use is 'enc'"),
        ({"kid": ""}, "kid must be 1 to 256"),
        ({"kid": "x" * 257}, "kid must be 1 to 256"),
        ({"kid": "clé"}, "printable ASCII"),
        ({"kid": "a\nb"}, "printable ASCII"),
        ({"kid": 7}, "Expected `str`, got `int`"),
        ({"x": ""}, "x must be 32 bytes"),
        ({"x": RFC_8037_X[:-1]}, "x must be 32 bytes"),
        ({"x": RFC_8037_X + "A"}, "x must be 32 bytes"),
        ({"x": RFC_8037_X + "="}, "without padding"),
        ({"x": RFC_8037_X[:-1] + "p"}, "x must be 32 bytes"),  # same bytes, non-zero unused bits
        ({"x": RFC_8037_X.replace("_", "/")}, "x must be 32 bytes"),
        ({"x": RFC_8037_X + "\n"}, "x must be 32 bytes"),
    ],
)
def test_parse_jwk_refuses_with_a_sentence(members: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_jwk(GOOD | members)
    with pytest.raises(msgspec.ValidationError, match=sentence):
        msgspec.json.decode(msgspec.json.encode(GOOD | members), type=JWK)


@pytest.mark.parametrize("name", ["kid", "x"])
def test_parse_jwk_names_the_missing_member(name: str) -> None:
    members = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(ValueError, match=f"missing required field `{name}`"):
        parse_jwk(members)


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b'"jwk"', b"{", b"\xff", "\ud800", b'{"kid":"k","n":' + b"[" * 100_000],
    ids=["empty", "null", "array", "string", "cut", "not-utf-8", "surrogate", "deep"],
)
def test_parse_jwk_refuses_what_is_no_object(data: bytes | str) -> None:
    with pytest.raises(ValueError, match=r"^Not an Ed25519 public JWK: "):
        parse_jwk(data)


def test_jwk_from_pem_reads_private_and_public_halves() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    assert private_pem(key).startswith(b"-----BEGIN PRIVATE KEY-----\n"), "PKCS #8"
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for pem in (private_pem(key), public):
        assert jwk_from_pem("k", pem) == JWK(kid="k", x="A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg")


@pytest.mark.parametrize(
    "other",
    [ec.generate_private_key(ec.SECP256R1()), x25519.X25519PrivateKey.generate()],
    ids=["for other signatures", "for exchanges"],
)
def test_jwk_from_pem_refuses_other_key_types(other: ec.EllipticCurvePrivateKey | x25519.X25519PrivateKey) -> None:
    for pem in (
        other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    ):
        with pytest.raises(ValueError, match="another type; only Ed25519"):
            jwk_from_pem("k", pem)


def test_jwk_from_pem_refuses_what_it_cannot_read() -> None:
    key = generate_private_key()
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    for pem in [b"", b"not a key", encrypted, private_pem(key)[:60], b"\xff" * 50]:
        with pytest.raises(ValueError, match="no readable Ed25519 key"):
            jwk_from_pem("k", pem)


@pytest.mark.parametrize("use", [{}, {"use": "sig"}, {"use": None}])
def test_encode_jwk_has_the_public_members_and_no_others(use: dict[str, str | None]) -> None:
    key = jwk_from_public_bytes("key", bytes(range(32)))
    sent = {"x5c": ["junk"], "x": key.x, "kid": "key", "crv": "Ed25519", "kty": "OKP", "d2": 1} | use
    encoded = encode_jwk(parse_jwk(json.dumps(sent, indent=2)))
    public = {"kid": "key", "x": key.x, "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519"}
    assert json.loads(encoded) == public | {name: value for name, value in use.items() if value}
    assert encode_jwk(parse_jwk(encoded)) == encoded
    assert thumbprint(parse_jwk(encoded)) == thumbprint(key)
