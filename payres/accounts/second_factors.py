"""All second steps: what an account has of them, for how long one that was given counts, and how all are removed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from payres.accounts.passkeys import PASSKEYS
from payres.accounts.recovery_codes import RECOVERY, make_recovery_codes
from payres.accounts.second_step import Held, Refused, SecondStep, TypedStep, record
from payres.accounts.store import second_factors as store
from payres.accounts.store.kinds import Account, Kind, delete_of
from payres.accounts.store.passkeys import passkeys_of
from payres.accounts.totp import CODES
from payres.core.protocol.clock import MINUTE, is_due, lasts
from payres.core.protocol.errors import WrongState
from payres.core.store.work import Work

FRESH: Final = 5 * MINUTE  # for which a second factor counts
TYPED: Final = CODES.field  # what is typed beside a password too, where there is one field for all
# In the order in which a page shows them, and those that are typed in one field are tried.
STEPS: Final[list[SecondStep]] = [PASSKEYS, CODES, RECOVERY]


def alone() -> Sequence[SecondStep]:
    """Those that also sign in without the password."""
    return [one for one in STEPS if one.alone]


class Factors(NamedTuple):
    """The second steps that an account has, by their names; `due_at` is when an operator removes all of them."""

    held: Mapping[str, Held]
    due_at: int | None

    @property
    def asked(self) -> Sequence[SecondStep]:
        """Those that the account is asked for."""
        return [one for one in STEPS if one.name in self.held and not one.stands_in]

    @property
    def main(self) -> SecondStep:
        """The one that a page is about when it asks."""
        return next(one for one in self.offered if one.heading)

    @property
    def offered(self) -> Sequence[SecondStep]:
        """Those that a page offers when it asks: whether there is still one that stands in, it does not say."""
        return [one for one in STEPS if one.name in self.held or one.stands_in]


def factors_of(work: Work, kind: Kind, account_id: int) -> Factors:
    found = {one.name: one.held(work, kind, account_id) for one in STEPS}
    held = {name: one for name, one in found.items() if one is not None}
    return Factors(held, store.removal_due_at(work, kind, account_id, work.now))


def has_factor(work: Work, kind: Kind, account_id: int) -> bool:
    """Whether the account is asked for a second step."""
    return any(one.held(work, kind, account_id) for one in STEPS if not one.stands_in)


def is_fresh(verified_at: int | None, now: int) -> bool:
    """Whether a second factor that was given then still counts."""
    return verified_at is not None and lasts(verified_at + FRESH, now, FRESH)


def verify(work: Work, kind: Kind, account_id: int, typed: str) -> SecondStep | Refused:
    """The second step that this code is of, as it is typed where there is one field for all; or why it is not taken. A
    wrong one is counted, so the unit must not raise after it."""
    refusals = list[Refused]()
    for one in STEPS:
        if isinstance(one, TypedStep) and one.field == TYPED:
            refused = one.verify(work, kind, account_id, typed)
            if refused is None:
                return one
            refusals.append(refused)
    return refusals[0]


def remove_step(work: Work, kind: Kind, account: Account, step: SecondStep, named: str = "") -> None:
    """Removes a second step, or the `named` one of several; what stands in for one goes with the last. Raises
    NotFound."""
    said = step.remove(work, kind, account, named)
    if not has_factor(work, kind, account.id):
        delete_factors(work, kind, account.id)
    record(work, kind, account, step.off, **said, left=_left(work, kind, account.id))


def new_recovery_codes(work: Work, kind: Kind, account: Account) -> Sequence[str]:
    """New recovery codes, which end all earlier ones. Raises WrongState without a second factor."""
    if not has_factor(work, kind, account.id):
        raise WrongState("Recovery codes stand in for a second step, and there is none: turn on codes first")
    return make_recovery_codes(work, kind, account)


def ask_removal(work: Work, kind: Kind, account: Account, why: str | None = None) -> None:
    """Lets the account's second factors be removed in a day, or at the time asked for before.

    Raises WrongState if there is none.
    """
    if not has_factor(work, kind, account.id):
        raise WrongState(f"{account.name} has no second factor to remove")
    due_at = store.removal_due_at(work, kind, account.id, work.now)
    if due_at is None:
        due_at = work.now + store.REMOVAL_DELAY
        store.REMOVALS.create(work, **{kind.column: account.id}, asked_at=work.now, due_at=due_at, why=why)
        record(work, kind, account, "remove_factors", due_at=due_at, why=why, left=_left(work, kind, account.id))


def cancel_removal(work: Work, kind: Kind, account: Account, **how: str) -> None:
    """Keeps the second factors; `how`, if not in a session. Raises WrongState if nobody wants to remove them."""
    if store.removal_due_at(work, kind, account.id, work.now) is None:
        raise WrongState(f"Nobody wants to remove the second factors of {account.name}")
    delete_of(work, kind, account.id, "factor_removal")
    record(work, kind, account, "keep_factors", left=_left(work, kind, account.id), **how)


def remove_if_due(work: Work, kind: Kind, account: Account) -> None:
    """Removes the second factors, if an operator wanted that a day ago. If the clock was ahead then, the day begins
    now: the owner has had none to say no."""
    due_at = store.removal_due_at(work, kind, account.id, work.now)
    if due_at is not None and is_due(due_at, work.now, store.REMOVAL_DELAY):
        remove_factors(work, kind, account)
    elif due_at is not None:
        store.limit_removal(work, kind, account.id, due_at)


def remove_factors(work: Work, kind: Kind, account: Account) -> None:
    """Removes all second factors at once."""
    if has_factor(work, kind, account.id):
        why = store.removal_reason(work, kind, account.id)
        record(work, kind, account, "factors_removed", why=why, left=_left(work, kind, account.id))
    delete_factors(work, kind, account.id)


def _left(work: Work, kind: Kind, account_id: int) -> dict[str, Any]:
    """What notices say of the second factors that an account has."""
    held = factors_of(work, kind, account_id).held
    return {"codes": CODES.name in held, "passkeys": [one.name for one in passkeys_of(work, kind, account_id)]}


def delete_factors(work: Work, kind: Kind, account_id: int) -> None:
    """Deletes all second factors, as of an account that ends, and what waits for one."""
    delete_of(work, kind, account_id, *(table for one in STEPS for table in one.kept), "half_sign_in", "factor_removal")
