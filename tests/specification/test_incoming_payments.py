"""Specification 2.2, 2.3, 3, 4.4, 4.5 and 4.6: incoming payments, and wallet addresses and their keys."""

import json
import re
from typing import Any
from urllib.parse import quote

import httpx2

from payres.core.protocol.clock import HOUR, format_time, parse_time
from payres.operator import wallets
from tests.helpers import Json, usd
from tests.specification.driver import NOBODY, Driver
from tests.specification.scenario import ABSENT, TIME, Row, breaks, keeps, play, sender, table

DAY = 86_400
INCOMING_PAYMENT = "id walletAddress completed receivedAmount expiresAt createdAt incomingAmount? metadata?"
WITH_METHODS = {"": f"{INCOMING_PAYMENT} methods", "methods": "type ilpAddress sharedSecret"}
PUBLIC = {"": "receivedAmount authServer"}
WALLET_ADDRESS = {"": "id assetCode assetScale authServer resourceServer publicName?"}


@sender
def created(driver: Driver, /, **members: Any) -> httpx2.Response:
    """{base} in a wallet address is the base URL, {upper} the same in capitals."""
    base = driver.instance.base_url
    if "walletAddress" in members:
        members["walletAddress"] = members["walletAddress"].format(base=base, upper=base.upper())
    return driver.create_incoming(**members)


@sender
def written(driver: Driver, members: str | bytes) -> httpx2.Response:
    """An incoming payment with members as written, after the walletAddress."""
    raw = members.encode() if isinstance(members, str) else members
    return driver.raw_incoming(b'{"walletAddress":"{taker}",%b}' % raw)


@sender
def echoed(driver: Driver, metadata: str) -> httpx2.Response:
    """The answer to reading a payment with this metadata, which creating, reading and listing give back exactly."""
    wallet = driver.fresh()
    token = driver.token("incoming-payment", "create", "read", "list")
    raw = f'{{"walletAddress":"{wallet}","metadata":{metadata}}}'.encode()
    created = driver.client.request("POST", "/incoming-payments", raw=raw, token=token)
    assert created.status_code == 201, created.text
    read = driver.client.get(created.json()["id"], token)
    listed = driver.client.get(f"/incoming-payments?wallet-address={quote(wallet, '')}", token)
    for answer in (created, read, listed):
        assert f'"metadata":{metadata}'.encode() in answer.content, answer.text
    return read


@sender
def expiring_in(driver: Driver, seconds: float) -> httpx2.Response:
    return driver.create_incoming(expiresAt=driver.later(seconds))


