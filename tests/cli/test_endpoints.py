"""What endpoints ask before they look at a signature; tests/cli/test_explain.py compares it with a server."""

import pytest

from payres.cli.endpoints import endpoint_errors
from payres.signatures.base import Message

BASE = "https://pay.example"
GNAP = (b"authorization", b"GNAP token")


@pytest.mark.parametrize(
    ("method", "target", "reason"),
    [
        ("GET", "/quotes/1", "missing_token"),
        ("GET", "/quotes/1/", "missing_token"),
        ("GET", "/incoming-payments?wallet-address=x", "missing_token"),
        ("POST", "/incoming-payments", "missing_token"),
        ("POST", "/incoming-payments/1/complete", "missing_token"),
        ("GET", "/outgoing-payment-grant", "missing_token"),
        ("DELETE", "/continue/1", "missing_token"),
        ("GET", "/incoming-payments/1", None),
        ("HEAD", "/incoming-payments/1?x=y", None),
        ("POST", "/", None),
        ("POST", "/token/1", None),
        ("GET", "/alice", None),
    ],
)
def test_token_is_missed_where_the_server_misses_it(method: str, target: str, reason: str | None) -> None:
    errors = [error.reason for error in endpoint_errors(Message(method, BASE + target, []))]
    assert errors == ([reason] if reason else [])
    assert endpoint_errors(Message(method, BASE + target, [GNAP])) == []


@pytest.mark.parametrize("value", [b"Bearer token", b"GNAP", b"GNAP ", b"token", b""])
def test_other_authorization_is_no_token_even_where_none_is_needed_to_read(value: bytes) -> None:
    errors = endpoint_errors(Message("GET", f"{BASE}/incoming-payments/1", [(b"authorization", value)]))
    assert [error.reason for error in errors] == ["missing_token"]


def test_errors_come_in_the_order_in_which_the_server_looks() -> None:
    headers = [(b"accept", b"text/html"), (b"content-type", b"text/plain")]
    errors = endpoint_errors(Message("POST", f"{BASE}/quotes", headers, b"{}"))
    assert [error.reason for error in errors] == ["not_acceptable", "unsupported_media_type", "missing_token"]
