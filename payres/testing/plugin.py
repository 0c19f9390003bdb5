"""A pytest plugin: the fixture `payres` is a running instance per test; others are per module or session. The report of
a failed test has the requests that its instances answered.

It is installed with the package, so `def test_checkout(payres): ...` is enough; see docs/testing.md. Slow imports are
deferred until first use.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from payres.testing.instance import Instance
    from payres.testing.receiver import WebhookReceiver


@pytest.fixture
def payres(tmp_path: Path) -> "Iterator[Instance]":
    """A payres instance on loopback with its own database, wallets alice and bob with 1000.00 USD each, a client with a
    registered key, and a clock that the test can move."""
    yield from _instance(tmp_path)


@pytest.fixture(scope="module")
def payres_module(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Instance]":
    """Like `payres`, shared by all tests of a module."""
    yield from _instance(tmp_path_factory.mktemp("payres"))


@pytest.fixture(scope="session")
def payres_session(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Instance]":
    """Like `payres`, shared by all tests of a session."""
    yield from _instance(tmp_path_factory.mktemp("payres"))


@pytest.fixture
def payres_webhooks(payres: "Instance") -> "Iterator[WebhookReceiver]":
    """A receiver that verifies and keeps all events of `payres`."""
    from payres.testing.receiver import receive_webhooks

    with receive_webhooks(payres) as receiver:
        yield receiver


def _instance(folder: Path) -> "Iterator[Instance]":
    try:
        from payres.testing.instance import run_instance
    except ModuleNotFoundError as error:
        from payres.core.protocol.errors import explain_missing

        raise pytest.fail.Exception(explain_missing(error), pytrace=False) from None
    with run_instance(folder / "payres.db") as instance:
        yield instance


@pytest.hookimpl(tryfirst=True)  # before pytest builds the report from the sections
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> None:
    """Adds the requests of the test's instances to a failed test's report; these and faults end with each test."""
    if "payres.testing.instance" not in sys.modules:
        return
    from payres.testing.instance import Instance

    for name, value in getattr(item, "funcargs", {}).items():
        if not isinstance(value, Instance):
            continue
        if call.when == "call" and call.excinfo is not None and value.requests:
            item.add_report_section("call", f"requests to {name}", "\n".join(value.requests))
        elif call.when == "teardown":
            value.requests.clear()
            value.faults.remove()
