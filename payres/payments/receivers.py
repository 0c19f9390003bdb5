"""Receivers: the incoming payment that a quote or outgoing payment is for."""

import msgspec

from payres.amounts import Asset
from payres.errors import InvalidReceiver
from payres.store import wallets
from payres.store.incoming import INCOMING, IncomingRecord
from payres.store.wallets import WalletRecord
from payres.store.work import Work
from payres.urls import Urls


class LocalReceiver(msgspec.Struct, frozen=True):
    """An open incoming payment on this server, by its canonical URL, and the wallet address it pays into."""

    url: str
    payment: IncomingRecord
    wallet: WalletRecord

    @property
    def asset(self) -> Asset:
        return self.wallet.asset

    @property
    def remaining(self) -> int | None:
        """What it still wants, in the minor unit; None when it has no incomingAmount."""
        return self.payment.remaining


def open_receiver(work: Work, url: str, field: str) -> LocalReceiver:
    """The receiver at `url`. Raises InvalidReceiver when it is unknown or takes no more money.

    The reasons are those of a receiver on another server.
    """
    canonical = work.urls.canonical_receiver(url)
    if canonical is None:
        raise unpayable(field, "it must be the URL of an incoming payment")
    payment_id = work.urls.resource_id("incoming-payments", canonical)
    if payment_id is None:
        raise unpayable(field, "it is not an incoming payment of this server", "not_found")
    found = wallets.find_with_wallet(work, INCOMING, payment_id)
    if found is None:
        raise unpayable(field, "there is no such incoming payment", "not_found")
    payment, wallet = found
    if payment.completed:
        raise unpayable(field, "the incoming payment is completed", "completed")
    if not payment.open_at(work.now):
        raise unpayable(field, "the incoming payment has expired", "expired")
    if not wallet.active:
        raise unpayable(field, "the receiving wallet address is no longer active")
    return LocalReceiver(canonical, payment, wallet)


def is_remote(urls: Urls, url: str) -> bool:
    """Whether a URL can be an incoming payment of another server."""
    return urls.canonical_receiver(url) is not None and not urls.is_ours(url)


def unpayable(field: str, why: str, reason: str | None = None) -> InvalidReceiver:
    """The receiver that member `field` names cannot be paid."""
    details = {"field": field} if reason is None else {"field": field, "reason": reason}
    return InvalidReceiver(f"{field} cannot be paid: {why}", **details)
