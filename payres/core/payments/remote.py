"""The port for payments to other servers, which the Interledger node fills. Without it, a server pays its own wallets.

Nothing in the core knows how money leaves the server.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from payres.core.payments.incoming import is_remote, unpayable
from payres.core.protocol.amounts import Asset, Offer
from payres.core.protocol.urls import Urls
from payres.core.protocol.wire import Amount, PaymentMethod
from payres.core.signatures.jwk import JWK
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work

CheckedPayer = Callable[[Work], WalletRecord]


class Remote(Protocol):
    """Payments to and from other servers."""

    @property
    def keys(self) -> Sequence[JWK]:
        """The public keys with which this server signs as a client of others."""
        ...

    async def offer(
        self, payer: CheckedPayer, receiver: str, field: str, debit: Amount | None, receive: Amount | None = None
    ) -> Offer | None:
        """The offer for sending `debit`, or delivering `receive`, or else the rest of a bill, to a receiver on another
        server, which the request has in member `field`; None for a local receiver.

        Before another server is asked, raises what `payer` raises; InvalidReceiver, InvalidAmount,
        InsufficientFunds, Unavailable. Specification 4.3, 4.7.
        """
        ...

    def send(self, payment_id: str) -> None:
        """Sends a payment that was created for a receiver on another server."""
        ...

    def methods(self, payment_id: str, asset: Asset) -> list[PaymentMethod]:
        """How other servers can pay an open incoming payment."""
        ...

    def method_of_wallet(self, wallet: WalletRecord) -> PaymentMethod | None:
        """How other servers can pay a wallet without an incoming payment (SPSP); None if they cannot."""
        ...


class LocalOnly:
    """A server without a node: refuses receivers on other servers."""

    keys: Sequence[JWK] = ()

    def __init__(self, urls: Urls) -> None:
        self._urls = urls

    async def offer(
        self, payer: CheckedPayer, receiver: str, field: str, debit: Amount | None, receive: Amount | None = None
    ) -> Offer | None:
        """None for a local receiver. Raises InvalidReceiver."""
        if is_remote(self._urls, receiver):
            raise unpayable(field, "this server pays wallets here alone", "no_path")
        return None

    def send(self, payment_id: str) -> None:
        raise AssertionError(f"outgoing payment {payment_id} has a receiver on another server")

    def methods(self, payment_id: str, asset: Asset) -> list[PaymentMethod]:
        return []

    def method_of_wallet(self, wallet: WalletRecord) -> PaymentMethod | None:
        return None
