import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres import ledger
from payres.interledger import balances
from payres.operator import liquidity, wallets
from payres.operator.peers import NewPeer, add_peer
from payres.store import clients, outgoing
from payres.store.connections import connect_writer
from payres.store.database import Transaction
from payres.store.ledger_proofs import LEDGER_PROOFS, Proof, breaches, count, sums_to
from payres.store.outgoing import OutgoingRecord
from payres.store.packets import PacketRecord
from payres.store.peers import PeerRecord
from tests.works import work_at

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


@pytest.mark.parametrize("proof", LEDGER_PROOFS, ids=lambda proof: proof.name)
def test_proof_is_scans_and_lookups_by_index(proof: Proof) -> None:
    connection = connect_writer(":memory:")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {proof.breaches}")]
    connection.close()
    assert not [step for step in plan if "AUTOMATIC" in step]
    # A scan inside a loop would take the square of the rows: only the outermost table of each part is scanned.
    assert sum(step.startswith("SCAN") for step in plan) <= 1 + 2 * proof.breaches.count("UNION ALL")


def test_proof_names_are_distinct() -> None:
    assert len({proof.name for proof in LEDGER_PROOFS}) == len(LEDGER_PROOFS)


# Packets under way: of another peer's in one asset and across two, and of a payment of ours across two


@pytest.fixture
def tx() -> Iterator[Transaction]:
    connection = connect_writer(":memory:")
    near, far, euro = (
        a_peer(connection, name, code) for name, code in (("near", "USD"), ("far", "USD"), ("euro", "EUR"))
    )
    liquidity.deposit_liquidity(connection, "EUR", 2, "10.00", 0)
    wallet = wallets.create_wallet(connection, "alice", "USD", 2, None, None, 0)
    wallets.deposit(connection, "alice", "10.00", 0)
    client = clients.ensure_client(connection, "https://shop.example/x", "https://shop.example/x", None, 0)
    outgoing.insert_outgoing(connection, a_payment(wallet.id, client.id))
    ledger.reserve(connection, wallet.account_id, 510, "payment", 0)
    work = work_at(connection, 0)
    for packet, peer in (
        (a_packet("same", far, from_peer_id=near.id), far),
        (a_packet("across", euro, from_peer_id=near.id, amount=90), euro),
        (a_packet("own", euro, outgoing_payment_id="payment", source_amount=500, amount=450), euro),
        (a_packet("fulfilled", far, from_peer_id=near.id), far),
        (a_packet("rejected", euro, from_peer_id=near.id, amount=90), euro),
    ):
        balances.prepare(work, packet, peer, 0)
    balances.fulfil(work, "fulfilled", 0, 0)
    balances.reject(work, "rejected")
    yield connection
    connection.close()


def a_peer(tx: Transaction, name: str, code: str) -> PeerRecord:
    terms: dict[str, Any] = {"name": name, "ilp_address": f"test.{name}", "asset_code": code, "asset_scale": 2}
    terms |= {"outgoing_token": "out", "incoming_token": name}
    new = NewPeer(**terms, url="https://peer.example/", credit_limit=1000)
    return add_peer(tx, new, "test.here", 0)


def a_packet(identifier: str, to: PeerRecord, **changes: Any) -> PacketRecord:
    fields: dict[str, Any] = {"outgoing_payment_id": None, "from_peer_id": None, "from_request_id": None}
    fields |= {"source_amount": 100, "amount": 100, "prepare": b"prepare", "expires_at": 1, "state": "prepared"}
    return PacketRecord(id=identifier, to_peer_id=to.id, **(fields | changes))


def a_payment(wallet_id: int, client_id: int) -> OutgoingRecord:
    return OutgoingRecord(
        id="payment",
        wallet_address_id=wallet_id,
        client_id=client_id,
        grant_id=None,
        window_start=0,
        quote_id=None,
        receiver="https://other.example/incoming-payments/1",
        incoming_payment_id=None,
        debit=510,
        receive=450,
        receive_code="EUR",
        receive_scale=2,
        fee=10,
        sent=0,
        delivered=0,
        state="sending",
        failure=None,
        metadata=None,
        created_at=0,
        ended_at=None,
    )


def proof(name: str) -> Proof:
    return next(one for one in LEDGER_PROOFS if one.name == name)


def test_packets_under_way_are_proved(tx: Transaction) -> None:
    assert [found for one in LEDGER_PROOFS for found in breaches(one, tx)] == []
    assert count(proof("under_way"), tx) == 3
    assert count(proof("decided"), tx) == 5
    assert count(proof("promised"), tx) == 1


OF_PACKET = (
    "FROM reservation WHERE packet_id = '{}' AND account_id {} (SELECT account_id FROM peer WHERE name = 'near')"
)


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
        ("under_way", "packet same under way does not hold its 100", "DELETE " + OF_PACKET.format("same", "=")),
        (
            "under_way",
            "packet across under way does not hold its 100 and 90",
            "DELETE " + OF_PACKET.format("across", "="),
        ),
        (
            "under_way",
            "packet across under way does not hold its 100 and 90",
            "DELETE " + OF_PACKET.format("across", "<>"),
        ),
        ("under_way", "packet own under way does not hold its 500 and 450", "DELETE " + OF_PACKET.format("own", "<>")),
        (
            "under_way",
            "packet across ",
            "UPDATE reservation SET remaining = 89 WHERE packet_id = 'across' AND remaining = 90",
        ),
        ("under_way", "packet same ", "UPDATE packet SET source_amount = 101 WHERE id = 'same'"),
        ("promised", "payment has more in packets", "UPDATE packet SET source_amount = 501 WHERE id = 'own'"),
        ("promised", "payment has more in packets", "UPDATE reservation SET remaining = 509 WHERE remaining = 510"),
    ],
)
def test_broken_packet_is_found(tx: Transaction, name: str, breach: str, statement: str) -> None:
    assert tx.execute(statement).rowcount == 1
    (found,) = breaches(proof(name), tx)
    assert breach in found
