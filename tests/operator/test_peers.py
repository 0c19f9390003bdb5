from typing import Any

import msgspec
import pytest

from payres import ledger
from payres.errors import DomainError
from payres.identifiers import hash_secret
from payres.operator import invariant_checks, peers
from payres.operator.peer_terms import NewPeer, PeerChange
from payres.store import accounts, assets, packets, secrets
from payres.store import peers as peer_store
from payres.store.accounts import ACCOUNTS
from payres.store.packets import PACKETS, PacketRecord
from payres.store.work import Transaction, Work
from tests.works import NOW

OWN = "test.here"
TERMS: dict[str, Any] = {
    "name": "first-bank",
    "ilp_address": "test.first-bank",
    "asset_code": "USD",
    "asset_scale": 2,
    "url": "https://first-bank.example/ilp",
    "outgoing_token": "what-we-show",
    "incoming_token": "what-they-show",
}


def terms(**changes: Any) -> NewPeer:
    return NewPeer(**(TERMS | changes))


def another(**changes: Any) -> NewPeer:
    return terms(**({"name": "second", "ilp_address": "test.second", "incoming_token": "another"} | changes))


def owner(tx: Work, token: str) -> int | None:
    """The peer that shows a token."""
    found = peer_store.peer_by_token(tx, hash_secret(token))
    return None if found is None else found.id


def check_books(tx: Transaction) -> None:
    assert invariant_checks.first_broken(invariant_checks.check(tx)) is None


def test_added_peer_is_as_agreed(tx: Work) -> None:
    peer = peers.add_peer(tx, terms(max_packet=5_000, credit_limit="1000.00", routes=["g", "test.far"]))
    assert (peer.name, peer.ilp_address, peer.url) == ("first-bank", "test.first-bank", TERMS["url"])
    assert (peer.asset_code, peer.asset_scale, peer.max_packet, peer.created_at) == ("USD", 2, 5_000, NOW)
    assert (peer.balance, peer.held, peer.floor) == (0, 0, -100_000)
    assert ACCOUNTS.by_id(tx, peer.account_id).kind == "peer"
    assert peer_store.routes_of_peer(tx, peer.id) == ["g", "test.far", "test.first-bank"]
    assert peers.require_peer(tx, "first-bank") == peer
    check_books(tx)


def test_peer_without_a_credit_limit_may_owe_nothing(tx: Work) -> None:
    peer = peers.add_peer(tx, terms())
    with pytest.raises(ledger.NotEnough):
        ledger.hold(tx, peer.account_id, 1)
    peers.deposit(tx, "first-bank", "0.01")
    assert ledger.free_balance(ACCOUNTS.by_id(tx, peer.account_id)) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "two words"}, "name"),
        ({"name": "-option"}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"ilp_address": "first-bank"}, "ilp_address"),
        ({"ilp_address": "test"}, "ilp_address"),
        ({"ilp_address": "test.first bank"}, "ilp_address"),
        ({"ilp_address": "test.first-bank\n"}, "ilp_address"),
        ({"ilp_address": "test." + "a" * 1019}, "ilp_address"),
        ({"ilp_address": OWN}, "ilp_address"),
        ({"ilp_address": "peer.first-bank"}, "ilp_address"),
        ({"routes": ["bank"]}, "routes"),
        ({"routes": [""]}, "routes"),
        ({"routes": ["test."]}, "routes"),
        ({"routes": ["g", OWN]}, "routes"),
        ({"routes": ["peer"]}, "routes"),
        ({"routes": ["test." + "a" * 1019]}, "routes"),
        ({"url": "first-bank.example/ilp"}, "url"),
        ({"url": "ftp://first-bank.example/ilp"}, "url"),
        ({"url": "https://user:word@first-bank.example/ilp"}, "url"),
        ({"url": "https://first-bank.example/ilp#packets"}, "url"),
        ({"outgoing_token": ""}, "outgoing_token"),
        ({"outgoing_token": "two words"}, "outgoing_token"),
        ({"incoming_token": "line\nbreak"}, "incoming_token"),
        ({"incoming_token": "t" * 1001}, "incoming_token"),
        ({"incoming_token": "\N{SNOWMAN}"}, "incoming_token"),
        ({"max_packet": 0}, "max_packet"),
        ({"asset_code": "U D"}, "asset"),
        ({"asset_scale": 256}, "scale"),
    ],
)
def test_what_cannot_be_a_peer_is_refused(tx: Work, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(DomainError) as refusal:
        peers.add_peer(tx, terms(**changes))
    assert (refusal.value.status, refusal.value.code, refusal.value.details) == (
        400,
        "invalid_request",
        {"field": field},
    )
    assert peer_store.list_peers(tx) == []
    token = changes.get("outgoing_token") or changes.get("incoming_token")
    assert not token or token not in str(refusal.value)


@pytest.mark.parametrize("address", ["test.her", "test.hereafter", "test.Here", "g.here", f"{OWN}.child"])
def test_address_beside_or_below_ours_is_taken(tx: Work, address: str) -> None:
    assert peers.add_peer(tx, terms(ilp_address=address)).ilp_address == address


def test_parent_may_be_a_peer_and_take_everything_else(tx: Work) -> None:
    peer = peers.add_peer(tx, terms(ilp_address="test.parent", routes=["test", "g"]))
    assert peer_store.routes_of_peer(tx, peer.id) == ["g", "test", "test.parent"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "first-bank"}, "There is a peer first-bank already"),
        ({"incoming_token": "what-they-show"}, "The peer first-bank has this incoming token"),
        ({"ilp_address": "test.first-bank"}, "The peer first-bank has this ILP address and asset already"),
    ],
)
def test_what_another_peer_has_is_refused(tx: Work, changes: dict[str, Any], sentence: str) -> None:
    peers.add_peer(tx, terms())
    with pytest.raises(DomainError, match=sentence) as refusal:
        peers.add_peer(tx, another(**changes))
    assert (refusal.value.status, refusal.value.code) == (409, "wrong_state")
    assert "what-they-show" not in str(refusal.value)


