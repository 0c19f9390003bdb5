"""The money of packets against an oracle: in every order of events the ledger balances and nothing is overspent."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres import ledger
from payres.amounts import MAX_LEDGER, Asset
from payres.interledger import balances
from payres.interledger.packets import Code, Rejected
from payres.operator import assets, invariant_checks, wallets
from payres.operator.peers import require_peer
from payres.payments.settlement import end_remote
from payres.store import accounts, clients, events, packets
from payres.store.connections import connect_writer
from payres.store.packets import PacketRecord
from payres.store.payments import OUTGOING
from payres.store.work import Transaction, Work
from payres.terms import Path as Way
from payres.terms import Terms
from tests.works import add_usd_peer, savepoint, sending_payment, work_at

NOW = 1_800_000_000_000_000
FUNDS, DEBIT, FEE = 100_000, 1_000, 30
LIQUIDITY = 2_000  # of euro cents
CREDIT = 800
PAYMENTS = ("payment-1", "payment-2")
ONWARD = ("dollars", "euros")  # the peers that packets go to, by what their link is in
INBOUND = "inbound"


@dataclass
class Oracle:
    """What should be so, by what was done."""

    packets: dict[str, PacketRecord] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)

    def total(self, states: set[str], **like: Any) -> int:
        """What packets in these states took from whom they came from."""
        return sum(packet.source_amount for packet in self.chosen(states, **like))

    def onward(self, states: set[str], **like: Any) -> int:
        """What packets in these states brought to whom they went to."""
        return sum(packet.amount for packet in self.chosen(states, **like))

    def chosen(self, states: set[str], **like: Any) -> list[PacketRecord]:
        return [
            packet
            for packet in self.packets.values()
            if self.states[packet.id] in states and all(getattr(packet, name) == it for name, it in like.items())
        ]


PAID = {"fulfilled"}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transaction]:
    """A database with two payments under way, two peers to send to, and one that sends packets to be passed on."""
    file = tmp_path_factory.mktemp("balances") / "payres.db"
    with closing(connect_writer(str(file))) as connection:
        _fill(work_at(connection, NOW))
        yield connection
    assert Path(file).exists()


def _fill(tx: Work) -> None:
    wallet = wallets.create_wallet(tx, "alice", "USD", 2, None, None)
    wallets.deposit(tx, "alice", f"{FUNDS // 100}.00")
    assets.set_rate(tx, "USD", "EUR", "0.5")
    client = clients.ensure_client(tx, "https://shop.example/shop", "https://shop.example/shop", None, NOW)
    for name, code, credit in (*((code, code, 0) for code in ONWARD), (INBOUND, "dollars", CREDIT)):
        terms = {"asset_code": "USD" if code == "dollars" else "EUR", "incoming_token": f"seen-{name}"}
        add_usd_peer(tx, name, f"{credit // 100}.00", **terms)
    assets.deposit_liquidity(tx, "EUR", 2, f"{LIQUIDITY // 100}.00")
    way = Way(Fraction(1), Fraction(2), 1000)
    for payment_id in PAYMENTS:
        payment = sending_payment(
            payment_id,
            wallet.id,
            client.id,
            NOW,
            terms=Terms(
                receiver="https://elsewhere.example/incoming-payments/1",
                incoming_payment_id=None,
                debit=DEBIT,
                fee=FEE,
                receive=900,
                path=way,
                asset=Asset("USD", 2),
            ),
        )
        OUTGOING.insert(tx, payment)
        ledger.hold(tx, wallet.account_id, DEBIT, outgoing_payment_id=payment_id)


class Machine:
    """Applies each step to the database and to the oracle, and compares them."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.oracle = Oracle()
        self.numbers = count()

    def do(self, step: tuple[Any, ...]) -> None:
        kind, *arguments = step
        getattr(self, kind)(*arguments)
        self.compare()

    def send(self, payment_id: str, onward: str, amount: int) -> None:
        """A packet of a payment of ours."""
        spent = self.oracle.total({*PAID, "prepared"}, outgoing_payment_id=payment_id)
        fits = payment_id not in self.oracle.over and spent + amount <= DEBIT - FEE
        self._prepare(self._packet(onward, amount, outgoing_payment_id=payment_id), fits, Code.BAD_REQUEST)

    def work(self) -> Work:
        return work_at(self.tx, NOW)

    def forward(self, onward: str, amount: int) -> None:
        """A packet of another peer, to be passed on."""
        payer = require_peer(self.work(), INBOUND).id
        used = self.oracle.total({*PAID, "prepared"}, from_peer_id=payer)
        self._prepare(
            self._packet(onward, amount, from_peer_id=payer), used + amount <= CREDIT, Code.INSUFFICIENT_LIQUIDITY
        )

    def decide(self, how: str, which: int, delivered: int) -> None:
        """The outcome of a packet, which may have been known before."""
        if not self.oracle.packets:
            return
        packet_id = list(self.oracle.packets)[which % len(self.oracle.packets)]
        known = self.oracle.states[packet_id] != "prepared"
        if how == "fulfilled":
            changed = balances.fulfil(self.work(), packet_id, delivered)
        else:
            changed = balances.reject(self.work(), packet_id)
        assert changed is not known
        if changed:
            self.oracle.states[packet_id] = how

    def end(self, payment_id: str, failure: str | None) -> None:
        """The end of a payment, once none of its packets is under way."""
        if payment_id in self.oracle.over or self.oracle.chosen({"prepared"}, outgoing_payment_id=payment_id):
            return
        payment = OUTGOING.get(self.tx, payment_id)
        assert payment is not None
        end_remote(self.work(), payment, failure or ("nothing was sent" if not payment.sent else None))
        self.oracle.over.add(payment_id)

    def give_up(self, payment_id: str) -> None:
        """The end of a payment of whose packets in flight nobody will ever say what became of them."""
        if payment_id in self.oracle.over:
            return
        for packet in self.oracle.chosen({"prepared"}, outgoing_payment_id=payment_id):
            for _ in range(2):
                balances.leave_unresolved(self.work(), packet)
            self.oracle.states[packet.id] = "doubtful"
        self.end(payment_id, "nobody knows")

    def compare(self) -> None:
        """Every balance is what the packets make it."""
        for payment_id in PAYMENTS:
            self._compare_payment(payment_id)
        for name in ONWARD:
            peer = require_peer(self.work(), name)
            assert peer.balance == self.oracle.onward({"fulfilled"}, to_peer_id=peer.id)
            assert packets.count_and_sum(self.tx, peer.id, "prepared")[1] == self.oracle.onward(
                {"prepared"}, to_peer_id=peer.id
            )
        payer = require_peer(self.work(), INBOUND)
        assert payer.balance == -self.oracle.total(PAID, from_peer_id=payer.id) >= -CREDIT
        assert payer.held == self.oracle.total({"prepared"}, from_peer_id=payer.id)

    def _compare_payment(self, payment_id: str) -> None:
        payment = OUTGOING.get(self.tx, payment_id)
        assert payment is not None
        sent = self.oracle.total(PAID, outgoing_payment_id=payment_id)
        under_way = self.oracle.total({"prepared"}, outgoing_payment_id=payment_id)
        assert packets.in_flight_of_payment(self.tx, payment_id) == under_way
        assert sent + under_way <= DEBIT - FEE
        (reservation, *_) = accounts.holds_of_payment(self.tx, payment_id)
        if payment_id not in self.oracle.over:
            assert (payment.sent, reservation.remaining) == (sent, DEBIT - sent)
            return
        assert reservation.remaining == 0
        assert payment.unresolved_debit == self.oracle.total({"doubtful"}, outgoing_payment_id=payment_id)
        assert payment.sent + payment.unresolved_debit <= DEBIT
        assert sent <= payment.sent <= sent + FEE if sent else payment.sent == 0
        assert payment.state == "completed" or payment.sent < DEBIT

    def _packet(self, onward: str, amount: int, **origin: Any) -> PacketRecord:
        whose = {"outgoing_payment_id": None, "from_peer_id": None, "from_request_id": None} | origin
        packet_id, peer = f"packet-{next(self.numbers)}", require_peer(self.work(), onward)
        there = amount if onward == "dollars" else -(-amount // 2)
        return PacketRecord(
            id=packet_id,
            to_peer_id=peer.id,
            source_amount=amount,
            amount=there,
            prepare=b"prepare",
            expires_at=NOW,
            state="prepared",
            **whose,
        )

    def _prepare(self, packet: PacketRecord, fits: bool, code: Code) -> None:
        peer = next(
            require_peer(self.work(), name)
            for name in ONWARD
            if require_peer(self.work(), name).id == packet.to_peer_id
        )
        exchanged = self.oracle.onward({"fulfilled", "prepared"}, to_peer_id=require_peer(self.work(), "euros").id)
        liquid = peer.name != "euros" or exchanged + packet.amount <= LIQUIDITY
        if fits and liquid:
            with savepoint(self.tx):
                balances.prepare(self.work(), packet, peer)
            self.oracle.packets[packet.id], self.oracle.states[packet.id] = packet, "prepared"
        else:
            with pytest.raises(Rejected) as caught, savepoint(self.tx):
                balances.prepare(self.work(), packet, peer)
            assert caught.value.code == (Code.INSUFFICIENT_LIQUIDITY if fits else code)


AMOUNTS = st.one_of(st.integers(1, 400), st.sampled_from([1, DEBIT - FEE - 1, DEBIT - FEE, DEBIT, CREDIT, CREDIT + 1]))
SEND = st.tuples(st.just("send"), st.sampled_from(PAYMENTS), st.sampled_from(ONWARD), AMOUNTS)
FORWARD = st.tuples(st.just("forward"), st.sampled_from(ONWARD), AMOUNTS)
DECIDE = st.tuples(
    st.just("decide"),
    st.sampled_from(["fulfilled", "rejected"]),
    st.integers(0, 30),
    st.sampled_from([0, 1, 100, MAX_LEDGER, 2**64 - 1]),
)
END = st.tuples(st.just("end"), st.sampled_from(PAYMENTS), st.sampled_from([None, "no way leads there"]))
GIVE_UP = st.tuples(st.just("give_up"), st.sampled_from(PAYMENTS))
STEPS = st.one_of(SEND, SEND, SEND, FORWARD, FORWARD, DECIDE, DECIDE, DECIDE, DECIDE, END, GIVE_UP)


@given(st.lists(STEPS, min_size=8, max_size=30))
def test_packets_in_any_order_keep_the_books_and_never_overspend(
    book: Transaction, steps: list[tuple[Any, ...]]
) -> None:
    book.execute("BEGIN")
    try:
        machine = Machine(book)
        for step in steps:
            machine.do(step)
        assert invariant_checks.first_broken(invariant_checks.check(book)) is None
    finally:
        book.execute("ROLLBACK")


def test_operator_hears_of_credit_and_liquidity_that_packets_leave_low(book: Transaction) -> None:
    book.execute("BEGIN")
    try:
        machine = Machine(book)
        liquidity = ledger.operator_account(machine.work(), require_peer(machine.work(), "euros").asset_id, "liquidity")
        accounts.ACCOUNTS.update(book, liquidity, warn_below=LIQUIDITY - 100)
        before = events.last_sequence(book)
        machine.send("payment-1", "euros", 200)
        machine.forward("dollars", CREDIT - CREDIT // 10)
        machine.send("payment-1", "euros", 2)
        machine.forward("dollars", 1)
        told = [event.type for event in events.events_after(book, before, 10)]
        assert told == ["liquidity.low", "peer.credit_low"]
    finally:
        book.execute("ROLLBACK")
