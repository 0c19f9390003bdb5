"""Each call of the resource server and of wallet addresses once, for both kinds of client."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import httpx2
import msgspec
from msgspec import UNSET, Raw, UnsetType

from payres.client import checks
from payres.client.core import Call, Core, Sleep, Steps
from payres.client.errors import ConfigurationError, WaitTimeout
from payres.client.grants import Server, Token, exchange
from payres.signatures.jwk import JWK
from payres.wire import (
    Amount,
    Body,
    GrantSpending,
    IncomingPayment,
    IncomingPaymentRequest,
    OutgoingPayment,
    OutgoingPaymentRequest,
    Page,
    PublicIncomingPayment,
    Quote,
    QuoteRequest,
    WalletAddress,
)

T = TypeVar("T")
WAIT_SECONDS: Final = 20
LONGEST_PAUSE: Final = 15


class KeySet(msgspec.Struct):
    """The keys of a wallet address."""

    keys: list[JWK]


def wallet_address_get(core: Core, url: str, *, timeout: float | None = None) -> Steps[WalletAddress]:
    """The wallet address: its asset and its servers."""
    answer = yield from core.exchange(Call("wallet_address.get", "GET", url, timeout=timeout))
    return checks.decoded(answer, WalletAddress)


def wallet_address_keys(core: Core, url: str, *, timeout: float | None = None) -> Steps[list[JWK]]:
    """The keys that sign in the name of the wallet address."""
    call = Call("wallet_address.get_keys", "GET", f"{url.rstrip('/')}/jwks.json", timeout=timeout)
    answer = yield from core.exchange(call)
    found = checks.decoded(answer, KeySet)
    checks.notice_members(core, answer, KeySet)
    return found.keys


def wallet_address_did_document(core: Core, url: str, *, timeout: float | None = None) -> Steps[dict[str, Any]]:
    """The DID document of the wallet address."""
    call = Call("wallet_address.get_did_document", "GET", f"{url.rstrip('/')}/did.json", timeout=timeout)
    return checks.decoded((yield from core.exchange(call)), dict[str, Any])


def incoming_payment_create(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    wallet_address: str | None = None,
    incoming_amount: Amount | None = None,
    expires_at: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    timeout: float | None = None,
) -> Steps[IncomingPayment]:
    """Something to be paid. No money moves: it is repeated when its answer was lost."""
    asked = IncomingPaymentRequest(
        wallet_address=_wallet(server, wallet_address),
        incoming_amount=incoming_amount or UNSET,
        expires_at=expires_at or UNSET,
        metadata=_json(metadata),
    )
    call = _creation("incoming_payment", server, asked, idempotency_key, timeout)
    return checks.created_incoming((yield from exchange(core, access_token, call)), asked)


def incoming_payment_get(
    core: Core, url: str, access_token: Token, *, wait: int | None = None, timeout: float | None = None
) -> Steps[IncomingPayment]:
    """The incoming payment; with `wait`, once it has changed or so many seconds are over."""
    call = Call("incoming_payment.get", "GET", url, wait=wait, timeout=timeout)
    return checks.read_incoming((yield from exchange(core, access_token, call)))


def incoming_payment_get_public(
    core: Core, url: str, *, wait: int | None = None, timeout: float | None = None
) -> Steps[PublicIncomingPayment]:
    """What everybody may know of an incoming payment; with `wait`, as `get`."""
    call = Call("incoming_payment.get_public", "GET", url, wait=wait, timeout=timeout)
    return checks.decoded((yield from core.exchange(call)), PublicIncomingPayment)


def incoming_payment_complete(
    core: Core, url: str, access_token: Token, *, timeout: float | None = None
) -> Steps[IncomingPayment]:
    """The incoming payment, which takes no more money."""
    call = Call("incoming_payment.complete", "POST", f"{url}/complete", timeout=timeout)
    return checks.completed_incoming(core, (yield from exchange(core, access_token, call)))


def incoming_payment_list(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    wallet_address: str | None = None,
    first: int | None = None,
    last: int | None = None,
    cursor: str | None = None,
    wait: int | None = None,
    timeout: float | None = None,
) -> Steps[Page[IncomingPayment]]:
    """A page of incoming payments, newest first."""
    query = {"first": first, "last": last, "cursor": cursor, "wallet-address": _wallet(server, wallet_address)}
    call = _list("incoming_payment", server, query, wait, timeout)
    return checks.page(core, (yield from exchange(core, access_token, call)), IncomingPayment)


def incoming_payment_wait(
    core: Core,
    url: str,
    access_token: Token,
    until: Callable[[IncomingPayment], bool] = lambda payment: payment.completed,
    timeout: float = 600,
) -> Steps[IncomingPayment]:
    """The incoming payment once it is as wanted, by default completed. Raises WaitTimeout."""
    call = Call("incoming_payment.wait", "GET", url)
    return (yield from _wait(core, access_token, call, checks.read_incoming, until, timeout))


def quote_create(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    receiver: str,
    wallet_address: str | None = None,
    debit_amount: Amount | None = None,
    receive_amount: Amount | None = None,
    idempotency_key: str | None = None,
    timeout: float | None = None,
) -> Steps[Quote]:
    """What it costs to pay `receiver`. No money moves: it is repeated when its answer was lost."""
    if debit_amount and receive_amount:
        raise ConfigurationError("Fix debit_amount or receive_amount, not both")
    asked = QuoteRequest(
        wallet_address=_wallet(server, wallet_address),
        receiver=receiver,
        method="ilp",
        debit_amount=debit_amount or UNSET,
        receive_amount=receive_amount or UNSET,
    )
    call = _creation("quote", server, asked, idempotency_key, timeout)
    return checks.quote(core, (yield from exchange(core, access_token, call)), asked)


def quote_get(
    core: Core, url: str, access_token: Token, *, wait: int | None = None, timeout: float | None = None
) -> Steps[Quote]:
    """The quote."""
    call = Call("quote.get", "GET", url, wait=wait, timeout=timeout)
    return checks.quote(core, (yield from exchange(core, access_token, call)))


def outgoing_payment_create(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    wallet_address: str | None = None,
    quote_id: str | None = None,
    incoming_payment: str | None = None,
    debit_amount: Amount | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    timeout: float | None = None,
) -> Steps[OutgoingPayment]:
    """A payment of a quote, or of an amount to an incoming payment.

    Raises AnswerLost when it may have been made and cannot be asked for again without paying twice.
    """
    by_amount = incoming_payment is not None, debit_amount is not None
    if by_amount != ((False, False) if quote_id else (True, True)):
        raise ConfigurationError("Pay a quote_id, or a debit_amount to an incoming_payment")
    asked = OutgoingPaymentRequest(
        wallet_address=_wallet(server, wallet_address),
        quote_id=quote_id or UNSET,
        incoming_payment=incoming_payment or UNSET,
        debit_amount=debit_amount or UNSET,
        metadata=_json(metadata),
    )
    repeat = "quoted" if quote_id else "keyed"
    call = _creation("outgoing_payment", server, asked, idempotency_key, timeout)._replace(repeat=repeat)
    return checks.created_outgoing((yield from exchange(core, access_token, call)), asked)


def outgoing_payment_get(
    core: Core, url: str, access_token: Token, *, wait: int | None = None, timeout: float | None = None
) -> Steps[OutgoingPayment]:
    """The outgoing payment; with `wait`, once it has changed or so many seconds are over."""
    call = Call("outgoing_payment.get", "GET", url, wait=wait, timeout=timeout)
    return checks.read_outgoing(core, (yield from exchange(core, access_token, call)))


def outgoing_payment_list(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    wallet_address: str | None = None,
    first: int | None = None,
    last: int | None = None,
    cursor: str | None = None,
    wait: int | None = None,
    timeout: float | None = None,
) -> Steps[Page[OutgoingPayment]]:
    """A page of outgoing payments, newest first."""
    query = {"first": first, "last": last, "cursor": cursor, "wallet-address": _wallet(server, wallet_address)}
    call = _list("outgoing_payment", server, query, wait, timeout)
    return checks.page(core, (yield from exchange(core, access_token, call)), OutgoingPayment)


def outgoing_payment_wait(
    core: Core,
    url: str,
    access_token: Token,
    until: Callable[[OutgoingPayment], bool] = lambda payment: bool(payment.failed) or _is_sent(payment),
    timeout: float = 600,
) -> Steps[OutgoingPayment]:
    """The outgoing payment once it is as wanted, by default sent or failed. Raises WaitTimeout.

    One that was made for a received amount may end below its `debitAmount`: look at what the receiver has.
    """
    call = Call("outgoing_payment.wait", "GET", url)
    read = partial(checks.read_outgoing, core)
    return (yield from _wait(core, access_token, call, read, until, timeout))


def grant_spent_amounts(
    core: Core, server: Server, access_token: Token, *, timeout: float | None = None
) -> Steps[GrantSpending]:
    """What has been spent of a grant."""
    url = f"{_base(server)}/outgoing-payment-grant"
    call = Call("outgoing_payment.get_grant_spent_amounts", "GET", url, timeout=timeout)
    return checks.decoded((yield from exchange(core, access_token, call)), GrantSpending)


def next_cursor(page: Page[Any], seen: set[str]) -> str | None:
    """Where the next page begins; None after the last, and for a cursor that was there before."""
    cursor = page.pagination.end_cursor
    if not page.pagination.has_next_page or not cursor or cursor in seen:
        return None
    seen.add(cursor)
    return cursor


def _wait(
    core: Core,
    access_token: Token,
    call: Call,
    read: Callable[[httpx2.Response], T],
    until: Callable[[T], bool],
    timeout: float,
) -> Steps[T]:
    deadline, pause = time.monotonic() + timeout, 1.0
    while True:
        begun = time.monotonic()
        seconds = max(0, min(WAIT_SECONDS, int(deadline - begun)))
        answer = yield from exchange(core, access_token, call._replace(wait=seconds))
        found = read(answer)
        if until(found):
            return found
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"{call.name}: it is not as wanted after {timeout:g} seconds")
        if "preference-applied" not in answer.headers or time.monotonic() - begun < 1:
            yield Sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE)


def _is_sent(payment: OutgoingPayment) -> bool:
    return int(payment.sent_amount.value) >= int(payment.debit_amount.value)


def _creation(kind: str, server: Server, asked: Body, key: str | None, timeout: float | None) -> Call:
    """The request that creates; it has a key unless that is the empty text."""
    made = str(uuid4()) if key is None else key
    if made and not (made.isascii() and made.isprintable() and not {*made} & {'"', "\\"}):
        raise ConfigurationError("An idempotency_key is printable ASCII without quotes and backslashes")
    return Call(f"{kind}.create", "POST", _collection(server, kind), 201, asked, key=made, timeout=timeout)


def _json(metadata: Mapping[str, Any] | None) -> Raw | UnsetType:
    return UNSET if metadata is None else Raw(msgspec.json.encode(metadata))


def _list(kind: str, server: Server, query: Mapping[str, Any], wait: int | None, timeout: float | None) -> Call:
    """The request for a page, with the query as browsers write it (WHATWG URL, application/x-www-form-urlencoded)."""
    given = urlencode({name: value for name, value in query.items() if value}, safe="*").replace("~", "%7E")
    return Call(f"{kind}.list", "GET", f"{_collection(server, kind)}?{given}", wait=wait, timeout=timeout)


def _base(server: Server) -> str:
    return (server.resource_server if isinstance(server, WalletAddress) else server).rstrip("/")


def _collection(server: Server, kind: str) -> str:
    return f"{_base(server)}/{kind.replace('_', '-')}s"


def _wallet(server: Server, named: str | None) -> str:
    if named is not None:
        return named
    if not isinstance(server, WalletAddress):
        raise ConfigurationError("Name the wallet_address, or give a WalletAddress as the server")
    return server.id
