"""Settlement: what becomes of an outgoing payment after its money was reserved.

The rules are plain functions over one transaction. The worker finds payments under way in their rows, so a crash
between creation and settlement loses nothing: the next start settles them.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from payres import ledger
from payres.clock import Clock
from payres.errors import DomainError
from payres.payments import incoming as incoming_rules
from payres.store import accounts, assets, grants, incoming, outgoing, wallets
from payres.store.accounts import ReservationRecord
from payres.store.database import Database, Transaction, savepoint
from payres.store.halts import RowMissing
from payres.store.incoming import IncomingRecord
from payres.store.outgoing import OutgoingRecord

BATCH = 128
RETRY_SECONDS = 1

log = logging.getLogger("payres.settlement")


class SettlementWorker:
    """Settles payments as soon as they are made. `wake` after each creation; `run` until cancelled."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._woken = asyncio.Event()
        self._woken.set()  # the first round takes up what a crash left under way

    def wake(self) -> None:
        """There is, or may be, a payment to settle."""
        self._woken.set()

    async def run(self) -> None:
        """Settles until nothing may be written any more. What storage or a fault of ours held up is tried again."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._settle_all()
            except Exception:
                if self._database.halted:
                    return
                log.exception("settlement stumbled and tries again in %s s", RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
                self._woken.set()

    async def _settle_all(self) -> None:
        """Tries every payment under way once, oldest first, so that one that cannot be settled holds up no other."""
        problems: list[BaseException] = []
        after = ""
        while payments := await self._database.read(partial(outgoing.sending_here, limit=BATCH, after=after)):
            units = [partial(settle, payment_id=payment.id, clock=self._clock) for payment in payments]
            outcomes = await asyncio.gather(*map(self._database.write, units), return_exceptions=True)
            problems += [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            after = payments[-1].id
        if problems:
            raise problems[0]


def settle(tx: Transaction, payment_id: str, clock: Clock) -> None:
    """Ends the payment, one way or the other, if it is still under way. The receiver is on this server."""
    payment = outgoing.find_outgoing(tx, payment_id)
    if payment is None or payment.state != "sending" or payment.incoming_payment_id is None:
        return
    now = clock.now()
    receiver = incoming.find_incoming(tx, payment.incoming_payment_id)
    if receiver is None:
        raise RowMissing(f"incoming payment {payment.incoming_payment_id} does not exist")
    failure = _obstacle(receiver, payment, now)
    if failure:
        fail(tx, payment, failure, now)
        return
    try:
        with savepoint(tx):
            _move(tx, payment, receiver, now)
    except DomainError as error:  # the receiver's account cannot hold more
        fail(tx, payment, str(error), now)


def promised_reservation(tx: Transaction, payment_id: str) -> ReservationRecord:
    """What the payer's wallet holds for the payment; the first reservation that was made for it."""
    return _reservations(tx, payment_id)[0]


