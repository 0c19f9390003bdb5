"""Paying a local incoming payment from a wallet on any server: this server is a client of the payer's server, where the
payer consents.

A checkout belongs to one server and one browser, and its state only advances: a second return, or one from another
browser, pays nothing. What follows the return is in `checkout_steps`, which continues from the row.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec.structs import replace

from payres.client import AsyncClient, PendingGrant, access, errors
from payres.core.http.context import Context
from payres.core.payments.incoming import fits, unpayable
from payres.core.protocol.clock import MINUTE, SECOND
from payres.core.protocol.errors import DomainError, nothing_here
from payres.core.protocol.identifiers import hash_secret, new_id, new_secret
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.wire import Amount, WalletAddress
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import RemoteEffect, origin_of
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.representations import amount as shown_amount
from payres.core.store.wallets import WalletRecord, find_with_wallet
from payres.core.store.work import Work
from payres.interledger.node import node_of
from payres.people.store.checkouts import CHECKOUTS, LEASE, CheckoutRecord, change_checkout, insert_checkout, pending_of

BEGIN_SECONDS: Final = 10.0
LONGEST_WAIT: Final = 60  # seconds; the maximum `wait` of a grant continuation that is respected
GRANT: Final = RemoteEffect(
    "the payer's grant for the payment of a payment page",
    "payres cancels it when that payment has ended, or after a day",
)
QUOTE: Final = RemoteEffect("the payer's quote for it, and the grant for that", "they expire")
PAYMENT: Final = RemoteEffect("the payer's payment", "its server ends it")
MAKES: Final = {
    "grant.request": GRANT,  # the one that needs no consent expires
    "grant.continue": GRANT,
    "token.rotate": GRANT,
    "quote.create": QUOTE,
    "outgoing_payment.create": PAYMENT,
}
LATE: Final = 2 * MINUTE  # after which the payer is warned that the payment may not arrive
UNKNOWN: Final = (408, 425, 429)  # these say nothing about the request itself
# What the redirects of Rafiki and of payres have where the time for consent is over: nobody said no.
EXPIRED: Final = ("invalid_interaction", "unknown_interaction", "interaction expired")


class NotDone(Exception):
    """A request to the payer's server that came to nothing, by its `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self._status = cause.status if isinstance(cause, errors.ApiError) else 0

    @property
    def is_refusal(self) -> bool:
        """Whether the server has answered that it does not do this."""
        is_answer = 400 <= self._status < 500 and self._status not in UNKNOWN
        return is_answer or isinstance(self.cause, errors.GrantError)

    @property
    def is_silent(self) -> bool:
        """Whether the server has not answered, or with nothing about the request."""
        is_answer = self._status >= 500 or self._status in UNKNOWN
        return is_answer or isinstance(self.cause, errors.NoAnswer | TimeoutError)

    @property
    def is_unsent(self) -> bool:
        """Whether for sure nothing was done."""
        return isinstance(self.cause, errors.NotSent | errors.TooManyRequests | DomainError)

    @property
    def reason(self) -> str:
        """Why the server could not be asked."""
        failed = self.cause.__cause__
        if isinstance(failed, FetchFailed) and failed.reason == "untrusted_certificate":
            return failed.reason
        return "unreachable" if self.is_silent else "bad_content"


@asynccontextmanager
async def asking(until: float | None = None) -> AsyncIterator[None]:
    """Requests to the payer's server, until a time of the event loop. Raises NotDone for whatever fails."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except (errors.OpenPaymentsError, DomainError, TimeoutError) as error:
        raise NotDone(error) from error


class AskedGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The pending grant of a checkout, stored until the checkout ends.

    The payer's server accepts no continuation before `not_before` (microseconds). `query` is what the payer returned
    with. `token` creates the outgoing payment under the Idempotency-Key `key`, and later reads it; `manage` rotates it.
    """

    grant: PendingGrant
    resource_server: str
    quote: str
    not_before: int
    keeps_keys: bool = False
    query: str = ""
    key: str = ""
    token: str = ""
    manage: str = ""

    def dump(self) -> str:
        """The text to store."""
        return msgspec.json.encode(self).decode()


