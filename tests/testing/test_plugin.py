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


def report_of(pytester: pytest.Pytester, *texts: str, **outcomes: int) -> str:
    pytester.makepyfile(**{f"test_{number}": text for number, text in enumerate(texts)})
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:randomly")
    result.assert_outcomes(**outcomes)
    return str(result.stdout)


def requests_in(report: str) -> list[tuple[str, str]]:
    return re.findall(r"^\S+ INFO payres\.requests: (GET \S+ \d+)(.*)$", report, re.M)


def test_failing_test_shows_what_its_server_was_asked_and_what_was_wrong(pytester: pytest.Pytester) -> None:
    """Of a server for several tests, what was asked during this one."""
    report = report_of(pytester, OWN, SHARED, failed=3, passed=2)
    for name in ("payres", "payres_session"):
        assert report.count(f" Captured requests to {name} call ") == 1
    (quote, error), (alice, _), (bob, _) = requests_in(report)
    assert (quote, alice, bob) == ("GET /quotes/none 401", "GET /alice 200", "GET /bob 200")
    assert re.match(r' invalid_token .* hint="', error)


def test_other_systems_are_told_what_the_fixtures_need(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(BARRED)
    report = report_of(pytester, "def test_one(payres, payres_webhooks): pass", errors=1)
    assert NEEDS_LINUX in report  # and again in the summary, where CI=true has pytest not shorten it
    assert "ModuleNotFoundError" not in report


COMMANDS = ("sandbox", "serve", "demo", "wallet list", "pay", "admin password")
RUN = """
from payres.cli import main
for command in {commands}:
    try:
        main(command.split())
    except SystemExit as end:
        print(end.code)
"""


def test_other_systems_are_told_what_the_commands_need() -> None:
    program = BARRED + RUN.format(commands=COMMANDS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n" * len(COMMANDS))
    assert done.stderr == f"Error: {NEEDS_LINUX}\n" * len(COMMANDS)
