"""Small requests made to cost much: headers, hosts, numbers and texts on which a careless parser spends seconds."""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from payres.accounts.cookies import browser_of
from payres.core.grants.spending_limits import parse_interval
from payres.core.http.requests import idempotency_key, page_query
from payres.core.http.responses import asks_for, check_accept
from payres.core.process.rate_limiter import counted_address
from payres.core.protocol.amounts import parse_value
from payres.core.protocol.clock import parse_time
from payres.core.protocol.errors import DomainError
from payres.core.protocol.limits import MAX_ACCEPT_BYTES, MAX_HOST_LENGTH, MAX_QUERY_BYTES
from payres.core.protocol.urls import Urls, canonical_url, is_http_url
from payres.core.protocol.wire import UNPAIRED_SURROGATE
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import parse_target
from payres.html.limits import MAX_FORM_BYTES
from tests.instance import Instance
from tests.raw_requests import ask

LONG = 32_000
MOST_STEPS = 200_000  # lines of Python: some for each of the 32 kB that a header section may have
# So much that what takes time in proportion to its length needs a fraction of a second, and what takes the square of it
# hours: regular expressions and other C code, whose steps nobody counts.
VERY_LONG = 3_200_000
COOKIES = {
    "escaped quotes": b'a="' + b'\\"' * 16_000 + b'"',
    "escaped quotes in the session": b'payres_session="' + b'\\"' * 15_900 + b'"',
    "octal escapes": b'payres_session="' + b"\\101" * 7_900 + b'"',
    "many": b"a=b;" * 8_000,
    "many sessions": b"payres_session=a;" * 1_880,
    "many wallets": b"".join(b"payres_known_%d=%b;" % (number, b"a" * 43) for number in range(500)),
    "a wallet of many digits": b"payres_known_" + b"1" * LONG,
    "spaces": b"a=b;" + b" " * LONG,
    "spaces after a session": b"payres_session=" + b"a" * 43 + b" " * 31_000 + b"x",
    "separators": b";" * LONG,
    "long": b"payres_session=" + b"a" * LONG,
}
ACCEPTS = {
    "many ranges": b"a/b," * 8_000,
    "different ranges": b",".join(b"a/%d" % number for number in range(4_500)),
    "parameters": b"a/b" + b";q=0.00000" * 3_200,
    "zeros": b"a/b;q=0." + b"0" * LONG + b"1",
    "spaces": b"a" + b" " * LONG + b"/b",
    "separators": b"," * LONG,
    "as much as is read": b"," * MAX_ACCEPT_BYTES,
}
HOSTS = {
    "letters": "é" * 1_900,
    "labels": "é." * 950,
    "marks": "a" + "\u0301" * 1_900,
    "joiners": "a\u094d\u200d" * 600,
    "expanding": "\ufdfa" * 1_900,
    "colons": f"[{':' * 1_900}]",
    "digits": "1" * 1_900,
    "escapes": "%41" * 630,
    "port": "a:" + "9" * 1_900,
}
QUERIES = {
    "names": b"a&" * 16_000,
    "fields": b"a=b&" * 8_000,
    "percents": b"%" * LONG,
    "digits": b"first=" + b"9" * LONG,
    "as much as is read": b"a&" * (MAX_QUERY_BYTES // 2),
}


def check_cheap(parse: Callable[[], object]) -> None:
    """Parses, or refuses, in few lines of Python, however many the input would keep busy."""
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        with suppress(DomainError, FetchFailed, ValueError):
            parse()
    finally:
        sys.settrace(before)
    assert steps < MOST_STEPS


def with_cookies(cookies: bytes) -> Request:
    app = SimpleNamespace(state={"context": SimpleNamespace(urls=Urls("http://pay.example"))})
    return Request({"type": "http", "headers": [(b"cookie", cookies)], "app": app})


@pytest.mark.parametrize("cookies", COOKIES.values(), ids=COOKIES.keys())
def test_costly_cookies(shared: Instance, cookies: bytes) -> None:
    check_cheap(lambda: browser_of(with_cookies(cookies * 100)))
    assert ask(shared, "GET", "/interact/a/b", [("host", "h"), ("cookie", cookies.decode())]).status == 404


@pytest.mark.parametrize("accept", ACCEPTS.values(), ids=ACCEPTS.keys())
def test_costly_accept(shared: Instance, accept: bytes) -> None:
    """It counts as absent, and so it is answered."""
    check_cheap(lambda: check_accept([(b"accept", accept)]))
    check_cheap(lambda: check_accept([(b"accept", b"a/b")] * 2_400))
    check_cheap(lambda: asks_for([(b"accept", b"application/spsp4+json," + accept)], "application/spsp4+json"))
    assert ask(shared, "GET", "/alice", [("host", "h"), ("accept", accept.decode())]).status == 200


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS.keys())
def test_costly_hosts(host: str) -> None:
    """No host that is longer than a name can be is looked at, and one that is as long costs little to make ASCII."""
    assert not is_http_url(f"https://{host}/pay")
    for shown in (f"https://{host}/pay", f"https://{host[:MAX_HOST_LENGTH]}/pay"):
        check_cheap(partial(canonical_url, shown))
        check_cheap(partial(parse_target, shown))


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_costly_queries(query: bytes) -> None:
    check_cheap(lambda: page_query(Request({"type": "http", "query_string": query, "headers": []})))


