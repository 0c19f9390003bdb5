"""Refunds of money from another server: to a wallet address there, by an outgoing payment of the server's own."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from typing import Any

import httpx2
import msgspec
import pytest

from payres.core.store import events, incoming_payments
from payres.core.store.work import Work
from payres.interledger.node import node_of
from payres.interledger.remote_receivers import RemoteIncomingPayment
from payres.operator import exports, wallets
from payres.operator.refunds import WantedRefund, plan_elsewhere
from payres.testing.peering import peer
from tests.helpers import TIMEOUT, Json, last_segment
from tests.instance import Instance
from tests.interledger.network import (
    JPY,
    add_liquidity,
    amount,
    bill,
    change,
    check_books,
    network,
    pay,
    received,
    set_fee,
    set_rate,
    wallet_money,
)
from tests.operator.declared.test_api import error_of
from tests.operator.programs import Program
from tests.works import refund

Three = Sequence[Instance]
PAID = 5000  # cents, which bob on the other server pays each time


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """The shop's server, its peer, and a server that no peer leads to. The ledgers agree in the end."""
    with network(tmp_path_factory.mktemp("refunds"), "a", "b", "c") as servers:
        a, b, _ = servers
        peer(a, b)
        set_fee(a, "0.50", 100)
        b.create_wallet("emma", "EUR")
        b.create_wallet("yuki", "JPY", 0)
        yield servers
        check_books(a, b)


@pytest.fixture(scope="module")
def program(three: Three) -> Iterator[Program]:
    """A program of the shop's operator."""
    with httpx2.Client(timeout=TIMEOUT) as http:
        yield Program(three[0], http)


@pytest.fixture
def paid(three: Three) -> str:
    """The id of an incoming payment of the shop's that bob has just paid from the other server."""
    a, b, _ = three
    receiver = bill(a, a.wallet("alice"))
    pay(b, b.wallet("bob"), receiver, receiveAmount=amount(PAID))
    return last_segment(receiver)


def ask(program: Program, paid: str, **body: str) -> Any:
    return program.ask("POST", f"/payments/{paid}/refunds", body)


def sent_back(program: Program, paid: str, **body: str) -> Json:
    """The refund at its end, as the history of the incoming payment has it."""
    answer = ask(program, paid, **body)
    assert answer.status_code == 201, answer.text
    [made] = answer.json()["result"]
    return ended(program, paid, made)


def ended(program: Program, paid: str, made: Json) -> Json:
    program.instance.wait_for({"id": made["returnPayment"]})
    [found] = [one for one in program.get(f"/payments/{paid}")["refunds"] if one["id"] == made["id"]]
    return dict(found)


def told(instance: Instance, subject: str) -> dict[str, Json]:
    """The events about one thing, by their types."""

    def unit(work: Any) -> dict[str, Json]:
        found = work.execute("SELECT type, data FROM event WHERE subject = ?", (subject,)).fetchall()
        return {kind: msgspec.json.decode(data) for kind, data in found}

    return instance.read(unit)


def test_refund_arrives_at_the_wallet_address_without_a_fee(three: Three, program: Program, paid: str) -> None:
    a, b, _ = three
    shop, bob = wallet_money(a, "alice")[0], wallet_money(b, "bob")[0]
    to = b.wallet("bob")
    made = sent_back(program, paid, to=f"{to}/", amount="20.00", reference="r-1")
    assert (made["state"], made["to"], made["payer"], made["outgoingPayment"]) == ("completed", to, None, None)
    assert (made["amount"], made["sent"], made["returned"]) == ("20.00", "20.00", "20.00")
    assert (wallet_money(a, "alice"), wallet_money(b, "bob")) == ((shop - 2000, 0), (bob + 2000, 0))
    assert program.audited()[0][1:] == ("payment.refund", paid, {"amount": "20.00 USD", "reference": "r-1", "to": to})

    assert ask(program, paid, to=to, reference="r-1", amount="20.00").json()["result"] == [made], "it is not done again"
    error_of(ask(program, paid, to=a.wallet("bob"), reference="r-1"), 409, "wrong_state")
    error_of(ask(program, paid, reference="r-1"), 409, "wrong_state")
    too_much = error_of(ask(program, paid, to=to, amount="30.01", reference="r-2"), 400, "invalid_amount")
    assert too_much["remaining"] == "3000"
    assert "wallet address" in error_of(ask(program, paid, reference="r-2"), 409, "wrong_state")["hint"]
    rest = sent_back(program, paid, to=to, reference="r-2")
    assert (rest["sent"], program.get(f"/payments/{paid}")["payment"]["refunded"]) == ("30.00", "50.00")
    assert wallet_money(b, "bob")[0] == bob + 5000


