"""Unresolved packets: nobody knows whether they arrived. An operator resolves them with the peer.

The payer has the money back. So if a packet was delivered, the operator's liquidity pays the peer for it; if it was
not, no money moves.

The packets from a peer that the peer may not have counted are listed with them, so that both sides can compare.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import asdict

from payres.core.payments import ledger
from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.errors import InsufficientFunds, WrongState, require
from payres.core.protocol.wire import Resource
from payres.core.store import accounts, audit
from payres.core.store.accounts import ACCOUNTS, ASSETS, Cause
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.interledger.clearing import payment_of, release_unresolved, warn_of_low
from payres.interledger.store import packets, peers
from payres.interledger.store.packets import PACKETS, PacketRecord, TakenPacket
from payres.interledger.store.peers import PeerRecord
from payres.operator.declared.declarations import CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import said
from payres.operator.declared.shapes import Column, Shape, Time, decimals, represent
from payres.operator.peers import require_peer
from payres.people.store.refunds import Direction

Resolution = Literal["delivered", "returned"]
OUTCOMES: Final = {
    "delivered": "It arrived: the peer is owed its amount.",
    "returned": "It did not arrive: nothing is owed.",
}
NONE: Final = "No packet is unresolved"
SENT: Final = "Whether the peer counts it as delivered"
RECEIVED: Final = "Accepted just before this server was killed: whether the peer counts it, or has sent the money again"


class UnresolvedPacket(Resource, frozen=True, kw_only=True):
    """An unresolved packet; `amount` is what the peer would be owed.

    Or a packet from the peer that was accepted at `received_at`: it has no `id`, and possibly no `payment` here.
    """

    id: str | None
    peer: str
    payment: str | None
    wallet: str | None
    amount: str
    asset_code: str
    asset_scale: int
    expired_at: Time | None
    received_at: Time | None


class ResolvedPacket(UnresolvedPacket, frozen=True, kw_only=True):
    outcome: Resolution


def packet(work: Work, record: PacketRecord | TakenPacket) -> UnresolvedPacket:
    if isinstance(record, TakenPacket):
        peer, payment, wallet = record.peer, record.incoming_payment_id, record.wallet
        times = {"expired_at": None, "received_at": record.created_at}
    else:
        peer, outgoing = _peer_of(work, record), payment_of(work, record)
        payment, wallet = outgoing.id, WALLETS.by_id(work, outgoing.wallet_address_id).path
        times = {"expired_at": record.expires_at, "received_at": None}
    own = {"id": getattr(record, "id", None), "payment": payment, "wallet": wallet, **times}
    amount = format_decimal(record.amount, peer.asset)
    return represent(UnresolvedPacket, peer, peer=peer.name, amount=amount, **own)


def require_unresolved(work: Work, id: str) -> PacketRecord:
    """Raises NotFound, and WrongState for a packet whose outcome is known or still being determined."""
    advice = "`payres peer unresolved NAME --packets` lists those of a peer"
    packet = require(PACKETS.get(work, id), f"There is no packet {id!r}", advice)
    if packet.state != "doubtful":
        what = "in flight, or the server is finding out" if packet.state == "prepared" else f"{packet.state} already"
        raise WrongState(f"The packet is {what}; only unresolved ones can be resolved", advice=advice)
    return packet


def _peer_of(work: Work, packet: PacketRecord) -> PeerRecord:
    peer = peers.peer_by_id(work, packet.to_peer_id)
    if peer is None:
        raise WrongState("The peer of the packet was removed; settle with it outside of payres")
    return peer


def _will(one: UnresolvedPacket) -> Sequence[str]:
    return [
        "Ask the operator of the peer first whether the packet was delivered; this cannot be undone.",
        f"Delivered: the peer is owed {one.asset_code} {one.amount}, which is paid out of your liquidity.",
        "Returned: nothing is owed, and the grant of the payment gets back what it had counted for it.",
    ]


PACKET: Final = Shape(
    packet,
    Column("Packet", "id", "code", section="packets"),
    Column("Peer", "peer", "long", section="peers"),
    Column("Payment", "payment", "code", section="payments"),
    Column("Wallet", "wallet", "long", section="wallets"),
    Column("Amount", "amount", "number"),
    Column("Asset", "asset_code", listed="in files"),
    Column("Expired or received (UTC)", lambda one: one.expired_at or one.received_at, "second"),
    Column("To compare", lambda one: RECEIVED if one.received_at else SENT, "long"),
    read=require_unresolved,
)


@operation(
    "GET /peers/{name}/unresolved-packets peers:read",
    PACKET,
    listing=Listing("packets", NONE, "Unresolved packets of {name}"),
)
def list_unresolved(work: Work, name: str) -> Sequence[PacketRecord | TakenPacket]:
    """List the unresolved packets of a peer and those to compare."""
    peer = require_peer(work, name)
    return [*packets.unresolved_packets(work, peer.id), *packets.unsure_packets(work, peer, work.now)]


@operation(
    "PUT /packets/{id}/outcome peers:write",
    command=CommandLine(
        "peer resolve PACKET",
        "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --delivered",
        text="Packet {id} with {asset_code} {amount} is recorded as {outcome}",
    ),
    form=OperationForm(
        {"delivered": "It arrived", "returned": "It did not"},
        PACKET,
        path="/packets/{id}",
        title="Resolve a packet",
        done="The packet of {asset_code} {amount:money} is recorded as {outcome}",
        back="/peers/{peer}",
        question="What happened to it?",
        will=_will,
    ),
    audits="packet.resolve",
)
def resolve(work: Work, id: str, outcome: Annotated[Resolution, said(flags=OUTCOMES)]) -> ResolvedPacket:
    """Record the outcome of an unresolved packet.

    PACKET is its id in `payres peer unresolved --packets`. The payer has the money back, so a delivered packet is owed
    to the peer out of your liquidity.
    """
    packet = require_unresolved(work, id)
    peer, payment = _peer_of(work, packet), payment_of(work, packet)
    if outcome == "delivered":
        _pay_out(work, packet, peer.account_id, packet.amount, "payment")
        peers.count_sent(work, peer.id)
    elif accounts.transferred_of_packet(work, payment.id, packet.id):  # a version before 0.2 charged the payer
        payer = WALLETS.by_id(work, payment.wallet_address_id)
        _pay_out(work, packet, payer.account_id, packet.source_amount, "exchange")
    else:
        release_unresolved(work, packet)
    packets.decide_packet(work, packet.id, "fulfilled" if outcome == "delivered" else "rejected", before="doubtful")
    audit.record(work, "packet.resolve", packet.id, peer=peer.name, outcome=outcome)
    return ResolvedPacket(**asdict(PACKET.show(work, packet)), outcome=outcome)


def _pay_out(work: Work, packet: PacketRecord, account_id: int, amount: int, kind: str) -> None:
    """Pays out of the operator's liquidity. Raises InsufficientFunds."""
    asset = ASSETS.by_id(work, ACCOUNTS.by_id(work, account_id).asset_id)
    liquidity = ledger.operator_account(work, asset.id, "liquidity")
    try:
        cause = Cause(outgoing_payment_id=packet.outgoing_payment_id, packet_id=packet.id)
        warn_of_low(work, ledger.transfer(work, liquidity, account_id, amount, kind, **cause).low)
    except ledger.NotEnough as lack:
        free, needed = (format_decimal(figure, asset.asset) for figure in (lack.free, amount))
        raise InsufficientFunds(
            f"It is paid out of the liquidity in {asset.code} with scale {asset.scale}, which has {asset.code} {free}"
            f" free and needs {asset.code} {needed}",
            advice=f"deposit it with `payres liquidity deposit {needed} --asset {asset.code} --scale {asset.scale}`",
            reason="liquidity",
        ) from lack


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
    first_at: Time
    last_at: Time
    least: str | None
    most: str | None


