"""Bills: incoming payments that owners ask for."""

from typing import Final

import msgspec

from payres.core.grants.clients import own_client
from payres.core.payments.incoming import add, unpaid
from payres.core.store.wallets import find_wallet
from payres.core.store.work import Work
from tests.simulation.town import Bill, Town, Wallet

BILL_MICROSECONDS: Final = 3 * 3600 * 1_000_000


async def ask_for(town: Town, wallet: Wallet, value: int | None) -> Bill:
    """An incoming payment of this amount, None for any. Raises one of REFUSED."""

    def make(work: Work) -> Bill:
        found = find_wallet(work, wallet.path)
        assert found is not None
        receiver = unpaid(work, found, own_client(work), None, work.now + BILL_MICROSECONDS)
        wanted = None if value is None else str(value)
        add(work, found, msgspec.structs.replace(receiver.payment, incoming_value=wanted))
        return Bill(wallet, receiver.payment.id, value)

    bill = await wallet.server.write(make)
    town.bills.append(bill)
    return bill
