"""What can go wrong, as classes to catch; all are `OpenPaymentsError`."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class OpenPaymentsError(Exception):
    """The base of all."""


class ConfigurationError(OpenPaymentsError):
    """The client lacks what a call needs, or was given what it cannot use."""


class InsecureUrl(OpenPaymentsError):
    """A URL is plain http, and the client is not."""


class WaitTimeout(OpenPaymentsError):
    """What was waited for did not come in time."""


class InvalidAnswer(OpenPaymentsError):
    """An answer breaks the standard, or is about something other than what was asked for."""

    def __init__(self, status: int, problems: list[str]) -> None:
        super().__init__(f"The answer ({status}) cannot be used: {'; '.join(problems)}")
        self.status = status
        self.problems = problems


class NoAnswer(OpenPaymentsError):
    """There was no answer that could be used."""


class NotSent(NoAnswer):
    """The request did not reach the server: nothing has happened."""


class AnswerLost(NoAnswer):
    """Whether something has happened is not known: look before you ask again, or repeat with `idempotency_key`."""

    def __init__(self, text: str, idempotency_key: str | None = None) -> None:
        super().__init__(text)
        self.idempotency_key = idempotency_key


class GrantError(OpenPaymentsError):
    """There is no grant."""


class InteractionNeeded(GrantError):
    """The wallet's owner must consent: use `grant.start`."""


class GrantDenied(GrantError):
    """The wallet's owner said no."""


class GrantLapsed(GrantError):
    """The time for consent, or for continuing after it, is over."""


class HashMismatch(GrantError):
    """A browser came back without the hash that only the server can make."""


class Said(msgspec.Struct):
    """What an error body says, as far as it says it."""

    code: str = ""
    description: str = ""
    details: dict[str, Any] = {}

    def detail(self, name: str) -> str | None:
        """A detail that is text."""
        value = self.details.get(name)
        return value if isinstance(value, str) else None


class _Body(msgspec.Struct):
    error: str | Said


class ApiError(OpenPaymentsError):
    """A server's refusal: its HTTP status, and what else it says."""

    def __init__(self, status: int, said: Said, headers: Mapping[str, str]) -> None:
        self.status = status
        self.code, self.description, self.details = said.code, said.description, said.details
        self.reason, self.hint = said.detail("reason"), said.detail("hint")
        named = self.reason or said.detail("field")
        about = f" ({named})" if named else ""
        super().__init__(f"{status} {said.code}{about}: {self.hint or said.description}".removesuffix(": "))
        self.request_id = headers.get("x-request-id")
        after = headers.get("retry-after", "")
        self.retry_after = int(after) if after.isascii() and after.isdigit() and len(after) < 10 else None


class BadRequest(ApiError):
    """The request breaks a rule."""


class SignatureRejected(ApiError):
    """The server does not accept the signature."""

    our_base: str | None = None

    @property
    def server_base(self) -> str | None:
        """The signature base that the server made of the request, if it says."""
        return self.details.get("signatureBase")


class TokenError(ApiError):
    """The access token is not valid, or no longer."""


class InsufficientAccess(ApiError):
    """The grant does not permit this."""


class LimitExceeded(ApiError):
    """The grant does not permit so much."""


class InsufficientFunds(ApiError):
    """The wallet does not have so much."""


class NotFound(ApiError):
    """There is no such thing, or it is not this client's."""


class Conflict(ApiError):
    """It has already happened, or can no longer happen."""


class TooManyRequests(ApiError):
    """Ask more slowly."""


class ServerError(ApiError):
    """The server has a fault."""


CODES: Final[Mapping[str, type[ApiError]]] = {
    "invalid_token": TokenError,
    "request_denied": InsufficientAccess,
    "user_denied": InsufficientAccess,
    "insufficient_access": InsufficientAccess,
    "limit_exceeded": LimitExceeded,
    "insufficient_funds": InsufficientFunds,
}
# What Rafiki says, whose codes are numbers.
DESCRIPTIONS: Final[Mapping[str, type[ApiError]]] = {
    "Inactive Token": TokenError,
    "Invalid Token": TokenError,
    "insufficient balance": InsufficientFunds,
}
STATUSES: Final[Mapping[int, type[ApiError]]] = {
    401: SignatureRejected,
    403: InsufficientAccess,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of an answer, whatever its body is."""
    try:
        said = msgspec.json.decode(body, type=_Body).error
    except (ValueError, RecursionError):
        said = Said(description=body[:200].decode("utf-8", "replace"))
    if isinstance(said, str):  # the short form of GNAP
        said = Said(code=said)
    kind = CODES.get(said.code) or DESCRIPTIONS.get(said.description) or STATUSES.get(status)
    return (kind or (ServerError if status >= 500 else BadRequest))(status, said, headers)
