"""Refusals: what the world may see of a failure.

Everything that payres refuses is one `Refusal` with a status, a stable code and a sentence that tells the caller what
to do. The functions below name each kind once; `docs/errors.md` lists their codes.
"""

from collections.abc import Mapping
from typing import Any, Final

from payres.signatures.reasons import REASONS as SIGNATURE_REASONS

Details = Mapping[str, Any]

# Every code a client can meet, with the statuses it comes with. docs/errors.md is tested against this table.
CODES: Mapping[str, tuple[int, ...]] = {
    "invalid_request": (400,),
    "invalid_amount": (400,),
    "invalid_receiver": (400,),
    "invalid_quote": (400,),
    "invalid_expiry": (400,),
    "invalid_interaction": (400,),
    "too_fast": (400,),
    "invalid_client": (400, 401),
    "invalid_token": (401,),
    "invalid_continuation": (401, 404),
    "request_denied": (401,),
    "user_denied": (401,),
    "insufficient_access": (403,),
    "limit_exceeded": (403,),
    "insufficient_funds": (403,),
    "not_found": (404,),
    "unknown_interaction": (404,),
    "invalid_rotation": (404,),
    "method_not_allowed": (405,),
    "not_acceptable": (406,),
    "too_slow": (408,),
    "wrong_state": (409,),
    "too_large": (413, 431),
    "unsupported_media_type": (415,),
    "idempotency_key_reused": (422,),
    "too_many_requests": (429,),
    "internal_error": (500,),
    "unavailable": (503, 504),
}

# Every word that `details.reason` can hold, by the code that it comes with. A 401 or 403 always has one.
REASONS: Mapping[str, tuple[str, ...]] = {
    "invalid_client": (*(reason.value for reason in SIGNATURE_REASONS), "missing_token", "unknown_client"),
    "invalid_token": ("missing_token", "unknown_token", "expired_token", "revoked_token", "other_token"),
    "invalid_continuation": ("unknown_continuation",),
    "request_denied": (
        *("undecided", "decision_expired", "missing_interact_ref", "already_issued"),
        *("wrong_password", "signed_out"),
    ),
    "user_denied": ("owner_denied",),
    "insufficient_access": ("action", "identifier", "csrf", "cross_site"),
    "limit_exceeded": ("debitAmount", "receiveAmount", "interval", "receiver"),
    "insufficient_funds": ("wallet", "liquidity", "fees", "peer"),
    "idempotency_key_reused": ("path", "body"),
    "invalid_receiver": (
        *("no_exchange_rate", "exchange_rate_expired", "no_path"),
        *("not_found", "unreachable", "refused", "bad_content", "completed", "expired", "no_ilp_method"),
    ),
}
# A client that may not do something must be able to tell why without reading sentences.
REASON_REQUIRED: Final = (401, 403)


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error of the program
    """An answer other than the one asked for.

    `status` and `code` are one row of the table in docs/errors.md; `description` is for the caller's eyes; `details` is
    a JSON object, whose `reason` is one of the code's REASONS; `headers` go out with the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        description: str,
        details: Details | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        assert status in CODES[code], f"{code} is not documented with status {status}"
        reason = (details or {}).get("reason")
        assert reason is not None or status not in REASON_REQUIRED, f"{code} with status {status} needs a reason"
        assert reason is None or reason in REASONS.get(code, ()), f"{reason} is not a documented reason of {code}"
        super().__init__(description)
        self.status = status
        self.code = code
        self.description = description
        self.details = details
        self.headers = headers or {}


def invalid_request(description: str, **details: Any) -> Refusal:
    """The request breaks a rule of form; `details` names the field."""
    return Refusal(400, "invalid_request", description, details or None)


def invalid_client(reason: str, description: str, **details: Any) -> Refusal:
    """The signature, digest or key does not prove who the client is; `reason` is a stable word."""
    return Refusal(401, "invalid_client", description, {"reason": reason, **details})


def invalid_token(reason: str, description: str) -> Refusal:
    """The access token is missing, unknown, expired or revoked."""
    return Refusal(401, "invalid_token", description, {"reason": reason})


def insufficient_access(reason: str, description: str, **details: Any) -> Refusal:
    """The token is good but does not carry the access that this request needs."""
    return Refusal(403, "insufficient_access", description, {"reason": reason, **details})


def not_found(description: str) -> Refusal:
    """It does not exist, or the caller may not know that it does."""
    return Refusal(404, "not_found", description)


def method_not_allowed(allowed: str) -> Refusal:
    """There is something at the address, but it takes other methods."""
    description = f"This address takes {allowed} only"
    return Refusal(405, "method_not_allowed", description, headers={"Allow": allowed})


def wrong_state(description: str, **details: Any) -> Refusal:
    """The resource has moved on and the request no longer fits."""
    return Refusal(409, "wrong_state", description, details or None)


def unavailable(description: str, retry_after: int = 1) -> Refusal:
    """Storage could not take the work; nothing of it was kept and the caller may try again."""
    return Refusal(503, "unavailable", description, headers={"Retry-After": str(retry_after)})
