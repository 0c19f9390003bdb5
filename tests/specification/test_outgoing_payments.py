"""Specification 2.4, 3, 4.3 and 4.9: outgoing payments."""

import re
from fractions import Fraction
from typing import Any

import httpx2

from payres.core.grants.access import permit
from payres.core.grants.tokens import Holders
from payres.core.payments import outgoing
from payres.core.protocol.amounts import Asset, Offer, ProbedPath, Terms
from payres.core.protocol.wire import Amount, OutgoingPaymentRequest
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.work import Work
from payres.interledger.clearing import end_remote
from payres.operator import wallets
from tests.helpers import Json, amount, last_segment, usd
from tests.specification.driver import NOBODY, Driver
from tests.specification.scenario import ABSENT, Row, breaks, keeps, play, sender, table

PAYMENT_URL = re.compile(r"http://127\.0\.0\.1:\d+/outgoing-payments/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}")
RECEIVER_URL = re.compile(r"http://.+/incoming-payments/.+")
OUTGOING_PAYMENT = "id walletAddress failed receiver receiveAmount debitAmount sentAmount createdAt quoteId? metadata?"
SPENT = ("spentDebitAmount", "spentReceiveAmount")
READ = {"": OUTGOING_PAYMENT}
CREATED = {"": f"{OUTGOING_PAYMENT} grantSpentDebitAmount grantSpentReceiveAmount"}


def create(driver: Driver, members: Json) -> httpx2.Response:
    """A payment with these members, in which {quote} and {receiver} are fresh ones."""
    receiver = driver.incoming()
    places = {"receiver": receiver, "quote": driver.quote(receiver, debitAmount=usd(1)), "wallet": driver.taker}
    places |= {"base": driver.instance.base_url}
    filled = {name: value.format(**places) if isinstance(value, str) else value for name, value in members.items()}
    return driver.create_outgoing(**filled)


@sender
def with_members(driver: Driver, /, **members: Any) -> httpx2.Response:
    return create(driver, members)


@sender
def from_quote(driver: Driver, /, **members: Any) -> httpx2.Response:
    return create(driver, {"quoteId": "{quote}"} | members)


@sender
def direct(driver: Driver, /, **members: Any) -> httpx2.Response:
    return create(driver, {"incomingPayment": "{receiver}", "debitAmount": usd(100)} | members)


@sender
def with_metadata(driver: Driver) -> httpx2.Response:
    """A payment whose metadata creation, reading and listing give back exactly."""
    metadata = '{ "z":1.0, "a":1e400, "größe":"é\\u00e9" }'
    payer = driver.fresh(deposit="1.00")
    token = driver.token("outgoing-payment", "create", "read", "list", wallet=payer)
    raw = f'{{"walletAddress":"{payer}","incomingPayment":"{driver.incoming()}","debitAmount":'
    raw += f'{{"value":"1","assetCode":"USD","assetScale":2}},"metadata":{metadata}}}'
    created = driver.client.request("POST", "/outgoing-payments", raw=raw.encode(), token=token)
    assert created.status_code == 201, created.text
    read = driver.client.get(created.json()["id"], token)
    for answer in (created, read, driver.list_of("outgoing-payments", payer)):
        assert f'"metadata":{metadata}'.encode() in answer.content, answer.text
    return read


@sender
def arrived(driver: Driver) -> httpx2.Response:
    """The payment as read, whose money is with the taker without anybody's further doing."""
    receiver = driver.incoming()
    created = driver.send(receiver, usd(100))
    assert driver.read(receiver).json()["receivedAmount"] == usd(100)
    return driver.as_read(created)


@sender
def of_inactive_wallet(driver: Driver, what: str) -> httpx2.Response:
    """What was paid before it became inactive, or a payment or quote from then on."""
    payer, receiver = driver.fresh(deposit="5.00"), driver.incoming()
    created = driver.send(receiver, usd(100), payer)
    assert driver.as_read(created).status_code == 200
    driver.instance.write(lambda tx: wallets.deactivate(tx, driver.path(payer)))
    match what:
        case "pay":
            return driver.send(receiver, usd(100), payer)
        case "quote":
            return driver.create_quote(receiver, payer, debitAmount=usd(100))
    return driver.as_read(created)


