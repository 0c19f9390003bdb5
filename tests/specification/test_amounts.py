"""Specification 2.1 and 8: amounts at their edges, asked for, stored, echoed, listed, quoted and moved."""

from typing import Any

import httpx2

from payres.operator import assets
from tests.helpers import Json, amount, usd
from tests.specification.driver import MAX_LEDGER, MAX_UINT64, Driver
from tests.specification.scenario import Row, breaks, keeps, play, sender, table


@sender
def asked(driver: Driver, value: str) -> httpx2.Response:
    """An incoming payment that asks for a value, as creation answers."""
    return driver.create_incoming(incomingAmount=usd(value))


@sender
def written(driver: Driver, incoming_amount: str) -> httpx2.Response:
    """An incoming payment whose incomingAmount is this JSON."""
    return driver.raw_incoming(b'{"walletAddress":"{taker}","incomingAmount":%b}' % incoming_amount.encode())


@sender
def with_member(driver: Driver, name: str, value: Any) -> httpx2.Response:
    return driver.create_incoming(incomingAmount=usd(1) | {name: value})


@sender
def without_member(driver: Driver, name: str) -> httpx2.Response:
    return driver.create_incoming(incomingAmount={member: value for member, value in usd(1).items() if member != name})


@sender
def read_and_listed(driver: Driver, value: int) -> httpx2.Response:
    """A payment that asks for a value, as reading shows it once the list has shown it too."""
    wallet = driver.fresh()
    url = driver.incoming(usd(value), wallet)
    [item] = driver.list_of("incoming-payments", wallet).json()["result"]
    assert item["incomingAmount"] == usd(value)
    return driver.read(url)


@sender
def in_asset(driver: Driver, code: str, scale: int, members: Json | None = None) -> httpx2.Response:
    """A payment into a wallet that is kept in this asset."""
    return driver.create_incoming(driver.fresh(code, scale), incomingAmount=amount(1, code, scale) | (members or {}))


@sender
def quoted(driver: Driver, /, **amounts: int) -> httpx2.Response:
    members: Json = {name: usd(value) for name, value in amounts.items()}
    return driver.create_quote(driver.incoming(), **members)


@sender
def quoted_with_fee(driver: Driver, value: int) -> httpx2.Response:
    """A quote to deliver `value` for a fee of one basis point."""
    code = driver.code()
    driver.instance.write(lambda tx: assets.set_fee(tx, code, 2, "0", 1))
    receiver = driver.incoming(wallet=driver.fresh(code))
    return driver.create_quote(receiver, driver.fresh(code), receiveAmount=amount(value, code))


@sender
def moved(driver: Driver, value: int) -> httpx2.Response:
    """An outgoing payment of a value from a wallet that has all the ledger can count, as it ended."""
    code = driver.code()
    payer, taker = driver.fresh(code, 0, str(MAX_LEDGER)), driver.fresh(code, 0)
    created = driver.send(driver.incoming(wallet=taker), amount(value, code, 0), payer)
    return driver.as_read(created) if created.is_success else created


@sender
def moved_twice(driver: Driver, *, same_receiver: bool, same_grant: bool) -> httpx2.Response:
    """The second payment of all that the ledger can count, which came back after the first."""
    code = driver.code()
    payer, taker = driver.fresh(code, 0, str(MAX_LEDGER)), driver.fresh(code, 0)
    token = driver.token("outgoing-payment", "create", wallet=payer)
    most, receiver = amount(MAX_LEDGER, code, 0), driver.incoming(wallet=taker)
    body = {"walletAddress": payer, "incomingPayment": receiver, "debitAmount": most}
    assert driver.as_read(driver.client.post("/outgoing-payments", body, token)).json()["failed"] is False
    driver.as_read(driver.send(driver.incoming(wallet=payer), most, taker))
    body |= {} if same_receiver else {"incomingPayment": driver.incoming(wallet=taker)}
    token = token if same_grant else driver.token("outgoing-payment", "create", wallet=payer)
    second = driver.client.post("/outgoing-payments", body, token)
    driver.instance.check_ledger()
    return second


@sender
def one_too_many(driver: Driver) -> httpx2.Response:
    """A payment from a quote that was made before the receiver's total reached the largest there is."""
    code = driver.code()
    payer, taker, other = driver.fresh(code, 0, "1"), driver.fresh(code, 0), driver.fresh(code, 0, str(MAX_LEDGER - 1))
    receiver = driver.incoming(wallet=taker)
    late = driver.quote(receiver, payer, debitAmount=amount(1, code, 0))
    driver.as_read(driver.send(receiver, amount(MAX_LEDGER - 1, code, 0), other))
    driver.as_read(driver.send(driver.incoming(wallet=other), amount(MAX_LEDGER - 1, code, 0), taker))
    received = driver.paid(receiver, amount(1, code, 0), other).json()["receivedAmount"]
    assert received == amount(MAX_LEDGER, code, 0)
    return driver.use(late, payer)


MALFORMED = (
    *("+1", "-1", "-0", "", " 1", "1 ", "1\n", "1\0", "1.0", "1e3", "0x10", "1,000", "1_000", "one"),
    *("\N{ARABIC-INDIC DIGIT ONE}", "\N{FULLWIDTH DIGIT ONE}", "\N{SUPERSCRIPT TWO}"),
)
NO_VALUE = "400 invalid_amount field=incomingAmount.value"
NO_CODE = "400 invalid_request field=incomingAmount.assetCode"
NO_SCALE = "400 invalid_request field=incomingAmount.assetScale"
OTHER_ASSET = "400 invalid_amount field=incomingAmount"

