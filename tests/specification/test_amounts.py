"""Specification 2.1 and 8: amounts at their edges, asked for, stored, echoed, listed, quoted and moved."""

import json
from typing import Any

import httpx2

from tests.helpers import Json, usd
from tests.specification.driver import MAX_LEDGER, MAX_UINT64, Driver, money
from tests.specification.scenario import Row, Send, breaks, keeps, play, table


def asked(value: str) -> Send:
    """An incoming payment that asks for a value, as creation answers."""
    return lambda driver: driver.create_incoming(incomingAmount=usd(value))


def written(amount: str) -> Send:
    """An incoming payment whose incomingAmount is this JSON."""
    return lambda driver: driver.raw_incoming(f'"incomingAmount":{amount}')


def with_member(name: str, value: Any) -> Send:
    return written(json.dumps(usd(1) | {name: value}))


def without_member(name: str) -> Send:
    return written(json.dumps({member: value for member, value in usd(1).items() if member != name}))


def read_and_listed(value: int) -> Send:
    """A payment that asks for a value, as reading shows it once the list has shown it too."""

    def send(driver: Driver) -> httpx2.Response:
        wallet = driver.fresh()
        url = driver.incoming(usd(value), wallet)
        [item] = driver.list_of("incoming-payments", wallet).json()["result"]
        assert item["incomingAmount"] == usd(value)
        return driver.read_incoming(url)

    return send


def in_asset(code: str, scale: int, members: Json | None = None) -> Send:
    """A payment into a wallet that is kept in this asset."""

    def send(driver: Driver) -> httpx2.Response:
        amount = money(1, code, scale) | (members or {})
        return driver.create_incoming(driver.fresh(code, scale), incomingAmount=amount)

    return send


def quoted(member: str, value: int) -> Send:
    amount: Json = {member: usd(value)}
    return lambda driver: driver.create_quote(driver.incoming(), **amount)


def quoted_with_fee(value: int) -> Send:
    """A quote to deliver `value` for a fee of one basis point."""

    def send(driver: Driver) -> httpx2.Response:
        sender, receiver = driver.charged(basis_points=1)
        code, scale = driver.asset_of(sender)
        return driver.create_quote(driver.incoming(wallet=receiver), sender, receiveAmount=money(value, code, scale))

    return send


def moved(value: int) -> Send:
    """An outgoing payment of a value from a wallet that has all the ledger can count, as it ended."""

    def send(driver: Driver) -> httpx2.Response:
        code = driver.code()
        sender, taker = driver.fresh(code, 0, str(MAX_LEDGER)), driver.fresh(code, 0)
        created = driver.send(driver.incoming(wallet=taker), money(value, code), sender)
        return driver.as_read(created) if created.is_success else created

    return send


def moved_twice(same_receiver: bool, same_grant: bool) -> Send:
    """The second payment of all that the ledger can count, which came back after the first."""

    def send(driver: Driver) -> httpx2.Response:
        code = driver.code()
        sender, taker = driver.fresh(code, 0, str(MAX_LEDGER)), driver.fresh(code, 0)
        token = driver.token("outgoing-payment", "create", wallet=sender)
        receiver = driver.incoming(wallet=taker)
        body = {"walletAddress": sender, "incomingPayment": receiver, "debitAmount": money(MAX_LEDGER, code)}
        first = driver.client.post("/outgoing-payments", body, token)
        assert driver.as_read(first).json()["failed"] is False
        driver.as_read(driver.send(driver.incoming(wallet=sender), money(MAX_LEDGER, code), taker))
        body |= {} if same_receiver else {"incomingPayment": driver.incoming(wallet=taker)}
        token = token if same_grant else driver.token("outgoing-payment", "create", wallet=sender)
        second = driver.client.post("/outgoing-payments", body, token)
        driver.instance.check_ledger()
        return second

    return send


def one_too_many(driver: Driver) -> httpx2.Response:
    """A payment from a quote that was made before the receiver's total reached the largest there is."""
    code = driver.code()
    sender, taker, other = driver.fresh(code, 0, "1"), driver.fresh(code, 0), driver.fresh(code, 0, str(MAX_LEDGER - 1))
    receiver = driver.incoming(wallet=taker)
    late = driver.quote(receiver, sender, debitAmount=money(1, code))
    driver.as_read(driver.send(receiver, money(MAX_LEDGER - 1, code), other))
    driver.as_read(driver.send(driver.incoming(wallet=other), money(MAX_LEDGER - 1, code), taker))
    received = driver.paid(receiver, money(1, code), other).json()["receivedAmount"]
    assert received == money(MAX_LEDGER, code)
    return driver.use(late, sender)


