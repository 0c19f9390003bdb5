"""What support may send back: so much of one payment, and four times that in a day."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from payres.core.payments.quotes import rate_between
from payres.core.protocol.amounts import Asset, describe_amount, format_decimal
from payres.core.protocol.errors import InsufficientAccess, NoRate
from payres.core.store.accounts import ASSETS
from payres.core.store.work import Work
from payres.operator.store.audit import entries_of_day
from payres.operator.store.operators import OPERATORS, who_may_all

ACTION: Final = "payment.refund"
A_DAY: Final = 4


class Allowance(NamedTuple):
    """In units of the currency of the asset: the most of a payment, and what is left of the day."""

    asset: Asset
    of_payment: Fraction
    today: Fraction | float


def allowance(work: Work) -> Allowance | None:
    """That of the operator who acts in the pages; None if there is no limit. Raises InsufficientAccess."""
    kind, _, name = work.actor.partition(":")
    operator = OPERATORS.find(work, name=name) if kind == "page" else None
    if operator is None or operator.role != "support":
        return None
    if operator.refund_asset_id is None or operator.refund_limit is None:
        raise InsufficientAccess(f"You may send nothing back: ask {who_may_all(work)}", reason="action")
    asset = ASSETS.by_id(work, operator.refund_asset_id).asset
    most = Fraction(operator.refund_limit, 10**asset.scale)
    sent = [str(one.details["amount"]).split() for one in entries_of_day(work, work.actor, ACTION)]
    worth = sum(_worth(work, Fraction(amount), code, asset) for amount, code in sent)
    return Allowance(asset, most, max(A_DAY * most - worth, 0))


def check_limit(work: Work, sent_back: int, amount: int, asset: Asset) -> None:
    """Raises InsufficientAccess if who acts may not send back this too, of a payment of which some was sent back."""
    found = allowance(work)
    if found is None:
        return
    unit = _worth(work, Fraction(1, 10**asset.scale), asset.code, found.asset)
    of_payment, today = math.floor(found.of_payment / unit) - sent_back, math.floor(found.today / unit)
    most = min(of_payment, today)
    if amount > most:
        sentence = f"{describe_amount(amount, asset)} is more than you may send back"
        advice = f"Ask {who_may_all(work)}, or send back less"
        already, more = (describe_amount(one, asset) for one in (sent_back, max(most, 0)))
        of = "today" if today < of_payment else "of it"
        left = f"Of this payment {already} went back already, and you may send back {more} more {of}"
        raise InsufficientAccess(f"{sentence}. {advice}. {left}", reason="action", field="amount")


def said_at_field(work: Work) -> Mapping[str, str]:
    """What the field of the amount says to whoever has a limit."""
    found = allowance(work)
    if found is None:
        return {}
    most, today = (format_decimal(int(one * 10**found.asset.scale), found.asset) for one in found[1:])
    return {"amount": f"You may send back up to {found.asset.code} {most} of a payment, and today {today} more in all."}


def _worth(work: Work, units: Fraction, code: str, asset: Asset) -> Fraction | float:
    """An amount in the currency of the asset; without a rate it is above every limit."""
    try:
        return units * rate_between(work, code, asset.code)
    except NoRate:
        return math.inf
