"""What an Open Payments client asks of a payer's server, so that the payer pays an incoming payment here: each call
once. Of answers only what is used is demanded: the standard leaves much optional.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from payres.amounts import parse_value
from payres.clock import SECOND
from payres.federation.connection import FetchFailed, Response, bad_content
from payres.federation.http import GuardedClient
from payres.federation.identity import TOKEN, OwnIdentity, request_token
from payres.federation.targets import origin_of
from payres.federation.wallet_addresses import RemoteWallet
from payres.limits import MAX_NONCE_LENGTH, MAX_URL_LENGTH
from payres.urls import canonical, is_http_url
from payres.wire import Amount

T = TypeVar("T")
JSON: Final = {"Accept": "application/json", "Content-Type": "application/json"}
LONGEST_WAIT: Final = 60  # seconds that a server may have us wait before we continue

_Url = Annotated[str, Meta(min_length=1, max_length=MAX_URL_LENGTH)]
_Nonce = Annotated[str, Meta(min_length=1, max_length=MAX_NONCE_LENGTH)]


class Refused(FetchFailed):
    """The payer's server said no; `code` is its word for why, if it gave one. It has done nothing."""

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence, "refused", retryable=False)
        self.code = code


class Quote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What paying the receiver costs the payer."""

    id: _Url
    receiver: _Url
    debit_amount: Amount
    receive_amount: Amount
    wallet_address: _Url | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A payment for which the payer's consent was asked, as it is stored until it has ended.

    `token` continues the grant, and later reads the payment, which is at `payment` once there is one. `nonce` is ours,
    `server_nonce` that of the authorization server at `auth_server`. Before `not_before` (microseconds) it wants no
    continuation.
    """

    payer: str
    auth_server: str
    resource_server: str
    quote: str
    nonce: str
    server_nonce: str
    redirect: str
    continue_uri: str
    token: str
    not_before: int
    payment: str = ""


class Payment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An outgoing payment of the payer's server."""

    id: _Url
    sent_amount: Amount
    failed: bool = False

    @property
    def has_sent(self) -> bool:
        """Whether money has left the payer's wallet for good."""
        return self.sent_amount.value.strip("0") != ""


class _Value(msgspec.Struct, frozen=True):
    value: str


class _Continue(msgspec.Struct, frozen=True):
    access_token: _Value
    uri: _Url
    wait: Annotated[int, Meta(ge=0)] = 0


class _Interact(msgspec.Struct, frozen=True):
    redirect: _Url
    finish: _Nonce


class _Pending(msgspec.Struct, frozen=True):
    interact: _Interact
    continue_: _Continue = msgspec.field(name="continue")


class _Granted(msgspec.Struct, frozen=True):
    access_token: _Value


