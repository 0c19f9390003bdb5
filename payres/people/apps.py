"""Apps whose grants the wallet's owner has decided: their identity, their remaining budget, and revoking them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from payres.accounts.store.owners import wallets_of
from payres.core.grants import tokens
from payres.core.grants.spending_limits import NO_INTERVAL, Spending, spending_of, spent_in_window
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY
from payres.core.protocol.errors import nothing_here, require
from payres.core.protocol.visible import visible_url
from payres.core.store import audit, wallets
from payres.core.store.grants import GRANTS, has_lapsed
from payres.core.store.incoming_payments import payment_at
from payres.core.store.rows import AFTER_ALL
from payres.core.store.wallets import KEYS, KeyRecord, WalletRecord
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import redirect
from payres.html.language import Language, marked
from payres.html.sentences import other_words, spending_sentence
from payres.people.activity import Reader, Who, rows_of, who_of
from payres.people.keys import revoke_key
from payres.people.own_wallets import spendable
from payres.people.sign_in import OwnerVisit
from payres.people.store import apps, payments
from payres.people.store.apps import DecidedRecord
from payres.people.store.remote_bills import REMOTE_BILLS, RemoteBillRecord, asks_for_itself

# Active grants may spend, or only read ("looks"). The others have ended: the limit is spent, or the only bill is paid
# ("paid") or could not be ("unpaid"), the last interval is over, the app never continued the grant ("lapsed"), it was
# revoked ("stopped"), or it was denied.
AppStanding = Literal["spends", "looks", "paid", "unpaid", "over", "lapsed", "stopped", "denied"]
IN_FORCE: Final[frozenset[AppStanding]] = frozenset({"spends", "looks"})
BATCH: Final = 64  # grants read at a time, most of which are shown
# Where the Web Monetization extension sends its user after consent.
EXTENSION: Final = "https://webmonetization.org/"
TAB: Final = "/account/apps"
NEARLY: Final = 90  # per cent spent, from which the bar warns
PAYMENTS: Final = 40  # shown on the page of one app
FEW: Final = 5  # ended apps shown below the running ones
# The names of windows, by months and microseconds.
PERIODS: Final = {
    (0, DAY): marked("Day {number} of {times}."),
    (0, 7 * DAY): marked("Week {number} of {times}."),
    (1, 0): marked("Month {number} of {times}."),
    (12, 0): marked("Year {number} of {times}."),
}
PERIOD: Final = marked("Period {number} of {times}.")
# Sentences by standing.
ENDS: Final[dict[AppStanding, str]] = {
    "spends": marked("It may spend"),
    "looks": marked("It may look, and cannot spend"),
    "paid": marked("It has paid what you allowed"),
    "unpaid": marked("The bill could not be paid; nothing was taken"),
    "over": marked("Its time is over"),
    "lapsed": marked("Allowed, never used"),
    "stopped": marked("It was stopped"),
    "denied": marked("It was not allowed"),
}


class App(msgspec.Struct, frozen=True, kw_only=True):
    """A grant as the owner of its wallet sees it, with the spending in the current window.

    `spent` and `left` are in minor units of `asset`, the asset of the limit; without a limit `left` is None. `window`
    counts from 1. `renews_at` is the start of the next window, or of the first; the last one ends at `ends_at`.
    `bill` is the only one that it may pay, if that is at another server and was read; `is_paying`, that it does so now.
    """

    grant: DecidedRecord
    wallet: WalletRecord
    who: Who
    standing: AppStanding
    spending: Spending | None
    asset: Asset
    spent: int
    left: int | None
    window: int | None
    renews_at: int | None
    ends_at: int | None
    bill: RemoteBillRecord | None
    is_paying: bool

    @property
    def is_for_a_bill(self) -> bool:
        """Whether it may pay one bill, once."""
        return self.spending is not None and self.spending.is_for_a_bill

    @property
    def ends_by_itself(self) -> bool:
        """Whether who asked ends it with the payment: the server of the bill does."""
        return self.spending is not None and asks_for_itself(self.grant.client, self.spending.receiver)

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
        """The most that it can debit within a month; None without an interval or a limit on what is debited."""
        return self.spending.a_month if self.spending and self._is_limited and self.spending.interval else None

    @property
    def once(self) -> int | None:
        """What it can still debit of a limit without an interval; None for any other limit."""
        return self.left if self.spending and self._is_limited and self.spending.interval is None else None

    @property
    def _is_limited(self) -> bool:
        """Whether there is a limit on what is debited."""
        return self.spending is not None and not self.spending.fixes_receive and self.left is not None


class Budgets(NamedTuple):
    """Apps that may spend, newest first. Together the `counted` ones can debit at most `monthly` within a month, and
    those without an interval `once`; `is_endless` if the limits of others are unknown in the wallet's asset."""

    apps: Sequence[App]

    @property
    def counted(self) -> Sequence[App]:
        return [app for app in self.apps if app.monthly is not None]

    @property
    def monthly(self) -> int:
        return sum(app.monthly or 0 for app in self.apps)

    @property
    def once(self) -> int:
        return sum(app.once or 0 for app in self.apps)

    @property
    def is_endless(self) -> bool:
        return any(app.monthly is None and app.once is None for app in self.apps)