def test_refund_is_in_both_histories_in_the_ledger_and_in_the_events(three: Three, program: Program, paid: str) -> None:
    a, b, _ = three
    made = sent_back(program, paid, to=b.wallet("bob"), reference="r-1")
    history = program.get(f"/payments/{made['returnPayment']}")
    assert (history["payment"]["refundOf"], history["payment"]["grant"]) == (paid, None)
    assert {one["refund"] for one in history["entries"]} == {made["id"]}
    assert "refund.completed" in [one["type"] for one in program.get(f"/payments/{paid}")["events"]]
    incoming = a.context.urls.resource("incoming-payments", paid)
    assert told(a, made["returnPayment"])["outgoing_payment.completed"]["refundOf"] == incoming
    event = told(a, made["id"])["refund.completed"]
    assert (event["incomingPayment"], event["walletAddress"]) == (incoming, b.wallet("bob"))
    assert event["returnPayment"] == a.context.urls.resource("outgoing-payments", made["returnPayment"])
    assert (event["amount"]["value"], event["returned"]["value"]) == ("5000", "5000")

    statement = exports.export_statement("alice")
    lines = a.read(lambda work: [line for _ in range(9) if not statement.done for line in statement.step(work)])
    sent = [Decimal(line["amount"] or 0) for line in lines if (line["kind"], line["payment"]) == ("refund", paid)]
    assert sum(sent) == -50


