"""Limits as a client asks for them: what could never be kept is refused when the grant is requested, not later."""

from payres.amounts import Asset, parse_value
from payres.errors import invalid_request
from payres.grants.intervals import parse_interval
from payres.store import incoming, wallets
from payres.store.database import Transaction
from payres.urls import Urls, is_http_url
from payres.wire import Amount, Limits

FIELD = "access_token.access.limits"


def check_requested_limits(tx: Transaction, urls: Urls, limits: Limits, asset: Asset) -> None:
    """Refuses with 400 what the limits of a wallet in `asset` cannot say, naming the member."""
    if limits.debit_amount and limits.receive_amount:
        raise invalid_request("Limit debitAmount or receiveAmount, not both", field=FIELD)
    if limits.receiver and not (is_http_url(limits.receiver) and "/incoming-payments/" in limits.receiver):
        raise invalid_request("limits.receiver must be the URL of an incoming payment", field=f"{FIELD}.receiver")
    if limits.debit_amount:
        _check_amount(limits.debit_amount, asset, "debitAmount")
    if limits.receive_amount:
        _check_amount(limits.receive_amount, _receiver_asset(tx, urls, limits.receiver or None), "receiveAmount")
    if limits.interval:
        try:
            parse_interval(limits.interval)
        except ValueError as error:
            raise invalid_request(f"limits.interval: {error}", field=f"{FIELD}.interval") from error


def _check_amount(amount: Amount, asset: Asset | None, member: str) -> None:
    try:
        parse_value(amount.value)
    except ValueError as error:
        raise invalid_request(f"limits.{member}.value: {error}", field=f"{FIELD}.{member}.value") from error
    if asset and (amount.asset_code, amount.asset_scale) != (asset.code, asset.scale):
        raise invalid_request(
            f"limits.{member} must be in {asset.code} with assetScale {asset.scale}", field=f"{FIELD}.{member}"
        )


def _receiver_asset(tx: Transaction, urls: Urls, receiver: str | None) -> Asset | None:
    """The asset of the receiver that the limits name, when it is known here."""
    payment_id = urls.resource_id("incoming-payments", receiver) if receiver else None
    payment = incoming.find_incoming(tx, payment_id) if payment_id else None
    if payment is None:
        return None
    wallet = wallets.wallet_by_id(tx, payment.wallet_address_id)
    return Asset(wallet.asset_code, wallet.asset_scale)
