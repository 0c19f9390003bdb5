"""Specification 6, 7 and 8: what errors look like, wherever they occur. `play` checks the shape of each."""

import httpx2

from tests.helpers import usd
from tests.specification.driver import NOBODY, Driver
from tests.specification.scenario import ABSENT, Row, breaks, keeps, play, sender, table


@sender
def posted(driver: Driver, kind: str, raw: bytes) -> httpx2.Response:
    """A signed body to the address where such things are created, with the access that it needs."""
    token = driver.kept_token(kind, "create", wallet=driver.payer)
    return driver.client.request("POST", f"/{kind}s", raw=raw, token=token)


@sender
def of_size(driver: Driver, size: int) -> httpx2.Response:
    """An incoming payment whose body has so many bytes, most of them spaces; 0 is the most that the server takes."""
    body = b'{"walletAddress":"%b"}' % driver.taker.encode()
    return driver.raw_incoming(body.ljust(driver.instance.context.settings.max_body_bytes + size))


@sender
def as_media_type(driver: Driver, media_type: str) -> httpx2.Response:
    return driver.raw_incoming(b'{"walletAddress":"{taker}"}', **{"content-type": media_type})


@sender
def asked(driver: Driver, method: str, path: str) -> httpx2.Response:
    return driver.anonymous.request(method, driver.instance.base_url + path)


@sender
def seen_by_reading(driver: Driver) -> httpx2.Response:
    """What became of a payment, as its taker learns it."""
    return driver.paid(driver.incoming(usd(500)), usd(500))


@sender
def with_callback(driver: Driver, member: str) -> httpx2.Response:
    return driver.create_incoming(**{member: "https://shop.example/paid"})


@sender
def created_and_read(driver: Driver) -> httpx2.Response:
    return driver.read(driver.incoming())


NO_BODIES = (
    *(b"", b"\0", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"null", b"[]", b'"x"', b"{}{}", b"a=1", b'{"walletAddress":'),
    *(b"[" * 30_000, b'{"walletAddress":' * 3_000, b"1" * 30_000, b'{"walletAddress":"\\ud800"}'),
    b'{"walletAddress":null,"receiver":null,"method":null,"metadata":null}',
    b'{"walletAddress":"a","walletAddress":"a","receiver":"r","method":"ilp"}',
)

ROWS: list[Row] = [
    # 6
    keeps("6.1", seen_by_reading(), 200, {"completed": True}),
    *(
        breaks("6.1 4.4.8", with_callback(name), f"400 invalid_request field={name}")
        for name in ("webhook", "callbackUrl")
    ),
    # 7.4, 7.10: bodies
    keeps("7.4 7.7 7.10", created_and_read(), 200, {"error": ABSENT}),
    *(
        breaks("4.4.8 7.4 7.10", posted(kind, raw), "400 invalid_request", {"error.details.field": str})
        for kind in ("incoming-payment", "quote", "outgoing-payment")
        for raw in NO_BODIES
    ),
    # 7.8; which methods each address takes is in tests/core/http/test_error_answers.py
    keeps("7.8", asked("GET", "/spec-taker"), 200),
    breaks("7.8", asked("POST", "/spec-taker"), "405 method_not_allowed"),
    breaks("7.8", asked("PATCH", f"/quotes/{NOBODY}"), "405 method_not_allowed"),
    # 7.9, 8.6
    keeps("7.9 8.6", of_size(0), 201),
    breaks("7.9 8.6", of_size(1), "413 too_large"),
    *(
        keeps("7.9", as_media_type(media_type), 201)
        for media_type in ("application/json; charset=utf-8", "Application/JSON", "application/json;v=1")
    ),
    *(
        breaks("7.9", as_media_type(media_type), "415 unsupported_media_type")
        for media_type in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json")
    ),
]


@table(ROWS)
def test_errors(driver: Driver, row: Row) -> None:
    play(driver, row)
