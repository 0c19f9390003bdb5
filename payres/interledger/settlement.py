"""Settlement of payments to remote receivers: packets take from the payment's hold, and its end releases the rest."""

from collections.abc import Iterable

import msgspec

from payres.core.payments import ledger, settlement
from payres.core.payments.ledger import free_balance
from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.event_types import PeerEvent
from payres.core.store import accounts, grants, payments, representations
from payres.core.store.accounts import ACCOUNTS, AccountRecord, HoldRecord
from payres.core.store.assets import ASSETS
from payres.core.store.payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Damaged, Transaction, Work
from payres.interledger.store import packets, peers
from payres.interledger.store.packets import PacketRecord


def payment_hold(tx: Transaction, payment_id: str) -> HoldRecord:
    """The hold on the payer's wallet for a payment in progress. Raises Damaged."""
    found = accounts.holds_of_payment(tx, payment_id)
    if not found:
        raise Damaged(f"outgoing payment {payment_id} has no hold")
    return found[0]


def has_arrived(payment: OutgoingRecord) -> bool:
    """Whether the quoted amount has arrived at a remote receiver, or all that may be spent is spent."""
    return payment.delivered >= payment.terms.receive or has_sent_all(payment)


def has_sent_all(payment: OutgoingRecord) -> bool:
    """Whether a payment to a remote receiver has spent all that it may."""
    return payment.sent >= payment.terms.debit - payment.terms.fee


def is_finished(payment: OutgoingRecord) -> bool:
    """Whether nothing more is to be sent: everything is sent, or the amount to deliver has arrived."""
    return has_sent_all(payment) if payment.terms.sends_all else has_arrived(payment)


def end_if_finished(work: Work, payment_id: str) -> None:
    """Ends a payment that has nothing more to send, unless it has packets in flight."""
    payment = OUTGOING.get(work, payment_id)
    if payment is not None and is_finished(payment):
        end_sending(work, payment_id, None)


def end_sending(work: Work, payment_id: str, failure: str | None) -> None:
    """Ends a payment in progress without packets in flight; it has failed unless it arrived."""
    payment = OUTGOING.get(work, payment_id)
    if payment is None or payment.state != "sending" or packets.in_flight_of_payment(work, payment_id):
        return
    end_remote(work, payment, None if has_arrived(payment) else failure)


def end_remote(work: Work, payment: OutgoingRecord, failure: str | None) -> None:
    """Ends a payment to a remote receiver with the amount that its packets sent; the rest is released.

    The fee is the quoted one if the payment arrived, and a share of it, rounded up, if a part did. A payment that sent
    its whole amount has not failed, whatever the receiver reports. The grant counts what may have arrived.
    """
    terms = payment.terms
    spendable = terms.debit - terms.fee
    fee = terms.fee if failure is None else -(-terms.fee * payment.sent // spendable)
    if fee and payment.sent:
        held = payment_hold(work, payment.id)
        fees = ledger.operator_account(work, ACCOUNTS.by_id(work, held.account_id).asset_id, "fees")
        ledger.post(work, held.id, fees, fee, "fee")
    sent = payment.sent + fee if payment.sent else 0
    for hold in accounts.holds_of_payment(work, payment.id):
        ledger.void(work, hold.id)
    unused = terms.debit - sent - payment.unresolved_debit
    _give_back(work, payment, unused, terms.receive - payment.spent_receive)
    failure = None if sent == terms.debit else failure
    payments.end_outgoing(work, payment.id, sent, payment.delivered, failure, work.now)
    state, name = ("failed", "outgoing_payment.failed") if failure else ("completed", "outgoing_payment.completed")
    ended = msgspec.structs.replace(payment, sent=sent, state=state, failure=failure)
    settlement.emit(work, WALLETS.by_id(work, payment.wallet_address_id), ended, name)


def count_unresolved(work: Work, packet: PacketRecord) -> None:
    """Counts the amounts that a packet of a payment in progress may have taken and delivered."""
    payment = payment_of(work, packet)
    debit = payment.unresolved_debit + packet.source_amount
    receive = min(payment.unresolved_receive + _most_delivered(payment, packet), MAX_LEDGER)
    OUTGOING.update(work, payment.id, unresolved_debit=debit, unresolved_receive=receive)


def release_unresolved(work: Work, packet: PacketRecord) -> None:
    """Returns to the grant the amounts of a packet that is now known not to have delivered; its payment has ended."""
    payment = payment_of(work, packet)
    left = msgspec.structs.replace(
        payment,
        unresolved_debit=max(payment.unresolved_debit - packet.source_amount, 0),
        unresolved_receive=max(payment.unresolved_receive - _most_delivered(payment, packet), 0),
    )
    debit, receive = left.unresolved_debit, left.unresolved_receive
    OUTGOING.update(work, payment.id, unresolved_debit=debit, unresolved_receive=receive)
    back = payment.spent_debit - left.spent_debit, payment.spent_receive - left.spent_receive
    _give_back(work, payment, *back)


def payment_of(tx: Transaction, packet: PacketRecord) -> OutgoingRecord:
    """Our own payment that a packet belongs to. Raises Damaged."""
    assert packet.outgoing_payment_id is not None, "a forwarded packet has no payment"
    return OUTGOING.by_id(tx, packet.outgoing_payment_id)


def _most_delivered(payment: OutgoingRecord, packet: PacketRecord) -> int:
    assert payment.terms.path is not None, "payments with packets have a path"
    return min(payment.terms.path.most(packet.source_amount), MAX_LEDGER)


@ledger.movement
def _give_back(work: Work, payment: OutgoingRecord, debit: int, receive: int) -> None:
    """Returns the unused amounts of the payment to its grant's limits."""
    if payment.grant_id and (debit or receive):
        window, asset = payment.window_start, payment.terms.asset
        grants.add_spending(work, payment.grant_id, window, asset, -debit, -receive, work.now)


def warn_of_low(work: Work, low: Iterable[AccountRecord]) -> None:
    """Writes an event for each account, of a peer or of liquidity, that a movement left low."""
    for account in low:
        peer = peers.peer_with_account(work, account.id)
        if peer is None:
            settlement.warn_of_low(work, [account])
        else:
            asset = ASSETS.by_id(work, account.asset_id).asset
            left, limit = (representations.amount(one, asset) for one in (free_balance(account), -peer.floor))
            work.emit("peer.credit_low", None, PeerEvent(peer=peer.name, left=left, credit_limit=limit))
