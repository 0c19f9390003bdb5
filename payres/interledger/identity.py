"""This server as a client of others: its wallet address, key, and access tokens."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta
from nacl.bindings import crypto_sign, crypto_sign_BYTES, crypto_sign_seed_keypair

from payres.core.protocol.clock import SECOND, Clock
from payres.core.remote.connection import FetchFailed, Response, bad_content
from payres.core.remote.http import GuardedClient
from payres.core.remote.targets import parse_target
from payres.core.signatures.jwk import JWK, jwk_from_public_bytes, thumbprint
from payres.core.signatures.sign import Message, sign

if TYPE_CHECKING:  # it loads slowly
    from payres.client import AsyncClient

# The characters that are valid in a header.
TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")


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
        lines = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        message = Message(method, parse_target(url).url, lines, body)
        try:
            return {**headers, **sign(message, self._ed25519, self.kid, self._clock.now() // SECOND)}
        except ValueError as error:
            raise FetchFailed(f"The request to {url} cannot be signed: {error}", retryable=False) from error

    def client(self, http: GuardedClient) -> "AsyncClient":
        """The Open Payments client with this identity that sends by `http`, created on first use. It never retries,
        because a person waits."""
        if http not in self._clients:
            from payres.client import AsyncClient
            from payres.interledger.client_transport import GuardedTransport

            signer, transport = self._ed25519, GuardedTransport(http)
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


class AccessToken(msgspec.Struct, frozen=True):
    """`expires_in` is in seconds; None if not given."""

    value: str
    expires_in: Annotated[int, Meta(ge=0)] | None = None


class _GrantResponse(msgspec.Struct, frozen=True):
    """The part of a grant response that is read (RFC 9635 section 3)."""

    access_token: AccessToken | None = None
    interact: msgspec.Raw = msgspec.Raw()


async def request_token(
    http: GuardedClient, identity: OwnIdentity, auth_server: str, action: Literal["read-all", "create"]
) -> AccessToken:
    """Requests a token for incoming payments, by a grant without interaction. Raises FetchFailed."""
    access = {"type": "incoming-payment", "actions": [action]}
    # The form that all servers accept.
    body = msgspec.json.encode({"access_token": {"access": [access]}, "client": identity.wallet_address})
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    response = await http.request("POST", auth_server, identity.sign("POST", auth_server, headers, body), body)
    if response.status not in {200, 201}:
        raise _not_granted(response, f"{auth_server} answered the grant request with {response.status}")
    answer = response.decoded(_GrantResponse, f"{auth_server} did not answer with a grant response")
    token = answer.access_token
    if token is None and bytes(answer.interact):
        sentence = f"{auth_server} wants somebody's consent before it permits that"
        raise FetchFailed(sentence, "refused", retryable=False)
    if token is None:
        raise bad_content(f"{auth_server} answered without an access token")
    if not TOKEN.fullmatch(token.value):
        raise bad_content(f"{auth_server} gave an access token that fits into no header")
    return token


def _not_granted(response: Response, sentence: str) -> FetchFailed:
    if response.is_temporary:
        return FetchFailed(sentence)
    if response.status >= 400:
        # Any status except 403 may mean that the other server failed to fetch our key set.
        return FetchFailed(sentence, "refused", retryable=response.status != 403)
    return bad_content(sentence)
