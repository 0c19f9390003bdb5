from typing import Any

import msgspec
import pytest

from payres.core.payments import ledger
from payres.core.protocol.errors import DomainError
from payres.core.protocol.identifiers import hash_secret
from payres.core.store import accounts, server_secrets
from payres.core.store.work import Transaction, Work
from payres.interledger.store import packets
from payres.interledger.store import peers as peer_store
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.operator import peers
from payres.operator.declared.declarations import operation_of
from payres.operator.upkeep import invariant_checks
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


def terms(**changes: Any) -> dict[str, Any]:
    return TERMS | changes


def another(**changes: Any) -> dict[str, Any]:
    return terms(**({"name": "second", "ilp_address": "test.second", "incoming_token": "another"} | changes))


def owner(tx: Work, token: str) -> int | None:
    """The peer with this token."""
    found = peer_store.peer_by_token(tx, hash_secret(token))
    return None if found is None else found.id


def check_books(tx: Transaction) -> None:
    assert invariant_checks.first_broken(invariant_checks.check(tx)) is None


# An invalid value of a member, and the field that the refusal names.
WRONG: dict[str, tuple[str, list[Any]]] = {
    "name": ("name", ["", "two words", "-option", "a" * 65]),
    "ilp_address": (
        "ilp_address",
        [
            *("first-bank", "test", "test.first bank", "test.first-bank\n", "test." + "a" * 1019),
            *(OWN, "peer.first-bank"),
        ],
    ),
    "routes": ("routes", [["bank"], [""], ["test."], ["g", OWN], ["peer"], ["test." + "a" * 1019]]),
    "url": (
        "url",
        [
            *("first-bank.example/ilp", "ftp://first-bank.example/ilp"),
            *("https://user:word@first-bank.example/ilp", "https://first-bank.example/ilp#packets"),
        ],
    ),
    "outgoing_token": ("outgoing_token", ["", "two words"]),
    "incoming_token": ("incoming_token", ["line\nbreak", "t" * 1001, "\N{SNOWMAN}"]),
    "asset_code": ("asset", ["U D"]),
    "asset_scale": ("scale", [256]),
}


@pytest.mark.parametrize(("member", "value"), [(one, value) for one, (_, values) in WRONG.items() for value in values])
def test_what_cannot_be_a_peer_is_refused(tx: Work, member: str, value: Any) -> None:
    with pytest.raises(DomainError) as refusal:
        peers.add_peer(tx, **terms(**{member: value}))
    assert (refusal.value.status, refusal.value.code) == (400, "invalid_request")
    assert refusal.value.details == {"field": WRONG[member][0]}
    assert peer_store.list_peers(tx) == []
    assert "token" not in member or not value or value not in str(refusal.value)


@pytest.mark.parametrize("address", ["test.her", "test.hereafter", "test.Here", "g.here", f"{OWN}.child"])
def test_address_beside_or_below_ours_is_taken(tx: Work, address: str) -> None:
    assert peers.add_peer(tx, **terms(ilp_address=address)).ilp_address == address


def test_parent_may_be_a_peer_and_take_everything_else(tx: Work) -> None:
    peer = peers.add_peer(tx, **terms(ilp_address="test.parent", routes=["test", "g"]))
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
    peers.add_peer(tx, **terms())
    with pytest.raises(DomainError, match=sentence) as refusal:
        peers.add_peer(tx, **another(**changes))
    assert (refusal.value.status, refusal.value.code) == (409, "wrong_state")
    assert "what-they-show" not in str(refusal.value)


def test_one_neighbour_may_be_a_peer_in_each_of_two_assets(tx: Work) -> None:
    peers.add_peer(tx, **terms())
    peers.add_peer(tx, **another(ilp_address="test.first-bank", asset_code="EUR", outgoing_token="same"))
    assert [peer.asset_code for peer in peer_store.list_peers(tx)] == ["USD", "EUR"]


def test_terms_do_not_show_their_tokens() -> None:
    given = dict.fromkeys(("name", "url", "ilpAddress", "assetCode", "outgoingToken", "incomingToken"), "what-we-show")
    body = msgspec.json.encode(given | {"assetScale": 2})
    assert "what-" not in repr(operation_of(peers.add_peer).decoder.decode(body))


def test_change_sets_what_is_named_and_keeps_the_rest(tx: Work) -> None:
    before = peers.add_peer(tx, **terms(max_packet=5_000, credit_limit="1.00", routes=["g"]))
    assert peers.change_peer(tx, "first-bank") == before
    change: dict[str, Any] = {
        "url": "https://new.example/",
        "credit_limit": "2.00",
        "add_routes": ["test"],
        "remove_routes": ["g"],
    }
    after = peers.change_peer(tx, "first-bank", **change)
    assert after == msgspec.structs.replace(before, url="https://new.example/", floor=-200)
    assert peer_store.routes_of_peer(tx, after.id) == ["test", "test.first-bank"]
    assert peers.change_peer(tx, "first-bank", max_packet=7).max_packet == 7
    assert peers.change_peer(tx, "first-bank", max_packet=0).max_packet is None


def test_change_of_tokens_ends_the_old_ones(tx: Work) -> None:
    peers.add_peer(tx, **terms())
    change: dict[str, Any] = {"outgoing_token": "new-out", "incoming_token": "new-in"}
    peer = peers.change_peer(tx, "first-bank", **change)
    assert server_secrets.decrypt(tx, "peer_tokens", peer.outgoing_token) == "new-out"
    assert owner(tx, "what-they-show") is None
    assert owner(tx, "new-in") == peer.id
    assert peers.change_peer(tx, "first-bank", incoming_token="new-in").id == peer.id


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"url": "nowhere"}, 400),
        ({"incoming_token": "a b"}, 400),
        ({"incoming_token": "another"}, 409),
        ({"credit_limit": "-0.01"}, 400),
        ({"add_routes": [OWN]}, 400),
        ({"remove_routes": ["g"]}, 400),
    ],
)
def test_change_refuses_what_cannot_be(tx: Work, change: dict[str, Any], status: int) -> None:
    peers.add_peer(tx, **terms())
    peers.add_peer(tx, **another())
    with pytest.raises(DomainError) as refusal:
        peers.change_peer(tx, "first-bank", **change)
    assert refusal.value.status == status