class Payer:
    """A payer's server, asked as the client `identity`. Every failure is a FetchFailed."""

    def __init__(self, http: GuardedClient, identity: OwnIdentity) -> None:
        self._http = http
        self._identity = identity

    async def quote(self, wallet: RemoteWallet, receiver: str, receive: Amount) -> Quote:
        """What it costs that just this amount arrives at the receiver."""
        token = (await request_token(self._http, self._identity, wallet.auth_server, "create", "quote")).value
        asked = {"walletAddress": wallet.id, "receiver": receiver, "method": "ilp", "receiveAmount": receive}
        url = f"{wallet.resource_server.rstrip('/')}/quotes"
        quote = await self._send("POST", url, Quote, token, asked)
        is_for_us = canonical(quote.receiver) == canonical(receiver) and quote.receive_amount == receive
        is_theirs = quote.wallet_address is None or canonical(quote.wallet_address) == canonical(wallet.id)
        in_asset = (quote.debit_amount.asset_code, quote.debit_amount.asset_scale)
        if not (is_for_us and is_theirs and in_asset == (wallet.asset_code, wallet.asset_scale)):
            raise bad_content(f"{url} quoted something else than it was asked for")
        _value(quote.debit_amount, url)
        return quote

    async def ask(self, wallet: RemoteWallet, quote: Quote, finish: str, nonce: str, now: int) -> Asked:
        """Asks for the payer's consent to this quote and nothing else; the payer is sent on to `redirect`, and then
        comes back to `finish`. That it may be shown to a browser is for the caller to check."""
        url = wallet.auth_server
        limits = {"receiver": quote.receiver, "debitAmount": quote.debit_amount}
        actions = ["create", "read"]  # to learn that the payment has failed
        access = {"type": "outgoing-payment", "actions": actions, "identifier": wallet.id, "limits": limits}
        interact = {"start": ["redirect"], "finish": {"method": "redirect", "uri": finish, "nonce": nonce}}
        client = self._identity.wallet_address
        body = {"access_token": {"access": [access]}, "client": client, "interact": interact}
        answer = await self._send("POST", url, _Pending, body=body)
        if not is_http_url(answer.continue_.uri) or origin_of(answer.continue_.uri) != origin_of(url):
            raise bad_content(f"{url} would have its grant continued at another server")
        return Asked(
            payer=wallet.id,
            auth_server=url,
            resource_server=wallet.resource_server.rstrip("/"),
            quote=quote.id,
            nonce=nonce,
            server_nonce=answer.interact.finish,
            redirect=answer.interact.redirect,
            continue_uri=answer.continue_.uri,
            token=_token(answer.continue_.access_token, url),
            not_before=now + min(answer.continue_.wait, LONGEST_WAIT) * SECOND,
        )

    async def continue_grant(self, asked: Asked, reference: str) -> str:
        """The access token of a grant that the payer has approved."""
        body = {"interact_ref": reference}
        answer = await self._send("POST", asked.continue_uri, _Granted, asked.token, body)
        return _token(answer.access_token, asked.continue_uri)

    async def cancel(self, asked: Asked) -> None:
        """Ends a grant that will not be used."""
        await self._request("DELETE", asked.continue_uri, asked.token)

    async def create(self, asked: Asked, token: str) -> Payment:
        """The payment by the quote, which the payer's server makes once."""
        url = f"{asked.resource_server}/outgoing-payments"
        body = {"walletAddress": asked.payer, "quoteId": asked.quote}
        return _checked(await self._send("POST", url, Payment, token, body), asked)

    async def read(self, asked: Asked) -> Payment:
        """The payment that was created."""
        return _checked(await self._send("GET", asked.payment, Payment, asked.token), asked)

    async def _send(self, method: str, url: str, kind: type[T], token: str | None = None, body: Any = None) -> T:
        """What the server answers. Of a failure, `unsent` says that it has done nothing."""
        answer = await self._request(method, url, token, body)
        if 400 <= answer.status < 500:
            raise Refused(f"{url} answered {answer.status}", _code(answer.body))
        try:
            if answer.status not in {200, 201}:
                raise FetchFailed(f"{url} answered {answer.status}")
            try:
                return msgspec.json.decode(answer.body, type=kind)
            except (ValueError, RecursionError) as error:
                raise bad_content(f"{url} did not answer with what was asked for: {error}") from error
        except FetchFailed as failed:
            failed.unsent = False
            raise

    async def _request(self, method: str, url: str, token: str | None, body: Any = None) -> Response:
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {"Accept": JSON["Accept"]} if body is None else dict(JSON)
        if token is not None:
            headers["Authorization"] = f"GNAP {token}"
        signed = self._identity.sign(method, url, headers, content)
        return await self._http.request(method, url, signed, content)


def _checked(payment: Payment, asked: Asked) -> Payment:
    """The payment, if it is one of the server that was asked: no other may get its token."""
    if not is_http_url(payment.id) or origin_of(payment.id) != origin_of(asked.resource_server):
        raise bad_content(f"{asked.resource_server} names a payment of another server")
    _value(payment.sent_amount, asked.resource_server)
    return payment


def _value(amount: Amount, url: str) -> int:
    try:
        return parse_value(amount.value)
    except ValueError as error:
        raise bad_content(f"{url} answered with an amount that is none: {error}") from error


def _token(token: _Value, url: str) -> str:
    if not TOKEN.fullmatch(token.value):
        raise bad_content(f"{url} gave an access token that fits into no header")
    return token.value


def _code(content: bytes) -> str:
    """The code in an answer that refuses: `{"error": {"code": ...}}`, or in short `{"error": ...}` (RFC 9635)."""
    try:
        error = msgspec.json.decode(content)["error"]
        return str(error["code"] if isinstance(error, dict) else error)
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
