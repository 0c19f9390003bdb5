"""Incoming payments on other servers, and this server as a client of them.

Like any client, payres first reads the public form, which names the authorization server. With a token from there it
reads the full form, also of other incoming payments of that server. To pay a wallet address, it creates one there,
which `remote_resources` ends.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from payres.core.process.bounded_mapping import Newest
from payres.core.protocol.amounts import Asset, parse_value
from payres.core.protocol.clock import HOUR, SECOND, Clock, format_time, parse_time
from payres.core.protocol.gnap import Token
from payres.core.protocol.identifiers import base64url_decoded
from payres.core.protocol.urls import canonical, is_http_url
from payres.core.protocol.visible import note_of
from payres.core.protocol.wire import Amount
from payres.core.remote.connection import FetchFailed, Response, bad_content
from payres.core.remote.http import NOTHING, GuardedClient, RemoteEffect, origin_of, parse_target
from payres.core.remote.wallet_addresses import RemoteWallet, fetch_wallet_address
from payres.interledger.identity import OwnIdentity
from payres.interledger.ilp_addresses import is_ilp_address
from payres.interledger.sending.connection import Destination

# From the expiry of a price until its incoming payment expires. A payment that has begun goes on after an outage of its
# receiver, of up to GIVE_UP_AFTER (an hour), and again after the next.
PAYING: Final = 3 * HOUR
BILL: Final = RemoteEffect(
    "incoming payments, to pay a wallet address: Send, standing orders, refunds with `to`",
    f"payres completes them when their payment has ended; unpaid, they expire with their price or {PAYING // HOUR}"
    " hours later",
)
ACCESS: Final = RemoteEffect(
    "grants to read, create and complete incoming payments",
    "their tokens expire; payres keeps none for more than an hour",
)
MAX_TOKENS: Final = 256  # cached
MARGIN: Final = 5 * SECOND  # before the expiry of a token, from which it is not used
LONGEST: Final = 3600 * SECOND  # maximum lifetime of a cached token
NO_CONTINUATION: Final = ("invalid_continuation", "unknown_continuation")
_SECRET = re.compile(r"[A-Za-z0-9_+/-]{43}=?")

T = TypeVar("T")
TokenUse = Literal["read-all", "create", "complete"]
_Text = Annotated[str, Meta(max_length=2048)]


class RemoteIncomingPayment(msgspec.Struct, frozen=True, kw_only=True):
    """An incoming payment as its server describes it; amounts are in minor units of `asset`, times microseconds.

    `method` is None if it cannot be paid over Interledger. The `description` is its creator's, on one line.
    """

    url: str
    wallet_address: str
    asset: Asset
    incoming_value: int | None
    received: int
    expires_at: int | None
    completed: bool
    method: Destination | None
    description: str = ""

    @property
    def remaining(self) -> int | None:
        """How much may still be paid in; None if there is no limit."""
        return None if self.incoming_value is None else max(self.incoming_value - self.received, 0)


class _Scope(NamedTuple):
    """Source, destination and use of a token: a server that names another's authorization server must not get its
    tokens."""

    action: TokenUse
    auth_server: str
    origin: str


class RemoteReceivers:
    """Reads and creates incoming payments on other servers as the client `identity`, each within `seconds`.

    Tokens to read and to complete any incoming payment of a server are cached while valid.
    """

    def __init__(self, http: GuardedClient, identity: OwnIdentity, clock: Clock, seconds: float = 10.0) -> None:
        self._http = http
        self._clock = clock
        self._seconds = seconds
        self._identity = identity
        self._send = partial(identity.request, http)
        self._tokens = Newest[_Scope, tuple[str, int]](MAX_TOKENS)  # with the end of their use

    async def fetch_open(self, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        """The incoming payment at a URL, which can be paid over Interledger now; `seconds` overrides the limit.

        Raises FetchFailed, also `completed`, `expired` and `no_ilp_method`.
        """
        payment = await self.fetch(url, seconds)
        if payment.completed or payment.remaining == 0:
            raise FetchFailed("The incoming payment is completed", "completed", retryable=False)
        if payment.expires_at is not None and payment.expires_at <= self._clock.now():
            sentence = f"The incoming payment expired at {format_time(payment.expires_at)}"
            raise FetchFailed(sentence, "expired", retryable=False)
        if payment.method is None:
            sentence = "The incoming payment cannot be paid over Interledger: its server offers no such method"
            raise FetchFailed(sentence, "no_ilp_method", retryable=False)
        return payment

    async def fetch(self, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        """The incoming payment at a URL, in any state. Raises FetchFailed."""
        async with self._limited(f"{url} could not be read", seconds or self._seconds):
            return _understood(url, _decode(url, await self._read(url), _Private))

    async def find_wallet(self, url: str) -> RemoteWallet:
        """The wallet address at a URL. Raises FetchFailed."""
        async with self._limited(f"{url} could not be read", self._seconds):
            return await fetch_wallet_address(self._http, url)

    async def create(
        self, wallet: RemoteWallet, description: str = "", receive: Amount | None = None, until: int | None = None
    ) -> str:
        """The URL of a new incoming payment into a wallet address, of this amount or of any, that expires at `until`.
        A server that takes no such expiry is asked without. Raises FetchFailed."""
        async with self._limited(f"{wallet.id} gave no incoming payment", self._seconds):
            url = f"{wallet.resource_server.rstrip('/')}/incoming-payments"
            token, _ = await self._request_token("create", wallet.auth_server)
            asked: dict[str, object] = {"walletAddress": wallet.id}
            asked |= {"metadata": {"description": description}} if description else {}
            asked |= {"incomingAmount": receive} if receive else {}
            expiry = {} if until is None else {"expiresAt": format_time(until)}
            response = await self._send("POST", url, token, msgspec.json.encode(asked | expiry), BILL)
            if response.status == 400 and expiry:  # by its clock, or by its rules
                response = await self._send("POST", url, token, msgspec.json.encode(asked), BILL)
            _require_ok(url, response, expected=201)
            created = _decode(url, response, _Created).id
            if not is_http_url(created) or origin_of(created) != origin_of(url):
                raise bad_content(f"{url} created an incoming payment of another server")
            return created

    async def complete(self, url: str) -> None:
        """Completes an incoming payment that this server has created, unless it has ended. Raises FetchFailed."""
        async with self._limited(f"{url} could not be completed", self._seconds):
            try:
                scope = _Scope("complete", await self._find_auth_server(url), origin_of(parse_target(url).url))
            except FetchFailed as error:
                if error.reason != "not_found":
                    raise
                return
            complete = partial(self._send, "POST", f"{url.rstrip('/')}/complete", body=b"", makes=NOTHING)
            response = await self._send_with_kept(scope, complete) or await complete(await self._new_token(scope))
            if response.status not in {404, 409, 410}:
                _require_ok(url, response)

    async def cancel_grant(self, url: str, token: str) -> None:
        """Cancels a grant of this server by its continuation, unless it has ended. Raises FetchFailed."""
        async with self._limited(f"{url} could not be cancelled", self._seconds):
            response = await self._send("DELETE", url, token)
            if response.status not in {200, 204, 404, 410} and not _is_over(response):
                _require_ok(url, response, expected=204)

    @asynccontextmanager
    async def _limited(self, failure: str, seconds: float) -> AsyncIterator[None]:
        """Limits the time of the block; `failure` begins the timeout's sentence, which ends with the slow host."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            asked = getattr(error.__cause__, "__notes__", [])  # the cancelled exchange noted its host
            silent = f": {asked[0]} did not answer" if asked else ""
            raise FetchFailed(f"{failure} within {seconds:g} seconds{silent}") from error

    async def _read(self, url: str) -> Response:
        """The full form of an incoming payment.

        Only a token identifies us to the other server. Without one it might apply its limit for unauthenticated
        requests, which any client may have made this server exceed: so the newest token for the server is tried first.
        """
        origin = origin_of(parse_target(url).url)
        kept = (scope for scope in reversed(self._tokens) if (scope.action, scope.origin) == ("read-all", origin))
        newest, get = next(kept, None), partial(self._send, "GET", url)
        response = await self._send_with_kept(newest, get) if newest else None
        if response is None or response.status != 200:
            scope = _Scope("read-all", await self._find_auth_server(url), origin)
            response = await self._send_with_kept(scope, get) or await get(await self._new_token(scope))
            _require_ok(url, response, missing={404, 410})
        return response

    async def _send_with_kept(self, scope: _Scope, send: Callable[[str], Awaitable[Response]]) -> Response | None:
        """None if there is no token, or it is rejected."""
        token, usable_until = self._tokens.get(scope, ("", 0))
        if self._clock.now() >= usable_until:
            return None
        response = await send(token)
        if response.status in {401, 403}:  # revoked, or expired by the other server's clock
            self._tokens.pop(scope, None)
            return None
        return response

    async def _find_auth_server(self, url: str) -> str:
        """The authorization server of the payment, from its public form."""
        response = await self._http.request("GET", url, {"Accept": "application/json"})
        # Some servers answer 401 for a payment that does not exist, even without a token.
        _require_ok(url, response, missing={401, 404, 410})
        auth_server = _decode(url, response, _Public).auth_server
        if not is_http_url(auth_server):
            raise bad_content(f"{url} does not name its authServer by an http or https URL")
        return auth_server

    async def _new_token(self, scope: _Scope) -> str:
        token, _ = self._tokens[scope] = await self._request_token(scope.action, scope.auth_server)
        return token

    async def _request_token(self, action: TokenUse, auth_server: str) -> tuple[str, int]:
        """A token for incoming payments, by a grant without interaction, and the end of its use. Raises FetchFailed."""
        access = {"type": "incoming-payment", "actions": [action]}
        # The form that all servers accept.
        body = msgspec.json.encode({"access_token": {"access": [access]}, "client": self._identity.wallet_address})
        asked_at = self._clock.now()
        response = await self._send("POST", auth_server, body=body, makes=ACCESS)
        if response.status not in {200, 201}:
            raise _not_granted(response, f"{auth_server} answered the grant request with {response.status}")
        answer = response.decoded(_GrantResponse, f"{auth_server} did not answer with a grant response")
        token = answer.access_token
        if token is None and bytes(answer.interact):
            sentence = f"{auth_server} wants somebody's consent before it permits that"
            raise FetchFailed(sentence, "refused", retryable=False)
        if token is None:
            raise bad_content(f"{auth_server} answered without an access token")
        lifetime = LONGEST if token.expires_in is None else min(token.expires_in * SECOND, LONGEST)
        return token.value, asked_at + lifetime - MARGIN


