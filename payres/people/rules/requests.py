"""Requests for money: incoming payments that a wallet's owner makes without a grant, for others to pay.

Their client is the wallet itself, which distinguishes them from incoming payments of apps and of payers.
"""

from collections.abc import Sequence
from typing import Final

from payres.core.payments import incoming
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import nothing_here
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import described
from payres.core.store import clients, server
from payres.core.store.payments import INCOMING, IncomingRecord
from payres.core.store.wallets import WalletRecord, active_wallet
from payres.core.store.work import Work
from payres.people.store import activity

LISTED: Final = 100


def make(work: Work, wallet: WalletRecord, amount: int | None, note: str, lifetime: int) -> str:
    """Creates a request and returns its id. `amount` is in minor units, None for any; `lifetime` in microseconds.

    Raises InvalidRequest if the wallet is inactive.
    """
    address = work.urls.wallet(wallet.path)
    active_wallet(work, address)
    made = IncomingRecord(
        id=work.new_id(),
        wallet_address_id=wallet.id,
        client_id=clients.ensure_client(work, canonical(address), address, None, work.now).id,
        incoming_value=None if amount is None else str(amount),
        received=0,
        metadata=described(note),
        created_at=work.now,
        expires_at=work.now + min(lifetime, work.settings.incoming_payment_lifetime * SECOND),
        completed_at=None,
    )
    incoming.add(work, wallet, made)
    server.record(work, "payment.request", made.id, wallet=wallet.path)
    return made.id


def cancel(work: Work, wallet: WalletRecord, payment_id: str) -> None:
    """Completes a request, which then accepts no more money. Does nothing if it has ended.

    Raises NotFound.
    """
    found = find(work, wallet, payment_id)
    if found.open_at(work.now):
        incoming.complete(work, wallet, found)
        server.record(work, "payment.cancel", found.id, wallet=wallet.path)


def find(work: Work, wallet: WalletRecord, payment_id: str) -> IncomingRecord:
    """A request that the wallet's owner made. Raises NotFound, also for other incoming payments."""
    found = INCOMING.get(work, payment_id)
    if found is None or not is_request(work, wallet, found):
        raise nothing_here()
    return found


def is_request(work: Work, wallet: WalletRecord, payment: IncomingRecord) -> bool:
    """Whether the wallet's owner made this incoming payment."""
    return payment.wallet_address_id == wallet.id and payment.client_id == _own_client(work, wallet)


def list_open(work: Work, wallet: WalletRecord) -> Sequence[IncomingRecord]:
    """The open requests, newest first, at most LISTED."""
    client = _own_client(work, wallet)
    if client is None:
        return []
    found = activity.open_requests(work, client, wallet.id, work.now, LISTED)
    return [INCOMING.by_id(work, one) for one in found]


def _own_client(work: Work, wallet: WalletRecord) -> int | None:
    found = clients.find_client(work, canonical(work.urls.wallet(wallet.path)))
    return None if found is None else found.id
