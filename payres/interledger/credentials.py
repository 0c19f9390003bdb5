"""STREAM credentials of incoming payments: an ILP address and a shared secret, derived and never stored.

The address carries a sealed token with the incoming payment's id and asset, so whatever arrives for it can be tied to
its payment, and the secret follows from the token (the scheme of the common STREAM receivers).
"""

import base64
import hmac

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.amounts import Asset
from payres.interledger import oer
from payres.interledger.stream import IV_BYTES, seal

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
        flags = oer.uint8(HAS_TAG | HAS_ASSET)
        text = flags + oer.var_text(payment_id) + oer.var_text(asset.code) + oer.uint8(asset.scale)
        token = seal(self._token_cipher, text, _keyed(self._ivs, text)[:IV_BYTES])
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


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