def test_credit_limit_can_fall_to_what_is_used(tx: Work) -> None:
    peers.add_peer(tx, **terms(credit_limit="50.00"))
    peers.add_peer(tx, **another())
    peers.withdraw(tx, "first-bank", "10.00")
    _prepare(tx, "first-bank", 200)
    with pytest.raises(DomainError, match=r"uses USD 12\.00 of its credit, packets in flight included"):
        peers.change_peer(tx, "first-bank", credit_limit="11.99")
    assert peers.change_peer(tx, "first-bank", credit_limit="12.00").floor == -1_200
    check_books(tx)


def test_removed_peer_is_gone_and_its_name_token_and_address_are_free(tx: Work) -> None:
    peer = peers.add_peer(tx, **terms(routes=["g"]))
    assert peers.remove_peer(tx, "first-bank") == peer
    assert peer_store.list_peers(tx) == []
    assert peer_store.peers_towards(tx, ["g", "test.first-bank"]) == []
    assert owner(tx, "what-they-show") is None
    again = peers.add_peer(tx, **terms())
    assert (again.id, again.account_id) != (peer.id, peer.account_id)
    assert peer_store.routes_of_peer(tx, again.id) == ["test.first-bank"]
    check_books(tx)


def test_peer_that_is_added_again_gets_the_answers_to_its_earlier_requests(tx: Work) -> None:
    """It may have lost one, and ask again: its payer would have the money back, and the payee too."""
    first = peers.add_peer(tx, **terms())
    peer_store.insert_reply(tx, peer_store.ANSWERS, first.id, "paid", b"condition", b"fulfill", NOW)
    peer_store.insert_reply(tx, peer_store.REJECTS, first.id, "refused", b"condition", b"reject", NOW)
    peers.remove_peer(tx, "first-bank")
    other = peers.add_peer(tx, **terms(name="other", ilp_address="test.other", incoming_token="another"))
    assert peer_store.find_request(tx, other.id, "paid") is None
    euros = peers.add_peer(tx, **terms(name="euros", incoming_token="third", asset_code="EUR"))
    assert peer_store.find_request(tx, euros.id, "paid") is None
    again = peers.add_peer(tx, **terms())
    assert peer_store.find_request(tx, again.id, "paid") == (b"condition", b"fulfill")
    assert peer_store.find_request(tx, again.id, "refused") == (b"condition", b"reject")


@pytest.mark.parametrize("repeats", [True, False])
def test_peer_that_is_added_again_is_asked_again_for_a_lost_answer_as_before(tx: Work, repeats: bool) -> None:
    """The answer to its first packet may be lost, and a forwarded one be released although it was fulfilled."""
    for is_known in (not repeats, repeats):
        peer = peers.add_peer(tx, **terms())
        peer_store.set_repeats_answers(tx, peer.id, is_known)
        peers.remove_peer(tx, "first-bank")
    other = peers.add_peer(tx, **terms(name="other", ilp_address="test.other", incoming_token="another"))
    again = peers.add_peer(tx, **terms())
    assert (bool(again.repeats_answers), bool(other.repeats_answers)) == (repeats, False)


def test_remove_says_how_to_settle_first(tx: Work) -> None:
    peers.add_peer(tx, **terms(credit_limit="10.00"))
    peers.deposit(tx, "first-bank", "12.00")
    with pytest.raises(DomainError, match=r"We owe the peer USD 12\.00: .*, then remove the peer") as owed:
        peers.remove_peer(tx, "first-bank")
    assert owed.value.advice == "`payres peer withdraw first-bank 12.00` records it"
    peers.withdraw(tx, "first-bank", "20.00")
    with pytest.raises(DomainError, match=r"The peer owes us USD 8\.00: .*, then remove the peer") as owing:
        peers.remove_peer(tx, "first-bank")
    assert owing.value.advice == "`payres peer deposit first-bank 8.00` records it"
    peers.deposit(tx, "first-bank", "8.00")
    peers.remove_peer(tx, "first-bank")


@pytest.mark.parametrize("name", ["first-bank", "second"])
def test_remove_waits_for_packets_from_and_to_the_peer(tx: Work, name: str) -> None:
    peers.add_peer(tx, **terms(credit_limit="10.00"))
    peers.add_peer(tx, **another())
    packet = _prepare(tx, "first-bank", 200)
    with pytest.raises(DomainError, match=f"Packets to or from the peer {name} are in flight") as refusal:
        peers.remove_peer(tx, name)
    assert refusal.value.code == "wrong_state"
    packets.decide_packet(tx, packet.id, "rejected")
    for reservation in accounts.HOLDS.list(tx, packet_id=packet.id):
        ledger.void(tx, reservation.id)
    peers.remove_peer(tx, name)
    check_books(tx)


def _prepare(tx: Work, payer: str, amount: int) -> PacketRecord:
    """A packet that one peer sent and that is in flight to the peer `second`."""
    source, target = peers.require_peer(tx, payer), peers.require_peer(tx, "second")
    packet = PacketRecord("p", target.id, None, source.id, None, amount, amount, b"prepare", NOW, "prepared")
    PACKETS.insert(tx, packet)
    ledger.hold(tx, source.account_id, amount, packet_id=packet.id)
    return packet
