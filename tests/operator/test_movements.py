from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from payres.core.payments import ledger
from payres.core.protocol.clock import MINUTE
from payres.core.protocol.errors import InsufficientFunds, NotFound, WrongState
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.audit import AUDIT
from payres.core.store.rows import AFTER_ALL, PageQuery
from payres.core.store.work import Work
from payres.operator import assets, movements, peers, wallets
from payres.operator.store.movements import MOVEMENTS, MovementRecord, page_of_movements
from payres.operator.upkeep import invariant_checks
from tests.instance import Instance
from tests.works import NOW, add_usd_peer, work_at

OVER = NOW + movements.UNDO_MINUTES * MINUTE
MAKE: dict[str, Callable[[Work], MovementRecord]] = {
    "wallet.deposit": lambda tx: wallets.deposit(tx, "alice", "5.00", "invoice-17"),
    "wallet.withdraw": lambda tx: wallets.withdraw(tx, "alice", "5.00", "invoice-17"),
    "liquidity.deposit": lambda tx: assets.deposit_liquidity(tx, "USD", 2, "5.00"),
    "liquidity.withdraw": lambda tx: assets.withdraw_liquidity(tx, "USD", 2, "5.00"),
    "fees.withdraw": lambda tx: assets.withdraw_fees(tx, "USD", 2, "5.00"),
    "peer.deposit": lambda tx: peers.deposit(tx, "bank", "5.00"),
    "peer.withdraw": lambda tx: peers.withdraw(tx, "bank", "5.00"),
}
OPPOSITE = {"deposit": "withdraw", "withdraw": "deposit"}


@pytest.fixture
def tx(tx: Work) -> Work:
    """Each account has ten dollars; the peer owes us nothing, and has a credit limit of ten."""
    wallet = wallets.create_wallet(tx, "alice", "USD", 2, None, None)
    wallets.deposit(tx, "alice", "20.00")
    assets.deposit_liquidity(tx, "USD", 2, "10.00")
    ledger.transfer(tx, wallet.account_id, ledger.operator_account(tx, wallet.asset_id, "fees"), 1000, "fee")
    add_usd_peer(tx, "bank", "10.00")
    return tx


def balance(tx: Work, first: MovementRecord) -> int:
    return ACCOUNTS.by_id(tx, first.account.id).balance


@pytest.mark.parametrize("action", MAKE)
def test_undo_makes_the_opposite_movement_and_keeps_the_first(tx: Work, action: str) -> None:
    first = MAKE[action](tx)
    before = balance(tx, first) - (500 if first.kind == "deposit" else -500)
    assert movements.undoable_until(tx, first) == OVER
    undone = movements.undo(tx, first.id)
    assert (undone.undoes, undone.amount, undone.reference) == (first.id, 500, None)
    assert balance(tx, first) == before
    assert MOVEMENTS.by_id(tx, first.id).undone_by == undone.id
    shown, _ = page_of_movements(tx, first.account.id, PageQuery(2))
    shown_as = {one.kind: movements.SETTLED[one.kind] if action.startswith("peer") else one.kind for one in shown}
    assert [movements.MOVEMENT.columns[1].cell(movements.movement(tx, one)).text for one in shown] == [
        f"{shown_as[undone.kind]}, undoes another",
        f"{shown_as[first.kind]}, undone",
    ]
    kind, _, verb = action.partition(".")
    entry = AUDIT.find(tx, "WHERE id < ? ORDER BY id DESC", AFTER_ALL)
    assert entry is not None
    assert (entry.action, entry.details) == (f"{kind}.{OPPOSITE[verb]}", {"amount": "5.00 USD", "undoes": first.id})
    assert invariant_checks.first_broken(invariant_checks.check(tx)) is None


def refused(tx: Work, first: MovementRecord, sentence: str) -> None:
    before = balance(tx, first)
    assert movements.undoable_until(tx, MOVEMENTS.by_id(tx, first.id)) is None
    with pytest.raises((WrongState, InsufficientFunds), match=sentence):
        movements.undo(tx, first.id)
    assert balance(tx, first) == before


