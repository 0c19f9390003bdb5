"""STREAM credentials of incoming payments: an ILP address and a shared secret, derived and never stored.

The address carries a sealed token with the incoming payment's id and asset, so whatever arrives for it can be tied to
its payment, and the secret follows from the token (the scheme of the common STREAM receivers).
"""

import base64
import hmac

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.amounts import Asset

IV_BYTES = 12
TAG_BYTES = 16
HAS_TAG = 1
HAS_ASSET = 4


class Credentials(msgspec.Struct, frozen=True):
    """What a sender needs: the ILP address and the 32-byte shared secret as base64url without padding."""

    ilp_address: str
    shared_secret: str


class CredentialSource:
    """Derives credentials from the server's 32-byte secret and its ILP address."""

    def __init__(self, server_secret: bytes, ilp_address: str) -> None:
        assert len(server_secret) == 32
        self._token_cipher = AESGCM(_hmac(server_secret, b"ilp_stream_connection_token"))
        self._secrets = hmac.new(_hmac(server_secret, b"ilp_stream_shared_secret"), digestmod="sha256")
        self._ivs = hmac.new(_hmac(server_secret, b"payres_token_iv"), digestmod="sha256")
        self._ilp_address = ilp_address

    def for_payment(self, payment_id: str, asset: Asset) -> Credentials:
        """The credentials of an incoming payment, the same at each call.

        The IV is derived from the text that it seals, so one IV never seals two texts.
        """
        text = bytes([HAS_TAG | HAS_ASSET]) + _octets(payment_id) + _octets(asset.code) + bytes([asset.scale])
        iv = _keyed(self._ivs, text)[:IV_BYTES]
        sealed = self._token_cipher.encrypt(iv, text, None)
        token = iv + sealed[-TAG_BYTES:] + sealed[:-TAG_BYTES]
        return Credentials(
            f"{self._ilp_address}.{_base64url(token)}",
            _base64url(_keyed(self._secrets, token)),
        )


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _keyed(key: hmac.HMAC, message: bytes) -> bytes:
    """The HMAC of a message under a key set up before; unlike hmac.digest it never hands the interpreter to others."""
    code = key.copy()
    code.update(message)
    return code.digest()


def _octets(text: str) -> bytes:
    """A VarOctetString (OER): these texts are always shorter than 128 bytes, so one byte gives their length."""
    data = text.encode()
    assert len(data) < 128
    return bytes([len(data)]) + data


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
