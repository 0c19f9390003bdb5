"""The log lines and metrics of each request."""

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from payres.application import create_app
from payres.core.http import observation
from payres.core.http.responses import CutShort
from payres.core.process.logs import Metrics, RequestLog
from payres.core.process.settings import Settings
from tests.helpers import wait_until
from tests.instance import Instance, run_instance

PUBLIC = "pay.example"  # what a proxy calls a server whose base URL only this machine reaches

Line = Mapping[str, Any]
SECRET = "c2VjcmV0LXRva2Vu"
FORMAT = '%s - "%s %s HTTP/%s" %d'  # of uvicorn's access log


class Lines(list[Line]):
    """A request log that keeps its lines."""

    def write(
        self, method: str, path: str, status: int, code: str | None, seconds: float, more: Mapping[str, str]
    ) -> None:
        given = {} if code is None else {"code": code}
        self.append({"method": method, "path": path, "status": status, **given, "ms": seconds * 1000, **more})

    def of(self, requests: int) -> "Lines":
        """The lines, of so many requests: the last is written just after its client has the answer."""
        wait_until(lambda: len(self) == requests)
        return self


@pytest.fixture(scope="module")
def logging_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, Lines]]:
    lines = Lines()
    with pytest.MonkeyPatch.context() as patch:
        begin = observation.Observer.__init__

        def begin_with_lines(
            self: observation.Observer, app: ASGIApp, metrics: Metrics, _: RequestLog | None, base_url: str
        ) -> None:
            begin(self, app, metrics, cast("RequestLog", lines), base_url)

        patch.setattr(observation.Observer, "__init__", begin_with_lines)
        with run_instance(tmp_path_factory.mktemp("observed") / "payres.db") as instance:
            yield instance, lines


@pytest.fixture
def observed(logging_instance: tuple[Instance, Lines]) -> tuple[Instance, Lines]:
    logging_instance[1].clear()
    return logging_instance


def counted(instance: Instance, route: str, method: str, status: int) -> int:
    metrics: Metrics = instance.context.metrics
    histogram = metrics.requests.get((route, method, status))
    return sum(histogram.counts) if histogram else 0


def test_error_is_logged_with_its_code_and_hint(observed: tuple[Instance, Lines], anonymous: httpx2.Client) -> None:
    instance, lines = observed
    errors = instance.context.metrics.errors["unsupported_media_type"]
    anonymous.post(f"{instance.base_url}/quotes?token={SECRET}", content=b"{}")
    (line,) = lines.of(1)
    assert line["ms"] >= 0
    assert {name: line[name] for name in line if name not in ("ms", "request")} == {
        "method": "POST",
        "path": "/quotes",
        "status": 415,
        "code": "unsupported_media_type",
        "hint": "Send the body as Content-Type: application/json",
    }
    assert counted(instance, "/quotes", "POST", 415) == 1
    assert instance.context.metrics.errors["unsupported_media_type"] == errors + 1


def test_creation_is_logged_with_its_grant_and_payment(observed: tuple[Instance, Lines]) -> None:
    instance, lines = observed
    made = instance.client.create_incoming_payment(instance.wallet("bob"))
    asked, created = lines.of(2)
    assert (asked["path"], asked["status"], asked["grant"]) == ("/", 200, created["grant"])
    assert (created["status"], created["payment"]) == (201, made["id"].rpartition("/")[2])


