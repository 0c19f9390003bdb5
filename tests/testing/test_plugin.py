"""What the pytest plugin adds to the report of a test that fails."""

import re
import subprocess
import sys

import pytest

OWN = """
from contextlib import suppress
from payres.client.errors import TokenError


def test_fails(payres):
    with suppress(TokenError):
        payres.client.quote.get(f"{payres.base_url}/quotes/none", "wrong")
    payres.client.wallet_address.get(payres.wallet("alice"))
    assert False


def test_passes(payres):
    payres.client.wallet_address.get(payres.wallet("bob"))
"""
SHARED = """
def test_passes(payres_session):
    payres_session.client.wallet_address.get(payres_session.wallet("alice"))
    payres_session.fault("unavailable", times=None)  # ends with this test


def test_fails(payres_session, payres_module):
    payres_session.client.wallet_address.get(payres_session.wallet("bob"))
    assert False


def test_fails_without_a_request(payres_session, payres_module):
    assert False
"""


# As Python is on Windows, which lacks these.
BARRED = "import sys\n" + "".join(f"sys.modules['{name}'] = None\n" for name in ("fcntl", "pwd", "resource"))
NEEDS_LINUX = "payres needs Linux, and this is another system: run it in a container, as docs/sandbox.md shows"


def report_of(pytester: pytest.Pytester, text: str, **outcomes: int) -> str:
    pytester.makepyfile(text)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:randomly")
    result.assert_outcomes(**outcomes)
    return str(result.stdout)


def requests_in(report: str) -> list[tuple[str, str]]:
    return re.findall(r"^\S+ INFO payres\.requests: (GET \S+ \d+)(.*)$", report, re.M)


def test_failing_test_shows_what_its_server_was_asked_and_what_was_wrong(pytester: pytest.Pytester) -> None:
    report = report_of(pytester, OWN, failed=1, passed=1)
    assert report.count(" Captured requests to payres call ") == 1
    (quote, error), (alice, _) = requests_in(report)
    assert (quote, alice) == ("GET /quotes/none 401", "GET /alice 200")
    assert re.match(r' invalid_token .* hint="', error)


def test_server_for_several_tests_shows_the_requests_of_the_one_that_failed(pytester: pytest.Pytester) -> None:
    report = report_of(pytester, SHARED, failed=2, passed=1)
    assert [request for request, _ in requests_in(report)] == ["GET /bob 200"]
    assert report.count(" Captured requests to payres_session call ") == 1


def test_other_systems_are_told_what_the_fixtures_need(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(BARRED)
    report = report_of(pytester, "def test_one(payres, payres_webhooks): pass", errors=1)
    assert NEEDS_LINUX in report  # and again in the summary, where CI=true has pytest not shorten it
    assert "ModuleNotFoundError" not in report


@pytest.mark.parametrize("command", ["sandbox", "serve", "demo", "wallet list", "pay", "admin password"])
def test_other_systems_are_told_what_the_commands_need(command: str) -> None:
    program = f"{BARRED}from payres.cli import main\nmain({command.split()})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {NEEDS_LINUX}\n")
