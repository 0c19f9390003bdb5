import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.payments import ledger
from payres.core.payments.ledger import LedgerBroken, NotEnough
from payres.core.protocol.amounts import MAX_LEDGER, Asset, Terms
from payres.core.protocol.errors import DomainError
from payres.core.store import accounts, incoming_payments
from payres.core.store import outgoing_payments as payments
from payres.core.store.accounts import ACCOUNTS, HOLDS, AccountRecord, ensure_asset
from payres.core.store.clients import ensure_client
from payres.core.store.connections import connect_writer
from payres.core.store.incoming_payments import IncomingRecord
from payres.core.store.work import Transaction, Work
from payres.operator.upkeep import invariant_checks
from tests.helpers import examples
from tests.works import savepoint, sending_payment, work_at

NOW = 1_700_000_000_000_000
OUTGOING, INCOMING = "outgoing-1", "incoming-1"


class Books(NamedTuple):
    """A database with an outgoing and an incoming payment, and the ids of accounts in two assets."""

    tx: sqlite3.Connection
    work: Work
    euro: int
    dollar: int
    alice: int
    bob: int
    external: int
    carol_in_dollars: int

    def account(self, account_id: int) -> AccountRecord:
        return ACCOUNTS.by_id(self.tx, account_id)

    def transfers(self) -> list[tuple[object, ...]]:
        columns = "debit_account_id, credit_account_id, amount, kind, hold_id, outgoing_payment_id"
        rows = self.tx.execute(f"SELECT {columns}, incoming_payment_id, created_at FROM transfer ORDER BY id")
        return rows.fetchall()


@pytest.fixture
def books() -> Iterator[Books]:
    with closing(connect_writer(":memory:")) as connection:
        yield open_books(connection)


def open_books(tx: sqlite3.Connection) -> Books:
    euro, dollar = ensure_asset(tx, "EUR", 2).id, ensure_asset(tx, "USD", 2).id
    work = work_at(tx, NOW)
    alice, bob = (ledger.open_account(work, "wallet", euro) for _ in range(2))
    carol = ledger.open_account(work, "wallet", dollar)
    tx.execute("INSERT INTO owner (id, created_at) VALUES (1, 1)")
    columns = "id, path, asset_id, account_id, owner_id, created_at, tag"
    tx.execute(f"INSERT INTO wallet_address ({columns}) VALUES (1, 'alice', ?, ?, 1, 1, 'a')", (euro, alice))
    client = ensure_client(tx, "client", "https://client.example", None, NOW).id
    incoming_payments.INCOMING.insert(tx, IncomingRecord(INCOMING, 1, client, None, 0, None, NOW, NOW + 1, None))
    elsewhere = "https://example.com/incoming-payments/1"
    terms = Terms(receiver=elsewhere, incoming_payment_id=None, debit=1, fee=0, receive=1, asset=Asset("EUR", 2))
    payments.OUTGOING.insert(tx, sending_payment(OUTGOING, 1, client, NOW, terms))
    return Books(tx, work, euro, dollar, alice, bob, ledger.operator_account(work, euro, "external"), carol)


def deposit(books: Books, amount: int, account: int | None = None) -> None:
    ledger.transfer(books.work, books.external, account or books.alice, amount, "deposit")


def hold(books: Books, amount: int) -> int:
    """Holds so much of what alice has; the hold's id."""
    return ledger.hold(books.work, books.alice, amount, outgoing_payment_id=OUTGOING).id


# Accounts


@pytest.mark.parametrize("kind", ["liquidity", "fees", "external"])
def test_operator_account_is_made_once_for_each_asset(books: Books, kind: str) -> None:
    first = ledger.operator_account(books.work, books.euro, kind)
    assert ledger.operator_account(books.work, books.euro, kind) == first
    other = ledger.operator_account(books.work, books.dollar, kind)
    assert other != first
    assert books.account(first).floor == (None if kind == "external" else 0)
    assert (books.account(first).kind, books.account(other).asset_id) == (kind, books.dollar)


def test_only_the_external_account_has_no_floor(books: Books) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        ledger.open_account(books.work, "wallet", books.euro, None)
    with pytest.raises(sqlite3.IntegrityError):
        ledger.open_account(books.work, "external", books.dollar, 0)


# Transfers


def test_transfer_moves_money_and_is_written_down(books: Books) -> None:
    deposit(books, 1000)
    ledger.transfer(
        work_at(books.tx, NOW + 1),
        books.alice,
        books.bob,
        300,
        "payment",
        outgoing_payment_id=OUTGOING,
        incoming_payment_id=INCOMING,
    )
    assert [books.account(n).balance for n in (books.external, books.alice, books.bob)] == [-1000, 700, 300]
    assert books.transfers() == [
        (books.external, books.alice, 1000, "deposit", None, None, None, NOW),
        (books.alice, books.bob, 300, "payment", None, OUTGOING, INCOMING, NOW + 1),
    ]


