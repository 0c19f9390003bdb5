"""The operator's own money in each asset: liquidity, which pays receivers in other assets, and collected fees."""

from payres import ledger
from payres.operator import movements
from payres.operator.assets import open_asset, require_asset
from payres.store.assets import AssetRecord
from payres.store.work import Transaction


def deposit_liquidity(tx: Transaction, code: str, scale: int, text: str, now: int) -> AssetRecord:
    """Moves "100.00", say, from outside into the asset's liquidity. Raises InvalidRequest, InvalidAmount."""
    asset = open_asset(tx, code, scale)
    movements.pay_in(tx, ledger.operator_account(tx, asset.id, "liquidity"), asset, text, now)
    return asset


def withdraw_liquidity(tx: Transaction, code: str, scale: int, text: str, now: int) -> AssetRecord:
    """Takes liquidity out again. Raises NotFound, InvalidAmount, InsufficientFunds."""
    asset = require_asset(tx, code, scale)
    account_id = ledger.operator_account(tx, asset.id, "liquidity")
    movements.pay_out(tx, account_id, asset, text, now, f"The liquidity in {code} with scale {scale}", "liquidity")
    return asset


def withdraw_fees(tx: Transaction, code: str, scale: int, text: str, now: int) -> AssetRecord:
    """Takes collected fees out. Raises NotFound, InvalidAmount, InsufficientFunds."""
    asset = require_asset(tx, code, scale)
    account_id = ledger.operator_account(tx, asset.id, "fees")
    movements.pay_out(tx, account_id, asset, text, now, f"The fees account in {code} with scale {scale}", "fees")
    return asset
