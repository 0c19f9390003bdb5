"""Unresolved packets: nobody knows whether they arrived. An operator resolves them with the peer.

The payer has the money back. So if a packet was delivered, the operator's liquidity pays the peer for it; if it was
not, no money moves.

The packets from a peer that the peer may not have counted are listed with them, so that both sides can compare.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec.structs import asdict

from payres.core.payments import ledger
from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import InsufficientFunds, WrongState, require
from payres.core.protocol.wire import Resource
from payres.core.store import accounts, server
from payres.core.store.accounts import ACCOUNTS, ASSETS, Cause
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.interledger.settlement import payment_of, release_unresolved, warn_of_low
from payres.interledger.store import packets, peers
from payres.interledger.store.packets import PACKETS, PacketRecord, TakenPacket
from payres.interledger.store.peers import PeerRecord
from payres.operator.declarations import endpoint, form, lists
from payres.operator.peers import require_peer
from payres.operator.shapes import Column, Shape

Outcome = Literal["delivered", "returned"]
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
    expired_at: str | None
    received_at: str | None


class ResolvedPacket(UnresolvedPacket, frozen=True, kw_only=True):
    outcome: Outcome


def packet(work: Work, record: PacketRecord | TakenPacket) -> UnresolvedPacket:
    if isinstance(record, TakenPacket):
        peer, payment, wallet = record.peer, record.incoming_payment_id, record.wallet
        id, expired_at, received_at = None, None, format_time(record.created_at)
    else:
        peer, outgoing = _peer_of(work, record), payment_of(work, record)
        payment, wallet = outgoing.id, WALLETS.by_id(work, outgoing.wallet_address_id).path
        id, expired_at, received_at = record.id, format_time(record.expires_at), None
    return UnresolvedPacket(
        id=id,
        peer=peer.name,
        payment=payment,
        wallet=wallet,
        amount=format_decimal(record.amount, peer.asset),
        asset_code=peer.asset_code,
        asset_scale=peer.asset_scale,
        expired_at=expired_at,
        received_at=received_at,
    )


def require_unresolved(work: Work, id: str) -> PacketRecord:
    """Raises NotFound, and WrongState for a packet whose outcome is known or still being determined."""
    sentence = f"There is no packet {id!r}; `payres peer unresolved NAME --packets` lists those of a peer"
    packet = require(PACKETS.get(work, id), sentence)
    if packet.state != "doubtful":
        what = "in flight, or the server is finding out" if packet.state == "prepared" else f"{packet.state} already"
        raise WrongState(f"The packet is {what}; only what `payres peer unresolved --packets` lists can be resolved")
    return packet


def _peer_of(work: Work, packet: PacketRecord) -> PeerRecord:
    peer = peers.peer_by_id(work, packet.to_peer_id)
    if peer is None:
        raise WrongState("The peer of the packet was removed; settle with it outside of payres")
    return peer


def _will(one: UnresolvedPacket) -> Sequence[str]:
    return [
        "Ask the operator of the peer first whether the packet was delivered; this cannot be undone.",
        f"Delivered: the peer is owed {one.amount} {one.asset_code}, which is paid out of your liquidity.",
        "Returned: nothing is owed, and the grant of the payment gets back what it had counted for it.",
    ]


PACKET: Final = Shape(
    packet,
    Column("Packet", "id", "code", section="packets"),
    Column("Peer", "peer", "long", section="peers"),
    Column("Payment", "payment", "code", section="payments"),
    Column("Wallet", "wallet", "long", section="wallets"),
    Column("Amount", "amount", "number"),
    Column("Asset", "asset_code"),
    Column("Expired or received (UTC)", lambda one: one.expired_at or one.received_at, "time"),
    Column("To compare", lambda one: RECEIVED if one.received_at else SENT, "long"),
    read=require_unresolved,
)


@endpoint("GET /peers/{name}/unresolved-packets", "peers:read", PACKET)
@lists("packets", NONE, "Unresolved packets of {name}")
def list_unresolved(work: Work, name: str) -> Sequence[PacketRecord | TakenPacket]:
    """List the unresolved packets of a peer and those to compare."""
    peer = require_peer(work, name)
    return [*packets.unresolved_packets(work, peer.id), *packets.unsure_packets(work, peer, work.now)]


@endpoint("PUT /packets/{id}/outcome", "peers:write")
@form(
    "/packets/{id}",
    "Resolve a packet",
    {"delivered": "It was delivered", "returned": "It came back"},
    _will,
    PACKET,
    back="/peers/{peer}",
    question="What happened to it?",
    moves_money=True,
)
def resolve(work: Work, id: str, outcome: Outcome) -> ResolvedPacket:
    """Record the outcome of an unresolved packet."""
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
    server.record(work, "packet.resolve", packet.id, peer=peer.name, outcome=outcome)
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
            f"It is paid out of the liquidity in {asset.code} with scale {asset.scale}, which has {free} free and"
            f" needs {needed}; deposit it with"
            f" `payres liquidity deposit {needed} --asset {asset.code} --scale {asset.scale}`",
            reason="liquidity",
        ) from lack
