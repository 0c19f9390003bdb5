"""Paying an incoming payment here from a wallet on any server: this server asks the other one as its client, and the
payer consents there.

A payment is asked of one server, in one browser, and moves one way: whoever comes back twice, or from elsewhere, has
nothing paid.
"""

import asyncio
import hmac
from contextlib import suppress
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec

from payres.clock import MINUTE, SECOND, Clock
from payres.errors import TooManyRequests, nothing_here
from payres.federation.connection import FetchFailed, NoAddress
from payres.federation.http import GuardedClient
from payres.federation.identity import OwnIdentity
from payres.federation.payer import Asked, Payer, Payment, Refused
from payres.federation.wallet_addresses import fetch_wallet_address
from payres.gnap import interaction_hash
from payres.identifiers import hash_secret, new_secret
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

ASKING_SECONDS: Final = 12.0  # for all that is asked before the payer is sent on
LATE: Final = 2 * MINUTE  # a payment that has not come by then may not come
TOO_FAST: Final = 5 * SECOND  # until we continue again, if we came too early

# To base64 from base64url, and from what a query makes of a plus sign that nobody has escaped.
STANDARD: Final = str.maketrans("-_ ", "+/+")

# Why a payment was not begun, and why one has failed.
Problem = Literal["silent", "busy", "no_wallet", "not_open", "no_way"]
Failure = Literal["denied", "closed", "refused", "no_funds", "silent", "failed", "part"]


class NotBegun(Exception):
    """The payer's wallet cannot be asked, or has said no; nothing was done."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Forged(Exception):
    """What came back is not from the server that was asked. Nothing was done."""


class Desk(NamedTuple):
    """Where payers are served: what is asked, and what is stored."""

    database: Database
    urls: Urls
    clock: Clock
    http: GuardedClient
    identity: OwnIdentity
    allow_private_hosts: bool

    @property
    def payer(self) -> Payer:
        return Payer(self.http, self.identity)


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


async def begin(
    desk: Desk, payment: IncomingRecord, receiver: WalletRecord, amount: int, payer: str, browser: str
) -> str:
    """Asks the payer's server for consent that just this amount arrives; the URL to send the payer to.

    `payer` is the URL of a wallet address, `browser` the secret in the browser's cookie. Raises NotBegun.
    """
    secret, nonce = new_secret(), new_secret()
    page = desk.urls.resource("pay", payment.id)
    is_wallet = False
    try:
        async with asyncio.timeout(ASKING_SECONDS):
            wallet = await fetch_wallet_address(desk.http, payer)
            is_wallet = True
            bill = desk.urls.resource("incoming-payments", payment.id)
            quote = await desk.payer.quote(wallet, bill, shown_amount(amount, receiver.asset))
            asked = await desk.payer.ask(wallet, quote, f"{page}/return/{secret}", nonce, desk.clock.now())
    except TimeoutError as error:
        raise NotBegun("silent") from error
    except FetchFailed as error:
        raise NotBegun(_problem(error, is_wallet)) from error
    if not _may_lead_to(asked.redirect, desk.allow_private_hosts):
        raise NotBegun("not_open")
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
    return asked.redirect


def find(work: Work, payment_id: str, secret: str) -> Checkout:
    """The payment that was begun under this secret for this incoming payment. Raises NotFound."""
    record = CHECKOUTS.find(work, "WHERE id_hash = ?", hash_secret(secret))
    found = find_with_wallet(work, INCOMING, payment_id)
    if record is None or found is None or record.incoming_payment_id != payment_id:
        raise nothing_here()
    pending = pending_of(work, record)
    return Checkout(record, None if pending is None else msgspec.json.decode(pending, type=Asked), *found)


async def refuse(desk: Desk, found: Checkout) -> None:
    """The payer, or their server, has said no."""
    await _move(desk, found, "asked", "failed", failure="denied")


async def finish(desk: Desk, found: Checkout, reference: str, digest: str) -> None:
    """Has the payer's server make the payment that the payer has approved. Whatever becomes of it is stored; what was
    done before is not done again.

    Raises Forged.
    """
    asked = found.asked
    if asked is None or found.record.state != "asked":
        return
    if not _is_from(asked, reference, digest):
        raise Forged
    claimed = await desk.database.write(partial(_claim, found=found))
    if claimed == "failed":
        with suppress(FetchFailed, TooManyRequests):  # the grant is good for nothing
            await desk.payer.cancel(asked)
    if claimed != "returned":
        return
    try:
        token = await desk.payer.continue_grant(asked, reference)
    except (FetchFailed, TooManyRequests) as error:
        if isinstance(error, Refused) and error.code == "too_fast":
            later = msgspec.structs.replace(asked, not_before=desk.clock.now() + TOO_FAST)
            await _move(desk, found, "returned", "asked", later)
        else:
            await _move(desk, found, "returned", "failed", failure=_failure(error))
        return
    await _pay(desk, found, msgspec.structs.replace(asked, token=token))


async def look(desk: Desk, found: Checkout) -> None:
    """Notes what has become of a payment on its way: whether the money is here, or the payer's server gave up."""
    asked, record = found.asked, found.record
    if asked is None or record.state not in {"returned", "made"}:
        return
    theirs: Payment | None = None
    if asked.payment:
        with suppress(FetchFailed, TooManyRequests):
            theirs = await desk.payer.read(asked)
    has_come = found.payment.received >= (record.received_before or 0) + record.amount
    if theirs is not None and theirs.failed:
        await _move(desk, found, record.state, "failed", failure="part" if theirs.has_sent else "failed")
    elif has_come and (theirs is None or theirs.has_sent):  # others may have paid
        await _move(desk, found, record.state, "paid")


