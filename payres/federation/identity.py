"""The identity of this server as a client of others: a wallet address and a key of its own."""

from collections.abc import Mapping

from nacl.bindings import crypto_sign, crypto_sign_BYTES, crypto_sign_seed_keypair

from payres.clock import SECOND, Clock
from payres.federation.failures import FetchFailed
from payres.federation.targets import parse_target
from payres.signatures.jwk import JWK, jwk_from_public_bytes, thumbprint
from payres.signatures.sign import Message, sign


class OwnIdentity:
    """Signs requests as the client at `wallet_address`, whose key set lists `jwk`.

    `seed` is the 32-byte private key (RFC 8032); the kid is the key's thumbprint (RFC 7638), so it changes only with
    the key.
    """

    def __init__(self, wallet_address: str, seed: bytes, clock: Clock) -> None:
        self.wallet_address = wallet_address
        public, secret = crypto_sign_seed_keypair(seed)
        self._secret = secret
        self._clock = clock
        self.kid = thumbprint(jwk_from_public_bytes("unnamed", public))
        self.jwk: JWK = jwk_from_public_bytes(self.kid, public)

    def sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
        """`headers` with the signature's headers (RFC 9421); with a body they must have a Content-Type.

        Raises FetchFailed for a URL that cannot be parsed or a header that cannot be signed.
        """
        lines = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        message = Message(method, parse_target(url).url, lines, body)
        try:
            return {**headers, **sign(message, self._ed25519, self.kid, self._clock.now() // SECOND)}
        except ValueError as error:
            raise FetchFailed("bad_request", f"The request to {url} cannot be signed: {error}") from error

    def _ed25519(self, data: bytes) -> bytes:
        """With libsodium, which signs in half the time of OpenSSL."""
        return crypto_sign(data, self._secret)[:crypto_sign_BYTES]
