"""Specification 6, 7 and 8: what errors look like, wherever they occur. `play` checks the shape of each."""

import json

import httpx2

from tests.helpers import usd
from tests.specification.driver import Driver
from tests.specification.scenario import Row, Send, breaks, keeps, play, table

NOBODY = "00000000-0000-7000-8000-000000000000"
PATHS = {
    "/incoming-payments": "GET, POST",
    f"/incoming-payments/{NOBODY}": "GET",
    f"/incoming-payments/{NOBODY}/complete": "POST",
    "/quotes": "POST",
    f"/quotes/{NOBODY}": "GET",
    "/outgoing-payments": "GET, POST",
    f"/outgoing-payments/{NOBODY}": "GET",
    "/outgoing-payment-grant": "GET",
    f"/continue/{NOBODY}": "DELETE, POST",
    f"/token/{NOBODY}": "DELETE, POST",
}


def posted(path: str, kind: str, raw: bytes) -> Send:
    """A signed body to an endpoint, with the access that it needs."""

    def send(driver: Driver) -> httpx2.Response:
        token = driver.token(kind, "create", wallet=driver.payer)
        return driver.client.request("POST", path, raw=raw, token=token)

    return send


def of_size(size: int) -> Send:
    """An incoming payment whose body has so many bytes, most of them spaces; 0 is the most that the server takes."""

    def send(driver: Driver) -> httpx2.Response:
        room = driver.instance.context.settings.max_body_bytes + size
        raw = json.dumps({"walletAddress": driver.taker, "metadata": {"a": "x"}}).encode().ljust(room)
        return driver.client.request(
            "POST", "/incoming-payments", raw=raw, token=driver.token("incoming-payment", "create")
        )

    return send


def as_media_type(media_type: str) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        raw = json.dumps({"walletAddress": driver.taker}).encode()
        token = driver.token("incoming-payment", "create")
        headers = {"content-type": media_type}
        return driver.client.request("POST", "/incoming-payments", raw=raw, token=token, headers=headers)

    return send


def asked_as(method: str, path: str) -> Send:
    return lambda driver: driver.anonymous.request(method, driver.instance.base_url + path)


def allowed(path: str) -> Send:
    """The refusal of a method that the address does not take, which names those that it takes."""

    def send(driver: Driver) -> httpx2.Response:
        answer = driver.anonymous.patch(driver.instance.base_url + path)
        assert set(PATHS[path].split(", ")) <= set(answer.headers["allow"].split(", "))
        return answer

    return send


def seen_by_reading(driver: Driver) -> httpx2.Response:
    """What became of a payment, as its taker learns it."""
    return driver.paid(driver.incoming(usd(500)), usd(500))


def with_callback(member: str) -> Send:
    return lambda driver: driver.create_incoming(**{member: "https://shop.example/paid"})


NASTY = {
    "nothing": b"",
    "a NUL": b"\0",
    "no UTF-8": b"\xff\xfe",
    "null": b"null",
    "arrays without end": b"[" * 30_000,
    "objects without end": b'{"walletAddress":' * 3_000,
    "a number without end": b"1" * 30_000,
    "all members null": b'{"walletAddress":null,"receiver":null,"method":null,"metadata":null}',
    "a member twice": b'{"walletAddress":"a","walletAddress":"a","receiver":"r","method":"ilp"}',
    "half of a surrogate pair": b'{"walletAddress":"\\ud800"}',
}

ROWS: list[Row] = [
    # 6
    keeps("6.1", "the taker reads", seen_by_reading, 200, values={"completed": True}),
    *(
        breaks("6.1 4.4.8", f"a member {name}", with_callback(name), f"400 invalid_request field={name}")
        for name in ("webhook", "callbackUrl")
    ),
    # 7.4, 7.10: bodies
    keeps("7.4 7.10", "a body that breaks no rule", lambda driver: driver.create_incoming(), 201, absent="error"),
    *(
        breaks(
            "7.4 7.10", f"{path}: {name}", posted(path, kind, raw), "400 invalid_request", present="error.details.field"
        )
        for path, kind in (
            ("/incoming-payments", "incoming-payment"),
            ("/quotes", "quote"),
            ("/outgoing-payments", "outgoing-payment"),
        )
        for name, raw in NASTY.items()
    ),
    *(
        breaks("7.10", f"GET {path}", asked_as("GET", path), "404 not_found")
        for path in (
            "/spec-nobody",
            "/spec-nobody/jwks.json",
            "/%00",
            "/%ff",
            "/a%2fb",
            "/..%2f",
            "/incoming-payments/x/y/z",
            "/index.php",
            "/x" * 500,
        )
    ),
    # 7.7
    keeps("7.7", "a resource that is there", lambda driver: driver.read_incoming(driver.incoming()), 200, present="id"),
    # 7.8
    keeps(
        "7.8", "a method that the address takes", lambda driver: driver.anonymous.get(driver.taker), 200, present="id"
    ),
    *(breaks("7.8", f"PATCH {path}", allowed(path), "405 method_not_allowed") for path in PATHS),
    breaks(
        "7.8", "POST to a wallet address", lambda driver: driver.anonymous.post(driver.taker), "405 method_not_allowed"
    ),
    # 7.9, 8.6
    keeps("7.9 8.6", "the longest body", of_size(0), 201, present="metadata.a"),
    breaks("7.9 8.6", "one byte more", of_size(1), "413 too_large"),
    *(
        keeps("7.9", f"sent as {media_type}", as_media_type(media_type), 201, present="id")
        for media_type in ("application/json; charset=utf-8", "Application/JSON", "application/json;v=1")
    ),
    *(
        breaks("7.9", f"sent as {media_type!r}", as_media_type(media_type), "415 unsupported_media_type")
        for media_type in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json")
    ),
]


@table(ROWS)
def test_errors(driver: Driver, row: Row) -> None:
    play(driver, row)
