"""What the outcome of a packet says about the payment: whether it may go on, more slowly, or with smaller packets."""

from typing import Final

from payres.amounts import Asset
from payres.interledger.frames import ConnectionAssetDetails, ConnectionClose, Frame, StreamClose, StreamMaxMoney
from payres.interledger.packets import Code, Fulfill, Reject
from payres.interledger.sending.channel import STREAM_ID, Answer
from payres.interledger.sending.failures import Failure, SendingFailed

MAX_QUOTED: Final = 100  # characters of what a stranger wrote

# Another packet may pass although this one did not: it carried too little for the receiver, was larger than the path
# takes, or was made so that nobody can fulfill it. Receivers say the latter with any of the first three.
_TOLERATED: Final = {
    Code.APPLICATION_ERROR,
    Code.INSUFFICIENT_DESTINATION_AMOUNT,
    Code.WRONG_CONDITION,
    Code.AMOUNT_TOO_LARGE,
    Code.INSUFFICIENT_SOURCE_AMOUNT,
}


def is_congested(answer: Answer) -> bool:
    """Whether the path could not cope with the packet: a code that begins with T, or no outcome at all."""
    if isinstance(answer.outcome, Reject):
        return answer.outcome.code.startswith("T")
    return not isinstance(answer.outcome, Fulfill)


def too_large(answer: Answer) -> bytes | None:
    """The data of a Reject because of the packet's size, which may tell the size that passes (RFC 27)."""
    if isinstance(answer.outcome, Reject) and answer.outcome.code == Code.AMOUNT_TOO_LARGE:
        return answer.outcome.data
    return None


def fatal(answer: Answer, asset: Asset) -> SendingFailed | None:
    """What ends the payment, if anything does; `asset` is what the receiver is known to count in."""
    for frame in answer.frames:
        if failure := _frame_failure(frame, asset):
            return failure
    if not isinstance(answer.outcome, Reject) or is_congested(answer) or answer.outcome.code in _TOLERATED:
        return None
    return SendingFailed(Failure.CONNECTOR_ERROR, f"The payment was refused with {describe(answer.outcome)}.")


def objection(answer: Answer, minimum: int, min_delivery: int) -> SendingFailed | None:
    """What is wrong with the receiver's answer to a packet with money.

    At least `minimum` of it had to arrive, and `min_delivery` is what the receiver must be able to take in all.
    """
    if isinstance(answer.outcome, Fulfill) and (answer.stream is None or answer.arrived < minimum):
        return SendingFailed(
            Failure.RECEIVER_PROTOCOL_VIOLATION,
            "The receiver has taken a packet without saying that enough of it has arrived.",
        )
    for frame in answer.frames:
        if not isinstance(frame, StreamMaxMoney) or frame.stream_id != STREAM_ID:
            continue
        if frame.receive_max < min_delivery:
            return SendingFailed(
                Failure.INCOMPATIBLE_RECEIVE_MAX,
                f"The receiver takes {frame.receive_max} units at most, less than the {min_delivery} to be delivered.",
            )
    return None


def describe(reject: Reject) -> str:
    """The code of a Reject, where it comes from, and what it says, in one line."""
    origin = f" from {reject.triggered_by[:MAX_QUOTED]}" if reject.triggered_by else ""
    return f"{reject.code}{origin}" + (f" ({_quote(reject.message)})" if reject.message else "")


def _frame_failure(frame: Frame, asset: Asset) -> SendingFailed | None:
    if isinstance(frame, ConnectionClose) or (isinstance(frame, StreamClose) and frame.stream_id == STREAM_ID):
        said = f": {_quote(frame.message)}" if frame.message else ""
        return SendingFailed(
            Failure.CLOSED_BY_RECEIVER, f"The receiver closed the connection with code {frame.code}{said}."
        )
    if isinstance(frame, ConnectionAssetDetails) and Asset(frame.code, frame.scale) != asset:
        return SendingFailed(
            Failure.DESTINATION_ASSET_CONFLICT,
            f"The receiver counts in {_quote(frame.code)} with scale {frame.scale},"
            f" not in {asset.code} with scale {asset.scale}.",
        )
    return None


def _quote(text: str) -> str:
    """Somebody else's text, cut, and with its line breaks and other control characters written out."""
    return repr(text[:MAX_QUOTED])
