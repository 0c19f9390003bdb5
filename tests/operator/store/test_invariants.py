import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.payments import ledger
from payres.core.protocol.amounts import Asset, Terms
from payres.core.store import clients
from payres.core.store.connections import connect_writer
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.work import Transaction, Work
from payres.interledger import clearing
from payres.interledger.store.packets import PacketRecord
from payres.interledger.store.peers import PeerRecord
from payres.operator import assets, wallets
from payres.operator.peers import change_peer
from payres.operator.store.invariants import LEDGER_INVARIANTS, Invariant, breaches, examined, sums_to
from payres.operator.upkeep import invariant_checks
from tests.works import add_usd_peer, sending_payment, work_at

FIGURES = st.integers(min_value=-(2**63), max_value=2**63 - 1)
LARGE = st.integers(min_value=2**63 - 9, max_value=2**63 - 1)


@given(st.lists(st.one_of(FIGURES, LARGE, LARGE.map(lambda n: -n)), max_size=8), st.integers(-1, 1))
def test_sums_to_is_exact_where_sum_overflows(figures: list[int], error: int) -> None:
    wanted = sum(figures) + error
    if not -(2**63) <= wanted <= 2**63 - 1:
        wanted = 0
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE figures (n INTEGER)")
    connection.executemany("INSERT INTO figures VALUES (?)", [(n,) for n in figures])
    answer = connection.execute(f"SELECT {sums_to('n', ':wanted')} FROM figures", {"wanted": wanted}).fetchone()
    connection.close()
    assert bool(answer[0]) == (sum(figures) == wanted)


@pytest.mark.parametrize("one", LEDGER_INVARIANTS, ids=lambda one: one.name)
def test_check_is_scans_and_lookups_by_index_and_a_batch_costs_no_more_when_the_tables_grow(one: Invariant) -> None:
    with closing(connect_writer(":memory:")) as connection:
        explained = connection.execute(f"EXPLAIN QUERY PLAN {one.sql}", {"first": 1, "last": 2})
        plan = [row[3] for row in explained]
    assert plan
    assert not [step for step in plan if "AUTOMATIC" in step]
    # A scan inside a loop would take the square of the rows: only the outermost table of each part is scanned.
    assert sum(step.startswith("SCAN") for step in plan) <= 1 + 2 * one.sql.count("UNION ALL")
    scans = [step for step in plan if step.startswith("SCAN ") and "subquery" not in step]
    if one.keys:
        assert scans == []
    else:  # What is in flight has indexes of its own; accounts are as many as there are wallets.
        assert all(step.endswith(("_open", "_sending", "_prepared")) or "SCAN a" in step for step in scans)


# Packets in flight: of another peer's in one asset and across two, and of a payment of ours across two


@pytest.fixture
def tx(tx: Work) -> Transaction:
    near, far = (add_usd_peer(tx, name, "10.00", incoming_token=name) for name in ("near", "far"))
    euro = add_usd_peer(tx, "euro", "10.00", asset_code="EUR", incoming_token="euro")
    assets.deposit_liquidity(tx, "EUR", 2, "10.00")
    wallet = wallets.create_wallet(tx, "alice", "USD", 2, None, None)
    wallets.deposit(tx, "alice", "10.00")
    client = clients.ensure_client(tx, "https://shop.example/x", "https://shop.example/x", None, 0)
    receiver = "https://other.example/incoming-payments/1"
    terms = Terms(receiver=receiver, incoming_payment_id=None, debit=510, fee=10, receive=450, asset=Asset("EUR", 2))
    OUTGOING.insert(tx, sending_payment("payment", wallet.id, client.id, 0, terms=terms))
    ledger.hold(tx, wallet.account_id, 510, outgoing_payment_id="payment")
    for packet, peer in (
        (a_packet("same", far, from_peer_id=near.id), far),
        (a_packet("across", euro, from_peer_id=near.id, amount=90), euro),
        (a_packet("own", euro, outgoing_payment_id="payment", source_amount=500, amount=450), euro),
        (a_packet("fulfilled", far, from_peer_id=near.id), far),
        (a_packet("rejected", euro, from_peer_id=near.id, amount=90), euro),
    ):
        clearing.prepare(tx, packet, peer)
    clearing.fulfil(tx, "fulfilled", 0)
    clearing.reject(tx, "rejected")
    return tx


