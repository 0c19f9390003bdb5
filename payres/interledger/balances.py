"""The money of packets to a peer: held before they leave, posted when fulfilled, voided when rejected or unresolved.

A packet of our own payment is covered by the payment's hold; a forwarded packet holds money of the account of the peer
that sent it. If the next peer has another asset, the exchange goes through the liquidity accounts.

The sent and possibly sent amounts of a payment never exceed its debit amount minus the fee: `prepare` checks that in
the unit that records a packet. `payres.operator.peers` explains the balance of a peer's account.
"""

from typing import Final

from payres.core.payments import ledger
from payres.core.payments.ledger import NotEnough
from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.errors import InvalidAmount
from payres.core.protocol.event_types import PacketEvent
from payres.core.store import accounts, payments, representations
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.payments import OUTGOING
from payres.core.store.work import Work
from payres.interledger.packets import Code, Rejected
from payres.interledger.settlement import count_unresolved, payment_hold, warn_of_low
from payres.interledger.store import packets, peers
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.interledger.store.peers import PeerRecord

PAYMENT_ENDED: Final = "the payment has ended, or has nothing left to send"


def prepare(work: Work, packet: PacketRecord, peer: PeerRecord) -> None:
    """Records a packet before it leaves, and holds its money; amounts must be positive.

    Raises Rejected if the payment has ended or spent all, or the peer's credit or the liquidity is short.
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
        raise Rejected(Code.INSUFFICIENT_LIQUIDITY, "there is not enough liquidity for the exchange") from lack
    except InvalidAmount as error:  # beyond the range of the ledger
        raise Rejected(Code.INSUFFICIENT_LIQUIDITY) from error


def insufficient(lack: NotEnough, asset: str) -> Rejected:
    """The rejection of a peer's packet for lack of its credit or of our liquidity in `asset`."""
    whose = "The peer's credit" if lack.account.kind == "peer" else f"The liquidity in {asset}"
    return Rejected(Code.INSUFFICIENT_LIQUIDITY, f"{whose} does not suffice")


def fulfil(work: Work, packet_id: str, delivered: int) -> bool:
    """Posts the money of a packet; `delivered` is what the receiver of our own payment reports.

    False, with nothing changed, if the packet already had an outcome.
    """
    packet = PACKETS.get(work, packet_id)
    if packet is None or not packets.decide_packet(work, packet_id, "fulfilled"):
        return False
    holds = list(accounts.holds_of_packet(work, packet.id))
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
        payments.add_sent(work, packet.outgoing_payment_id, packet.source_amount, min(delivered, MAX_LEDGER))
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


def reject(work: Work, packet_id: str, state: packets.State = "rejected") -> bool:
    """Voids the holds of the packet. False if the packet already had an outcome."""
    if not packets.decide_packet(work, packet_id, state):
        return False
    for hold in accounts.holds_of_packet(work, packet_id):
        ledger.void(work, hold.id)
    return True


def _check_payment(work: Work, payment_id: str) -> int:
    """Checks that the payment is in progress and covers this packet too. Returns the id of its asset."""
    payment = OUTGOING.get(work, payment_id)
    if payment is None or payment.state != "sending":
        raise Rejected(Code.BAD_REQUEST, PAYMENT_ENDED)
    promised = payment_hold(work, payment_id)
    # The fulfilled amount and the amount in flight never exceed the debit amount minus the fee.
    if packets.in_flight_of_payment(work, payment_id) > promised.remaining - payment.terms.fee:
        raise Rejected(Code.BAD_REQUEST, PAYMENT_ENDED)
    return ACCOUNTS.by_id(work, promised.account_id).asset_id


def _hold_of_peer(work: Work, packet: PacketRecord) -> int:
    """Holds the packet's money in the account of the peer that sent it. Returns the id of the account's asset."""
    payer = peers.peer_by_id(work, packet.from_peer_id) if packet.from_peer_id is not None else None
    if payer is None:  # removed since its token was checked
        raise Rejected(Code.INSUFFICIENT_LIQUIDITY)
    warn_of_low(work, ledger.hold(work, payer.account_id, packet.source_amount, packet_id=packet.id).low)
    return payer.asset_id
