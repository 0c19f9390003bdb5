"""Apps that the owner of a wallet has decided on: who they are, what each may still spend, and stopping them."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from payres.amounts import Asset
from payres.clock import SECOND
from payres.errors import require
from payres.grants.limits import NO_INTERVAL, spent_in_window
from payres.grants.spending import Spending, spending_of
from payres.limits import APPROVAL_SECONDS
from payres.operator import grants as operations
from payres.store import grants, payments
from payres.store.grants import DecidedRecord, GrantRecord
from payres.store.rows import AFTER_ALL
from payres.store.wallets import KeyRecord, WalletRecord, last_key
from payres.store.work import Work
from payres.visible import ShownUrl, visible_name, visible_url

# What of a grant is so: it may spend, it may look only; the others have ended: it has paid what it was allowed for, its
# time is over, the app never came for it, somebody stopped it, or it was not allowed.
Standing = Literal["spends", "looks", "paid", "over", "lapsed", "stopped", "denied"]
IN_FORCE: Final[frozenset[Standing]] = frozenset({"spends", "looks"})
BATCH: Final = 64  # grants that are read at a time, where most are shown


class Who(NamedTuple):
    """Who asked for a grant. An app chose its `name` itself (`is_claimed`); a program of the owner's own has the name
    that they gave its key, or none. Of an app, `address` is what its key proves to control."""

    name: str
    is_claimed: bool
    address: ShownUrl | None
    key: KeyRecord | None

    @property
    def is_own(self) -> bool:
        """Whether it signs with a key of the wallet itself."""
        return self.address is None


class Budget(NamedTuple):
    """What an app may spend, and what of that is left in the window that is open now.

    `spent` and `left` are in `asset`, that of the limit; without a limit `left` is None. `window` counts from 1. The
    next window opens at `renews_at`, which is also when the first one does; after `ends_at` there is none.
    """

    grant_id: str
    who: Who
    spending: Spending
    asset: Asset
    spent: int
    left: int | None
    window: int | None
    renews_at: int | None
    ends_at: int | None

    @property
    def is_to_come(self) -> bool:
        """Whether its first window is still to open."""
        interval = self.spending.interval
        return interval is not None and self.renews_at is not None and interval.start == self.renews_at

    @property
    def monthly(self) -> int | None:
        """What it can take from the wallet within a month, fees not counted where it is a limit of what arrives; None
        where that is in another currency, or has no limit but the balance."""
        if self.spending.fixes_receive or self.left is None:
            return None
        return self.left if self.spending.interval is None else self.spending.a_month


class App(msgspec.Struct, frozen=True):
    """A grant as its wallet's owner sees it; `budget` is that of one that may spend."""

    grant: DecidedRecord
    who: Who
    spending: Spending | None
    standing: Standing
    budget: Budget | None


def budgets(work: Work, wallet: WalletRecord) -> Sequence[Budget]:
    """What apps may still spend from a wallet, the newest first."""
    return [app.budget for app in running(work, wallet) if app.budget]


def running(work: Work, wallet: WalletRecord) -> Sequence[App]:
    """The grants that permit something now, the newest first."""
    # Of the many that were for one payment, nothing more is read.
    records = (one for one in grants.grants_in_force(work, wallet.id) if not _is_used_up(one))
    found = (_app(work, wallet, record) for record in records)
    return [app for app in found if app.standing in IN_FORCE]


def ended(work: Work, wallet: WalletRecord, before: str = AFTER_ALL, count: int = 20) -> tuple[Sequence[App], bool]:
    """So many that have ended, asked for before the one with this id, newest first; and whether there are others."""
    found: list[App] = []
    for app in _walk(work, wallet, before):
        if app.standing not in IN_FORCE:
            found.append(app)
        if len(found) > count:
            break
    return found[:count], len(found) > count


def require_app(work: Work, wallet: WalletRecord, grant_id: str) -> App:
    """The grant of this wallet. Raises NotFound, also for one of another wallet."""
    record = grants.decided_grant(work, wallet.id, grant_id)
    return _app(work, wallet, require(record, "There is no such app here"))


def stop(work: Work, wallet: WalletRecord, grant_id: str) -> App:
    """Ends a grant at once, before its next payment. Raises NotFound."""
    require_app(work, wallet, grant_id)
    operations.revoke(work, grant_id)
    return require_app(work, wallet, grant_id)


def _walk(work: Work, wallet: WalletRecord, before: str) -> Iterator[App]:
    while batch := grants.grants_of_wallet(work, wallet.id, before, BATCH):
        yield from (_app(work, wallet, record) for record in batch)
        before = batch[-1].id


def _app(work: Work, wallet: WalletRecord, record: DecidedRecord) -> App:
    spending, who = spending_of(record.access), who_of(work, wallet, record, record.client)
    budget = _budget(work, wallet, record, who, spending) if spending else None
    standing = _standing(work, record, budget)
    return App(record, who, spending, standing, budget if standing == "spends" else None)


def _is_used_up(record: DecidedRecord) -> bool:
    """Whether it may spend once, and has spent it all."""
    spending = spending_of(record.access)
    if spending is None or spending.value is None or spending.interval is not None or spending.fixes_receive:
        return False
    return record.spent >= spending.value


def who_of(work: Work, wallet: WalletRecord, grant: GrantRecord, client: str) -> Who:
    """Who asked for a grant; `client` is the identity."""
    if work.urls.wallet_path(client) == wallet.path:
        key = last_key(work, wallet.id, grant.kid) if grant.kid else None
        return Who(visible_name(key.name, None) or "" if key else "", False, None, key)
    name, address = visible_name(grant.client_name, client), visible_url(client)
    return Who(name or address.text, name is not None, address, None)


def _budget(work: Work, wallet: WalletRecord, record: DecidedRecord, who: Who, spending: Spending) -> Budget:
    interval = spending.interval
    index = interval.window_at(work.now) if interval else None
    opened = interval.boundary(index) if interval and index is not None else NO_INTERVAL if interval is None else None
    asset = spending.asset if spending.fixes_receive and spending.asset else wallet.asset
    found = None if opened is None else spent_in_window(work, record.id, opened, asset)
    spent = 0 if found is None else found.receive if spending.fixes_receive else found.debit
    window, renews_at = None, interval.start if interval else None
    if interval and index is not None:
        window = None if interval.first is None else index - interval.first + 1
        renews_at = None if index == interval.last else interval.boundary(index + 1)
    left = None if spending.value is None else max(spending.value - spent, 0)
    ends_at = interval.end if interval else None
    return Budget(record.id, who, spending, asset, spent, left, window, renews_at, ends_at)


def _standing(work: Work, record: DecidedRecord, budget: Budget | None) -> Standing:
    if record.state == "denied":
        return "denied"
    if record.state == "revoked":
        return "stopped"
    if record.state == "approved" and work.now >= record.decided_at + APPROVAL_SECONDS * SECOND:
        return "lapsed"
    if budget is None:
        return "looks"
    if budget.ends_at is not None and budget.ends_at <= work.now:
        return "over"
    return "paid" if _has_paid(work, budget) else "spends"


def _has_paid(work: Work, budget: Budget) -> bool:
    """Whether it has paid what it was for: all of its amount, or its only receiver, which may have cost less."""
    if budget.spending.interval is not None:
        return False
    return budget.left == 0 or bool(budget.spending.receiver and payments.has_completed(work, budget.grant_id))
