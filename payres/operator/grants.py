"""The operator's rules of grants: deciding for the owner, revoking, and what each grant has spent and has left."""

from typing import cast

import msgspec

from payres.amounts import Asset, parse_value
from payres.errors import WrongState, require
from payres.grants import consent, tokens
from payres.grants.access import granted_access
from payres.grants.consent import Pending
from payres.grants.gnap import OutgoingPaymentAccess
from payres.grants.limits import current_window, spent_in_window
from payres.store import audit, grants
from payres.store.grants import GRANTS, GrantRecord, InteractionRecord, State
from payres.store.wallets import WALLETS
from payres.store.work import Work
from payres.wire import Amount


class Spending(msgspec.Struct, frozen=True):
    """What a grant has spent in the current window, and what its limits leave; None without a limit.

    All are in minor units: the debits of `debit_asset`, the others of `receive_asset`, which is None when it is not
    known.
    """

    debit: int
    debit_left: int | None
    debit_asset: Asset
    receive: int
    receive_left: int | None
    receive_asset: Asset | None


def require_grant(work: Work, grant_id: str) -> GrantRecord:
    """Raises NotFound."""
    return require(GRANTS.get(work, grant_id), f"There is no grant {grant_id}; `payres grant list` shows all")


def decide(work: Work, grant_id: str, *, approve: bool) -> str | None:
    """Approves or denies a grant for the owner. Returns where the client's finish URI leads, None without one.

    Raises NotFound, WrongState when it was decided before, InvalidInteraction when it has expired.
    """
    record, interaction = require_grant(work, grant_id), grants.interaction_of_grant(work, grant_id)
    if interaction is None:
        raise WrongState(f"The grant {record.id} needs no consent; there is nothing to decide")
    redirect = consent.decide(work, Pending(record, interaction), approve)
    audit.record(work, "grant.approve" if approve else "grant.deny", record.id)
    return redirect


def revoke(work: Work, grant_id: str) -> GrantRecord:
    """Ends a grant and its tokens. Does nothing if it was denied or revoked before. Raises NotFound."""
    before = require_grant(work, grant_id)
    after = tokens.revoke_grant(work, grant_id)
    if after.state != before.state:
        audit.record(work, "grant.revoke", grant_id)
    return after


def state_of(record: GrantRecord, interaction: InteractionRecord | None, now: int) -> State:
    """The stored state, or `expired` or `lapsed` when the time for the next step is over."""
    if interaction is None:
        return cast("State", record.state)
    if record.state == "pending" and now >= interaction.expires_at:
        return "expired"
    return "lapsed" if consent.has_lapsed(record, interaction, now) else cast("State", record.state)


def spending_of(work: Work, record: GrantRecord) -> Spending | None:
    """What a grant has spent in the current window; None when it does not permit payments or has no current window."""
    items = [item for item in granted_access(record.access) if isinstance(item, OutgoingPaymentAccess)]
    item = next((item for item in items if "create" in item.actions), None)
    if item is None or record.wallet_address_id is None:
        return None
    limits = item.limits or None
    window = current_window(limits, work.now)
    if window is None:
        return None
    most_debit = (limits.debit_amount or None) if limits else None
    most_receive = (limits.receive_amount or None) if limits else None
    spent = spent_in_window(work, record.id, window, most_receive.asset if most_receive else None)
    debit, receive = (spent.debit, spent.receive) if spent else (0, 0)
    named = spent.receive_asset if spent else None
    return Spending(
        debit=debit,
        debit_left=_left(most_debit, debit),
        debit_asset=WALLETS.by_id(work, record.wallet_address_id).asset,
        receive=receive,
        receive_left=_left(most_receive, receive),
        receive_asset=most_receive.asset if most_receive else named,
    )


def _left(most: Amount | None, spent: int) -> int | None:
    return None if most is None else max(parse_value(most.value) - spent, 0)
