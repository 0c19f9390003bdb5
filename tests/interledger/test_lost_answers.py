"""Answers that are lost on the way: no payment spends more than it may, and each one ends.

LOSSY_SEEDS prolongs the series.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from payres.amounts import format_decimal
from payres.cli import main
from payres.clock import SECOND
from payres.store import packets
from payres.testing.instance import Instance
from payres.testing.peering import peer
from tests.interledger.lossy_link import lossy_link
from tests.interledger.network import (
    USD,
    Json,
    amount,
    bill,
    change,
    check_books,
    ended,
    hurried,
    network,
    peer_of,
    received,
    set_fee,
    wallet_money,
)

SEEDS = int(os.environ.get("LOSSY_SEEDS", "2"))
LOSS = 0.3
FUNDS = 100_000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Sequence[Instance]]:
    """Two peers, one of which sends packets of 100 at most."""
    with network(tmp_path, "a", "b") as pair:
        a, b = pair
        peer(a, b)
        change(b, "a", max_packet=100)
        yield pair


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("amounts", [{"debitAmount": amount(2000)}, {"receiveAmount": amount(2000)}, {}])
def test_payment_over_a_link_that_loses_answers_ends_within_its_debit_amount(
    amounts: dict[str, Json], seed: int, pair: Sequence[Instance]
) -> None:
    a, b = pair
    set_fee(a, "0.10", 50)
    receiver = bill(b, b.wallet("bob"), None if amounts else 2000)
    with lossy_link(f"{b.base_url}/ilp", seed, numbered=False) as link:
        change(a, "b", url=link.url)
        quoted = a.client.create_quote(a.wallet("alice"), receiver, **amounts)
        link.loss = LOSS
        # What is lost is only known to be when the packet has expired.
        hurried(a, packet_lifetime=SECOND, idle_timeout=SECOND // 2)
        created = a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"])
        a.wait_for(created)
    paid = ended(a, created)
    states = count_packets(a, paid.record.id)
    arrived = received(b, receiver).received
    assert link.fates["lost before"] + link.fates["lost after"] + link.fates["502 after"] > 0
    assert states["fulfilled"] + states["doubtful"] <= paid.record.terms.debit - paid.record.terms.fee
    assert paid.record.sent <= paid.record.terms.debit
    assert wallet_money(a, "alice") == (FUNDS - paid.record.sent, 0)
    # What arrived was sent, and no more is in doubt than what did not.
    assert states["fulfilled"] <= arrived <= states["fulfilled"] + states["doubtful"]
    assert peer_of(a, "b").balance == states["fulfilled"]  # without a fulfillment, a peer has no claim
    assert peer_of(b, "a").balance == -arrived
    for server in pair:
        server.check_ledger()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("amounts", [{"debitAmount": amount(2000)}, {}])
def test_payment_to_a_peer_that_repeats_its_answers_arrives_whole_in_spite_of_losses(
    amounts: dict[str, Json], seed: int, pair: Sequence[Instance]
) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"), None if amounts else 2000)
    with lossy_link(f"{b.base_url}/ilp", seed, numbered=True) as link:
        change(a, "b", url=link.url)
        quoted = a.client.create_quote(a.wallet("alice"), receiver, **amounts)
        link.loss = LOSS
        hurried(a, packet_lifetime=SECOND)
        created = a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"])
        a.wait_for(created)
    paid = ended(a, created)
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", 2000, 2000)
    assert received(b, receiver).received == 2000
    assert wallet_money(a, "alice") == (FUNDS - 2000, 0)
    assert count_packets(a, paid.record.id)["doubtful"] == 0
    check_books(*pair)


def test_operator_is_shown_what_is_in_doubt_with_a_peer_that_answers_nothing(pair: Sequence[Instance]) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"))
    assert in_doubt(a) == {"packets": 0, "amount": "0.00"}
    with lossy_link(f"{b.base_url}/ilp", seed=1, numbered=False) as link:
        change(a, "b", url=link.url)
        quoted = a.client.create_quote(a.wallet("alice"), receiver, debitAmount=amount(250))
        link.loss = 1.0
        hurried(a, packet_lifetime=2 * SECOND, idle_timeout=SECOND // 2)
        created = a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"])
        a.wait_for(created)
    paid = ended(a, created)
    doubtful = a.read(lambda tx: packets.packets_of_payment(tx, paid.record.id, "doubtful"))
    assert paid.record.sent == sum(packet.amount for packet in doubtful) > 0
    assert in_doubt(a) == {"packets": len(doubtful), "amount": format_decimal(paid.record.sent, USD)}
    assert peer_of(a, "b").balance == 0


def in_doubt(instance: Instance) -> Json:
    """What `payres peer show` says of packets to the peer that were never answered."""
    command = ["peer", "show", "test.b", "--json", "--database", instance.context.settings.database]
    shown: Json = json.loads(CliRunner().invoke(main, command).stdout)["inDoubt"]
    return shown


def count_packets(instance: Instance, payment_id: str) -> dict[str, int]:
    """What the packets of a payment carried, by what became of them; none may be under way."""

    def total(state: str) -> int:
        found = instance.read(lambda tx: packets.packets_of_payment(tx, payment_id, state))
        return sum(packet.source_amount for packet in found)

    sums = {state: total(state) for state in ("prepared", "fulfilled", "rejected", "doubtful")}
    assert sums["prepared"] == 0
    return sums
