"""What is said of paths beside the routes, against the routes."""

import asyncio
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from payres.application import PARTS
from payres.core.http import routing
from payres.core.http.responses import PREFLIGHT
from payres.core.http.routing import ROUTES, LateRoutes, Route, Router, RouteTable
from payres.core.protocol.urls import ADMIN_ROOT, CLOSED, PAGE_ROOTS, PAGES, RESERVED_SEGMENTS, SIGNED_SEGMENTS
from payres.operator.admin_hosts import AdminHosts
from payres.operator.declared.api import admin_routes
from payres.operator.pages.serving import page_routes as admin_page_routes
from payres.people import consent
from payres.people.serving import page_routes
from tests.helpers import TIMEOUT

ENDPOINTS = Path(__file__).parents[3] / "docs/reference/endpoints.md"
ALL = [*ROUTES, *(route for part in PARTS for route in part.routes)]
API = [one for one in ROUTES if one.is_json]
FOR_LATER = {"discovery", "grant"}
CONSENT = next(one for one in page_routes() if "{nonce}" in one.path)
HOST = (b"host", b"localhost")
OF_ANY_SITE = {".well-known", "did.json", "favicon.ico", "jwks.json"}


def first_segment(path: str) -> str:
    return path.split("/")[1]


def test_reserved_segments_are_those_of_the_contract() -> None:
    """An endpoint under a new first segment takes it from wallets that may have it: that is decided here."""
    of_endpoints = {first_segment(one.path) for one in ALL if not one.path.startswith("/{")} - {""}
    assert (
        of_endpoints | FOR_LATER | OF_ANY_SITE | {path[1:] for path in (ADMIN_ROOT, *PAGE_ROOTS)} == RESERVED_SEGMENTS
    )


def test_segments_of_signed_requests_are_those_of_the_api() -> None:
    assert {first_segment(one.path) for one in API} - {"", "openapi.json"} == SIGNED_SEGMENTS


def test_scripts_of_other_origins_are_told_the_methods_of_the_api() -> None:
    methods = {"GET", "HEAD"} | {method for one in API for method in one.handlers}
    assert set(PREFLIGHT["Access-Control-Allow-Methods"].split(", ")) == methods


def test_routes_say_which_segments_are_secret() -> None:
    """A segment with one of these names must be declared as secret, and is in no label."""
    routes = [*ROUTES, *page_routes(), *admin_page_routes()]
    found = {one.path for one in routes if any(f"{{{name}}}" in one.path for name in ("nonce", "secret", "state"))}
    assert found == {one.path for one in routes if one.secret_at}
    assert found == {
        *("/interact/{id}/{nonce}", "/account/reset/{secret}", "/pay/{id}/return/{state}", "/admin/link/{secret}"),
        *("/account/notices/stop/{secret}", "/not-me/{secret}"),
    }


def test_pages_are_closed_to_scripts_of_other_origins() -> None:
    assert set(PAGES) < set(CLOSED)
    assert {one.path for one in ALL if f"{one.path}/".startswith(CLOSED)} == {"/metrics"}
    assert all(f"{one.path}/".startswith(CLOSED) for one in page_routes())


class Known(Route):
    """Notes that it was asked."""

    def __init__(self) -> None:
        super().__init__("/admin/one", {"GET": consent.answer})
        self.asked = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1


