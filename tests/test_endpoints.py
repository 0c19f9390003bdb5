from pathlib import Path

import pytest

from payres.admin.serving import admin_endpoints
from payres.endpoints import ENDPOINTS, RESERVED_SEGMENTS, SECRET_PATHS, Kind, find_endpoint
from payres.pages.endpoints import ADMIN_PAGES

INTEGRATING = Path(__file__).parents[1] / "docs" / "integrating.md"


def test_reserved_segments_are_those_of_the_contract() -> None:
    """An endpoint under a new first segment takes it from wallets that may have it: that is decided here."""
    assert {
        *("incoming-payments", "outgoing-payments", "outgoing-payment-grant", "quotes", "ilp"),
        *("continue", "token", "interact", "grant", "discovery", "account", "admin", "pay", "settings", "static"),
        *("healthz", "readyz", "metrics", "openapi.json", "jwks.json", "did.json", ".well-known", "favicon.ico"),
    } == RESERVED_SEGMENTS


@pytest.mark.parametrize(
    ("method", "path", "handler"),
    [
        ("POST", "/", "grants.request"),
        ("POST", "", "grants.request"),
        ("POST", "/quotes/", "quotes.create"),
        ("GET", "/quotes/1", "quotes.read"),
        ("HEAD", "/quotes/1", "quotes.read"),
        ("POST", "/incoming-payments/1//complete", "incoming_payments.complete"),
        ("GET", "/quotes", None),
        ("GET", "/quotes/1/2", None),
        ("GET", "/quotes//", None),
        ("GET", "/healthz", None),
        ("GET", "/alice", None),
    ],
)
def test_find_endpoint_finds_what_the_api_has(method: str, path: str, handler: str | None) -> None:
    found = find_endpoint(method, path)
    assert (found.handler if found else None) == handler


def test_paths_with_a_secret_are_known() -> None:
    paths = [one.path for one in (*ENDPOINTS, *admin_endpoints(), *ADMIN_PAGES)]
    assert {path.partition("{")[0] for path in paths if path.endswith(("{nonce}", "{secret}"))} == set(SECRET_PATHS)


def test_every_endpoint_is_documented() -> None:
    [section] = [
        part for part in INTEGRATING.read_text(encoding="utf-8").split("\n## ") if part.startswith("Endpoints")
    ]
    documented = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    wallet, base = "{wallet address}", "{base}"
    expected = [
        f"{one.method} {one.path.replace('/{path:wallet}', wallet) if one.kind is Kind.WALLET else base + one.path}"
        for one in ENDPOINTS
        if "//" not in one.path  # one client's other spelling
    ]
    assert sorted(documented) == sorted(expected)
