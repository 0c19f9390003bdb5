"""The money of packets, as it clears: balances with peers, and the ends of payments to other servers.

A packet of our own payment is covered by the payment's hold; a forwarded packet holds money of the account of the peer
that sent it. If the next peer has another asset, the exchange goes through the liquidity accounts.

The sent and possibly sent amounts of a payment never exceed its debit amount minus the fee: `prepare` checks that in
the unit that records a packet. `payres.operator.peers` explains the balance of a peer's account.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import msgspec

from payres.core.payments import ledger, settlement
from payres.core.payments.ledger import NotEnough, free_balance
from payres.core.protocol.amounts import MAX_LEDGER, ProbedPath
from payres.core.protocol.errors import InvalidAmount
from payres.core.protocol.event_types import PacketEvent, PeerEvent
from payres.core.store import grants, representations
from payres.core.store.accounts import ACCOUNTS, ASSETS, HOLDS, AccountRecord, HoldRecord
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Damaged, Transaction, Work
from payres.interledger.packets import Code, PacketRejected
from payres.interledger.store import outgoing_payments, packets, peers, remote_resources
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.interledger.store.peers import PeerRecord

# How much the rate may change between quote and payment, or differ from our own.
SLIPPAGE: Final = Fraction(1, 100)
PAYMENT_ENDED: Final = "the payment has ended, or has nothing left to send"
# What is noted with a peer when credit ends payments: that which we give it, and perhaps that which it gives us.
ABOVE_LIMIT: Final = "We refused a packet: the peer would owe more than its credit limit"
SHORT_THERE: Final = "The peer refused a packet (T04): we have used up the credit it gives us, or it lacks liquidity"


class CreditUsed(PacketRejected):
    """The packet exceeds the credit of the peer that sent it."""


def prepare(work: Work, packet: PacketRecord, peer: PeerRecord) -> None:
    """Records a packet before it leaves, and holds its money; amounts must be positive.

    Raises PacketRejected if the payment has ended or spent all, or the peer's credit or the liquidity is short.
    """
    PACKETS.insert(work, packet)
    own = packet.outgoing_payment_id
    try:
        source_asset = _hold_of_peer(work, packet) if own is None else _check_payment(work, own)
        if source_asset != peer.asset_id:
            liquidity = ledger.operator_account(work, peer.asset_id, "liquidity")
            warn_of_low(work, ledger.hold(work, liquidity, packet.amount, packet_id=packet.id).low)
    except NotEnough as lack:
        if own is None:
            raise insufficient(lack, "the next asset") from lack
        raise PacketRejected(Code.INSUFFICIENT_LIQUIDITY, "there is not enough liquidity for the exchange") from lack
    except InvalidAmount as error:  # beyond the range of the ledger
        raise PacketRejected(Code.INSUFFICIENT_LIQUIDITY) from error


def insufficient(lack: NotEnough, asset: str) -> PacketRejected:
    """The rejection of a peer's packet for lack of its credit or of our liquidity in `asset`."""
    if lack.account.kind == "peer":
        return CreditUsed(Code.INSUFFICIENT_LIQUIDITY, "The peer's credit does not suffice")
    return PacketRejected(Code.INSUFFICIENT_LIQUIDITY, f"The liquidity in {asset} does not suffice")


def fulfil(work: Work, packet_id: str, delivered: int) -> bool:
    """Posts the money of a packet; `delivered` is what the receiver of our own payment reports, or an estimate.

    False, with nothing changed, if the packet already had an outcome.
    """
    packet = PACKETS.get(work, packet_id)
    if packet is None or not packets.decide_packet(work, packet_id, "fulfilled"):
        return False
    holds = [*HOLDS.list(work, packet_id=packet.id)]
    source = holds.pop(0) if packet.outgoing_payment_id is None else payment_hold(work, packet.outgoing_payment_id)
    target = peers.account_of_peer(work, packet.to_peer_id)
    if not holds:
        ledger.post(work, source.id, target, packet.source_amount, "payment", packet_id=packet.id)
    else:  # the other hold is on the liquidity in the peer's asset
        exchange = ledger.operator_account(work, ACCOUNTS.by_id(work, source.account_id).asset_id, "liquidity")
        ledger.post(work, source.id, exchange, packet.source_amount, "exchange", packet_id=packet.id)
        ledger.post(work, holds[0].id, target, packet.amount, "payment", packet_id=packet.id)
    if packet.outgoing_payment_id is not None:
        # The figure is the receiver's claim, and STREAM allows more than a row can hold.
        outgoing_payments.add_sent(work, packet.outgoing_payment_id, packet.source_amount, min(delivered, MAX_LEDGER))
        work.changed.append(packet.outgoing_payment_id)
    peers.count_sent(work, packet.to_peer_id)
    return True


