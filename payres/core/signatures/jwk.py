"""Ed25519 public keys as JSON Web Keys (RFC 7517, RFC 8037): decode, encode, thumbprint, PEM."""

import hashlib
import re
from base64 import b64decode
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import UNSET, UnsetType

from payres.core.protocol.errors import shown
from payres.core.protocol.identifiers import base64url, base64url_decoded
from payres.core.protocol.limits import MAX_KEYID_LENGTH

# Printable ASCII, because the kid travels as the keyid parameter, a structured-field string.
_KID = re.compile(rf"[\x20-\x7e]{{1,{MAX_KEYID_LENGTH}}}")
# 32 bytes in base64url without padding. The last character carries two unused bits, which must be zero: otherwise one
# key would have four spellings, and four thumbprints.
_X = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
# base64url to base64.
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
# A private key: in PEM, also without its first line (RFC 8410), or in JSON, also in malformed JSON; or a shared one.
_PRIVATE: Final = re.compile(r"""PRIVATE KEY|MC4CAQAwBQYDK2Vw|["'][dk]["']\s*:""")
_ONLY: Final = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA"}


class JWK(msgspec.Struct, frozen=True):
    """The public half of an Ed25519 key.

    Building or decoding one checks it: ValueError from the constructor, msgspec.ValidationError from a decoder.
    Unknown members are ignored.
    """

    kid: str
    x: str
    alg: str = "EdDSA"
    kty: str = "OKP"
    crv: str = "Ed25519"
    use: str | UnsetType | None = UNSET
    # Declared only to be rejected: decoders ignore unknown members, and a private key must not pass unnoticed.
    d: Any = UNSET

    def __post_init__(self) -> None:
        if self.d is not UNSET:
            raise ValueError("The JWK has the private member 'd'; send the public half only, and replace this key")
        for name, expected in _ONLY.items():
            value = getattr(self, name)
            if value != expected:
                raise ValueError(f"The JWK's {name} is {shown(value)}; only {expected!r} is supported")
        if not _KID.fullmatch(self.kid):
            raise ValueError(f"The JWK's kid must be 1 to {MAX_KEYID_LENGTH} printable ASCII characters")
        if not _X.fullmatch(self.x):
            raise ValueError("The JWK's x must be 32 bytes as base64url without padding (43 characters)")
        if self.use is None:
            # Some key sets contain the null; on the wire an optional member is omitted.
            msgspec.structs.force_setattr(self, "use", UNSET)
        elif self.use not in (UNSET, "sig"):
            raise ValueError(f"The JWK's use is {shown(str(self.use))}; a key that signs requests has 'sig' or none")


def parse_jwk(data: bytes | str | dict[str, Any]) -> JWK:
    """Decode a JWK from JSON text or a decoded object; raise ValueError with a sentence that names the problem."""
    try:
        if isinstance(data, dict):
            return msgspec.convert(data, JWK)
        return msgspec.json.decode(data, type=JWK)
    except RecursionError:
        raise ValueError("Not an Ed25519 public JWK: the JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"Not an Ed25519 public JWK: {error}") from None


def jwk_json(text: bytes) -> bytes:
    """Return the JSON or PEM of a key: the text itself, or its decoded base64 (either alphabet)."""
    encoded = b"".join(text.split()).translate(_STANDARD).rstrip(b"=")
    with suppress(ValueError):
        decoded = b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
        if decoded.lstrip().startswith((b"{", b"-----BEGIN")):
            return decoded
    return text


def has_private_key(text: str) -> bool:
    """Whether a text has a private key, in JSON or PEM, or in base64 of these, which may lack its end."""
    whole = text.strip().encode("utf-8", "replace")
    read = (jwk_json(one).decode("utf-8", "replace") for one in (whole, whole[:-1]))
    return any(_PRIVATE.search(one) for one in (text, *read))


def encode_jwk(jwk: JWK) -> str:
    """Return the JSON text of a key's public members only, always the same text for the same key and kid."""
    return msgspec.json.encode(jwk).decode("ascii")


def thumbprint(jwk: JWK) -> str:
    """Return the RFC 7638 SHA-256 thumbprint, base64url without padding; it depends only on the key, not on kid."""
    members = f'{{"crv":"{jwk.crv}","kty":"{jwk.kty}","x":"{jwk.x}"}}'
    return base64url(hashlib.sha256(members.encode("ascii")).digest())


@lru_cache(maxsize=1024)
def public_bytes(x: str) -> bytes:
    """Return the 32 bytes of a valid JWK's `x`; cached, because the same clients return with every request."""
    return base64url_decoded(x)


def jwk_from_public_bytes(kid: str, raw: bytes) -> JWK:
    """Return the JWK of 32 raw public key bytes; raise ValueError for another length or a bad kid."""
    return JWK(kid=kid, x=base64url(raw))


def jwk_from_pem(kid: str, pem: bytes) -> JWK:
    """Return the JWK of a public or unencrypted private Ed25519 PEM; raise ValueError for anything else.

    Of a private key only the public half is read.
    """
    # It loads slowly, and servers never read PEM.
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    try:
        key = load_pem_private_key(pem, password=None) if b"PRIVATE KEY" in pem else load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            "The PEM holds no readable Ed25519 key; it must be unencrypted PKCS#8 or a public key"
        ) from None
    match key:
        case Ed25519PrivateKey():
            public = key.public_key()
        case Ed25519PublicKey():
            public = key
        case _:
            raise ValueError("The PEM holds a key of another type; only Ed25519 is supported")
    return jwk_from_public_bytes(kid, public.public_bytes_raw())


def generate_private_key() -> Ed25519PrivateKey:
    """Return a new private key from the operating system's randomness."""
    return Ed25519PrivateKey.generate()


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """Return the unencrypted PKCS#8 PEM of a private key."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
