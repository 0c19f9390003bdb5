"""Specification 2.5, 4.7 and 4.8: quotes."""

import re
from typing import Any

import httpx2

from payres.clock import SECOND, parse_time
from payres.operator import assets, wallets
from tests.helpers import Json, usd
from tests.specification.driver import Driver, money
from tests.specification.scenario import Row, Send, breaks, keeps, play, table
from tests.specification.shapes import QUOTE, TIME

NOBODY = "00000000-0000-7000-8000-000000000000"
QUOTE_URL = re.compile(r"http://127\.0\.0\.1:\d+/quotes/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}")


def quoted(incoming_amount: int | None = None, **members: Any) -> Send:
    """A quote for an incoming payment with this incomingAmount."""

    def send(driver: Driver) -> httpx2.Response:
        receiver = driver.incoming(usd(incoming_amount) if incoming_amount else None)
        given: Json = {"receiver": receiver, **members}
        return driver.create_quote(**given)

    return send


def quoted_for(receiver: str) -> Send:
    """A quote for a receiver in these words."""
    return lambda driver: driver.create_quote(
        receiver.format(base=driver.instance.base_url, wallet=driver.taker), debitAmount=usd(1)
    )


def quoted_for_that(lead: str) -> Send:
    """A quote for a receiver that takes no more."""

    def send(driver: Driver) -> httpx2.Response:
        receiver = driver.expired() if lead == "expired" else driver.completed()
        return driver.create_quote(receiver, debitAmount=usd(1))

    return send


def quoted_for_inactive_wallet(driver: Driver) -> httpx2.Response:
    wallet = driver.fresh()
    receiver = driver.incoming(wallet=wallet)
    driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(wallet)))
    return driver.create_quote(receiver, debitAmount=usd(1))


def quoted_after(paid: int, **members: Any) -> Send:
    """A quote for a receiver of 500 that was paid already in part."""

    def send(driver: Driver) -> httpx2.Response:
        receiver = driver.incoming(usd(500))
        driver.paid(receiver, usd(paid))
        return driver.create_quote(receiver, **members)

    return send


def exchanged(
    side: str, value: int, rate: str = "0.5", fee: str = "0", basis_points: int = 0, scales: tuple[int, int] = (2, 2)
) -> Send:
    """A quote between two currencies, for debitAmount, for receiveAmount, or for an incomingAmount."""

    def send(driver: Driver) -> httpx2.Response:
        sender = driver.market(rate, fee, basis_points, scales)
        source, target = driver.asset_of(sender), driver.asset_of(f"{sender}-to")
        amount = money(value, *(source if side == "debitAmount" else target))
        receiver = driver.incoming(amount if side == "incomingAmount" else None, f"{sender}-to")
        members: Json = {} if side == "incomingAmount" else {side: amount}
        return driver.create_quote(receiver, sender, **members)

    return send


def quoted_in_the_wrong_asset(member: str) -> Send:
    """Each amount in the asset of the other side."""

    def send(driver: Driver) -> httpx2.Response:
        sender = driver.market()
        other = f"{sender}-to" if member == "debitAmount" else sender
        amount: Json = {member: money(100, *driver.asset_of(other))}
        return driver.create_quote(driver.incoming(wallet=f"{sender}-to"), sender, **amount)

    return send


def the_smallest_that_works(driver: Driver) -> httpx2.Response:
    """What the refusal names as minSendAmount, which delivers one unit; one less does not."""
    sender = driver.market("0.01", "0.07", 250)
    receiver = driver.incoming(wallet=f"{sender}-to")
    refused = driver.create_quote(receiver, sender, debitAmount=money(1, *driver.asset_of(sender)))
    least = refused.json()["error"]["details"]["minSendAmount"]
    less = least | {"value": str(int(least["value"]) - 1)}
    assert driver.create_quote(receiver, sender, debitAmount=less).status_code == 400
    return driver.create_quote(receiver, sender, debitAmount=least)


def without_rate(driver: Driver) -> httpx2.Response:
    taker = driver.fresh(driver.code())
    return driver.create_quote(driver.incoming(wallet=taker), debitAmount=usd(100))


def after_a_new_rate(driver: Driver) -> httpx2.Response:
    """The payment of a quote that was made before the operator changed the rate: the quote holds."""
    sender = driver.market("0.5")
    source, target = driver.asset_of(sender), driver.asset_of(f"{sender}-to")
    quote = driver.quote(driver.incoming(wallet=f"{sender}-to"), sender, debitAmount=money(100, *source))
    driver.instance.write(lambda tx: assets.set_rate(tx, source[0], target[0], "9"))
    ended = driver.as_read(driver.use(quote, sender))
    assert ended.json()["receiveAmount"] == money(50, *target)
    return ended


