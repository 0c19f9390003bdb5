"""Who this server is as a client of others."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nacl.bindings import crypto_sign, crypto_sign_BYTES, crypto_sign_seed_keypair

from payres.core.protocol.clock import SECOND, Clock
from payres.core.remote.connection import FetchFailed, Response
from payres.core.remote.http import GuardedClient, RemoteEffect, parse_target
from payres.core.signatures.jwk import JWK, jwk_from_public_bytes, thumbprint
from payres.core.signatures.sign import Message, sign

if TYPE_CHECKING:  # it loads slowly
    from payres.client.clients import AsyncClient


class OwnIdentity:
    """Signs requests as the client at `wallet_address`, whose key set lists `jwk`.

    `seed` is the 32-byte private key (RFC 8032); the kid is the key's thumbprint (RFC 7638), so it changes only with
    the key.
    """

    def __init__(self, wallet_address: str, seed: bytes, clock: Clock) -> None:
        self.wallet_address = wallet_address
        self._clients: dict[GuardedClient, AsyncClient] = {}
        public, self._secret = crypto_sign_seed_keypair(seed)
        self._clock = clock
        self.kid = thumbprint(jwk_from_public_bytes("unnamed", public))
        self.jwk: JWK = jwk_from_public_bytes(self.kid, public)

    def sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
        """`headers` with the signature's headers (RFC 9421); with a body they must have a Content-Type.

        Raises FetchFailed for a URL that cannot be parsed or a header that cannot be signed.
        """
        target = parse_target(url).url
        try:
            lines = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
            message = Message(method, target, lines, body)
            return {**headers, **sign(message, self._ed25519, self.kid, self._clock.now() // SECOND)}
        except ValueError as error:
            raise FetchFailed(f"The request to {url} cannot be signed: {error}", retryable=False) from error

    async def request(
        self,
        http: GuardedClient,
        method: str,
        url: str,
        token: str = "",
        body: bytes = b"",
        makes: RemoteEffect | None = None,
    ) -> Response:
        """The answer to a signed request, with JSON if it has a body. Raises FetchFailed."""
        headers = {"Accept": "application/json"}
        headers |= {"Authorization": f"GNAP {token}"} if token else {}
        headers |= {"Content-Type": "application/json"} if body else {}
        return await http.request(method, url, self.sign(method, url, headers, body), body, makes=makes)

    def client(self, http: GuardedClient, makes: Mapping[str, RemoteEffect]) -> "AsyncClient":
        """The Open Payments client with this identity that sends by `http`, created on first use. `makes` has what its
        calls make, by name. It never retries, because a person waits."""
        if http not in self._clients:
            from payres.client.clients import AsyncClient
            from payres.interledger.client_transport import GuardedTransport

            signer, transport = self._ed25519, GuardedTransport(http, makes)
            self._clients[http] = AsyncClient(
                self.wallet_address, signer, self.kid, max_retries=0, transport=transport, clock=self._clock
            )
        return self._clients[http]

    async def aclose(self) -> None:
        """Closes the clients."""
        for client in self._clients.values():
            await client.aclose()

    def _ed25519(self, data: bytes) -> bytes:
        """Signs with libsodium, which takes half the time of OpenSSL."""
        return crypto_sign(data, self._secret)[:crypto_sign_BYTES]
