"""Paying a local incoming payment from a wallet on any server: this server is a client of the payer's server, where the
payer consents.

A checkout belongs to one server and one browser, and its state only advances: a second return, or one from another
browser, pays nothing. A browser waits at most ten seconds: for `begin`, or for `finish` followed by `look`.
"""

import asyncio
import hmac
from contextlib import suppress
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from payres.client import AsyncClient, PendingGrant, access, errors
from payres.clock import MINUTE, SECOND, Clock
from payres.errors import DomainError, nothing_here
from payres.federation.targets import origin_of
from payres.identifiers import hash_secret, new_secret
from payres.payments.incoming import fits, unpayable
from payres.representations import amount as shown_amount
from payres.store.checkouts import (
    CHECKOUTS,
    CheckoutRecord,
    State,
    change_checkout,
    insert_checkout,
    pending_of,
)
from payres.store.database import Database
from payres.store.payments import INCOMING, IncomingRecord
from payres.store.wallets import WalletRecord, find_with_wallet
from payres.store.work import Work
from payres.urls import Urls, is_http_url
from payres.wire import Amount, OutgoingPayment, WalletAddress

BEGIN_SECONDS: Final = 10.0
FINISH_SECONDS: Final = 7.0
LOOK_SECONDS: Final = 3.0
LONGEST_WAIT: Final = 60  # seconds; the maximum `wait` of a grant continuation that is respected
TOO_FAST: Final = 5 * SECOND  # the delay after a too_fast error
LATE: Final = 2 * MINUTE  # after which the payer is warned that the payment may not arrive
FAILURES: Final = (errors.OpenPaymentsError, DomainError, TimeoutError)

Failure = Literal["denied", "closed", "refused", "no_funds", "silent", "failed", "part"]


