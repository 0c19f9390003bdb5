"""Limits as a client asks for them: what could never be kept is refused when the grant is requested, not later."""

from payres.amounts import Asset, parse_value
from payres.clock import format_time
from payres.errors import InvalidRequest
from payres.grants.intervals import parse_interval
from payres.store import incoming, wallets
from payres.store.database import Transaction
from payres.urls import Urls
from payres.wire import Amount, Limits

FIELD = "access_token.access.limits"


def check_requested_limits(tx: Transaction, urls: Urls, limits: Limits, asset: Asset, now: int) -> None:
    """Refuses with 400 what the limits of a wallet in `asset` cannot say, or will never permit, naming the member."""
    if limits.debit_amount and limits.receive_amount:
        raise InvalidRequest("Limit debitAmount or receiveAmount, not both", field=FIELD)
    receiver_asset = _receiver_asset(tx, urls, limits.receiver) if limits.receiver else None
    if limits.debit_amount:
        _check_amount(limits.debit_amount, asset, "debitAmount")
    if limits.receive_amount:
        _check_amount(limits.receive_amount, receiver_asset, "receiveAmount")
    if limits.interval:
        _check_interval(limits.interval, now)


def _check_interval(text: str, now: int) -> None:
    try:
        end = parse_interval(text).last_end()
    except ValueError as error:
        raise InvalidRequest(f"limits.interval: {error}", field=f"{FIELD}.interval") from error
    if end is not None and end <= now:
        raise InvalidRequest(
            f"limits.interval is past: its last window ended at {format_time(end)}", field=f"{FIELD}.interval"
        )


def _check_amount(amount: Amount, asset: Asset | None, member: str) -> None:
    try:
        value = parse_value(amount.value)
    except ValueError as error:
        raise InvalidRequest(f"limits.{member}.value: {error}", field=f"{FIELD}.{member}.value") from error
    if value == 0:
        raise InvalidRequest(f"limits.{member} of 0 permits nothing", field=f"{FIELD}.{member}.value")
    if asset and (amount.asset_code, amount.asset_scale) != (asset.code, asset.scale):
        raise InvalidRequest(
            f"limits.{member} must be in {asset.code} with assetScale {asset.scale}", field=f"{FIELD}.{member}"
        )


def _receiver_asset(tx: Transaction, urls: Urls, receiver: str) -> Asset | None:
    """The asset of the receiver that the limits name; None when it is on another server."""
    if urls.plain_receiver(receiver) is None:
        raise InvalidRequest("limits.receiver must be the URL of an incoming payment", field=f"{FIELD}.receiver")
    if not urls.is_ours(receiver):
        return None
    payment_id = urls.resource_id("incoming-payments", receiver)
    payment = incoming.find_incoming(tx, payment_id) if payment_id else None
    if payment is None:
        raise InvalidRequest("limits.receiver is no incoming payment of this server", field=f"{FIELD}.receiver")
    wallet = wallets.wallet_by_id(tx, payment.wallet_address_id)
    return Asset(wallet.asset_code, wallet.asset_scale)
