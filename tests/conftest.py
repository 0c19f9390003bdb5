"""What all tests share: a bounded hypothesis, one running instance, and the checks of how answers look."""

import asyncio
import gc
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache, wraps
from pathlib import Path
from threading import Lock
from typing import Any

import httpcore2
import httpx2
import pytest
from argon2 import PasswordHasher
from hypothesis import settings
from jinja2 import FileSystemBytecodeCache

from payres.core.store import connections
from payres.core.store.work import Work
from payres.html import html
from payres.settings import settings_with
from payres.testing.peering import peer
from tests.helpers import PROPERTY_EXAMPLES, ROOT, TIMEOUT, refusal, set_system_config
from tests.instance import Instance, run_instance
from tests.interledger.network import check_books, network
from tests.openapi.conformance import Answer, check_answer
from tests.versions import make_up
from tests.webhooks.endpoint import Endpoint
from tests.works import NOW, work_at

# The examples are the same in each run, so that a test fails for what was changed. `make torture` explores: it sets
# PROPERTY_EXAMPLES, and draws others from its seed. No deadline: on a busy machine it would measure the others.
settings.register_profile("repeated", deadline=None, max_examples=50, derandomize=True, database=None)
settings.register_profile("explored", deadline=None, max_examples=max(PROPERTY_EXAMPLES, 1), database=None)
settings.load_profile("explored" if PROPERTY_EXAMPLES else "repeated")

# Programs in Java run once and end: what compiles them more does not pay.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

Refused = Callable[..., dict[str, Any]]

# What tests count and tell with `record_property`; the reports carry it, from the workers of xdist too.
FIGURES = {
    "rules": "rules of the specification",
    "rows": "requests that keep or break them",
    "rules_without_rows": "rules that no row keeps, or none breaks",
    "cases": "requests made by schemathesis",
    "flips": "signed requests with one bit changed",
    "flips_refused": "of these refused",
    "kills": "kills under load",
    "acknowledged": "answers held against what was there afterwards",
    "events": "events held against what a webhook got",
    "power_cuts": "power cuts under load",
}


# The files that take longest, waiting ones and busy ones in turn: workers take a file at a time, in this order.
LONGEST = (
    "simulation/test_seeds.py",
    "browser/test_operators_day.py",
    "test_tutorials.py",
    "browser/test_account_pages.py",
    "browser/test_admin_pages.py",
    "interledger/test_unanswered_payments.py",
    "crash/test_faults.py",
    "test_pyz.py",
    "browser/test_consent_pages.py",
    "crash/test_backup.py",
    "browser/test_passkeys.py",
    "openapi/test_schemathesis.py",
    "interop/test_official_client.py",
    "people/test_checkout.py",
    "interop/test_interledger_receivers.py",
    "cli/test_server.py",
    "crash/test_checkout.py",
    "client/test_calls_hostile_servers.py",
    "browser/test_orders.py",
    "people/test_fresh_factors.py",
    "testing/test_sandbox_process.py",
    "operator/declared/test_api_document.py",
    "browser/test_sending.py",
    "operator/declared/test_declarations.py",
    "interop/test_openapi_documents.py",
    "interledger/test_two_servers.py",
    "crash/test_kill.py",
    "people/test_consent.py",
    "interop/test_interledger_senders.py",
    "test_dist.py",
    "cli/test_open_payments.py",
    "crash/test_power_cut.py",
    "interop/test_official_client_elsewhere.py",
)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Collects no garbage among the tests: there is none, and looking for it takes as long as making them. And keeps
    compiled templates for other processes, and for the next run."""
    gc.disable()
    if cache := getattr(session.config, "cache", None):
        html._environment().bytecode_cache = FileSystemBytecodeCache(str(cache.mkdir("templates")))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)  # after they have been shuffled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begins with the longest files in a run of several workers: none is alone with one of them at the end."""
    if hasattr(config, "workerinput"):
        ranks = {ROOT / "tests" / file: rank for rank, file in enumerate(LONGEST)}
        items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how much was verified, as far as the tests that count it were run."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    figures: Counter[str] = Counter()
    for report in reports:
        if getattr(report, "when", "") == "call":
            figures.update({name: number for name, number in report.user_properties if name in FIGURES})
    if figures:
        terminalreporter.section("figures")
        for name, meaning in FIGURES.items():
            if name in figures:
                terminalreporter.write_line(f"{figures[name]:>8,} {meaning}")


@pytest.fixture(scope="session", autouse=True)
def documented() -> Iterator[None]:
    """Holds every answer that a test gets over HTTP to the published OpenAPI documents, whatever the test is about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx2.Client, "send", checked(httpx2.Client.send))
        yield


def checked(send: Callable[..., httpx2.Response]) -> Callable[..., httpx2.Response]:
    @wraps(send)
    def send_and_check(client: httpx2.Client, request: httpx2.Request, **options: Any) -> httpx2.Response:
        answer = send(client, request, **options)
        if not options.get("stream"):
            headers = {name.lower(): value for name, value in answer.headers.items()}
            path = answer.request.url.path
            if path.startswith("/_sandbox"):  # docs/sandbox.md describes what no server of money has
                return answer
            check_answer(Answer(answer.request.method, path, answer.status_code, headers, answer.content))
        return answer

    return send_and_check


@pytest.fixture(scope="session", autouse=True)
def no_system_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """As on a machine without /etc/payres/payres.toml."""
    with pytest.MonkeyPatch.context() as patch:
        set_system_config(patch, tmp_path_factory.mktemp("etc") / "payres.toml")
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Hashes passwords in this process with as little work as Argon2 can; each would take a fifth of a second."""
    defaults = PasswordHasher.__init__.__defaults__
    assert defaults is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PasswordHasher.__init__, "__defaults__", (1, 8, 1, *defaults[3:]))  # passes, KiB, lanes
        yield