class Desk(NamedTuple):
    """The services that a checkout needs; `client` sends the requests to payers' servers."""

    database: Database
    urls: Urls
    clock: Clock
    client: AsyncClient


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The pending grant of a checkout, stored until the checkout ends.

    The payer's server accepts no continuation before `not_before` (microseconds). `token` creates the outgoing payment
    and later reads it at the URL `payment`.
    """

    grant: PendingGrant
    resource_server: str
    quote: str
    not_before: int
    token: str = ""
    payment: str = ""


class Checkout(NamedTuple):
    """A checkout with the incoming payment that it pays. `asked` is None once it has ended."""

    record: CheckoutRecord
    asked: Asked | None
    payment: IncomingRecord
    wallet: WalletRecord

    def is_of(self, browser: str | None) -> bool:
        """Whether this browser began it."""
        return browser is not None and hmac.compare_digest(hash_secret(browser), self.record.browser_hash)

    def is_late(self, now: int) -> bool:
        """Whether the money is overdue."""
        return abs(now - self.record.changed_at) > LATE  # in the future if the clock was ahead

    def wait(self, now: int) -> int:
        """The seconds until the payer's server accepts a continuation."""
        seconds = 0 if self.asked is None else -(-(self.asked.not_before - now) // SECOND)
        return seconds if seconds <= LONGEST_WAIT else 0  # the clock was ahead


async def begin(
    desk: Desk, payment: IncomingRecord, receiver: WalletRecord, amount: int, payer: str, browser: str
) -> str:
    """Requests a grant for paying exactly this amount from the payer's server, and returns the URL for the payer.

    `payer` is the URL of a wallet address, `browser` the secret in the browser's cookie. Raises InvalidReceiver with a
    reason if the payer's server fails or refuses, Unavailable, TooManyRequests; nothing is stored then.
    """
    secret, refusal = new_secret(), "no_wallet"
    bill, finish = (desk.urls.resource(kind, payment.id) for kind in ("incoming-payments", "pay"))
    try:
        async with asyncio.timeout(BEGIN_SECONDS):
            wallet = await desk.client.wallet_address.get(payer)
            _check_server(wallet.id, payer)
            refusal = "refused"
            asked = await _ask(desk, wallet, bill, shown_amount(amount, receiver.asset), f"{finish}/return/{secret}")
    except (errors.OpenPaymentsError, TimeoutError) as error:
        is_silent = isinstance(error, errors.NoAnswer | errors.ServerError | TimeoutError)
        reason = refusal if _is_refusal(error) else "unreachable" if is_silent else "bad_content"
        raise unpayable("payer", f"its server cannot be asked: {error!s:.200}", reason) from error
    record = CheckoutRecord(
        id_hash=hash_secret(secret),
        incoming_payment_id=payment.id,
        browser_hash=hash_secret(browser),
        payer=wallet.id,
        amount=amount,
        state="asked",
        changed_at=desk.clock.now(),
    )
    await desk.database.write(partial(insert_checkout, record=record, pending=_text(asked)))
    return asked.grant.redirect


def find(work: Work, payment_id: str, secret: str) -> Checkout:
    """The checkout of this incoming payment with this secret. Raises NotFound."""
    record = CHECKOUTS.find(work, "WHERE id_hash = ?", hash_secret(secret))
    found = find_with_wallet(work, INCOMING, payment_id)
    if record is None or found is None or record.incoming_payment_id != payment_id:
        raise nothing_here()
    asked = None
    with suppress(msgspec.DecodeError):  # it was stored by another version of payres
        asked = msgspec.json.decode(pending_of(work, record) or "", type=Asked)
    return Checkout(record, asked, *found)


async def finish(desk: Desk, found: Checkout, query: str) -> bool:
    """Creates the payment at the payer's server after the payer returned with `query`, and stores the result.

    Does nothing if another call has done so, or if the server accepts no continuation yet. Returns False, and does
    nothing, if the interaction hash of the query is wrong (RFC 9635 section 4.2.3).
    """
    asked = found.asked
    if asked is None:
        await _move(desk, found, "failed", failure="refused")
        return True
    try:
        asked.grant.reference_in(f"?{query}")
    except errors.HashMismatch:
        return False
    except errors.GrantDenied:
        await _move(desk, found, "failed", failure="denied")
        return True
    claimed = None if found.wait(desk.clock.now()) > 0 else await desk.database.write(partial(_claim, found=found))
    if claimed == "failed":
        with suppress(*FAILURES):  # the unused grant expires anyway
            async with asyncio.timeout(LOOK_SECONDS):
                await desk.client.grant.cancel(asked.grant.continue_uri, asked.grant.continue_token)
    if claimed == "returned":
        await _pay(desk, found._replace(record=replace(found.record, state=claimed)), asked, query)
    return True


async def look(desk: Desk, found: Checkout) -> None:
    """Stores whether a payment on its way has arrived or failed."""
    asked, record = found.asked, found.record
    if record.state not in {"returned", "made"}:
        return
    theirs: OutgoingPayment | None = None
    if asked is not None and asked.payment:
        with suppress(*FAILURES):
            async with asyncio.timeout(LOOK_SECONDS):
                theirs = await desk.client.outgoing_payment.get(asked.payment, asked.token)
    has_come = found.payment.received >= (record.received_before or 0) + record.amount
    if theirs is not None and theirs.failed:
        await _move(desk, found, "failed", failure=_ended(theirs))
    elif has_come and (theirs is None or int(theirs.sent_amount.value)):  # others may have paid
        await _move(desk, found, "paid")


async def _ask(desk: Desk, wallet: WalletAddress, bill: str, receive: Amount, finish: str) -> Asked:
    """Requests a grant for exactly the quoted debit amount to this receiver."""
    client = desk.client
    quoting = await client.grant.obtain(wallet, access.quote("create"))
    quote = await client.quote.create(wallet, quoting.value, receiver=bill, receive_amount=receive)
    item = access.outgoing_payment(
        *("create", "read"),  # read, to learn that the payment failed
        identifier=wallet.id,
        receiver=quote.receiver,
        debit_amount=quote.debit_amount,
    )
    grant = await client.grant.start(wallet, item, finish=finish)
    _check_server(grant.continue_uri, wallet.auth_server)
    if not is_http_url(grant.redirect) or not grant.redirect.startswith(("https:", desk.urls.base.partition("/")[0])):
        raise errors.InvalidAnswer(200, ["no browser may be sent to its redirect"])
    not_before = desk.clock.now() + max(0, min(grant.wait, LONGEST_WAIT)) * SECOND
    return Asked(grant=grant, resource_server=wallet.resource_server, quote=quote.id, not_before=not_before)


async def _pay(desk: Desk, found: Checkout, asked: Asked, query: str) -> None:
    """Continues the grant and creates the payment. Once the create request was sent, only a 4xx proves that no payment
    exists."""
    client, payer = desk.client, found.record.payer
    try:
        async with asyncio.timeout(FINISH_SECONDS):
            grant = await client.grant.finish(asked.grant, f"?{query}")
            asked = replace(asked, token=grant.value)
            made = await client.outgoing_payment.create(
                asked.resource_server, grant.value, wallet_address=payer, quote_id=asked.quote
            )
            _check_server(made.id, asked.resource_server)
    except FAILURES as error:
        if asked.token and _may_be_done(error):  # `look` will see whether the money arrives
            await _move(desk, found, "made", asked)
        elif isinstance(error, errors.ApiError) and error.code == "too_fast":
            await _move(desk, found, "asked", replace(asked, not_before=desk.clock.now() + TOO_FAST))
        else:
            await _move(desk, found, "failed", failure=_failure(error))
    else:
        failure = _ended(made)
        await _move(desk, found, "failed" if failure else "made", replace(asked, payment=made.id), failure)


def _claim(work: Work, found: Checkout) -> State | None:
    """Advances the state; the caller that gets "returned" pays. The state is "failed" if the incoming payment has been
    paid or has ended since `begin`."""
    payment, record = INCOMING.by_id(work, found.payment.id), found.record
    is_open = payment.open_at(work.now) and found.wallet.active and fits(payment.remaining, record.amount)
    after: State = "returned" if is_open else "failed"
    failure = None if is_open else "closed"
    is_first = change_checkout(work, record, after, work.now, failure=failure, received_before=payment.received)
    return after if is_first else None


async def _move(
    desk: Desk, found: Checkout, after: State, asked: Asked | None = None, failure: Failure | None = None
) -> None:
    pending = None if asked is None else _text(asked)
    await desk.database.write(
        lambda work: change_checkout(work, found.record, after, work.now, pending=pending, failure=failure)
    )


def _check_server(url: str, server: str) -> None:
    """Raises InvalidAnswer for a URL of another server: it must not get the token, or be impersonated."""
    if not is_http_url(url) or origin_of(url) != origin_of(server):
        raise errors.InvalidAnswer(200, [f"it names a URL of another server than {server}"])


def _failure(error: Exception) -> Failure:
    if isinstance(error, errors.GrantDenied):
        return "denied"
    if isinstance(error, errors.InsufficientFunds):
        return "no_funds"
    return "refused" if _is_refusal(error) else "silent"


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, errors.GrantError) or (isinstance(error, errors.ApiError) and error.status < 500)


def _may_be_done(error: Exception) -> bool:
    """Whether the payer's server may have created the payment despite the error."""
    if isinstance(error, errors.ApiError):
        return not 400 <= error.status < 500
    return isinstance(error, errors.AnswerLost | errors.InvalidAnswer | TimeoutError)


def _ended(payment: OutgoingPayment) -> Failure | None:
    """The failure of the payer's outgoing payment, or None."""
    if not payment.failed:
        return None
    return "part" if int(payment.sent_amount.value) else "failed"


def _text(asked: Asked) -> str:
    return msgspec.json.encode(asked).decode()
