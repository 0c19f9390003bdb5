"""Each call of the resource server and of wallet addresses once, for both kinds of client."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import httpx2
import msgspec

from payres.client import checks
from payres.client.core import Call, Core, Sleep, Steps
from payres.client.errors import ConfigurationError, WaitTimeout
from payres.client.grants import Grant, Server
from payres.signatures.jwk import JWK
from payres.wire import (
    Amount,
    GrantSpending,
    IncomingPayment,
    OutgoingPayment,
    Page,
    PublicIncomingPayment,
    Quote,
    WalletAddress,
)

T = TypeVar("T")
Token = str | Grant
WAIT_SECONDS: Final = 20
LONGEST_PAUSE: Final = 15


def wallet_address_get(core: Core, url: str, *, timeout: float | None = None) -> Steps[WalletAddress]:
    """The wallet address: its asset and its servers."""
    answer = yield from core.exchange(Call("wallet_address.get", "GET", url, timeout=timeout))
    return checks.decoded(answer, WalletAddress)


def wallet_address_keys(core: Core, url: str, *, timeout: float | None = None) -> Steps[list[JWK]]:
    """The keys that sign in the name of the wallet address."""
    call = Call("wallet_address.get_keys", "GET", f"{url.rstrip('/')}/jwks.json", timeout=timeout)
    answer = yield from core.exchange(call)
    found = checks.decoded(answer, _KeySet)
    checks.notice_members(core, answer, ["keys"])
    return found.keys


class _KeySet(msgspec.Struct):
    keys: list[JWK]


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
    wallet = _wallet(server, wallet_address)
    given = {"incomingAmount": incoming_amount, "expiresAt": expires_at, "metadata": metadata}
    body = {"walletAddress": wallet, **_given(given)}
    call = _creation("incoming_payment", server, body, access_token, idempotency_key, timeout)
    return checks.created_incoming(core, (yield from core.exchange(call)), wallet, incoming_amount)


def incoming_payment_get(
    core: Core, url: str, access_token: Token, *, wait: int | None = None, timeout: float | None = None
) -> Steps[IncomingPayment]:
    """The incoming payment; with `wait`, once it has changed or so many seconds are over."""
    call = Call("incoming_payment.get", "GET", url, token=access_token, wait=wait, timeout=timeout)
    return checks.read_incoming(core, (yield from core.exchange(call)))


def incoming_payment_get_public(core: Core, url: str, *, timeout: float | None = None) -> Steps[PublicIncomingPayment]:
    """What everybody may know of an incoming payment."""
    call = Call("incoming_payment.get_public", "GET", url, timeout=timeout)
    return checks.decoded((yield from core.exchange(call)), PublicIncomingPayment)


def incoming_payment_complete(
    core: Core, url: str, access_token: Token, *, timeout: float | None = None
) -> Steps[IncomingPayment]:
    """The incoming payment, which takes no more money."""
    call = Call("incoming_payment.complete", "POST", f"{url}/complete", token=access_token, timeout=timeout)
    return checks.completed_incoming(core, (yield from core.exchange(call)))


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
    url = f"{_collection(server, 'incoming_payment')}?{_encoded(query)}"
    call = Call("incoming_payment.list", "GET", url, token=access_token, wait=wait, timeout=timeout)
    return checks.incoming_page(core, (yield from core.exchange(call)))


def incoming_payment_wait(
    core: Core,
    url: str,
    access_token: Token,
    until: Callable[[IncomingPayment], bool] = lambda payment: payment.completed,
    timeout: float = 600,
) -> Steps[IncomingPayment]:
    """The incoming payment once it is as wanted, by default completed. Raises WaitTimeout."""
    call = Call("incoming_payment.wait", "GET", url, token=access_token)
    return (yield from _wait(core, call, checks.read_incoming, until, timeout))


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
    body = {"walletAddress": _wallet(server, wallet_address), "receiver": receiver, "method": "ilp"}
    body |= _given({"debitAmount": debit_amount, "receiveAmount": receive_amount})
    call = _creation("quote", server, body, access_token, idempotency_key, timeout)
    return checks.quote(core, (yield from core.exchange(call)), body)


def quote_get(
    core: Core, url: str, access_token: Token, *, wait: int | None = None, timeout: float | None = None
) -> Steps[Quote]:
    """The quote."""
    call = Call("quote.get", "GET", url, token=access_token, wait=wait, timeout=timeout)
    return checks.quote(core, (yield from core.exchange(call)))


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
    if (quote_id is None) == (incoming_payment is None and debit_amount is None):
        raise ConfigurationError("Pay a quote_id, or a debit_amount to an incoming_payment")
    given = {
        "quoteId": quote_id,
        "incomingPayment": incoming_payment,
        "debitAmount": debit_amount,
        "metadata": metadata,
    }
    body = {"walletAddress": _wallet(server, wallet_address), **_given(given)}
    repeat = "keyed" if quote_id is None else "quoted"
    call = _creation("outgoing_payment", server, body, access_token, idempotency_key, timeout)._replace(repeat=repeat)
    return checks.created_outgoing(core, (yield from core.exchange(call)), body)


def outgoing_payment_get(
    core: Core, url: str, access_token: Token, *, wait: int | None = None, timeout: float | None = None
) -> Steps[OutgoingPayment]:
    """The outgoing payment; with `wait`, once it has changed or so many seconds are over."""
    call = Call("outgoing_payment.get", "GET", url, token=access_token, wait=wait, timeout=timeout)
    return checks.read_outgoing(core, (yield from core.exchange(call)))


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
    url = f"{_collection(server, 'outgoing_payment')}?{_encoded(query)}"
    call = Call("outgoing_payment.list", "GET", url, token=access_token, wait=wait, timeout=timeout)
    return checks.outgoing_page(core, (yield from core.exchange(call)))


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
    call = Call("outgoing_payment.wait", "GET", url, token=access_token)
    return (yield from _wait(core, call, checks.read_outgoing, until, timeout))


def grant_spent_amounts(
    core: Core, server: Server, access_token: Token, *, timeout: float | None = None
) -> Steps[GrantSpending]:
    """What has been spent of a grant."""
    url = f"{_base(server)}/outgoing-payment-grant"
    call = Call("outgoing_payment.get_grant_spent_amounts", "GET", url, token=access_token, timeout=timeout)
    return checks.decoded((yield from core.exchange(call)), GrantSpending)


def next_cursor(page: Page[Any], seen: set[str]) -> str | None:
    """Where the next page begins; None after the last, and for a cursor that was there before."""
    cursor = page.pagination.end_cursor
    if not page.pagination.has_next_page or not cursor or cursor in seen:
        return None
    seen.add(cursor)
    return cursor


def _wait(
    core: Core,
    call: Call,
    read: Callable[[Core, httpx2.Response], T],
    until: Callable[[T], bool],
    timeout: float,
) -> Steps[T]:
    deadline, pause = time.monotonic() + timeout, 1.0
    while True:
        begun = time.monotonic()
        seconds = max(0, min(WAIT_SECONDS, int(deadline - begun)))
        answer = yield from core.exchange(call._replace(wait=seconds))
        found = read(core, answer)
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


def _creation(kind: str, server: Server, body: Any, token: Token, key: str | None, timeout: float | None) -> Call:
    """The request that creates; it has a key unless that is the empty text."""
    made = str(uuid4()) if key is None else key
    if made and not (made.isascii() and made.isprintable() and not {*made} & {'"', "\\"}):
        raise ConfigurationError("An idempotency_key is printable ASCII without quotes and backslashes")
    url = _collection(server, kind)
    return Call(f"{kind}.create", "POST", url, 201, body=body, token=token, key=made, timeout=timeout)


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


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _encoded(query: Mapping[str, Any]) -> str:
    """A query as browsers write it (WHATWG URL, application/x-www-form-urlencoded)."""
    return urlencode({name: value for name, value in query.items() if value}, safe="*").replace("~", "%7E")