def unresolved_payment(work: Work, group: UnresolvedGroup) -> UnresolvedPayment:
    peer, one, least = group.peer, group.packets[0], None
    amount = sum(packet.amount for packet in group.packets)
    times = [packet.created_at if isinstance(packet, TakenPacket) else packet.expires_at for packet in group.packets]
    if isinstance(one, TakenPacket):
        about = {"direction": "incoming", "payment": one.incoming_payment_id, "receiver": None, "wallet": one.wallet}
        if one.incoming_payment_id is not None:
            about["receiver"] = work.urls.resource("incoming-payments", one.incoming_payment_id)
            least = packets.received_amount(work, peer, one.incoming_payment_id) - amount
    else:
        outgoing = payment_of(work, one)
        wallet = WALLETS.by_id(work, outgoing.wallet_address_id).path
        about = {"direction": "outgoing", "payment": outgoing.id, "receiver": outgoing.terms.receiver, "wallet": wallet}
        least = packets.delivered_amount(work, outgoing.id, peer.id)
    about["forwarded_to"] = one.forwarded_to if isinstance(one, TakenPacket) else None
    sums = decimals(peer.asset, amount=amount, least=least, most=None if least is None else least + amount)
    counted = {"packets": len(group.packets), "first_at": min(times), "last_at": max(times)}
    return represent(UnresolvedPayment, peer, peer=peer.name, **about, **sums, **counted)


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
    Column("Forwarded to", "forwarded_to", "long", section="peers"),
    Column("Packets", "packets", "number"),
    Column("Amount", "amount", "number"),
    Column("Asset", "asset_code", listed="in files"),
    Column("First (UTC)", lambda one: one.first_at, "second"),
    Column("Last (UTC)", lambda one: one.last_at, "second"),
    Column("To compare", to_compare, "long"),
)


@operation(
    "GET /peers/{name}/unresolved-payments peers:read",
    UNRESOLVED_PAYMENT,
    command=CommandLine(
        "peer unresolved NAME",
        "first-bank\nfirst-bank --packets",
        besides={"packets": (list_unresolved, "List each packet, with its id for `payres peer resolve`.")},
        once="doubts",
    ),
    listing=Listing("payments", "No packet to {name} is unresolved"),
    noun="unresolved_payments",
)
def list_unresolved_payments(work: Work, name: str) -> Sequence[UnresolvedGroup]:
    """List the payments with unresolved packets of a peer.

    Each has the figures to compare with the peer's operator. The peer did not answer packets of our payments, and the
    receiver's balance does not show whether they arrived. Their payers have the money back. `payres peer resolve`
    records what the peer can prove.

    Packets from the peer are those accepted in the last 5 seconds before the server was killed, within the last 30
    days. A peer that does not repeat requests may have got no answer, and send the money again: compare the balances.

    With --json, both lists are printed: payments and packets.
    """
    peer = require_peer(work, name)
    groups: dict[object, list[PacketRecord | TakenPacket]] = {}
    for one in list_unresolved(work, name):
        key = (one.incoming_payment_id, one.forwarded_to) if isinstance(one, TakenPacket) else one.outgoing_payment_id
        groups.setdefault(key, []).append(one)
    return [UnresolvedGroup(peer, found) for found in groups.values()]