@sender
def with_fee(driver: Driver) -> httpx2.Response:
    """100.00 at a rate of 0.5 for a fee of 1 %, as it ended; the taker has what receiveAmount says."""
    payer = driver.market("0.5", basis_points=100)
    source, target = driver.asset_of(payer), driver.asset_of(f"{payer}-to")
    created = driver.send(driver.incoming(wallet=f"{payer}-to"), amount(10_000, *source), payer)
    read = driver.as_read(created)
    assert read.json()["receiveAmount"] == amount(4_950, *target)
    assert read.json()["debitAmount"] == read.json()["sentAmount"] == amount(10_000, *source)
    assert driver.instance.balance(driver.path(f"{payer}-to")) == "49.50"
    assert driver.instance.balance(driver.path(payer)) == "900.00"
    driver.instance.check_ledger()
    return read


@sender
def failed_elsewhere(driver: Driver) -> httpx2.Response:
    """A payment to another server that could send nothing: it failed, and all its money is back."""
    payer = driver.fresh(deposit="5.00")
    token = driver.token("outgoing-payment", "create", "read", wallet=payer)
    payee = Terms(
        receiver="https://elsewhere.example/incoming-payments/1",
        incoming_payment_id=None,
        debit=500,
        fee=0,
        receive=500,
        asset=Asset("USD", 2),
        path=ProbedPath(Fraction(1), Fraction(1), 500),
        sends_all=True,
    )
    asked = OutgoingPaymentRequest(
        wallet_address=payer,
        incoming_payment=payee.receiver,
        debit_amount=Amount(value="500", asset_code="USD", asset_scale=2),
    )

    def unit(work: Work) -> str:
        holder = Holders().find(work, token, ())
        assert holder is not None
        caller = permit(holder, "outgoing-payment", "create").about(payer, work.urls)
        payment = outgoing.create(work, caller, asked, Offer(payee, None)).id
        end_remote(work, OUTGOING.by_id(work, last_segment(payment)), "no packet arrived")
        return payment

    payment = driver.instance.write(unit)
    driver.instance.check_ledger()
    assert driver.instance.balance(driver.path(payer)) == "5.00"
    return driver.client.get(payment, token)


@sender
def too_late_for_a_full_receiver(driver: Driver) -> httpx2.Response:
    """A payment to a receiver on this server that is full is refused, and nothing is made."""
    receiver, late = driver.incoming(usd(500)), driver.fresh(deposit="5.00")
    assert driver.send(receiver, usd(500)).status_code == 201
    answer = driver.send(receiver, usd(500), late)
    assert driver.list_of("outgoing-payments", late).json()["result"] == []
    assert driver.instance.balance(driver.path(late)) == "5.00"
    return answer


@sender
def spending(driver: Driver, *values: int) -> httpx2.Response:
    """What a grant has spent after these payments."""
    token = driver.token("outgoing-payment", "create", wallet=driver.payer)
    body = {"walletAddress": driver.payer, "incomingPayment": driver.incoming()}
    for number, value in enumerate(values, 1):
        made = driver.client.post("/outgoing-payments", body | {"debitAmount": usd(value)}, token).json()
        total = usd(sum(values[:number]))
        assert made["grantSpentDebitAmount"] == made["grantSpentReceiveAmount"] == total
    return driver.client.get("/outgoing-payment-grant", token)


@sender
def quote_used(driver: Driver, *, times: int) -> httpx2.Response:
    """The last use of a quote."""
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    for _ in range(times - 1):
        assert driver.use(quote).status_code == 201
    return driver.use(quote)


@sender
def quote_after_a_refusal(driver: Driver) -> httpx2.Response:
    """A quote that was refused for want of money is not used up by it."""
    payer = driver.fresh(deposit="1.00")
    quote = driver.quote(driver.incoming(), payer, debitAmount=usd(200))
    assert driver.use(quote, payer).json()["error"]["code"] == "insufficient_funds"
    driver.paid(driver.incoming(wallet=payer), usd(100))
    return driver.use(quote, payer)


