"""`payres asset`: the currencies in use."""

import click

from payres import ledger
from payres.amounts import format_decimal
from payres.cli.session import Resource, Session, with_session
from payres.store import accounts, assets
from payres.store.assets import AssetRecord
from payres.store.work import Work


@click.group()
def asset() -> None:
    """Show the currencies in use, with their fees and liquidity."""


@asset.command("list")
@with_session
def list_all(session: Session) -> None:
    """List the assets that accounts are kept in.

    Liquidity is what receivers in the asset can be paid from when the sender pays in another; fees is what was
    collected for sending.

    \b
    Example: payres asset list
    """
    found = session.read(lambda work: [describe(work, record) for record in assets.list_assets(work)])
    session.show(
        {"assets": found}, "\n".join(map(summary, found)) or "There are no assets yet; the first wallet makes one"
    )


def describe(work: Work, record: AssetRecord) -> Resource:
    """An asset as it is printed; the amounts are decimals."""
    unit = record.asset
    return {
        "assetCode": record.code,
        "assetScale": record.scale,
        "fee": {"fixed": format_decimal(record.fee_fixed, unit), "basisPoints": record.fee_basis_points},
        "liquidity": format_decimal(_free(work, record, "liquidity"), unit),
        "fees": format_decimal(_free(work, record, "fees"), unit),
    }


def summary(resource: Resource) -> str:
    """One line on an asset."""
    fee = resource["fee"]
    assert isinstance(fee, dict)
    return (
        f"{resource['assetCode']} with scale {resource['assetScale']}:"
        f" sending costs {fee['fixed']} + {fee['basisPoints']} basis points,"
        f" liquidity {resource['liquidity']}, fees collected {resource['fees']}"
    )


def _free(work: Work, record: AssetRecord, kind: str) -> int:
    account = accounts.find_operator_account(work, record.id, kind)
    return 0 if account is None else ledger.free_balance(account)