@pytest.mark.parametrize(
    "parse",
    [
        lambda: idempotency_key([(b"idempotency-key", b'"' + b"\\\\" * 15_000 + b'"')]),
        lambda: idempotency_key([(b"idempotency-key", b" " * VERY_LONG + b"a")]),
        lambda: counted_address("1:" * VERY_LONG),
        lambda: counted_address("fe80::1%" + "a" * VERY_LONG),
        lambda: parse_value("0" * VERY_LONG + "x"),
        lambda: parse_value("9" * VERY_LONG),
        lambda: parse_time("2026-01-01T00:00:00." + "0" * VERY_LONG + "Z"),
        lambda: parse_time("9" * VERY_LONG),
        lambda: parse_interval("R" + "9" * 250 + "/2026-01-01T00:00:00Z/P1M"),
        lambda: parse_interval("R/" * VERY_LONG),
        lambda: UNPAIRED_SURROGATE.match(b"\\u" * VERY_LONG),
        lambda: UNPAIRED_SURROGATE.match(b"[" * VERY_LONG),
    ],
)
def test_costly_texts(parse: Callable[[], object]) -> None:
    check_cheap(parse)


@pytest.mark.parametrize("form", [b"a=b&" * 4_000, b"a=" + b"%41" * 5_400, b"a=" + b"%" * 16_000, b"%ff%" * 4_000])
def test_costly_forms(shared: Instance, anonymous: httpx2.Client, form: bytes) -> None:
    assert len(form) <= MAX_FORM_BYTES
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert anonymous.post(f"{shared.base_url}/interact/a/b", content=form, headers=headers).status_code == 400


@pytest.mark.parametrize("digits", ["9" * 4_301, "0" * 30_000, "9" * 60_000])
def test_costly_numbers_are_refused_and_no_fault(shared: Instance, digits: str) -> None:
    """Python refuses to read more than 4300 digits, which must not become a fault of the server."""
    amount = f'{{"value":"{digits}","assetCode":"USD","assetScale":2}}'
    scale = f'{{"value":"1","assetCode":"USD","assetScale":{digits}}}'
    token = shared.client.grant({"type": "incoming-payment", "actions": ["create", "list"]})
    for member in (amount, scale):
        body = f'{{"walletAddress":"{shared.wallet("bob")}","incomingAmount":{member}}}'.encode()
        status = shared.client.request("POST", "/incoming-payments", token=token, raw=body).status_code
        assert status == 400 or (member == amount and not digits.strip("0")), body[:80]
    if len(digits) < LONG:
        path = f"/incoming-payments?wallet-address={shared.wallet('bob')}&first={digits}"
        assert shared.client.request("GET", path, token=token).status_code == 400
