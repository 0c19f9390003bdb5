"""`payres asset`, `liquidity`, `rate` and `fee`: currencies, exchange between them, and fees."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from payres.admin import assets as endpoints
from payres.admin import representations
from payres.admin.requests import NewRate
from payres.admin.wire import Asset, Rate, RemovedRate
from payres.cli.commands import Group
from payres.cli.options import WholeNumber, movement_options
from payres.cli.session import lists, warn, writes
from payres.operator import assets
from payres.store.work import Work


def asset_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """CODE and SCALE, which name an asset."""
    return click.argument("code")(click.argument("scale", type=WholeNumber(0, assets.MAX_SCALE))(command))


def _line(asset: Asset) -> str:
    return (
        f"{asset.asset_code} with scale {asset.asset_scale}:"
        f" sending costs {asset.fee.fixed} + {asset.fee.basis_points} basis points,"
        f" liquidity {asset.liquidity}, fees collected {asset.fees}"
    )


def _rate_line(rate: Rate) -> str:
    line = f"1 {rate.base} buys {rate.rate} {rate.counter}"
    if rate.source == "operator":
        return f"{line}, set {rate.set_at}"
    until = "not used, held until" if rate.expired else "holds until"
    return f"{line}, from the rates service {rate.set_at}, {until} {rate.expires_at}"


def _shown(work: Work, code: str, scale: int) -> Asset:
    return representations.asset(work, assets.require_asset(work, code, scale))


@click.group(cls=Group)
def asset() -> None:
    pass


@asset.command("list", example="payres asset list")
@lists("assets", _line, "There are no assets yet; the first wallet makes one")
def list_assets(work: Work) -> Sequence[Asset]:
    """List the assets that accounts are kept in.

    Liquidity pays receivers in the asset when the sender pays in another; fees is what was collected for sending.
    """
    return endpoints.list_all(work).result


@click.group(cls=Group)
def liquidity() -> None:
    """A receiver whose currency is not the sender's is paid from the operator's liquidity in the receiver's currency;
    the sender's money goes into the liquidity in theirs.
    """


@liquidity.command("deposit", example="payres liquidity deposit EUR 2 1000.00")
@asset_arguments
@movement_options
@writes(_line)
def deposit_liquidity(work: Work, code: str, scale: int, amount: str, reference: str | None) -> Asset:
    """Put money into the liquidity of an asset.

    CODE and SCALE name the asset (USD 2 counts cents), AMOUNT is a decimal in its units.
    """
    warn(assets.other_scale_warning(work, code, scale))
    assets.deposit_liquidity(work, code, scale, amount, reference)
    return _shown(work, code, scale)


@liquidity.command("withdraw", example="payres liquidity withdraw EUR 2 250.00")
@asset_arguments
@movement_options
@writes(_line)
def withdraw_liquidity(work: Work, code: str, scale: int, amount: str, reference: str | None) -> Asset:
    """Take money out of the liquidity of an asset.

    What is held for payments in progress stays.
    """
    assets.withdraw_liquidity(work, code, scale, amount, reference)
    return _shown(work, code, scale)


@click.group(cls=Group)
def rate() -> None:
    pass


@rate.command("set", example="payres rate set USD EUR 0.92")
@click.argument("base")
@click.argument("counter")
@click.argument("rate")
@writes(lambda rate: f"1 {rate.base} buys {rate.rate} {rate.counter}")
def set_rate(work: Work, base: str, counter: str, rate: str) -> Rate:
    """Set how many units of COUNTER one unit of BASE buys. The way back is the inverse, unless you set it too."""
    shown = endpoints.set_rate(work, base, counter, NewRate(rate=rate))
    warn(assets.unused_rate_warning(work, base, counter))
    return shown


@rate.command("remove", example="payres rate remove USD EUR")
@click.argument("base")
@click.argument("counter")
@writes(lambda removed: f"The rate from {removed.base} to {removed.counter} is removed")
def remove_rate(work: Work, base: str, counter: str) -> RemovedRate:
    """Remove a rate. The rates service, if there is one, sets the next rate."""
    return endpoints.remove_rate(work, base, counter)


@rate.command("list", example="payres rate list")
@lists("rates", _rate_line, "No rates are set; see `payres rate set`")
def list_rates(work: Work) -> Sequence[Rate]:
    """List exchange rates with their source and end."""
    return endpoints.list_rates(work).result


@click.group(cls=Group)
def fee() -> None:
    pass


@fee.command("set", example="payres fee set USD 2 --fixed 0.10 --basis-points 50")
@asset_arguments
@click.option("--fixed", default="0", metavar="AMOUNT", show_default=True, help="For each payment, in units.")
@click.option("--basis-points", default=0, type=int, metavar="N", show_default=True, help="50 is 0.5 % of the amount.")
@writes(_line)
def set_fee(work: Work, code: str, scale: int, fixed: str, basis_points: int) -> Asset:
    """Set what sending from wallets of an asset costs.

    The share of the amount is rounded up. New quotes use the new fee.
    """
    warn(assets.other_scale_warning(work, code, scale))
    return representations.asset(work, assets.set_fee(work, code, scale, fixed, basis_points))


@fee.command("withdraw", example="payres fee withdraw USD 2 12.50")
@asset_arguments
@movement_options
@writes(_line)
def withdraw_fees(work: Work, code: str, scale: int, amount: str, reference: str | None) -> Asset:
    """Take collected fees out."""
    assets.withdraw_fees(work, code, scale, amount, reference)
    return _shown(work, code, scale)
