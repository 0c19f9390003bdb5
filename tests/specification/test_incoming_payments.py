"""Specification 2.2, 2.3, 3, 4.4, 4.5 and 4.6: incoming payments."""

import json
import re
from typing import Any

import httpx2

from payres.clock import HOUR, format_time, parse_time
from payres.operator import wallets
from tests.helpers import usd
from tests.specification.driver import Driver
from tests.specification.scenario import Row, Send, breaks, keeps, play, table
from tests.specification.shapes import (
    INCOMING_PAYMENT,
    INCOMING_PAYMENT_WITH_METHODS,
    METHOD,
    PUBLIC_INCOMING_PAYMENT,
    TIME,
    WALLET_ADDRESS,
)

DAY = 86_400
NOBODY = "00000000-0000-7000-8000-000000000000"


def created(**members: Any) -> Send:
    return lambda driver: driver.create_incoming(**members)


def at(wallet_address: str) -> Send:
    """A payment into a wallet address in this spelling."""
    return lambda driver: driver.create_incoming(
        wallet_address.format(base=driver.instance.base_url, upper=driver.instance.base_url.upper())
    )


def written(members: str | bytes) -> Send:
    return lambda driver: driver.raw_incoming(members)


def echoed(metadata: str) -> Send:
    return lambda driver: driver.echo(metadata)


def expiring(text: str) -> Send:
    return created(expiresAt=text)


def expiring_in(seconds: float) -> Send:
    return lambda driver: driver.create_incoming(expiresAt=driver.later(seconds))


