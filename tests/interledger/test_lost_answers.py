"""Answers that are lost on the way: no payment spends more than it may, and each one ends.

LOSSY_SEEDS prolongs the series.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from payres.store import packets
from payres.testing.instance import Instance
from payres.testing.peering import peer
from tests.interledger.lossy_link import LOSSES, lossy_link
from tests.interledger.network import (
    Json,
    Waits,
    amount,
    bill,
    change,
    check_books,
    network,
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
def test_payment_over_a_link_that_loses_answers_for_good_takes_what_arrives(
    amounts: dict[str, Json], seed: int, pair: Sequence[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    a, b = pair
    set_fee(a, "0.10", 50)
    receiver = bill(b, b.wallet("bob"), None if amounts else 2000)
    with lossy_link(f"{b.base_url}/ilp", seed, numbered=False) as link:
        change(a, "b", url=link.url)
        quoted = a.client.create_quote(a.wallet("alice"), receiver, **amounts)
        link.loss = LOSS
        paid = waits.end(pair, a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"]))
    states = count_packets(a, paid.record.id)
    arrived = received(b, receiver).received
    assert sum(link.fates[loss] for loss in LOSSES) > 0
    assert (paid.record.state, paid.record.delivered) == ("completed", arrived)
    assert states == {"prepared": 0, "doubtful": 0, "fulfilled": arrived, "rejected": states["rejected"]}
    assert arrived >= paid.record.terms.receive
    assert paid.record.sent == arrived + paid.record.terms.fee
    assert wallet_money(a, "alice") == (FUNDS - paid.record.sent, 0)
    check_books(*pair)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("amounts", [{"debitAmount": amount(2000)}, {}])
def test_payment_to_a_peer_that_repeats_its_answers_arrives_whole_in_spite_of_losses(
    amounts: dict[str, Json], seed: int, pair: Sequence[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    a, b = pair
    receiver = bill(b, b.wallet("bob"), None if amounts else 2000)
    with lossy_link(f"{b.base_url}/ilp", seed, numbered=True) as link:
        change(a, "b", url=link.url)
        quoted = a.client.create_quote(a.wallet("alice"), receiver, **amounts)
        link.loss = LOSS
        paid = waits.end(pair, a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"]))
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", 2000, 2000)
    assert received(b, receiver).received == 2000
    assert wallet_money(a, "alice") == (FUNDS - 2000, 0)
    assert count_packets(a, paid.record.id)["doubtful"] == 0
    check_books(*pair)


def count_packets(instance: Instance, payment_id: str) -> dict[str, int]:
    """What the packets of a payment carried, by what became of them; none may be under way."""

    def total(state: packets.State) -> int:
        found = instance.read(lambda tx: packets.packets_of_payment(tx, payment_id, state))
        return sum(packet.source_amount for packet in found)

    sums = {state: total(state) for state in ("prepared", "fulfilled", "rejected", "doubtful")}
    assert sums["prepared"] == 0
    return sums
