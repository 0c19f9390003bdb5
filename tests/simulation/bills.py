"""Bills: incoming payments that owners ask for and close, and what must hold of closed ones."""

import math
from typing import Final

import msgspec

from payres.core.grants import consent
from payres.core.grants.clients import own_client
from payres.core.payments.incoming import add, complete, unpaid
from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.errors import require
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.wallets import find_wallet
from payres.core.store.work import Work
from tests.simulation.currencies import GRAINS, minor
from tests.simulation.town import Bill, Town, Wallet, moment_of
from tests.simulation.world import Violation

KEPT: Final = 7 * DAY  # microseconds that a bill is kept at least
OVERPAID: Final = 200  # one part in so many: whole packets cannot be split where currencies change
ROUNDED: Final = 2  # cents by which a packet may deliver something else than the rate says
LONG: Final = 3 * 3600  # seconds
TOO_LATE: Final = (
    "SELECT p.id, t.amount FROM transfer t JOIN incoming_payment p ON p.id = t.incoming_payment_id"
    " JOIN wallet_address w ON w.id = p.wallet_address_id"
    " WHERE t.credit_account_id = w.account_id AND t.refund_id IS NULL AND t.created_at >= p.expires_at"
)

# What another server has made here to pay a wallet, and has paid.
OPEN: Final = (
    "SELECT p.id, p.received FROM incoming_payment p JOIN client c ON c.id = p.client_id"
    " WHERE c.identity = ? AND p.completed_at IS NULL AND p.received > 0 AND p.expires_at > ?"
)


async def ask_for(town: Town, wallet: Wallet, cents: int | None, seconds: int = LONG) -> Bill:
    """An incoming payment of about so many cents, None for any, open for so long. Raises one of REFUSED."""
    value = None if cents is None else minor(cents, wallet.asset)

    def make(work: Work) -> Bill:
        found = find_wallet(work, wallet.path)
        assert found is not None
        receiver = unpaid(work, found, own_client(work), None, work.now + seconds * SECOND)
        wanted = None if value is None else str(value)
        add(work, found, msgspec.structs.replace(receiver.payment, incoming_value=wanted))
        return Bill(wallet, receiver.payment.id, value, work.now + seconds * SECOND, seconds)

    bill = await wallet.server.write(make)
    town.bills.append(bill)
    return bill


async def decided(payer: Wallet, id: str, nonce: str, consents: bool) -> str | None:
    """Decides on a grant as its owner. Where the browser goes, if it goes anywhere."""
    return await payer.server.write(
        lambda work: consent.decide(work, consent.find_pending(work, id, nonce), consents, "owner")
    )


async def complete_bill(town: Town, bill: Bill) -> None:
    """Completes a bill, and notes what it has received by then. Raises one of REFUSED."""

    def unit(work: Work) -> int:
        payment = require(INCOMING.get(work, bill.id), "A restore has lost it")
        wallet = find_wallet(work, bill.wallet.path)
        assert wallet is not None
        complete(work, wallet, payment)
        return payment.received

    town.completed[bill] = await bill.wallet.server.write(unit)
    town.world.counts["bills completed"] += 1


async def paid(town: Town) -> None:
    """No bill got more than it asks for, or anything after it was completed or had expired; none that is paid stays
    open."""
    for server in town.servers:
        if late := await server.rows(TOO_LATE):
            raise Violation(f"bills of {server.name} were paid after they had expired: {late}")
    for bill in town.bills:
        made_at, server = moment_of(bill.id), bill.wallet.server
        record = await server.read(lambda work, id=bill.id: INCOMING.get(work, id))  # type: ignore[misc]
        begun = min(made_at, bill.expires_at)  # what a clock far back has made is old when that is right
        is_purged = town.world.microseconds - begun > KEPT or server.may_have_purged(made_at)  # if it is unpaid
        if record is None and not is_purged and not town.may_be_lost(server, bill.id):
            raise Violation(f"{bill.url} was acknowledged and is gone")
        if record is None or town.is_disturbed(bill.id):
            continue
        if record.received > (most := _most(town, bill)):
            raise Violation(f"{bill.url}: asked {bill.value}, got {record.received}, may get {most}")
        if bill.value is not None and record.received >= bill.value and record.completed_at is None:
            raise Violation(f"{bill.url} is paid, and stays open")


def _most(town: Town, bill: Bill) -> float:
    """What a bill may get: payres takes a last packet that a sender's rounding made larger than what is missing."""
    rounded = ROUNDED * GRAINS[bill.wallet.asset.code]
    if bill in town.completed:
        return town.completed[bill]
    return math.inf if bill.value is None else bill.value + max(math.ceil(bill.value / OVERPAID), rounded)


async def ended(town: Town) -> None:
    """A bill that a server has made on another one, to pay it, is completed when it has paid it."""
    for server in town.servers:
        for maker in town.servers:
            if maker is server or maker.archive.losses:
                continue
            if left := await server.rows(OPEN, f"{maker.base_url}/.well-known/pay", server.now()):
                raise Violation(f"bills that {maker.name} has made at {server.name} are left open: {left}")