def expiring_at_an_offset(driver: Driver) -> httpx2.Response:
    """The time in an hour, as a clock in India shows it."""
    later = driver.later(3600)
    india = format_time(parse_time(later) + 11 * HOUR // 2)[:-1] + "+05:30"
    answer = driver.create_incoming(expiresAt=india)
    assert answer.json()["expiresAt"] == later
    return answer


def lasting_by_default(driver: Driver) -> httpx2.Response:
    answer = driver.create_incoming()
    payment = answer.json()
    assert parse_time(payment["expiresAt"]) - parse_time(payment["createdAt"]) == 30 * DAY * 1_000_000
    return answer


def whole_body(raw: bytes) -> Send:
    """A body as written."""
    return lambda driver: driver.client.request(
        "POST", "/incoming-payments", raw=raw, token=driver.token("incoming-payment", "create")
    )


def without_wallet_address(named: bool) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        token = driver.token("incoming-payment", "create", wallet=driver.taker if named else None)
        return driver.client.post("/incoming-payments", {}, token)

    return send


def into_inactive_wallet(driver: Driver) -> httpx2.Response:
    wallet = driver.fresh()
    driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
    return driver.create_incoming(wallet)


def get_inactive_wallet(driver: Driver) -> httpx2.Response:
    wallet = driver.fresh()
    driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
    return driver.anonymous.get(wallet)


def old_payment_of_inactive_wallet(driver: Driver) -> httpx2.Response:
    wallet = driver.fresh()
    url = driver.incoming(wallet=wallet)
    driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
    return driver.read_incoming(url)


def read(url: str) -> Send:
    return lambda driver: driver.read_incoming(url)


def read_new(driver: Driver) -> httpx2.Response:
    return driver.read_incoming(driver.incoming(usd(500), metadata={"a": 1}))


def read_public(driver: Driver) -> httpx2.Response:
    return driver.anonymous.get(driver.incoming(usd(500), metadata={"secret": 1}))


def read_public_with(authorization: str) -> Send:
    return lambda driver: driver.anonymous.get(driver.incoming(), headers={"authorization": authorization})


def read_public_signed(driver: Driver) -> httpx2.Response:
    """Without Authorization a signature is not looked at."""
    headers = {"signature": "undefined", "signature-input": "undefined"}
    return driver.anonymous.get(driver.incoming(), headers=headers)


def two_have_details_of_their_own(driver: Driver) -> httpx2.Response:
    url = driver.incoming()
    answer = driver.create_incoming()
    [one], [other] = driver.read_incoming(url).json()["methods"], answer.json()["methods"]
    assert one["ilpAddress"] != other["ilpAddress"]
    assert one["sharedSecret"] != other["sharedSecret"]
    return answer


def details_do_not_change(driver: Driver) -> httpx2.Response:
    answer = driver.create_incoming()
    again = driver.read_incoming(answer.json()["id"])
    assert again.json()["methods"] == answer.json()["methods"]
    return again


def paid_in_full(driver: Driver) -> httpx2.Response:
    return driver.paid(driver.incoming(usd(500)), usd(500))


def paid_in_part(driver: Driver) -> httpx2.Response:
    return driver.paid(driver.incoming(usd(500)), usd(499))


def paid_in_parts(driver: Driver) -> httpx2.Response:
    receiver = driver.incoming(usd(500))
    assert driver.paid(receiver, usd(200)).json()["completed"] is False
    return driver.paid(receiver, usd(300))


def paid_without_end(driver: Driver) -> httpx2.Response:
    receiver = driver.incoming()
    driver.paid(receiver, usd(2**20))
    return driver.paid(receiver, usd(1))


def pay_after(lead: str) -> Send:
    """A payment to a receiver that takes no more."""

    def send(driver: Driver) -> httpx2.Response:
        if lead == "full":
            receiver = driver.incoming(usd(500))
            driver.paid(receiver, usd(500))
        else:
            receiver = driver.expired() if lead == "expired" else driver.completed()
        return driver.send(receiver, usd(1))

    return send


def pay_too_much(driver: Driver) -> httpx2.Response:
    return driver.send(driver.incoming(usd(500)), usd(501))


def raced(driver: Driver) -> httpx2.Response:
    """The incoming payment after more payers than it has room for paid at the same moment."""
    receiver = driver.incoming(usd(500))
    made = driver.race(receiver, usd(100))
    assert [payment["failed"] for payment in made] == [False] * 5
    assert sum(int(payment["sentAmount"]["value"]) for payment in made) == 500
    return driver.read_incoming(receiver)


def raced_for_the_last_unit(driver: Driver) -> httpx2.Response:
    receiver = driver.incoming(usd(500))
    driver.paid(receiver, usd(499))
    made = driver.race(receiver, usd(1))
    assert [payment["failed"] for payment in made] == [False]
    return driver.read_incoming(receiver)


def raced_by_whom_none_fits_twice(driver: Driver) -> httpx2.Response:
    """300 of 500 fit once: the rest stays open for somebody who pays less."""
    receiver = driver.incoming(usd(500))
    made = driver.race(receiver, usd(300))
    assert [payment["failed"] for payment in made] == [False]
    return driver.read_incoming(receiver)


def late_in_a_race(driver: Driver) -> httpx2.Response:
    """One more payment once the race is over."""
    receiver = driver.incoming(usd(500))
    driver.race(receiver, usd(100))
    return driver.send(receiver, usd(1))


def expires_while_open(driver: Driver) -> httpx2.Response:
    receiver = driver.incoming(usd(500), expiresAt=driver.later(60))
    assert len(driver.read_incoming(receiver).json()["methods"]) == 1
    driver.paid(receiver, usd(200))
    driver.instance.clock.advance(61)
    return driver.read_incoming(receiver)


def still_open_shortly_before(driver: Driver) -> httpx2.Response:
    receiver = driver.incoming(usd(500), expiresAt=driver.later(60))
    driver.instance.clock.advance(30)
    return driver.paid(receiver, usd(200))


def complete_new(driver: Driver) -> httpx2.Response:
    return driver.complete(driver.incoming(usd(500), metadata={"a": 1}))


def complete_partly_paid(driver: Driver) -> httpx2.Response:
    receiver = driver.incoming(usd(500))
    driver.paid(receiver, usd(1))
    return driver.complete(receiver)


def completed_as_read(driver: Driver) -> httpx2.Response:
    return driver.read_incoming(driver.completed())


def complete_with_body(body: bytes) -> Send:
    def send(driver: Driver) -> httpx2.Response:
        token = driver.token("incoming-payment", "complete")
        return driver.client.request("POST", f"{driver.incoming()}/complete", raw=body, token=token)

    return send


def complete_twice(driver: Driver) -> httpx2.Response:
    url = driver.incoming(usd(500))
    first = driver.complete(url)
    again = driver.complete(url)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    return again


def complete_what_other_made(driver: Driver) -> httpx2.Response:
    return driver.complete(driver.incoming(), driver.other)


def complete_with(*actions: str) -> Send:
    return lambda driver: driver.client.post(
        f"{driver.incoming()}/complete", None, driver.token("incoming-payment", *actions)
    )


def complete_elsewhere(driver: Driver) -> httpx2.Response:
    """Another client with the permission for another wallet address."""
    token = driver.token("incoming-payment", "complete", wallet=driver.payer, by=driver.other)
    return driver.other.post(f"{driver.incoming()}/complete", None, token)


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


GOOD_METADATA = {
    "an empty object": "{}",
    "an empty name": '{"":{"":[]}}',
    "every kind of value": '{"n":null,"t":true,"f":false,"s":"x","a":[1,"2",[]],"o":{"p":{}}}',
    "letters of many scripts": '{"größe":"日本語 العربية 😀 é"}',
    "escapes": r'{"a":"\u00e9\ud83d\ude00\u0000\/\"\\\n"}',
    "numbers as they were written": '{"a":[1.0,1.00,1e2,1E+2,-0,-0.0,0.1,1e-7]}',
    "a number that no float holds": '{"a":[1e400,-1e999,1e-999]}',
    "an integer of 400 digits": '{"a":' + "9" * 400 + "}",
    "the order of names": '{"z":1,"a":2,"m":3}',
    "a name twice": '{"a":1,"a":2}',
    "spaces inside": '{ "a" :\t[ 1 ,\n2 ] }',
    "names that other languages trip over": '{"__proto__":{"x":1},"constructor":1,"$ref":"#","walletAddress":0}',
    "a text of 4,000 characters": json.dumps({"a": "x" * 4_000}),
    "a hundred objects inside each other": nested(100),
}
BAD_METADATA = {
    "an array": b"[]",
    "a string": b'"{}"',
    "a number": b"1",
    "true": b"true",
    "null": b"null",
    "bytes that are no UTF-8": b'{"a":"\xff"}',
    "half of a surrogate pair as UTF-8": b'{"a":"\xed\xa0\x80"}',
    "more than 4,096 bytes": b'{"a":"%b"}' % (b"x" * 4_089),
}
NO_JSON = {
    "NaN": '{"a":NaN}',
    "Infinity": '{"a":-Infinity}',
    "a number with a zero before it": '{"a":01}',
    "a number without decimals": '{"a":1.}',
    "a comma at the end": '{"a":1,}',
    "a comment": '{"a":1/**/}',
    "single quotes": "{'a':1}",
    "a control character in a string": '{"a":"\x01"}',
    "half of a surrogate pair": r'{"a":"\ud800"}',
    "no end": '{"a":{',
}

ROWS: list[Row] = [
    # 2.2: the wallet address
    keeps("2.2.1 2.3.2", "as it is", at("{base}/spec-taker"), 201, values={"walletAddress": "{base}/spec-taker"}),
    keeps(
        "2.2.1 2.3.2", "a slash after it", at("{base}/spec-taker/"), 201, values={"walletAddress": "{base}/spec-taker"}
    ),
    keeps("2.2.1 2.3.2", "in capitals", at("{base}/SPEC-Taker"), 201, values={"walletAddress": "{base}/spec-taker"}),
    keeps("2.2.1", "all in capitals", at("{upper}/spec-taker"), 201, values={"walletAddress": "{base}/spec-taker"}),
    *(
        breaks("2.2.1 2.3.2", name, at(url), "400 invalid_request field=walletAddress")
        for name, url in {
            "a path": "/spec-taker",
            "a name": "spec-taker",
            "a payment pointer": "$127.0.0.1/spec-taker",
            "nobody's": "{base}/spec-nobody",
            "another server's": "https://elsewhere.example/spec-taker",
            "another scheme": "ftp://127.0.0.1/spec-taker",
            "the server itself": "{base}",
            "part of another": "{base}/spec-take",
            "no URL at all": "http://[",
        }.items()
    ),
    keeps(
        "2.2.2",
        "an unauthenticated client reads it",
        lambda driver: driver.anonymous.get(driver.taker),
        200,
        shapes={"": WALLET_ADDRESS},
        values={
            "id": "{base}/spec-taker",
            "assetCode": "USD",
            "assetScale": 2,
            "publicName": "Taker",
            "authServer": "{base}/",
            "resourceServer": "{base}",
        },
    ),
    keeps(
        "2.2.2",
        "a wallet without a name has no publicName",
        lambda driver: driver.anonymous.get(driver.fresh()),
        200,
        absent="publicName",
    ),
    breaks(
        "2.2.2 7.7",
        "there is none",
        lambda driver: driver.anonymous.get(f"{driver.instance.base_url}/spec-nobody"),
        "404 not_found",
    ),
    keeps("2.2.3", "what was made before stays readable", old_payment_of_inactive_wallet, 200, present="id"),
    breaks("2.2.3", "it is gone", get_inactive_wallet, "404 not_found"),
    breaks("2.2.3", "a new payment into it", into_inactive_wallet, "400 invalid_request field=walletAddress"),
    # 2.3 and 4.4: creation
    keeps(
        "2.3.1 2.3.3 2.3.4 2.3.8 9.3.1",
        "all members",
        lambda driver: driver.create_incoming(
            incomingAmount=usd(500), metadata={"ref": "A/1"}, expiresAt=driver.later(60)
        ),
        201,
        shapes={"": INCOMING_PAYMENT_WITH_METHODS},
        values={
            "id": re.compile(r"http://127\.0\.0\.1:\d+/incoming-payments/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}"),
            "completed": False,
            "incomingAmount": usd(500),
            "receivedAmount": usd(0),
            "metadata": {"ref": "A/1"},
        },
    ),
    keeps(
        "2.3.1 4.5.1 4.5.2",
        "id is where it is read",
        read_new,
        200,
        shapes={"": INCOMING_PAYMENT_WITH_METHODS},
        values={"metadata": {"a": 1}},
    ),
    keeps(
        "2.3.4 4.4.5",
        "no optional member",
        created(),
        201,
        shapes={"": INCOMING_PAYMENT_WITH_METHODS},
        absent="incomingAmount metadata",
    ),
    breaks(
        "2.3.4", "an incomingAmount of null", created(incomingAmount=None), "400 invalid_request field=incomingAmount"
    ),
    breaks("2.3.1 4.5.2 7.7", "an id that nobody was given", read(f"/incoming-payments/{NOBODY}"), "404 not_found"),
    *(
        breaks("4.5.2 7.7", name, read(f"/incoming-payments/{identifier}"), "404 not_found")
        for name, identifier in {
            "no UUID": "none",
            "a NUL": "%00",
            "no UTF-8": "%ff",
            "a path": "..%2f..",
            "an emoji": "😀",
        }.items()
    ),
    breaks(
        "4.5.2 7.7",
        "nobody's, publicly",
        lambda driver: driver.anonymous.get(f"{driver.instance.base_url}/incoming-payments/{NOBODY}"),
        "404 not_found",
    ),
    keeps(
        "2.3.9 4.4.2",
        "details of their own",
        two_have_details_of_their_own,
        201,
        shapes={"methods.0": METHOD},
        values={"methods.0.type": "ilp"},
        absent="methods.1",
    ),
    keeps("2.3.9", "details stay what they are", details_do_not_change, 200, shapes={"methods.0": METHOD}),
    # 2.3.6, 4.4.7: expiry
    keeps("2.3.6 4.4.7", "in a minute", expiring_in(60), 201, values={"expiresAt": TIME}),
    keeps("2.3.6", "with an offset", expiring_at_an_offset, 201, values={"expiresAt": TIME}),
    keeps("4.4.7", "30 days by default", lasting_by_default, 201),
    keeps("4.4.7", "29 days and 23 hours", expiring_in(30 * DAY - 3600), 201),
    breaks("4.4.7", "31 days", expiring_in(31 * DAY), "400 invalid_expiry field=expiresAt"),
    breaks("4.4.7", "now", expiring_in(0), "400 invalid_expiry field=expiresAt"),
    breaks("4.4.7", "a minute ago", expiring_in(-60), "400 invalid_expiry field=expiresAt"),
    breaks("4.4.7", "the year 9999", expiring("9999-12-31T23:59:59Z"), "400 invalid_expiry field=expiresAt"),
    breaks("4.4.7", "the year 1", expiring("0001-01-01T00:00:00Z"), "400 invalid_expiry field=expiresAt"),
    *(
        breaks("2.3.6", name, expiring(text), "400 invalid_expiry field=expiresAt")
        for name, text in {
            "no offset": "2999-01-01T00:00:00",
            "a date": "2999-01-01",
            "a space for T": "2999-01-01 00:00:00Z",
            "no such day": "2999-02-30T00:00:00Z",
            "hour 24": "2999-01-01T24:00:00Z",
            "second 61": "2999-01-01T00:00:61Z",
            "an offset of a day": "2999-01-01T00:00:00+24:00",
            "before the year 1 in UTC": "0001-01-01T00:00:00+01:00",
            "a word": "tomorrow",
            "a duration": "PT60S",
            "seconds since 1970": "32472144000",
        }.items()
    ),
    breaks("2.3.6", "a number", created(expiresAt=32472144000), "400 invalid_request field=expiresAt"),
    breaks("2.3.6", "null", created(expiresAt=None), "400 invalid_request field=expiresAt"),
    breaks("2.3.6", "an empty string", created(expiresAt=""), "400 invalid_request field=expiresAt"),
    # 2.3.7: metadata
    *(keeps("2.3.7", name, echoed(metadata), 200, present="metadata") for name, metadata in GOOD_METADATA.items()),
    keeps("2.3.7", "none", created(), 201, absent="metadata"),
    *(
        breaks("2.3.7", name, written(b'"metadata":' + metadata), "400 invalid_request field=metadata")
        for name, metadata in BAD_METADATA.items()
    ),
    *(
        breaks("2.3.7 4.4.8", name, written(f'"metadata":{metadata}'), "400 invalid_request field=body")
        for name, metadata in NO_JSON.items()
    ),
    breaks(
        "2.3.7 8.6",
        "10,000 objects inside each other",
        written(f'"metadata":{nested(10_000)}'),
        "400 invalid_request field=body",
    ),
    breaks(
        "2.3.7 8.6",
        "30,000 arrays inside each other",
        written('"metadata":{"a":' + "[" * 15_000 + "]" * 15_000 + "}"),
        "400 invalid_request field=body",
    ),
    # 4.4.5 and 4.4.8: the body
    keeps(
        "4.4.5",
        "the grant names the wallet address",
        without_wallet_address(True),
        201,
        values={"walletAddress": "{base}/spec-taker"},
    ),
    breaks("4.4.5", "nobody names it", without_wallet_address(False), "400 invalid_request field=walletAddress"),
    breaks(
        "4.4.5",
        "an empty wallet address",
        whole_body(b'{"walletAddress":""}'),
        "400 invalid_request field=walletAddress",
    ),
    breaks(
        "4.4.5", "a wallet address of null", written('"walletAddress":null'), "400 invalid_request field=walletAddress"
    ),
    keeps("4.4.6", "the wallet's asset", created(incomingAmount=usd(5)), 201, values={"incomingAmount": usd(5)}),
    keeps("4.4.8", "spaces around members", written(' "metadata" :\n{ } \t'), 201),
    *(
        breaks("4.4.8 7.4", name, whole_body(raw), "400 invalid_request")
        for name, raw in {
            "nothing": b"",
            "half of it": b'{"walletAddress":',
            "an array": b"[]",
            "a string": b'"x"',
            "null": b"null",
            "two objects": b"{}{}",
            "no UTF-8": b"\xff\xfe{}",
            "a byte order mark": b"\xef\xbb\xbf{}",
            "a form": b"a=1",
        }.items()
    ),
    *(
        breaks("4.4.8 7.4", f"a member {name}", created(**{name: 1}), f"400 invalid_request field={name}")
        for name in ("id", "completed", "receivedAmount", "methods", "description", "WalletAddress")
    ),
    # 4.5 and 2.3.11: reading
    keeps(
        "2.3.11 4.5.1",
        "an unauthenticated client sees the public form",
        read_public,
        200,
        shapes={"": PUBLIC_INCOMING_PAYMENT},
        values={"receivedAmount": usd(0), "authServer": "{base}/"},
    ),
    keeps(
        "2.3.11",
        "a signature without Authorization is not looked at",
        read_public_signed,
        200,
        shapes={"": PUBLIC_INCOMING_PAYMENT},
    ),
    keeps(
        "2.3.11",
        "of a completed one too",
        lambda driver: driver.anonymous.get(driver.completed()),
        200,
        shapes={"": PUBLIC_INCOMING_PAYMENT},
    ),
    keeps(
        "2.3.11 3.2",
        "of an expired one too",
        lambda driver: driver.anonymous.get(driver.expired()),
        200,
        shapes={"": PUBLIC_INCOMING_PAYMENT},
    ),
    *(
        breaks(
            "2.3.11 4.5.1",
            f"Authorization {value!r} is never answered with the public form",
            read_public_with(value),
            f"401 {code}",
        )
        for value, code in (("GNAP unknown", "invalid_client"), ("", "invalid_token"), ("Bearer x", "invalid_token"))
    ),
    breaks(
        "4.5.1 7.7",
        "another client's",
        lambda driver: driver.read_incoming(driver.incoming(), driver.other),
        "404 not_found",
    ),
    keeps(
        "4.5.1",
        "another client that may read all",
        lambda driver: driver.other.get(
            driver.incoming(), driver.token("incoming-payment", "read-all", by=driver.other)
        ),
        200,
        present="methods.0",
    ),
    # 3, 4.4.3: completion by amount
    keeps(
        "2.3.3 3.1 4.4.3 2.3.12",
        "the exact amount",
        paid_in_full,
        200,
        values={"completed": True, "receivedAmount": usd(500), "methods": []},
    ),
    keeps(
        "2.3.5 3.1 4.4.3",
        "the exact amount in two parts",
        paid_in_parts,
        200,
        values={"completed": True, "receivedAmount": usd(500)},
    ),
    keeps(
        "2.3.5 3.1 4.4.3",
        "one unit less",
        paid_in_part,
        200,
        values={"completed": False, "receivedAmount": usd(499)},
        present="methods.0",
    ),
    keeps(
        "2.3.5",
        "no incomingAmount, no end",
        paid_without_end,
        200,
        values={"completed": False, "receivedAmount": usd(2**20 + 1)},
    ),
    breaks("3.1 4.4.3", "a payment after the last", pay_after("full"), "400 invalid_receiver field=incomingPayment"),
    breaks(
        "3.1 4.4.3 4.3.6",
        "one unit too much",
        pay_too_much,
        "400 invalid_amount",
        values={"error.details.remaining": "500", "error.details.receiveValue": "501"},
    ),
    keeps(
        "3.7 4.4.3",
        "eight race for the room of five",
        raced,
        200,
        values={"completed": True, "receivedAmount": usd(500)},
    ),
    keeps(
        "3.7 4.4.3",
        "eight race for the last unit",
        raced_for_the_last_unit,
        200,
        values={"completed": True, "receivedAmount": usd(500)},
    ),
    keeps(
        "3.7",
        "eight race, and one fits",
        raced_by_whom_none_fits_twice,
        200,
        values={"completed": False, "receivedAmount": usd(300)},
    ),
    breaks("3.7", "one more after the race", late_in_a_race, "400 invalid_receiver field=incomingPayment"),
    # 3, 4.4.4: expiry
    keeps(
        "3.2 4.4.4",
        "paid before it expires",
        still_open_shortly_before,
        200,
        values={"completed": False, "receivedAmount": usd(200)},
    ),
    keeps(
        "3.2 4.4.4 2.3.12",
        "expired while open, and partly paid",
        expires_while_open,
        200,
        values={"completed": False, "receivedAmount": usd(200), "methods": []},
    ),
    breaks("3.2 4.4.4", "paid after it expired", pay_after("expired"), "400 invalid_receiver field=incomingPayment"),
    # 3, 4.6: completion by call
    keeps(
        "2.3.10 3.3 4.6.1 4.6.3 9.3.3",
        "an open one",
        complete_new,
        200,
        shapes={"": INCOMING_PAYMENT},
        values={"completed": True, "receivedAmount": usd(0), "metadata": {"a": 1}},
    ),
    keeps(
        "3.3 4.6.1",
        "a partly paid one",
        complete_partly_paid,
        200,
        values={"completed": True, "receivedAmount": usd(1), "incomingAmount": usd(500)},
    ),
    keeps("2.3.12 3.3", "as it is read then", completed_as_read, 200, values={"completed": True, "methods": []}),
    keeps("4.6.2", "twice", complete_twice, 200, values={"completed": True}),
    breaks("4.6.1 4.6.3 7.7", "one of another client", complete_what_other_made, "404 not_found"),
    keeps("4.6.4", "an empty object", complete_with_body(b"{}"), 200, values={"completed": True}),
    breaks("4.6.4 7.4", "a body that is no JSON", complete_with_body(b"done"), "400 invalid_request field=body"),
    breaks("3.3 4.6.2", "an expired one", lambda driver: driver.complete(driver.expired()), "409 wrong_state"),
    breaks(
        "3.3", "a payment into a completed one", pay_after("completed"), "400 invalid_receiver field=incomingPayment"
    ),
    breaks("4.6.1 7.6", "no permission", complete_with("create", "read-all"), "403 insufficient_access action"),
    breaks("4.6.3 7.7", "at another wallet address", complete_elsewhere, "404 not_found"),
    breaks(
        "4.6.3 7.7",
        "one that does not exist",
        lambda driver: driver.complete(f"/incoming-payments/{NOBODY}"),
        "404 not_found",
    ),
]


@table(ROWS)
def test_incoming_payments(driver: Driver, row: Row) -> None:
    play(driver, row)