def expiring_with_its_receiver(driver: Driver) -> httpx2.Response:
    expires_at = driver.later(20)
    answer = driver.create_quote(driver.incoming(expiresAt=expires_at), debitAmount=usd(1))
    assert answer.json()["expiresAt"] == expires_at
    return answer


def lasting_by_default(driver: Driver) -> httpx2.Response:
    answer = driver.create_quote(driver.incoming(usd(5)))
    lasts = parse_time(answer.json()["expiresAt"]) - parse_time(answer.json()["createdAt"])
    assert lasts == driver.instance.context.settings.quote_lifetime * SECOND
    return answer


def used_shortly_before_it_expires(driver: Driver) -> httpx2.Response:
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    driver.instance.clock.advance(driver.instance.context.settings.quote_lifetime - 10)
    return driver.use(quote)


def used_when_expired(driver: Driver) -> httpx2.Response:
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    driver.instance.clock.advance(driver.instance.context.settings.quote_lifetime)
    return driver.use(quote)


def read_new(driver: Driver) -> httpx2.Response:
    return driver.read_quote(driver.quote(driver.incoming(usd(500))))


def read_when_expired(driver: Driver) -> httpx2.Response:
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    driver.instance.clock.advance(driver.instance.context.settings.quote_lifetime + 1)
    return driver.read_quote(quote)


def read_when_used(driver: Driver) -> httpx2.Response:
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    assert driver.use(quote).status_code == 201
    return driver.read_quote(quote)


def read_of_other(*actions: str) -> Send:
    """A quote of `client`, read by `other`."""
    return lambda driver: driver.other.get(
        driver.quote(driver.incoming(), debitAmount=usd(1)), driver.token("quote", *actions, by=driver.other)
    )


USD_500 = {"debitAmount": usd(500), "receiveAmount": usd(500)}
NO_RECEIVERS = {
    "a wallet address": "{wallet}",
    "a wallet address with a path that looks right": "{base}/incoming-payments",
    "no identifier": "{base}/incoming-payments/",
    "another scheme": "ftp://127.0.0.1/incoming-payments/1",
    "no host": "http:///incoming-payments/1",
    "no scheme": "127.0.0.1/incoming-payments/1",
    "user information": "http://user:secret@127.0.0.1/incoming-payments/1",
    "a quote": "{base}/quotes/1",
    "a port that is none": "http://127.0.0.1:port/incoming-payments/1",
    "a line break": "http://127.0.0.1/incoming-payments/1\n",
    "a word": "lunch",
}

