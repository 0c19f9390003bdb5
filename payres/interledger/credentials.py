"""Credentials of receivers: the ILP address and shared secret that pay an incoming payment or a wallet (SPSP).

The address contains an encrypted token with the id of the incoming payment or the tag of the wallet, and the asset. The
secret is derived from the token, as in common STREAM receivers.
"""

import binascii
import os
from functools import lru_cache
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.core.protocol.amounts import Asset
from payres.core.protocol.identifiers import base64url, base64url_decoded
from payres.core.protocol.wire import PaymentMethod
from payres.interledger import oer
from payres.interledger.oer import CodecError, OctetReader
from payres.interledger.stream import IV_BYTES, SharedSecret, decrypt_gcm, encrypt_gcm, hmac_sha256

CONTENTS: Final = 0b101  # flags of a token: it has a tag and an asset, and nothing for receipts
OPENED_KEPT: Final = 1024
WALLET: Final = "wallet:"  # before the tag of a wallet; what has no prefix is the id of a payment


class Opened(msgspec.Struct, frozen=True):
    """The contents of one of our addresses: the tag of the payee, its asset, and the sender's shared secret."""

    tag: str
    asset: Asset
    shared_secret: SharedSecret


class CredentialSource:
    """Derives credentials from the server's 32-byte secret and its ILP address."""

    def __init__(self, server_secret: bytes, ilp_address: str) -> None:
        assert len(server_secret) == 32
        self._token_cipher = AESGCM(hmac_sha256(server_secret, b"ilp_stream_connection_token"))
        self._secret_key = hmac_sha256(server_secret, b"ilp_stream_shared_secret")
        self._iv_key = hmac_sha256(server_secret, b"payres_token_iv")
        self._ilp_address = ilp_address
        # All packets of a payment have the same address, and decrypting it costs as much as the rest of an answer.
        self._open_segment = lru_cache(maxsize=OPENED_KEPT)(self._opened)

    def for_payment(self, payment_id: str, asset: Asset) -> PaymentMethod:
        """The credentials of an incoming payment, the same on every call.

        The IV is derived from the plaintext, so one IV never encrypts two texts.
        """
        text = _token_text(payment_id, asset)
        return self._method(text, hmac_sha256(self._iv_key, text)[:IV_BYTES])

    def for_wallet(self, tag: str, asset: Asset) -> PaymentMethod:
        """Credentials that pay the wallet with this tag, new on every call. They never expire."""
        return self._method(_token_text(f"{WALLET}{tag}", asset), os.urandom(IV_BYTES))

    def open(self, ilp_address: str) -> Opened | None:
        """The contents of an address that this source made; None for any other. Segments may follow the token."""
        if not ilp_address.startswith(f"{self._ilp_address}."):
            return None
        segment = ilp_address[len(self._ilp_address) + 1 :].partition(".")[0]
        try:
            return self._open_segment(segment)
        except (CodecError, binascii.Error):
            return None

    def _opened(self, segment: str) -> Opened:
        """Raises CodecError or binascii.Error if the segment is not a token of this source."""
        token = base64url_decoded(segment)
        reader = OctetReader(decrypt_gcm(self._token_cipher, token))
        if reader.uint8() != CONTENTS:
            raise CodecError("the token has other contents")
        tag, asset = reader.text("ascii"), Asset(reader.text(), reader.uint8())
        return Opened(tag, asset, SharedSecret(hmac_sha256(self._secret_key, token)))

    def _method(self, text: bytes, iv: bytes) -> PaymentMethod:
        token = encrypt_gcm(self._token_cipher, text, iv)
        secret = base64url(hmac_sha256(self._secret_key, token))
        return PaymentMethod(type="ilp", ilp_address=f"{self._ilp_address}.{base64url(token)}", shared_secret=secret)


def wallet_of(tag: str) -> str | None:
    """The tag of a wallet; None if this is a payment's id."""
    return tag.removeprefix(WALLET) if tag.startswith(WALLET) else None


def _token_text(tag: str, asset: Asset) -> bytes:
    return oer.uint8(CONTENTS) + oer.var_text(tag) + oer.var_text(asset.code) + oer.uint8(asset.scale)
