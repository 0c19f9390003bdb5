"""The movements of a wallet for its owner: payments, deposits, withdrawals and refunds, newest first. Payments of one
app to one receiver on one day are grouped into a row.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from functools import cache, partial
from itertools import chain, groupby
from typing import Final, Literal, NamedTuple, cast, get_args
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from payres.core.grants.spending_limits import spending_of
from payres.core.protocol.clock import HOUR, LATEST, SECOND
from payres.core.protocol.errors import require
from payres.core.protocol.identifiers import first_identifier, moment_of
from payres.core.protocol.visible import ShownUrl, note_of, visible_name, visible_text, visible_url
from payres.core.store import incoming_payments
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.clients import CLIENTS
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.rows import AFTER_ALL
from payres.core.store.wallets import WALLETS, KeyRecord, WalletRecord, last_key
from payres.core.store.work import Work
from payres.html.language import Language, marked
from payres.people.own_wallets import Holding, others
from payres.people.sending import kept_wish
from payres.people.sign_in import OwnerVisit
from payres.people.store import activity
from payres.people.store.activity import ListedRecord, Source, Statement, statement
from payres.people.store.refunds import REFUNDS
from payres.people.store.remote_bills import BILL, REMOTE_BILLS, asks_for_itself

# `unpaid` and `part paid`: open requests for money; `expired` and `cancelled`: those that ended after a part was paid.
# `part sent`: the payment failed after part of it was delivered.
ActivityState = Literal["sending", "unpaid", "part paid", "expired", "cancelled", "done", "failed", "part sent"]
Show = Literal["all", "in", "out", "failed"]

SCANNED: Final = 1_000  # the most movements that one page reads; filters and grouping may leave few rows
BATCH: Final = 100
FOLDED: Final = 3  # payments with the same grouping key from which they are shown as one row
SLACK: Final = HOUR  # the most that the time in an id (the machine's clock) may differ from the payment's time
TAB: Final = "/account/activity"
ROWS: Final = 25
A_YEAR: Final = 330  # days ago from which dates show the year
MAX_TEXT: Final = 100
IDENTIFIER: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHOWS: Final[Mapping[Show, str]] = {
    "all": marked("all movements"),
    "in": marked("money in"),
    "out": marked("money out"),
    "failed": marked("failed ones"),
}


class Who(NamedTuple):
    """The requester of a grant: an app, or a program that signs with a key of the wallet itself.

    An app chooses its `name` itself (`is_claimed`); its `address` is proven by its key. A server that asks for paying a
    bill of its own is named after the payee. A program is named after its `key`, or has no name.
    """

    name: str
    is_claimed: bool
    address: ShownUrl | None
    key: KeyRecord | None

    @property
    def is_own(self) -> bool:
        """Whether it is a program with a key of the wallet itself."""
        return self.address is None


def who_of(work: Work, wallet: WalletRecord, grant: GrantRecord, client: str) -> Who:
    """The requester of a grant; `client` is the identity of its client."""
    if work.urls.wallet_path(client) == wallet.path:
        key = last_key(work, wallet.id, grant.kid) if grant.kid else None
        return Who(visible_name(key.name, None) or "" if key else "", False, None, key)
    name, address, spending = visible_name(grant.client_name, client), visible_url(client), spending_of(grant.access)
    if spending and asks_for_itself(client, spending.receiver):
        bill = REMOTE_BILLS.get(work, grant.id)
        name = bill.name if bill and bill.name else name
    return Who(name or address.text, name is not None, address, None)


class Alike(NamedTuple):
    """The grouping key of payments: the app with its key, the receiver, and the day."""

    app: object
    receiver: int | str
    day: date


class Counterpart(NamedTuple):
    """The other party, by `name` or address. `wallet_id` is set for a local wallet; `several` means further payers;
    `refunded`, that an outgoing payment returns what they paid. A payer on another server is only known if they paid on
    a payment page of this server."""

    name: str | None = None
    address: ShownUrl | None = None
    wallet_id: int | None = None
    several: bool = False
    refunded: bool = False

    @property
    def text(self) -> str:
        """The name, or the address without its scheme, or an empty string."""
        return self.name or (self.address.text.partition("//")[2] if self.address else "")


class WalletMovement(msgspec.Struct, frozen=True):
    """A payment, deposit, withdrawal or refund, with amounts in the wallet's minor unit.

    `key` orders movements by time. `id` is the id of the payment (for a refund, of the refunded payment) or of the
    deposit or withdrawal. `purpose` is what a bill that was paid says it is for. `amount` is signed: the amount moved,
    or the planned amount if the movement is pending or failed. `whole` is the planned amount if only a part has moved.
    `reason` says why it failed. `alike` is the grouping key, None if it is never grouped.
    """

    key: str
    kind: Source
    id: str
    counterpart: Counterpart
    app: Who | None
    note: str
    purpose: str
    amount: int
    whole: int | None
    state: ActivityState
    reason: str | None
    time: int
    alike: Alike | None


class ActivityRow(NamedTuple):
    """One movement, or several payments of one app to one receiver on one day, newest first."""

    movements: list[WalletMovement]

    @property
    def newest(self) -> WalletMovement:
        return self.movements[0]

    @property
    def amount(self) -> int:
        """The total moved."""
        return sum(one.amount for one in self.movements if one.state != "failed")


class Wanted(NamedTuple):
    """A filter: the half-open time range [since, until), the direction or outcome, a text in name, address or note, and
    keys `below` the end of the previous page. `like` is the id of an app's payment: only the payments of its row, each
    as its own row."""

    below: str | None = None
    since: int = 0
    until: int = LATEST
    show: Show = "all"
    text: str = ""
    like: str | None = None


class ActivityPage(NamedTuple):
    """`next` is the `below` of the next page; None at the end."""

    rows: Sequence[ActivityRow]
    next: str | None


class Reader:
    """Reads the movements of one wallet in one unit of work; days are those of the time zone."""

    def __init__(self, work: Work, wallet: WalletRecord, zone: tzinfo) -> None:
        self._work = work
        self._wallet = wallet
        self._zone = zone
        self._named, self._app = cache(self._read_name), cache(self._read_app)
        self._bill = cache(lambda grant_id: REMOTE_BILLS.get(work, grant_id))

    def page(self, wanted: Wanted, rows: int) -> ActivityPage:
        """About `rows` rows: fewer if SCANNED is reached, more if groups are too small to be folded.

        Raises NotFound if `like` is not a payment of an app.
        """
        like: Alike | None = None
        if wanted.like:
            first = require(self.find(wanted.like), "There is nothing at this address")
            like = require(first.alike, "It is no payment of an app")
            since, until = day_of(like.day, self._zone)
            wanted = wanted._replace(since=since, until=until, below=wanted.below or f"{wanted.like}~")
        found = dict[object, list[WalletMovement]]()
        last = wanted.below
        for number, record in enumerate(self._walk(wanted)):
            one = self._movement(record)
            is_shown = _is_wanted(one, wanted) and (like is None or one.alike == like)
            row = one.key if like else one.alike or one.key
            if number == SCANNED or (is_shown and row not in found and len(found) == rows):
                break
            if is_shown:
                found.setdefault(row, []).append(one)
            last = record.key
        else:
            last = None
        movements = chain.from_iterable(found.values())
        return ActivityPage([*map(ActivityRow, found.values())] if like else rows_of(movements), last)

    def in_progress(self, rows: int) -> Sequence[WalletMovement]:
        """The newest outgoing payments still sending."""
        return self._those(activity.being_sent(self._work, self._wallet.account_id, rows))

    def of_grant(self, grant_id: str, count: int) -> Sequence[WalletMovement]:
        """The newest payments under a grant."""
        return self._those(activity.paid_under(self._work, grant_id, count))

    def find(self, payment_id: str) -> WalletMovement | None:
        """The payment, deposit or withdrawal with this id, if it is a movement of the wallet."""
        incoming = incoming_payments.INCOMING.get(self._work, payment_id)
        key = incoming.listed if incoming else payment_id
        record = self._find(key) if key else None
        return self._movement(record) if record and record.id == payment_id else None

    def came_back(self, refund_id: str) -> WalletMovement | None:
        """What a refund gave back, if this wallet got it."""
        record = self._find(refund_id)
        return self._movement(record) if record and record.source == "came back" else None

    def _those(self, payment_ids: Sequence[str]) -> Sequence[WalletMovement]:
        """The outgoing payments with these ids, of this wallet."""
        return [self._movement(record) for one in payment_ids if (record := self._find(one))]

    def _find(self, key: str) -> ListedRecord | None:
        rows = activity.listed(self._work, self._wallet.id, self._wallet.account_id, f"{key}~", 1)
        return next((one for one in rows if one.key == key), None)

    def _walk(self, wanted: Wanted) -> Iterator[ListedRecord]:
        """The records in the filter's time range, newest first, without unpaid requests that have expired."""
        below = wanted.below or (AFTER_ALL if wanted.until == LATEST else first_identifier(wanted.until + SLACK))
        end = wanted.since - SLACK
        while batch := activity.listed(self._work, self._wallet.id, self._wallet.account_id, below, BATCH):
            for record in batch:
                below = record.key
                if max(_time(record), moment_of(record.key)) < end:  # the two clocks may differ
                    return
                has_expired = record.state == "open" and not record.moved and self._work.now >= (record.expires_at or 0)
                if wanted.since <= _time(record) < wanted.until and not has_expired:
                    yield record

    def _movement(self, record: ListedRecord) -> WalletMovement:
        is_out = record.source in {"sent", "withdrawal", "sent back"}
        whole = record.moved if record.wanted is None else int(record.wanted)
        state, moment = _state(record, whole, self._work.now), _time(record)
        counterpart = self._counterpart(record)
        size = whole if state in {"sending", "unpaid", "failed"} else record.moved
        app, alike = None, None
        bill = self._bill(record.grant_id) if record.grant_id else None
        if record.grant_id:
            with_key, app = self._app(record.grant_id)
            day = datetime.fromtimestamp(moment // SECOND, self._zone).date()
            alike = Alike(with_key, counterpart.wallet_id or counterpart.text, day)
        return WalletMovement(
            key=record.key,
            kind="sent back" if counterpart.refunded else record.source,
            id=record.id,
            counterpart=counterpart,
            app=app,
            note=note_of(record.metadata),
            purpose=(kept_wish(record.wish).purpose if record.wish else "")
            or note_of(record.bill)
            or (bill.purpose if bill else ""),
            amount=-size if is_out else size,
            whole=whole if state in {"part paid", "expired", "cancelled", "part sent"} else None,
            state=state,
            reason=record.failure,
            time=moment,
            alike=alike,
        )

    def _counterpart(self, record: ListedRecord) -> Counterpart:
        if record.other is not None:
            return self._named(record.other)
        if record.source == "received":
            return self._payer(record.id)
        if record.receiver is None:
            return Counterpart()
        if record.wish is not None:
            wish = kept_wish(record.wish)
            return Counterpart(wish.called, visible_url(wish.address))
        if record.grant_id and (bill := self._bill(record.grant_id)):  # such a grant is for this receiver alone
            return Counterpart(bill.name, bill.url)
        refund = None if record.grant_id else REFUNDS.find(self._work, return_payment_id=record.id)
        if refund is not None and refund.wallet_address is not None:
            return Counterpart(address=visible_url(refund.wallet_address), refunded=True)
        return Counterpart(address=visible_url(record.receiver.partition(BILL)[0]))

    def _payer(self, payment_id: str) -> Counterpart:
        wallets = activity.payer_wallets(self._work, payment_id)
        if wallets:
            return self._named(wallets[0])._replace(several=len(wallets) > 1)
        remote = activity.remote_payers(self._work, payment_id)
        return Counterpart(address=visible_url(remote[0]), several=len(remote) > 1) if remote else Counterpart()

    def _read_name(self, wallet_id: int) -> Counterpart:
        wallet = WALLETS.by_id(self._work, wallet_id)
        return Counterpart(wallet.name, visible_url(self._work.urls.wallet(wallet.path)), wallet_id)

    def _read_app(self, grant_id: str) -> tuple[object, Who]:
        """The grouping key of the grant's app (client and kid), and the app."""
        grant = GRANTS.by_id(self._work, grant_id)
        client = CLIENTS.by_id(self._work, grant.client_id).identity
        return (grant.client_id, grant.kid), who_of(self._work, self._wallet, grant, client)


def day_of(day: date, zone: tzinfo) -> tuple[int, int]:
    """The start and end of a day in the zone, in microseconds."""
    begins, ends = (datetime.combine(one, time(), zone) for one in (day, day + timedelta(days=1)))
    return int(begins.timestamp()) * SECOND, int(ends.timestamp()) * SECOND


def rows_of(movements: Iterable[WalletMovement]) -> Sequence[ActivityRow]:
    """Groups movements into rows, newest first; a group smaller than FOLDED becomes single rows."""
    rows: dict[object, ActivityRow] = {}
    for one in movements:
        rows.setdefault(one.alike or one.key, ActivityRow([])).movements.append(one)
    found = [
        part
        for row in rows.values()
        for part in ([row] if len(row.movements) >= FOLDED else [ActivityRow([one]) for one in row.movements])
    ]
    return sorted(found, key=lambda row: row.newest.key, reverse=True)


def _is_wanted(one: WalletMovement, wanted: Wanted) -> bool:
    is_failed = one.state in {"failed", "part sent"}
    shows = {"all": True, "in": one.amount > 0, "out": one.amount < 0 and one.state != "failed", "failed": is_failed}
    said = f"{one.counterpart.text} {one.note} {one.purpose} {one.app.name if one.app else ''}".casefold()
    return shows[wanted.show] and wanted.text.casefold() in said


def _time(record: ListedRecord) -> int:
    """The time of the first money moved, or of creation."""
    return record.created_at if record.key == record.id or record.source != "received" else moment_of(record.key)


def _state(record: ListedRecord, whole: int, now: int) -> ActivityState:
    if record.source == "received" and record.wanted is not None and record.moved < whole:
        if not record.moved:
            return "unpaid"
        if record.state != "open":
            return "cancelled"
        return "expired" if now >= (record.expires_at or 0) else "part paid"
    if record.state == "failed":
        return "part sent" if record.moved else "failed"
    return "sending" if record.state == "sending" else "done"


class Month(NamedTuple):
    """A month in the reader's zone; `name` is like `2026-11`."""

    name: str
    since: int
    until: int


async def show(visit: OwnerVisit) -> Response:
    """GET /account/activity."""
    language, given = visit.language, visit.request.query_params
    months = months_of(visit)
    chosen = next((one for one in months if one.name == given.get("month")), None)
    wanted = Wanted(
        below=_identifier(given.get("below")),
        since=chosen.since if chosen else 0,
        until=chosen.until if chosen else Wanted().until,
        show=cast("Show", given["show"]) if given.get("show") in get_args(Show) else "all",
        text=visible_text(given.get("text", "")[:MAX_TEXT]).strip(),
        like=_identifier(given.get("like")),
    )
    summed = chosen or months[0]

    def unit(work: Work) -> tuple[ActivityPage, Statement, int, Sequence[Holding]]:
        account = ACCOUNTS.by_id(work, visit.wallet.account_id)
        page = Reader(work, visit.wallet, language.zone).page(wanted, ROWS)
        held = account.held if summed == months[0] else 0
        return page, statement(work, account, summed.since, summed.until), held, others(work, visit)

    page, sums, held, own = await visit.read(unit)
    kept = {"month": chosen.name if chosen else "", "show": wanted.show, "text": wanted.text, "like": wanted.like or ""}
    filters = {name: value for name, value in kept.items() if value not in {"", "all"}}
    return visit.show(
        "activity.html",
        tab=TAB,
        others=own,
        days=groupby(page.rows, partial(_heading, language)),
        rows=page.rows,
        next=page.next,
        statement=sums,
        held=held,
        wanted=wanted,
        months=months,
        chosen=chosen,
        summed=summed,
        is_now=summed == months[0],
        shows=SHOWS,
        begins=language.date(summed.since),
        earlier=f"{TAB}?{urlencode(filters | {'below': page.next or ''})}",
        latest=f"{TAB}?{urlencode(filters)}",
    )


def _heading(language: Language, row: ActivityRow) -> str:
    """The heading of a row's day."""
    moment = row.newest.time
    ago = language.days_ago(moment)
    if ago in {0, 1}:
        return language.day(moment)
    return language.weekday(moment) if ago < A_YEAR else language.date(moment)


def months_of(visit: OwnerVisit) -> Sequence[Month]:
    """The months since the wallet was created, the current one first."""
    zone, found = visit.language.zone, list[Month]()
    first = datetime.fromtimestamp(visit.wallet.created_at // SECOND, zone).date().replace(day=1)
    this = datetime.fromtimestamp(visit.language.now // SECOND, zone).date().replace(day=1)
    while this >= first or not found:
        after = (this.replace(day=28) + timedelta(days=4)).replace(day=1)
        found.append(Month(f"{this:%Y-%m}", day_of(this, zone)[0], day_of(after, zone)[0]))
        this = (this - timedelta(days=1)).replace(day=1)
    return found


def _identifier(text: str | None) -> str | None:
    """A query parameter that is an id; None if malformed."""
    return text if text and IDENTIFIER.fullmatch(text) else None
