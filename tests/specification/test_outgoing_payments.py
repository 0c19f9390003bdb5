"""Specification 2.4, 3, 4.3 and 4.9: outgoing payments."""

import re
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import httpx2

from payres.amounts import Asset
from payres.grants.access import permit
from payres.identifiers import hash_secret
from payres.payments import outgoing, settlement
from payres.store.grants import find_holder
from payres.store.payments import OUTGOING
from payres.store.work import Work
from payres.terms import Offer, Path, Terms
from payres.wire import Amount, OutgoingPaymentRequest
from tests.helpers import Json, last_segment, usd
from tests.specification.driver import RACERS, Driver, money
from tests.specification.scenario import Row, Send, breaks, keeps, play, table
from tests.specification.shapes import CREATED_OUTGOING_PAYMENT, OUTGOING_PAYMENT

NOBODY = "00000000-0000-7000-8000-000000000000"
PAYMENT_URL = re.compile(r"http://127\.0\.0\.1:\d+/outgoing-payments/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}")
ANY_URL = re.compile(r"http://.+")


def with_members(**members: Any) -> Send:
    """A payment with these members, in which {quote} and {receiver} are fresh ones."""

    def send(driver: Driver) -> httpx2.Response:
        receiver = driver.incoming()
        quote = driver.quote(receiver, debitAmount=usd(1))
        made: Json = {
            name: value.format(quote=quote, receiver=receiver, base=driver.instance.base_url, wallet=driver.taker)
            if isinstance(value, str)
            else value
            for name, value in members.items()
        }
        return driver.create_outgoing(**made)

    return send


def from_quote(**members: Any) -> Send:
    return with_members(**{"quoteId": "{quote}", **members})


def direct(**members: Any) -> Send:
    return with_members(**{"incomingPayment": "{receiver}", "debitAmount": usd(100), **members})


def with_metadata(driver: Driver) -> httpx2.Response:
    """A payment whose metadata creation, reading and listing give back exactly."""
    metadata = '{ "z":1.0, "a":1e400, "größe":"é\\u00e9" }'
    sender = driver.fresh(deposit="1.00")
    token = driver.token("outgoing-payment", "create", "read", "list", wallet=sender)
    raw = f'{{"walletAddress":"{sender}","incomingPayment":"{driver.incoming()}","debitAmount":'
    raw += f'{{"value":"1","assetCode":"USD","assetScale":2}},"metadata":{metadata}}}'
    created = driver.client.request("POST", "/outgoing-payments", raw=raw.encode(), token=token)
    assert created.status_code == 201, created.text
    read = driver.client.get(created.json()["id"], token)
    for answer in (created, read, driver.list_of("outgoing-payments", sender)):
        assert f'"metadata":{metadata}'.encode() in answer.content, answer.text
    return read


def read(**members: Any) -> Send:
    """A direct payment as read."""
    return lambda driver: driver.as_read(direct(**members)(driver))


def arrived(driver: Driver) -> httpx2.Response:
    """The payment as read, whose money is with the taker without anybody's further doing."""
    receiver = driver.incoming()
    created = driver.send(receiver, usd(100))
    assert driver.read_incoming(receiver).json()["receivedAmount"] == usd(100)
    return driver.as_read(created)


def with_fee(driver: Driver) -> httpx2.Response:
    """100.00 at a rate of 0.5 for a fee of 1 %, as it ended; the taker has what receiveAmount says."""
    sender = driver.market("0.5", basis_points=100)
    source, target = driver.asset_of(sender), driver.asset_of(f"{sender}-to")
    created = driver.send(driver.incoming(wallet=f"{sender}-to"), money(10_000, *source), sender)
    read = driver.as_read(created)
    assert read.json()["receiveAmount"] == money(4_950, *target)
    assert read.json()["debitAmount"] == read.json()["sentAmount"] == money(10_000, *source)
    assert driver.instance.balance(driver.path(f"{sender}-to")) == "49.50"
    assert driver.instance.balance(driver.path(sender)) == "900.00"
    driver.instance.check_ledger()
    return read


def failed_elsewhere(driver: Driver) -> httpx2.Response:
    """A payment to another server that could send nothing: it failed, and all its money is back."""
    sender = driver.fresh(deposit="5.00")
    token = driver.token("outgoing-payment", "create", "read", wallet=sender)
    payee = Terms(
        receiver="https://elsewhere.example/incoming-payments/1",
        incoming_payment_id=None,
        debit=500,
        fee=0,
        receive=500,
        asset=Asset("USD", 2),
        path=Path(Fraction(1), Fraction(1), 500),
        sends_all=True,
    )
    asked = OutgoingPaymentRequest(
        wallet_address=sender,
        incoming_payment=payee.receiver,
        debit_amount=Amount(value="500", asset_code="USD", asset_scale=2),
    )

    def unit(work: Work) -> str:
        holder = find_holder(work, hash_secret(token))
        assert holder is not None
        caller = permit(holder, "outgoing-payment", "create").about(sender, work.urls)
        payment = outgoing.create(work, caller, asked, Offer(payee, None)).id
        settlement.end_remote(work, OUTGOING.by_id(work, last_segment(payment)), "no packet arrived")
        return payment

    payment = driver.instance.write(unit)
    driver.instance.check_ledger()
    assert driver.instance.balance(driver.path(sender)) == "5.00"
    return driver.client.get(payment, token)


