"""What guards a wallet: its password, the browsers signed in, which the owner can sign out, and the last sign-ins."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from starlette.responses import Response

from payres.accounts.cookies import browser_of
from payres.accounts.limits import RECOVERY_CODES
from payres.accounts.passkeys import takes_passkeys
from payres.accounts.second_factors import STEPS, factors_of, has_factor
from payres.accounts.sessions import keyed, known_browser
from payres.accounts.store.browsers import forget_others
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.store.passkeys import passkeys_of
from payres.accounts.store.sessions import delete_session, open_sessions
from payres.accounts.store.sign_ins import SignInRecord, last_sign_ins
from payres.core.protocol.identifiers import hash_secret
from payres.core.store import audit
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import redirect
from payres.html.language import marked
from payres.people.sign_in import SECURITY, SETTINGS_TAB, OwnerVisit
from payres.people.store.activity import asked_above

DONE: Final[Mapping[str, str]] = {
    "password": marked("Your password is changed. Every other browser is signed out."),
    "ended": marked("Signed out. What your apps may spend stays as it is."),
    "over": marked("It was signed out already."),
}
# What is said of a sign-in without a second step, by the way of it; `name` is that of the server.
WAYS: Final[Mapping[str, str]] = {
    "password": marked("Password"),
    "link": marked("Link from {name}"),
    "wrong password": marked("Wrong password"),
}


def folded(sign_ins: Sequence[SignInRecord]) -> Sequence[tuple[SignInRecord, int]]:
    """Sign-ins, and how many stand behind each: failures in a row, of one kind and from one place, are one."""
    groups = groupby(sign_ins, lambda one: (one.way, one.address, one.browser) if one.failed else id(one))
    return [(alike[0], len(alike)) for alike in (list(group) for _, group in groups)]


def end_sessions(work: Work, visit: OwnerVisit, digest: str | None = None) -> int:
    """Signs other browsers of the owner out, or only that of a digest (see `digest_of`). Returns how many.

    All others are asked for the second factor again: a lost device may be trusted, and remember the password.
    """
    others = [one.id_hash for one in open_sessions(work, OF_OWNERS, visit.owner.id, work.now)]
    others.remove(hash_secret(visit.session))
    if digest is not None:
        others = [one for one in others if digest_of(visit, one) == digest]
    for one in others:
        delete_session(work, OF_OWNERS, one)
    if digest is None and has_factor(work, OF_OWNERS, visit.owner.id):
        own = known_browser(work, OF_OWNERS, visit.owner.id, browser_of(visit.request))
        forget_others(work, OF_OWNERS, visit.owner.id, own)
    if others:
        audit.record(work, "wallet.sign_out", visit.wallet.path, sessions=len(others))
    return len(others)


def digest_of(visit: OwnerVisit, id_hash: bytes) -> str:
    """What a form of this session calls another session. It is of no use elsewhere."""
    return keyed(visit.session, "session", id_hash)


async def show(visit: OwnerVisit) -> Response:
    """GET /account/security."""

    def unit(work: Work) -> Mapping[str, object]:
        account = OF_OWNERS, visit.owner.id
        return {
            "browsers": [(one, digest_of(visit, one.id_hash)) for one in open_sessions(work, *account, work.now)],
            "sign_ins": folded(last_sign_ins(work, *account, work.now)),
            "factors": factors_of(work, *account),
            "passkeys": passkeys_of(work, *account),
            "asked_above": asked_above(work, visit.wallet.id),
        }

    return await visit.show_found(
        *("security.html", unit, SETTINGS_TAB),
        done=visit.done(DONE),
        own=digest_of(visit, hash_secret(visit.session)),
        takes_passkeys=takes_passkeys(visit.request),
        lifetime=OF_OWNERS.lifetime,
        ways={**WAYS, **{way: said for one in STEPS for way, said in one.ways.items()}},
        all_codes=RECOVERY_CODES,
    )


async def end(visit: OwnerVisit, form: Form) -> Response:
    """Signs another browser out, or all others."""
    digest = None if form["choice"] == "others" else form.get("session", "")
    ended = await visit.write(lambda work: end_sessions(work, visit, digest))
    return redirect(f"{SECURITY}?done={'ended' if ended else 'over'}")
