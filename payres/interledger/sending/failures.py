"""Why a payment cannot be quoted, or ends before its time."""

from enum import StrEnum
from typing import Final


class Failure(StrEnum):
    """The codes that STREAM senders use."""

    RATE_PROBE_FAILED = "RateProbeFailed"
    CONNECTOR_ERROR = "ConnectorError"
    ESTABLISHMENT_FAILED = "EstablishmentFailed"
    INSUFFICIENT_EXCHANGE_RATE = "InsufficientExchangeRate"
    IDLE_TIMEOUT = "IdleTimeout"
    CLOSED_BY_RECEIVER = "ClosedByReceiver"
    UNENFORCEABLE_DELIVERY = "UnenforceableDelivery"
    EXTERNAL_RATE_UNAVAILABLE = "ExternalRateUnavailable"
    RECEIVER_PROTOCOL_VIOLATION = "ReceiverProtocolViolation"
    INCOMPATIBLE_RECEIVE_MAX = "IncompatibleReceiveMax"
    DESTINATION_ASSET_CONFLICT = "DestinationAssetConflict"


# What may have passed when the payment is tried again later: a fault of the path, the rate, or a busy receiver.
RETRYABLE: Final = frozenset(
    {
        Failure.RATE_PROBE_FAILED,
        Failure.CONNECTOR_ERROR,
        Failure.ESTABLISHMENT_FAILED,
        Failure.INSUFFICIENT_EXCHANGE_RATE,
        Failure.IDLE_TIMEOUT,
        Failure.CLOSED_BY_RECEIVER,
    }
)


class SendingFailed(Exception):
    """A payment cannot be quoted or goes no further; `sentence` says why."""

    def __init__(self, reason: Failure, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence

    @property
    def retryable(self) -> bool:
        """Whether to try again later with what is left."""
        return self.reason in RETRYABLE
