"""Unresolved payments: the unresolved packets of a peer by their payment, with the figures to compare with the peer's.

Packets from the peer that were forwarded belong to no payment here: they are grouped by the peer that they went to.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.clock import format_time
from payres.core.protocol.wire import Resource
from payres.core.store.payments import Direction
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.interledger.settlement import payment_of
from payres.interledger.store import packets
from payres.interledger.store.packets import PacketRecord, TakenPacket
from payres.interledger.store.peers import PeerRecord
from payres.operator.declarations import endpoint, lists
from payres.operator.peers import require_peer
from payres.operator.shapes import Column, Shape
from payres.operator.unresolved_packets import NONE, RECEIVED, list_unresolved


class UnresolvedGroup(msgspec.Struct, frozen=True):
    """The unresolved packets of one payment, or those that were forwarded to one peer; at least one."""

    peer: PeerRecord
    packets: Sequence[PacketRecord | TakenPacket]


class UnresolvedPayment(Resource, frozen=True, kw_only=True):
    """The unresolved packets of a payment, of which `amount` is the sum; without a `payment`, those `forwarded_to`
    another peer.

    For the whole payment, the peer counts from `least` to `most`. `receiver` is the incoming payment, which the peer's
    operator can find too.
    """

    peer: str
    direction: Direction
    payment: str | None
    wallet: str | None
    receiver: str | None
    forwarded_to: str | None
    packets: int
    amount: str
    asset_code: str
    asset_scale: int
    first_at: str
    last_at: str
    least: str | None
    most: str | None


def unresolved_payment(work: Work, group: UnresolvedGroup) -> UnresolvedPayment:
    peer, one = group.peer, group.packets[0]
    amount = sum(packet.amount for packet in group.packets)
    times = [packet.created_at if isinstance(packet, TakenPacket) else packet.expires_at for packet in group.packets]
    least: int | None = None
    wallet, receiver, forwarded_to = None, None, None
    if not isinstance(one, TakenPacket):
        outgoing = payment_of(work, one)
        payment: str | None = outgoing.id
        wallet, receiver = WALLETS.by_id(work, outgoing.wallet_address_id).path, outgoing.terms.receiver
        least = packets.delivered_amount(work, outgoing.id, peer.id)
    else:
        payment, wallet, forwarded_to = one.incoming_payment_id, one.wallet, one.forwarded_to
        if payment is not None:
            receiver = work.urls.resource("incoming-payments", payment)
            least = packets.received_amount(work, peer, payment) - amount
    return UnresolvedPayment(
        peer=peer.name,
        direction="incoming" if isinstance(one, TakenPacket) else "outgoing",
        payment=payment,
        wallet=wallet,
        receiver=receiver,
        forwarded_to=forwarded_to,
        packets=len(group.packets),
        amount=format_decimal(amount, peer.asset),
        asset_code=peer.asset_code,
        asset_scale=peer.asset_scale,
        first_at=format_time(min(times)),
        last_at=format_time(max(times)),
        least=None if least is None else format_decimal(least, peer.asset),
        most=None if least is None else format_decimal(least + amount, peer.asset),
    )


def to_compare(one: UnresolvedPayment) -> str:
    """What to compare with the peer's operator."""
    if one.least is None:
        return RECEIVED
    if one.direction == "outgoing":
        return f"For the whole payment the peer counts {one.least} if none of these arrived, {one.most} if all did"
    return (
        f"For the whole payment the peer counts {one.most} if it got these answers, {one.least} if none: then it may"
        " have sent their money again"
    )


UNRESOLVED_PAYMENT: Final = Shape(
    unresolved_payment,
    Column("Payment", "payment", "code", section="payments"),
    Column("Direction", "direction"),
    Column("Wallet", "wallet", "long", section="wallets"),
    Column("Receiver", "receiver", "long", listed="on pages"),
    Column("Forwarded to", "forwarded_to", "long", section="peers"),
    Column("Packets", "packets", "number"),
    Column("Amount", "amount", "number"),
    Column("Asset", "asset_code"),
    Column("First (UTC)", lambda one: one.first_at, "time"),
    Column("Last (UTC)", lambda one: one.last_at, "time"),
    Column("To compare", to_compare, "long"),
)


@endpoint("GET /peers/{name}/unresolved-payments", "peers:read", UNRESOLVED_PAYMENT, noun="unresolved_payments")
@lists("payments", NONE)
def list_unresolved_payments(work: Work, name: str) -> Sequence[UnresolvedGroup]:
    """List the payments with unresolved packets of a peer, and what to compare.

    Each has the number and the sum of these packets, and what the peer counts for the whole payment at least and at
    most.
    """
    peer = require_peer(work, name)
    groups: dict[object, list[PacketRecord | TakenPacket]] = {}
    for one in list_unresolved(work, name):
        key = (one.incoming_payment_id, one.forwarded_to) if isinstance(one, TakenPacket) else one.outgoing_payment_id
        groups.setdefault(key, []).append(one)
    return [UnresolvedGroup(peer, found) for found in groups.values()]