def leave_unresolved(work: Work, packet: PacketRecord) -> None:
    """Gives up on a packet in flight of our own payment.

    The payment must end in the same unit. The payer gets the money back, because without a fulfillment the peer has no
    claim to it. It may have arrived anyway: that risk is the operator's, who resolves the packet with the peer. Until
    then the grant counts it as spent. Does nothing if the packet already had an outcome.
    """
    assert packet.outgoing_payment_id is not None, "a forwarded packet has no payment"
    if not reject(work, packet.id, "doubtful"):
        return
    count_unresolved(work, packet)
    peer = peers.peer_by_id(work, packet.to_peer_id)
    if peer is not None:  # with a removed peer nothing can be resolved
        payment = OUTGOING.by_id(work, packet.outgoing_payment_id)
        url = work.urls.resource("outgoing-payments", payment.id)
        owed = representations.amount(packet.amount, peer.asset)
        data = PacketEvent(id=packet.id, peer=peer.name, outgoing_payment=url, amount=owed)
        work.emit("peer.packet_unresolved", packet.id, data, payment.wallet_address_id)


def reject(work: Work, packet_id: str, state: packets.PacketState = "rejected") -> bool:
    """Voids the holds of the packet. False if the packet already had an outcome."""
    if not packets.decide_packet(work, packet_id, state):
        return False
    for hold in HOLDS.list(work, packet_id=packet_id):
        ledger.void(work, hold.id)
    return True


def _check_payment(work: Work, payment_id: str) -> int:
    """Checks that the payment is in progress and covers this packet too. Returns the id of its asset."""
    payment = OUTGOING.get(work, payment_id)
    if payment is None or payment.state != "sending":
        raise PacketRejected(Code.BAD_REQUEST, PAYMENT_ENDED)
    promised = payment_hold(work, payment_id)
    # The fulfilled amount and the amount in flight never exceed the debit amount minus the fee.
    if packets.in_flight_of_payment(work, payment_id) > promised.remaining - payment.terms.fee:
        raise PacketRejected(Code.BAD_REQUEST, PAYMENT_ENDED)
    return ACCOUNTS.by_id(work, promised.account_id).asset_id


def _hold_of_peer(work: Work, packet: PacketRecord) -> int:
    """Holds the packet's money in the account of the peer that sent it. Returns the id of the account's asset."""
    payer = peers.peer_by_id(work, packet.from_peer_id) if packet.from_peer_id is not None else None
    if payer is None:  # removed since its token was checked
        raise PacketRejected(Code.INSUFFICIENT_LIQUIDITY)
    warn_of_low(work, ledger.hold(work, payer.account_id, packet.source_amount, packet_id=packet.id).low)
    return payer.asset_id


def payment_hold(tx: Transaction, payment_id: str) -> HoldRecord:
    """The hold on the payer's wallet for a payment in progress. Raises Damaged."""
    found = HOLDS.list(tx, outgoing_payment_id=payment_id)
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
    """Ends a payment that has nothing more to send, unless it has packets in flight or delivered by an estimate."""
    payment = OUTGOING.get(work, payment_id)
    if payment is not None and is_finished(payment) and not payment.estimated:
        end_sending(work, payment_id, None)


def end_sending(work: Work, payment_id: str, failure: str | None) -> None:
    """Ends a payment in progress without packets in flight; it has failed unless it arrived."""
    payment = OUTGOING.get(work, payment_id)
    if payment is None or payment.state != "sending" or packets.in_flight_of_payment(work, payment_id):
        return
    # If its receiver cannot be read, what its packets had to deliver keeps the promise, but for the slippage.
    is_known = payment.delivered - payment.estimated >= payment.terms.receive * (1 - SLIPPAGE)
    has_ended = has_sent_all(payment) or (is_known and has_arrived(payment))
    end_remote(work, payment, None if has_ended else failure)


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
    for hold in HOLDS.list(work, outgoing_payment_id=payment.id):
        ledger.void(work, hold.id)
    unused = terms.debit - sent - payment.unresolved_debit
    _give_back(work, payment, unused, terms.receive - payment.spent_receive)
    failure = None if sent == terms.debit else failure
    outgoing_payments.end_outgoing(work, payment.id, sent, payment.delivered, failure, work.now)
    remote_resources.make_due(work, payment.id, work.now)
    if payment.has_begun:
        outgoing_payments.note_overlap(work, terms.receiver)
    state, name = ("failed", "outgoing_payment.failed") if failure else ("completed", "outgoing_payment.completed")
    ended = msgspec.structs.replace(payment, sent=sent, state=state, failure=failure)
    settlement.emit_payment_event(work, WALLETS.by_id(work, payment.wallet_address_id), ended, name)


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


def probed_path(payment: OutgoingRecord) -> ProbedPath:
    """The path that the quote of our own payment probed."""
    assert payment.terms.path is not None, "payments to other servers have a path"
    return payment.terms.path


def _most_delivered(payment: OutgoingRecord, packet: PacketRecord) -> int:
    return min(probed_path(payment).most(packet.source_amount), MAX_LEDGER)


@ledger.guarded
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
