"""ILP packets and their outcomes. `oer` has them as bytes."""

import hashlib
import hmac
import struct
from enum import StrEnum
from typing import Final

import msgspec

HASH_BYTES: Final = 32  # of a condition and of its fulfillment
CODE_BYTES: Final = 3
MAX_QUOTED: Final = 100  # characters quoted from another node
_TOO_LARGE = struct.Struct("!QQ")


class Code(StrEnum):
    """Reasons for rejecting a packet. F: final; T: temporary; R: relative, may pass with more money or time."""

    BAD_REQUEST = "F00"
    INVALID_PACKET = "F01"
    UNREACHABLE = "F02"
    INVALID_AMOUNT = "F03"
    INSUFFICIENT_DESTINATION_AMOUNT = "F04"
    WRONG_CONDITION = "F05"
    UNEXPECTED_PAYMENT = "F06"
    CANNOT_RECEIVE = "F07"
    AMOUNT_TOO_LARGE = "F08"
    APPLICATION_ERROR = "F99"
    INTERNAL_ERROR = "T00"
    PEER_UNREACHABLE = "T01"
    PEER_BUSY = "T02"
    CONNECTOR_BUSY = "T03"
    INSUFFICIENT_LIQUIDITY = "T04"
    RATE_LIMITED = "T05"
    TEMPORARY_APPLICATION_ERROR = "T99"
    TRANSFER_TIMED_OUT = "R00"
    INSUFFICIENT_SOURCE_AMOUNT = "R01"
    INSUFFICIENT_TIMEOUT = "R02"
    RELATIVE_APPLICATION_ERROR = "R99"


class Prepare(msgspec.Struct, frozen=True):
    """An offer of `amount` for the preimage of `condition`, until `expires_at` in microseconds.

    On the wire, the time has milliseconds. It is rounded down, so that an offer never gets longer.
    """

    amount: int
    expires_at: int
    condition: bytes
    destination: str
    data: bytes = b""


class Fulfill(msgspec.Struct, frozen=True):
    """Accepts the offer: the condition is the SHA-256 of the fulfillment."""

    fulfillment: bytes
    data: bytes = b""

    def fits(self, condition: bytes) -> bool:
        """Whether the fulfillment is the preimage of the condition (RFC 27)."""
        return hmac.compare_digest(hashlib.sha256(self.fulfillment).digest(), condition)


class Reject(msgspec.Struct, frozen=True):
    """Declines the offer. `code` is a Code or unknown; `triggered_by` is the node's address, or empty."""

    code: str
    triggered_by: str = ""
    message: str = ""
    data: bytes = b""

    def __str__(self) -> str:
        """The code, its origin and the message, in one line."""
        origin = f" from {self.triggered_by[:MAX_QUOTED]}" if self.triggered_by else ""
        said = f" ({self.message[:MAX_QUOTED]!r})" if self.message else ""
        amounts = ", {} received, {} at most".format(*self.too_large) if self.too_large else ""
        return f"{self.code}{origin}{said}{amounts}"

    @property
    def too_large(self) -> tuple[int, int] | None:
        """The received amount and the maximum of AMOUNT_TOO_LARGE, if it has them (RFC 27 only recommends it)."""
        if self.code != Code.AMOUNT_TOO_LARGE or len(self.data) < _TOO_LARGE.size:
            return None
        received, maximum = _TOO_LARGE.unpack_from(self.data)
        return received, maximum


Reply = Fulfill | Reject


class Unanswered(msgspec.Struct, frozen=True):
    """No reply: the packet is unresolved, unless it was not `sent` and the peer will never process it."""

    why: str
    sent: bool = True


Outcome = Reply | Unanswered


class PacketRejected(Exception):
    """Ends the work on a packet, which is answered with a Reject; an open unit of work is rolled back.

    `message` is for any sender: it contains no names or balances.
    """

    def __init__(self, code: Code, message: str = "", data: bytes = b"") -> None:
        super().__init__(f"{code} {message}".rstrip())
        self.code = code
        self.message = message
        self.data = data

    def reject(self, triggered_by: str) -> Reject:
        """The Reject, with this node's ILP address."""
        return Reject(self.code, triggered_by, self.message, self.data)


def too_large_data(received: int, maximum: int) -> bytes:
    """The data of a Reject with AMOUNT_TOO_LARGE, both amounts in the rejecting node's units."""
    return _TOO_LARGE.pack(received, maximum)
