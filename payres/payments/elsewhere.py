"""Payments to receivers on other servers: what was found out about the way there, and what a quote offers for it.

The way itself is `payres.interledger`'s; here are the values that quotes and outgoing payments keep of it.
"""

import msgspec

from payres.amounts import Asset
from payres.urls import Urls


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe found: bounds of delivered per sent smallest unit ("n/d"), and the largest packet that gets through.

    `sends_all` is for a payment that shall send all of its debit amount, rather than deliver an amount and stop.
    """

    low: str
    high: str
    max_packet: str
    sends_all: bool


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of paying a receiver elsewhere: at most `debit` leaves, `fee` of it, and at least `receive` arrives.

    expires_at (microseconds) is when the receiver stops taking money, None when it never does.
    """

    receiver: str
    debit: int
    fee: int
    receive: int
    receive_asset: Asset
    path: Path
    expires_at: int | None


def is_elsewhere(urls: Urls, url: str) -> bool:
    """Whether a URL can be an incoming payment of another server."""
    return urls.plain_receiver(url) is not None and not urls.is_ours(url)


def encode_path(path: Path) -> str:
    """The path as quotes and payments keep it."""
    return msgspec.json.encode(path).decode()


def decode_path(text: str) -> Path:
    """The path that `encode_path` wrote."""
    return msgspec.json.decode(text, type=Path)
