"""A device with passkeys, in software: it answers as a browser sends it, and wrongly where a test wants it to."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from itertools import count
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from fido2 import cbor
from fido2.cose import CoseKey

from tests.helpers import Json

UP, UV, BE, BS, AT = 0x01, 0x04, 0x08, 0x10, 0x40
PRESENT_AND_VERIFIED: Final = UP | UV
IDS = count(1)  # of credentials


class Authenticator:
    """It has one passkey for each relying party and user, and counts what it signs unless `counter` is None."""

    def __init__(self, origin: str, algorithm: int = -7, counter: int | None = 0) -> None:
        self.origin = origin
        self.counter = counter
        self.credential_id = next(IDS).to_bytes(16, "big")
        self.user_handle = b""
        self._key: Any
        if algorithm == -7:
            self._key = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == -8:
            self._key = ed25519.Ed25519PrivateKey.generate()
        else:
            self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.public_key: Any = CoseKey.for_alg(algorithm).from_cryptography_key(self._key.public_key())

    def register(self, options: str, *, flags: int = PRESENT_AND_VERIFIED, **client: Any) -> Json:
        """What the browser answers to PublicKeyCredentialCreationOptionsJSON; `client` is set in its data."""
        asked = json.loads(options)
        self.user_handle = decoded(asked["user"]["id"])
        length = len(self.credential_id).to_bytes(2, "big")
        credential = bytes(16) + length + self.credential_id + cbor.encode(self.public_key)
        data = self._data(asked["rp"]["id"], flags | AT) + credential
        attestation = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        told = self._client("webauthn.create", asked, client)
        response = {"clientDataJSON": encoded(told), "attestationObject": encoded(attestation)}
        return self._credential(response | {"transports": ["internal", "hybrid", "telepathy"]})

    def sign(self, options: str, *, flags: int = PRESENT_AND_VERIFIED, **client: Any) -> Json:
        """What the browser answers to PublicKeyCredentialRequestOptionsJSON."""
        asked = json.loads(options)
        if self.counter is not None:
            self.counter += 1
        told, data = self._client("webauthn.get", asked, client), self._data(asked["rpId"], flags)
        response = {
            "clientDataJSON": encoded(told),
            "authenticatorData": encoded(data),
            "signature": encoded(self._sign(data + sha256(told).digest())),
            "userHandle": encoded(self.user_handle),
        }
        return self._credential(response)

    def _data(self, party: str, flags: int) -> bytes:
        return sha256(party.encode()).digest() + bytes([flags]) + (self.counter or 0).to_bytes(4, "big")

    def _client(self, kind: str, asked: Json, client: Json) -> bytes:
        told = {"type": kind, "challenge": asked["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps(told | client).encode()

    def _sign(self, message: bytes) -> bytes:
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            return self._key.sign(message, ec.ECDSA(hashes.SHA256()))
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(message, padding.PKCS1v15(), hashes.SHA256())
        signature: bytes = self._key.sign(message)
        return signature

    def _credential(self, response: Json) -> Json:
        own = encoded(self.credential_id)
        return {"id": own, "rawId": own, "type": "public-key", "clientExtensionResults": {}, "response": response}


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