@sender
def quote_used_when(driver: Driver, what: str) -> httpx2.Response:
    """The use of a quote for all of an incoming payment of 5.00."""
    receiver = driver.incoming(usd(500))
    match what:
        case "it is another client's":
            return driver.use(driver.quote(receiver, by=driver.other))
        case "it is another wallet's":
            return driver.use(driver.quote(receiver, driver.fresh(deposit="5.00")))
    quote = driver.quote(receiver)
    if what == "a part was paid meanwhile":
        driver.paid(receiver, usd(1))
    else:
        driver.complete(receiver)
    return driver.use(quote)


@sender
def with_money(driver: Driver, deposit: str, value: int) -> httpx2.Response:
    """A payment of a value from a wallet that has this much, which it still has if the payment is refused."""
    payer = driver.fresh(deposit=deposit)
    answer = driver.send(driver.incoming(), usd(value), payer)
    assert len(driver.list_of("outgoing-payments", payer).json()["result"]) == answer.is_success
    return answer


@sender
def all_that_it_takes(driver: Driver) -> httpx2.Response:
    return driver.send(driver.incoming(usd(500)), usd(500))


@sender
def read(driver: Driver, *actions: str, by_other: bool = False, url: str | None = None) -> httpx2.Response:
    """A payment of `client` or another one, as it or the other client sees it with these actions."""
    url = url or str(driver.send(driver.incoming(), usd(100)).json()["id"])
    client = driver.other if by_other else driver.client
    return client.get(url, driver.token("outgoing-payment", *actions, wallet=driver.payer, by=client))


NO_SHAPES: tuple[Json, ...] = (
    {},
    {"quoteId": "{quote}", "incomingPayment": "{receiver}"},
    {"quoteId": "{quote}", "debitAmount": usd(1)},
    {"quoteId": "{quote}", "incomingPayment": "{receiver}", "debitAmount": usd(1)},
    {"incomingPayment": "{receiver}"},
    {"debitAmount": usd(1)},
    {"quoteId": None},
)
NO_RECEIVERS = (
    *("{wallet}", "{quote}", f"{{base}}/incoming-payments/{NOBODY}", "https://elsewhere.example/incoming-payments/1"),
    *("ftp://127.0.0.1/incoming-payments/1", "lunch"),
)
NO_QUOTES = (f"{{base}}/quotes/{NOBODY}", "https://elsewhere.example/quotes/1", "{receiver}", "lunch")
OTHER_ASSET = "400 invalid_amount field=debitAmount"
NO_QUOTE = "400 invalid_quote field=quoteId"

