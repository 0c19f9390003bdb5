"""The history of a payment in sentences."""

from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from payres.core.protocol.amounts import ProbedPath, Terms
from payres.core.protocol.clock import SECOND, format_time
from payres.core.protocol.identifiers import first_identifier
from payres.core.store.clients import ensure_client
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.work import Work
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.interledger.store.peers import note_error
from payres.operator.declared.shapes import facts_of
from payres.operator.payment_history import HISTORY, history, story_of
from payres.operator.payments import require_payment
from payres.operator.wallets import create_wallet
from payres.people.store.checkouts import CheckoutRecord, Stage, change_checkout, insert_checkout, note_failure
from tests.helpers import last_segment, receiver_of
from tests.instance import Instance
from tests.people.browser import signed_in
from tests.works import USD, add_usd_peer, sending_payment

PAYER, PAYMENT = "https://wallet.example/alice", "https://wallet.example/outgoing-payments/1"


def test_packets_of_one_fate_are_one_line_and_the_peer_says_why(tx: Work) -> None:
    wallet, peer = create_wallet(tx, "alice", "USD", 2, None, None), add_usd_peer(tx, "harbour")
    client = ensure_client(tx, "https://app.example", "https://app.example", None, tx.now)
    payment, start = tx.new_id(), tx.now
    terms = Terms(
        receiver="https://far.example/1",
        incoming_payment_id=None,
        debit=5000,
        fee=0,
        receive=5000,
        asset=USD,
        path=ProbedPath(Fraction(1), Fraction(1), 1250),
    )
    OUTGOING.insert(tx, sending_payment(payment, wallet.id, client.id, start, terms))
    for number, amount in enumerate([*[1250] * 75, 625, 1250]):
        packet = f"{first_identifier(start + (number + 1) * SECOND)}-7000-8000-{number:012}"
        fate = "rejected" if amount == 1250 else "fulfilled"
        PACKETS.insert(tx, PacketRecord(packet, peer.id, payment, None, None, amount, amount, None, start, fate))
    note_error(tx, peer.id, "We have used up the credit it gives us", start + 100 * SECOND)
    found = history(tx, require_payment(tx, payment))
    large = replace(found, payment=replace(found.payment, amount="1234567.00"))
    assert dict(facts_of(HISTORY.columns, large))["May debit"].shown == "USD 1,234,567.00"
    told = story_of(found)
    (at, folded), *rest = [(one.at.text, "".join(part.printed for part in one.said)) for one in told[1:]]
    before, _, last = folded.partition(" This happened 75 times, last: ")
    assert (at, last) == (format_time(start + SECOND), f"{format_time(start + 75 * SECOND)}.")
    assert before == "A packet of USD 12.50 went to the peer harbour. It was rejected."
    assert [sentence for _, sentence in rest] == [
        "A packet of USD 6.25 went to the peer harbour. It was delivered.",
        before,
        "The peer harbour: We have used up the credit it gives us. Now nothing is owed either way; it may owe us"
        " USD 0.00. What is owed is settled on its page.",
    ]


@pytest.mark.parametrize(
    ("state", "values", "silent", "told"),
    [
        ("asked", {}, None, None),
        (
            "returned",
            {},
            "wallet.example",
            f"{PAYER} has consented, and nothing was created there yet. It is tried again.",
        ),
        ("made", {}, "wallet.example", f"the server of {PAYER} was asked to pay, and it is not known whether it has."),
        ("made", {"payment": PAYMENT}, None, f"{PAYER} pays by {PAYMENT}."),
        ("paid", {"payment": PAYMENT}, None, f"{PAYER} has paid."),
        ("failed", {"failure": "no_funds"}, None, f"{PAYER} has not paid (no_funds)."),
    ],
)
def test_history_of_a_bill_says_what_became_of_it(
    shared: Instance, state: Stage, values: Any, silent: str | None, told: str | None
) -> None:
    bill = last_segment(receiver_of(shared, 1250))

    def unit(work: Work) -> list[str]:
        record = CheckoutRecord(bill.encode(), bill, b"browser", PAYER, 1250, "asked", work.now)
        insert_checkout(work, record, "pending", ("https://a.example/continue", "T"))
        if state != "asked":
            change_checkout(work, record, state, work.now, due_at=work.now, **values)
        if silent is not None:
            note_failure(work, CheckoutRecord(bill.encode(), bill, b"browser", PAYER, 1250, state, 0), work.now, silent)
        moments = story_of(history(work, require_payment(work, bill)))
        return ["".join(part.printed for part in one.said) for one in moments[1:]]

    found = shared.write(unit)
    assert len(found) == int(told is not None)
    for sentence in found:
        assert sentence.startswith(f"On the payment page, for USD 12.50: {told}")
        assert ("wallet.example does not answer" in sentence) == (silent is not None)


def test_history_names_no_app_for_what_owners_did_on_pages(payres: Instance) -> None:
    payres.create_wallet("erik")
    with signed_in(payres, "dora") as dora:
        price = dora.send("/account/send", "price", {"to": "erik", "amount": "5", "fixed": "send", "note": ""})
        paid = last_segment(dora.send(price.headers["location"], "send").headers["location"])
        asked = dora.send("/account/request", "make", {"amount": "7", "days": "7"})
    bill = payres.read(lambda work: OUTGOING.by_id(work, paid).terms.incoming_payment_id)

    def begun(payment: str | None) -> tuple[str, str | None, str | None]:
        found = payres.read(lambda work: history(work, require_payment(work, str(payment))))
        facts, moments = dict(facts_of(HISTORY.columns, found)), story_of(found)
        told = ["".join(part.printed for part in one.said) for one in moments]
        assert not any("well-known" in one for one in told)
        return told[found.quote is not None], facts["Client"].text or None, facts["Made by"].text or None

    own = "the owner, on the pages of this server"
    sent = "The owner sent it on the pages of this server: at most USD 5.00 from dora to erik."
    assert begun(paid) == (sent, None, own)
    assert begun(bill) == (
        "This server made it, for who pays from here into erik.",
        None,
        "this server, for who pays it from here",
    )
    asks = "The owner asked for USD 7.00, to be paid into dora."
    assert begun(last_segment(asked.headers["location"])) == (asks, None, own)
    app = last_segment(receiver_of(payres, 1250))
    assert begun(app)[0].startswith("The client http")
    assert begun(app)[1:] != (None, None)
