"""Apps whose grants the wallet's owner has decided: their identity, their remaining budget, and revoking them."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from payres.core.grants.consent import has_lapsed
from payres.core.grants.limits import NO_INTERVAL, Spending, spending_of, spent_in_window
from payres.core.protocol.amounts import Asset
from payres.core.protocol.errors import require
from payres.core.protocol.visible import ShownUrl, visible_name, visible_url
from payres.core.store import grants, payments
from payres.core.store.grants import DecidedRecord, GrantRecord
from payres.core.store.rows import AFTER_ALL
from payres.core.store.wallets import KeyRecord, WalletRecord, last_key
from payres.core.store.work import Work
from payres.operator import grants as operations

# Active grants may spend, or only read ("looks"). The others have ended: the limit is spent ("paid"), the last
# interval is over, the app never continued the grant ("lapsed"), it was revoked ("stopped"), or it was denied.
AppStanding = Literal["spends", "looks", "paid", "over", "lapsed", "stopped", "denied"]
IN_FORCE: Final[frozenset[AppStanding]] = frozenset({"spends", "looks"})
BATCH: Final = 64  # grants read at a time, most of which are shown
# Where the Web Monetization extension sends its user after consent.
EXTENSION: Final = "https://webmonetization.org/"


class Who(NamedTuple):
    """The requester of a grant: an app, or a program that signs with a key of the wallet itself.

    An app chooses its `name` itself (`is_claimed`); its `address` is proven by its key. A program is named after its
    `key`, or has no name.
    """

    name: str
    is_claimed: bool
    address: ShownUrl | None
    key: KeyRecord | None

    @property
    def is_own(self) -> bool:
        """Whether it is a program with a key of the wallet itself."""
        return self.address is None


class App(msgspec.Struct, frozen=True, kw_only=True):
    """A grant as its wallet's owner sees it, with the spending in the current window.

    `spent` and `left` are in minor units of `asset`, the asset of the limit; without a limit `left` is None. `window`
    counts from 1. `renews_at` is the start of the next window, or of the first; the last one ends at `ends_at`.
    """

    grant: DecidedRecord
    who: Who
    standing: AppStanding
    spending: Spending | None
    asset: Asset
    spent: int
    left: int | None
    window: int | None
    renews_at: int | None
    ends_at: int | None

    @property
    def is_extension(self) -> bool:
        """Whether it is the Web Monetization extension, which uses a key of the wallet."""
        return self.who.is_own and is_extension(self.grant.finish_uri)

    @property
    def may_spend(self) -> bool:
        """Whether the grant permits payments, now or in a later window."""
        return self.standing == "spends"

    @property
    def is_to_come(self) -> bool:
        """Whether its first window is in the future."""
        interval = self.spending.interval if self.spending else None
        return interval is not None and self.renews_at is not None and interval.start == self.renews_at

    @property
    def monthly(self) -> int | None:
        """The most that it can debit within a month; None if the limit is on the receive amount, or there is none."""
        if self.spending is None or self.spending.fixes_receive or self.left is None:
            return None
        return self.left if self.spending.interval is None else self.spending.a_month


class Budgets(NamedTuple):
    """Apps that may spend, newest first; together the `counted` ones can debit at most `monthly` within a month."""

    apps: Sequence[App]

    @property
    def counted(self) -> Sequence[App]:
        return [app for app in self.apps if app.monthly is not None]

    @property
    def monthly(self) -> int:
        return sum(app.monthly or 0 for app in self.apps)


def budgets(work: Work, wallet: WalletRecord) -> Budgets:
    """The apps that may spend from the wallet."""
    return Budgets([app for app in running(work, wallet) if app.may_spend])


def running(work: Work, wallet: WalletRecord) -> Sequence[App]:
    """The active grants, newest first."""
    # The many grants for a single payment need no further reads.
    records = (one for one in grants.grants_in_force(work, wallet.id) if not _is_used_up(one))
    found = (_app(work, wallet, record) for record in records)
    return [app for app in found if app.standing in IN_FORCE]


def ended(work: Work, wallet: WalletRecord, before: str = AFTER_ALL, count: int = 20) -> tuple[Sequence[App], bool]:
    """Up to `count` ended grants with ids below `before`, newest first, and whether there are more."""
    found: list[App] = []
    for app in _walk(work, wallet, before):
        if app.standing not in IN_FORCE:
            found.append(app)
        if len(found) > count:
            break
    return found[:count], len(found) > count


def require_app(work: Work, wallet: WalletRecord, grant_id: str) -> App:
    """A grant of this wallet. Raises NotFound, also for a grant of another wallet."""
    record = grants.decided_grant(work, wallet.id, grant_id)
    return _app(work, wallet, require(record, "There is no such app here"))


def is_extension(finish_uri: str | None) -> bool:
    """Whether a program with this finish URI is the Web Monetization extension."""
    return (finish_uri or "").startswith(EXTENSION)


def stop(work: Work, wallet: WalletRecord, grant_id: str) -> App:
    """Revokes a grant, effective at once. Raises NotFound."""
    require_app(work, wallet, grant_id)
    operations.revoke(work, grant_id)
    return require_app(work, wallet, grant_id)


def _walk(work: Work, wallet: WalletRecord, before: str) -> Iterator[App]:
    while batch := grants.grants_of_wallet(work, wallet.id, before, BATCH):
        yield from (_app(work, wallet, record) for record in batch)
        before = batch[-1].id


def _app(work: Work, wallet: WalletRecord, record: DecidedRecord) -> App:
    spending, found = spending_of(record.access), None
    asset = spending.asset if spending and spending.fixes_receive and spending.asset else wallet.asset
    interval = spending.interval if spending else None
    index = interval.window_at(work.now) if interval else None
    if spending and (interval is None or index is not None):
        opened = NO_INTERVAL if interval is None or index is None else interval.boundary(index)
        found = spent_in_window(work, record.id, opened, asset)
    spent = 0 if found is None or spending is None else found.receive if spending.fixes_receive else found.debit
    left = None if spending is None or spending.value is None else max(spending.value - spent, 0)
    window, renews_at = None, interval.start if interval else None
    if interval and index is not None:
        window = None if interval.first is None else index - interval.first + 1
        renews_at = None if index == interval.last else interval.boundary(index + 1)
    return App(
        grant=record,
        who=who_of(work, wallet, record, record.client),
        standing=_standing(work, record, spending, left),
        spending=spending,
        asset=asset,
        spent=spent,
        left=left,
        window=window,
        renews_at=renews_at,
        ends_at=interval.end if interval else None,
    )


def _standing(work: Work, record: DecidedRecord, spending: Spending | None, left: int | None) -> AppStanding:
    if record.state == "denied":
        return "denied"
    if record.state == "revoked":
        return "stopped"
    if has_lapsed(record.state, record.decided_at, work.now):
        return "lapsed"
    if spending is None:
        return "looks"
    if spending.interval is not None:
        return "over" if spending.interval.end is not None and spending.interval.end <= work.now else "spends"
    # The limit is spent, or its only receiver is paid, perhaps for less.
    has_paid = left == 0 or bool(spending.receiver and payments.has_completed(work, record.id))
    return "paid" if has_paid else "spends"


def _is_used_up(record: DecidedRecord) -> bool:
    """Whether a limit without an interval is spent completely."""
    spending = spending_of(record.access)
    if spending is None or spending.value is None or spending.interval is not None or spending.fixes_receive:
        return False
    return record.spent >= spending.value


def who_of(work: Work, wallet: WalletRecord, grant: GrantRecord, client: str) -> Who:
    """The requester of a grant; `client` is the identity of its client."""
    if work.urls.wallet_path(client) == wallet.path:
        key = last_key(work, wallet.id, grant.kid) if grant.kid else None
        return Who(visible_name(key.name, None) or "" if key else "", False, None, key)
    name, address = visible_name(grant.client_name, client), visible_url(client)
    return Who(name or address.text, name is not None, address, None)
