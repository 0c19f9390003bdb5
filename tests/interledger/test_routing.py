"""Where packets go next: addresses and what lies below them, routes, and amounts in another asset."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.amounts import MAX_LEDGER, MAX_VALUE, Asset
from payres.core.store.connections import connect_writer
from payres.core.store.work import Transaction, Work
from payres.interledger.packets import Code, PacketRejected
from payres.interledger.routing import converted, covers, next_peer
from payres.interledger.store import peers
from payres.operator.assets import set_rate
from tests.works import add_usd_peer, work_at

OWN = "test.here"
USD = Asset("USD", 2)


def made(tx: Work, routes: Mapping[str, list[str]], assets: Mapping[str, str] | None = None) -> dict[str, int]:
    """Peers with these prefixes, by name."""
    ids = {}
    for name, prefixes in routes.items():
        terms = {"ilp_address": f"private.{name}", "incoming_token": name}
        ids[name] = add_usd_peer(tx, name, asset_code=(assets or {}).get(name, "USD"), **terms).id
        for prefix in prefixes:
            peers.add_route(tx, ids[name], prefix)
    return ids


ROUTES = {"any": ["test"], "bank": ["test.bank"], "branch": ["test.bank.east", "g.x"], "below": ["test.here.below"]}


@pytest.mark.parametrize(
    ("destination", "inbound", "wanted"),
    [
        ("test.bank.east.alice", None, "branch"),
        ("test.bank.east", None, "branch"),
        ("test.bank.eastern", None, "bank"),
        ("test.bank.west.alice", None, "bank"),
        ("test.banker", None, "any"),
        ("test.else", None, "any"),
        ("TEST.bank", None, None),
        ("test.Bank", None, "any"),
        ("g.x.y", None, "branch"),
        ("g.y", None, None),
        ("g", None, None),
        ("test.bank.east.alice", "branch", "bank"),
        ("test.bank.east.alice", "bank", "branch"),
        ("test.else", "any", None),
        ("test.here", None, None),
        ("test.here.token", None, None),
        ("test.heres", None, "any"),
        ("test.here.below.x", None, "below"),
        ("test.here.below.x", "below", None),
        ("private.bank.x", None, "bank"),
    ],
)
def test_longest_prefix_of_another_peer_wins_and_our_own_stays(
    tx: Work, destination: str, inbound: str | None, wanted: str | None
) -> None:
    ids = made(tx, ROUTES)
    found = next_peer(tx, destination, OWN, USD, ids[inbound] if inbound else None)
    assert (found.name if found else None) == wanted


def test_among_equals_the_payers_asset_goes_first_and_then_the_oldest(tx: Work) -> None:
    same = ["test.far"]
    made(tx, {"one": same, "two": same, "three": same}, {"one": "EUR", "two": "USD", "three": "USD"})
    two, one = peers.find_peer(tx, "two"), peers.find_peer(tx, "one")
    assert two is not None
    assert one is not None
    assert next_peer(tx, "test.far.x", OWN, USD) == two
    assert next_peer(tx, "test.far.x", OWN, Asset("EUR", 2)) == one
    assert next_peer(tx, "test.far.x", OWN, Asset("CHF", 2)) == one


def test_removed_peer_is_no_way(tx: Work) -> None:
    ids = made(tx, ROUTES)
    peers.PEERS.update(tx, ids["branch"], removed_at=1)
    found = next_peer(tx, "test.bank.east.alice", OWN, Asset("CHF", 2))
    assert found is not None
    assert found.name == "bank"


def test_longest_address_has_all_its_prefixes_asked_for(tx: Work) -> None:
    made(tx, {"far": ["test.a"]})
    found = next_peer(tx, "test" + ".a" * 509, OWN, Asset("CHF", 2))
    assert found is not None


SCHEMES = ["g", "private", "example", "peer", "self", "test", "test1", "test2", "test3", "local"]
segments = st.text("abzAZ09_~-", min_size=1, max_size=4)
addresses = st.builds(
    lambda scheme, rest: ".".join([scheme, *rest]), st.sampled_from(SCHEMES), st.lists(segments, min_size=1, max_size=4)
)


@given(addresses, addresses)
def test_prefix_covers_as_its_segments_begin_the_address(prefix: str, address: str) -> None:
    parts = prefix.split(".")
    assert covers(prefix, address) == (address.split(".")[: len(parts)] == parts)


SCALES = st.integers(0, 18)


@pytest.fixture(scope="module")
def rates() -> Iterator[Work]:
    connection = connect_writer(":memory:")
    work = work_at(connection, 0)
    set_rate(work, "USD", "EUR", "0.937")
    yield work
    connection.close()


@given(amount=st.integers(1, MAX_VALUE), source=SCALES, target=SCALES, back=st.booleans())
def test_conversion_rounds_down_or_says_why_not(rates: Work, amount: int, source: int, target: int, back: bool) -> None:
    here, there = Asset("USD", source), Asset("EUR", target)
    unit_rate = Fraction(937, 1000) * Fraction(10) ** (target - source)
    if back:
        here, there, unit_rate = (
            Asset("EUR", source),
            Asset("USD", target),
            Fraction(10) ** (target - source) * Fraction(1000, 937),
        )
    exact = amount * unit_rate
    result = outcome(rates, amount, here, there)
    if isinstance(result, int):
        assert result <= exact < result + 1
        assert 1 <= result <= MAX_LEDGER
    elif result.code == Code.INSUFFICIENT_SOURCE_AMOUNT:
        assert exact < 1
    else:
        assert result.code == Code.AMOUNT_TOO_LARGE
        assert exact >= MAX_LEDGER + 1
        told = result.reject("test").too_large
        assert told is not None
        assert told[0] == amount
        assert told[1] * unit_rate <= MAX_LEDGER < (told[1] + 1) * unit_rate


def outcome(rates: Transaction, amount: int, here: Asset, there: Asset) -> int | PacketRejected:
    try:
        return converted(work_at(rates, 0), amount, here, there)
    except PacketRejected as rejected:
        return rejected


@given(st.integers(0, MAX_VALUE))
def test_one_asset_is_not_converted(rates: Transaction, amount: int) -> None:
    assert converted(work_at(rates, 0), amount, Asset("XYZ", 3), Asset("XYZ", 3)) == amount
