import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres import ledger
from payres.amounts import Asset
from payres.interledger import balances
from payres.operator import assets, wallets
from payres.operator.invariant_checks import check_ledger
from payres.operator.peer_terms import NewPeer, PeerChange
from payres.operator.peers import add_peer, change_peer
from payres.store import clients
from payres.store.connections import connect_writer
from payres.store.invariants import LEDGER_INVARIANTS, Invariant, breaches, examined, sums_to
from payres.store.packets import PacketRecord
from payres.store.payments import OUTGOING, OutgoingRecord
from payres.store.peers import PeerRecord
from payres.store.work import Transaction, Work
from payres.terms import Terms
from tests.works import sending_payment, work_at

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
def test_check_is_scans_and_lookups_by_index(one: Invariant) -> None:
    with closing(connect_writer(":memory:")) as connection:
        plan = plan_of(connection, one.sql)
    assert not [step for step in plan if "AUTOMATIC" in step]
    # A scan inside a loop would take the square of the rows: only the outermost table of each part is scanned.
    assert sum(step.startswith("SCAN") for step in plan) <= 1 + 2 * one.sql.count("UNION ALL")


@pytest.mark.parametrize("one", [one for one in LEDGER_INVARIANTS if one.keys], ids=lambda one: one.name)
def test_batch_costs_no_more_when_the_tables_grow(one: Invariant) -> None:
    with closing(connect_writer(":memory:")) as connection:
        plan = plan_of(connection, one.sql)
    assert plan
    assert [step for step in plan if step.startswith("SCAN ") and "subquery" not in step] == []


@pytest.mark.parametrize("one", [one for one in LEDGER_INVARIANTS if not one.keys], ids=lambda one: one.name)
def test_check_without_batches_does_not_read_the_tables_that_grow_with_each_payment(one: Invariant) -> None:
    """What is in flight has indexes of its own; accounts are as many as there are wallets."""
    with closing(connect_writer(":memory:")) as connection:
        plan = plan_of(connection, one.sql)
    scans = {step for step in plan if step.startswith("SCAN ") and "subquery" not in step and "SCAN a" not in step}
    assert all(step.endswith(("_open", "_sending", "_prepared")) for step in scans)


def plan_of(connection: sqlite3.Connection, query: str) -> list[str]:
    explained = connection.execute(f"EXPLAIN QUERY PLAN {query}", {"first": 1, "last": 2}) if query else []
    return [row[3] for row in explained]


# Packets in flight: of another peer's in one asset and across two, and of a payment of ours across two


@pytest.fixture
def tx(tx: Work) -> Transaction:
    near, far, euro = (a_peer(tx, name, code) for name, code in (("near", "USD"), ("far", "USD"), ("euro", "EUR")))
    assets.deposit_liquidity(tx, "EUR", 2, "10.00")
    wallet = wallets.create_wallet(tx, "alice", "USD", 2, None, None)
    wallets.deposit(tx, "alice", "10.00")
    client = clients.ensure_client(tx, "https://shop.example/x", "https://shop.example/x", None, 0)
    OUTGOING.insert(tx, a_payment(wallet.id, client.id))
    ledger.hold(tx, wallet.account_id, 510, outgoing_payment_id="payment")
    for packet, peer in (
        (a_packet("same", far, from_peer_id=near.id), far),
        (a_packet("across", euro, from_peer_id=near.id, amount=90), euro),
        (a_packet("own", euro, outgoing_payment_id="payment", source_amount=500, amount=450), euro),
        (a_packet("fulfilled", far, from_peer_id=near.id), far),
        (a_packet("rejected", euro, from_peer_id=near.id, amount=90), euro),
    ):
        balances.prepare(tx, packet, peer)
    balances.fulfil(tx, "fulfilled", 0)
    balances.reject(tx, "rejected")
    return tx


def a_peer(work: Work, name: str, code: str) -> PeerRecord:
    terms: dict[str, Any] = {"name": name, "ilp_address": f"test.{name}", "asset_code": code, "asset_scale": 2}
    terms |= {"outgoing_token": "out", "incoming_token": name}
    new = NewPeer(**terms, url="https://peer.example/", credit_limit="10.00")
    return add_peer(work, new)


