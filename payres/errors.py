"""Errors: why payres does not do something, in a sentence that says what the caller can do.

Each class has its HTTP status, its code and its fixed words; `docs/errors.md` lists them. The command prints the
sentence; the connector answers with ILP codes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

from payres.signatures.reasons import Reason

T = TypeVar("T")
# A client that may not do something must learn why without reading sentences.
REASON_REQUIRED: Final = (401, 403)


class DomainError(Exception):
    """The text is one sentence for the caller.

    `details` is a JSON object for programs: `field` names the member at fault as in the request, `reason` is a stable
    word for one case of the class, one of `reasons`. `headers` go out with an answer over HTTP.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    reasons: ClassVar[tuple[str, ...]]
    # The words that known clients compare, which are those of Rafiki: of the code ("") and of some of the reasons. By
    # default they are the code in words.
    descriptions: ClassVar[Mapping[str, str]]

    def __init_subclass__(
        cls,
        status: int = 0,
        code: str = "",
        reasons: tuple[str, ...] = (),
        descriptions: Mapping[str, str] | None = None,
    ) -> None:
        if status:
            cls.status, cls.code, cls.reasons, cls.descriptions = status, code, reasons, descriptions or {}

    def __init__(self, sentence: str, headers: Mapping[str, str] | None = None, /, **details: Any) -> None:
        super().__init__(sentence)
        self.headers = headers or {}
        self.details = details
        reason = details.get("reason")
        self.description = self.described(reason)
        assert reason in self.reasons or (reason is None and self.status not in REASON_REQUIRED), (
            f"{reason} is not a documented reason of {self.code}"
        )

    @classmethod
    def described(cls, reason: str | None) -> str:
        """The fixed words for the code and reason."""
        return cls.descriptions.get(reason or "") or cls.descriptions.get("") or cls.code.replace("_", " ")


def kinds_of_errors(base: type[DomainError] = DomainError) -> Iterator[type[DomainError]]:
    """Every class of errors."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of_errors(kind)


class InvalidRequest(DomainError, status=400, code="invalid_request"):
    """The request breaks a rule of form."""


class InvalidAmount(
    DomainError,
    status=400,
    code="invalid_amount",
    reasons=("nothing_arrives",),
    descriptions={"nothing_arrives": "non-positive receive amount"},
):
    """An amount is malformed, in another asset, too small or too large."""


class InvalidReceiver(
    DomainError,
    status=400,
    code="invalid_receiver",
    reasons=(
        *("no_exchange_rate", "exchange_rate_expired", "no_path"),
        *("not_found", "unreachable", "refused", "bad_content", "completed", "expired", "no_ilp_method"),
    ),
    descriptions={"": "invalid receiver"},
):
    """The receiver cannot be paid, or not now."""


class NoRate(InvalidReceiver):
    """There is no exchange rate between two currencies, or, if `is_stale`, none that is fresh enough."""

    def __init__(self, sentence: str, /, *, is_stale: bool) -> None:
        super().__init__(sentence, reason="exchange_rate_expired" if is_stale else "no_exchange_rate")
        self.is_stale = is_stale


class InvalidQuote(DomainError, status=400, code="invalid_quote"):
    """The quote is unknown, expired, or no longer fits its receiver."""


class InvalidExpiry(DomainError, status=400, code="invalid_expiry"):
    """The time of expiry is malformed, or not in the permitted range."""


class InvalidInteraction(DomainError, status=400, code="invalid_interaction"):
    """The request for consent has expired."""


class InvalidClient(DomainError, status=400, code="invalid_client", reasons=(Reason.UNKNOWN_KEY.value,)):
    """A grant request does not name a usable client, or one whose keys do not include that of the signature."""


class TooEarly(DomainError, status=400, code="too_fast"):
    """A continuation request came before its wait was over."""


class ClientUnproven(
    DomainError,
    status=401,
    code="invalid_client",
    reasons=(*(reason.value for reason in Reason), "missing_token", "unknown_client"),
    descriptions={reason.value: f"Signature validation error: {reason.value}" for reason in Reason},
):
    """The signature, digest or key does not prove who the client is."""


class TokenInvalid(
    DomainError,
    status=401,
    code="invalid_token",
    reasons=("missing_token", "unknown_token", "expired_token", "revoked_token", "other_token"),
    descriptions={"": "Invalid Token"},
):
    """The access token is missing or unknown, has expired or was revoked."""


class BearerTokenInvalid(TokenInvalid):
    """The same of a token or key that is no client's, and sent as `Authorization: Bearer` (RFC 6750)."""

    def __init__(self, sentence: str, /, reason: str) -> None:
        super().__init__(sentence, {"WWW-Authenticate": "Bearer"}, reason=reason)


