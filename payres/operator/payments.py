"""Searches for payments: filters from what the operator typed."""

import msgspec

from payres.errors import InvalidRequest, NotFound
from payres.operator.movements import require_amount
from payres.operator.times import require_time
from payres.operator.wallets import require_wallet
from payres.store import assets
from payres.store.assets import AssetRecord
from payres.store.payments import Direction, PaymentFilter, PaymentRecord, State, find_payment
from payres.store.work import Work


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed; None is any. `counterpart` is a wallet here by path or address, or a URL on another server."""

    wallet: str | None = None
    direction: Direction | None = None
    state: State | None = None
    created_from: str | None = None
    created_until: str | None = None
    counterpart: str | None = None
    least: str | None = None
    most: str | None = None
    reason: str | None = None


def payment_filter(work: Work, wanted: Wanted) -> PaymentFilter:
    """Raises NotFound for a wallet, InvalidRequest, InvalidAmount."""
    wallet = None if wanted.wallet is None else require_wallet(work, wanted.wallet)
    asset = None if wallet is None else assets.asset_by_id(work, wallet.asset_id)
    return PaymentFilter(
        wallet_id=None if wallet is None else wallet.id,
        direction=wanted.direction,
        state=wanted.state,
        created_from=None if wanted.created_from is None else require_time(wanted.created_from, "from"),
        created_until=None if wanted.created_until is None else require_time(wanted.created_until, "to"),
        counterpart=None if wanted.counterpart is None else _counterpart(work, wanted.counterpart),
        least=_amount(wanted.least, asset, "min"),
        most=_amount(wanted.most, asset, "max"),
        failure=wanted.reason,
    )


def require_payment(work: Work, payment_id: str) -> PaymentRecord:
    """Raises NotFound."""
    found = find_payment(work, payment_id)
    if found is None:
        raise NotFound(f"There is no payment {payment_id}; `payres payment list` shows all")
    return found


def _amount(text: str | None, asset: AssetRecord | None, field: str) -> int | None:
    if text is None:
        return None
    if asset is None:
        raise InvalidRequest(f"{field} is an amount in a wallet's currency: name the wallet", field=field)
    return require_amount(text, asset, least=0)


def _counterpart(work: Work, text: str) -> int | str:
    path = work.urls.wallet_path(text) if "://" in text else text
    return text if path is None else require_wallet(work, path).id
