import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from payres import errors
from payres.errors import CODES, Refusal

SOURCES = Path(errors.__file__).parent


def written_refusals() -> Iterator[tuple[str, int, int, str]]:
    """Where the code makes a Refusal with its status and code written out: file, line, status, code."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                match node.args[:2]:
                    case [ast.Constant(value=int(status)), ast.Constant(value=str(code))]:
                        yield path.name, node.lineno, status, code


def test_every_refusal_is_in_the_table_of_codes() -> None:
    found = list(written_refusals())
    assert len(found) > 20
    assert [refusal for refusal in found if refusal[2] not in CODES.get(refusal[3], ())] == []


@pytest.mark.parametrize(("code", "statuses"), CODES.items())
def test_codes_are_words_with_statuses_of_refusals(code: str, statuses: tuple[int, ...]) -> None:
    assert code.replace("_", "").isalpha()
    assert code == code.lower()
    assert all(400 <= status < 600 for status in statuses)
    assert list(statuses) == sorted(set(statuses))


def test_refusal_with_another_status_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="too_fast is not documented with status 403"):
        Refusal(403, "too_fast", "Wait")


@pytest.mark.parametrize(
    ("refusal", "status", "code", "details"),
    [
        (errors.invalid_request("no"), 400, "invalid_request", None),
        (errors.invalid_request("no", field="a"), 400, "invalid_request", {"field": "a"}),
        (errors.invalid_client("expired", "no"), 401, "invalid_client", {"reason": "expired"}),
        (errors.invalid_client("r", "no", component="c"), 401, "invalid_client", {"reason": "r", "component": "c"}),
        (errors.invalid_token("missing_token", "no"), 401, "invalid_token", {"reason": "missing_token"}),
        (errors.insufficient_access("action", "no"), 403, "insufficient_access", {"reason": "action"}),
        (errors.not_found("no"), 404, "not_found", None),
        (errors.wrong_state("no", field="quoteId"), 409, "wrong_state", {"field": "quoteId"}),
        (errors.unavailable("no"), 503, "unavailable", None),
    ],
)
def test_refusal_says_what_it_is(refusal: Refusal, status: int, code: str, details: object) -> None:
    assert (refusal.status, refusal.code, refusal.description, str(refusal)) == (status, code, "no", "no")
    assert refusal.details == details
    assert refusal.headers == ({"Retry-After": "1"} if status == 503 else {})