ROWS: list[Row] = [
    # 4.3.2: the two shapes
    keeps(
        "2.4.1 2.4.2 2.4.3 3.4 4.3.2 4.3.4 4.3.7 4.3.8 9.2.15",
        from_quote(metadata={"a": 1}),
        201,
        {
            "id": PAYMENT_URL,
            "walletAddress": "{base}/spec-payer",
            "quoteId": re.compile(r"http://.+"),
            "failed": False,
            "receiver": RECEIVER_URL,
            "debitAmount": usd(1),
            "receiveAmount": usd(1),
            "sentAmount": usd(1),
            "metadata": {"a": 1},
            "method": ABSENT,
        },
        CREATED,
    ),
    keeps(
        "2.4.3 2.4.5 3.4 4.3.1 4.3.2 4.3.8 4.4.1 9.3.4",
        direct(),
        201,
        {
            "debitAmount": usd(100),
            "sentAmount": usd(100),
            "failed": False,
            "receiver": RECEIVER_URL,
            "quoteId": ABSENT,
            "metadata": ABSENT,
        },
        CREATED,
    ),
    *(breaks("4.3.2", with_members(**members), "400 invalid_request field=quoteId") for members in NO_SHAPES),
    breaks("4.3.2", direct(debitAmount=None), "400 invalid_request field=debitAmount"),
    # 2.4: members
    breaks("2.4.1 4.9.2 7.7", read("read", url=f"/outgoing-payments/{NOBODY}"), "404 not_found"),
    breaks("2.4.2", from_quote(walletAddress="http://127.0.0.1/spec-nobody"), "403 insufficient_access identifier"),
    breaks("2.4.2", from_quote(walletAddress=1), "400 invalid_request field=walletAddress"),
    *(
        breaks("2.4.5 4.4.1", direct(incomingPayment=url), "400 invalid_receiver field=incomingPayment")
        for url in NO_RECEIVERS
    ),
    keeps("2.4.9", with_metadata(), 200, None, READ),
    *(
        breaks("2.4.9", from_quote(metadata=metadata), "400 invalid_request field=metadata")
        for metadata in ([1], "lunch", 1, None)
    ),
    # 4.3.7
    *(
        breaks("4.3.7", from_quote(**{name: "1"}), f"400 invalid_request field={name}")
        for name in ("receiver", "receiveAmount", "expiresAt", "id", "method")
    ),
    # 3: processing
    keeps(
        "2.4.4 2.4.7 3.5 4.3.8",
        arrived(),
        200,
        {"failed": False, "sentAmount": usd(100), "debitAmount": usd(100)},
        READ,
    ),
    keeps("2.4.6 2.4.7", with_fee(), 200, {"failed": False}, READ),
    keeps(
        "2.4.4 3.6 9.3.4",
        failed_elsewhere(),
        200,
        {"failed": True, "sentAmount": usd(0), "debitAmount": usd(500)},
        READ,
    ),
    keeps("2.4.8 9.2.17", spending(100, 100), 200, {"": dict.fromkeys(SPENT, usd(200))}),
    keeps("9.2.17", spending(), 200, {"": dict.fromkeys(SPENT)}),
    keeps("2.2.3", of_inactive_wallet("read"), 200, {"sentAmount": usd(100)}),
    *(
        breaks("2.2.3", of_inactive_wallet(what), "400 invalid_request field=walletAddress")
        for what in ("pay", "quote")
    ),
    # 4.3.1
    breaks("4.3.1", direct(debitAmount=amount(7, "EUR")), OTHER_ASSET),
    breaks("4.3.1", direct(debitAmount=amount(7, "USD", 3)), OTHER_ASSET),
    breaks("4.3.1 2.1.3", direct(debitAmount=usd(0)), "400 invalid_amount field=debitAmount.value"),
    # 4.3.3, 4.3.4: the quote
    keeps("4.3.3", quote_used(times=1), 201),
    keeps("4.3.3 4.3.5", quote_after_a_refusal(), 201, {"debitAmount": usd(200)}),
    breaks("4.3.3", quote_used(times=2), "409 wrong_state field=quoteId"),
    breaks("4.3.4", quote_used_when("it is another client's"), NO_QUOTE),
    breaks("4.3.4", quote_used_when("it is another wallet's"), NO_QUOTE),
    *(breaks("4.3.4", from_quote(quoteId=url), NO_QUOTE) for url in NO_QUOTES),
    # 4.3.5: money
    keeps("4.3.5 4.3.9", with_money("1.00", 100), 201, {"debitAmount": usd(100)}),
    breaks("4.3.5", with_money("1.00", 101), "403 insufficient_funds wallet", {"error.details.needed": "101"}),
    # 4.3.6: room
    keeps("4.3.6", all_that_it_takes(), 201, {"receiveAmount": usd(500)}),
    breaks("4.3.6", quote_used_when("a part was paid meanwhile"), NO_QUOTE),
    breaks("4.3.6", quote_used_when("the receiver was completed meanwhile"), "400 invalid_receiver"),
    breaks("3.1 4.3.6 4.3.9", too_late_for_a_full_receiver(), "400 invalid_receiver completed"),
    # 4.9
    keeps("2.4.1 2.4.8 4.9.1", read("read"), 200, {"id": PAYMENT_URL, "sentAmount": usd(100)}, READ),
    keeps("4.9.1 4.9.2", read("read-all", by_other=True), 200, None, READ),
    breaks("4.9.1 4.9.2 7.7", read("read", by_other=True), "404 not_found"),
    breaks("4.9.1 7.6", read("create", by_other=True), "403 insufficient_access action"),
]


@table(ROWS)
def test_outgoing_payments(driver: Driver, row: Row) -> None:
    play(driver, row)
