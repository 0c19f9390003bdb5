"""Specification 9: what the official client checks of each answer, and would not hand on to its app."""

from urllib.parse import quote

import httpx2

from tests.helpers import Json, usd
from tests.specification.driver import Driver
from tests.specification.scenario import Row, Send, breaks, keeps, look, play, table
from tests.specification.shapes import (
    ACCESS_TOKEN,
    CREATED_OUTGOING_PAYMENT,
    GRANT_SPENDING,
    GRANTED,
    INCOMING_PAYMENT,
    INCOMING_PAYMENT_WITH_METHODS,
    JWK,
    OUTGOING_PAYMENT,
    PAGINATION,
    PUBLIC_INCOMING_PAYMENT,
    QUOTE,
    ROTATED,
    STILL_PENDING,
    TIME,
    TO_INTERACT,
    WALLET_ADDRESS,
)

CREATE = {"type": "incoming-payment", "actions": ["create"]}


def granted(driver: Driver) -> Json:
    return driver.client.obtain_grant(CREATE)


def rotated(driver: Driver) -> httpx2.Response:
    token = granted(driver)["access_token"]
    return driver.client.post(token["manage"], None, token["value"])


def rotated_twice(driver: Driver) -> httpx2.Response:
    """The rotation of a token that was rotated, at its old URI."""
    token = granted(driver)["access_token"]
    assert driver.client.post(token["manage"], None, token["value"]).status_code == 200
    return driver.client.post(token["manage"], None, token["value"])


def revoked(driver: Driver) -> httpx2.Response:
    token = granted(driver)["access_token"]
    return _empty(driver.client.delete(token["manage"], token["value"]))


def revoked_by_other(driver: Driver) -> httpx2.Response:
    """A token's revocation by another client, which has no part in it."""
    token = granted(driver)["access_token"]
    return driver.other.delete(token["manage"], token["value"])


def cancelled(driver: Driver) -> httpx2.Response:
    follow_up = granted(driver)["continue"]
    return _empty(driver.client.delete(follow_up["uri"], follow_up["access_token"]["value"]))


def cancelled_twice(driver: Driver) -> httpx2.Response:
    follow_up = granted(driver)["continue"]
    for _ in range(2):
        answer = driver.client.delete(follow_up["uri"], follow_up["access_token"]["value"])
    return answer


def continued(driver: Driver) -> httpx2.Response:
    asked = driver.ask()
    return driver.resume(asked, driver.approve(asked))


def polled(driver: Driver) -> httpx2.Response:
    return driver.resume(driver.ask(finish=False))


def spending(paid: int) -> Send:
    """What a grant has spent after one payment, or after none."""

    def send(driver: Driver) -> httpx2.Response:
        token = driver.token("outgoing-payment", "create", wallet=driver.payer)
        if paid:
            body = {"walletAddress": driver.payer, "incomingPayment": driver.incoming(), "debitAmount": usd(paid)}
            assert driver.client.post("/outgoing-payments", body, token).status_code == 201
        return driver.client.get("/outgoing-payment-grant", token)

    return send


def keys(driver: Driver) -> httpx2.Response:
    answer = driver.anonymous.get(f"{driver.client.wallet_address}/jwks.json")
    assert answer.json().keys() == {"keys"}
    return answer


def no_keys(driver: Driver) -> httpx2.Response:
    return driver.anonymous.get(f"{driver.taker}/jwks.json")


def did_document(driver: Driver) -> httpx2.Response:
    return driver.anonymous.get(f"{driver.client.wallet_address}/did.json")


def no_did_document(driver: Driver) -> httpx2.Response:
    return driver.anonymous.get(f"{driver.instance.base_url}/spec-nobody/did.json")


def new_payment(driver: Driver) -> httpx2.Response:
    answer = driver.create_incoming(incomingAmount=usd(500))
    return _one_asset(answer, "incomingAmount", "receivedAmount")


