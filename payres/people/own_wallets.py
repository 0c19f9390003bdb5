"""The wallets of one owner: looking at another one, paying a bill from one of several, and bringing them together."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import second_factors
from payres.accounts.browser_names import seen_of
from payres.accounts.cookies import browser_of
from payres.accounts.guesses import wrong_password
from payres.accounts.notices import notify
from payres.accounts.second_step import Refused
from payres.accounts.sessions import find_account, find_session, noted
from payres.accounts.store.joined_wallets import JOIN_DELAY, JOIN_TABLE, JoinRecord, open_joins, store_join
from payres.accounts.store.kinds import Account
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, owner_at, take_over, wallets_of
from payres.accounts.store.sessions import change_session, end_access
from payres.accounts.store.sign_ins import NOWHERE, Seen
from payres.accounts.visits import Act
from payres.core.http.error_answers import note_error
from payres.core.payments import ledger, quotes
from payres.core.payments.incoming import open_receiver
from payres.core.protocol.errors import (
    DomainError,
    NotFound,
    SignInFailed,
    TooManyRequests,
    Unavailable,
    WrongState,
    nothing_here,
)
from payres.core.protocol.identifiers import hash_secret
from payres.core.store import audit
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.wallets import WALLETS, WalletRecord, find_wallet
from payres.core.store.work import Work
from payres.html.forms import Form, here
from payres.html.html import redirect
from payres.html.language import marked
from payres.html.sentences import problem_of
from payres.people.sign_in import OWNER_SIGN_IN, SETTINGS_TAB, OwnerVisit, wallet_path
from payres.people.store.activity import being_sent

ALREADY: Final = marked("This wallet is yours already: you find it above.")
NO_CODE: Final = Refused("code", marked("This wallet has a second step: its code too, or one of its recovery codes."))
DONE: Final = {
    "connected": marked("Done. {name} and its password now open all your wallets."),
    "asked": marked("Whoever has the wallet is asked. Below it says from when you can connect it."),
    "kept": marked("The wallets stay apart."),
}
Joined = Literal["connected", "asked"]
MOST_UNDER_WAY: Final = 99


class Holding(NamedTuple):
    """A wallet as its owner chooses among several: what it has, how many payments are on their way, what a bill takes
    from it (None of a bill of any amount, or where there is none), and how much it lacks for that."""

    wallet: WalletRecord
    free: int
    under_way: int = 0
    leaves: int | None = None
    lacks: int = 0
    is_changed: bool = False  # into another currency


Payers = tuple[WalletRecord, Sequence[Holding]] | None


def spendable(work: Work, wallet: WalletRecord) -> int:
    """What the wallet can spend, in the minor unit."""
    return ledger.free_balance(ACCOUNTS.by_id(work, wallet.account_id))


def holdings(work: Work, owner_id: int) -> Sequence[Holding]:
    """All wallets of an owner."""
    return [
        Holding(one, spendable(work, one), len(being_sent(work, one.account_id, MOST_UNDER_WAY)))
        for one in wallets_of(work, owner_id)
    ]


def others(work: Work, visit: OwnerVisit) -> Sequence[Holding]:
    """The owner's wallets besides that looked at."""
    found = holdings(work, visit.owner.id) if visit.owner.has_several else []
    return [one for one in found if one.wallet.id != visit.wallet.id]


def payers(work: Work, owner_id: int, url: str) -> Sequence[Holding]:
    """The wallets of an owner that can pay a bill of this server now, or could if they had more. Raises InvalidReceiver
    if it takes no money."""
    receiver, found = open_receiver(work, url, "to"), []
    for one in wallets_of(work, owner_id):
        if not one.active or one.id == receiver.wallet.id:
            continue
        with suppress(DomainError):  # such as a currency without a rate
            if receiver.payment.remaining is None:
                quotes.unit_rate_between(work, one.asset, receiver.wallet.asset)
                leaves = None
            else:
                leaves = quotes.local_offer(work, one, receiver, None, None).terms.debit
            free, is_changed = spendable(work, one), one.asset != receiver.wallet.asset
            found.append(Holding(one, free, 0, leaves, max((leaves or 1) - free, 0), is_changed))
    return found


def payers_here(work: Work, request: Request, url: str) -> Payers:
    """The wallet that is looked at by who is signed in, and those that can pay the bill, if there are any: that one
    first, and those with too little last."""
    session = browser_of(request).session
    found = find_session(work, OF_OWNERS, session) if session else None
    if found is None or found.wallet_id is None:
        return None
    looked_at = WALLETS.by_id(work, found.wallet_id)
    those = payers(work, found.account_id, url)
    those = sorted(those, key=lambda one: (one.lacks > 0, one.wallet.id != looked_at.id))
    return (looked_at, those) if those else None


async def answer_first(visit: OwnerVisit, form: Form) -> Response | None:
    """The answer to a form that changes the wallet looked at, and to one of a page that showed another wallet, as in a
    second tab; None to all others. Raises NotFound for a wallet of somebody else."""
    if form.get("choice") == "switch":
        await visit.write(partial(look_at, visit=visit, path=form.get("wallet", "")))
        return redirect(here(visit.request))
    if form["csrf"] == visit.csrf:
        return None
    named = await visit.read(lambda work: own_wallet(work, visit, form["csrf"].partition(".")[2]))
    note_error(visit.request, WrongState("The form is of another wallet than the one that is shown"))
    return visit.show("other_wallet.html", WrongState.status, other=named)


def look_at(work: Work, visit: OwnerVisit, path: str) -> WalletRecord:
    """Looks at the owner's wallet of this path from now on. Raises NotFound."""
    found = own_wallet(work, visit, path)
    change_session(work, OF_OWNERS, hash_secret(visit.session), wallet_address_id=found.id)
    return found