def budgets(work: Work, wallet: WalletRecord) -> Budgets:
    """The apps that may spend from the wallet."""
    return Budgets([app for app in running_apps(work, wallet) if app.may_spend])


def running_apps(work: Work, wallet: WalletRecord) -> Sequence[App]:
    """The active grants, newest first."""
    # The many grants for a single payment need no further reads.
    records = (one for one in apps.grants_in_force(work, wallet.id) if not _is_used_up(one))
    found = (_app(work, wallet, record) for record in records)
    return [app for app in found if app.standing in IN_FORCE]


def ended_apps(
    work: Work, those: Sequence[WalletRecord], before: str = AFTER_ALL, count: int = 20
) -> tuple[Sequence[App], bool]:
    """Up to `count` ended grants of these wallets with ids below `before`, newest first, and whether there are more."""
    walks = merge(*(_walk(work, one, before) for one in those), key=lambda app: app.grant.id, reverse=True)
    found = [*islice((app for app in walks if app.standing not in IN_FORCE), count + 1)]
    return found[:count], len(found) > count


def require_app(work: Work, wallet: WalletRecord, grant_id: str) -> App:
    """A grant of this wallet. Raises NotFound."""
    record = apps.decided_grant(work, wallet.id, grant_id)
    return _app(work, wallet, require(record, "There is no such app here"))


def is_extension(finish_uri: str | None) -> bool:
    """Whether a program with this finish URI is the Web Monetization extension."""
    return (finish_uri or "").startswith(EXTENSION)


def revoke(work: Work, grant_id: str) -> None:
    """Ends a grant and all its tokens at once, in its owner's name."""
    if GRANTS.by_id(work, grant_id).state not in {"denied", "revoked"}:
        tokens.revoke_grant(work, grant_id)
        audit.record(work, "grant.revoke", grant_id)


def _walk(work: Work, wallet: WalletRecord, before: str) -> Iterator[App]:
    while batch := apps.grants_of_wallet(work, wallet.id, before, BATCH):
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
        renews_at = interval.renews_at(work.now)
    outcome = payments.state_of_bill(work, record.id) if spending and spending.is_for_a_bill else None
    return App(
        grant=record,
        wallet=wallet,
        who=who_of(work, wallet, record, record.client),
        standing=_standing(work, record, spending, left, outcome),
        spending=spending,
        asset=asset,
        spent=spent,
        left=left,
        window=window,
        renews_at=renews_at,
        ends_at=interval.end if interval else None,
        bill=REMOTE_BILLS.get(work, record.id) if spending and spending.receiver else None,
        is_paying=outcome == "sending",
    )


def _standing(
    work: Work, record: DecidedRecord, spending: Spending | None, left: int | None, outcome: str | None
) -> AppStanding:
    if record.state == "denied":
        return "denied"
    if outcome == "completed":  # perhaps for less than the limit
        return "paid"
    if record.state == "revoked":
        return "unpaid" if outcome == "failed" else "stopped"
    if has_lapsed(record.state, record.decided_at, work.now):
        return "lapsed"
    if spending is None:
        return "looks"
    if spending.interval is not None:
        return "over" if spending.interval.end is not None and spending.interval.end <= work.now else "spends"
    return "paid" if left == 0 else "spends"


def _is_used_up(record: DecidedRecord) -> bool:
    """Whether a limit without an interval is spent completely."""
    spending = spending_of(record.access)
    if spending is None or spending.value is None or spending.interval is not None or spending.fixes_receive:
        return False
    return record.spent >= spending.value


def revoke_keys(work: Work, wallet: WalletRecord, key_ids: Collection[int]) -> Sequence[KeyRecord]:
    """Revokes keys and the grants requested with them, and returns the keys. Revoked keys are left unchanged.

    Raises NotFound if one does not belong to the wallet.
    """
    found = [key for key in wallets.list_keys(work, wallet.id, revoked=True) if key.id in key_ids]
    if len(found) != len(set(key_ids)):
        raise nothing_here()
    running = running_apps(work, wallet)
    for key in found:
        if key.revoked_at is None:
            for app in running:
                if app.who.key == key:
                    revoke(work, app.grant.id)
            revoke_key(work, wallet, key.kid)
    return [KEYS.by_id(work, key.id) for key in found]