ROWS: list[Row] = [
    # 2.5.1, 2.5.3: the three variants
    keeps(
        "2.5.1 2.5.3 4.7.1",
        "debitAmount",
        quoted(debitAmount=usd(500)),
        201,
        shapes={"": QUOTE},
        values={"id": QUOTE_URL, "walletAddress": "{base}/spec-payer", "method": "ilp", **USD_500},
    ),
    keeps("2.5.3", "receiveAmount", quoted(receiveAmount=usd(500)), 201, shapes={"": QUOTE}, values=USD_500),
    keeps("2.5.3 4.7.2", "neither, for an incomingAmount", quoted(500), 201, shapes={"": QUOTE}, values=USD_500),
    keeps("2.5.3 4.7.4", "debitAmount, for an incomingAmount", quoted(900, debitAmount=usd(500)), 201, values=USD_500),
    keeps(
        "2.5.3 4.7.4", "receiveAmount, for an incomingAmount", quoted(900, receiveAmount=usd(500)), 201, values=USD_500
    ),
    breaks(
        "2.5.3", "both", quoted(debitAmount=usd(1), receiveAmount=usd(1)), "400 invalid_request field=receiveAmount"
    ),
    breaks(
        "2.5.3",
        "both, for an incomingAmount",
        quoted(1, debitAmount=usd(1), receiveAmount=usd(1)),
        "400 invalid_request field=receiveAmount",
    ),
    breaks("2.5.3 4.7.2", "neither, for no incomingAmount", quoted(), "400 invalid_amount field=debitAmount"),
    # 2.5.2, 4.7.3: the receiver
    keeps(
        "2.5.2 4.7.3",
        "an open incoming payment",
        quoted(debitAmount=usd(1)),
        201,
        values={"receiver": re.compile(r"http://.+/incoming-payments/[0-9a-f-]{36}")},
    ),
    *(
        breaks("2.5.2 4.4.1 4.7.3", name, quoted_for(url), "400 invalid_receiver field=receiver")
        for name, url in NO_RECEIVERS.items()
    ),
    breaks("2.5.2 4.7.3", "a number", quoted(receiver=5), "400 invalid_request field=receiver"),
    *(
        breaks("4.7.3", name, quoted_for(f"{{base}}{path}"), "400 invalid_receiver not_found field=receiver")
        for name, path in {
            "nobody's": f"/incoming-payments/{NOBODY}",
            "below quotes": "/quotes/incoming-payments/1",
        }.items()
    ),
    breaks(
        "4.7.3",
        "another server's",
        quoted_for(f"https://elsewhere.example/incoming-payments/{NOBODY}"),
        "400 invalid_receiver field=receiver",
    ),
    breaks("4.7.3 3.3", "a completed one", quoted_for_that("completed"), "400 invalid_receiver completed"),
    breaks("4.7.3 3.2", "an expired one", quoted_for_that("expired"), "400 invalid_receiver expired"),
    breaks(
        "4.7.3 2.2.3",
        "one of an inactive wallet address",
        quoted_for_inactive_wallet,
        "400 invalid_receiver field=receiver",
    ),
    # 2.5.4, 4.7.1, 4.7.9: the other members
    keeps("2.5.4", "ilp", quoted(500, method="ilp"), 201, values={"method": "ilp"}),
    *(
        breaks("2.5.4", f"method {method!r}", quoted(500, method=method), "400 invalid_request field=method")
        for method in ("card", "ILP", "", 1, ["ilp"])
    ),
    *(
        breaks("4.7.1", f"no {name}", quoted(500, **{name: None}), f"400 invalid_request field={name}")
        for name in ("walletAddress", "receiver", "method")
    ),
    breaks(
        "4.7.1 2.2.1",
        "nobody's wallet address",
        quoted(500, walletAddress="http://127.0.0.1/spec-nobody"),
        "400 invalid_request field=walletAddress",
    ),
    keeps("4.7.9", "no others", quoted(500), 201, shapes={"": QUOTE}),
    *(
        breaks("4.7.9", f"a member {name}", quoted(500, **{name: "1"}), f"400 invalid_request field={name}")
        for name in ("metadata", "expiresAt", "id", "incomingAmount")
    ),
    # 4.7.2, 4.7.4: what the receiver still takes
    keeps(
        "4.7.2",
        "what a partly paid receiver lacks",
        quoted_after(200),
        201,
        values={"debitAmount": usd(300), "receiveAmount": usd(300)},
    ),
    keeps(
        "4.7.4", "all that it lacks", quoted_after(200, receiveAmount=usd(300)), 201, values={"receiveAmount": usd(300)}
    ),
    breaks(
        "4.7.4",
        "one unit more",
        quoted_after(200, receiveAmount=usd(301)),
        "400 invalid_amount",
        values={"error.details.remaining": "300", "error.details.receiveValue": "301"},
    ),
    breaks(
        "4.7.4",
        "a debit that delivers more",
        quoted(500, debitAmount=usd(501)),
        "400 invalid_amount",
        values={"error.details.remaining": "500"},
    ),
    # 4.7.5: fees, of 10 units and 1.5 %
    keeps(
        "4.7.5",
        "out of debitAmount: 10 + 15.015 of 1001",
        exchanged("debitAmount", 1001, "1", "0.10", 150),
        201,
        values={"debitAmount.value": "1001", "receiveAmount.value": "975"},
    ),
    keeps(
        "4.7.5",
        "on top of receiveAmount: 10 + 15.015",
        exchanged("receiveAmount", 1001, "1", "0.10", 150),
        201,
        values={"debitAmount.value": "1027", "receiveAmount.value": "1001"},
    ),
    keeps(
        "4.7.5",
        "on top of incomingAmount: 10 + 15.015",
        exchanged("incomingAmount", 1001, "1", "0.10", 150),
        201,
        values={"debitAmount.value": "1027", "receiveAmount.value": "1001"},
    ),
    breaks(
        "4.7.5 4.7.7",
        "a fee that takes all",
        exchanged("debitAmount", 10, "1", "0.10", 150),
        "400 invalid_amount field=debitAmount",
        values={"error.details.minSendAmount.value": "12"},
    ),
    # 4.7.6: exchange
    keeps(
        "4.7.6",
        "0.92 of 101 is 92.92, delivered 92",
        exchanged("debitAmount", 101, "0.92"),
        201,
        values={"debitAmount.value": "101", "receiveAmount.value": "92"},
    ),
    keeps(
        "4.7.6",
        "93 at 0.92 cost 101.09, debited 102",
        exchanged("receiveAmount", 93, "0.92"),
        201,
        values={"debitAmount.value": "102", "receiveAmount.value": "93"},
    ),
    keeps(
        "4.7.6",
        "93 for an incomingAmount too",
        exchanged("incomingAmount", 93, "0.92"),
        201,
        values={"debitAmount.value": "102", "receiveAmount.value": "93"},
    ),
    keeps(
        "4.7.6",
        "0.333 of 3000 is exactly 999",
        exchanged("debitAmount", 3000, "0.333"),
        201,
        values={"receiveAmount.value": "999"},
    ),
    keeps(
        "4.7.6",
        "from scale 2 to scale 9",
        exchanged("debitAmount", 100, "0.5", scales=(2, 9)),
        201,
        values={"receiveAmount.value": "500000000", "receiveAmount.assetScale": 9},
    ),
    keeps(
        "4.7.6",
        "from scale 9 to scale 2",
        exchanged("receiveAmount", 1, "0.5", scales=(9, 2)),
        201,
        values={"debitAmount.value": "20000000"},
    ),
    keeps(
        "4.7.6", "the rate of the quote holds when the rate changes", after_a_new_rate, 200, values={"failed": False}
    ),
    breaks("4.7.6", "no rate", without_rate, "400 invalid_receiver no_exchange_rate"),
    # 4.7.10: liquidity
    keeps(
        "4.7.10", "an exchange that takes all", exchanged("receiveAmount", 1000_00, "2"), 201, present="receiveAmount"
    ),
    breaks(
        "4.7.10",
        "an exchange that takes one unit more",
        exchanged("receiveAmount", 1000_01, "2"),
        "403 insufficient_funds liquidity",
    ),
    breaks(
        "4.7.10",
        "the same for what is debited",
        exchanged("debitAmount", 500_01, "2"),
        "403 insufficient_funds liquidity",
    ),
    # 4.7.7: one unit
    keeps("4.7.7", "the minSendAmount of a refusal", the_smallest_that_works, 201, values={"receiveAmount.value": "1"}),
    breaks(
        "4.7.7",
        "half a unit would arrive",
        exchanged("debitAmount", 1, "0.5"),
        "400 invalid_amount field=debitAmount",
        values={"error.details.minSendAmount.value": "2"},
    ),
    # 4.7.8: assets
    keeps(
        "4.7.8", "debitAmount in the sender's", exchanged("debitAmount", 100), 201, present="debitAmount receiveAmount"
    ),
    breaks(
        "4.7.8",
        "debitAmount in the receiver's",
        quoted_in_the_wrong_asset("debitAmount"),
        "400 invalid_amount field=debitAmount",
    ),
    breaks(
        "4.7.8",
        "receiveAmount in the sender's",
        quoted_in_the_wrong_asset("receiveAmount"),
        "400 invalid_amount field=receiveAmount",
    ),
    # 2.5.5, 2.5.6: expiry
    keeps("2.5.5", "with its receiver", expiring_with_its_receiver, 201, values={"expiresAt": TIME}),
    keeps("2.5.6", "15 minutes by default", lasting_by_default, 201),
    keeps("2.5.6", "used shortly before", used_shortly_before_it_expires, 201, values={"debitAmount": usd(1)}),
    breaks("2.5.6", "used when it has expired", used_when_expired, "400 invalid_quote field=quoteId"),
    # 4.8: reading
    keeps(
        "2.5.1 4.8.1", "id is where it is read", read_new, 200, shapes={"": QUOTE}, values={"id": QUOTE_URL, **USD_500}
    ),
    keeps("4.8.1", "expired", read_when_expired, 200, shapes={"": QUOTE}),
    keeps("4.8.1", "used", read_when_used, 200, shapes={"": QUOTE}),
    keeps("4.8.1 4.8.2", "another client's, with read-all", read_of_other("read-all"), 200, shapes={"": QUOTE}),
    breaks("4.8.1 4.8.2 7.7", "another client's, with read", read_of_other("read"), "404 not_found"),
    breaks("4.8.1 7.6", "with create alone", read_of_other("create"), "403 insufficient_access action"),
    breaks(
        "2.5.1 4.8.2 7.7",
        "one that does not exist",
        lambda driver: driver.read_quote(f"/quotes/{NOBODY}"),
        "404 not_found",
    ),
]


@table(ROWS)
def test_quotes(driver: Driver, row: Row) -> None:
    play(driver, row)