MALFORMED = {
    "a sign": "+1",
    "a minus": "-1",
    "minus zero": "-0",
    "nothing": "",
    "a space before": " 1",
    "a space after": "1 ",
    "a line break after": "1\n",
    "a decimal point": "1.0",
    "an exponent": "1e3",
    "hexadecimal digits": "0x10",
    "a group separator": "1,000",
    "an underscore": "1_000",
    "digits of another script": "\N{ARABIC-INDIC DIGIT ONE}",
    "full-width digits": "\N{FULLWIDTH DIGIT ONE}",
    "a raised digit": "\N{SUPERSCRIPT TWO}",
    "a word": "one",
    "a NUL after": "1\0",
}

ROWS: list[Row] = [
    # 2.1.1, 8.2: 64 bits
    *(
        keeps(
            "2.1.1 8.2",
            f"{value} is accepted and echoed",
            asked(str(value)),
            201,
            values={"incomingAmount": usd(value)},
        )
        for value in (1, 2**53 + 1, 2**63 - 1, 2**63, MAX_UINT64)
    ),
    *(
        keeps(
            "2.1.1 8.2",
            f"{value} is stored and listed",
            read_and_listed(value),
            200,
            values={"incomingAmount": usd(value)},
        )
        for value in (2**53 + 1, MAX_LEDGER, MAX_LEDGER + 1, MAX_UINT64)
    ),
    *(
        breaks("2.1.1 8.2", f"{name} is refused", asked(str(value)), "400 invalid_amount field=incomingAmount.value")
        for name, value in (("2^64", 2**64), ("10^20", 10**20), ("10^100", 10**100), ("10^5000", "1" + "0" * 5000))
    ),
    # 2.1.2: digits
    keeps(
        "2.1.2",
        "zeros before the digits do not count",
        asked("000000000000000000000000042"),
        201,
        values={"incomingAmount": usd(42)},
    ),
    *(
        breaks("2.1.2", f"a value with {name}", asked(value), "400 invalid_amount field=incomingAmount.value")
        for name, value in MALFORMED.items()
    ),
    *(
        breaks(
            "2.1.2 7.4",
            f"a value that is {literal} in JSON",
            written(f'{{"value":{literal},"assetCode":"USD","assetScale":2}}'),
            "400 invalid_request field=incomingAmount.value",
        )
        for literal in ("1", "1.0", "1e2", "null", "true", "[]", "{}")
    ),
    # 2.1.3: above zero
    keeps("2.1.3", "one smallest unit", asked("1"), 201, values={"incomingAmount.value": "1"}),
    breaks("2.1.3", "zero", asked("0"), "400 invalid_amount field=incomingAmount.value"),
    breaks("2.1.3", "zero written at length", asked("000"), "400 invalid_amount field=incomingAmount.value"),
    breaks("2.1.3", "a quote to send zero", quoted("debitAmount", 0), "400 invalid_amount field=debitAmount.value"),
    breaks(
        "2.1.3", "a quote to deliver zero", quoted("receiveAmount", 0), "400 invalid_amount field=receiveAmount.value"
    ),
    # 2.1.4: assetCode
    keeps("2.1.4", "a code of one character", in_asset("X", 2), 201, values={"incomingAmount.assetCode": "X"}),
    keeps(
        "2.1.4", "a code of 32 characters", in_asset("C" * 32, 2), 201, values={"incomingAmount.assetCode": "C" * 32}
    ),
    breaks(
        "2.1.4",
        "a code of 33 characters",
        with_member("assetCode", "C" * 33),
        "400 invalid_request field=incomingAmount.assetCode",
    ),
    breaks(
        "2.1.4", "an empty code", with_member("assetCode", ""), "400 invalid_request field=incomingAmount.assetCode"
    ),
    breaks(
        "2.1.4",
        "a code that is no string",
        with_member("assetCode", 840),
        "400 invalid_request field=incomingAmount.assetCode",
    ),
    breaks(
        "2.1.4 4.4.6",
        "another asset's code",
        with_member("assetCode", "EUR"),
        "400 invalid_amount field=incomingAmount",
        values={"error.details.assetCode": "USD", "error.details.assetScale": 2},
    ),
    breaks(
        "2.1.4 4.4.6",
        "the code in small letters",
        with_member("assetCode", "usd"),
        "400 invalid_amount field=incomingAmount",
    ),
    # 2.1.5, 8.1: assetScale
    keeps(
        "2.1.5 8.1",
        "scale 0",
        in_asset("SCALED", 0),
        201,
        values={"incomingAmount.assetScale": 0, "receivedAmount.assetScale": 0},
    ),
    keeps("2.1.5 8.1", "scale 255", in_asset("SCALED", 255), 201, values={"incomingAmount.assetScale": 255}),
    breaks(
        "2.1.5 8.1", "scale 256", with_member("assetScale", 256), "400 invalid_request field=incomingAmount.assetScale"
    ),
    breaks(
        "2.1.5 8.1", "scale -1", with_member("assetScale", -1), "400 invalid_request field=incomingAmount.assetScale"
    ),
    breaks(
        "2.1.5 4.4.6",
        "the scale of another wallet",
        in_asset("SCALED", 3, {"assetScale": 2}),
        "400 invalid_amount field=incomingAmount",
    ),
    *(
        breaks(
            "2.1.5",
            f"a scale that is {literal} in JSON",
            written(f'{{"value":"1","assetCode":"USD","assetScale":{literal}}}'),
            "400 invalid_request field=incomingAmount.assetScale",
        )
        for literal in ('"2"', "2.5", "true", "null", "99999999999999999999999")
    ),
    # 2.1.6: all three
    keeps(
        "2.1.6",
        "all three members, in another order",
        written('{"assetScale":2,"assetCode":"USD","value":"5"}'),
        201,
        values={"incomingAmount": usd(5)},
    ),
    *(
        breaks("2.1.6", f"no {name}", without_member(name), f"400 invalid_request field=incomingAmount.{name}")
        for name in ("value", "assetCode", "assetScale")
    ),
    *(
        breaks("2.1.6", f"an amount that is {literal}", written(literal), "400 invalid_request field=incomingAmount")
        for literal in ("null", '"1"', "1", "[]")
    ),
    # 2.1.7: exact at the edges
    *(
        keeps(
            "2.1.7",
            f"{member} of 2^64-1 is quoted without a unit lost",
            quoted(member, MAX_UINT64),
            201,
            values={"debitAmount": usd(MAX_UINT64), "receiveAmount": usd(MAX_UINT64)},
        )
        for member in ("debitAmount", "receiveAmount")
    ),
    keeps(
        "2.1.7 4.7.5",
        "a fee of one basis point on 2^63-1 is rounded up to the unit",
        quoted_with_fee(MAX_LEDGER),
        201,
        values={
            "debitAmount.value": str(MAX_LEDGER + -(-MAX_LEDGER // 10_000)),
            "receiveAmount.value": str(MAX_LEDGER),
        },
    ),
    breaks("2.1.7", "a debit past 2^64-1, its fee included", quoted_with_fee(MAX_UINT64), "400 invalid_amount"),
    keeps(
        "2.1.7",
        "2^63-1 is moved whole",
        moved(MAX_LEDGER),
        200,
        values={"sentAmount.value": str(MAX_LEDGER), "receiveAmount.value": str(MAX_LEDGER), "failed": False},
    ),
    *(
        breaks("2.1.7", f"{name} is not moved", moved(value), "400 invalid_amount")
        for name, value in (("2^63", 2**63), ("2^64-1", MAX_UINT64))
    ),
    # 2.1.8: totals
    keeps(
        "2.1.8",
        "as much again, to another receiver by another grant",
        moved_twice(False, False),
        201,
        values={"grantSpentDebitAmount.value": str(MAX_LEDGER)},
    ),
    breaks("2.1.8", "a receiver's total past 2^63-1", moved_twice(True, False), "400 invalid_amount"),
    breaks("2.1.8", "a grant's total past 2^63-1", moved_twice(False, True), "400 invalid_amount"),
    breaks("2.1.8", "a receiver's total past 2^63-1, from a quote", one_too_many, "400 invalid_amount"),
]


@table(ROWS)
def test_amounts(driver: Driver, row: Row) -> None:
    play(driver, row)