async def show(visit: OwnerVisit) -> Response:
    """GET /account/apps: those of all wallets of the owner, or with `?wallet=` of one."""
    chosen = visit.request.query_params.get("wallet")

    def unit(work: Work) -> Mapping[str, object]:
        own = wallets_of(work, visit.owner.id)
        shown = [one for one in own if one.path == chosen] or own
        running = {one.path: running_apps(work, one) for one in own}
        found = sorted((app for one in shown for app in running[one.path]), key=lambda app: app.grant.id, reverse=True)
        spending = [app for app in found if app.may_spend]
        own_sums = {one.asset: Budgets([app for app in spending if app.wallet.asset == one.asset]) for one in shown}
        views = [(str(visit.language.say("All {number}", number=sum(map(len, running.values())))), TAB)]
        views += [(f"{one.name} {len(running[one.path])}", f"{TAB}?{urlencode({'wallet': one.path})}") for one in own]
        return {
            "budgets": [app for app in spending if not app.is_for_a_bill],
            "bills": [app for app in spending if app.is_for_a_bill],
            "monthly": {asset: sums.monthly for asset, sums in own_sums.items() if sums.counted},
            "once": {asset: sums.once for asset, sums in own_sums.items() if sums.once},
            "endless": [one.code for one, sums in own_sums.items() if sums.is_endless and (sums.counted or sums.once)],
            "looking": [app for app in found if not app.may_spend],
            "ended": ended_apps(work, shown, count=FEW)[0],
            "free": spendable(work, shown[0]) if len(shown) == 1 else None,
            "names": _names(work, found),
            "shown": shown,
            "views": views if len(own) > 1 else [],
            "chosen": views[1 + own.index(shown[0])][1] if len(own) > len(shown) else TAB,
        }

    return await visit.show_found("apps.html", unit, TAB, **_words(visit))


async def show_ended(visit: OwnerVisit) -> Response:
    """GET /account/apps/ended."""
    before = visit.request.query_params.get("before", AFTER_ALL)
    ended, more = await visit.read(lambda work: ended_apps(work, wallets_of(work, visit.owner.id), before))
    return visit.show("apps_ended.html", tab=TAB, ended=ended, more=more, **_words(visit))


async def show_one(visit: OwnerVisit) -> Response:
    """GET /account/apps/{grant}."""
    grant_id, language = visit.segments["grant"], visit.language
    visit, app = await visit.found(partial(require_app, grant_id=grant_id))

    def unit(work: Work) -> Mapping[str, object]:
        paid = Reader(work, visit.wallet, language.zone).of_grant(grant_id, PAYMENTS)
        return {"app": app, "rows": rows_of(paid), "is_cut": len(paid) == PAYMENTS, "names": _names(work, [app])}

    return await visit.show_found("app.html", unit, TAB, **_words(visit))


async def stop(visit: OwnerVisit, form: Form) -> Response:
    """Revokes the grant, and its key if that box is ticked."""
    grant_id, with_key = visit.segments["grant"], form.get("key") == "revoke"
    visit, app = await visit.found(partial(require_app, grant_id=grant_id))

    def unit(work: Work) -> None:
        revoke(work, grant_id)
        if with_key and app.who.key:
            revoke_keys(work, visit.wallet, {app.who.key.id})

    await visit.write(unit)
    return redirect(f"{TAB}/{grant_id}")


def _names(work: Work, those: Sequence[App]) -> Mapping[str, str]:
    """The names of apps' only receivers by URL: a local wallet's name, or a remote host with the name that it gives."""

    receivers = [(app.spending.receiver, app.bill) for app in those if app.spending]
    return {url: receiver_name(work, url, bill) for url, bill in receivers if url}


def receiver_name(work: Work, url: str, bill: RemoteBillRecord | None = None) -> str:
    """The name of the wallet of an incoming payment here, or else the host of its URL, with the name on its bill."""
    found = payment_at(work, url)
    return found[1].name if found else bill.named if bill else visible_url(url).host


def _words(visit: OwnerVisit) -> dict[str, Any]:
    """Template functions for apps and budgets."""
    language, urls = visit.language, visit.context.urls

    def together(amounts: Mapping[Asset, int]) -> Markup:
        *others, last = [language.money(amount, asset) for asset, amount in amounts.items()]
        return language.say("{one} and {other}", one=Markup(", ").join(others), other=last) if others else last

    return {
        "together": together,
        "may": lambda spending, names: spending_sentence(language, spending, names.get(spending.receiver)),
        "sees": lambda app: other_words(
            language, app.grant.access, app.grant.subject, urls.wallet(app.wallet.path), app.wallet.name
        ),
        "end_of": lambda app: language.say(ENDS[app.standing]),
        "window_of": lambda app: _window(language, app),
        "NEARLY": NEARLY,
    }


def _window(language: Language, app: App) -> str:
    """When the limit starts, renews and ends."""
    spending, renews_at = app.spending, app.renews_at
    said = []
    if app.is_to_come and renews_at is not None:
        said.append(language.say("It starts on {date}.", date=language.date(renews_at)))
    elif app.window is not None and spending and spending.interval and (spending.times or 0) > 1:
        period = PERIODS.get((spending.interval.months, spending.interval.microseconds), PERIOD)
        said.append(language.say(period, number=app.window, times=spending.times))
    if renews_at is not None and not app.is_to_come:
        is_soon = renews_at < language.now + 2 * DAY
        when = language.moment(renews_at) if is_soon else language.date(renews_at)
        said.append(language.say("It starts again: {when}.", when=when))
    if app.ends_at is not None:
        said.append(language.say("It ends on {date}.", date=language.date(app.ends_at)))
    return " ".join(said)
