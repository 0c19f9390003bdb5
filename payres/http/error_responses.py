"""Error responses: the status, code and description of every error, and what one looks like.

The one place where domain errors meet HTTP: `STATUSES_AND_CODES` is the table of statuses and codes, `DESCRIPTIONS` has
the words that known clients compare. `docs/errors.md` lists both.
"""

from collections.abc import Mapping
from typing import Any, Final

from payres import errors
from payres.errors import DomainError
from payres.signatures.reasons import Reason

Details = Mapping[str, Any]

# The status and code of each domain error; one that is not here has those of its base class.
STATUSES_AND_CODES: Mapping[type[DomainError], tuple[int, str]] = {
    errors.InvalidRequest: (400, "invalid_request"),
    errors.InvalidAmount: (400, "invalid_amount"),
    errors.InvalidReceiver: (400, "invalid_receiver"),
    errors.InvalidQuote: (400, "invalid_quote"),
    errors.InvalidExpiry: (400, "invalid_expiry"),
    errors.InvalidInteraction: (400, "invalid_interaction"),
    errors.InvalidClient: (400, "invalid_client"),
    errors.TooEarly: (400, "too_fast"),
    errors.TokenInvalid: (401, "invalid_token"),
    errors.GrantNotIssued: (401, "request_denied"),
    errors.GrantDenied: (401, "user_denied"),
    errors.SignInFailed: (401, "request_denied"),
    errors.InsufficientAccess: (403, "insufficient_access"),
    errors.LimitExceeded: (403, "limit_exceeded"),
    errors.InsufficientFunds: (403, "insufficient_funds"),
    errors.NotFound: (404, "not_found"),
    errors.InteractionUnknown: (404, "unknown_interaction"),
    errors.RotationUnknown: (404, "invalid_rotation"),
    errors.ContinuationUnknown: (404, "invalid_continuation"),
    errors.WrongState: (409, "wrong_state"),
    errors.KeyReused: (422, "idempotency_key_reused"),
    errors.TooManyRequests: (429, "too_many_requests"),
    errors.Unavailable: (503, "unavailable"),
}

# What is answered besides: what HTTP itself demands, and what only the edge can know.
_AT_THE_EDGE: Final = (
    *((401, "invalid_client"), (401, "invalid_token"), (401, "invalid_continuation"), (405, "method_not_allowed")),
    *((406, "not_acceptable"), (408, "too_slow"), (413, "too_large"), (415, "unsupported_media_type")),
    *((431, "too_large"), (500, "internal_error"), (504, "unavailable")),
)
# Every code a client can meet, with the statuses it comes with. docs/errors.md is tested against this table.
CODES: Final[dict[str, tuple[int, ...]]] = {}
for _status, _code in sorted({*STATUSES_AND_CODES.values(), *_AT_THE_EDGE}):
    CODES[_code] = (*CODES.get(_code, ()), _status)

# Every word that `details.reason` can hold, by the code that it comes with. A 401 or 403 always has one.
REASONS: Mapping[str, tuple[str, ...]] = {
    "invalid_client": (*(reason.value for reason in Reason), "missing_token", "unknown_client"),
    "invalid_token": ("missing_token", "unknown_token", "expired_token", "revoked_token", "other_token"),
    "invalid_continuation": ("unknown_continuation",),
    "request_denied": (
        *("undecided", "decision_expired", "approval_expired", "missing_interact_ref", "already_issued"),
        *("wrong_password", "signed_out"),
    ),
    "user_denied": ("owner_denied",),
    "insufficient_access": ("action", "identifier", "csrf", "cross_site", "scope"),
    "limit_exceeded": ("debitAmount", "receiveAmount", "interval", "receiver"),
    "insufficient_funds": ("wallet", "liquidity", "fees", "peer"),
    "idempotency_key_reused": ("path", "body"),
    "invalid_amount": ("nothing_arrives",),
    "invalid_receiver": (
        *("no_exchange_rate", "exchange_rate_expired", "no_path"),
        *("not_found", "unreachable", "refused", "bad_content", "completed", "expired", "no_ilp_method"),
    ),
}
# Clients tell errors apart by these words, which are those of Rafiki: by status and code, or also by reason. All other
# descriptions are the code in words.
DESCRIPTIONS: Mapping[tuple[int, str] | tuple[int, str, str], str] = {
    (401, "invalid_token"): "Invalid Token",
    (400, "invalid_receiver"): "invalid receiver",
    (403, "limit_exceeded"): "unauthorized",
    (403, "insufficient_funds", "wallet"): "unauthorized",
    (400, "invalid_amount", "nothing_arrives"): "non-positive receive amount",
    **{(401, "invalid_client", reason.value): f"Signature validation error: {reason.value}" for reason in Reason},
}
# A client that may not do something must learn why without reading sentences.
REASON_REQUIRED: Final = (401, 403)


