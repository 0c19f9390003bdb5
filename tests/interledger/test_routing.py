from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.interledger.addresses import covers
from payres.interledger.routing import next_peer, prefixes_of
from payres.operator.peers import NewPeer, add_peer
from payres.store import peers
from payres.store.connections import connect_writer
from payres.store.work import Work
from tests.works import work_at

OWN = "test.node"
SEGMENTS = st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=5)


@pytest.fixture
def tx() -> Iterator[Work]:
    connection = connect_writer(":memory:")
    yield work_at(connection, 0)
    connection.close()


def made(tx: Work, routes: Mapping[str, list[str]], assets: Mapping[str, str] | None = None) -> dict[str, int]:
    """Peers with these prefixes, by name."""
    ids = {}
    for name, prefixes in routes.items():
        new = NewPeer(
            name=name,
            ilp_address=f"private.{name}",
            asset_code=(assets or {}).get(name, "USD"),
            asset_scale=2,
            url="https://peer.example/",
            outgoing_token="out",
            incoming_token=name,
        )
        ids[name] = add_peer(tx, new, OWN, 0).id
        for prefix in prefixes:
            peers.add_route(tx, ids[name], prefix)
    return ids


ROUTES = {"any": ["test"], "bank": ["test.bank"], "branch": ["test.bank.east", "g.x"], "below": ["test.node.below"]}


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
        ("test.node", None, None),
        ("test.node.token", None, None),
        ("test.nodes", None, "any"),
        ("test.node.below.x", None, "below"),
        ("test.node.below.x", "below", None),
        ("private.bank.x", None, "bank"),
    ],
)
def test_longest_prefix_of_another_peer_wins_and_our_own_stays(
    tx: Work, destination: str, inbound: str | None, wanted: str | None
) -> None:
    ids = made(tx, ROUTES)
    found = next_peer(tx, destination, OWN, 0, ids[inbound] if inbound else None)
    assert (found.name if found else None) == wanted


def test_among_equals_the_payers_asset_goes_first_and_then_the_oldest(tx: Work) -> None:
    same = ["test.far"]
    made(tx, {"one": same, "two": same, "three": same}, {"one": "EUR", "two": "USD", "three": "USD"})
    two, one = peers.find_peer(tx, "two"), peers.find_peer(tx, "one")
    assert two is not None
    assert one is not None
    assert next_peer(tx, "test.far.x", OWN, two.asset_id) == two
    assert next_peer(tx, "test.far.x", OWN, one.asset_id) == one
    assert next_peer(tx, "test.far.x", OWN, 0) == one


def test_removed_peer_is_no_way(tx: Work) -> None:
    ids = made(tx, ROUTES)
    peers.remove_peer(tx, ids["branch"], 1)
    found = next_peer(tx, "test.bank.east.alice", OWN, 0)
    assert found is not None
    assert found.name == "bank"


@given(SEGMENTS, SEGMENTS)
def test_prefixes_are_those_that_cover_the_address(address: list[str], other: list[str]) -> None:
    found = prefixes_of(".".join(address))
    assert all(covers(prefix, ".".join(address)) for prefix in found)
    assert (".".join(other) in found) == covers(".".join(other), ".".join(address))
    assert sorted(found, key=len, reverse=True) == list(found)


def test_longest_address_has_all_its_prefixes_asked_for(tx: Work) -> None:
    made(tx, {"far": ["test.a"]})
    found = next_peer(tx, "test" + ".a" * 509, OWN, 0)
    assert found is not None
