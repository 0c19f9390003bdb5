"""Specification 5: message signatures and access tokens."""

from typing import Any
from urllib.parse import quote

import httpx2

from payres.signatures.fields import content_digest
from tests.specification.driver import Driver
from tests.specification.scenario import Row, Send, breaks, keeps, play, table

NOBODY = "00000000-0000-7000-8000-000000000000"
COVERED = ("@method", "@target-uri", "authorization", "content-digest")
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
ACTIONS = {
    "incoming-payment": ("create", "complete", "read", "list"),
    "outgoing-payment": ("create", "read", "list"),
    "quote": ("create", "read"),
}


def signed(**how: Any) -> Send:
    return lambda driver: driver.signed(**how)


def signed_by_other(driver: Driver) -> httpx2.Response:
    """With the other client's key, under the first one's keyid and with its token."""
    return driver.signed(signer=driver.other)


def with_digest_of_another_body(driver: Driver) -> httpx2.Response:
    """The digest header and the signature fit each other, and not the body."""
    return driver.signed(body=b'{"walletAddress":"http://127.0.0.1/spec-payer"}')


def repeated_header(driver: Driver) -> httpx2.Response:
    return driver.signed(sent={"signature-input": "undefined", "signature": "undefined"})


def asks_as(path: str) -> Send:
    """POST / in the name of a wallet address, signed with the key that `shop` lists."""
    item = {"type": "quote", "actions": ["create"]}
    return lambda driver: driver.client.request_grant(item, client=driver.instance.wallet(path))


def unsigned(method: str, path: str) -> Send:
    return lambda driver: driver.anonymous.request(method, driver.instance.base_url + path)


def unsigned_with_token(method: str, path: str, kind: str, action: str) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        headers = {"authorization": f"GNAP {driver.token(kind, action, wallet=driver.taker)}"}
        return driver.anonymous.request(method, driver.instance.base_url + path, headers=headers)

    return send


def public(driver: Driver) -> httpx2.Response:
    return driver.anonymous.get(driver.incoming())


def with_token(token: str) -> Send:
    return lambda driver: driver.client.post("/incoming-payments", {"walletAddress": driver.taker}, token)


def with_authorization(value: str) -> Send:
    """The header as given, in which {token} is a valid access token; it is what was signed."""

    def send(driver: Driver) -> httpx2.Response:
        authorization = value.format(token=driver.token("incoming-payment", "create"))
        body = {"walletAddress": driver.taker}
        return driver.client.request("POST", "/incoming-payments", body, headers={"authorization": authorization})

    return send


def with_revoked_token(driver: Driver) -> httpx2.Response:
    granted = driver.client.obtain_grant({"type": "incoming-payment", "actions": ["create"]})["access_token"]
    assert driver.client.delete(granted["manage"], granted["value"]).status_code == 204
    return with_token(granted["value"])(driver)


def with_rotated_token(old: bool) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        granted = driver.client.obtain_grant({"type": "incoming-payment", "actions": ["create"]})["access_token"]
        rotated = driver.client.post(granted["manage"], None, granted["value"]).json()["access_token"]
        return with_token(granted["value"] if old else rotated["value"])(driver)

    return send


def with_token_of_cancelled_grant(driver: Driver) -> httpx2.Response:
    granted = driver.client.obtain_grant({"type": "incoming-payment", "actions": ["create"]})
    follow_up = granted["continue"]
    assert driver.client.delete(follow_up["uri"], follow_up["access_token"]["value"]).status_code == 204
    return with_token(granted["access_token"]["value"])(driver)


def with_continuation_token(driver: Driver) -> httpx2.Response:
    granted = driver.client.obtain_grant({"type": "incoming-payment", "actions": ["create"]})
    return with_token(granted["continue"]["access_token"]["value"])(driver)


def with_token_of_other(driver: Driver) -> httpx2.Response:
    return with_token(driver.token("incoming-payment", "create", by=driver.other))(driver)


def ask_endpoint(method: str, path: str, token_for: tuple[str, tuple[str, ...]]) -> Send:
    """A signed request to an endpoint with access of this type and these actions to the taker's wallet address."""

    def send(driver: Driver) -> httpx2.Response:
        kind, actions = token_for
        token = driver.token(kind, *actions, wallet=driver.taker)
        listing = method == "GET" and path in {"/outgoing-payments", "/incoming-payments"}
        query = f"?wallet-address={quote(driver.taker, '')}" if listing else ""
        return driver.client.request(method, path + query, {} if method == "POST" else None, token)

    return send


def lacking(kind: str, action: str) -> tuple[str, tuple[str, ...]]:
    """All the access of this type but the action."""
    return kind, tuple(other for other in ACTIONS[kind] if other != action)


def of_another_type(kind: str, action: str) -> tuple[str, tuple[str, ...]]:
    """The action on resources of another type."""
    return next((other, (action,)) for other in ACTIONS if other != kind and action in (*ACTIONS[other], "complete"))


def next_status(method: str, path: str) -> int:
    """What a request with the access that it needs meets: most name nothing in their body, or what is not there."""
    if NOBODY in path:
        return 404
    return {"POST /incoming-payments": 201}.get(f"{method} {path}", 200 if method == "GET" else 400)