@pytest.mark.parametrize(("takes", "sent"), [(0, "0.00"), (3000, "30.00")], ids=["whole", "part"])
def test_what_a_refund_does_not_send_can_be_sent_back_again(
    takes: int, sent: str, three: Three, program: Program, paid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wallet address takes only so much of what it has made an offer for, once packets are on their way."""
    a, b, _ = three
    shop, to = wallet_money(a, "alice")[0], b.wallet("bob")
    change(b, "a", max_packet=1000)
    wanted = WantedRefund(paid, "r-1", None, to)
    offer = a._server.call(node_of(a.context).quotes.offer_for_refund(to, partial(plan_elsewhere, wanted=wanted)))
    assert offer is not None
    receiver = last_segment(offer.terms.receiver)
    receivers = node_of(a.context).payments._receivers
    fetch_open = receivers.fetch_open

    async def fetch_before(url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        found = await fetch_open(url, seconds)
        b.write(lambda work: take_at_most(work, receiver, takes))
        return found

    monkeypatch.setattr(receivers, "fetch_open", fetch_before)
    [before] = a.write(lambda work: refund(work, wanted, offer))
    node_of(a.context).payments.wake()
    assert (before.state, before.counted) == ("sending", PAID)
    made = ended(program, paid, {"id": before.id, "returnPayment": before.return_payment_id})
    assert (made["state"], made["amount"], made["sent"], made["returned"]) == ("failed", "50.00", sent, sent)
    assert (wallet_money(a, "alice"), received(b, receiver).received) == ((shop - takes, 0), takes)
    failed = told(a, made["returnPayment"])["outgoing_payment.failed"]
    assert failed["refundOf"] == a.context.urls.resource("incoming-payments", paid)
    assert (failed["failure"], told(a, made["id"])) == (made["failure"], {})
    assert program.get(f"/payments/{paid}")["payment"]["refunded"] == sent
    assert ask(program, paid, to=to, reference="r-1").json()["result"] == [made], "it stays as it ended"
    rest = sent_back(program, paid, to=to, reference="r-2")
    assert (rest["state"], rest["sent"]) == ("completed", f"{(PAID - takes) // 100}.00")


def take_at_most(work: Work, receiver: str, amount: int) -> None:
    if amount:
        work.execute("UPDATE incoming_payment SET incoming_value = ? WHERE id = ?", (str(amount), receiver))
    else:
        incoming_payments.complete_incoming(work, receiver, work.now)


def test_refund_is_exchanged_at_the_rates_of_now(three: Three, program: Program, paid: str) -> None:
    a, b, _ = three
    set_rate("USD", "JPY", "150", a, b)
    add_liquidity(b, JPY)
    made = sent_back(program, paid, to=b.wallet("yuki"), amount="2.00", reference="r-1")
    assert (made["sent"], made["returned"], made["returnedAssetCode"]) == ("2.00", "300", "JPY")


def test_refund_may_go_to_a_wallet_here(three: Three, program: Program, paid: str) -> None:
    a, _, _ = three
    before = wallet_money(a, "bob")[0]
    [made] = ask(program, paid, to=a.wallet("bob"), reference="r-1", amount="5.00").json()["result"]
    assert (made["state"], made["returned"], wallet_money(a, "bob")) == ("completed", "5.00", (before + 500, 0))
    assert told(a, made["id"])["refund.completed"]["walletAddress"] == a.wallet("bob")
    error_of(ask(program, paid, to=a.wallet("alice"), reference="r-2"), 400, "invalid_request")
    error_of(ask(program, paid, to=a.wallet("nobody"), reference="r-2"), 400, "invalid_request")


@pytest.mark.parametrize(
    ("to", "code", "hint"),
    [
        ("alice", "invalid_request", "wallet address, such as https://"),
        ("http://127.0.0.1:9/bob", "invalid_receiver", "Nothing answers|connection"),
        ("{b}/nobody", "invalid_receiver", "answered 404"),
        ("{b}/healthz", "invalid_receiver", "is not a wallet address"),
        ("{b}/emma", "invalid_receiver", "no exchange rate from USD to EUR"),
        ("{c}/bob", "invalid_receiver", "no peer with a route to test.c"),
    ],
    ids=["no URL", "unreachable", "no wallet", "another page", "no rate", "no route"],
)
def test_wallet_address_that_cannot_be_paid_is_refused(
    to: str, code: str, hint: str, three: Three, program: Program, paid: str
) -> None:
    _, b, c = three
    to = to.format(b=b.base_url, c=c.base_url)
    details = error_of(ask(program, paid, to=to, reference="r-1"), 400, code)
    assert any(one in details["hint"] for one in hint.split("|")), details
    assert program.get(f"/payments/{paid}")["refunds"] == []


def test_refund_beyond_the_wallet_asks_no_other_server(three: Three, program: Program) -> None:
    a, b, _ = three
    a.create_wallet("poor")
    receiver = bill(a, a.wallet("poor"))
    pay(b, b.wallet("bob"), receiver, receiveAmount=amount(500))
    a.write(lambda work: wallets.withdraw(work, "poor", "3.00").id)
    paid, before = last_segment(receiver), b.read(lambda work: events.last_sequence(work))
    refused = error_of(ask(program, paid, to=b.wallet("bob"), reference="r-1"), 403, "insufficient_funds")
    assert refused["reason"] == "wallet"
    a.write(lambda work: wallets.deactivate(work, "poor"))
    error_of(ask(program, paid, to=b.wallet("bob"), amount="1.00", reference="r-1"), 409, "wrong_state")
    a.write(lambda work: wallets.activate(work, "poor"))
    told = b.read(lambda work: [one.type for one in events.events_after(work, before, 100)])
    assert "incoming_payment.created" not in told
    assert sent_back(program, paid, to=b.wallet("bob"), amount="2.00", reference="r-1")["state"] == "completed"


def test_refunds_at_once_send_back_no_more_than_was_received(three: Three, program: Program, paid: str) -> None:
    _, b, _ = three
    before = wallet_money(b, "bob")[0]

    def send(number: int) -> Any:
        return ask(program, paid, to=b.wallet("bob"), amount="20.00", reference=f"r-{number // 2}")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(8)))
    assert {answer.status_code for answer in answers} == {201, 400}
    made = {one["id"]: one for answer in answers if answer.status_code == 201 for one in answer.json()["result"]}
    assert len(made) == 2, "under one reference it is one refund"
    assert [ended(program, paid, one)["state"] for one in made.values()] == ["completed"] * 2
    assert wallet_money(b, "bob")[0] == before + 4000
