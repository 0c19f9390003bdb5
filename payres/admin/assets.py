"""Assets: their fees and exchange rates, and the operator's own money in them."""

from functools import partial

from payres.admin import representations
from payres.admin.requests import NewFee, NewMovement, NewRate
from payres.admin.wire import Asset, List, Movement, Rate, RemovedRate
from payres.errors import require
from payres.operator import assets
from payres.representations import page_of
from payres.store import assets as store
from payres.store.accounts import find_operator_account
from payres.store.movements import page_of_movements
from payres.store.pages import PageQuery
from payres.store.work import Work
from payres.wire import Page


def list_all(work: Work) -> List[Asset]:
    """List assets with their fees, their liquidity and the fees collected."""
    return List(result=[representations.asset(work, record) for record in store.list_assets(work)])


def set_fee(work: Work, code: str, scale: int, body: NewFee) -> Asset:
    """Set what sending from wallets of an asset costs."""
    return representations.asset(work, assets.set_fee(work, code, scale, body.fixed, body.basis_points))


def list_rates(work: Work) -> List[Rate]:
    """List exchange rates with their source and end."""
    return List(result=[representations.rate(work, record) for record in store.list_rates(work)])


def set_rate(work: Work, base: str, counter: str, body: NewRate) -> Rate:
    """Set how many units of the second currency one unit of the first buys."""
    return representations.rate(work, assets.set_rate(work, base, counter, body.rate))


def remove_rate(work: Work, base: str, counter: str) -> RemovedRate:
    """Remove a rate. Where there is a rates service, its next rate takes the place."""
    assets.remove_rate(work, base, counter)
    return RemovedRate(base=base, counter=counter)


def list_liquidity(work: Work, code: str, scale: int, page: PageQuery) -> Page[Movement]:
    """List deposits into the liquidity of an asset, and withdrawals."""
    asset = assets.require_asset(work, code, scale)
    account = require(
        find_operator_account(work, asset.id, "liquidity"),
        f"The liquidity in {code} with scale {scale} was not used yet",
    )
    return page_of(page_of_movements(work, account.id, page), partial(representations.movement, work))


def deposit_liquidity(work: Work, code: str, scale: int, body: NewMovement) -> Movement:
    """Put money into the liquidity of an asset."""
    return representations.movement(work, assets.deposit_liquidity(work, code, scale, body.amount, body.reference))


def withdraw_liquidity(work: Work, code: str, scale: int, body: NewMovement) -> Movement:
    """Take money out of the liquidity of an asset."""
    return representations.movement(work, assets.withdraw_liquidity(work, code, scale, body.amount, body.reference))


def withdraw_fees(work: Work, code: str, scale: int, body: NewMovement) -> Movement:
    """Take collected fees out."""
    return representations.movement(work, assets.withdraw_fees(work, code, scale, body.amount, body.reference))
