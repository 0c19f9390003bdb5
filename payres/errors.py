"""Domain errors: why payres does not do something, in a sentence that says what the caller can do.

They are independent of HTTP and ILP. Their statuses and codes are in
`payres.http.error_responses.STATUSES_AND_CODES`; the command prints the sentence.
"""

from typing import Any, TypeVar

T = TypeVar("T")


class DomainError(Exception):
    """The text is one sentence for the caller.

    `details` is a JSON object for programs: `field` names the member at fault as in the request, `reason` is a stable
    word for one case of the class.
    """

    def __init__(self, sentence: str, /, **details: Any) -> None:
        super().__init__(sentence)
        self.details = details


class InvalidRequest(DomainError):
    """The request breaks a rule of form."""


class InvalidAmount(DomainError):
    """An amount is malformed, in another asset, too small or too large."""


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
    """The time of expiry is malformed, or not in the permitted range."""


class InvalidInteraction(DomainError):
    """The request for consent has expired."""


class InvalidClient(DomainError):
    """A grant request does not name a usable client, or one whose keys do not include that of the signature."""


class TooEarly(DomainError):
    """A continuation request came before its wait was over."""


class TokenInvalid(DomainError):
    """The access token has expired or was revoked."""


class ContinuationUnknown(DomainError):
    """There is no grant to continue with this URI, token and interact_ref."""


class GrantNotIssued(DomainError):
    """The grant has no token, or not yet; `reason` says why."""


class GrantDenied(DomainError):
    """The wallet's owner denied the grant."""


class SignInFailed(DomainError):
    """The password is wrong, or the browser is signed out."""


class InsufficientAccess(DomainError):
    """The grant, API key or form does not permit this."""


class LimitExceeded(DomainError):
    """A limit of the grant is exceeded; `reason` names it."""


class InsufficientFunds(DomainError):
    """An account does not have the amount; `reason` is the kind of account."""


class NotFound(DomainError):
    """It does not exist, or the caller must not learn that it does."""


def require(found: T | None, sentence: str) -> T:
    """What was looked up. Raises NotFound, with this sentence, when there is none."""
    if found is None:
        raise NotFound(sentence)
    return found


class InteractionUnknown(DomainError):
    """There is no such request for consent."""


class RotationUnknown(DomainError):
    """There is no access token to rotate."""


class WrongState(DomainError):
    """The state of the resource does not permit the request."""


class KeyReused(DomainError):
    """An Idempotency-Key was used before, for another request."""


class TooManyRequests(DomainError):
    """The requests are too many. `retry_after` is the number of seconds until the next is accepted."""

    def __init__(self, sentence: str, /, *, retry_after: int) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Unavailable(DomainError):
    """Storage or capacity is missing; nothing was changed. `retry_after` is the number of seconds to wait."""

    def __init__(self, sentence: str, /, *, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