class ErrorResponse(DomainError):
    """An answer other than the one asked for. What HTTP itself demands is raised as one.

    `status` and `code` are one row of the table in docs/errors.md; `hint` is a sentence that tells the caller what to
    do; `details` is a JSON object, which `hint` becomes a member of, and whose `reason` is one of the code's REASONS;
    `headers` go out with the answer. `description` follows from code and reason.
    """

    def __init__(
        self,
        status: int,
        code: str,
        hint: str,
        details: Details | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        assert status in CODES[code], f"{code} is not documented with status {status}"
        reason = (details or {}).get("reason")
        assert reason is not None or status not in REASON_REQUIRED, f"{code} with status {status} needs a reason"
        assert reason is None or reason in REASONS.get(code, ()), f"{reason} is not a documented reason of {code}"
        super().__init__(hint, **{"hint": hint, **(details or {})})
        self.status = status
        self.code = code
        self.description = description_of(status, code, reason)
        self.headers = headers or {}

    @property
    def hint(self) -> str:
        """The sentence for the caller's eyes."""
        return str(self)


def description_of(status: int, code: str, reason: str | None) -> str:
    """The fixed words for a status, code and reason."""
    known = DESCRIPTIONS.get((status, code, reason)) if reason else None
    return known or DESCRIPTIONS.get((status, code)) or code.replace("_", " ")


def error_response(error: DomainError) -> ErrorResponse:
    """What the world sees of a domain error."""
    if isinstance(error, ErrorResponse):
        return error
    status, code = next(STATUSES_AND_CODES[kind] for kind in type(error).__mro__ if kind in STATUSES_AND_CODES)
    wait = getattr(error, "retry_after", None)
    headers = None if wait is None else {"Retry-After": str(wait)}
    return ErrorResponse(status, code, str(error), error.details, headers)


def unproven_client(reason: str, hint: str, **details: Any) -> ErrorResponse:
    """The signature, digest or key does not prove who the client is; `reason` is a stable word."""
    return ErrorResponse(401, "invalid_client", hint, {"reason": reason, **details})


def invalid_token(reason: str, hint: str) -> ErrorResponse:
    """The access token is missing or unknown."""
    return ErrorResponse(401, "invalid_token", hint, {"reason": reason})


def invalid_bearer_token(reason: str, hint: str) -> ErrorResponse:
    """The same of a token or key that is no client's, and sent as `Authorization: Bearer` (RFC 6750)."""
    return ErrorResponse(401, "invalid_token", hint, {"reason": reason}, {"WWW-Authenticate": "Bearer"})


def nothing_here() -> DomainError:
    """There is nothing at the address, or nothing that the caller may know of."""
    return errors.NotFound("There is nothing at this address")


def method_not_allowed(allowed: str) -> ErrorResponse:
    """There is something at the address, but it takes other methods."""
    return ErrorResponse(405, "method_not_allowed", f"This address takes {allowed} only", headers={"Allow": allowed})
