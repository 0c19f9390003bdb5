"""The next hop of a packet: the peer that its destination is reached through, and what it carries there."""

from fractions import Fraction
from typing import Final

import msgspec

from payres.amounts import MAX_VALUE, Asset
from payres.errors import Refusal
from payres.interledger.addresses import covers
from payres.interledger.packets import Code, Reject, too_large_data
from payres.payments.exchange import rate_between
from payres.store import peers
from payres.store.database import Transaction
from payres.store.peers import PeerRecord
from payres.store.secrets import unseal

TOKENS: Final = "peer_tokens"  # the secret that outgoing tokens are sealed with


class Hop(msgspec.Struct, frozen=True):
    """A peer, the token to send with, and the packet's amount in the peer's asset, rounded down."""

    peer: PeerRecord
    token: str
    amount: int


def next_hop(
    tx: Transaction, own_address: str, destination: str, amount: int, source: Asset, inbound: int | None, now: int
) -> Hop | Reject:
    """Where a packet of `amount` in asset `source` goes, never back to peer `inbound`; or why it goes nowhere."""
    peer = _longest_match(tx, destination, source, inbound)
    if peer is None:
        return Reject(Code.UNREACHABLE, own_address, "there is no route to the destination")
    try:
        rate = rate_between(tx, source.code, peer.asset_code, now)
    except Refusal as error:
        return Reject(Code.CANNOT_RECEIVE, own_address, error.description)
    unit_rate = rate * Fraction(10) ** (peer.asset_scale - source.scale)
    onward = amount * unit_rate.numerator // unit_rate.denominator
    if onward > MAX_VALUE:
        largest = MAX_VALUE * unit_rate.denominator // unit_rate.numerator
        data = too_large_data(amount, largest)
        return Reject(Code.AMOUNT_TOO_LARGE, own_address, "the amount is too large to be exchanged", data)
    if amount and not onward:
        return Reject(Code.INSUFFICIENT_SOURCE_AMOUNT, own_address, "nothing is left of the amount after the exchange")
    return Hop(peer, unseal(tx, TOKENS, peer.outgoing_token), onward)


def _longest_match(tx: Transaction, destination: str, source: Asset, inbound: int | None) -> PeerRecord | None:
    """The peer with the longest prefix of the destination; among several, one in the packet's own asset."""
    found = [(p, peer_id) for p, peer_id in peers.list_routes(tx) if peer_id != inbound and covers(p, destination)]
    if not found:
        return None
    longest = max(len(prefix) for prefix, _ in found)
    candidates = [peers.peer_by_id(tx, peer_id) for prefix, peer_id in found if len(prefix) == longest]
    known = [peer for peer in candidates if peer is not None]
    same = [peer for peer in known if (peer.asset_code, peer.asset_scale) == (source.code, source.scale)]
    return next(iter(same or known), None)
