"""`payres liquidity`, `payres rate` and `payres fee`: what payments across currencies need, and what sending costs."""

import click

from payres.cli.asset import describe, summary
from payres.cli.session import Resource, Session, with_session
from payres.clock import format_time
from payres.operator import assets
from payres.operator import liquidity as rules
from payres.store import assets as asset_store
from payres.store.assets import RateRecord
from payres.store.work import Work

SCALE = click.IntRange(0, 255)


@click.group()
def liquidity() -> None:
    """Fund exchange between currencies.

    A receiver whose currency is not the sender's is paid from the operator's liquidity in the receiver's currency; the
    sender's money goes into the liquidity in theirs.
    """


@liquidity.command("deposit")
@click.argument("code")
@click.argument("scale", type=SCALE)
@click.argument("amount")
@with_session
def deposit_liquidity(session: Session, code: str, scale: int, amount: str) -> None:
    """Put money into the liquidity of an asset.

    CODE and SCALE name the asset (USD 2 counts cents), AMOUNT is a decimal in its units.

    \b
    Example: payres liquidity deposit EUR 2 1000.00
    """

    def unit(work: Work) -> Resource:
        record = rules.deposit_liquidity(work, code, scale, amount)
        return describe(work, record)

    _show(session, session.write(unit, create=True))


@liquidity.command("withdraw")
@click.argument("code")
@click.argument("scale", type=SCALE)
@click.argument("amount")
@with_session
def withdraw_liquidity(session: Session, code: str, scale: int, amount: str) -> None:
    """Take money out of the liquidity of an asset.

    What is promised to payments under way stays.

    \b
    Example: payres liquidity withdraw EUR 2 250.00
    """

    def unit(work: Work) -> Resource:
        record = rules.withdraw_liquidity(work, code, scale, amount)
        return describe(work, record)

    _show(session, session.write(unit))


@click.group()
def rate() -> None:
    """Set exchange rates."""


@rate.command("set")
@click.argument("base")
@click.argument("counter")
@click.argument("rate")
@with_session
def set_rate(session: Session, base: str, counter: str, rate: str) -> None:
    """Set how many units of COUNTER one unit of BASE buys. The way back is the inverse, unless you set it too.

    \b
    Example: payres rate set USD EUR 0.92
    """

    def unit(work: Work) -> Resource:
        assets.set_rate(work, base, counter, rate)
        return _describe_rate(work, RateRecord(base, counter, rate, work.now))

    session.show(session.write(unit, create=True), f"1 {base} buys {rate} {counter}")


@rate.command("remove")
@click.argument("base")
@click.argument("counter")
@with_session
def remove_rate(session: Session, base: str, counter: str) -> None:
    """Remove a rate. Where there is a rates service, its next rate takes the place.

    \b
    Example: payres rate remove USD EUR
    """
    session.write(lambda work: assets.remove_rate(work, base, counter))
    session.show({"base": base, "counter": counter}, f"The rate from {base} to {counter} is removed")


@rate.command("list")
@with_session
def list_rates(session: Session) -> None:
    """List exchange rates with their source and end.

    \b
    Example: payres rate list
    """
    found = session.read(lambda work: [_describe_rate(work, record) for record in asset_store.list_rates(work)])
    session.show({"rates": found}, "\n".join(map(_rate_line, found)) or "No rates are set; see `payres rate set`")


@click.group()
def fee() -> None:
    """Set what sending costs; take collected fees out."""


@fee.command("set")
@click.argument("code")
@click.argument("scale", type=SCALE)
@click.option("--fixed", default="0", metavar="AMOUNT", show_default=True, help="For each payment, in units.")
@click.option("--basis-points", default=0, type=int, metavar="N", show_default=True, help="50 is 0.5 % of the amount.")
@with_session
def set_fee(session: Session, code: str, scale: int, fixed: str, basis_points: int) -> None:
    """Set what sending from wallets of an asset costs.

    The share of the amount is rounded up. What is set holds for new quotes.

    \b
    Example: payres fee set USD 2 --fixed 0.10 --basis-points 50
    """
    _show(
        session,
        session.write(lambda work: describe(work, assets.set_fee(work, code, scale, fixed, basis_points)), create=True),
    )


@fee.command("withdraw")
@click.argument("code")
@click.argument("scale", type=SCALE)
@click.argument("amount")
@with_session
def withdraw_fees(session: Session, code: str, scale: int, amount: str) -> None:
    """Take collected fees out.

    \b
    Example: payres fee withdraw USD 2 12.50
    """

    def unit(work: Work) -> Resource:
        return describe(work, rules.withdraw_fees(work, code, scale, amount))

    _show(session, session.write(unit))


def _show(session: Session, resource: Resource) -> None:
    session.show(resource, summary(resource))


def _describe_rate(work: Work, record: RateRecord) -> Resource:
    expires_at = record.expires_at
    described: dict[str, object] = {"base": record.base, "counter": record.counter, "rate": record.rate}
    described |= {"setAt": format_time(record.set_at), "source": "operator" if expires_at is None else "service"}
    if expires_at is not None:
        described |= {"expiresAt": format_time(expires_at), "expired": not record.holds_at(work.now)}
    return described


def _rate_line(rate: Resource) -> str:
    line = f"1 {rate['base']} buys {rate['rate']} {rate['counter']}"
    if rate["source"] == "operator":
        return f"{line}, set {rate['setAt']}"
    until = "not used, held until" if rate["expired"] else "holds until"
    return f"{line}, from the rates service {rate['setAt']}, {until} {rate['expiresAt']}"
