"""Searches for payments: filters from what the operator typed."""

import msgspec
from msgspec import UNSET, UnsetType

from payres.errors import InvalidRequest, require
from payres.operator.inputs import DecimalText, Name, Query, TimeText, require_time
from payres.operator.wallets import require_wallet
from payres.store.assets import ASSETS, AssetRecord
from payres.store.payments import PAYMENTS, Direction, PaymentFilter, PaymentRecord, State
from payres.store.work import Work
from payres.wire import Text, require_amount


class PaymentQuery(Query, frozen=True, kw_only=True):
    """`counterpart` is a wallet here, by path or address, or what a URL elsewhere begins with.

    `reason` is a part of the failure. `min` and `max` are of what was received or sent, and need the wallet, in whose
    asset they are.
    """

    wallet: Name | UnsetType = UNSET
    direction: Direction | UnsetType = UNSET
    state: State | UnsetType = UNSET
    from_: TimeText | UnsetType = msgspec.field(name="from", default=UNSET)
    to: TimeText | UnsetType = UNSET
    counterpart: Text | UnsetType = UNSET
    min: DecimalText | UnsetType = UNSET
    max: DecimalText | UnsetType = UNSET
    reason: Name | UnsetType = UNSET


def payment_filter(work: Work, query: PaymentQuery) -> PaymentFilter:
    """Raises NotFound for a wallet, InvalidRequest, InvalidAmount."""
    wallet = require_wallet(work, query.wallet) if query.wallet else None
    asset = None if wallet is None else ASSETS.by_id(work, wallet.asset_id)
    return PaymentFilter(
        wallet_id=None if wallet is None else wallet.id,
        direction=query.direction or None,
        state=query.state or None,
        created_from=require_time(query.from_, "from") if query.from_ else None,
        created_until=require_time(query.to, "to") if query.to else None,
        counterpart=_counterpart(work, query.counterpart) if query.counterpart else None,
        least=_amount(query.min, asset, "min"),
        most=_amount(query.max, asset, "max"),
        failure=query.reason or None,
    )


def require_payment(work: Work, payment_id: str) -> PaymentRecord:
    """Raises NotFound."""
    return require(PAYMENTS.get(work, payment_id), f"There is no payment {payment_id}; `payres payment list` shows all")


def _amount(text: str | UnsetType, asset: AssetRecord | None, field: str) -> int | None:
    if not text:
        return None
    if asset is None:
        raise InvalidRequest(f"{field} is an amount in a wallet's currency: name the wallet", field=field)
    return require_amount(text, asset.asset, least=0)


def _counterpart(work: Work, text: str) -> int | str:
    path = work.urls.wallet_path(text) if "://" in text else text
    return text if path is None else require_wallet(work, path).id