def end_elsewhere(tx: Transaction, payment: OutgoingRecord, failure: str | None, now: int) -> None:
    """Ends a payment to a receiver on another server with what its packets have sent; the rest goes back.

    The fee is the quoted one when the payment arrived, and a share of it, rounded up, when a part did. A payment that
    sent all it had has not failed, whatever the receiver says arrived.
    """
    promised = promised_reservation(tx, payment.id)
    spendable = payment.debit - payment.fee
    fee = payment.fee if failure is None else -(-payment.fee * payment.sent // spendable)
    if fee and payment.sent:
        fees = ledger.operator_account(tx, accounts.account_by_id(tx, promised.account_id).asset_id, "fees")
        ledger.post(tx, promised.id, fees, fee, "fee", now)
    sent = payment.sent + fee if payment.sent else 0
    for reservation in accounts.reservations_of_payment(tx, payment.id):
        ledger.release(tx, reservation.id)
    # What arrived is the receiver's word, which may not use up more than was promised.
    _give_back(tx, payment, payment.debit - sent, payment.receive - min(payment.delivered, payment.receive), now)
    outgoing.end_outgoing(tx, payment.id, sent, payment.delivered, None if sent == payment.debit else failure, now)


def fail(tx: Transaction, payment: OutgoingRecord, failure: str, now: int) -> None:
    """Ends a payment of which nothing was sent: its money and its share of the grant's limits are free again."""
    for reservation in accounts.reservations_of_payment(tx, payment.id):
        ledger.release(tx, reservation.id)
    _give_back(tx, payment, payment.debit, payment.receive, now)
    outgoing.end_outgoing(tx, payment.id, 0, 0, failure, now)


@ledger.movement
def _give_back(tx: Transaction, payment: OutgoingRecord, debit: int, receive: int, now: int) -> None:
    """Takes back what the payment has not used of its grant's limits."""
    if payment.grant_id:
        window, code, scale = payment.window_start, payment.receive_code, payment.receive_scale
        grants.add_spending(tx, payment.grant_id, window, code, scale, -debit, -receive, now)


def _reservations(tx: Transaction, payment_id: str) -> Sequence[ReservationRecord]:
    """Those of a payment under way, which always has one."""
    found = accounts.reservations_of_payment(tx, payment_id)
    if not found:
        raise RowMissing(f"outgoing payment {payment_id} has no reservation")
    return found


def _obstacle(receiver: IncomingRecord, payment: OutgoingRecord, now: int) -> str | None:
    if receiver.completed:
        return "the incoming payment was completed before this payment arrived"
    if not receiver.open_at(now):
        return "the incoming payment expired before this payment arrived"
    if receiver.remaining is not None and payment.receive > receiver.remaining:
        return "the incoming payment takes less than this payment would deliver"
    return None


def _move(tx: Transaction, payment: OutgoingRecord, receiver: IncomingRecord, now: int) -> None:
    """Phase two: fee to the operator, the rest to the receiver, through the liquidity accounts when assets differ."""
    sender_wallet = wallets.wallet_by_id(tx, payment.wallet_address_id)
    target_wallet = wallets.wallet_by_id(tx, receiver.wallet_address_id)
    promised, *liquidity = _reservations(tx, payment.id)
    if payment.fee:
        ledger.post(
            tx, promised.id, ledger.operator_account(tx, sender_wallet.asset_id, "fees"), payment.fee, "fee", now
        )
    net = payment.debit - payment.fee
    if sender_wallet.asset_id == target_wallet.asset_id and sender_wallet.id != target_wallet.id:
        assert net == payment.receive, "one asset is paid one to one"
        ledger.post(tx, promised.id, target_wallet.account_id, net, "payment", now, receiver.id)
    else:
        ledger.post(
            tx, promised.id, ledger.operator_account(tx, sender_wallet.asset_id, "liquidity"), net, "exchange", now
        )
        _pay_from_liquidity(tx, liquidity, payment, receiver, target_wallet.account_id, now)
    incoming_rules.credit(tx, receiver, payment.receive, now)
    outgoing.end_outgoing(tx, payment.id, payment.debit, payment.receive, None, now)


def _pay_from_liquidity(
    tx: Transaction,
    liquidity: Sequence[ReservationRecord],
    payment: OutgoingRecord,
    receiver: IncomingRecord,
    target_account: int,
    now: int,
) -> None:
    if liquidity:
        ledger.post(tx, liquidity[0].id, target_account, payment.receive, "payment", now, receiver.id)
        return
    # A wallet that pays itself: the money went into its asset's liquidity a moment ago and comes back from there.
    asset = assets.find_asset(tx, payment.receive_code, payment.receive_scale)
    assert asset is not None
    source = ledger.operator_account(tx, asset.id, "liquidity")
    ledger.transfer(tx, source, target_account, payment.receive, "payment", now, payment.id, receiver.id)