def a_packet(identifier: str, to: PeerRecord, **changes: Any) -> PacketRecord:
    fields: dict[str, Any] = {"outgoing_payment_id": None, "from_peer_id": None, "from_request_id": None}
    fields |= {"source_amount": 100, "amount": 100, "prepare": b"prepare", "expires_at": 1, "state": "prepared"}
    return PacketRecord(id=identifier, to_peer_id=to.id, **(fields | changes))


def a_payment(wallet_id: int, client_id: int) -> OutgoingRecord:
    return sending_payment(
        "payment",
        wallet_id,
        client_id,
        0,
        terms=Terms(
            receiver="https://other.example/incoming-payments/1",
            incoming_payment_id=None,
            debit=510,
            fee=10,
            receive=450,
            asset=Asset("EUR", 2),
        ),
    )


def named(name: str) -> Invariant:
    return next(one for one in LEDGER_INVARIANTS if one.name == name)


def test_packets_in_flight_are_checked(tx: Transaction) -> None:
    assert [finding for finding in check_ledger(tx) if not finding.holds] == []
    assert examined(tx, named("under_way")) == 3
    assert examined(tx, named("decided")) == 5
    assert examined(tx, named("promised")) == 1


OF_PACKET = "FROM hold WHERE packet_id = '{}' AND account_id {} (SELECT account_id FROM peer WHERE name = 'near')"


@pytest.mark.parametrize(
    ("name", "breach", "statement"),
    [
        (
            "decided",
            "for the rejected packet same",
            "UPDATE packet SET state = 'rejected', prepare = NULL WHERE id = 'same'",
        ),
        (
            "decided",
            "for the doubtful packet own",
            "UPDATE packet SET state = 'doubtful', prepare = NULL WHERE id = 'own'",
        ),
        ("under_way", "packet same in flight does not hold its 100", "DELETE " + OF_PACKET.format("same", "=")),
        (
            "under_way",
            "packet across in flight does not hold its 100 and 90",
            "DELETE " + OF_PACKET.format("across", "="),
        ),
        (
            "under_way",
            "packet across in flight does not hold its 100 and 90",
            "DELETE " + OF_PACKET.format("across", "<>"),
        ),
        ("under_way", "packet own in flight does not hold its 500 and 450", "DELETE " + OF_PACKET.format("own", "<>")),
        (
            "under_way",
            "packet across ",
            "UPDATE hold SET remaining = 89 WHERE packet_id = 'across' AND remaining = 90",
        ),
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
        ("floors", "(peer) has a balance of", ["UPDATE account SET floor = -10000 WHERE kind = 'peer'"]),
        (
            "floors",
            "(peer) has a balance of",
            ["UPDATE account SET floor = 100 WHERE kind = 'peer' AND balance >= 100"],
        ),
        ("accounts", "(wallet) is that of peer near", ["UPDATE account SET kind = 'wallet' WHERE kind = 'peer'"]),
        (
            "accounts",
            "(liquidity) is that of peer far",
            ["UPDATE peer SET account_id = (SELECT id FROM account WHERE kind = 'liquidity') WHERE name = 'far'"],
        ),
        (
            "sides",
            "(payment) went from account 1 (peer) to account 2 (peer)",
            [
                "UPDATE peer SET account_id = -account_id WHERE name IN ('far', 'euro')",
                "UPDATE peer SET account_id = iif(name = 'far', 3, 2) WHERE account_id < 0",
            ],
        ),
        (
            "sides",
            "(payment) went from account 1 (peer) to account 2 (peer)",
            [
                "UPDATE peer SET account_id = -account_id WHERE name IN ('near', 'euro')",
                "UPDATE peer SET account_id = iif(name = 'near', 3, 1) WHERE account_id < 0",
            ],
        ),
    ],
)
def test_account_of_a_peer_that_was_changed_is_found(
    tx: Transaction, name: str, breach: str, statements: Sequence[str]
) -> None:
    tx.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        assert tx.execute(statement).rowcount > 0
    assert breach in " ".join(breaches(tx, named(name), 1, 1000))


def test_credit_limit_that_is_set_again_is_right(tx: Transaction) -> None:
    tx.execute("UPDATE account SET floor = -10000 WHERE kind = 'peer'")
    for name in ("near", "far", "euro"):
        assert breaches(tx, named("floors"))
        change_peer(work_at(tx, 0), name, PeerChange(credit_limit="100.00"))
    assert not breaches(tx, named("floors"))