ROWS: list[Row] = [
    # 2.1.1, 8.2: 64 bits
    *(
        keeps("2.1.1 8.2", asked(str(value)), 201, {"incomingAmount": usd(value)})
        for value in (1, 2**53 + 1, MAX_LEDGER, MAX_LEDGER + 1, MAX_UINT64)
    ),
    *(
        keeps("2.1.1 8.2", read_and_listed(value), 200, {"incomingAmount": usd(value)})
        for value in (2**53 + 1, MAX_LEDGER, MAX_LEDGER + 1, MAX_UINT64)
    ),
    *(breaks("2.1.1 8.2", asked(value), NO_VALUE) for value in (str(2**64), "1" + "0" * 20, "1" + "0" * 5000)),
    # 2.1.2: digits
    keeps("2.1.2", asked("000000000000000000000000042"), 201, {"incomingAmount": usd(42)}),
    *(breaks("2.1.2", asked(value), NO_VALUE) for value in MALFORMED),
    *(
        breaks("2.1.2 7.4", with_member("value", value), "400 invalid_request field=incomingAmount.value")
        for value in (1, 1.0, None, True, [1], {"": 1})
    ),
    # 2.1.3: above zero
    keeps("2.1.3", asked("1"), 201, {"incomingAmount.value": "1"}),
    *(breaks("2.1.3", asked(zero), NO_VALUE) for zero in ("0", "000")),
    breaks("2.1.3", quoted(debitAmount=0), "400 invalid_amount field=debitAmount.value"),
    breaks("2.1.3", quoted(receiveAmount=0), "400 invalid_amount field=receiveAmount.value"),
    # 2.1.4: assetCode
    *(keeps("2.1.4", in_asset(code, 2), 201, {"incomingAmount.assetCode": code}) for code in ("X", "C" * 32)),
    *(breaks("2.1.4", with_member("assetCode", code), NO_CODE) for code in ("C" * 33, "", 840)),
    breaks(
        "2.1.4 4.4.6",
        with_member("assetCode", "EUR"),
        OTHER_ASSET,
        {"error.details.assetCode": "USD", "error.details.assetScale": 2},
    ),
    breaks("2.1.4 4.4.6", with_member("assetCode", "usd"), OTHER_ASSET),
    # 2.1.5, 8.1: assetScale
    *(
        keeps("2.1.5 8.1", in_asset("SCALED", scale), 201, {"receivedAmount": amount(0, "SCALED", scale)})
        for scale in (0, 255)
    ),
    *(breaks("2.1.5 8.1", with_member("assetScale", scale), NO_SCALE) for scale in (256, -1)),
    breaks("2.1.5 4.4.6", in_asset("SCALED", 3, {"assetScale": 2}), OTHER_ASSET),
    *(breaks("2.1.5", with_member("assetScale", value), NO_SCALE) for value in ("2", 2.5, True, None, 10**22)),
    # 2.1.6: all three
    keeps("2.1.6", written('{"assetScale":2,"assetCode":"USD","value":"5"}'), 201, {"incomingAmount": usd(5)}),
    *(
        breaks("2.1.6", without_member(name), f"400 invalid_request field=incomingAmount.{name}")
        for name in ("value", "assetCode", "assetScale")
    ),
    *(
        breaks("2.1.6", written(literal), "400 invalid_request field=incomingAmount")
        for literal in ("null", '"1"', "1", "[]")
    ),
    # 2.1.7: exact at the edges
    *(
        keeps(
            "2.1.7", quoted(**{name: MAX_UINT64}), 201, dict.fromkeys(("debitAmount", "receiveAmount"), usd(MAX_UINT64))
        )
        for name in ("debitAmount", "receiveAmount")
    ),
    keeps(
        "2.1.7 4.7.5",
        quoted_with_fee(MAX_LEDGER),  # which is rounded up to the unit
        201,
        {"debitAmount.value": str(MAX_LEDGER + -(-MAX_LEDGER // 10_000)), "receiveAmount.value": str(MAX_LEDGER)},
    ),
    breaks("2.1.7", quoted_with_fee(MAX_UINT64), "400 invalid_amount"),
    keeps(
        "2.1.7",
        moved(MAX_LEDGER),
        200,
        {"sentAmount.value": str(MAX_LEDGER), "receiveAmount.value": str(MAX_LEDGER), "failed": False},
    ),
    *(breaks("2.1.7", moved(value), "400 invalid_amount") for value in (MAX_LEDGER + 1, MAX_UINT64)),
    # 2.1.8: totals past 2^63-1, of a receiver or of a grant
    keeps(
        "2.1.8",
        moved_twice(same_receiver=False, same_grant=False),
        201,
        {"grantSpentDebitAmount.value": str(MAX_LEDGER)},
    ),
    breaks("2.1.8", moved_twice(same_receiver=True, same_grant=False), "400 invalid_amount"),
    breaks("2.1.8", moved_twice(same_receiver=False, same_grant=True), "400 invalid_amount"),
    breaks("2.1.8", one_too_many(), "400 invalid_amount"),
]


@table(ROWS)
def test_amounts(driver: Driver, row: Row) -> None:
    play(driver, row)
