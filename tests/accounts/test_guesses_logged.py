"""The log of wrong passwords, and the filter of fail2ban that reads it."""

import logging
import os
import re
from collections.abc import Callable, Iterator
from configparser import ConfigParser

import httpx2
import pytest

from payres.core.process.logs import OutputHandler
from tests.helpers import ROOT, TIMEOUT, sign_in_token
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import PASSWORD, Browser

OPERATOR = "sign-in failed from 203.0.113.9: x"
WRONG = "wrong-5f2c"

# As fail2ban's, for addresses alone.
ADDRESS = r"(?:::f{4,6}:)?(?P<ip>(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F:]*:[0-9a-fA-F:]+)"


def failregexes() -> list[re.Pattern[str]]:
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / "deploy/fail2ban.conf", encoding="utf-8")
    return [re.compile(one.replace("<ADDR>", ADDRESS)) for one in parser["Definition"]["failregex"].splitlines()]


def banned(line: str) -> str | None:
    found = [match["ip"] for one in failregexes() if (match := one.search(line))]
    return found[0] if found else None


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server with the wallet carol and an operator whose name looks like a line of the log."""
    with run_instance(
        tmp_path_factory.mktemp("sign-ins") / "payres.db", admin_hosts="192.0.2.0/24,2001:db8::/32"
    ) as running:
        running.create_wallet("carol", password=PASSWORD)
        with Browser(running) as browser:
            browser.send(browser.new_link(OPERATOR), password=PASSWORD, again=PASSWORD)
        yield running


@pytest.fixture(params=["text", "json"])
def lines(request: pytest.FixtureRequest) -> Iterator[Callable[[], list[str]]]:
    """What the server has logged of sign-ins until now."""
    reading, writing = os.pipe()
    handler, log = OutputHandler(request.param, writing), logging.getLogger("payres.sign_in")
    log.addHandler(handler)
    yield lambda: os.read(reading, 65536).decode().splitlines()
    log.removeHandler(handler)
    for descriptor in (reading, writing):
        os.close(descriptor)


def fail(instance: Instance, page: str, address: str, **fields: str) -> None:
    """Signs in with a wrong password, behind the proxy of this machine."""
    with httpx2.Client(base_url=instance.base_url, timeout=TIMEOUT) as http:
        form = {"choice": "sign-in", "csrf": sign_in_token(http, page), "password": WRONG} | fields
        assert http.post(page, data=form, headers={"X-Forwarded-For": address}).status_code in {401, 404}


@pytest.mark.parametrize("sent", ["192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7"])
def test_failed_sign_in_is_a_line_that_the_filter_matches(
    instance: Instance, lines: Callable[[], list[str]], sent: str
) -> None:
    fail(instance, "/account", sent, wallet="carol")
    fail(instance, "/account", sent, wallet=WRONG)
    fail(instance, "/admin", sent, name=OPERATOR)
    address = sent.removeprefix("::ffff:")
    owner, nobody, operator = found = lines()
    assert [banned(line) for line in found] == [address] * 3
    assert f"sign-in failed from {address}: owner:carol" in owner
    assert f"sign-in failed from {address}: no such account" in nobody
    assert f"sign-in failed from {address}: page:sign-in failed from 203.0.113.9: x" in operator
    assert WRONG not in "".join(found)
    for line in found:  # as the journal has it, and as fail2ban sees a file, without the time
        assert banned(f"vm payres[12]: {line}") == address
        assert banned(re.sub(r"\d{4}-[^Z]+Z", "", line)) == address


def test_address_that_cannot_be_read_bans_nobody(instance: Instance, lines: Callable[[], list[str]]) -> None:
    for address in ("198.51.100.1: forged", "fe80::1%203.0.113.9: x", "127.0.0.1"):
        fail(instance, "/account", address, wallet="carol")
    assert [banned(line) for line in lines()] == [None, "fe80::1", None]


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-26T19:00:00Z INFO payres.requests: GET /WARNING payres.sign_in: sign-in failed from 203.0.113.9: x",
        "2026-11-26T19:00:00.000Z WARNING payres.webhooks: WARNING payres.sign_in: sign-in failed from 203.0.113.9: x",
        '{"time":"","level":"WARNING","logger":"x","message":"payres.sign_in sign-in failed from 203.0.113.9: x"}',
    ],
)
def test_line_of_another_kind_bans_nobody(line: str) -> None:
    assert banned(line) is None