def test_one_neighbour_may_be_a_peer_in_each_of_two_assets(tx: Work) -> None:
    peers.add_peer(tx, terms())
    peers.add_peer(tx, another(ilp_address="test.first-bank", asset_code="EUR", outgoing_token="same"))
    assert [peer.asset_code for peer in peer_store.list_peers(tx)] == ["USD", "EUR"]


@pytest.mark.parametrize(
    "what", [terms(), PeerChange(outgoing_token="what-we-show")], ids=lambda what: type(what).__name__
)
def test_terms_do_not_show_their_tokens(what: object) -> None:
    assert "what-" not in repr(what)
    assert "what-" not in str(what)


def test_settlement_moves_the_balance_both_ways(tx: Work) -> None:
    peers.add_peer(tx, terms(credit_limit="10.00"))
    peers.deposit(tx, "first-bank", "12.00")
    peer = peers.require_peer(tx, "first-bank")
    assert (peer.balance, peers.describe_balance(peer)) == (1_200, "we owe the peer 12.00 USD")
    peers.withdraw(tx, "first-bank", "12.00")
    peer = peers.require_peer(tx, "first-bank")
    assert (peer.balance, peers.describe_balance(peer)) == (0, "nothing is owed either way")
    peers.withdraw(tx, "first-bank", "9.99")
    peer = peers.require_peer(tx, "first-bank")
    assert (peer.balance, peers.describe_balance(peer)) == (-999, "the peer owes us 9.99 USD")
    asset = assets.find_asset(tx, "USD", 2)
    assert asset is not None
    assert ACCOUNTS.by_id(tx, ledger.operator_account(tx, asset.id, "external")).balance == 999
    check_books(tx)


def test_withdrawal_past_the_credit_limit_is_refused(tx: Work) -> None:
    peers.add_peer(tx, terms(credit_limit="10.00"))
    sentence = "The account of the peer first-bank, its credit limit included, has 10.00 USD free, less than 10.01 USD"
    with pytest.raises(DomainError, match=sentence) as refusal:
        peers.withdraw(tx, "first-bank", "10.01")
    assert (refusal.value.code, refusal.value.details) == (
        "insufficient_funds",
        {"reason": "peer", "free": "10.00"},
    )


@pytest.mark.parametrize("move", [peers.deposit, peers.withdraw])
@pytest.mark.parametrize("text", ["0", "0.001", "-1", "one", "92233720368547758.08"])
def test_settlement_refuses_what_is_no_amount(tx: Work, move: Any, text: str) -> None:
    peers.add_peer(tx, terms())
    with pytest.raises(DomainError) as refusal:
        move(tx, "first-bank", text)
    assert refusal.value.code == "invalid_amount"


def test_change_sets_what_is_named_and_keeps_the_rest(tx: Work) -> None:
    before = peers.add_peer(tx, terms(max_packet=5_000, credit_limit="1.00", routes=["g"]))
    assert peers.change_peer(tx, "first-bank", PeerChange()) == before
    change = PeerChange(url="https://new.example/", credit_limit="2.00", add_routes=["test"], remove_routes=["g"])
    after = peers.change_peer(tx, "first-bank", change)
    assert after == msgspec.structs.replace(before, url="https://new.example/", floor=-200)
    assert peer_store.routes_of_peer(tx, after.id) == ["test", "test.first-bank"]
    assert peers.change_peer(tx, "first-bank", PeerChange(max_packet=7)).max_packet == 7
    assert peers.change_peer(tx, "first-bank", PeerChange(max_packet=0)).max_packet is None