# Reservations


def test_reserve_promises_and_post_moves(books: Books) -> None:
    deposit(books, 1000)
    hold_id = hold(books, 600)
    assert books.account(books.alice).held == 600
    assert ledger.free_balance(books.account(books.alice)) == 400
    ledger.post(work_at(books.tx, NOW + 1), hold_id, books.bob, 250, "payment", incoming_payment_id=INCOMING)
    assert (books.account(books.alice).balance, books.account(books.alice).held) == (750, 350)
    assert HOLDS.by_id(books.tx, hold_id).remaining == 350
    ledger.post(work_at(books.tx, NOW + 2), hold_id, books.external, 350, "withdrawal")
    assert (books.account(books.alice).balance, books.account(books.alice).held) == (400, 0)
    assert books.account(books.bob).balance == 250
    assert books.transfers()[1:] == [
        (books.alice, books.bob, 250, "payment", hold_id, OUTGOING, INCOMING, NOW + 1),
        (books.alice, books.external, 350, "withdrawal", hold_id, OUTGOING, None, NOW + 2),
    ]


# What the database itself forbids, were the code above wrong


CHANGE = "UPDATE account SET balance = balance + ?, held = held + ? WHERE id = ?"


@pytest.mark.parametrize(
    ("balance_change", "held_change"), [(-101, 0), (0, 101), (-50, 51), (0, -1), (MAX_LEDGER, 0), (-60, -60)]
)
def test_database_refuses_figures_that_cannot_be(books: Books, balance_change: int, held_change: int) -> None:
    deposit(books, 100)
    with pytest.raises(sqlite3.IntegrityError):
        books.tx.execute(CHANGE, (balance_change, held_change, books.alice))
    hold_id = hold(books, 60)
    with pytest.raises(sqlite3.IntegrityError):
        accounts.reduce_hold(books.tx, hold_id, 61)


# Against a plain model


class Step(NamedTuple):
    """One operation: `source` is an account for transfers and holds, one of the holds for the others.

    The amount is that of `beyond`, where there is one, and as much as can be.
    """

    operation: str
    source: int
    target: int
    amount: int
    beyond: int | None


class Account:
    def __init__(self, asset: str, floor: int | None) -> None:
        self.asset = asset
        self.floor = floor
        self.balance = 0
        self.held = 0

    @property
    def free(self) -> int:
        return 4 * MAX_LEDGER if self.floor is None else self.balance - self.held - self.floor


class Model:
    """The ledger as plain numbers. Accounts and holds are numbered from 0."""

    def __init__(self) -> None:
        self.accounts = [
            *(Account("EUR", None), Account("EUR", 0), Account("EUR", 0)),
            *(Account("EUR", -500), Account("EUR", -MAX_LEDGER), Account("EUR", -MAX_LEDGER)),
            *(Account("USD", None), Account("USD", 0)),
        ]
        self.holds: list[tuple[Account, int]] = []  # whose, and how much remains

    def most(self, step: Step) -> int:
        """How much the step can move or hold."""
        source, remaining = self.holds[step.source] if step.operation == "post" else (self.accounts[step.source], 0)
        if step.operation == "hold":
            return min(source.free, MAX_LEDGER - source.held)
        can_move = min(MAX_LEDGER - self.accounts[step.target].balance, MAX_LEDGER + source.balance)
        return min(can_move, remaining if step.operation == "post" else source.free)

    def forbidding(self, step: Step) -> set[type[Exception]]:
        """Every reason against the step; none when it must succeed."""
        reasons: set[type[Exception]] = set()
        if step.operation != "void" and not 0 < step.amount <= MAX_LEDGER:
            reasons.add(DomainError)
        if step.operation == "hold":
            source = self.accounts[step.source]
            reasons |= set() if source.free >= step.amount else {NotEnough}
            reasons |= {DomainError} if source.held + step.amount > MAX_LEDGER else set()
        if step.operation == "transfer":
            source = self.accounts[step.source]
            reasons |= set() if source.free >= step.amount else {NotEnough}
            reasons |= self._against_move(source, self.accounts[step.target], step.amount)
        if step.operation == "post":
            source, remaining = self.holds[step.source]
            reasons |= {LedgerBroken} if remaining < step.amount else set()
            reasons |= self._against_move(source, self.accounts[step.target], step.amount)
        return reasons

    def _against_move(self, source: Account, target: Account, amount: int) -> set[type[Exception]]:
        reasons: set[type[Exception]] = set()
        if source is target or source.asset != target.asset:
            reasons.add(LedgerBroken)
        if target.balance + amount > MAX_LEDGER or source.balance - amount < -MAX_LEDGER:
            reasons.add(DomainError)
        return reasons

    def apply(self, step: Step) -> None:
        if step.operation == "hold":
            self.accounts[step.source].held += step.amount
            self.holds.append((self.accounts[step.source], step.amount))
        elif step.operation == "transfer":
            self.accounts[step.source].balance -= step.amount
            self.accounts[step.target].balance += step.amount
        else:
            source, remaining = self.holds[step.source]
            taken = step.amount if step.operation == "post" else remaining
            source.held -= taken
            self.holds[step.source] = (source, remaining - taken)
            if step.operation == "post":
                source.balance -= taken
                self.accounts[step.target].balance += taken