class RequestDenied(
    DomainError,
    status=401,
    code="request_denied",
    reasons=(
        *("undecided", "decision_expired", "approval_expired", "missing_interact_ref", "already_issued"),
        *("wrong_password", "signed_out"),
    ),
):
    """What was asked for is not given, or not yet; `reason` says why."""


class GrantNotIssued(RequestDenied):
    """The grant has no token, or not yet."""


class SignInFailed(RequestDenied):
    """The password is wrong, or the browser is signed out."""


class GrantDenied(DomainError, status=401, code="user_denied", reasons=("owner_denied",)):
    """The wallet's owner denied the grant."""


class InsufficientAccess(
    DomainError,
    status=403,
    code="insufficient_access",
    reasons=("action", "identifier", "csrf", "cross_site", "scope"),
):
    """The grant, API key or form does not permit this."""


class LimitExceeded(
    DomainError,
    status=403,
    code="limit_exceeded",
    reasons=("debitAmount", "receiveAmount", "interval", "receiver"),
    descriptions={"": "unauthorized"},
):
    """A limit of the grant is exceeded; `reason` names it."""


class InsufficientFunds(
    DomainError,
    status=403,
    code="insufficient_funds",
    reasons=("wallet", "liquidity", "fees", "peer"),
    descriptions={"wallet": "unauthorized"},
):
    """An account does not have the amount; `reason` is the kind of account."""


class NotFound(DomainError, status=404, code="not_found"):
    """It does not exist, or the caller must not learn that it does."""


def require(found: T | None, sentence: str) -> T:
    """What was looked up. Raises NotFound, with this sentence, when there is none."""
    if found is None:
        raise NotFound(sentence)
    return found


def nothing_here() -> NotFound:
    """There is nothing at the address, or nothing that the caller may know of."""
    return NotFound("There is nothing at this address")


class InteractionUnknown(DomainError, status=404, code="unknown_interaction"):
    """There is no such request for consent."""


class RotationUnknown(DomainError, status=404, code="invalid_rotation"):
    """There is no access token to rotate."""


class ContinuationUnknown(DomainError, status=404, code="invalid_continuation", reasons=("unknown_continuation",)):
    """There is no grant to continue with this URI, token and interact_ref."""


class MethodNotAllowed(DomainError, status=405, code="method_not_allowed"):
    """There is something at the address, but it takes other methods: `allowed`, with commas between."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"This address takes {allowed} only", {"Allow": allowed})


class NotAcceptable(DomainError, status=406, code="not_acceptable"):
    """The Accept header rules out every type that the answer could have."""


class TooSlow(DomainError, status=408, code="too_slow"):
    """The request did not come in time."""


class WrongState(DomainError, status=409, code="wrong_state"):
    """The state of the resource does not permit the request."""


class BodyTooLarge(DomainError, status=413, code="too_large"):
    """The body is longer than the server takes."""


class UnsupportedMediaType(DomainError, status=415, code="unsupported_media_type"):
    """The body is sent as something that the address does not take."""


class KeyReused(DomainError, status=422, code="idempotency_key_reused", reasons=("path", "body")):
    """An Idempotency-Key was used before, for another request."""


class TooManyRequests(DomainError, status=429, code="too_many_requests"):
    """The requests are too many. `retry_after` is the number of seconds until the next is accepted."""

    def __init__(self, sentence: str, /, *, retry_after: int) -> None:
        super().__init__(sentence, {"Retry-After": str(retry_after)})
        self.retry_after = retry_after


class HeadTooLarge(DomainError, status=431, code="too_large"):
    """The request line and headers are longer than the server takes."""


class ServerFailed(DomainError, status=500, code="internal_error"):
    """A fault of this server."""


class Unavailable(DomainError, status=503, code="unavailable"):
    """Storage or capacity is missing; nothing was changed. `retry_after` is the number of seconds to wait."""

    def __init__(self, sentence: str, /, *, retry_after: int = 1) -> None:
        super().__init__(sentence, {"Retry-After": str(retry_after)})


class OutcomeUnknown(DomainError, status=504, code="unavailable"):
    """What was asked for is under way, and its outcome is not known yet."""

    def __init__(self, sentence: str, /) -> None:
        super().__init__(sentence, {"Retry-After": "1"})
