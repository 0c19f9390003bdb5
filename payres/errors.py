"""Domain errors: what payres will not do, or cannot do now, said in a sentence that tells the caller what to do.

They know nothing of HTTP or ILP. Their statuses and codes are one table at the edge, `payres.http.errors`;
the command prints the sentence.
"""

from typing import Any


class DomainError(Exception):
    """Something that payres does not do. The text is one sentence for whoever asked.

    `details` is a JSON object for programs: `field` names the member at fault as the wire writes it, `reason` is a
    stable word that tells apart what one class stands for.
    """

    def __init__(self, sentence: str, /, **details: Any) -> None:
        super().__init__(sentence)
        self.details = details


class InvalidRequest(DomainError):
    """What was asked for breaks a rule of form."""


class InvalidAmount(DomainError):
    """An amount is not one, is in another asset, or is too small or too large."""


class InvalidReceiver(DomainError):
    """The receiver cannot be paid, or not now."""


class NoRate(InvalidReceiver):
    """There is no exchange rate between two currencies, or, if `is_stale`, none that is fresh enough."""

    def __init__(self, sentence: str, /, *, is_stale: bool) -> None:
        super().__init__(sentence, reason="exchange_rate_expired" if is_stale else "no_exchange_rate")
        self.is_stale = is_stale


class InvalidQuote(DomainError):
    """The quote is unknown, expired, or no longer fits its receiver."""


class InvalidExpiry(DomainError):
    """The time of expiry is not one, or outside of what is allowed."""


class InvalidInteraction(DomainError):
    """The request for consent has expired."""


class InvalidClient(DomainError):
    """A grant request does not name its client in a usable way, or not one that lists the key of its signature."""


class TooEarly(DomainError):
    """A continuation request came before its wait was over."""


class TokenInvalid(DomainError):
    """The access token has expired or was revoked."""


class ContinuationUnknown(DomainError):
    """There is no grant to continue with this URI, token and interact_ref."""


class GrantNotIssued(DomainError):
    """The grant gives no token, or not yet; `reason` says why."""


class GrantDenied(DomainError):
    """The wallet's owner denied the grant."""


class SignInFailed(DomainError):
    """The password is wrong, or the browser is signed out."""


class InsufficientAccess(DomainError):
    """The grant, or the form, does not carry the access that this needs."""


class LimitExceeded(DomainError):
    """A limit of the grant is exceeded; `reason` names it."""


class InsufficientFunds(DomainError):
    """An account does not have the amount; `reason` is the kind of account."""


class NotFound(DomainError):
    """It does not exist, or the caller may not know that it does."""


class InteractionUnknown(DomainError):
    """There is no such request for consent."""


class RotationUnknown(DomainError):
    """There is no access token to rotate."""


class WrongState(DomainError):
    """The resource has moved on and the request no longer fits."""


class KeyReused(DomainError):
    """An Idempotency-Key was used before, for another request."""


class TooManyRequests(DomainError):
    """It happens too often. `retry_after` is the seconds until the next is taken."""

    def __init__(self, sentence: str, /, *, retry_after: int) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Unavailable(DomainError):
    """Storage or capacity is lacking; nothing was changed. `retry_after` is the seconds until to try again."""

    def __init__(self, sentence: str, /, *, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