ROWS: list[Row] = [
    # 5.1, 5.2: what is covered
    keeps("5.1 5.2 5.3 5.6", "all that must be covered", signed(), 201, present="id"),
    keeps("5.1 5.2", "in another order", signed(covered=COVERED[::-1]), 201, present="id"),
    keeps("5.1 5.2", "and more", signed(covered=(*COVERED, "content-type")), 201, present="id"),
    *(
        breaks(
            f"{'5.2' if name == 'content-digest' else '5.1'} 7.2",
            f"{name} is not covered",
            signed(covered=[one for one in COVERED if one != name]),
            "401 invalid_client missing_component",
            values={"error.details.component": name},
        )
        for name in COVERED
    ),
    breaks(
        "5.2 7.2",
        "no digest",
        signed(covered=COVERED[:3], sent={"content-digest": None}),
        "401 invalid_client missing_digest",
    ),
    breaks("5.2 7.2", "the digest of another body", with_digest_of_another_body, "401 invalid_client digest_mismatch"),
    breaks(
        "5.2 7.2",
        "another digest than was signed",
        signed(sent={"content-digest": content_digest(b"x")}),
        "401 invalid_client digest_mismatch",
    ),
    breaks(
        "5.2 7.2",
        "a digest of MD5 alone",
        signed(sent={"content-digest": "md5=:AAAA:"}),
        "401 invalid_client digest_unsupported",
    ),
    # 5.3: the key
    breaks("5.3 7.2", "another keyid", signed(keyid="key-2"), "401 invalid_client unknown_key"),
    keeps("7.11", "a grant request with a key that the client lists", asks_as("shop"), 200, present="access_token"),
    *(
        breaks("7.11", f"a grant request in the name of {who}", asks_as(who), "400 invalid_client unknown_key")
        for who in ("alice", "nobody")
    ),
    breaks("5.3 7.2", "no keyid", signed(keyid=None), "401 invalid_client missing_keyid"),
    # 5.6: the signature
    breaks(
        "5.6 7.2",
        "another client's key",
        signed_by_other,
        "401 invalid_client signature_mismatch",
        values={},
        present="error.details.signatureBase",
    ),
    breaks(
        "5.6 7.2",
        "another token than was signed",
        signed(sent={"authorization": "GNAP x"}),
        "401 invalid_token unknown_token",
    ),
    *(
        breaks("5.6 7.2", f"no {name}", signed(sent={name: None}), "401 invalid_client missing_signature")
        for name in ("signature", "signature-input")
    ),
    *(
        breaks("5.6 7.2", f"a signature {value!r}", signed(sent={"signature": value}), "401 invalid_client")
        for value in ("undefined", "sig1=:AAAA:", "sig1=1", "sig2=:AAAA:", ":", "sig1")
    ),
    *(
        breaks("5.6 7.2", f"a signature input {value!r}", signed(sent={"signature-input": value}), "401 invalid_client")
        for value in ("undefined", "sig1=()", "sig1=1", "(", 'sig1=("@method"', "sig1=?")
    ),
    keeps("9.1.5", "a signature that is defined", signed(), 201, present="id"),
    breaks("9.1.5", "undefined signatures", repeated_header, "401 invalid_client"),
    # 5.4, 7.5: without authorization, at each endpoint; the runner checks WWW-Authenticate of each 401
    keeps("5.4", "what needs no authorization", public, 200, present="authServer"),
    *(
        breaks(
            "5.4 7.5",
            f"{method} {path} without authorization",
            unsigned(method, path),
            "401 invalid_token missing_token",
        )
        for method, path, _, action in ENDPOINTS
        if (method, action) != ("GET", "read") or "incoming" not in path
    ),
    *(
        breaks(
            "5.6 7.2",
            f"{method} {path} without a signature",
            unsigned_with_token(method, path, kind, action),
            "401 invalid_client missing_signature",
        )
        for method, path, kind, action in ENDPOINTS
    ),
    # 5.5, 7.6: access, at each endpoint
    *(
        keeps(
            f"5.5 {'7.5' if next_status(method, path) == 200 else '7.6'}",
            f"{method} {path} with {action}",
            ask_endpoint(method, path, (kind, (action,))),
            next_status(method, path),
        )
        for method, path, kind, action in ENDPOINTS
    ),
    *(
        breaks(
            "5.5 7.6",
            f"{method} {path} without {action}",
            ask_endpoint(method, path, lacking(kind, action)),
            "403 insufficient_access action",
            values={"error.details.type": kind, "error.details.action": action},
        )
        for method, path, kind, action in ENDPOINTS
    ),
    *(
        breaks(
            "5.5 7.6",
            f"{method} {path} with {action} of another type",
            ask_endpoint(method, path, of_another_type(kind, action)),
            "403 insufficient_access action",
        )
        for method, path, kind, action in ENDPOINTS
        if action != "complete"
    ),
    # 5.7: the token
    keeps("5.7", "gnap in small letters", with_authorization("gnap {token}"), 201, present="id"),
    keeps("5.7", "a rotated token's successor", with_rotated_token(old=False), 201, present="id"),
    *(
        breaks("5.7 7.5", f"Authorization: {value}", with_authorization(value), "401 invalid_token missing_token")
        for value in ("Bearer {token}", "{token}", "GNAP", "Basic eDp5")
    ),
    breaks("5.7", "a token that nobody was given", with_token("x" * 43), "401 invalid_token unknown_token"),
    breaks("5.7", "a revoked token", with_revoked_token, "401 invalid_token revoked_token"),
    breaks("5.7", "a rotated token", with_rotated_token(old=True), "401 invalid_token revoked_token"),
    breaks("5.7", "a token of a cancelled grant", with_token_of_cancelled_grant, "401 invalid_token revoked_token"),
    breaks("5.7", "a continuation token", with_continuation_token, "401 invalid_token unknown_token"),
    breaks("5.7 5.6", "another client's token", with_token_of_other, "401 invalid_client"),
]


@table(ROWS)
def test_authentication(driver: Driver, row: Row) -> None:
    play(driver, row)