def read_payment(driver: Driver) -> httpx2.Response:
    return _one_asset(driver.paid(driver.incoming(usd(500)), usd(1)), "incomingAmount", "receivedAmount")


def listed_incoming(driver: Driver) -> httpx2.Response:
    wallet = driver.fresh()
    driver.incoming(usd(1), wallet)
    return driver.list_of("incoming-payments", wallet)


def listed_outgoing(driver: Driver) -> httpx2.Response:
    wallet = driver.fresh(deposit="1.00")
    driver.as_read(driver.send(driver.incoming(), usd(1), wallet))
    return driver.list_of("outgoing-payments", wallet)


def outgoing(is_read: bool) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        created = driver.send(driver.incoming(), usd(100))
        answer = driver.as_read(created) if is_read else created
        payment = _one_asset(answer, "debitAmount", "sentAmount").json()
        assert int(payment["sentAmount"]["value"]) <= int(payment["debitAmount"]["value"])
        assert payment["failed"] is False
        return answer

    return send


def with_slash(path: str, kind: str, action: str) -> Send:
    """A request with a slash after the path, which is signed with it and answered at once."""

    def send(driver: Driver) -> httpx2.Response:
        token = driver.token(kind, action, wallet=driver.taker)
        return driver.client.get(f"{path}/?wallet-address={quote(driver.taker, '')}", token)

    return send


def in_time(driver: Driver) -> httpx2.Response:
    """The slowest of what a client asks for: from a grant to a payment."""
    return driver.send(driver.incoming(usd(500)), usd(500))


def as_json(driver: Driver) -> httpx2.Response:
    answer = driver.create_incoming()
    assert answer.headers["content-type"] == "application/json"
    return answer


def _one_asset(answer: httpx2.Response, one: str, other: str) -> httpx2.Response:
    body = answer.json()
    for member in ("assetCode", "assetScale"):
        assert look(body, f"{one}.{member}") == look(body, f"{other}.{member}")
    return answer


def _empty(answer: httpx2.Response) -> httpx2.Response:
    assert answer.content == b""
    return answer