def test_change_of_tokens_ends_the_old_ones(tx: Work) -> None:
    peers.add_peer(tx, terms())
    change = PeerChange(outgoing_token="new-out", incoming_token="new-in")
    peer = peers.change_peer(tx, "first-bank", change)
    assert secrets.decrypt(tx, "peer_tokens", peer.outgoing_token) == "new-out"
    assert owner(tx, "what-they-show") is None
    assert owner(tx, "new-in") == peer.id
    assert peers.change_peer(tx, "first-bank", PeerChange(incoming_token="new-in")).id == peer.id


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (PeerChange(url="nowhere"), 400),
        (PeerChange(incoming_token="a b"), 400),
        (PeerChange(incoming_token="another"), 409),
        (PeerChange(credit_limit="-0.01"), 400),
        (PeerChange(credit_limit="11.99"), 409),
        (PeerChange(add_routes=[OWN]), 400),
        (PeerChange(remove_routes=["g"]), 400),
    ],
)
def test_change_refuses_what_cannot_be(tx: Work, change: PeerChange, status: int) -> None:
    peers.add_peer(tx, terms(credit_limit="50.00"))
    peers.add_peer(tx, another())
    peers.withdraw(tx, "first-bank", "10.00")
    packet = _prepare(tx, "first-bank", 200)
    with pytest.raises(DomainError) as refusal:
        peers.change_peer(tx, "first-bank", change)
    assert refusal.value.status == status
    packets.decide_packet(tx, packet.id, "rejected")


def test_credit_limit_can_fall_to_what_is_used(tx: Work) -> None:
    peers.add_peer(tx, terms(credit_limit="50.00"))
    peers.add_peer(tx, another())
    peers.withdraw(tx, "first-bank", "10.00")
    _prepare(tx, "first-bank", 200)
    with pytest.raises(DomainError, match=r"uses 12\.00 USD of its credit, packets in flight included"):
        peers.change_peer(tx, "first-bank", PeerChange(credit_limit="11.99"))
    assert peers.change_peer(tx, "first-bank", PeerChange(credit_limit="12.00")).floor == -1_200
    check_books(tx)


def test_removed_peer_is_gone_and_its_name_token_and_address_are_free(tx: Work) -> None:
    peer = peers.add_peer(tx, terms(routes=["g"]))
    assert peers.remove_peer(tx, "first-bank") == peer
    assert peer_store.list_peers(tx) == []
    assert peer_store.peers_towards(tx, ["g", "test.first-bank"]) == []
    assert owner(tx, "what-they-show") is None
    again = peers.add_peer(tx, terms())
    assert (again.id, again.account_id) != (peer.id, peer.account_id)
    assert peer_store.routes_of_peer(tx, again.id) == ["test.first-bank"]
    check_books(tx)


def test_remove_says_how_to_settle_first(tx: Work) -> None:
    peers.add_peer(tx, terms(credit_limit="10.00"))
    peers.deposit(tx, "first-bank", "12.00")
    with pytest.raises(DomainError, match=r"We owe the peer 12\.00 USD: .*`payres peer withdraw first-bank 12\.00`"):
        peers.remove_peer(tx, "first-bank")
    peers.withdraw(tx, "first-bank", "20.00")
    with pytest.raises(DomainError, match=r"The peer owes us 8\.00 USD: .*`payres peer deposit first-bank 8\.00`"):
        peers.remove_peer(tx, "first-bank")
    peers.deposit(tx, "first-bank", "8.00")
    peers.remove_peer(tx, "first-bank")


@pytest.mark.parametrize("name", ["first-bank", "second"])
def test_remove_waits_for_packets_from_and_to_the_peer(tx: Work, name: str) -> None:
    peers.add_peer(tx, terms(credit_limit="10.00"))
    peers.add_peer(tx, another())
    packet = _prepare(tx, "first-bank", 200)
    with pytest.raises(DomainError, match=f"Packets to or from the peer {name} are in flight") as refusal:
        peers.remove_peer(tx, name)
    assert refusal.value.code == "wrong_state"
    packets.decide_packet(tx, packet.id, "rejected")
    for reservation in accounts.holds_of_packet(tx, packet.id):
        ledger.void(tx, reservation.id)
    peers.remove_peer(tx, name)
    check_books(tx)


def _prepare(tx: Work, payer: str, amount: int) -> PacketRecord:
    """A packet that one peer sent and that is under way to the peer `second`."""
    source, target = peers.require_peer(tx, payer), peers.require_peer(tx, "second")
    packet = PacketRecord("p", target.id, None, source.id, None, amount, amount, b"prepare", NOW, "prepared")
    PACKETS.insert(tx, packet)
    ledger.hold(tx, source.account_id, amount, packet_id=packet.id)
    return packet