def test_movement_is_undone_once_and_what_undoes_it_never(tx: Work) -> None:
    first = wallets.deposit(tx, "alice", "5.00")
    undone = movements.undo(tx, first.id)
    refused(tx, first, "This deposit was undone already")
    refused(tx, undone, "This withdrawal undoes another one")
    with pytest.raises(NotFound):
        movements.undo(tx, "0198c0de-0000-7000-8000-000000000000")


def test_of_two_simultaneous_undos_one_wins(shared: Instance) -> None:
    shared.create_wallet("undone", deposit="20.00")
    first = shared.write(lambda work: wallets.deposit(work, "undone", "5.00"))

    def undo(_: int) -> bool:
        try:
            return bool(shared.write(lambda work: movements.undo(work, first.id)))
        except WrongState:
            return False

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(undo, range(2))) == [False, True]
    assert shared.read(lambda work: balance(work, first)) == 2000


@pytest.mark.parametrize("action", MAKE)
def test_undo_ends_after_ten_minutes(tx: Work, action: str) -> None:
    first = MAKE[action](tx)
    assert movements.undoable_until(work_at(tx, OVER - 1), first) == OVER
    refused(work_at(tx, OVER), first, "can be undone for 10 minutes, which are over")


def test_undo_says_what_is_still_free(tx: Work) -> None:
    first = wallets.deposit(tx, "alice", "5.00")
    wallets.withdraw(tx, "alice", "12.00")
    refused(tx, first, r"The wallet alice has USD 3\.00 free, less than USD 5\.00")


def test_undo_puts_money_back_into_a_wallet_that_was_deactivated(tx: Work) -> None:
    first = wallets.withdraw(tx, "alice", "5.00")
    wallets.deactivate(tx, "alice")
    movements.undo(tx, first.id)
    assert balance(tx, first) == 1000


def test_settlement_with_a_removed_peer_stays(tx: Work) -> None:
    peers.deposit(tx, "bank", "5.00")
    first = peers.withdraw(tx, "bank", "5.00")
    peers.remove_peer(tx, "bank")
    refused(tx, first, "The peer bank was removed")


def test_reference_of_an_undone_deposit_is_not_taken_for_a_new_one(tx: Work) -> None:
    movements.undo(tx, wallets.deposit(tx, "alice", "5.00", "invoice-17").id)
    with pytest.raises(WrongState, match="that was undone"):
        wallets.deposit(tx, "alice", "5.00", "invoice-17")


AGAIN: dict[str, Callable[..., MovementRecord]] = {
    "wallet.deposit": lambda tx, **given: wallets.deposit(tx, "alice", "3.00", **given),
    "wallet.withdraw": lambda tx, **given: wallets.withdraw(tx, "alice", "3.00", **given),
    "liquidity.deposit": lambda tx, **given: assets.deposit_liquidity(tx, "USD", 2, "3.00", **given),
    "liquidity.withdraw": lambda tx, **given: assets.withdraw_liquidity(tx, "USD", 2, "3.00", **given),
    "fees.withdraw": lambda tx, **given: assets.withdraw_fees(tx, "USD", 2, "3.00", **given),
    "peer.deposit": lambda tx, **given: peers.deposit(tx, "bank", "3.00", **given),
    "peer.withdraw": lambda tx, **given: peers.withdraw(tx, "bank", "3.00", **given),
}


def by(tx: Work, actor: str, after: int = 0) -> Work:
    """A later unit of somebody, minutes after the first."""
    later = work_at(tx.execute("SELECT 1").connection, NOW + after * MINUTE)
    later.actor = actor
    return later


@contextmanager
def asked(tx: Work, about: str) -> Iterator[pytest.ExceptionInfo[movements.MadeBefore]]:
    """The unit is undone."""
    tx.execute("SAVEPOINT asked")
    with pytest.raises(movements.MadeBefore) as found:
        yield found
    tx.execute("ROLLBACK TO asked")
    assert about in str(found.value)