ROWS: list[Row] = [
    # 9.1: transport
    keeps("9.1.1 9.1.2", "JSON", as_json, 201, present="id"),
    keeps("9.1.1 9.1.2 9.2.6", "no body", cancelled, 204),
    keeps(
        "9.1.3",
        "a slash after the path",
        with_slash("/incoming-payments", "incoming-payment", "list"),
        200,
        present="result",
    ),
    keeps(
        "9.1.3",
        "a slash after a wallet address",
        lambda driver: driver.anonymous.get(f"{driver.taker}/", follow_redirects=False),
        200,
        values={"id": "{base}/spec-taker"},
    ),
    keeps("9.1.4", "grants and payments", in_time, 201, present="id"),
    # 9.2: wallet address server
    keeps(
        "9.2.1",
        "of a wallet with a name",
        lambda driver: driver.anonymous.get(driver.taker),
        200,
        shapes={"": WALLET_ADDRESS},
    ),
    keeps(
        "9.2.1",
        "of a wallet without a name",
        lambda driver: driver.anonymous.get(driver.fresh()),
        200,
        shapes={"": WALLET_ADDRESS},
        absent="publicName",
    ),
    keeps("9.2.2", "one key", keys, 200, shapes={"keys": JWK}),
    keeps("9.2.2", "no key", no_keys, 200, values={"": {"keys": []}}),
    keeps("9.2.3", "of a client", did_document, 200, present="id"),
    breaks("9.2.3", "of nobody", no_did_document, "404 not_found"),
    # 9.2: authorization server
    keeps(
        "9.2.4",
        "at once",
        lambda driver: driver.client.request_grant(CREATE),
        200,
        shapes={"": GRANTED},
        absent="interact",
    ),
    keeps(
        "9.2.4",
        "after consent",
        lambda driver: driver.client.request_grant(
            {"type": "outgoing-payment", "actions": ["create"], "identifier": driver.payer}
        ),
        200,
        shapes={"": TO_INTERACT},
        absent="access_token",
    ),
    keeps("9.2.5", "with the token", continued, 200, shapes={"": GRANTED}),
    keeps("9.2.5", "while the owner decides", polled, 200, shapes={"": STILL_PENDING}, absent="access_token subject"),
    breaks("9.2.6", "twice", cancelled_twice, "404 invalid_continuation"),
    keeps("9.2.7 9.2.18", "a valid token", rotated, 200, shapes={"": ROTATED}),
    breaks("9.2.7", "a token that was rotated", rotated_twice, "404 invalid_rotation"),
    keeps("9.2.8", "a valid token", revoked, 204),
    breaks("9.2.8", "by another client", revoked_by_other, "401 invalid_client"),
    keeps(
        "9.2.18",
        "no other members",
        lambda driver: driver.client.request_grant(CREATE),
        200,
        shapes={"access_token": ACCESS_TOKEN},
    ),
    # 9.2, 9.3: resource server
    keeps(
        "9.2.9 9.3.1 9.3.2 9.4.1",
        "a new one",
        new_payment,
        201,
        shapes={"": INCOMING_PAYMENT_WITH_METHODS},
        values={"receivedAmount.value": "0", "completed": False, "createdAt": TIME, "expiresAt": TIME},
    ),
    keeps("9.2.10 9.3.2", "a partly paid one", read_payment, 200, shapes={"": INCOMING_PAYMENT_WITH_METHODS}),
    keeps(
        "9.2.11",
        "unsigned",
        lambda driver: driver.anonymous.get(driver.incoming(usd(5))),
        200,
        shapes={"": PUBLIC_INCOMING_PAYMENT},
    ),
    keeps(
        "9.2.12 9.3.3",
        "without methods",
        lambda driver: driver.complete(driver.incoming(usd(5))),
        200,
        shapes={"": INCOMING_PAYMENT},
        values={"completed": True},
    ),
    keeps("9.2.13", "one item", listed_incoming, 200, shapes={"pagination": PAGINATION, "result": INCOMING_PAYMENT}),
    keeps(
        "9.2.13",
        "no item",
        lambda driver: driver.list_of("incoming-payments", driver.fresh()),
        200,
        shapes={"pagination": PAGINATION},
        values={"result": []},
    ),
    keeps("9.2.14", "create", lambda driver: driver.create_quote(driver.incoming(usd(5))), 201, shapes={"": QUOTE}),
    keeps(
        "9.2.14",
        "get",
        lambda driver: driver.read_quote(driver.quote(driver.incoming(usd(5)))),
        200,
        shapes={"": QUOTE},
    ),
    keeps(
        "9.2.15 9.3.4",
        "create",
        outgoing(is_read=False),
        201,
        shapes={"": CREATED_OUTGOING_PAYMENT},
        values={"sentAmount": usd(100)},
    ),
    keeps(
        "9.2.16 9.3.4",
        "get",
        outgoing(is_read=True),
        200,
        shapes={"": OUTGOING_PAYMENT},
        values={"sentAmount": usd(100)},
    ),
    keeps("9.2.16", "list", listed_outgoing, 200, shapes={"pagination": PAGINATION, "result": OUTGOING_PAYMENT}),
    keeps(
        "9.2.17",
        "something spent",
        spending(100),
        200,
        shapes={"": GRANT_SPENDING},
        values={"spentDebitAmount": usd(100), "spentReceiveAmount": usd(100)},
    ),
    keeps(
        "9.2.17", "nothing spent", spending(0), 200, values={"": {"spentDebitAmount": None, "spentReceiveAmount": None}}
    ),
]


@table(ROWS)
def test_official_checks(driver: Driver, row: Row) -> None:
    play(driver, row)