@pytest.mark.parametrize(
    ("path", "shown", "refused"),
    [
        (f"/interact/abc/{SECRET}", "/interact/abc/...", "/interact/abc/..."),
        (f"/interact/abc/{SECRET}/", "/interact/abc/...", "/interact/abc/..."),
        (f"/account/reset/{SECRET}", "/account/reset/...", "/account/reset/..."),
        (f"/pay/abc/return/{SECRET}?hash=x", "/pay/abc/return/...", "/pay/abc/return/..."),
        (f"/admin/link/{SECRET}", "/admin/link/...", "/admin/..."),
    ],
)
def test_secret_of_a_route_is_left_out(
    observed: tuple[Instance, Lines], anonymous: httpx2.Client, path: str, shown: str, refused: str
) -> None:
    instance, lines = observed
    for headers in ({}, {"Host": "pay.example.com"}):  # from where the operator's pages are not there
        anonymous.get(instance.base_url + path, headers=headers)
    assert [line["path"] for line in lines.of(2)] == [shown, refused]
    assert SECRET not in str(lines)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"/interact/abc/{SECRET}/other", "/interact/..."),
        (f"/interact/abc%2F{SECRET}", "/interact/..."),
        (f"/interact/abc%2F{SECRET}/x", "/interact/..."),
        (f"/%69nteract/abc/{SECRET}", "/..."),
        (f"/admin/link/{SECRET}/other", "/admin/..."),
        (f"//interact/abc/{SECRET}", "/..."),
        (f"/interact//abc/{SECRET}", "/interact/..."),
        (f"/Interact/abc/{SECRET}", "/..."),
        (f"/pay/interact/abc/{SECRET}", "/pay/..."),
        (f"/pay/abc/Return/{SECRET}", "/pay/..."),
        (f"/pay/abc//return/{SECRET}", "/pay/..."),
        (f"/%5Cinteract%5Cabc%5C{SECRET}", "/..."),
        (f"/Admin/link/{SECRET}", "/..."),
        (f"/admin//link/{SECRET}", "/admin/..."),
        (f"/admin/%2E/link/{SECRET}", "/admin/..."),
        ("/interactive/abc/of-alice", "/interactive/abc/of-alice"),
        ("/.well-known/pay/jwks.json", "/.well-known/pay/jwks.json"),
        ("/admin/v1/wallets/alice", None),
        ("/account/activity", "/account/activity"),
    ],
)
def test_secret_is_left_out_where_no_endpoint_has_seen_it(
    observed: tuple[Instance, Lines], anonymous: httpx2.Client, path: str, shown: str | None
) -> None:
    instance, lines = observed
    for headers in ({}, {"Host": "pay.example.com"}):
        anonymous.get(instance.base_url + path, headers=headers)
    wait_until(lambda: len(lines) == 2)
    assert [line["path"] for line in lines] == ([shown] * 2 if shown else [path, "/admin/..."])
    assert SECRET not in str(lines)


def test_uvicorns_own_access_log_has_no_secrets_and_no_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """`uvicorn app:app` writes one."""
    access = logging.getLogger("uvicorn.access")
    monkeypatch.setattr(access, "filters", [])
    create_app(Settings())
    create_app(Settings())
    assert len(access.filters) == 1
    shown = []
    for path in (f"/interact/abc/{SECRET}", f"/pay/a/return/{SECRET}?interact_ref={SECRET}", f"/alice?x={SECRET}"):
        record = access.makeRecord(access.name, logging.INFO, "f", 1, FORMAT, ("h:1", "GET", path, "1.1", 200), None)
        assert access.filter(record)
        shown.append(record.getMessage())
    assert shown == [f'h:1 - "GET {path} HTTP/1.1" 200' for path in ("/interact/...", "/pay/...", "/alice")]