async def show_typed(visit: OwnerVisit, form: Form, show: Act) -> Response:
    """Shows what was typed before a sign-in, in the wallet that was looked at then; nothing of it in one of others."""
    try:
        own = await visit.write(partial(look_at, visit=visit, path=form.get("csrf", "").partition(".")[2]))
    except NotFound:
        return redirect(here(visit.request))
    return await show(replace(visit, wallet=own, looked_at=own), form)


def own_wallet(work: Work, visit: OwnerVisit, path: str) -> WalletRecord:
    """The owner's wallet of this path. Raises NotFound."""
    found = find_wallet(work, path)
    if found is None or found.owner_id != visit.owner.id:
        raise nothing_here()
    return found


async def show(visit: OwnerVisit, status: int = 200, given: str = "", **problems: str) -> Response:
    """GET /settings/wallets: the owner's wallets, and the form that connects another."""

    def unit(work: Work) -> tuple[Sequence[Holding], Sequence[JoinRecord]]:
        return holdings(work, visit.owner.id), open_joins(work, visit.owner.id, work.now)

    own, asked = await visit.read(unit)
    done = None if problems else visit.done(DONE)
    asked = [one for one in asked if one.owner_id == visit.owner.id]
    return visit.show(
        "wallets.html", status, tab=SETTINGS_TAB, done=done, own=own, asked=asked, given=given, problems=problems
    )


async def connect(visit: OwnerVisit, form: Form) -> Response:
    """Brings together the wallets of two owners, of whom one is signed in and the other's password was typed."""
    request, given = visit.request, form.get("other", "")

    def find(work: Work) -> tuple[Account, bytes | None]:
        path = wallet_path(work, given)
        return find_account(work, OF_OWNERS, path, owner_at(work, path), browser_of(request))

    # The guesses count as those at sign-in do: a session is no way to more of them.
    account, known = await visit.read(find)
    try:
        await OWNER_SIGN_IN.check_password(request, account, form.get("password", ""), known)
        code, seen = form.get("code", ""), seen_of(request)
        outcome = await visit.write(lambda work: join(work, visit.owner, wallet_path(work, given), account, code, seen))
    except (SignInFailed, TooManyRequests, Unavailable) as error:
        noted = note_error(request, error)
        response = await show(visit, noted.status, given, password=problem_of(visit.language, noted))
        response.headers.update(noted.headers)
        return response
    except WrongState as error:
        return await show(visit, note_error(request, error).status, given, other=visit.language.say(str(error)))
    if isinstance(outcome, Refused):
        return await show(visit, 401, given, code=visit.language.say(outcome.sentence))
    return redirect(f"/settings/wallets?done={outcome}")


async def keep(visit: OwnerVisit, form: Form) -> Response:
    """Says no to whoever asks for the owner's wallets, and asks for no others any more."""
    await visit.write(lambda work: keep_apart(work, visit.owner))
    return redirect("/settings/wallets?done=kept")


def join(
    work: Work, owner: OwnerRecord, path: str, verified: Account, code: str = "", seen: Seen = NOWHERE
) -> Joined | Refused:
    """Gives all wallets of another owner, `verified` by a password, to this one; the other ends, with every sign-in.

    A password alone could be a thief's: it takes a code of the other's second step, whose wrong ones are counted, so a
    unit must return; or, if there is none, a day in which the other can say no, and the password again. Raises
    WrongState if the wallet is the owner's already, SignInFailed if the other's password was changed during the check.
    """
    other = owner_at(work, path)
    if other is not None and other.id == owner.id:
        raise WrongState(ALREADY)
    if other is None or other.id != verified.id or other.password_hash != verified.password_hash:
        raise wrong_password()
    if second_factors.has_factor(work, OF_OWNERS, other.id):
        refused = _refused(work, other, code, seen)
        if refused is not None:
            return refused
        is_done = True
    else:
        asked = [one for one in open_joins(work, other.id, work.now) if one.owner_id == owner.id]
        if any(one.waits(work.now) for one in asked):
            return "asked"
        is_done = bool(asked)
    for one in wallets_of(work, other.id):
        store_join(work, one.id, owner.id, seen, work.now, is_done)
        audit.record(work, "wallet.connect" if is_done else "wallet.ask_connect", one.path, ownerOf=owner.name)
        about = {"wallet": one.path, "joins": owner.name, **seen._asdict()}
        if is_done:
            notify(work, owner.id, "wallet_connected", own=True, **about)
            notify(work, other.id, "wallet_connected", **about)
        else:
            notify(work, other.id, "wallet_asked_for", due_at=work.now + JOIN_DELAY, **about)
    if is_done:
        end_access(work, OF_OWNERS, other.id)
        second_factors.delete_factors(work, OF_OWNERS, other.id)
        take_over(work, owner.id, other.id)
    return "connected" if is_done else "asked"


def _refused(work: Work, other: OwnerRecord, code: str, seen: Seen) -> Refused | None:
    """Why a code of the other's second step is not taken; None if it is."""
    found = second_factors.verify(work, OF_OWNERS, other.id, code) if code else NO_CODE
    if not isinstance(found, Refused):
        return None
    if found.way:
        noted(work, OF_OWNERS, other.id, found.way, seen)
    return found


def keep_apart(work: Work, owner: OwnerRecord) -> None:
    """Ends what the owner has asked for or is asked for, and tells both sides."""
    for one in open_joins(work, owner.id, work.now):
        JOIN_TABLE.delete(work, wallet_address_id=one.wallet_address_id)
        audit.record(work, "wallet.keep_apart", one.path)
        for owner_id in (one.owner_id, one.holder_id):
            notify(work, owner_id, "wallet_kept_apart", wallet=one.path)
