"""Access tokens of other authorization servers, with which payres reads incoming payments on their resource servers."""

import re
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from payres.clock import SECOND, Clock
from payres.federation.connection import Response
from payres.federation.failures import FetchFailed, RemoteReceiverFailed
from payres.federation.http import GuardedClient
from payres.federation.identity import OwnIdentity

MAX_CACHED: Final = 256
MARGIN = 5 * SECOND  # a token that expires within it is not used any more
LONGEST = 3600 * SECOND  # how long a token is cached, whatever its server says
ACCESS: Final = {"type": "incoming-payment", "actions": ["read-all"]}

# It goes into a header as it is.
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


class _AccessToken(msgspec.Struct, frozen=True):
    value: str
    expires_in: Annotated[int, Meta(ge=0)] | None = None


class _GrantResponse(msgspec.Struct, frozen=True):
    """The part of a grant response that is read (RFC 9635 section 3)."""

    access_token: _AccessToken | None = None
    interact: msgspec.Raw = msgspec.Raw()


_GRANT_RESPONSE = msgspec.json.Decoder(_GrantResponse)


class TokenScope(NamedTuple):
    """Where a token is from and where it is sent: a server that names another's authorization server must not get its
    tokens."""

    auth_server: str
    origin: str


class _Cached(NamedTuple):
    value: str
    usable_until: int


class AccessTokens:
    """Requests tokens that permit reading any incoming payment, and caches them while they are valid."""

    def __init__(self, http: GuardedClient, identity: OwnIdentity, clock: Clock) -> None:
        self._http = http
        self._identity = identity
        self._clock = clock
        self._cached: dict[TokenScope, _Cached] = {}

    def cached(self, scope: TokenScope) -> str | None:
        """A token that was issued before and has not expired by our clock."""
        cached = self._cached.get(scope)
        return cached.value if cached is not None and self._clock.now() < cached.usable_until else None

    def newest_scope(self, origin: str) -> TokenScope | None:
        return next((scope for scope in reversed(self._cached) if scope.origin == origin), None)

    def drop(self, scope: TokenScope) -> None:
        """Drops the token, which the other server no longer accepts."""
        self._cached.pop(scope, None)

    async def request(self, scope: TokenScope) -> str:
        """A new token, by a grant without interaction. Raises RemoteReceiverFailed, FetchFailed."""
        body = msgspec.json.encode(
            {
                "access_token": {"access": [ACCESS]},
                "client": self._identity.wallet_address,
            }  # the form that all servers accept
        )
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        asked_at = self._clock.now()
        signed = self._identity.sign("POST", scope.auth_server, headers, body)
        answer = _granted(scope, await self._http.request("POST", scope.auth_server, signed, body))
        lifetime = LONGEST if answer.expires_in is None else min(answer.expires_in * SECOND, LONGEST)
        self._cache(scope, _Cached(answer.value, asked_at + lifetime - MARGIN))
        return answer.value

    def _cache(self, scope: TokenScope, token: _Cached) -> None:
        self._cached.pop(scope, None)  # so that the newest grant comes last
        self._cached[scope] = token
        if len(self._cached) > MAX_CACHED:
            del self._cached[next(iter(self._cached))]


def _granted(scope: TokenScope, response: Response) -> _AccessToken:
    _require_granted(scope, response)
    try:
        answer = _GRANT_RESPONSE.decode(response.body)
    except (ValueError, RecursionError) as error:
        raise FetchFailed("bad_content", f"{scope.auth_server} did not answer with a grant response") from error
    if answer.access_token is None:
        if bytes(answer.interact):
            sentence = f"{scope.auth_server} wants somebody's consent before the incoming payment can be read"
            raise RemoteReceiverFailed("refused", sentence, permanent=True)
        raise FetchFailed("bad_content", f"{scope.auth_server} answered without an access token")
    if not _TOKEN.fullmatch(answer.access_token.value):
        raise FetchFailed("bad_content", f"{scope.auth_server} gave an access token that fits into no header")
    return answer.access_token


def _require_granted(scope: TokenScope, response: Response) -> None:
    status = response.status
    if status in {200, 201}:
        return
    sentence = f"{scope.auth_server} answered the grant request with {status}"
    if status in {408, 425, 429} or status >= 500:
        raise RemoteReceiverFailed("unreachable", sentence, permanent=False)
    if status >= 400:
        # All but 403 may mean that the other server could not fetch our key set just now.
        raise RemoteReceiverFailed("refused", sentence, permanent=status == 403)
    raise RemoteReceiverFailed("bad_content", sentence, permanent=True)
