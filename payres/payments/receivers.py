"""Receivers: the incoming payment that a quote or outgoing payment is for."""

import msgspec

from payres.amounts import Asset
from payres.errors import InvalidReceiver
from payres.store import incoming, wallets
from payres.store.database import Transaction
from payres.store.incoming import IncomingRecord
from payres.store.wallets import WalletRecord
from payres.urls import Urls


class LocalReceiver(msgspec.Struct, frozen=True):
    """An open incoming payment on this server, by its plain URL, and the wallet address it pays into."""

    url: str
    payment: IncomingRecord
    wallet: WalletRecord

    @property
    def asset(self) -> Asset:
        return Asset(self.wallet.asset_code, self.wallet.asset_scale)


def open_receiver(tx: Transaction, urls: Urls, url: str, now: int, field: str) -> LocalReceiver:
    """The receiver at `url`. Refuses with 400 `invalid_receiver` when it is unknown or takes no more money.

    The reasons are those that a receiver on another server is refused with.
    """
    plain = urls.plain_receiver(url)
    if plain is None:
        raise invalid_receiver(field, "it must be the URL of an incoming payment")
    payment_id = urls.resource_id("incoming-payments", plain)
    if payment_id is None:
        raise invalid_receiver(field, "it is not an incoming payment of this server", "not_found")
    payment = incoming.find_incoming(tx, payment_id)
    if payment is None:
        raise invalid_receiver(field, "there is no such incoming payment", "not_found")
    if payment.completed:
        raise invalid_receiver(field, "the incoming payment is completed", "completed")
    if not payment.open_at(now):
        raise invalid_receiver(field, "the incoming payment has expired", "expired")
    wallet = wallets.wallet_by_id(tx, payment.wallet_address_id)
    if not wallet.active:
        raise invalid_receiver(field, "the receiving wallet address is no longer active")
    return LocalReceiver(plain, payment, wallet)


def invalid_receiver(field: str, why: str, reason: str | None = None) -> InvalidReceiver:
    details = {"field": field} if reason is None else {"field": field, "reason": reason}
    return InvalidReceiver(f"{field} cannot be paid: {why}", **details)
