"""The table of errors. `refused` in conftest.py holds answers to it; docs/reference/errors.md is made of it."""

import ast

import pytest

from payres.core.http.responses import json_error
from payres.core.protocol import errors
from payres.core.protocol.errors import DomainError
from payres.core.protocol.wire import encode
from tests.helpers import ERRORS
from tests.test_architecture import MODULES, nodes


def test_every_401_or_403_is_written_with_a_reason() -> None:
    """Not all are made in tests, so each place that makes one is looked at."""
    names = {kind.__name__ for kind in ERRORS.values() if kind.status in {401, 403}} - {"BearerTokenInvalid"}
    calls = [
        (module, node)
        for module in MODULES
        if not module.startswith("payres/client/")  # which has errors of its own
        for node in nodes(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]
    assert len(calls) > 20
    assert [(name, node.lineno) for name, node in calls if "reason" not in [word.arg for word in node.keywords]] == []


def test_every_reason_is_written_somewhere_in_the_code() -> None:
    """A word in the table that nothing sends would be documented in vain."""
    constants = {
        node.value
        for module in MODULES
        if not module.endswith("/errors.py")
        for node in nodes(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {reason for kind in ERRORS.values() for reason in kind.reasons} <= constants


@pytest.mark.parametrize(
    ("error", "description", "retry_after"),
    [
        (errors.InvalidRequest("no", field="a"), "invalid request", None),
        (errors.NoRate("no", reason="exchange_rate_expired"), "invalid receiver", None),
        (errors.ClientUnproven("no", reason="unknown_key"), "Signature validation error: unknown_key", None),
        (errors.ClientUnproven("no", reason="missing_token"), "invalid client", None),
        (errors.TooManyRequests("no", retry_after=7), "too many requests", "7"),
        (errors.Unavailable("no"), "unavailable", "1"),
    ],
)
def test_error_is_answered_in_one_shape(error: DomainError, description: str, retry_after: str | None) -> None:
    answer = json_error(error)
    shown = {"code": error.code, "description": description, "details": {"hint": "no", **error.details}}
    assert (answer.status_code, answer.body) == (error.status, encode({"error": shown}))
    assert (answer.headers.get("retry-after"), answer.headers["cache-control"]) == (retry_after, "no-store")