def too_late_for_a_full_receiver(driver: Driver) -> httpx2.Response:
    """A payment to a receiver on this server that is full is refused, and nothing is made."""
    receiver, late = driver.incoming(usd(500)), driver.fresh(deposit="5.00")
    assert driver.send(receiver, usd(500)).status_code == 201
    answer = driver.send(receiver, usd(500), late)
    assert driver.list_of("outgoing-payments", late).json()["result"] == []
    assert driver.instance.balance(driver.path(late)) == "5.00"
    return answer


def spent_so_far(driver: Driver) -> httpx2.Response:
    """The second payment of one grant."""
    token = driver.token("outgoing-payment", "create", wallet=driver.payer)
    body = {"walletAddress": driver.payer, "incomingPayment": driver.incoming(), "debitAmount": usd(100)}
    first, second = (driver.client.post("/outgoing-payments", body, token) for _ in range(2))
    assert first.json()["grantSpentDebitAmount"] == first.json()["grantSpentReceiveAmount"] == usd(100)
    return second


def quote_used(again: int) -> Send:
    """The use of a quote that was used so many times before."""

    def send(driver: Driver) -> httpx2.Response:
        quote = driver.quote(driver.incoming(), debitAmount=usd(1))
        for _ in range(again):
            assert driver.use(quote).status_code == 201
        return driver.use(quote)

    return send


