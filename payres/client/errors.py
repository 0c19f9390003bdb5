"""The errors of the client; all are subclasses of `OpenPaymentsError`."""

import copyreg
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec


class OpenPaymentsError(Exception):
    """The base class of all errors. They can be copied and pickled."""

    def __reduce__(self) -> tuple[object, ...]:
        # `BaseException` would call `__init__` with the text alone.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class ConfigurationError(OpenPaymentsError):
    """The client's configuration or the call's arguments are missing or invalid."""


class InsecureUrl(OpenPaymentsError):
    """A URL is plain http, but the client's wallet address is not."""


class WaitTimeout(OpenPaymentsError):
    """A wait ended without its result."""


class WebhookRejected(OpenPaymentsError):
    """A webhook is not signed with the secret, or was not sent just now: answer it with 400."""


class InvalidAnswer(OpenPaymentsError):
    """A response violates the standard, or does not match the request, which may have succeeded: check first."""

    def __init__(self, status: int, problems: list[str]) -> None:
        super().__init__(f"The answer ({status}) cannot be used: {'; '.join(problems)}")
        self.status = status
        self.problems = problems


class NoAnswer(OpenPaymentsError):
    """The server did not respond."""


class NotSent(NoAnswer):
    """The request did not reach the server, so nothing has happened."""


class AnswerLost(NoAnswer):
    """The response was lost, and the request may have succeeded: check first, or retry with `idempotency_key`. A
    rotation or continuation can be called again as it is."""

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
    """The server failed, and may have done what was asked. Of an outgoing payment it is AnswerLost."""


PASSING: Final = (NoAnswer, TooManyRequests, ServerError)  # waiting goes on after these


# By the code of an error, else by its description (the codes of Rafiki are numbers), else by the status: of 4xx those
# that HTTP defines, except 408, because gateways send it for requests that the server has got.
KINDS: Final[Mapping[str | int, type[ApiError]]] = {
    **{status.value: BadRequest for status in HTTPStatus if 400 <= status < 500 and status != 408},
    "invalid_request": BadRequest,
    "too_slow": BadRequest,
    "invalid_token": TokenError,
    "request_denied": InsufficientAccess,
    "user_denied": InsufficientAccess,
    "insufficient_access": InsufficientAccess,
    "limit_exceeded": LimitExceeded,
    "insufficient_funds": InsufficientFunds,
    "invalid_continuation": NotFound,
    "401 Unauthorized": NotFound,  # Rafiki, of an unknown id
    "Inactive Token": TokenError,
    "Invalid Token": TokenError,
    "insufficient balance": InsufficientFunds,
    401: SignatureRejected,
    403: InsufficientAccess,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ApiError | InvalidAnswer:
    """The error of a response with any body and another status than the one expected."""
    try:
        said = msgspec.json.decode(body, type=_Body).error
    except (ValueError, RecursionError):
        said = Said(description=body[:200].decode("utf-8", "replace"))
    if isinstance(said, str):  # the short form of GNAP
        said = Said(code=said)
    marks = said.code, f"{said.code} {said.description}", said.description, status
    kind = next((KINDS[mark] for mark in marks if mark in KINDS), None) if 400 <= status < 500 else None
    if 500 <= status < 600:  # whatever it says, because only a 4xx means that nothing was done
        kind = ServerError
    return InvalidAnswer(status, ["unexpected status"]) if kind is None else kind(status, said, headers)