@pytest.mark.parametrize("action", MAKE)
def test_person_is_asked_before_the_same_is_made_twice_in_an_hour(tx: Work, action: str) -> None:
    assert AGAIN.keys() == MAKE.keys()
    make = AGAIN[action]
    first = make(by(tx, "page:ann"))
    for actor, again in (("page:ann", None), ("page:eva", None), ("shell:root", None), ("page:ann", "another")):
        with asked(tx, "It may have been made before: there is a ") as before:
            make(by(tx, actor, 59), again=again)
        assert before.value.first.id == first.id
    second = make(by(tx, "page:eva", 59), again=first.id)
    assert AUDIT.list(tx, "ORDER BY id DESC LIMIT 1")[0].details["again"] == first.id
    with asked(tx, "of USD 3.00") as before:
        make(by(tx, "page:ann", 60), again=first.id)
    assert before.value.first.id == second.id, "the newest is shown"


@pytest.mark.parametrize(
    ("actor", "after", "undone"),
    [("api:key", 1, False), ("server", 1, False), ("page:ann", 61, False), ("page:ann", 1, True)],
)
def test_nobody_is_asked_after_an_hour_or_an_undo_and_programs_never(
    tx: Work, actor: str, after: int, undone: bool
) -> None:
    first = wallets.deposit(by(tx, "page:ann"), "alice", "5.00")
    if undone:
        movements.undo(by(tx, "page:ann"), first.id)
    assert wallets.deposit(by(tx, actor, after), "alice", "5.00").id != first.id
    assert wallets.deposit(by(tx, "page:eva", after), "alice", "5.01").amount == 501


def test_reference_of_another_wallet_is_asked_for_however_old(tx: Work) -> None:
    wallets.create_wallet(tx, "bob", "USD", 2, None, None)
    first = wallets.deposit(by(tx, "page:ann"), "bob", "5.00", "transfer 4711")
    month = 30 * 24 * 60
    with asked(tx, "The reference 'transfer 4711' is that of a deposit of USD 5.00 of the wallet bob"):
        wallets.deposit(by(tx, "shell:root", month), "alice", "7.00", "transfer 4711")
    assert wallets.deposit(by(tx, "shell:root", month), "alice", "7.00", "transfer 4711", first.id).amount == 700
    assert wallets.withdraw(by(tx, "shell:root", month), "bob", "4.00", "transfer 4711 out").amount == 400


def test_same_reference_is_the_same_for_programs_and_commands_and_numbered_on_a_page(tx: Work) -> None:
    first = wallets.deposit(by(tx, "page:ann"), "alice", "5.00", "invoice-17")
    for actor in ("api:key", "shell:root"):
        assert wallets.deposit(by(tx, actor), "alice", "5.00", "invoice-17").id == first.id
    for number in (2, 3):
        with asked(tx, "deposit of USD 5.00") as before:
            wallets.deposit(by(tx, "page:eva"), "alice", "5.00", "invoice-17")
        made = wallets.deposit(by(tx, "page:eva"), "alice", "5.00", "invoice-17", before.value.first.id)
        assert made.reference == f"invoice-17 ({number})"


@pytest.mark.parametrize("actor", ["shell:root", "page:eva"])
def test_reference_that_no_other_has_is_another_movement(tx: Work, actor: str) -> None:
    first = wallets.deposit(by(tx, "page:ann"), "alice", "5.00", "invoice-17")
    second = wallets.deposit(by(tx, actor), "alice", "5.00", "invoice-18", first.id)
    assert second.id != first.id
    assert "again" not in AUDIT.list(tx, "ORDER BY id DESC LIMIT 1")[0].details, "nothing is repeated"
    with asked(tx, "It may have been made before") as before:
        wallets.deposit(by(tx, actor), "alice", "5.00", "page 7")
    assert before.value.first.id == second.id
    with asked(tx, "The reference 'invoice-17'") as before:
        wallets.deposit(by(tx, "page:eva"), "alice", "5.00", "invoice-17", second.id)
    assert before.value.first.id == first.id, "the one with the reference, not the newest"
