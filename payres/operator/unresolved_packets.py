"""Unresolved packets: nobody knows whether they arrived. How an operator resolves them with the peer.

The payer has the money back. So if a packet was delivered, the operator's liquidity pays the peer for it; if it was
not, no money moves.
"""

from collections.abc import Sequence

import msgspec

from payres import ledger
from payres.amounts import format_decimal
from payres.errors import InsufficientFunds, WrongState, require
from payres.operator.peers import require_peer
from payres.payments.liquidity import warn_of_low
from payres.payments.settlement import payment_of, release_unresolved
from payres.store import accounts, audit, packets, peers
from payres.store.accounts import ACCOUNTS, Cause
from payres.store.assets import ASSETS
from payres.store.outgoing import OutgoingRecord
from payres.store.packets import PACKETS, PacketRecord
from payres.store.peers import PeerRecord
from payres.store.wallets import WALLETS, WalletRecord
from payres.store.work import Work


class UnresolvedPacket(msgspec.Struct, frozen=True):
    """A packet with the peer that it went to, and the payment and the wallet that it came from."""

    packet: PacketRecord
    peer: PeerRecord
    payment: OutgoingRecord
    wallet: WalletRecord


def list_unresolved(work: Work, name: str) -> Sequence[UnresolvedPacket]:
    """The unresolved packets to a peer, oldest first. Raises NotFound."""
    peer = require_peer(work, name)
    return [_described(work, packet, peer) for packet in packets.unresolved_packets(work, peer.id)]


def resolve(work: Work, packet_id: str, *, delivered: bool) -> UnresolvedPacket:
    """Records a packet as delivered, so that we owe the peer its amount, or as returned. Returns it as it was.

    Raises NotFound, WrongState for a packet whose outcome is known or is still being found out, InsufficientFunds.
    """
    unresolved = require_unresolved(work, packet_id)
    packet, peer = unresolved.packet, unresolved.peer
    if delivered:
        _pay_out(work, packet, peer.account_id, packet.amount, "payment")
        peers.count_sent(work, peer.id)
    elif accounts.transferred_of_packet(work, unresolved.payment.id, packet.id):  # a version before 0.2 charged it
        _pay_out(work, packet, unresolved.wallet.account_id, packet.source_amount, "exchange")
    else:
        release_unresolved(work, packet)
    packets.resolve_packet(work, packet.id, "fulfilled" if delivered else "rejected")
    outcome = "delivered" if delivered else "returned"
    audit.record(work, "packet.resolve", packet.id, peer=peer.name, outcome=outcome)
    return unresolved


def require_unresolved(work: Work, packet_id: str) -> UnresolvedPacket:
    """Raises NotFound, WrongState for a packet whose outcome is known or is still being found out."""
    found = PACKETS.get(work, packet_id)
    packet = require(found, f"There is no packet {packet_id!r}; `payres peer unresolved NAME` lists those of a peer")
    if packet.state != "doubtful":
        what = "in flight, or the server is finding out" if packet.state == "prepared" else f"{packet.state} already"
        raise WrongState(f"The packet is {what}; only what `payres peer unresolved` lists can be resolved")
    peer = peers.peer_by_id(work, packet.to_peer_id)
    if peer is None:
        raise WrongState("The peer of the packet was removed; settle with it outside of payres")
    return _described(work, packet, peer)


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
            f"It is paid out of the liquidity in {asset.code} with scale {asset.scale}, which has {free} free and needs"
            f" {needed}; deposit it with `payres liquidity deposit {asset.code} {asset.scale} {needed}`",
            reason="liquidity",
        ) from lack


def _described(work: Work, packet: PacketRecord, peer: PeerRecord) -> UnresolvedPacket:
    payment = payment_of(work, packet)
    return UnresolvedPacket(packet, peer, payment, WALLETS.by_id(work, payment.wallet_address_id))
