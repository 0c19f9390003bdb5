"""The money of packets that go to a peer: reserved before they leave, posted when fulfilled, released when rejected,
set aside while it is in doubt.

A packet of a payment of ours takes from what the payment has reserved; a packet that is passed on takes from the
account of the peer that it came from. When the next peer's asset is another one, liquidity stands between.

What a payment's packets have sent, and what those without an outcome may have, never pass its debit amount less the
fee: `prepare` checks that in the unit that records a packet. What a peer owes is the balance of its account, which
`payres.operator.peers` describes.
"""

from payres import ledger
from payres.amounts import MAX_LEDGER
from payres.payments.settlement import promised_reservation
from payres.store import accounts, outgoing, packets, peers
from payres.store.accounts import ReservationRecord
from payres.store.database import Transaction
from payres.store.packets import PacketRecord
from payres.store.peers import PeerRecord


class PaymentEnded(Exception):
    """The outgoing payment is no longer under way, or has nothing left for the packet."""


def prepare(tx: Transaction, packet: PacketRecord, peer: PeerRecord, now: int) -> None:
    """Records a packet that is about to leave, and reserves its money; amounts must be above zero.

    Raises ledger.NotEnough (the inbound peer's credit, or liquidity), PaymentEnded.
    """
    packets.insert_packet(tx, packet)
    if packet.outgoing_payment_id is not None:
        source_asset = _check_payment(tx, packet.outgoing_payment_id)
    else:
        payer = _peer(tx, packet.from_peer_id)
        ledger.reserve(tx, payer.account_id, packet.source_amount, None, now, packet.id)
        source_asset = payer.asset_id
    if source_asset != peer.asset_id:
        liquidity = ledger.operator_account(tx, peer.asset_id, "liquidity")
        ledger.reserve(tx, liquidity, packet.amount, None, now, packet.id)


def fulfil(tx: Transaction, packet_id: str, delivered: int, now: int) -> bool:
    """Posts the money of a packet; `delivered` is what the receiver of our own payment says arrived.

    False when the packet's outcome was known before; then nothing changes.
    """
    packet = packets.find_packet(tx, packet_id)
    if packet is None or not packets.decide_packet(tx, packet_id, "fulfilled"):
        return False
    source, liquidity = _reservations(tx, packet)
    target = peers.account_of_peer(tx, packet.to_peer_id)
    if liquidity is None:
        ledger.post(tx, source.id, target, packet.source_amount, "payment", now, packet_id=packet.id)
    else:
        _set_aside(tx, source, packet, now)
        ledger.post(tx, liquidity.id, target, packet.amount, "payment", now, packet_id=packet.id)
    if packet.outgoing_payment_id is not None:
        # The receiver's word, of which STREAM can say more than a row can hold.
        outgoing.add_sent(tx, packet.outgoing_payment_id, packet.source_amount, min(delivered, MAX_LEDGER))
    peers.count_sent(tx, packet.to_peer_id)
    return True


def doubt(tx: Transaction, packet_id: str, now: int) -> bool:
    """Sets the money of a payment's packet aside, when nobody can say what became of it.

    It may be with the receiver, so it counts as sent; but a peer has no claim to it without a fulfillment. So it stays
    with the operator, who can clear it up with the peer. False when the packet's outcome was known before.
    """
    packet = packets.find_packet(tx, packet_id)
    if packet is None or packet.outgoing_payment_id is None or not packets.decide_packet(tx, packet_id, "doubtful"):
        return False
    source, liquidity = _reservations(tx, packet)
    _set_aside(tx, source, packet, now)
    if liquidity is not None:
        ledger.release(tx, liquidity.id)
    outgoing.add_sent(tx, packet.outgoing_payment_id, packet.source_amount, 0)
    return True


def reject(tx: Transaction, packet_id: str) -> bool:
    """Gives back what the packet had reserved. False when the packet's outcome was known before."""
    if not packets.decide_packet(tx, packet_id, "rejected"):
        return False
    for reservation in accounts.reservations_of_packet(tx, packet_id):
        ledger.release(tx, reservation.id)
    return True


def _check_payment(tx: Transaction, payment_id: str) -> int:
    """The asset of a payment under way whose packets, this one included, fit into what it may spend."""
    payment = outgoing.find_outgoing(tx, payment_id)
    if payment is None or payment.state != "sending":
        raise PaymentEnded
    promised = promised_reservation(tx, payment_id)
    # Whatever replies are lost: what is fulfilled and what may be, together, never pass the debit amount less the fee.
    if packets.under_way(tx, payment_id) > promised.remaining - payment.fee:
        raise PaymentEnded
    return accounts.account_by_id(tx, promised.account_id).asset_id


def _set_aside(tx: Transaction, source: ReservationRecord, packet: PacketRecord, now: int) -> None:
    """The payer's side of the packet, into the liquidity of its asset."""
    liquidity = ledger.operator_account(tx, accounts.account_by_id(tx, source.account_id).asset_id, "liquidity")
    ledger.post(tx, source.id, liquidity, packet.source_amount, "exchange", now, packet_id=packet.id)


def _reservations(tx: Transaction, packet: PacketRecord) -> tuple[ReservationRecord, ReservationRecord | None]:
    """What the packet takes from its payer, and from liquidity when the assets differ."""
    own = list(accounts.reservations_of_packet(tx, packet.id))
    if packet.outgoing_payment_id is not None:
        return promised_reservation(tx, packet.outgoing_payment_id), own[0] if own else None
    return own[0], own[1] if len(own) > 1 else None


def _peer(tx: Transaction, peer_id: int | None) -> PeerRecord:
    peer = peers.peer_by_id(tx, peer_id) if peer_id is not None else None
    if peer is None:
        raise PaymentEnded
    return peer
