"""Access tokens of other authorization servers, with which payres reads what is to be paid there."""

import re
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from payres.clock import SECOND, Clock
from payres.federation.failures import FetchFailed, RemoteReceiverFailed
from payres.federation.http import GuardedClient, Response
from payres.federation.identity import Identity

MAX_KEPT: Final = 256
MARGIN = 5 * SECOND  # a token that ends so soon is not sent any more
LONGEST = 3600 * SECOND  # how long a token is kept, whatever its server says
ACCESS: Final = {"type": "incoming-payment", "actions": ["read-all"]}

# It goes into a header as it is.
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


class _AccessToken(msgspec.Struct, frozen=True):
    value: str
    expires_in: Annotated[int, Meta(ge=0)] | None = None


class _Answer(msgspec.Struct, frozen=True):
    """What is needed of a grant response (RFC 9635 section 3)."""

    access_token: _AccessToken | None = None
    interact: msgspec.Raw = msgspec.Raw()


_ANSWER = msgspec.json.Decoder(_Answer)


class Place(NamedTuple):
    """Where a token is from and where it is sent: whoever names a server of others must not be shown its tokens."""

    auth_server: str
    origin: str


class _Kept(NamedTuple):
    value: str
    usable_until: int


class AccessTokens:
    """Asks for tokens that permit to read any incoming payment, and keeps them while they are good."""

    def __init__(self, http: GuardedClient, identity: Identity, clock: Clock) -> None:
        self._http = http
        self._identity = identity
        self._clock = clock
        self._kept: dict[Place, _Kept] = {}

    def kept(self, place: Place) -> str | None:
        """A token that was given before and has not ended, as far as is known here."""
        kept = self._kept.get(place)
        return kept.value if kept is not None and self._clock.now() < kept.usable_until else None

    async def ask(self, place: Place) -> str:
        """A new token, by a grant that needs nobody's consent. Raises RemoteReceiverFailed, FetchFailed."""
        body = msgspec.json.encode(
            {"access_token": {"access": [ACCESS]}, "client": self._identity.wallet_address}  # the form that all take
        )
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        asked_at = self._clock.now()
        signed = self._identity.sign("POST", place.auth_server, headers, body)
        answer = _granted(place, await self._http.request("POST", place.auth_server, signed, body))
        lifetime = LONGEST if answer.expires_in is None else min(answer.expires_in * SECOND, LONGEST)
        self._keep(place, _Kept(answer.value, asked_at + lifetime - MARGIN))
        return answer.value

    def _keep(self, place: Place, token: _Kept) -> None:
        self._kept.pop(place, None)  # so that the order is that of the last grants
        self._kept[place] = token
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]


def _granted(place: Place, response: Response) -> _AccessToken:
    _require_granted(place, response)
    try:
        answer = _ANSWER.decode(response.body)
    except (ValueError, RecursionError) as error:
        raise FetchFailed("bad_content", f"{place.auth_server} did not answer with a grant response") from error
    if answer.access_token is None:
        if bytes(answer.interact):
            sentence = f"{place.auth_server} wants somebody's consent before the incoming payment can be read"
            raise RemoteReceiverFailed("refused", sentence, permanent=True)
        raise FetchFailed("bad_content", f"{place.auth_server} answered without an access token")
    if not _TOKEN.fullmatch(answer.access_token.value):
        raise FetchFailed("bad_content", f"{place.auth_server} gave an access token that fits into no header")
    return answer.access_token


def _require_granted(place: Place, response: Response) -> None:
    status = response.status
    if status in {200, 201}:
        return
    sentence = f"{place.auth_server} answered the grant request with {status}"
    if status in {408, 425, 429} or status >= 500:
        raise RemoteReceiverFailed("unreachable", sentence, permanent=False)
    if status >= 400:
        # All but 403 may come from our key set, which the other server could not fetch just now.
        raise RemoteReceiverFailed("refused", sentence, permanent=status == 403)
    raise RemoteReceiverFailed("bad_content", sentence, permanent=True)