@pytest.fixture(scope="session", autouse=True)
def one_trust() -> Iterator[None]:
    """Reads the certificates that this machine trusts once; each client of httpx2 would, for 40 milliseconds."""
    read = httpcore2.default_ssl_context
    one = cache(lambda file, **options: read(**options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", lambda **options: one(os.getenv("SSL_CERT_FILE"), **options))
        yield


@pytest.fixture(scope="session", autouse=True)
def ready_made() -> Iterator[Callable[..., sqlite3.Connection]]:
    """Begins each new database as a copy of one with the schema: running schema.sql takes twenty times as long.

    Gives what runs it, as the tests of migrations do.
    """
    connect, lock = connections._connect, Lock()
    with closing(connections.connect_writer(":memory:")) as made:
        schema = made.serialize()
    logged = schema[:18] + b"\2\2" + schema[20:]  # in a file, with a write-ahead log

    def connect_copy(path: str, prepare: Callable[[sqlite3.Connection], object], *options: Any, **named: Any) -> Any:
        def prepare_copy(connection: sqlite3.Connection) -> None:
            connection.deserialize(schema)
            prepare(connection)

        if path == ":memory:":
            return connect(path, prepare_copy, *options, **named)
        with lock:
            if not named.get("is_uri") and not os.path.getsize(path):
                Path(path).write_bytes(logged)
        return connect(path, prepare, *options, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_connect", connect_copy)
        yield connect


@pytest.fixture
def second_version(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> int:
    """As if this program knew one more version; its number."""
    folder = tmp_path_factory.mktemp("versions") / "migrations"
    return make_up(monkeypatch, folder, "alter table secret add column note text;")


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Waits for a payment as long as for anything else, and not for the plugin's 10 seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance.wait_for, "__defaults__", (TIMEOUT,))
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One instance for many tests, which is quicker than one for each.

    A test makes for itself whatever it needs, a grant to begin with, and expects nothing of the wallets, grants and
    payments that others made. A test that moves the clock has another instance, as `payres`.
    """

    def refuse(seconds: float) -> None:
        raise AssertionError("this clock is that of other tests, too")

    with run_instance(tmp_path_factory.mktemp("shared") / "payres.db") as instance, pytest.MonkeyPatch.context() as one:
        one.setattr(instance.clock, "advance", refuse)
        yield instance


@pytest.fixture(scope="module")
def payres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One instance for the tests of a module, each of which makes what it needs; they may move its clock forward."""
    with run_instance(tmp_path_factory.mktemp("payres") / "payres.db") as instance:
        yield instance


@pytest.fixture
def still(payres: Instance) -> Iterator[None]:
    """No minute passes by itself."""
    payres.clock.freeze(True)
    yield
    payres.clock.freeze(False)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Sequence[Instance]]:
    """Two servers with a link in US dollars; their ledgers agree at the end of each test."""
    with network(tmp_path, "a", "b") as pair:
        peer(pair[0], pair[1])
        yield pair
        check_books(*pair)


@pytest.fixture
async def pauses() -> Sequence[float]:
    """The seconds that this loop was to pause for, each of which is over at once."""
    seconds: list[float] = []
    loop = asyncio.get_running_loop()

    def call_later(delay: float, *called: Any, **options: Any) -> asyncio.Handle:
        seconds.append(delay)
        return loop.call_soon(*called, **options)

    setattr(loop, "call_later", call_later)  # noqa: B010 - a method is replaced
    return seconds


@pytest.fixture
def tx() -> Iterator[Work]:
    """A unit of work at NOW in an empty database, of a node whose ILP address is `test.here`."""
    with closing(connections.connect_writer(":memory:")) as connection:
        yield work_at(connection, NOW, settings_with({"ilp_address": "test.here"}))


@pytest.fixture(scope="session")
def anonymous() -> Iterator[httpx2.Client]:
    """Sends requests without a signature."""
    with httpx2.Client(timeout=TIMEOUT, verify=False) as client:
        yield client


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Takes what is sent to a webhook."""
    with Endpoint().running() as running:
        yield running


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The headless shell, which needs a third of the processor time, or else the whole browser."""
    programs = ("chromium-headless-shell", "chromium", "chromium-browser")
    path = next(filter(None, map(shutil.which, programs)), None)
    if path is None:
        sentence = "there is no chromium-headless-shell or chromium on the PATH; install one to run the browser tests"
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return path


@pytest.fixture(scope="session")
def refused() -> Refused:
    return refusal
