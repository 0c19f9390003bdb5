"""Conversion between decimal amounts and Amount."""

from decimal import Decimal

from payres.core.protocol.amounts import Asset, format_decimal, parse_decimal
from payres.core.protocol.wire import Amount, WalletAddress


def money(text: str | int | Decimal, wallet: WalletAddress | Asset) -> Amount:
    """An Amount in the wallet's asset: `money("5.00", wallet)`. Raises ValueError, and TypeError for floats."""
    if isinstance(text, bool) or not isinstance(text, str | int | Decimal):
        raise TypeError(f'write the amount as text, such as "5.00": a {type(text).__name__} is not exact')
    asset = wallet if isinstance(wallet, Asset) else Asset(wallet.asset_code, wallet.asset_scale)
    written = f"{text:f}" if isinstance(text, Decimal) else str(text)
    return Amount(value=str(parse_decimal(written, asset)), asset_code=asset.code, asset_scale=asset.scale)


def decimal(amount: Amount) -> Decimal:
    """An amount in major units: `Decimal("5.00")`. In minor units it is `int(amount.value)`."""
    return Decimal(format_decimal(int(amount.value), amount.asset))