def test_fault_is_logged_without_the_secret_of_its_path(
    observed: tuple[Instance, Lines],
    anonymous: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("payres.people.bills._find", fail)
    instance, _ = observed
    anonymous.get(f"{instance.base_url}/pay/abc/return/{SECRET}")
    [record] = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert record.getMessage() == "GET /pay/abc/return/... failed"


def test_only_a_trusted_proxy_names_requests(observed: tuple[Instance, Lines], anonymous: httpx2.Client) -> None:
    instance, lines = observed
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    named = {"X-Request-Id": "abc-1", "traceparent": trace}
    proxied = {"X-Forwarded-For": "203.0.113.9"}
    asked = [named, named | proxied, {"X-Request-Id": 'a" b', **proxied}]
    answers = [anonymous.get(f"{instance.base_url}/alice", headers=headers) for headers in asked]
    assert [line.get("trace") for line in lines.of(3)] == [None, trace, None]
    ids = [line["request"] for line in lines]
    assert ids == [answer.headers["X-Request-Id"] for answer in answers]
    assert ids[1] == "abc-1"
    assert re.fullmatch("[0-9a-f]{16}", ids[0])
    assert len({*ids}) == 3


@pytest.mark.parametrize("path", ["/nobody", "/quotes", "/account/", "/healthz"])
def test_every_answer_has_a_request_id(observed: tuple[Instance, Lines], anonymous: httpx2.Client, path: str) -> None:
    instance, lines = observed
    answer = anonymous.post(instance.base_url + path)
    assert answer.headers["X-Request-Id"] == lines.of(1)[0]["request"]


def test_answer_that_ends_its_connection_has_a_request_id(shared: Instance, anonymous: httpx2.Client) -> None:
    answer = anonymous.get(f"{shared.base_url}/alice", headers={"X-Long": "x" * 70_000})
    assert (answer.status_code, answer.headers["connection"]) == (431, "close")
    assert len(answer.headers["X-Request-Id"]) == 16


def test_what_anybody_can_invent_makes_no_new_figures(
    observed: tuple[Instance, Lines], anonymous: httpx2.Client
) -> None:
    instance, lines = observed
    before = counted(instance, "unknown", "other", 404)
    for method in ("PROPFIND", "MKCOL"):
        anonymous.request(method, f"{instance.base_url}/readyz/{'x' * 1000}")
    assert all(len(line["path"]) == observation.MAX_PATH_LENGTH for line in lines.of(2))
    assert counted(instance, "unknown", "other", 404) == before + 2


@pytest.mark.parametrize(
    ("error", "cut"),
    [
        (CutShort("it was not read"), "it was not read"),
        (asyncio.CancelledError(), "the server stopped"),
        (RuntimeError("secret"), "the server failed"),
    ],
)
@pytest.mark.parametrize("begun", [True, False])
def test_answer_that_is_cut_off_is_not_logged_as_a_whole_one(
    observed: tuple[Instance, Lines], error: BaseException, cut: str, begun: bool
) -> None:
    _, lines = observed

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"a part", "more_body": True})
        raise error

    async def nothing(*_: object) -> Any:
        """Takes and gives nothing."""

    async def run() -> None:
        observer = observation.Observer(app, Metrics(), cast("RequestLog", lines), "https://pay.example")
        with pytest.raises(type(error)):
            await observer({"method": "GET", "path": "/", "raw_path": b"/"}, nothing, nothing)

    asyncio.run(run())
    (line,) = lines
    assert (line["status"], line.get("cut")) == ((200, cut) if begun else (observation.NOT_ANSWERED, None))


def ask_through_proxy(instance: Instance, forwarded: str) -> None:
    headers = {b"x-forwarded-host": forwarded.encode("latin-1")}
    assert httpx2.get(f"{instance.base_url}/healthz", headers=headers, verify=False).status_code == 200


def test_public_name_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run_instance(tmp_path / "payres.db") as instance, caplog.at_level(logging.WARNING, "payres.http"):
        for _ in range(3):
            ask_through_proxy(instance, f"{PUBLIC}, proxy.internal")
            ask_through_proxy(instance, "other.example")
        [record] = caplog.records
        assert f"X-Forwarded-Host: '{PUBLIC}, proxy.internal', but base_url is {instance.base_url}" in record.message


def test_long_name_is_cut_and_cannot_forge_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run_instance(tmp_path / "payres.db") as instance, caplog.at_level(logging.WARNING, "payres.http"):
        ask_through_proxy(instance, "\x85\xa0é" + "a" * 4000 + ".example")
        [record] = caplog.records
    assert len(record.message) < 300
    assert record.message.isprintable()
