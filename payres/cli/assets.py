"""`payres asset`, `liquidity`, `rate` and `fee`: currencies, exchange between them, and fees."""

from collections.abc import Callable
from typing import Any

import click

from payres.admin import assets as endpoints
from payres.admin import representations
from payres.admin.requests import NewRate
from payres.admin.wire import Asset, Rate
from payres.cli.groups import Group
from payres.cli.options import reference_option
from payres.cli.session import Session, with_session
from payres.operator import assets
from payres.store.work import Work


def asset_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """CODE and SCALE, which name an asset."""
    return click.argument("code")(click.argument("scale", type=click.IntRange(0, assets.MAX_SCALE))(command))


@click.group(cls=Group)
def asset() -> None:
    pass


@asset.command("list", example="payres asset list")
@with_session
def list_assets(session: Session) -> None:
    """List the assets that accounts are kept in.

    Liquidity pays receivers in the asset when the sender pays in another; fees is what was collected for sending.
    """
    found = session.read(endpoints.list_all).result
    session.show_list("assets", found, _line, "There are no assets yet; the first wallet makes one")


@click.group(cls=Group)
def liquidity() -> None:
    """A receiver whose currency is not the sender's is paid from the operator's liquidity in the receiver's currency;
    the sender's money goes into the liquidity in theirs.
    """


@liquidity.command("deposit", example="payres liquidity deposit EUR 2 1000.00")
@asset_arguments
@click.argument("amount")
@reference_option()
@with_session
def deposit_liquidity(session: Session, code: str, scale: int, amount: str, reference: str | None) -> None:
    """Put money into the liquidity of an asset.

    CODE and SCALE name the asset (USD 2 counts cents), AMOUNT is a decimal in its units.
    """

    def unit(work: Work) -> None:
        session.warn(assets.other_scale_warning(work, code, scale))
        assets.deposit_liquidity(work, code, scale, amount, reference)

    _change(session, code, scale, unit)


@liquidity.command("withdraw", example="payres liquidity withdraw EUR 2 250.00")
@asset_arguments
@click.argument("amount")
@reference_option()
@with_session
def withdraw_liquidity(session: Session, code: str, scale: int, amount: str, reference: str | None) -> None:
    """Take money out of the liquidity of an asset.

    What is held for payments in progress stays.
    """
    _change(session, code, scale, lambda work: assets.withdraw_liquidity(work, code, scale, amount, reference))


@click.group(cls=Group)
def rate() -> None:
    pass


@rate.command("set", example="payres rate set USD EUR 0.92")
@click.argument("base")
@click.argument("counter")
@click.argument("rate")
@with_session
def set_rate(session: Session, base: str, counter: str, rate: str) -> None:
    """Set how many units of COUNTER one unit of BASE buys. The way back is the inverse, unless you set it too."""
    shown = session.write(lambda work: endpoints.set_rate(work, base, counter, NewRate(rate=rate)))
    session.show(shown, f"1 {base} buys {rate} {counter}")


@rate.command("remove", example="payres rate remove USD EUR")
@click.argument("base")
@click.argument("counter")
@with_session
def remove_rate(session: Session, base: str, counter: str) -> None:
    """Remove a rate. The rates service, if there is one, sets the next rate."""
    removed = session.write(lambda work: endpoints.remove_rate(work, base, counter))
    session.show(removed, f"The rate from {base} to {counter} is removed")


@rate.command("list", example="payres rate list")
@with_session
def list_rates(session: Session) -> None:
    """List exchange rates with their source and end."""
    found = session.read(endpoints.list_rates).result
    session.show_list("rates", found, _rate_line, "No rates are set; see `payres rate set`")


@click.group(cls=Group)
def fee() -> None:
    pass


@fee.command("set", example="payres fee set USD 2 --fixed 0.10 --basis-points 50")
@asset_arguments
@click.option("--fixed", default="0", metavar="AMOUNT", show_default=True, help="For each payment, in units.")
@click.option("--basis-points", default=0, type=int, metavar="N", show_default=True, help="50 is 0.5 % of the amount.")
@with_session
def set_fee(session: Session, code: str, scale: int, fixed: str, basis_points: int) -> None:
    """Set what sending from wallets of an asset costs.

    The share of the amount is rounded up. New quotes use the new fee.
    """

    def unit(work: Work) -> None:
        session.warn(assets.other_scale_warning(work, code, scale))
        assets.set_fee(work, code, scale, fixed, basis_points)

    _change(session, code, scale, unit)


@fee.command("withdraw", example="payres fee withdraw USD 2 12.50")
@asset_arguments
@click.argument("amount")
@reference_option()
@with_session
def withdraw_fees(session: Session, code: str, scale: int, amount: str, reference: str | None) -> None:
    """Take collected fees out."""
    _change(session, code, scale, lambda work: assets.withdraw_fees(work, code, scale, amount, reference))


def _change(session: Session, code: str, scale: int, unit: Callable[[Work], object]) -> None:
    """Runs the unit and prints the asset as it is then."""

    def changed(work: Work) -> Asset:
        unit(work)
        return representations.asset(work, assets.require_asset(work, code, scale))

    shown = session.write(changed)
    session.show(shown, _line(shown))


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
