"""Specification 2.5, 4.7 and 4.8: quotes."""

import re
from typing import Any

import httpx2

from payres.core.protocol.clock import SECOND, parse_time
from payres.operator import assets, wallets
from tests.helpers import Json, amount, usd
from tests.specification.driver import NOBODY, Driver
from tests.specification.scenario import ABSENT, TIME, Row, breaks, keeps, play, sender, table

QUOTE = {"": "id walletAddress receiver receiveAmount debitAmount method expiresAt createdAt"}
QUOTE_URL = re.compile(r"http://127\.0\.0\.1:\d+/quotes/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}")


@sender
def quoted(driver: Driver, /, incoming_amount: int | None = None, **members: Any) -> httpx2.Response:
    """A quote for an incoming payment with this incomingAmount."""
    receiver = driver.incoming(usd(incoming_amount) if incoming_amount else None)
    return driver.create_quote(**{"receiver": receiver, **members})


@sender
def quoted_for(driver: Driver, receiver: str) -> httpx2.Response:
    """A quote for a receiver in these words."""
    receiver = receiver.format(base=driver.instance.base_url, wallet=driver.taker)
    return driver.create_quote(receiver, debitAmount=usd(1))


@sender
def quoted_for_one_that_is(driver: Driver, state: str) -> httpx2.Response:
    """A quote for a receiver that takes no more."""
    wallet = driver.fresh()
    receiver = driver.incoming(wallet=wallet, expiresAt=driver.later(10))
    if "completed" in state:
        assert driver.complete(receiver).status_code == 200
    if "expired" in state:
        driver.instance.clock.advance(10)
    if state == "inactive":
        driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
    return driver.create_quote(receiver, debitAmount=usd(1))


@sender
def quoted_after(driver: Driver, /, paid: int, **members: Any) -> httpx2.Response:
    """A quote for a receiver of 500 that was paid already in part."""
    receiver = driver.incoming(usd(500))
    driver.paid(receiver, usd(paid))
    return driver.create_quote(receiver, **members)


@sender
def exchanged(
    driver: Driver,
    side: str,
    value: int,
    rate: str = "0.5",
    fee: str = "0",
    basis_points: int = 0,
    scales: tuple[int, int] = (2, 2),
) -> httpx2.Response:
    """A quote between two currencies, for debitAmount, for receiveAmount, or for an incomingAmount."""
    payer = driver.market(rate, fee, basis_points, scales)
    asset = driver.asset_of(payer if side == "debitAmount" else f"{payer}-to")
    given = amount(value, *asset)
    receiver = driver.incoming(given if side == "incomingAmount" else None, f"{payer}-to")
    members: Json = {} if side == "incomingAmount" else {side: given}
    return driver.create_quote(receiver, payer, **members)


@sender
def quoted_in_the_wrong_asset(driver: Driver, member: str) -> httpx2.Response:
    """Each amount in the asset of the other side."""
    payer = driver.market()
    other = f"{payer}-to" if member == "debitAmount" else payer
    members: Json = {member: amount(100, *driver.asset_of(other))}
    return driver.create_quote(driver.incoming(wallet=f"{payer}-to"), payer, **members)


@sender
def the_smallest_that_works(driver: Driver) -> httpx2.Response:
    """What the refusal names as minSendAmount, which delivers one unit; one less does not."""
    payer = driver.market("0.01", "0.07", 250)
    receiver = driver.incoming(wallet=f"{payer}-to")
    refused = driver.create_quote(receiver, payer, debitAmount=amount(1, *driver.asset_of(payer)))
    least = refused.json()["error"]["details"]["minSendAmount"]
    less = least | {"value": str(int(least["value"]) - 1)}
    assert driver.create_quote(receiver, payer, debitAmount=less).status_code == 400
    return driver.create_quote(receiver, payer, debitAmount=least)