async def _pay(desk: Desk, found: Checkout, asked: Asked) -> None:
    try:
        made = await desk.payer.create(asked, asked.token)
    except (FetchFailed, TooManyRequests) as error:
        if isinstance(error, Refused) or getattr(error, "unsent", True):
            await _move(desk, found, "returned", "failed", failure=_failure(error))
        else:  # it may have been made: what comes here will tell
            await _move(desk, found, "returned", "made", asked)
        return
    if made.failed:
        await _move(desk, found, "returned", "failed", failure="failed")
    else:
        await _move(desk, found, "returned", "made", msgspec.structs.replace(asked, payment=made.id))


def _claim(work: Work, found: Checkout) -> State | None:
    """Who gets "returned" pays; the bill may have been paid or ended since it was begun."""
    payment, record = INCOMING.by_id(work, found.payment.id), found.record
    missing = payment.remaining
    is_payable = payment.open_at(work.now) and found.wallet.active and (missing is None or record.amount <= missing)
    after: State = "returned" if is_payable else "failed"
    failure = None if is_payable else "closed"
    received = payment.received
    is_changed = change_checkout(
        work, record.id_hash, "asked", after, work.now, failure=failure, received_before=received
    )
    return after if is_changed else None


async def _move(
    desk: Desk,
    found: Checkout,
    before: State,
    after: State,
    asked: Asked | None = None,
    failure: Failure | None = None,
) -> None:
    pending = None if asked is None else _text(asked)
    await desk.database.write(
        lambda work: change_checkout(
            work, found.record.id_hash, before, after, work.now, pending=pending, failure=failure
        )
    )


def _is_from(asked: Asked, reference: str, digest: str) -> bool:
    """Whether the hash is that of the server that was asked, whose URL clients spell with and without a slash; in
    base64, or as the standard has it in base64url."""
    given = digest.translate(STANDARD).rstrip("=").encode()
    endpoints = {asked.auth_server, asked.auth_server.rstrip("/") + "/"}
    right = [interaction_hash(asked.nonce, asked.server_nonce, reference, one) for one in endpoints]
    return any(hmac.compare_digest(given, one.rstrip("=").encode()) for one in right)


def _may_lead_to(url: str, allow_private_hosts: bool) -> bool:
    return is_http_url(url) and (url.startswith("https:") or allow_private_hosts)


def _problem(error: FetchFailed, is_wallet: bool) -> Problem:
    if error.reason == "busy":
        return "busy"
    if error.reason == "refused":
        return "no_way"
    if error.reason == "bad_content":
        return "not_open"
    return "silent" if error.retryable or isinstance(error, NoAddress) or is_wallet else "no_wallet"


def _failure(error: FetchFailed | TooManyRequests) -> Failure:
    if not isinstance(error, Refused):
        return "silent"
    return "no_funds" if error.code == "insufficient_funds" else "refused"


def _text(asked: Asked) -> str:
    return msgspec.json.encode(asked).decode()
