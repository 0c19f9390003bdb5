"""Specification 5: message signatures and access tokens. What each access opens is in test_authorize_access.py."""

import json
import re
from collections.abc import Mapping, Sequence

import httpx2

from payres.core.protocol.clock import SECOND
from payres.core.signatures.fields import content_digest
from tests.helpers import sign_by_hand
from tests.specification.driver import NOBODY, Driver
from tests.specification.scenario import Row, breaks, keeps, play, sender, table

COVERED = ("@method", "@target-uri", "authorization", "content-digest")
MISMATCH = "401 invalid_client signature_mismatch"
BASE = re.compile(r'.*"@target-uri": http://127\.0\.0\.1:\d+/incoming-payments\n.*', re.DOTALL)
CREATE = {"type": "incoming-payment", "actions": ["create"]}
# Each signed endpoint: method, path, and the access that it needs.
ENDPOINTS = (
    ("GET", "/outgoing-payments", "outgoing-payment", "list"),
    ("GET", "/incoming-payments", "incoming-payment", "list"),
    ("POST", "/outgoing-payments", "outgoing-payment", "create"),
    ("POST", "/incoming-payments", "incoming-payment", "create"),
    ("GET", f"/incoming-payments/{NOBODY}", "incoming-payment", "read"),
    ("POST", f"/incoming-payments/{NOBODY}/complete", "incoming-payment", "complete"),
    ("POST", "/quotes", "quote", "create"),
    ("GET", f"/quotes/{NOBODY}", "quote", "read"),
    ("GET", f"/outgoing-payments/{NOBODY}", "outgoing-payment", "read"),
    ("GET", "/outgoing-payment-grant", "outgoing-payment", "create"),
)