@sender
def expiring_at_an_offset(driver: Driver) -> httpx2.Response:
    """The time in an hour, as a clock in India shows it."""
    later = driver.later(3600)
    india = format_time(parse_time(later) + 11 * HOUR // 2)[:-1] + "+05:30"
    answer = driver.create_incoming(expiresAt=india)
    assert answer.json()["expiresAt"] == later
    return answer


@sender
def lasting_by_default(driver: Driver) -> httpx2.Response:
    answer = driver.create_incoming()
    payment = answer.json()
    assert parse_time(payment["expiresAt"]) - parse_time(payment["createdAt"]) == 30 * DAY * 1_000_000
    return answer


@sender
def expiring_as_late_as_can_be(driver: Driver) -> httpx2.Response:
    """At the time that the refusal of a later one names."""
    late = driver.create_incoming(expiresAt=driver.later(31 * DAY))
    latest = re.search(r"no later than (\S+)$", late.json()["error"]["details"]["hint"])
    assert latest is not None
    return driver.create_incoming(expiresAt=latest[1])


@sender
def without_wallet_address(driver: Driver, *, is_granted: bool) -> httpx2.Response:
    token = driver.token("incoming-payment", "create", wallet=driver.taker if is_granted else None)
    return driver.client.post("/incoming-payments", {}, token)


@sender
def with_inactive_wallet(driver: Driver, what: str) -> httpx2.Response:
    wallet = driver.fresh()
    url = driver.incoming(wallet=wallet)
    driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
    match what:
        case "create":
            return driver.create_incoming(wallet)
        case "read an old payment":
            return driver.read(url)
    return driver.anonymous.get(wallet)


@sender
def got(driver: Driver, path: str) -> httpx2.Response:
    """GET without a signature."""
    return driver.anonymous.get(f"{driver.instance.base_url}/{path}", follow_redirects=False)


@sender
def got_wallet_without_a_name(driver: Driver) -> httpx2.Response:
    return driver.anonymous.get(driver.fresh())


@sender
def read(driver: Driver, payment: str) -> httpx2.Response:
    """A payment in this state, or one that is not there."""
    return driver.read(driver.completed() if payment == "completed" else f"/incoming-payments/{payment}")


@sender
def read_new(driver: Driver) -> httpx2.Response:
    return driver.read(driver.incoming(usd(500), metadata={"a": 1}))


@sender
def read_publicly(driver: Driver, /, lead: str = "open", **headers: str) -> httpx2.Response:
    return driver.anonymous.get(place(driver, lead), headers=headers)


@sender
def read_by_other(driver: Driver, action: str) -> httpx2.Response:
    return driver.other.get(place(driver, "open"), driver.token("incoming-payment", action, by=driver.other))


def place(driver: Driver, state: str) -> str:
    """The URL of an incoming payment in this state."""
    match state:
        case "expired":
            return driver.expired()
        case "completed":
            return driver.completed()
        case "partly paid":
            receiver = driver.incoming(usd(500))
            driver.paid(receiver, usd(1))
            return receiver
        case "full":
            receiver = driver.incoming(usd(500))
            driver.paid(receiver, usd(500))
            return receiver
    return driver.incoming(usd(500), metadata={"secret": 1})


@sender
def two_have_details_of_their_own(driver: Driver) -> httpx2.Response:
    """And details stay what they are."""
    first, second = driver.create_incoming().json(), driver.create_incoming().json()
    [one], [other] = first["methods"], second["methods"]
    assert one["ilpAddress"] != other["ilpAddress"]
    assert one["sharedSecret"] != other["sharedSecret"]
    answer = driver.read(first["id"])
    assert answer.json()["methods"] == [one]
    return answer


@sender
def paid(driver: Driver, *values: int, incoming_amount: int | None = 500) -> httpx2.Response:
    """The incoming payment after these payments, before the last of which it is open."""
    receiver = driver.incoming(usd(incoming_amount) if incoming_amount else None)
    for value in values:
        assert driver.read(receiver).json()["completed"] is False
        answer = driver.paid(receiver, usd(value))
    return answer


@sender
def pay(driver: Driver, state: str, value: int = 1) -> httpx2.Response:
    """A payment to a receiver in this state."""
    return driver.send(place(driver, state), usd(value))


@sender
def raced(driver: Driver, value: int, winners: int, before: int = 0) -> httpx2.Response:
    """An incoming payment of 500 after several payers paid a value at the same moment, of whom so many could; the
    others are refused, and so is another one if it is full."""
    receiver = driver.incoming(usd(500))
    if before:
        driver.paid(receiver, usd(before))
    wallets = [driver.fresh(deposit="1000.00") for _ in range(8)]
    tokens = [driver.token("outgoing-payment", "create", "read", wallet=wallet) for wallet in wallets]

    def attempt(number: int) -> httpx2.Response:
        body = {"walletAddress": wallets[number], "incomingPayment": receiver, "debitAmount": usd(value)}
        return driver.client.post("/outgoing-payments", body, tokens[number])

    answers = driver.at_once(attempt)
    driver.instance.check_ledger()
    refused = {answer.json()["error"]["code"] for answer in answers if answer.status_code != 201}
    assert refused <= {"invalid_receiver", "invalid_amount"}
    made = [
        driver.client.get(answer.json()["id"], token).json()
        for answer, token in zip(answers, tokens, strict=True)
        if answer.is_success
    ]
    assert [(payment["failed"], payment["sentAmount"]) for payment in made] == [(False, usd(value))] * winners
    return driver.read(receiver)


@sender
def expires_while_open(driver: Driver, seconds: int) -> httpx2.Response:
    """A payment that lasts for a minute, so many seconds after somebody paid a part of it halfway."""
    receiver = driver.incoming(usd(500), expiresAt=driver.later(60))
    driver.instance.clock.advance(30)
    assert len(driver.paid(receiver, usd(200)).json()["methods"]) == 1
    driver.instance.clock.advance(seconds)
    return driver.read(receiver)


@sender
def complete(driver: Driver, state: str = "open", *, times: int = 1) -> httpx2.Response:
    """As it is answered each time."""
    url = place(driver, state) if state != "nobody's" else f"/incoming-payments/{NOBODY}"
    answers = [driver.complete(url) for _ in range(times)]
    assert {answer.content for answer in answers} == {answers[0].content}
    return answers[0]


@sender
def complete_with(driver: Driver, *actions: str, raw: bytes = b"", media_type: str = "") -> httpx2.Response:
    """With these actions and this body."""
    headers = {"content-type": media_type} if media_type else {}
    token = driver.token("incoming-payment", *(actions or ["complete"]))
    url = f"{driver.incoming()}/complete"
    return driver.client.request("POST", url, raw=raw, token=token, headers=headers)


@sender
def complete_by_other(driver: Driver, *, elsewhere: bool = False) -> httpx2.Response:
    """Another client, with the permission for any wallet address or for another one."""
    wallet = driver.payer if elsewhere else None
    token = driver.token("incoming-payment", "complete", wallet=wallet, by=driver.other)
    return driver.other.post(f"{driver.incoming()}/complete", None, token)


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


GOOD_METADATA = (
    *("{}", '{"":{"":[]}}', '{"n":null,"t":true,"f":false,"s":"x","a":[1,"2",[]],"o":{"p":{}}}'),
    *('{"größe":"日本語 العربية 😀 é"}', r'{"a":"\u00e9\ud83d\ude00\u0000\/\"\\\n"}', '{ "a" :\t[ 1 ,\n2 ] }'),
    *('{"a":[1.0,1.00,1e2,1E+2,-0,-0.0,0.1,1e-7]}', '{"a":[1e400,-1e999,1e-999]}', '{"a":' + "9" * 400 + "}"),
    *('{"z":1,"a":2,"m":3}', '{"a":1,"a":2}', '{"__proto__":{"x":1},"constructor":1,"$ref":"#","walletAddress":0}'),
    *(json.dumps({"a": "x" * 4_000}), nested(100)),
)
BAD_METADATA = (
    *(b"[]", b'"{}"', b"1", b"true", b"null", b'{"a":"\xff"}'),
    b'{"a":"\xed\xa0\x80"}',  # half of a surrogate pair as UTF-8
    b'{"a":"%b"}' % (b"x" * 4_089),  # more than 4,096 bytes
)
NO_JSON = (
    *('{"a":NaN}', '{"a":-Infinity}', '{"a":01}', '{"a":1.}', '{"a":1,}', '{"a":1/**/}', "{'a':1}", '{"a":"\x01"}'),
    *(r'{"a":"\ud800"}', '{"a":{', nested(10_000), '{"a":' + "[" * 15_000 + "]" * 15_000 + "}"),
)
NO_WALLET_ADDRESSES = (
    *("/spec-taker", "spec-taker", "$127.0.0.1/spec-taker", "{base}/spec-nobody", "{base}", "{base}/spec-take"),
    *("https://elsewhere.example/spec-taker", "ftp://127.0.0.1/spec-taker", "http://["),
)
NO_TIMES = (
    *("2999-01-01T00:00:00", "2999-01-01", "2999-01-01 00:00:00Z", "2999-02-30T00:00:00Z", "2999-01-01T24:00:00Z"),
    *("2999-01-01T00:00:61Z", "2999-01-01T00:00:00+24:00", "0001-01-01T00:00:00+01:00"),
    *("tomorrow", "PT60S", "32472144000"),
)
NO_WALLET = "400 invalid_request field=walletAddress"
NO_TIME = "400 invalid_request field=expiresAt"
BAD_TIME = "400 invalid_expiry field=expiresAt"
NO_RECEIVER = "400 invalid_receiver field=incomingPayment"
TAKER: Json = {"walletAddress": "{base}/spec-taker"}

ROWS: list[Row] = [
    # 2.2: the wallet address
    *(
        keeps("2.2.1 2.3.2", created(walletAddress=spelling), 201, TAKER)
        for spelling in ("{base}/spec-taker", "{base}/spec-taker/", "{base}/SPEC-Taker", "{upper}/spec-taker")
    ),
    *(breaks("2.2.1 2.3.2", created(walletAddress=url), NO_WALLET) for url in NO_WALLET_ADDRESSES),
    *(
        keeps(
            "2.2.2 9.1.3 9.2.1",
            got(path),
            200,
            {
                "id": "{base}/spec-taker",
                "assetCode": "USD",
                "assetScale": 2,
                "publicName": "Taker",
                "authServer": "{base}/",
                "resourceServer": "{base}",
            },
            WALLET_ADDRESS,
        )
        for path in ("spec-taker", "spec-taker/")
    ),
    keeps("2.2.2 9.2.1", got_wallet_without_a_name(), 200, {"publicName": ABSENT}, WALLET_ADDRESS),
    breaks("2.2.2 7.7", got("spec-nobody"), "404 not_found"),
    keeps("2.2.3", with_inactive_wallet("read an old payment"), 200),
    breaks("2.2.3", with_inactive_wallet("get"), "404 not_found"),
    breaks("2.2.3", with_inactive_wallet("create"), NO_WALLET),
    keeps("9.2.2", got("shop/jwks.json"), 200, None, {"": "keys", "keys": "kid alg kty crv x"}),
    keeps("9.2.2", got("spec-taker/jwks.json"), 200, {"": {"keys": []}}),
    keeps("9.2.3", got("shop/did.json"), 200, {"": dict}),
    breaks("9.2.3", got("spec-nobody/did.json"), "404 not_found"),
    # 2.3 and 4.4: creation
    keeps(
        "2.3.1 2.3.3 2.3.4 2.3.8 9.1.4 9.2.9 9.3.1 9.3.2 9.4.1",
        created(incomingAmount=usd(500), metadata={"ref": "A/1"}),
        201,
        {
            "id": re.compile(r"http://127\.0\.0\.1:\d+/incoming-payments/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}"),
            "completed": False,
            "incomingAmount": usd(500),
            "receivedAmount": usd(0),
            "metadata": {"ref": "A/1"},
        },
        WITH_METHODS,
    ),
    keeps("2.3.1 4.5.1 4.5.2", read_new(), 200, {"metadata": {"a": 1}}, WITH_METHODS),
    keeps("2.3.4 2.3.7 4.4.5", created(), 201, {"incomingAmount": ABSENT, "metadata": ABSENT}, WITH_METHODS),
    breaks("2.3.4", created(incomingAmount=None), "400 invalid_request field=incomingAmount"),
    breaks("2.3.1 4.5.2 7.7", read(NOBODY), "404 not_found"),
    *(breaks("4.5.2 7.7", read(name), "404 not_found") for name in ("none", "%00", "%ff", "..%2f..", "😀")),
    breaks("4.5.2 7.7", got(f"incoming-payments/{NOBODY}"), "404 not_found"),
    keeps("2.3.9 4.4.2", two_have_details_of_their_own(), 200, {"methods.0.type": "ilp", "methods.1": ABSENT}),
    # 2.3.6, 4.4.7: expiry
    keeps("2.3.6 4.4.7", expiring_in(60), 201, {"expiresAt": TIME}),
    keeps("2.3.6", expiring_at_an_offset(), 201, {"expiresAt": TIME}),
    keeps("4.4.7", lasting_by_default(), 201),
    keeps("4.4.7", expiring_in(30 * DAY), 201),
    keeps("4.4.7", expiring_as_late_as_can_be(), 201),
    *(breaks("4.4.7", expiring_in(seconds), BAD_TIME) for seconds in (31 * DAY, 0, -60)),
    *(breaks("4.4.7", created(expiresAt=f"{year}-12-31T23:59:59Z"), BAD_TIME) for year in ("9999", "0001")),
    *(breaks("2.3.6", created(expiresAt=text), BAD_TIME) for text in NO_TIMES),
    *(breaks("2.3.6", created(expiresAt=value), NO_TIME) for value in (32472144000, None, "")),
    # 2.3.7: metadata
    *(keeps("2.3.7", echoed(metadata), 200, {"metadata": dict}) for metadata in GOOD_METADATA),
    *(
        breaks("2.3.7", written(b'"metadata":' + metadata), "400 invalid_request field=metadata")
        for metadata in BAD_METADATA
    ),
    *(
        breaks("2.3.7 4.4.8 8.6", written(f'"metadata":{metadata}'), "400 invalid_request field=body")
        for metadata in NO_JSON
    ),
    # 4.4.5, 4.4.6 and 4.4.8: the body
    keeps("4.4.5", without_wallet_address(is_granted=True), 201, TAKER),
    breaks("4.4.5", without_wallet_address(is_granted=False), NO_WALLET),
    breaks("4.4.5", created(walletAddress=""), NO_WALLET),
    breaks("4.4.5", written('"walletAddress":null'), NO_WALLET),
    keeps("4.4.6", created(incomingAmount=usd(5)), 201, {"incomingAmount": usd(5)}),
    keeps("4.4.8", written(' "metadata" :\n{ } \t'), 201),
    *(
        breaks("4.4.8 7.4", created(**{name: 1}), f"400 invalid_request field={name}")
        for name in ("id", "completed", "receivedAmount", "methods", "description", "WalletAddress")
    ),
    # 4.5 and 2.3.11: reading
    keeps("2.3.11 4.5.1 9.2.11", read_publicly(), 200, {"receivedAmount": usd(0), "authServer": "{base}/"}, PUBLIC),
    keeps("2.3.11", read_publicly(**{"signature": "undefined", "signature-input": "undefined"}), 200, None, PUBLIC),
    keeps("2.3.11", read_publicly("completed"), 200, None, PUBLIC),
    keeps("2.3.11 3.2", read_publicly("expired"), 200, None, PUBLIC),
    *(
        breaks("2.3.11 4.5.1", read_publicly(authorization=value), f"401 {code}")
        for value, code in (("GNAP unknown", "invalid_client"), ("", "invalid_token"), ("Bearer x", "invalid_token"))
    ),
    breaks("4.5.1 7.7", read_by_other("read"), "404 not_found"),
    keeps("4.5.1", read_by_other("read-all"), 200, {"methods.0": dict, "metadata": {"secret": 1}}),
    # 3, 4.4.3: completion by amount
    keeps("2.3.3 3.1 4.4.3 2.3.12", paid(500), 200, {"completed": True, "receivedAmount": usd(500), "methods": []}),
    keeps("2.3.5 3.1 4.4.3", paid(200, 300), 200, {"completed": True, "receivedAmount": usd(500)}),
    keeps("2.3.5 3.1 4.4.3 9.2.10", paid(499), 200, {"completed": False, "receivedAmount": usd(499)}, WITH_METHODS),
    keeps("2.3.5", paid(2**20, 1, incoming_amount=None), 200, {"completed": False, "receivedAmount": usd(2**20 + 1)}),
    breaks("3.1 4.4.3", pay("full"), NO_RECEIVER),
    breaks(
        "3.1 4.4.3 4.3.6",
        pay("open", 501),
        "400 invalid_amount",
        {"error.details.remaining": "500", "error.details.receiveValue": "501"},
    ),
    keeps("3.7 4.4.3", raced(100, winners=5), 200, {"completed": True, "receivedAmount": usd(500)}),
    keeps("3.7 4.4.3", raced(1, winners=1, before=499), 200, {"completed": True, "receivedAmount": usd(500)}),
    keeps("3.7", raced(300, winners=1), 200, {"completed": False, "receivedAmount": usd(300)}),
    breaks("3.7", pay("full", 500), NO_RECEIVER),
    # 3, 4.4.4: expiry
    keeps("3.2 4.4.4", expires_while_open(0), 200, {"completed": False, "receivedAmount": usd(200)}),
    keeps(
        "3.2 4.4.4 2.3.12", expires_while_open(31), 200, {"completed": False, "receivedAmount": usd(200), "methods": []}
    ),
    breaks("3.2 4.4.4", pay("expired"), NO_RECEIVER),
    # 3, 4.6: completion by call
    keeps(
        "2.3.10 3.3 4.6.1 4.6.2 4.6.3 9.2.12 9.3.3",
        complete(times=2),
        200,
        {"completed": True, "receivedAmount": usd(0), "metadata": {"secret": 1}},
        {"": INCOMING_PAYMENT},
    ),
    keeps(
        "3.3 4.6.1",
        complete("partly paid"),
        200,
        {"completed": True, "receivedAmount": usd(1), "incomingAmount": usd(500)},
    ),
    keeps("2.3.12 3.3", read("completed"), 200, {"completed": True, "methods": []}),
    breaks("4.6.1 4.6.3 7.7", complete_by_other(), "404 not_found"),
    *(keeps("4.6.4", complete_with(raw=raw), 200, {"completed": True}) for raw in (b"{}", b'{"note":"done"}')),
    keeps("4.6.4", complete_with(media_type="text/plain"), 200),  # some clients name a type for no body
    *(
        breaks("4.6.4 7.4", complete_with(raw=raw), "400 invalid_request field=body")
        for raw in (b"done", b"{", b"[]", b'"text"', b"null")
    ),
    breaks("4.6.4 7.4", complete_with(raw=b'{"a":1,"a":2}'), "400 invalid_request"),
    breaks("4.6.4 7.9", complete_with(raw=b"{}", media_type="text/plain"), "415 unsupported_media_type"),
    breaks("3.3 4.6.2", complete("expired"), "409 wrong_state"),
    breaks("3.3", pay("completed"), NO_RECEIVER),
    breaks("4.6.1 7.6", complete_with("create", "read-all"), "403 insufficient_access action"),
    breaks("4.6.3 7.7", complete_by_other(elsewhere=True), "404 not_found"),
    breaks("4.6.3 7.7", complete("nobody's"), "404 not_found"),
]


@table(ROWS)
def test_incoming_payments(driver: Driver, row: Row) -> None:
    play(driver, row)