AMOUNTS = st.one_of(
    st.integers(1, 600),
    st.sampled_from([-1, 0, MAX_LEDGER - 300, MAX_LEDGER, MAX_LEDGER + 1, 2**80]),
    st.integers(MAX_LEDGER - 600, MAX_LEDGER),
)
STEPS = st.builds(
    Step,
    st.sampled_from(["transfer", "transfer", "hold", "post", "post", "void"]),
    st.integers(0, 7),
    st.integers(0, 7),
    AMOUNTS,
    st.sampled_from([None, None, 0, 1]),
)
# What is held, and an account that can take little more and one that can hold back little more.
OPENING = [
    *(Step("transfer", 0, 1, 1000, None), Step("hold", 1, 0, 600, None)),
    *(Step("transfer", 4, 2, MAX_LEDGER - 300, None), Step("transfer", 1, 5, 10, None), Step("hold", 5, 0, 1, None)),
    # One more than each of these can be: of what is free, of what a peer may owe, of what is held, and of one figure.
    *(Step("transfer", 1, 0, 0, 1), Step("hold", 1, 0, 0, 1), Step("transfer", 3, 1, 0, 1), Step("post", 0, 0, 0, 1)),
    *(Step("transfer", 0, 2, 0, 1), Step("transfer", 5, 2, 0, 1), Step("post", 0, 2, 0, 1), Step("hold", 5, 0, 0, 1)),
]


def take(work: Work, ids: Sequence[int], holds: list[int], step: Step) -> None:
    """Runs the step on the ledger, as a part of a unit that goes on when it is refused."""
    with savepoint(work):
        if step.operation == "transfer":
            ledger.transfer(work, ids[step.source], ids[step.target], step.amount, "payment")
        elif step.operation == "hold":
            holds.append(ledger.hold(work, ids[step.source], step.amount, outgoing_payment_id=OUTGOING).id)
        elif step.operation == "post":
            ledger.post(work, holds[step.source], ids[step.target], step.amount, "payment")
        else:
            ledger.void(work, holds[step.source])


def assert_agreement(tx: Transaction, ids: Sequence[int], holds: Sequence[int], model: Model) -> None:
    for account_id, account in zip(ids, model.accounts, strict=True):
        record = ACCOUNTS.by_id(tx, account_id)
        assert (record.balance, record.held, record.floor) == (account.balance, account.held, account.floor)
        assert record.floor is None or record.balance - record.held >= record.floor
        held = [remaining for holder, remaining in model.holds if holder is account]
        assert record.held == sum(held)
    for hold_id, (_, remaining) in zip(holds, model.holds, strict=True):
        assert HOLDS.by_id(tx, hold_id).remaining == remaining
    for asset in ("EUR", "USD"):
        assert sum(account.balance for account in model.accounts if account.asset == asset) == 0


@examples(50)
@given(st.lists(STEPS, min_size=10, max_size=40))
def test_any_sequence_agrees_with_a_plain_model(steps: list[Step]) -> None:
    with closing(connect_writer(":memory:")) as tx:
        tx.execute("BEGIN")
        books, model = open_books(tx), Model()
        ids = [
            *(books.external, books.alice, books.bob),
            *(ledger.open_account(books.work, "peer", books.euro, floor) for floor in (-500, -MAX_LEDGER, -MAX_LEDGER)),
            *(ledger.operator_account(books.work, books.dollar, "external"), books.carol_in_dollars),
        ]
        holds: list[int] = []
        for step in (*OPENING, *steps):
            if step.operation in ("post", "void"):
                step = step._replace(source=step.source % len(holds))
            elif step.operation == "hold" and model.accounts[step.source].floor is None:
                continue  # nobody reserves money of the world outside
            if step.beyond is not None and step.operation != "void":
                step = step._replace(amount=model.most(step) + step.beyond)
            forbidding = tuple(model.forbidding(step))
            if forbidding:
                with pytest.raises(forbidding) as caught:
                    take(books.work, ids, holds, step)
                if isinstance(caught.value, NotEnough):
                    assert caught.value.free == model.accounts[step.source].free
                if isinstance(caught.value, DomainError):
                    assert str(MAX_LEDGER) in str(caught.value)
            else:
                take(books.work, ids, holds, step)
                model.apply(step)
            assert_agreement(tx, ids, holds, model)
        assert_audited(tx)


def assert_audited(tx: Transaction) -> None:
    findings = {finding.name: finding.breaches for finding in invariant_checks.check(tx)}
    for name in ("zero_sum", "balances", "transfers", "held", "floors", "references", "file"):
        assert not findings[name]