def quote_used_at_once(driver: Driver) -> httpx2.Response:
    """The payment of a quote that many requests used at the same moment: there is one, and the others are refused."""
    quote = driver.quote(driver.incoming(), debitAmount=usd(1))
    token = driver.token("outgoing-payment", "create", wallet=driver.payer)
    body = {"walletAddress": driver.payer, "quoteId": quote}
    with ThreadPoolExecutor(RACERS) as threads:
        answers = list(threads.map(lambda _: driver.client.post("/outgoing-payments", body, token), range(RACERS)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * (RACERS - 1)
    return next(answer for answer in answers if answer.status_code == 201)


def quote_after_a_refusal(driver: Driver) -> httpx2.Response:
    """A quote that was refused for want of money is not used up by it."""
    sender = driver.fresh(deposit="1.00")
    quote = driver.quote(driver.incoming(), sender, debitAmount=usd(200))
    assert driver.use(quote, sender).json()["error"]["code"] == "insufficient_funds"
    add = driver.send(driver.incoming(wallet=sender), usd(100))
    driver.as_read(add)
    return driver.use(quote, sender)


def quote_of_other_client(driver: Driver) -> httpx2.Response:
    return driver.use(driver.quote(driver.incoming(), by=driver.other, debitAmount=usd(1)))


def quote_of_other_wallet(driver: Driver) -> httpx2.Response:
    return driver.use(driver.quote(driver.incoming(), driver.fresh(deposit="1.00"), debitAmount=usd(1)))


def quote_of_full_receiver(driver: Driver) -> httpx2.Response:
    """A quote for all of an incoming payment of which somebody paid a part meanwhile."""
    receiver = driver.incoming(usd(500))
    quote = driver.quote(receiver)
    driver.paid(receiver, usd(1))
    return driver.use(quote)


def quote_of_completed_receiver(driver: Driver) -> httpx2.Response:
    receiver = driver.incoming(usd(500))
    quote = driver.quote(receiver)
    driver.complete(receiver)
    return driver.use(quote)


def with_money(deposit: str, value: int) -> Send:
    """A payment of a value from a wallet that has this much."""
    return lambda driver: driver.send(driver.incoming(), usd(value), driver.fresh(deposit=deposit))


def nothing_created_without_money(driver: Driver) -> httpx2.Response:
    sender = driver.fresh(deposit="1.00")
    assert driver.send(driver.incoming(), usd(101), sender).status_code == 403
    return driver.list_of("outgoing-payments", sender)


def spent_by_many_at_once(driver: Driver) -> httpx2.Response:
    """Payments at the same moment from a wallet that has enough for three: the list of what was created."""
    sender, receiver = driver.fresh(deposit="3.00"), driver.incoming()
    token = driver.token("outgoing-payment", "create", wallet=sender)
    body = {"walletAddress": sender, "incomingPayment": receiver, "debitAmount": usd(100)}
    with ThreadPoolExecutor(RACERS) as threads:
        answers = list(threads.map(lambda _: driver.client.post("/outgoing-payments", body, token), range(RACERS)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [403] * (RACERS - 3)
    assert driver.instance.balance(driver.path(sender)) == "0.00"
    return driver.list_of("outgoing-payments", sender)


def read_by_other(*actions: str) -> Send:
    """A payment of `client`, read by `other`."""

    def send(driver: Driver) -> httpx2.Response:
        payment = driver.send(driver.incoming(), usd(1)).json()
        token = driver.token("outgoing-payment", *actions, wallet=driver.payer, by=driver.other)
        return driver.other.get(payment["id"], token)

    return send


def read_nobodys(driver: Driver) -> httpx2.Response:
    token = driver.token("outgoing-payment", "read", wallet=driver.payer)
    return driver.client.get(f"/outgoing-payments/{NOBODY}", token)


SHAPES: Json = {
    "nothing": {},
    "quoteId and incomingPayment": {"quoteId": "{quote}", "incomingPayment": "{receiver}"},
    "quoteId and debitAmount": {"quoteId": "{quote}", "debitAmount": usd(1)},
    "all three": {"quoteId": "{quote}", "incomingPayment": "{receiver}", "debitAmount": usd(1)},
    "incomingPayment alone": {"incomingPayment": "{receiver}"},
    "debitAmount alone": {"debitAmount": usd(1)},
}

ROWS: list[Row] = [
    # 4.3.2: the two shapes
    keeps(
        "2.4.1 2.4.2 2.4.3 3.4 4.3.2 4.3.8",
        "quoteId",
        from_quote(metadata={"a": 1}),
        201,
        shapes={"": CREATED_OUTGOING_PAYMENT},
        values={
            "id": PAYMENT_URL,
            "walletAddress": "{base}/spec-payer",
            "quoteId": ANY_URL,
            "failed": False,
            "receiver": ANY_URL,
            "debitAmount": usd(1),
            "receiveAmount": usd(1),
            "sentAmount": usd(1),
            "metadata": {"a": 1},
        },
    ),
    keeps(
        "2.4.3 3.4 4.3.2 4.3.8 4.4.1",
        "incomingPayment and debitAmount",
        direct(),
        201,
        shapes={"": CREATED_OUTGOING_PAYMENT},
        values={"debitAmount": usd(100), "sentAmount": usd(100), "failed": False},
        absent="quoteId metadata",
    ),
    *(
        breaks("4.3.2", name, with_members(**members), "400 invalid_request field=quoteId")
        for name, members in SHAPES.items()
    ),
    breaks("4.3.2", "a quoteId of null", with_members(quoteId=None), "400 invalid_request field=quoteId"),
    breaks("4.3.2", "a debitAmount of null", direct(debitAmount=None), "400 invalid_request field=debitAmount"),
    # 2.4: members
    breaks("2.4.1 4.9.2 7.7", "an id that nobody was given", read_nobodys, "404 not_found"),
    breaks(
        "2.4.2",
        "nobody's walletAddress",
        from_quote(walletAddress="http://127.0.0.1/spec-nobody"),
        "403 insufficient_access identifier",
    ),
    breaks(
        "2.4.2",
        "a walletAddress that is a number",
        from_quote(walletAddress=1),
        "400 invalid_request field=walletAddress",
    ),
    keeps(
        "2.4.5",
        "an incoming payment",
        direct(),
        201,
        values={"receiver": re.compile(r"http://.+/incoming-payments/.+")},
    ),
    *(
        breaks("2.4.5 4.4.1", name, direct(incomingPayment=url), "400 invalid_receiver field=incomingPayment")
        for name, url in {
            "a wallet address": "{wallet}",
            "a quote": "{quote}",
            "nobody's": f"{{base}}/incoming-payments/{NOBODY}",
            "another server's": "https://elsewhere.example/incoming-payments/1",
            "another scheme": "ftp://127.0.0.1/incoming-payments/1",
            "a word": "lunch",
        }.items()
    ),
    keeps("2.4.9", "as it was written", with_metadata, 200, shapes={"": OUTGOING_PAYMENT}),
    *(
        breaks("2.4.9", f"metadata {metadata!r}", from_quote(metadata=metadata), "400 invalid_request field=metadata")
        for metadata in ([1], "lunch", 1, None)
    ),
    # 4.3.7
    keeps("4.3.7", "no others", from_quote(), 201, absent="method"),
    *(
        breaks("4.3.7", f"a member {name}", from_quote(**{name: "1"}), f"400 invalid_request field={name}")
        for name in ("receiver", "receiveAmount", "expiresAt", "id", "method")
    ),
    # 3: processing
    keeps(
        "2.4.4 2.4.7 3.5 4.3.8",
        "it has arrived without more ado",
        arrived,
        200,
        shapes={"": OUTGOING_PAYMENT},
        values={"failed": False, "sentAmount": usd(100), "debitAmount": usd(100)},
    ),
    keeps("2.4.6 2.4.7", "fee and exchange", with_fee, 200, shapes={"": OUTGOING_PAYMENT}, values={"failed": False}),
    keeps(
        "2.4.4 3.6 9.3.4",
        "a failed one",
        failed_elsewhere,
        200,
        shapes={"": OUTGOING_PAYMENT},
        values={"failed": True, "sentAmount": usd(0), "debitAmount": usd(500)},
    ),
    keeps(
        "2.4.8",
        "the second payment of a grant",
        spent_so_far,
        201,
        values={"grantSpentDebitAmount": usd(200), "grantSpentReceiveAmount": usd(200)},
    ),
    keeps("2.4.8 4.9.1", "reading does not tell", read(), 200, absent="grantSpentDebitAmount grantSpentReceiveAmount"),
    # 4.3.1
    keeps("4.3.1", "the wallet's asset", direct(debitAmount=usd(7)), 201, values={"debitAmount": usd(7)}),
    breaks("4.3.1", "another code", direct(debitAmount=money(7, "EUR", 2)), "400 invalid_amount field=debitAmount"),
    breaks("4.3.1", "another scale", direct(debitAmount=money(7, "USD", 3)), "400 invalid_amount field=debitAmount"),
    breaks("4.3.1 2.1.3", "zero", direct(debitAmount=usd(0)), "400 invalid_amount field=debitAmount.value"),
    # 4.3.3, 4.3.4: the quote
    keeps("4.3.3", "the first time", quote_used(0), 201, present="quoteId"),
    keeps("4.3.3", "once of eight times at the same moment", quote_used_at_once, 201, present="quoteId"),
    keeps(
        "4.3.3 4.3.5", "after a refusal for want of money", quote_after_a_refusal, 201, values={"debitAmount": usd(200)}
    ),
    breaks("4.3.3", "the second time", quote_used(1), "409 wrong_state field=quoteId"),
    keeps("4.3.4", "its own client and wallet", from_quote(), 201, values={"walletAddress": "{base}/spec-payer"}),
    breaks("4.3.4", "another client's", quote_of_other_client, "400 invalid_quote field=quoteId"),
    breaks("4.3.4", "another wallet's", quote_of_other_wallet, "400 invalid_quote field=quoteId"),
    *(
        breaks("4.3.4", name, from_quote(quoteId=url), "400 invalid_quote field=quoteId")
        for name, url in {
            "nobody's": f"{{base}}/quotes/{NOBODY}",
            "another server's": "https://elsewhere.example/quotes/1",
            "no quote": "{receiver}",
            "a word": "lunch",
        }.items()
    ),
    # 4.3.5: money
    keeps("4.3.5", "all that the wallet has", with_money("1.00", 100), 201, values={"debitAmount": usd(100)}),
    keeps("4.3.5 4.3.9", "nothing is created otherwise", nothing_created_without_money, 200, values={"result": []}),
    keeps(
        "4.3.5", "three of eight at the same moment", spent_by_many_at_once, 200, present="result.2", absent="result.3"
    ),
    breaks(
        "4.3.5",
        "one unit more",
        with_money("1.00", 101),
        "403 insufficient_funds wallet",
        values={"error.details.needed": "101"},
    ),
    # 4.3.6: room
    keeps(
        "4.3.6",
        "all that the receiver takes",
        lambda driver: driver.send(driver.incoming(usd(500)), usd(500)),
        201,
        values={"receiveAmount": usd(500)},
    ),
    breaks("4.3.6", "more than the receiver takes by now", quote_of_full_receiver, "400 invalid_quote field=quoteId"),
    breaks("4.3.6", "a receiver that was completed meanwhile", quote_of_completed_receiver, "400 invalid_receiver"),
    breaks(
        "3.1 4.3.6 4.3.9", "a receiver that is full", too_late_for_a_full_receiver, "400 invalid_receiver completed"
    ),
    # 4.9
    keeps(
        "2.4.1 4.9.1",
        "its maker",
        read(),
        200,
        shapes={"": OUTGOING_PAYMENT},
        values={"id": PAYMENT_URL, "sentAmount": usd(100)},
    ),
    keeps(
        "4.9.1 4.9.2", "another client, with read-all", read_by_other("read-all"), 200, shapes={"": OUTGOING_PAYMENT}
    ),
    breaks("4.9.1 4.9.2 7.7", "another client, with read", read_by_other("read"), "404 not_found"),
    breaks("4.9.1 7.6", "with create alone", read_by_other("create"), "403 insufficient_access action"),
]


@table(ROWS)
def test_outgoing_payments(driver: Driver, row: Row) -> None:
    play(driver, row)
