"""The operator's own money in each asset: liquidity, which pays receivers in other assets, and collected fees."""

from payres import ledger
from payres.operator import movements
from payres.operator.assets import open_asset, require_asset
from payres.store.assets import AssetRecord
from payres.store.work import Work


def deposit_liquidity(work: Work, code: str, scale: int, text: str) -> AssetRecord:
    """Moves "100.00", say, from outside into the asset's liquidity. Raises InvalidRequest, InvalidAmount."""
    asset = open_asset(work, code, scale)
    movements.pay_in(work, ledger.operator_account(work, asset.id, "liquidity"), asset, text)
    return asset


def withdraw_liquidity(work: Work, code: str, scale: int, text: str) -> AssetRecord:
    """Takes liquidity out again. Raises NotFound, InvalidAmount, InsufficientFunds."""
    asset = require_asset(work, code, scale)
    account_id = ledger.operator_account(work, asset.id, "liquidity")
    movements.pay_out(work, account_id, asset, text, f"The liquidity in {code} with scale {scale}", "liquidity")
    return asset


def withdraw_fees(work: Work, code: str, scale: int, text: str) -> AssetRecord:
    """Takes collected fees out. Raises NotFound, InvalidAmount, InsufficientFunds."""
    asset = require_asset(work, code, scale)
    account_id = ledger.operator_account(work, asset.id, "fees")
    movements.pay_out(work, account_id, asset, text, f"The fees account in {code} with scale {scale}", "fees")
    return asset