@sender
def signed(
    driver: Driver,
    covered: Sequence[str] = COVERED,
    parameters: str = ';created={now};keyid="key-1"',
    *,
    origin: str = "http://{host}",
    path: str = "/incoming-payments",
    age: int = 0,
    sent: Mapping[str, str | None] | None = None,
    extra: bytes = b"",
    by_other: bool = False,
) -> httpx2.Response:
    """POST /incoming-payments with a signature made by hand over the components named, for this address.

    `sent` is what goes out instead of what was signed, and `extra` after the body; None leaves a header out.
    """
    host = driver.instance.base_url.removeprefix("http://")
    content = json.dumps({"walletAddress": driver.taker}).encode()
    headers: dict[str, str | None] = {
        "authorization": f"GNAP {driver.kept_token('incoming-payment', 'create')}",
        "content-type": "application/json",
        "content-length": str(len(content)),
        "content-digest": content_digest(content),
    }
    values = {"@method": "POST", "@target-uri": origin.format(host=host) + path} | headers
    key = (driver.other if by_other else driver.client).private_key
    parameters = parameters.format(now=driver.instance.clock.now() // SECOND - age)
    headers |= sign_by_hand(key, {name: str(values[name]) for name in covered}, parameters)
    headers |= {**(sent or {}), "content-length": str(len(content + extra))}
    going = [(name.encode(), value.encode()) for name, value in headers.items() if value is not None]
    return driver.anonymous.post(f"http://{host}/incoming-payments", content=content + extra, headers=going)


@sender
def asks_as(driver: Driver, path: str) -> httpx2.Response:
    """POST / in the name of a wallet address, signed with the key that `shop` lists."""
    return driver.client.request_grant(CREATE, client=driver.instance.wallet(path))


@sender
def unsigned(driver: Driver, method: str, path: str, kind: str = "", action: str = "") -> httpx2.Response:
    """With a token for this access, if it is named."""
    token = driver.kept_token(kind, action, wallet=driver.taker) if kind else ""
    headers = {"authorization": f"GNAP {token}"} if token else {}
    return driver.anonymous.request(method, driver.instance.base_url + path, headers=headers)


@sender
def public(driver: Driver) -> httpx2.Response:
    return driver.anonymous.get(driver.incoming())


def create(driver: Driver, token: str) -> httpx2.Response:
    return driver.client.post("/incoming-payments", {"walletAddress": driver.taker}, token)


@sender
def with_authorization(driver: Driver, value: str) -> httpx2.Response:
    """The header as given, in which {token} is a valid access token; it is what was signed."""
    headers = {"authorization": value.format(token=driver.kept_token("incoming-payment", "create"))}
    return driver.client.request("POST", "/incoming-payments", {"walletAddress": driver.taker}, headers=headers)


@sender
def with_revoked_token(driver: Driver) -> httpx2.Response:
    granted = driver.client.obtain_grant(CREATE)["access_token"]
    assert driver.client.delete(granted["manage"], granted["value"]).status_code == 204
    return create(driver, granted["value"])


@sender
def with_rotated_token(driver: Driver, *, is_old: bool) -> httpx2.Response:
    granted = driver.client.obtain_grant(CREATE)["access_token"]
    rotated = driver.client.post(granted["manage"], None, granted["value"]).json()["access_token"]
    return create(driver, granted["value"] if is_old else rotated["value"])


@sender
def with_token_of_cancelled_grant(driver: Driver) -> httpx2.Response:
    granted = driver.client.obtain_grant(CREATE)
    follow_up = granted["continue"]
    assert driver.client.delete(follow_up["uri"], follow_up["access_token"]["value"]).status_code == 204
    return create(driver, granted["access_token"]["value"])


@sender
def with_continuation_token(driver: Driver) -> httpx2.Response:
    return create(driver, driver.client.obtain_grant(CREATE)["continue"]["access_token"]["value"])


@sender
def with_token_of_other(driver: Driver) -> httpx2.Response:
    return create(driver, driver.token("incoming-payment", "create", by=driver.other))


@sender
def with_token_that_ends_in(driver: Driver, seconds: int) -> httpx2.Response:
    granted = driver.client.obtain_grant(CREATE)["access_token"]
    driver.instance.clock.advance(granted["expires_in"] - seconds)
    return create(driver, granted["value"])


@sender
def with_access(driver: Driver, *actions: str) -> httpx2.Response:
    return create(driver, driver.token("incoming-payment", *actions))


CHANGED = re.compile(r".*The body was changed after signing, or serialized again\..*")
NAMED = re.compile(r".*begins with 'https?://\S+': call http://127\.0\.0\.1:\d+ and.*")
UNNAMED = re.compile(r"(?!.*begins with).*")
ORIGINS = (
    ("https://{host}", None, NAMED),
    ("https://pay.example", "pay.example", NAMED),
    ("http://payres:8080", "payres:8080", NAMED),
    ("http://payres", "PAYRES", UNNAMED),
    ("http://payres", "payres", NAMED),
    ("https://{host}", "internal.example", NAMED),  # a proxy has put its own Host there
    ("https://pay.example", None, UNNAMED),
    ("http://pay.example", "pay.example", UNNAMED),
)

ROWS: list[Row] = [
    # 5.1, 5.2: what is covered
    keeps("5.1 5.2 5.3 5.6 9.1.5", signed(), 201),
    keeps("5.1 5.2", signed(COVERED[::-1]), 201),
    keeps("5.1 5.2", signed((*COVERED, "content-type", "content-length")), 201),
    *(
        breaks(
            f"{'5.2' if name == 'content-digest' else '5.1'} 7.2",
            signed([one for one in COVERED if one != name]),
            "401 invalid_client missing_component",
            {"error.details.component": name},
        )
        for name in COVERED
    ),
    breaks("5.2 7.2", signed(COVERED[:3], sent={"content-digest": None}), "401 invalid_client missing_digest"),
    breaks("5.2 7.2", signed(extra=b" "), "401 invalid_client digest_mismatch", {"error.details.hint": CHANGED}),
    breaks("5.2 7.2", signed(sent={"content-digest": content_digest(b"x")}), "401 invalid_client digest_mismatch"),
    breaks("5.2 7.2", signed(sent={"content-digest": "md5=:AAAA:"}), "401 invalid_client digest_unsupported"),
    # 5.3: the key
    breaks("5.3 7.2", signed(parameters=';created={now};keyid="key-2"'), "401 invalid_client unknown_key"),
    breaks("5.3 7.2", signed(parameters=";created={now}"), "401 invalid_client missing_keyid"),
    keeps("7.11", asks_as("shop"), 200),
    *(breaks("7.11", asks_as(who), "400 invalid_client unknown_key") for who in ("alice", "nobody")),
    # 5.6: the signature
    *(keeps("5.6", signed(age=age), 201) for age in (298, -59)),
    breaks("5.6", signed(age=302), "401 invalid_client created_too_old"),
    breaks("5.6", signed(age=-63), "401 invalid_client created_in_future"),
    keeps("5.6", signed(parameters=';created={now};keyid="key-1";expires=99999999999'), 201),
    breaks("5.6", signed(parameters=';created={now};keyid="key-1";expires={now}'), "401 invalid_client expired"),
    *(
        breaks("5.6 7.2", send, MISMATCH, {"error.details.signatureBase": BASE})
        for send in (
            signed(by_other=True),
            signed(path="/incoming-payments/"),
            signed(origin="https://{host}"),
            signed((*COVERED, "content-type"), sent={"content-type": "application/json; charset=utf-8"}),
        )
    ),
    # The hint names the origin that was signed, where that is likely and the key is right.
    *(
        breaks(
            "5.6", signed(origin=origin, sent={"host": host} if host else {}), MISMATCH, {"error.details.hint": hint}
        )
        for origin, host, hint in ORIGINS
    ),
    breaks("5.6", signed(origin="https://{host}", by_other=True), MISMATCH, {"error.details.hint": UNNAMED}),
    breaks("5.6 7.2", signed(sent={"authorization": "GNAP x"}), "401 invalid_token unknown_token"),
    *(
        breaks("5.6 7.2", signed(sent={name: None}), "401 invalid_client missing_signature")
        for name in ("signature", "signature-input")
    ),
    *(
        breaks("5.6 7.2", signed(sent={"signature": value}), "401 invalid_client")
        for value in ("undefined", "sig1=:AAAA:", "sig1=1", "sig2=:AAAA:", ":", "sig1")
    ),
    *(
        breaks("5.6 7.2", signed(sent={"signature-input": value}), "401 invalid_client")
        for value in ("undefined", "sig1=()", "sig1=1", "(", 'sig1=("@method"', "sig1=?")
    ),
    breaks("9.1.5", signed(sent={"signature-input": "undefined", "signature": "undefined"}), "401 invalid_client"),
    # 5.4, 7.5: without authorization, at each endpoint; the runner checks WWW-Authenticate of each 401
    keeps("5.4 7.5", public(), 200),
    *(
        breaks("5.4 7.5", unsigned(method, path), "401 invalid_token missing_token")
        for method, path, kind, action in ENDPOINTS
        if (kind, action) != ("incoming-payment", "read")
    ),
    *(breaks("5.6 7.2", unsigned(*endpoint), "401 invalid_client missing_signature") for endpoint in ENDPOINTS),
    # 5.5, 7.6: access
    keeps("5.5 7.6", with_access("create"), 201),
    breaks(
        "5.5 7.6",
        with_access("complete", "read-all", "list"),
        "403 insufficient_access action",
        {"error.details.type": "incoming-payment", "error.details.action": "create"},
    ),
    # 5.7: the token
    keeps("5.7", with_authorization("gnap {token}"), 201),
    keeps("5.7", with_rotated_token(is_old=False), 201),
    *(
        breaks("5.7 7.5", with_authorization(value), "401 invalid_token missing_token")
        for value in ("Bearer {token}", "{token}", "GNAP", "Basic eDp5")
    ),
    *(
        breaks("5.7", with_authorization(f"GNAP {value}"), "401 invalid_token unknown_token")
        for value in ("x" * 43, "none", "a b", "x" * 4000)
    ),
    breaks("5.7", signed(sent={"authorization": "GNAP é"}), "401 invalid_token unknown_token"),
    breaks("5.7", with_revoked_token(), "401 invalid_token revoked_token"),
    breaks("5.7", with_rotated_token(is_old=True), "401 invalid_token revoked_token"),
    breaks("5.7", with_token_of_cancelled_grant(), "401 invalid_token revoked_token"),
    breaks("5.7", with_continuation_token(), "401 invalid_token unknown_token"),
    breaks("5.7 5.6", with_token_of_other(), "401 invalid_client"),
    keeps("2.7.3", with_token_that_ends_in(10), 201),
    breaks("2.7.3 5.7", with_token_that_ends_in(0), "401 invalid_token expired_token"),
]


@table(ROWS)
def test_authentication(driver: Driver, row: Row) -> None:
    play(driver, row)
