"""Why a payment cannot be quoted, or ends before its time."""

from enum import StrEnum
from typing import Final


class Failure(StrEnum):
    """The words that STREAM senders have for it."""

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
    MAX_SAFE_ENCRYPTION_LIMIT = "MaxSafeEncryptionLimit"


# What may be over when the payment is tried again later: the path, the rate, or a receiver that was busy.
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
        """Whether it may work when what is left is tried again later."""
        return self.reason in RETRYABLE