def _is_over(response: Response) -> bool:
    """Whether the answer to a continuation says that there is nothing to continue (RFC 9635 section 3.6)."""
    from payres.client.errors import ApiError, error_of

    error = error_of(response.status, response.headers, response.body)
    return isinstance(error, ApiError) and error.status in {400, 401} and error.code in NO_CONTINUATION


class _Token(msgspec.Struct, frozen=True):
    value: Token
    expires_in: Annotated[int, Meta(ge=0)] | None = None  # seconds


class _GrantResponse(msgspec.Struct, frozen=True):
    """The part of a grant response that is read (RFC 9635 section 3)."""

    access_token: _Token | None = None
    interact: msgspec.Raw = msgspec.Raw()


class _Public(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    auth_server: _Text


class _Created(msgspec.Struct, frozen=True):
    id: _Text


class _Private(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: _Text
    wallet_address: _Text
    completed: bool
    received_amount: Amount
    incoming_amount: Amount | None = None
    expires_at: Annotated[str, Meta(max_length=64)] | None = None
    methods: list[dict[str, object]] = []
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


def _not_granted(response: Response, sentence: str) -> FetchFailed:
    if response.is_temporary:
        return FetchFailed(sentence)
    if response.status >= 400:
        # Any status except 403 may mean that the other server failed to fetch our key set.
        return FetchFailed(sentence, "refused", retryable=response.status != 403)
    return bad_content(sentence)


def _require_ok(url: str, response: Response, missing: Set[int] = frozenset(), expected: int = 200) -> None:
    status = response.status
    if status == expected:
        return
    sentence = f"{url} answered {status}"
    if status in missing:
        raise FetchFailed(f"{sentence}: there is no such incoming payment", "not_found", retryable=False)
    if status in {401, 403}:
        # A 401 may mean that the other server could not fetch our key set just now.
        raise FetchFailed(sentence, "refused", retryable=status == 401)
    if response.is_temporary:
        raise FetchFailed(sentence)
    raise bad_content(f"{sentence} instead of {expected}")


def _decode(url: str, response: Response, kind: type[T]) -> T:
    return response.decoded(kind, f"{url} is not an incoming payment", says_why=True)


def _understood(url: str, body: _Private) -> RemoteIncomingPayment:
    try:
        _check(url, body)
        return RemoteIncomingPayment(
            url=url,
            wallet_address=body.wallet_address,
            asset=body.received_amount.asset,
            incoming_value=None if body.incoming_amount is None else parse_value(body.incoming_amount.value),
            received=parse_value(body.received_amount.value),
            expires_at=None if body.expires_at is None else parse_time(body.expires_at),
            completed=body.completed,
            method=_ilp_method(body.methods, body.received_amount.asset),
            description=note_of(bytes(body.metadata).decode(errors="replace")),
        )
    except ValueError as error:
        raise bad_content(f"{url} is not an incoming payment: {error}") from error


def _check(url: str, body: _Private) -> None:
    """Raises ValueError. Both amounts must have the same asset: the official client requires it."""
    if body.id != url and canonical(body.id) != canonical(url):
        raise ValueError("its id is another URL than the one asked for")
    if not is_http_url(body.wallet_address):
        raise ValueError("its walletAddress is not an http or https URL")
    if not body.received_amount.asset.code.isprintable():
        raise ValueError("its assetCode is not printable")
    if body.incoming_amount is not None and body.incoming_amount.asset != body.received_amount.asset:
        raise ValueError("its incomingAmount and its receivedAmount are in two assets")


def _ilp_method(methods: Sequence[Mapping[str, object]], asset: Asset) -> Destination | None:
    """The first method of type ilp; other types are skipped. Raises ValueError."""
    method = next((method for method in methods if method.get("type") == "ilp"), None)
    if method is None:
        return None
    address, secret = method.get("ilpAddress"), method.get("sharedSecret")
    if not (isinstance(address, str) and is_ilp_address(address)):
        raise ValueError("the ilpAddress of its ilp method is not an ILP address")
    return Destination(address, _secret(secret), asset)


def _secret(text: object) -> bytes:
    """Decodes 32 bytes in base64url or base64, with or without padding."""
    if not (isinstance(text, str) and _SECRET.fullmatch(text)):
        raise ValueError("the sharedSecret of its ilp method is not 32 bytes in base64url")
    return base64url_decoded(text[:43].replace("+", "-").replace("/", "_"))
