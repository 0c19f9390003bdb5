"""The terms of a payment: what leaves the sender, what arrives, at whom, and over which way.

A quote offers them, a payment is made on them, a grant's limits are checked against them.
"""

import msgspec

from payres.amounts import Asset


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe found: bounds of delivered per sent smallest unit ("n/d"), and the largest packet that gets through.

    `sends_all` is for a payment that shall send all of its debit amount, rather than deliver an amount and stop.
    """

    low: str
    high: str
    max_packet: str
    sends_all: bool


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """At most `debit` leaves the sender, `fee` of it stays with the operator, `receive` arrives; in minor units.

    `debit` and `fee` are in the sender's asset, `receive` is in `asset`, the receiver's. `receiver` is a canonical URL;
    `incoming_payment_id` is set when it is on this server, `path` when it is not.
    """

    receiver: str
    incoming_payment_id: str | None
    debit: int
    fee: int
    receive: int
    asset: Asset
    path: Path | None = None


class Offer(msgspec.Struct, frozen=True):
    """Terms for a receiver on another server. `expires_at` (microseconds) is its own end, None when it has none."""

    terms: Terms
    expires_at: int | None


def encode_path(path: Path) -> str:
    """The path as rows keep it."""
    return msgspec.json.encode(path).decode()


def decode_path(text: str) -> Path:
    """The path that `encode_path` wrote."""
    return msgspec.json.decode(text, type=Path)