async def test_operators_routes_are_loaded_once_and_the_loop_goes_on_meanwhile() -> None:
    """The thread that loads lets others have the interpreter a hundred times as often, until it has loaded."""
    usual, known, loads = sys.getswitchinterval(), Known(), []

    def load() -> list[Known]:
        loads.append((threading.current_thread() is threading.main_thread(), sys.getswitchinterval()))
        return [known]

    hosts = AdminHosts("")
    operator = Router(late=[LateRoutes(load, (ADMIN_ROOT,), lambda request: hosts.let_in(request.scope))]).answer
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/admin/one",
        "raw_path": b"/admin/one",
        "client": ("127.0.0.1", 1),
        "headers": [HOST],
    }
    unused: Any = None
    await asyncio.gather(*(operator(dict(scope), unused, unused) for _ in range(2)))
    assert (known.asked, len(loads)) == (2, 1)
    [(is_on_the_loop, interval)] = loads
    assert not is_on_the_loop
    assert interval == pytest.approx(usual / 100, rel=0.01)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_routes_loaded_at_the_same_time_leave_the_interpreter_as_it_was() -> None:
    """Each took a hundredth of what it found, set that back, and so on down to an interval of nothing, which is an
    error."""
    usual, seen = sys.getswitchinterval(), []

    def load() -> None:
        seen.append(sys.getswitchinterval())

    def load_meanwhile() -> None:
        other.start()
        other.join(0.05)
        load()

    other = threading.Thread(target=routing.OnFirstUse(load)._fill)
    try:
        routing.OnFirstUse(load_meanwhile)._fill()
        other.join(TIMEOUT)
        assert seen == pytest.approx([usual / 100] * 2, rel=0.01)
        assert sys.getswitchinterval() == pytest.approx(usual)
    finally:
        sys.setswitchinterval(usual)


def test_every_endpoint_is_documented() -> None:
    lines = ENDPOINTS.read_text(encoding="utf-8").splitlines()
    documented = [line.split("`")[1] for line in lines if line.startswith("| `")]
    expected = [
        f"{method} {one.path.replace('/{path:wallet}', '{wallet address}') if ':' in one.path else '{base}' + one.path}"
        for one in (*ALL, CONSENT)
        for method in one.handlers
        if method != "HEAD" and "//" not in one.path  # one client's other spelling
    ]
    assert sorted(documented) == sorted(expected)


def test_router_tells_the_route_of_a_path() -> None:
    """Those of wallets come last, also after routes that are loaded late."""
    router = routing.Router(late=[LateRoutes(list, (ADMIN_ROOT,))])
    for path, expected, named in (
        ("/quotes", "/quotes", {}),
        ("/quotes/1", "/quotes/{id}", {"id": "1"}),
        ("/alice/jwks.json", "/{path:wallet}/jwks.json", {"path": "alice"}),
        ("/alice/till", "/{path:wallet}", {"path": "alice/till"}),
    ):
        route, found = router.find(path)
        assert isinstance(route, Route)
        assert (route.path, found) == (expected, named)
    late, _ = router.find(f"{ADMIN_ROOT}/alice")
    assert late is not None
    assert not isinstance(late, Route)
    assert router.find("/pay/1") == (None, {})


@pytest.mark.parametrize(
    "routes",
    [
        [*admin_routes(), *admin_page_routes()],
        page_routes(),
        [*ROUTES, *(one for part in PARTS for one in part.routes)],
    ],
    ids=["operator", "people", "core"],
)
def test_a_look_up_finds_the_first_route_that_matches(routes: Sequence[Route], monkeypatch: pytest.MonkeyPatch) -> None:
    """And tries few of them: not each path has a segment of its own, so some share their beginning."""
    in_order = sorted(routes, key=lambda one: one.path.startswith("/{"))  # those of wallets come last
    table, match, tried = RouteTable(in_order), Route.match, list[str]()

    def counted(one: Route, path: str) -> Mapping[str, str] | None:
        tried.append(one.path)
        return match(one, path)

    filled = {re.sub("{[^}]*}", text, one.path) for one in routes for text in ("x", "new", "list", "a%2Fb", "usd")}
    paths = {path + more for path in filled for more in ("", "/y", "/y/z", "y")} | {path[:-1] for path in filled}
    monkeypatch.setattr(Route, "match", counted)
    for path in paths:
        tried.clear()
        route, found = table.find(path)
        assert len(tried) <= 20
        first = next((one for one in in_order if match(one, path) is not None), None)
        assert (route, found) == (first, (first and match(first, path)) or {})
