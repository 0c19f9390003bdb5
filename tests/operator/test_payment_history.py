"""The history of a payment in sentences."""

from fractions import Fraction

from payres.core.protocol.amounts import ProbedPath, Terms
from payres.core.protocol.clock import SECOND, format_time
from payres.core.protocol.identifiers import first_identifier
from payres.core.store.clients import ensure_client
from payres.core.store.payments import OUTGOING
from payres.core.store.work import Work
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.interledger.store.peers import note_error
from payres.operator.payment_history import history, story_of
from payres.operator.payments import require_payment
from payres.operator.wallets import create_wallet
from tests.works import USD, add_usd_peer, sending_payment


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
    told = story_of(history(tx, require_payment(tx, payment)))
    (at, folded), *rest = [(one.at.text, "".join(part.printed for part in one.said)) for one in told[1:]]
    before, _, last = folded.partition(" This was 75 times, the last at ")
    assert (at, last) == (format_time(start + SECOND), f"{format_time(start + 75 * SECOND)}.")
    assert before == "A packet of USD 12.50 went to the peer harbour. It was rejected."
    assert [sentence for _, sentence in rest] == [
        "A packet of USD 6.25 went to the peer harbour. It was delivered.",
        before,
        "The peer harbour: We have used up the credit it gives us. Now nothing is owed either way; it may owe us"
        " USD 0.00. What is owed is settled on its page.",
    ]
