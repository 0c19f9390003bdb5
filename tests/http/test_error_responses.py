import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from payres import errors
from payres.errors import DomainError
from payres.http.error_responses import (
    CODES,
    REASONS,
    STATUSES_AND_CODES,
    ErrorResponse,
    error_response,
    unproven_client,
)

SOURCES = Path(errors.__file__).parent
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DomainError)]


def written_responses() -> Iterator[tuple[str, int, int, str]]:
    """Where the code makes an ErrorResponse with its status and code written out: file, line, status, code."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ErrorResponse":
                match node.args[:2]:
                    case [ast.Constant(value=int(status)), ast.Constant(value=str(code))]:
                        yield path.name, node.lineno, status, code


def test_every_error_response_is_in_the_table_of_codes() -> None:
    found = list(written_responses())
    found += [("STATUSES_AND_CODES", 0, *answer) for answer in STATUSES_AND_CODES.values()]
    assert len(found) > 20
    assert [response for response in found if response[2] not in CODES.get(response[3], ())] == []


@pytest.mark.parametrize(("code", "statuses"), CODES.items())
def test_codes_are_words_with_statuses_of_refusals(code: str, statuses: tuple[int, ...]) -> None:
    assert code.replace("_", "").isalpha()
    assert code == code.lower()
    assert all(400 <= status < 600 for status in statuses)
    assert list(statuses) == sorted(set(statuses))


def test_refusal_with_another_status_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="too_fast is not documented with status 403"):
        ErrorResponse(403, "too_fast", "Wait")


MUST_SAY_WHY = [(code, status) for code, statuses in CODES.items() for status in statuses if status in {401, 403}]


@pytest.mark.parametrize(("code", "status"), MUST_SAY_WHY)
@pytest.mark.parametrize("details", [None, {}, {"field": "client"}, {"reason": None}, {"reason": ""}, {"reason": "no"}])
def test_refusal_of_401_or_403_cannot_be_made_without_a_documented_reason(
    code: str, status: int, details: dict[str, object] | None
) -> None:
    with pytest.raises(AssertionError, match="reason"):
        ErrorResponse(status, code, "Why?", details)
    for reason in REASONS[code]:
        assert ErrorResponse(status, code, "That is why", {"reason": reason, "field": "client"}).details is not None


def test_every_refusal_of_401_or_403_is_written_with_a_reason() -> None:
    """Not all are made in tests, so each place that makes one is looked at."""
    without = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="ErrorResponse"), args=[ast.Constant(value=401 | 403), _, _, *more]):
                    details = next(iter(more), None)
                    keys = details.keys if isinstance(details, ast.Dict) else []
                    if not any(isinstance(key, ast.Constant) and key.value == "reason" for key in keys):
                        without.append(f"{path.name}:{node.lineno}")
    assert without == []


def test_reason_belongs_to_its_code_whatever_the_status() -> None:
    with pytest.raises(AssertionError, match="missing_token is not a documented reason of invalid_receiver"):
        ErrorResponse(400, "invalid_receiver", "No", {"reason": "missing_token"})
    with pytest.raises(AssertionError, match="expired is not a documented reason of not_found"):
        ErrorResponse(404, "not_found", "No", {"reason": "expired"})


@pytest.mark.parametrize(("code", "reasons"), REASONS.items())
def test_reasons_are_words_of_known_codes(code: str, reasons: tuple[str, ...]) -> None:
    assert code in CODES
    assert len(reasons) == len(set(reasons)) > 0
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*|[a-z]+[A-Z][a-z]+", reason) for reason in reasons)


def test_every_reason_is_written_somewhere_in_the_code() -> None:
    """A word in the table that nothing sends would be documented in vain."""
    constants = {
        node.value
        for path in SOURCES.rglob("*.py")
        if path != SOURCES / "http" / "errors.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {reason for reasons in REASONS.values() for reason in reasons} <= constants


def test_every_domain_error_has_an_answer() -> None:
    for kind in KINDS:
        assert kind is DomainError or any(base in STATUSES_AND_CODES for base in kind.__mro__), kind


@pytest.mark.parametrize(
    ("error", "status", "code", "details"),
    [
        (errors.InvalidRequest("no"), 400, "invalid_request", {}),
        (errors.InvalidRequest("no", field="a"), 400, "invalid_request", {"field": "a"}),
        (errors.NoRate("no", is_stale=True), 400, "invalid_receiver", {"reason": "exchange_rate_expired"}),
        (errors.TokenInvalid("no", reason="revoked_token"), 401, "invalid_token", {"reason": "revoked_token"}),
        (unproven_client("unknown_key", "no"), 401, "invalid_client", {"reason": "unknown_key"}),
        (errors.InsufficientAccess("no", reason="action"), 403, "insufficient_access", {"reason": "action"}),
        (errors.NotFound("no"), 404, "not_found", {}),
        (errors.WrongState("no", field="quoteId"), 409, "wrong_state", {"field": "quoteId"}),
        (errors.TooManyRequests("no", retry_after=7), 429, "too_many_requests", {}),
        (errors.Unavailable("no"), 503, "unavailable", {}),
    ],
)
def test_error_is_answered_as_the_table_says(
    error: DomainError, status: int, code: str, details: dict[str, object]
) -> None:
    shown = error_response(error)
    assert (shown.status, shown.code, shown.details) == (status, code, {"hint": "no", **details})
    wait = {429: "7", 503: "1"}.get(status)
    assert shown.headers == ({"Retry-After": wait} if wait else {})