def a_packet(identifier: str, to: PeerRecord, **changes: Any) -> PacketRecord:
    fields: dict[str, Any] = {"outgoing_payment_id": None, "from_peer_id": None, "from_request_id": None}
    fields |= {"source_amount": 100, "amount": 100, "prepare": b"prepare", "expires_at": 1, "state": "prepared"}
    return PacketRecord(id=identifier, to_peer_id=to.id, **(fields | changes))


def named(name: str) -> Invariant:
    return next(one for one in LEDGER_INVARIANTS if one.name == name)


def test_packets_in_flight_are_checked(tx: Transaction) -> None:
    assert [finding for finding in invariant_checks.check(tx, only_ledger=True) if not finding.holds] == []
    assert examined(tx, named("under_way")) == 3
    assert examined(tx, named("decided")) == 5
    assert examined(tx, named("promised")) == 1


DELETE = "DELETE FROM hold WHERE packet_id = '{}' AND account_id {} (SELECT account_id FROM peer WHERE name = 'near')"
END = "UPDATE packet SET state = '{}', prepare = NULL WHERE id = '{}'"


@pytest.mark.parametrize(
    ("name", "breach", "statement"),
    [
        ("decided", "for the rejected packet same", END.format("rejected", "same")),
        ("decided", "for the doubtful packet own", END.format("doubtful", "own")),
        ("under_way", "packet same in flight does not hold its 100", DELETE.format("same", "=")),
        ("under_way", "packet across in flight does not hold its 100 and 90", DELETE.format("across", "=")),
        ("under_way", "packet across in flight does not hold its 100 and 90", DELETE.format("across", "<>")),
        ("under_way", "packet own in flight does not hold its 500 and 450", DELETE.format("own", "<>")),
        ("under_way", "packet across ", "UPDATE hold SET remaining = 89 WHERE packet_id = 'across' AND remaining = 90"),
        ("under_way", "packet same ", "UPDATE packet SET source_amount = 101 WHERE id = 'same'"),
        ("promised", "payment has more in packets", "UPDATE packet SET source_amount = 501 WHERE id = 'own'"),
        ("promised", "payment has more in packets", "UPDATE hold SET remaining = 509 WHERE remaining = 510"),
    ],
)
def test_broken_packet_is_found(tx: Transaction, name: str, breach: str, statement: str) -> None:
    assert tx.execute(statement).rowcount == 1
    (found,) = breaches(tx, named(name))
    assert breach in found


@pytest.mark.parametrize(
    ("name", "breach", "statements"),
    [
        ("floors", "(peer) has a balance of", "UPDATE account SET floor = -10000 WHERE kind = 'peer'"),
        ("floors", "(peer) has a balance of", "UPDATE account SET floor = 100 WHERE kind = 'peer' AND balance >= 100"),
        ("accounts", "(wallet) is that of peer near", "UPDATE account SET kind = 'wallet' WHERE kind = 'peer'"),
        (
            "accounts",
            "(liquidity) is that of peer far",
            "UPDATE peer SET account_id = (SELECT id FROM account WHERE kind = 'liquidity') WHERE name = 'far'",
        ),
        (
            "sides",
            "(payment) went from account 1 (peer) to account 2 (peer)",
            "UPDATE peer SET account_id = -account_id WHERE name IN ('far', 'euro');"
            "UPDATE peer SET account_id = iif(name = 'far', 3, 2) WHERE account_id < 0",
        ),
        (
            "sides",
            "(payment) went from account 1 (peer) to account 2 (peer)",
            "UPDATE peer SET account_id = -account_id WHERE name IN ('near', 'euro');"
            "UPDATE peer SET account_id = iif(name = 'near', 3, 1) WHERE account_id < 0",
        ),
    ],
)
def test_account_of_a_peer_that_was_changed_is_found(tx: Transaction, name: str, breach: str, statements: str) -> None:
    tx.execute("PRAGMA foreign_keys = OFF")
    for statement in statements.split(";"):
        assert tx.execute(statement).rowcount > 0
    assert breach in " ".join(breaches(tx, named(name), 1, 1000))


def test_credit_limit_that_is_set_again_is_right(tx: Transaction) -> None:
    tx.execute("UPDATE account SET floor = -10000 WHERE kind = 'peer'")
    for name in ("near", "far", "euro"):
        assert breaches(tx, named("floors"))
        change_peer(work_at(tx, 0), name, credit_limit="100.00")
    assert not breaches(tx, named("floors"))