@sender
def too_little_gold(driver: Driver, scale: int, wanted: int | None) -> httpx2.Response:
    """One unit of gold, which is all that 11 leave after the fee, buys one of a currency in units of this scale; the
    receiver wants so many of these units."""
    payer, taker = driver.fresh(driver.code(), 0), driver.fresh(driver.code(), scale)
    (source, _), (target, _) = driver.asset_of(payer), driver.asset_of(taker)
    driver.instance.write(lambda tx: assets.set_fee(tx, source, 0, "10", 0))
    driver.instance.write(lambda tx: assets.set_rate(tx, source, target, "1"))
    receiver = driver.incoming(None if wanted is None else amount(wanted, target, scale), taker)
    return driver.create_quote(receiver, payer, debitAmount=amount(10, source, 0))


@sender
def without_rate(driver: Driver) -> httpx2.Response:
    taker = driver.fresh(driver.code())
    return driver.create_quote(driver.incoming(wallet=taker), debitAmount=usd(100))


@sender
def after_a_new_rate(driver: Driver) -> httpx2.Response:
    """The payment of a quote that was made before the operator changed the rate: the quote holds."""
    payer = driver.market("0.5")
    source, target = driver.asset_of(payer), driver.asset_of(f"{payer}-to")
    quote = driver.quote(driver.incoming(wallet=f"{payer}-to"), payer, debitAmount=amount(100, *source))
    driver.instance.write(lambda tx: assets.set_rate(tx, source[0], target[0], "9"))
    ended = driver.as_read(driver.use(quote, payer))
    assert ended.json()["receiveAmount"] == amount(50, *target)
    return ended


@sender
def expiring_with_its_receiver(driver: Driver) -> httpx2.Response:
    expires_at = driver.later(20)
    answer = driver.create_quote(driver.incoming(expiresAt=expires_at), debitAmount=usd(1))
    assert answer.json()["expiresAt"] == expires_at
    return answer


@sender
def lasting_by_default(driver: Driver) -> httpx2.Response:
    answer = driver.create_quote(driver.incoming(usd(5)))
    lasts = parse_time(answer.json()["expiresAt"]) - parse_time(answer.json()["createdAt"])
    assert lasts == driver.instance.context.settings.quote_lifetime * SECOND
    return answer


@sender
def used_before_it_expires(driver: Driver, seconds: int) -> httpx2.Response:
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    driver.instance.clock.advance(driver.instance.context.settings.quote_lifetime - seconds)
    return driver.use(quote)


@sender
def read(driver: Driver, state: str) -> httpx2.Response:
    quote = driver.quote(driver.incoming(usd(500)))
    if state == "expired":
        driver.instance.clock.advance(driver.instance.context.settings.quote_lifetime + 1)
    if state == "used":
        assert driver.use(quote).status_code == 201
    return driver.read(quote if state != "nobody's" else f"/quotes/{NOBODY}")


@sender
def read_by_other(driver: Driver, *actions: str) -> httpx2.Response:
    """A quote of `client`, read by `other`."""
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    return driver.other.get(quote, driver.token("quote", *actions, by=driver.other))


def values(debit: int, receive: int) -> dict[str, str]:
    return {"debitAmount.value": str(debit), "receiveAmount.value": str(receive)}


def least(value: int) -> dict[str, str]:
    """What the error of too little a debit names."""
    return {"error.details.minSendAmount.value": str(value)}


USD_500 = {"debitAmount": usd(500), "receiveAmount": usd(500)}
NO_RECEIVERS = (
    *("{wallet}", "{base}/incoming-payments", "{base}/incoming-payments/", "{base}/quotes/1", "lunch"),
    *("ftp://127.0.0.1/incoming-payments/1", "http:///incoming-payments/1", "127.0.0.1/incoming-payments/1"),
    *("http://user:secret@127.0.0.1/incoming-payments/1", "http://127.0.0.1:port/incoming-payments/1"),
    *("http://127.0.0.1/incoming-payments/1\n", f"https://elsewhere.example/incoming-payments/{NOBODY}"),
)
NO_RECEIVER = "400 invalid_receiver field=receiver"
NO_AMOUNT = "400 invalid_amount field=debitAmount"
TOO_LITTLE = "400 invalid_amount nothing_arrives field=debitAmount"
TWO_AMOUNTS = "400 invalid_request field=receiveAmount"

