"""Paying an incoming payment here from a wallet on any server: this server asks the other one as its client, and the
payer consents there.

A payment is asked of one server, in one browser, and moves one way: whoever comes back twice, or from elsewhere, has
nothing paid. A browser waits ten seconds at most: for `begin`, or for `finish` and `look` one after the other.
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
LONGEST_WAIT: Final = 60  # seconds that a server may have us wait before we continue
TOO_FAST: Final = 5 * SECOND  # until we continue again, if we came too early
LATE: Final = 2 * MINUTE  # a payment that has not come by then may not come
FAILURES: Final = (errors.OpenPaymentsError, DomainError, TimeoutError)

# Why a payment has failed.
Failure = Literal["denied", "closed", "refused", "no_funds", "silent", "failed", "part"]


class Desk(NamedTuple):
    """Where payers are served: what asks their servers, and what is stored."""

    database: Database
    urls: Urls
    clock: Clock
    client: AsyncClient


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A payment for which the payer's consent was asked, as it is stored until it has ended.

    Before `not_before` (microseconds) the payer's server wants no continuation. `token` makes the payment and later
    reads it, at `payment` once that is known.
    """

    grant: PendingGrant
    resource_server: str
    quote: str
    not_before: int
    token: str = ""
    payment: str = ""


class Checkout(NamedTuple):
    """A payment that was begun, with what it pays. `asked` is None once it has ended."""

    record: CheckoutRecord
    asked: Asked | None
    payment: IncomingRecord
    wallet: WalletRecord

    def is_of(self, browser: str | None) -> bool:
        """Whether this browser has begun it."""
        return browser is not None and hmac.compare_digest(hash_secret(browser), self.record.browser_hash)

    def is_late(self, now: int) -> bool:
        """Whether the money should have come by now."""
        return now - self.record.changed_at > LATE

    def wait(self, now: int) -> int:
        """How many seconds the payer's server still wants to be left alone."""
        return 0 if self.asked is None else -(-(self.asked.not_before - now) // SECOND)


async def begin(
    desk: Desk, payment: IncomingRecord, receiver: WalletRecord, amount: int, payer: str, browser: str
) -> str:
    """Asks the payer's server for consent that just this amount arrives; the URL to send the payer to.

    `payer` is the URL of a wallet address, `browser` the secret in the browser's cookie. Raises InvalidReceiver with
    the reason when the wallet cannot be asked or its server says no, Unavailable, TooManyRequests; nothing was done.
    """
    secret, no = new_secret(), "no_wallet"
    bill, finish = (desk.urls.resource(kind, payment.id) for kind in ("incoming-payments", "pay"))
    try:
        async with asyncio.timeout(BEGIN_SECONDS):
            wallet = await desk.client.wallet_address.get(payer)
            _check_server(wallet.id, payer)
            no = "refused"
            asked = await _ask(desk, wallet, bill, shown_amount(amount, receiver.asset), f"{finish}/return/{secret}")
    except (errors.OpenPaymentsError, TimeoutError) as error:
        is_silent = isinstance(error, errors.NoAnswer | errors.ServerError | TimeoutError)
        reason = no if _is_refusal(error) else "unreachable" if is_silent else "bad_content"
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
    """The payment that was begun under this secret for this incoming payment. Raises NotFound."""
    record = CHECKOUTS.find(work, "WHERE id_hash = ?", hash_secret(secret))
    found = find_with_wallet(work, INCOMING, payment_id)
    if record is None or found is None or record.incoming_payment_id != payment_id:
        raise nothing_here()
    asked = None
    with suppress(msgspec.DecodeError):  # another version of payres has stored it
        asked = msgspec.json.decode(pending_of(work, record) or "", type=Asked)
    return Checkout(record, asked, *found)


async def finish(desk: Desk, found: Checkout, query: str) -> bool:
    """Has the payer's server make the payment that the payer has approved, who came back with `query`. Whatever becomes
    of it is stored; what was done before is not done again. It is left for later while their server wants to wait.

    False, with nothing done, for what the server that was asked has not said.
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
        with suppress(*FAILURES):  # the grant is good for nothing
            async with asyncio.timeout(LOOK_SECONDS):
                await desk.client.grant.cancel(asked.grant.continue_uri, asked.grant.continue_token)
    if claimed == "returned":
        await _pay(desk, found._replace(record=replace(found.record, state=claimed)), asked, query)
    return True


async def look(desk: Desk, found: Checkout) -> None:
    """Notes what has become of a payment on its way: whether the money is here, or the payer's server gave up."""
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
    """Asks for consent to the price of this and to nothing else."""
    client = desk.client
    quoting = await client.grant.obtain(wallet, access.quote("create"))
    quote = await client.quote.create(wallet, quoting.value, receiver=bill, receive_amount=receive)
    item = access.outgoing_payment(
        *("create", "read"),  # to learn that the payment has failed
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
    """Continues the grant and makes the payment. Once that was asked for, only a refusal says that none was made."""
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
        if asked.token and _may_be_done(error):  # what comes here will tell
            await _move(desk, found, "made", asked)
        elif isinstance(error, errors.ApiError) and error.code == "too_fast":
            await _move(desk, found, "asked", replace(asked, not_before=desk.clock.now() + TOO_FAST))
        else:
            await _move(desk, found, "failed", failure=_failure(error))
    else:
        failure = _ended(made)
        await _move(desk, found, "failed" if failure else "made", replace(asked, payment=made.id), failure)


def _claim(work: Work, found: Checkout) -> State | None:
    """Who gets "returned" pays; the bill may have been paid or ended since it was begun."""
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
    """Raises InvalidAnswer for a URL of another server, which may neither be spoken for nor get a token."""
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
    """Whether the payer's server may have done what it was asked for."""
    if isinstance(error, errors.ApiError):
        return not 400 <= error.status < 500
    return isinstance(error, errors.AnswerLost | errors.InvalidAnswer | TimeoutError)


def _ended(payment: OutgoingPayment) -> Failure | None:
    """How a payment of the payer's server has failed, if it has."""
    if not payment.failed:
        return None
    return "part" if int(payment.sent_amount.value) else "failed"


def _text(asked: Asked) -> str:
    return msgspec.json.encode(asked).decode()