class BillCheckout(NamedTuple):
    """A checkout with the incoming payment that it pays. `asked` is None once it has ended."""

    record: CheckoutRecord
    asked: AskedGrant | None
    payment: IncomingRecord
    wallet: WalletRecord

    def is_of(self, browser: str | None) -> bool:
        """Whether this browser began it."""
        return browser is not None and hmac.compare_digest(hash_secret(browser), self.record.browser_hash)

    def is_payable(self, now: int) -> bool:
        """Whether the incoming payment still takes the amount."""
        return self.payment.open_at(now) and self.wallet.active and fits(self.payment.remaining, self.record.amount)

    @property
    def is_unknown(self) -> bool:
        """Whether the payer's server may have created the payment, and can be asked."""
        is_asked = self.asked is not None and self.asked.token != ""
        return self.record.state == "made" and is_asked and self.record.payment is None

    @property
    def has_come(self) -> bool:
        """Whether the amount has arrived since the payment may have been created; others may have paid it."""
        return self.payment.received >= (self.record.received_before or 0) + self.record.amount

    def is_late(self, now: int) -> bool:
        """Whether the money is overdue."""
        return abs(now - self.record.changed_at) > LATE  # in the future if the clock was ahead

    def wait(self, now: int) -> int:
        """The seconds until the payer's server accepts a continuation."""
        seconds = 0 if self.asked is None else -(-(self.asked.not_before - now) // SECOND)
        return seconds if 0 < seconds <= LONGEST_WAIT else 0  # more if the clock was ahead


def payers_client(context: Context) -> AsyncClient:
    """This server as a client of payers' servers."""
    return node_of(context).identity.client(context.http, MAKES)


async def begin(
    context: Context, payment: IncomingRecord, receiver: WalletRecord, amount: int, payer: str, browser: str, shown: str
) -> str | None:
    """Requests a grant for paying exactly this amount from the payer's server, and returns the URL for the payer; None
    if another payment of the browser has gone on, of which the form did not know.

    `payer` is the URL of a wallet address, `browser` the secret in the browser's cookie, `shown` what `gone_on` was
    when the form was made. Raises InvalidReceiver with a
    reason if the payer's server fails or refuses, Unavailable, TooManyRequests; nothing is stored then.
    """
    secret, refusal, client = new_secret(), "no_wallet", payers_client(context)
    client.quote.core.keeping.clear()  # payers name any number of servers
    bill, finish = (context.urls.resource(kind, payment.id) for kind in ("incoming-payments", "pay"))
    try:
        async with asking(asyncio.get_running_loop().time() + BEGIN_SECONDS):
            wallet = await client.wallet_address.get(payer)
            check_server(wallet.id, payer)
            refusal = "refused"
            asked = await _ask(
                context, client, wallet, bill, shown_amount(amount, receiver.asset), f"{finish}/return/{secret}"
            )
    except NotDone as error:
        reason = refusal if error.is_refusal else error.reason
        raise unpayable("payer", f"its server cannot be asked: {error!s:.200}", reason) from error.cause
    record = CheckoutRecord(
        id_hash=hash_secret(secret),
        incoming_payment_id=payment.id,
        browser_hash=hash_secret(browser),
        payer=wallet.id,
        amount=amount,
        state="asked",
        changed_at=context.clock.now(),
    )
    continuation = asked.grant.continue_uri, asked.grant.continue_token
    insert = partial(insert_checkout, record=record, pending=asked.dump(), continuation=continuation, shown=shown)
    return asked.grant.redirect if await context.database.write(insert) else None


def find(work: Work, payment_id: str, secret: str) -> BillCheckout:
    """The checkout of this incoming payment with this secret. Raises NotFound."""
    found = load(work, hash_secret(secret))
    if found is None or found.payment.id != payment_id:
        raise nothing_here()
    return found


def load(work: Work, id_hash: bytes) -> BillCheckout | None:
    """The checkout with this id."""
    record = CHECKOUTS.get(work, id_hash)
    found = None if record is None else find_with_wallet(work, INCOMING, record.incoming_payment_id)
    if record is None or found is None:
        return None
    asked = None
    with suppress(msgspec.DecodeError):  # it was stored by another version of payres
        asked = msgspec.json.decode(pending_of(work, record) or "", type=AskedGrant)
    return BillCheckout(record, asked, *found)


async def take_back(context: Context, found: BillCheckout, query: str) -> bool:
    """Stores that the payer returned with `query`, so that the payment is made even if nobody comes again: by the
    caller if the payer's server wants no `wait`, else when that is over.

    Returns False, and does nothing, if the interaction hash of the query is wrong (RFC 9635 section 4.2.3).
    """
    asked, failure = found.asked, None
    if asked is None:
        failure = "refused"
    else:
        try:
            asked.grant.reference_in(f"?{query}")
            asked = replace(asked, query=query, key=new_id())
        except errors.HashMismatch:
            return False
        except errors.GrantDenied:
            said = [value for name, value in parse_qsl(query) if name in {"result", "message"}]
            failure = "denied" if set(said).isdisjoint(EXPIRED) else "expired"

    def unit(work: Work) -> None:
        if asked is None or failure:
            change_checkout(work, found.record, "failed", work.now, failure=failure)
        else:
            due_at = work.now + (found.wait(work.now) * SECOND or LEASE)
            change_checkout(work, found.record, "returned", work.now, pending=asked.dump(), due_at=due_at)

    await context.database.write(unit)
    return True


async def _ask(
    context: Context, client: AsyncClient, wallet: WalletAddress, bill: str, receive: Amount, finish: str
) -> AskedGrant:
    """Requests a grant for exactly the quoted debit amount to this receiver."""
    keeping = client.quote.core.keeping
    quoting = await client.grant.obtain(wallet, access.quote("create"))
    quote = await client.quote.create(wallet, quoting.value, receiver=bill, receive_amount=receive)
    keeps_keys = urlsplit(wallet.resource_server).netloc in keeping
    item = access.outgoing_payment(
        *("create", "read", "list"),  # to learn that the payment failed, and whether it was created
        identifier=wallet.id,
        receiver=quote.receiver,
        debit_amount=quote.debit_amount,
    )
    grant = await client.grant.start(wallet, item, finish=finish)
    check_server(grant.continue_uri, wallet.auth_server)
    if not is_http_url(grant.redirect) or not grant.redirect.startswith(
        ("https:", context.urls.base.partition("/")[0])
    ):
        raise errors.InvalidAnswer(200, ["no browser may be sent to its redirect"])
    not_before = context.clock.now() + max(0, min(grant.wait, LONGEST_WAIT)) * SECOND
    return AskedGrant(
        grant=grant,
        resource_server=wallet.resource_server,
        quote=quote.id,
        not_before=not_before,
        keeps_keys=keeps_keys,
    )


def check_server(url: str, server: str) -> None:
    """Raises NotDone for a URL of another server: it must not get the token, or be impersonated."""
    if not is_http_url(url) or origin_of(url) != origin_of(server):
        raise NotDone(errors.InvalidAnswer(200, [f"it names a URL of another server than {server}"]))