ROWS: list[Row] = [
    # 2.5.1, 2.5.3: the three variants
    keeps(
        "2.5.1 2.5.3 4.7.1 9.2.14",
        quoted(debitAmount=usd(500)),
        201,
        {"id": QUOTE_URL, "walletAddress": "{base}/spec-payer", "method": "ilp", **USD_500},
        QUOTE,
    ),
    keeps("2.5.3", quoted(receiveAmount=usd(500)), 201, USD_500, QUOTE),
    keeps("2.5.3 2.5.4 4.7.2 4.7.9", quoted(500), 201, USD_500, QUOTE),
    *(keeps("2.5.3 4.7.4", quoted(900, **{name: usd(500)}), 201, USD_500) for name in USD_500),
    *(breaks("2.5.3", quoted(lacks, debitAmount=usd(1), receiveAmount=usd(1)), TWO_AMOUNTS) for lacks in (None, 1)),
    breaks("2.5.3 4.7.2", quoted(), NO_AMOUNT),
    # 2.5.2, 4.7.3: the receiver
    keeps(
        "2.5.2 4.7.3",
        quoted(debitAmount=usd(1)),
        201,
        {"receiver": re.compile(r"http://.+/incoming-payments/[0-9a-f-]{36}")},
    ),
    *(breaks("2.5.2 4.4.1 4.7.3", quoted_for(url), NO_RECEIVER) for url in NO_RECEIVERS),
    breaks("2.5.2 4.7.3", quoted(receiver=5), "400 invalid_request field=receiver"),
    *(
        breaks("4.7.3", quoted_for(f"{{base}}{path}"), "400 invalid_receiver not_found field=receiver")
        for path in (f"/incoming-payments/{NOBODY}", "/quotes/incoming-payments/1")
    ),
    *(
        breaks("4.7.3 3.3", quoted_for_one_that_is(state), "400 invalid_receiver completed field=receiver")
        for state in ("completed", "completed and expired")
    ),
    breaks("4.7.3 3.2", quoted_for_one_that_is("expired"), "400 invalid_receiver expired"),
    breaks("4.7.3 2.2.3", quoted_for_one_that_is("inactive"), NO_RECEIVER),
    # 2.5.4, 4.7.1, 4.7.9: the other members
    *(
        breaks("2.5.4", quoted(500, method=method), "400 invalid_request field=method")
        for method in ("card", "ILP", "", 1, ["ilp"])
    ),
    *(
        breaks("4.7.1", quoted(500, **{name: None}), f"400 invalid_request field={name}")
        for name in ("walletAddress", "receiver", "method")
    ),
    breaks(
        "4.7.1 2.2.1",
        quoted(500, walletAddress="http://127.0.0.1/spec-nobody"),
        "400 invalid_request field=walletAddress",
    ),
    *(
        breaks("4.7.9", quoted(500, **{name: "1"}), f"400 invalid_request field={name}")
        for name in ("metadata", "expiresAt", "id", "incomingAmount")
    ),
    # 4.7.2, 4.7.4: what the receiver still takes
    keeps("4.7.2", quoted_after(200), 201, {"debitAmount": usd(300), "receiveAmount": usd(300)}),
    keeps("4.7.4", quoted_after(200, receiveAmount=usd(300)), 201, {"receiveAmount": usd(300)}),
    breaks(
        "4.7.4",
        quoted_after(200, receiveAmount=usd(301)),
        "400 invalid_amount",
        {"error.details.remaining": "300", "error.details.receiveValue": "301"},
    ),
    breaks("4.7.4", quoted(500, debitAmount=usd(501)), "400 invalid_amount", {"error.details.remaining": "500"}),
    # 4.7.5: fees, of 10 units and 1.5 %; of 1001 that is 10 + 15.015
    keeps("4.7.5", exchanged("debitAmount", 1001, "1", "0.10", 150), 201, values(1001, 975)),
    *(
        keeps("4.7.5", exchanged(side, 1001, "1", "0.10", 150), 201, values(1027, 1001))
        for side in ("receiveAmount", "incomingAmount")
    ),
    breaks("4.7.5 4.7.7", exchanged("debitAmount", 10, "1", "0.10", 150), TOO_LITTLE, least(12)),
    # 4.7.6: exchange: 0.92 of 101 is 92.92, and 93 cost 101.09; 0.333 of 3000 is exactly 999
    keeps("4.7.6", exchanged("debitAmount", 101, "0.92"), 201, values(101, 92)),
    *(
        keeps("4.7.6", exchanged(side, 93, "0.92"), 201, values(102, 93))
        for side in ("receiveAmount", "incomingAmount")
    ),
    keeps("4.7.6", exchanged("debitAmount", 3000, "0.333"), 201, values(3000, 999)),
    keeps(
        "4.7.6",
        exchanged("debitAmount", 100, "0.5", scales=(2, 9)),
        201,
        {"receiveAmount.value": "500000000", "receiveAmount.assetScale": 9},
    ),
    keeps("4.7.6", exchanged("receiveAmount", 1, "0.5", scales=(9, 2)), 201, values(20_000_000, 1)),
    keeps("4.7.6", after_a_new_rate(), 200, {"failed": False}),
    breaks("4.7.6", without_rate(), "400 invalid_receiver no_exchange_rate"),
    # 4.7.10: liquidity, all of it and one unit more
    keeps("4.7.10", exchanged("receiveAmount", 1000_00, "2"), 201),
    *(
        breaks("4.7.10", exchanged(side, value, "2"), "403 insufficient_funds liquidity")
        for side, value in (("receiveAmount", 1000_01), ("debitAmount", 500_01))
    ),
    # 4.7.7: one unit; no least amount is named that would not work
    keeps("4.7.7", the_smallest_that_works(), 201, {"receiveAmount.value": "1"}),
    breaks("4.7.7", exchanged("debitAmount", 1, "0.5"), TOO_LITTLE, least(2)),
    breaks("4.7.7", too_little_gold(2, 100), TOO_LITTLE, least(11)),
    *(
        breaks("4.7.7", too_little_gold(scale, wanted), NO_AMOUNT, {"error.details.minSendAmount": ABSENT})
        for scale, wanted in ((19, None), (2, 50))
    ),
    # 4.7.8: assets
    keeps("4.7.8", exchanged("debitAmount", 100), 201),
    *(
        breaks("4.7.8", quoted_in_the_wrong_asset(name), f"400 invalid_amount field={name}")
        for name in ("debitAmount", "receiveAmount")
    ),
    # 2.5.5, 2.5.6: expiry
    keeps("2.5.5", expiring_with_its_receiver(), 201, {"expiresAt": TIME}),
    keeps("2.5.6", lasting_by_default(), 201),
    keeps("2.5.6", used_before_it_expires(10), 201, {"debitAmount": usd(1)}),
    breaks("2.5.6", used_before_it_expires(0), "400 invalid_quote field=quoteId"),
    # 4.8: reading
    keeps("2.5.1 4.8.1 9.2.14", read("new"), 200, {"id": QUOTE_URL, **USD_500}, QUOTE),
    keeps("4.8.1", read("expired"), 200, None, QUOTE),
    keeps("4.8.1", read("used"), 200, None, QUOTE),
    keeps("4.8.1 4.8.2", read_by_other("read-all"), 200, None, QUOTE),
    breaks("4.8.1 4.8.2 7.7", read_by_other("read"), "404 not_found"),
    breaks("4.8.1 7.6", read_by_other("create"), "403 insufficient_access action"),
    breaks("2.5.1 4.8.2 7.7", read("nobody's"), "404 not_found"),
]


@table(ROWS)
def test_quotes(driver: Driver, row: Row) -> None:
    play(driver, row)
