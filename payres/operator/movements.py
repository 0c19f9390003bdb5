"""Money that enters and leaves: movements between the external account, the world outside, and an account here.

Everything that the operator types as an amount is read here, so that each command says the same of it.
"""

from payres import ledger
from payres.amounts import MAX_LEDGER, format_decimal, parse_decimal
from payres.errors import InsufficientFunds, InvalidAmount
from payres.store.assets import AssetRecord
from payres.store.work import Work


def pay_in(work: Work, account_id: int, asset: AssetRecord, text: str) -> int:
    """Moves an amount such as "100.00" from outside to the account; returns it in the minor unit.

    Raises InvalidAmount.
    """
    amount = require_amount(text, asset)
    external = ledger.operator_account(work, asset.id, "external")
    ledger.transfer(work, external, account_id, amount, "deposit")
    return amount


def pay_out(work: Work, account_id: int, asset: AssetRecord, text: str, holder: str, reason: str) -> int:
    """Moves an amount such as "100.00" from the account to outside; returns it in the minor unit.

    `holder` names the account in the sentence, `reason` is the stable word for it. Raises InvalidAmount,
    InsufficientFunds.
    """
    amount = require_amount(text, asset)
    external = ledger.operator_account(work, asset.id, "external")
    try:
        ledger.transfer(work, account_id, external, amount, "withdrawal")
    except ledger.NotEnough as lack:
        free = format_decimal(lack.free, asset.asset)
        raise InsufficientFunds(
            f"{holder} has {free} {asset.code} free, less than {format_decimal(amount, asset.asset)} {asset.code}",
            reason=reason,
            free=free,
        ) from lack
    return amount


def require_amount(text: str, asset: AssetRecord, least: int = 1) -> int:
    """A decimal text in the asset's minor unit. Raises InvalidAmount when it is none, below `least` or never fits."""
    try:
        amount = parse_decimal(text, asset.asset)
    except ValueError as error:
        raise InvalidAmount(f"{text!r} is not an amount of {asset.code}: {error}") from error
    if not least <= amount <= MAX_LEDGER:
        low, high = (f"{format_decimal(bound, asset.asset)} {asset.code}" for bound in (least, MAX_LEDGER))
        raise InvalidAmount(f"{text} {asset.code} cannot be used: an amount lies from {low} to {high}")
    return amount
