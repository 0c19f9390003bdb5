"""The errors of the client; all are subclasses of `OpenPaymentsError`."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class OpenPaymentsError(Exception):
    """The base class of all errors."""


class ConfigurationError(OpenPaymentsError):
    """The client's configuration or the call's arguments are missing or invalid."""


class InsecureUrl(OpenPaymentsError):
    """A URL is plain http, but the client's wallet address is not."""


class WaitTimeout(OpenPaymentsError):
    """A wait ended without its result."""


class InvalidAnswer(OpenPaymentsError):
    """A response violates the standard, or does not match the request."""

    def __init__(self, status: int, problems: list[str]) -> None:
        super().__init__(f"The answer ({status}) cannot be used: {'; '.join(problems)}")
        self.status = status
        self.problems = problems


class NoAnswer(OpenPaymentsError):
    """The server did not respond."""


class NotSent(NoAnswer):
    """The request did not reach the server, so nothing has happened."""


class AnswerLost(NoAnswer):
    """The response was lost, and the request may have succeeded: check first, or retry with `idempotency_key`."""

    def __init__(self, text: str, idempotency_key: str | None = None) -> None:
        super().__init__(text)
        self.idempotency_key = idempotency_key


class GrantError(OpenPaymentsError):
    """The grant was not given."""


class InteractionNeeded(GrantError):
    """The wallet's owner must consent: use `grant.start`."""


class GrantDenied(GrantError):
    """The wallet's owner denied the grant."""


class GrantLapsed(GrantError):
    """The time for consent, or for continuing after consent, has expired."""


class HashMismatch(GrantError):
    """A browser returned without the interaction hash of the server (RFC 9635 section 4.2.3)."""


class Said(msgspec.Struct):
    """The error object of a response body; every member is optional."""

    code: str = ""
    description: str = ""
    details: dict[str, Any] = {}


class _Body(msgspec.Struct):
    error: str | Said


class ApiError(OpenPaymentsError):
    """An error response: its HTTP status, and its body's code, description and details."""

    def __init__(self, status: int, said: Said, headers: Mapping[str, str]) -> None:
        self.status = status
        self.code, self.description, self.details = said.code, said.description, said.details
        texts = {name: value for name, value in said.details.items() if isinstance(value, str)}
        self.reason, self.hint = texts.get("reason"), texts.get("hint")
        named = self.reason or texts.get("field")
        about = f" ({named})" if named else ""
        super().__init__(f"{status} {said.code}{about}: {self.hint or said.description}".removesuffix(": "))
        self.request_id = headers.get("x-request-id")
        after = headers.get("retry-after", "")
        self.retry_after = int(after) if after.isascii() and after.isdigit() and len(after) < 10 else None


class BadRequest(ApiError):
    """The request is invalid."""


class SignatureRejected(ApiError):
    """The server does not accept the signature."""

    our_base: str | None = None

    @property
    def server_base(self) -> str | None:
        """The signature base that the server computed, if the response has it."""
        return self.details.get("signatureBase")


class TokenError(ApiError):
    """The access token is invalid or has expired."""


class InsufficientAccess(ApiError):
    """The grant does not permit this."""


class LimitExceeded(ApiError):
    """The amount exceeds the limits of the grant."""


class InsufficientFunds(ApiError):
    """The wallet's balance is too low."""


class NotFound(ApiError):
    """The resource does not exist, or belongs to another client."""


class Conflict(ApiError):
    """The state of the resource does not permit this, for example because it was already done."""


class TooManyRequests(ApiError):
    """The rate limit is exceeded."""


class ServerError(ApiError):
    """The server failed."""


# By the code of an error, else by its description (the codes of Rafiki are numbers), else by the status.
KINDS: Final[Mapping[str | int, type[ApiError]]] = {
    "invalid_token": TokenError,
    "request_denied": InsufficientAccess,
    "user_denied": InsufficientAccess,
    "insufficient_access": InsufficientAccess,
    "limit_exceeded": LimitExceeded,
    "insufficient_funds": InsufficientFunds,
    "Inactive Token": TokenError,
    "Invalid Token": TokenError,
    "insufficient balance": InsufficientFunds,
    401: SignatureRejected,
    403: InsufficientAccess,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of a response with any body."""
    try:
        said = msgspec.json.decode(body, type=_Body).error
    except (ValueError, RecursionError):
        said = Said(description=body[:200].decode("utf-8", "replace"))
    if isinstance(said, str):  # the short form of GNAP
        said = Said(code=said)
    kinds = (KINDS[mark] for mark in (said.code, said.description, status) if mark in KINDS)
    return next(kinds, ServerError if status >= 500 else BadRequest)(status, said, headers)
