"""The money of packets against an oracle: in every order of events the ledger balances and nothing is overspent."""

from collections.abc import Iterator
from contextlib import closing, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.payments import ledger
from payres.core.protocol.amounts import MAX_LEDGER, Asset, Terms
from payres.core.protocol.amounts import ProbedPath as Way
from payres.core.store import accounts, clients
from payres.core.store.connections import connect_writer
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.work import Damaged, Transaction, Work
from payres.interledger import clearing
from payres.interledger.clearing import end_remote, payment_hold
from payres.interledger.packets import Code, PacketRejected
from payres.interledger.store import packets
from payres.interledger.store.packets import PacketRecord
from payres.interledger.unanswered import find_standing
from payres.operator import assets, wallets
from payres.operator.peers import require_peer
from payres.operator.upkeep import invariant_checks
from tests.works import add_usd_peer, savepoint, sending_payment, work_at

NOW = 1_800_000_000_000_000
FUNDS, DEBIT, FEE = 100_000, 1_000, 30
LIQUIDITY = 2_000  # of euro cents
CREDIT = 800
PAYMENTS = ("payment-1", "payment-2")
ONWARD = ("dollars", "euros")  # the peers that packets go to, by what their link is in
INBOUND = "inbound"


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
    """Applies each step to the database, and compares it with what the packets so far make of every balance."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.packets: dict[str, PacketRecord] = {}
        self.states: dict[str, str] = {}
        self.over: set[str] = set()
        self.peers = {name: require_peer(self.work(), name).id for name in (*ONWARD, INBOUND)}

    def do(self, step: tuple[Any, ...]) -> None:
        kind, *arguments = step
        getattr(self, kind)(*arguments)
        self.compare()

    def work(self) -> Work:
        return work_at(self.tx, NOW)

    def chosen(self, states: set[str], **like: Any) -> list[PacketRecord]:
        """The packets in these states."""
        found = [packet for packet in self.packets.values() if self.states[packet.id] in states]
        return [packet for packet in found if all(getattr(packet, name) == it for name, it in like.items())]

    def total(self, states: set[str], **like: Any) -> int:
        """What packets in these states took from whom they came from."""
        return sum(packet.source_amount for packet in self.chosen(states, **like))

    def onward(self, states: set[str], name: str) -> int:
        """What packets in these states brought to a peer."""
        return sum(packet.amount for packet in self.chosen(states, to_peer_id=self.peers[name]))

    def send(self, payment_id: str, onward: str, amount: int) -> None:
        """A packet of a payment of ours."""
        spent = self.total({*PAID, "prepared"}, outgoing_payment_id=payment_id)
        fits = payment_id not in self.over and spent + amount <= DEBIT - FEE
        self._prepare(onward, amount, fits, Code.BAD_REQUEST, outgoing_payment_id=payment_id)

    def forward(self, onward: str, amount: int) -> None:
        """A packet of another peer, to be passed on."""
        payer = self.peers[INBOUND]
        fits = self.total({*PAID, "prepared"}, from_peer_id=payer) + amount <= CREDIT
        self._prepare(onward, amount, fits, Code.INSUFFICIENT_LIQUIDITY, from_peer_id=payer)

    def decide(self, how: str, which: int, delivered: int) -> None:
        """The outcome of a packet, which may have been known before."""
        if not self.packets:
            return
        packet_id = list(self.packets)[which % len(self.packets)]
        is_new = self.states[packet_id] == "prepared"
        if how == "fulfilled":
            assert clearing.fulfil(self.work(), packet_id, delivered) is is_new
        else:
            assert clearing.reject(self.work(), packet_id) is is_new
        if is_new:
            self.states[packet_id] = how

    def end(self, payment_id: str, failure: str | None) -> None:
        """The end of a payment, once none of its packets is under way."""
        if payment_id in self.over or self.chosen({"prepared"}, outgoing_payment_id=payment_id):
            return
        payment = OUTGOING.by_id(self.work(), payment_id)
        end_remote(self.work(), payment, failure or ("nothing was sent" if not payment.sent else None))
        self.over.add(payment_id)

    def give_up(self, payment_id: str) -> None:
        """The end of a payment of whose packets in flight nobody will ever say what became of them."""
        if payment_id in self.over:
            return
        for packet in self.chosen({"prepared"}, outgoing_payment_id=payment_id):
            for _ in range(2):
                clearing.leave_unresolved(self.work(), packet)
            self.states[packet.id] = "doubtful"
        self.end(payment_id, "nobody knows")

    def compare(self) -> None:
        """Every balance is what the packets make it."""
        for payment_id in PAYMENTS:
            self._compare_payment(payment_id)
        for name in ONWARD:
            assert require_peer(self.work(), name).balance == self.onward(PAID, name)
            assert packets.count_and_sum(self.tx, self.peers[name], "prepared")[1] == self.onward({"prepared"}, name)
        payer = require_peer(self.work(), INBOUND)
        assert payer.balance == -self.total(PAID, from_peer_id=payer.id) >= -CREDIT
        assert payer.held == self.total({"prepared"}, from_peer_id=payer.id)

    def _compare_payment(self, payment_id: str) -> None:
        payment = OUTGOING.by_id(self.work(), payment_id)
        sent = self.total(PAID, outgoing_payment_id=payment_id)
        under_way = self.total({"prepared"}, outgoing_payment_id=payment_id)
        assert packets.in_flight_of_payment(self.tx, payment_id) == under_way
        assert sent + under_way <= DEBIT - FEE
        (reservation, *_) = accounts.HOLDS.list(self.tx, outgoing_payment_id=payment_id)
        if payment_id not in self.over:
            assert (payment.sent, reservation.remaining) == (sent, DEBIT - sent)
            return
        assert reservation.remaining == 0
        assert payment.unresolved_debit == self.total({"doubtful"}, outgoing_payment_id=payment_id)
        assert payment.sent + payment.unresolved_debit <= DEBIT
        assert sent <= payment.sent <= sent + FEE if sent else payment.sent == 0
        assert payment.state == "completed" or payment.sent < DEBIT

    def _prepare(self, onward: str, amount: int, fits: bool, code: Code, **origin: Any) -> None:
        there = amount if onward == "dollars" else -(-amount // 2)
        whose = {"outgoing_payment_id": None, "from_peer_id": None, "from_request_id": None} | origin
        packet = PacketRecord(
            id=f"packet-{len(self.packets)}",
            to_peer_id=self.peers[onward],
            source_amount=amount,
            amount=there,
            prepare=b"prepare",
            expires_at=NOW,
            state="prepared",
            **whose,
        )
        liquid = onward != "euros" or self.onward({*PAID, "prepared"}, "euros") + there <= LIQUIDITY
        refused = pytest.raises(PacketRejected, match=Code.INSUFFICIENT_LIQUIDITY if fits else code)
        with nullcontext() if fits and liquid else refused, savepoint(self.tx):
            clearing.prepare(self.work(), packet, require_peer(self.work(), onward))
            self.packets[packet.id], self.states[packet.id] = packet, "prepared"


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


@pytest.fixture
def machine(book: Transaction) -> Iterator[Machine]:
    book.execute("BEGIN")
    yield Machine(book)
    book.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("reported", "least", "most"),
    [
        (None, 100, 199),  # nothing was sent before: by the probed rate
        (0, 100, 199),  # a report of nothing says nothing of the rate
        (50, 50, 199),
        (150, 100, 199),
        (300, 100, 300),
    ],
)
def test_packet_in_flight_may_deliver_by_the_probed_rate_or_the_payments_own(
    machine: Machine, reported: int | None, least: int, most: int
) -> None:
    if reported is not None:
        machine.do(("send", "payment-1", "dollars", 100))
        machine.do(("decide", "fulfilled", 0, reported))
    machine.do(("send", "payment-1", "dollars", 100))
    standing = find_standing(machine.work(), "payment-1")
    assert standing is not None
    assert [(one.least, one.most) for one in standing.in_flight] == [(least, most)]


@pytest.mark.parametrize(
    ("delivered", "estimated", "under_way", "state"),
    [(900, 0, False, "completed"), (900, 900, False, "sending"), (900, 0, True, "sending"), (899, 0, False, "sending")],
)
def test_payment_ends_with_its_last_packet_unless_what_arrived_is_an_estimate_or_more_is_under_way(
    machine: Machine, delivered: int, estimated: int, under_way: bool, state: str
) -> None:
    """An estimate is compared with the receiver first: else the payer pays for what may not have arrived."""
    for _ in range(1 + under_way):
        machine.do(("send", "payment-1", "dollars", 100))
    machine.do(("decide", "fulfilled", 0, delivered))
    OUTGOING.update(machine.work(), "payment-1", estimated=estimated)
    clearing.end_if_finished(machine.work(), "payment-1")
    assert OUTGOING.by_id(machine.work(), "payment-1").state == state


def test_payment_without_its_hold_means_that_the_database_is_damaged(book: Transaction) -> None:
    assert payment_hold(book, "payment-1").remaining == DEBIT
    with pytest.raises(Damaged, match="outgoing payment payment-0 has no hold"):
        payment_hold(book, "payment-0")
