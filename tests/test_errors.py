"""The table of errors. `refused` in conftest.py holds answers to it; docs/reference/errors.md is made of it."""

import ast

import pytest

from payres import errors
from payres.errors import DomainError, InsufficientAccess, NotFound, TokenInvalid
from payres.http.responses import json_error
from payres.wire import encode
from tests.helpers import ERRORS, ROOT


def test_every_401_or_403_is_written_with_a_reason() -> None:
    """Not all are made in tests, so each place that makes one is looked at."""
    names = {kind.__name__ for kind in ERRORS.values() if kind.status in {401, 403}} - {"BearerTokenInvalid"}
    calls = [
        (path.name, node)
        for path in sorted((ROOT / "payres").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]
    assert len(calls) > 20
    assert [(name, node.lineno) for name, node in calls if "reason" not in [word.arg for word in node.keywords]] == []


def test_every_reason_is_written_somewhere_in_the_code() -> None:
    """A word in the table that nothing sends would be documented in vain."""
    constants = {
        node.value
        for path in (ROOT / "payres").rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {reason for kind in ERRORS.values() for reason in kind.reasons} <= constants | {
        "no_exchange_rate",
        "exchange_rate_expired",
    }


@pytest.mark.parametrize(
    ("error", "status", "code", "description", "details"),
    [
        (errors.InvalidRequest("no", field="a"), 400, "invalid_request", "invalid request", {"field": "a"}),
        (
            errors.NoRate("no", is_stale=True),
            *(400, "invalid_receiver", "invalid receiver", {"reason": "exchange_rate_expired"}),
        ),
        (
            TokenInvalid("no", reason="revoked_token"),
            *(401, "invalid_token", "Invalid Token", {"reason": "revoked_token"}),
        ),
        (
            errors.ClientUnproven("no", reason="unknown_key"),
            *(401, "invalid_client", "Signature validation error: unknown_key", {"reason": "unknown_key"}),
        ),
        (
            errors.ClientUnproven("no", reason="missing_token"),
            *(401, "invalid_client", "invalid client", {"reason": "missing_token"}),
        ),
        (
            InsufficientAccess("no", reason="action"),
            *(403, "insufficient_access", "insufficient access", {"reason": "action"}),
        ),
        (
            errors.InsufficientFunds("no", reason="wallet"),
            *(403, "insufficient_funds", "unauthorized", {"reason": "wallet"}),
        ),
        (NotFound("no"), 404, "not_found", "not found", {}),
        (errors.TooManyRequests("no", retry_after=7), 429, "too_many_requests", "too many requests", {}),
        (errors.Unavailable("no"), 503, "unavailable", "unavailable", {}),
    ],
)
def test_error_is_answered_in_one_shape(
    error: DomainError, status: int, code: str, description: str, details: dict[str, str]
) -> None:
    answer = json_error(error)
    assert answer.status_code == status
    shown = {"code": code, "description": description, "details": {"hint": "no", **details}}
    assert answer.body == encode({"error": shown})
    assert answer.headers.get("retry-after") == {429: "7", 503: "1"}.get(status)
    assert answer.headers["cache-control"] == "no-store"
