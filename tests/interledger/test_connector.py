"""What a peer is answered, and which money has moved when it is."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.process.rate_limiter import RateLimiter
from payres.core.protocol.amounts import MAX_LEDGER, Asset
from payres.core.protocol.clock import MILLISECOND, SECOND
from payres.core.protocol.limits import BURST_SECONDS
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger.carrier import NoReply, Request, store_response
from payres.interledger.clearing import ABOVE_LIMIT
from payres.interledger.connector import CONFIGURATION, CONFIGURATION_CONDITION
from payres.interledger.credentials import CredentialSource, Opened
from payres.interledger.limits import MAX_PACKETS_IN_FLIGHT
from payres.interledger.oer import decode_prepare, decode_reply, encode_packet
from payres.interledger.packets import Code, Fulfill, PacketRejected, Prepare, Reject, Reply
from payres.interledger.receiver import Arrival
from payres.interledger.store import peers
from payres.interledger.store.peers import PeerRecord
from payres.interledger.stream import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionNewAddress,
    PacketType,
    SharedSecret,
)
from payres.operator import assets, wallets
from payres.operator.assets import set_rate
from payres.operator.peers import deposit, require_peer
from payres.testing.clock import MovableClock
from tests.interledger.node import LIFETIME, OWN, START, Node, Sender, code, open_node, sender_to
from tests.traces import commit_held

USD, EUR = Asset("USD", 2), Asset("EUR", 2)


def decoded(answer: bytes | NoReply) -> Reply:
    assert isinstance(answer, bytes)
    return decode_reply(answer)


async def begun(node: Node, wanted: int | None = None, **terms: Any) -> tuple[PeerRecord, Sender, str]:
    """A peer, one who pays an incoming payment of alice's through it, and the payment."""
    peer, payment = await node.peer("up", **terms), await node.payment(await node.wallet(), wanted)
    return peer, node.sender(payment), payment


def before_each_write(node: Node, monkeypatch: pytest.MonkeyPatch, step: Callable[[], Awaitable[object]]) -> None:
    """Runs a step before units of work that write."""
    write = node.database.write

    async def late(unit: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(node.database, "write", write)
            await step()
        return await write(unit)

    monkeypatch.setattr(node.database, "write", late)


async def test_every_vector_is_answered_as_by_the_common_receiver(
    tmp_path: Path, vectors: dict[str, Any], receiver_vector: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an older version, whose one code for "understood, not fulfilled" every sender understands."""
    given, wanted = vectors["receiver"], receiver_vector["stream-receiver@0.3.3-alpha.3"]
    secret = SharedSecret(bytes.fromhex(given["sharedSecret"]), lambda _: bytes.fromhex(vectors["iv"]))
    async with open_node(tmp_path / "node.db", given["serverAddress"], bytes.fromhex(given["serverSecret"])) as node:
        open_address = node.credentials.open

        def open_with_iv(address: str) -> Opened | None:
            opened = open_address(address)
            return opened and msgspec.structs.replace(opened, shared_secret=secret)

        monkeypatch.setattr(node.credentials, "open", open_with_iv)
        peer = await node.peer("upstream")
        tag = "5d1c1e3e-5c0d-4b5e-9c1a-0d3b6d2d7a11"
        await node.payment(await node.wallet(), payment_id=tag)
        prepare = decode_prepare(bytes.fromhex(receiver_vector["prepare"]))
        reply = await node.send(peer, prepare)
        if isinstance(reply, Reject):
            reply = msgspec.structs.replace(reply, message="")
        assert encode_packet(reply).hex() == wanted["reply"]
        moved = prepare.amount if wanted["money"] else 0
        assert (await node.received(tag)).received == await node.wallet_balance() == moved
        assert await node.balance("upstream") == -moved


async def test_completed_payment_takes_no_money_but_answers_the_close(node: Node) -> None:
    peer, sender, _ = await begun(node, 5)
    await node.send(peer, sender.prepare(5))
    reply = await node.send(peer, sender.prepare(5))
    assert (code(reply), reply.data) == ("F02", b"")
    closed = await node.send(peer, sender.prepare(0, 0, ConnectionClose(), fulfillable=False))
    assert code(closed) == "F99"
    assert sender.read(closed).frames == (ConnectionClose(),)
    assert await node.wallet_balance() == 5


async def test_expired_or_unknown_payment_and_closed_wallet_take_nothing(node: Node) -> None:
    peer, wallet = await node.peer("up"), await node.wallet()
    payment = await node.payment(wallet)
    nobody = node.sender("01a1fc79-0911-70a0-a0fa-6dccf4c9252b")
    assert code(await node.send(peer, nobody.prepare(5))) == "F02"
    await node.write(lambda tx: wallets.deactivate(tx, "alice"))
    assert code(await node.send(peer, node.sender(payment).prepare(5))) == "F02"
    await node.write(lambda tx: wallets.activate(tx, "alice"))
    node.clock.advance(86_400)
    assert code(await node.send(peer, node.sender(payment).prepare(5))) == "F02"
    assert await node.wallet_balance() == 0


@pytest.mark.parametrize(
    ("wanted", "received", "amount", "taken"),
    [
        (100, 0, 100, True),
        (100, 0, 101, True),  # one unit, where 0.5 % is less
        (100, 0, 102, False),
        (1, 0, 2, True),
        (1, 0, 3, False),
        (1000, 0, 1005, True),
        (1000, 0, 1006, False),
        (1999, 0, 2008, True),  # 9.995, rounded down
        (1999, 0, 2009, False),
        (1000, 999, 6, True),
        (1000, 999, 7, False),
        (1000, 0, 1, True),
    ],
)
async def test_overshoot_is_taken_as_far_as_rounding_goes(
    node: Node, wanted: int, received: int, amount: int, taken: bool
) -> None:
    peer, sender, payment = await begun(node, wanted)
    if received:
        await node.send(peer, sender.prepare(received))
    reply = await node.send(peer, sender.prepare(amount))
    assert isinstance(reply, Fulfill) == taken
    found = await node.received(payment)
    assert found.received == received + (amount if taken else 0)
    assert found.completed == (found.received >= wanted)
    if not taken:
        assert isinstance(reply, Reject)
        assert (reply.code, reply.triggered_by) == ("F99", OWN)
        said = sender.read(reply)
        assert (said.packet_type, said.prepare_amount, said.frames) == (PacketType.REJECT, amount, (ConnectionClose(),))


async def test_overshoot_of_a_sender_with_large_units_is_taken(node: Node) -> None:
    peer, sender, payment = await begun(node, 100)
    for minimum in (1, 99, 101):
        assert code(await node.send(peer, sender.prepare(146, minimum))) == "F99"
    assert isinstance(await node.send(peer, sender.prepare(146, 100)), Fulfill)
    found = await node.received(payment)
    assert (found.received, bool(found.completed)) == (146, True)


async def test_peer_pays_up_to_its_credit_limit_and_no_further(node: Node) -> None:
    peer, sender, _ = await begun(node, credit=100)
    assert isinstance(await node.send(peer, sender.prepare(60)), Fulfill)
    assert code(await node.send(peer, sender.prepare(41))) == "T04"
    assert isinstance(await node.send(peer, sender.prepare(40)), Fulfill)
    assert code(await node.send(peer, sender.prepare(1))) == "T04"
    assert await node.balance("up") == -100
    assert await node.last_error("up") == ABOVE_LIMIT
    await node.write(lambda tx: deposit(tx, "up", "1.00"))
    assert await node.last_error("up") == ""
    probed = await node.send(peer, sender.prepare(10**12, fulfillable=False))  # moves no money: the receiver answers
    assert code(probed) == "F99"
    assert sender.read(probed).prepare_amount == 10**12


@pytest.mark.parametrize(
    ("amount", "terms", "most"),
    [
        *((amount, {"max_packet": 5000}, 5000) for amount in (5001, 10**12, 2**64 - 1)),
        (2**63, {}, MAX_LEDGER),  # more than the ledger moves
    ],
)
async def test_amount_above_the_largest_packet_is_told_with_both_amounts(
    node: Node, amount: int, terms: dict[str, int], most: int
) -> None:
    peer, sender, _ = await begun(node, **terms)
    reply = await node.send(peer, sender.prepare(amount))
    assert code(reply) == "F08"
    assert Reject(Code.AMOUNT_TOO_LARGE, data=reply.data).too_large == (amount, most)
    assert code(await node.send(peer, sender.prepare(most))) in ("FULFILL", "T04")


async def test_wallet_that_can_hold_no_more_is_short_of_liquidity(node: Node) -> None:
    peer, sender, _ = await begun(node, credit=MAX_LEDGER)
    assert isinstance(await node.send(peer, sender.prepare(MAX_LEDGER)), Fulfill)
    other = await node.peer("second", credit=MAX_LEDGER)
    assert code(await node.send(other, sender.prepare(1))) == "T04"


@pytest.mark.parametrize("lifetime", [0, -1, -SECOND])
@pytest.mark.parametrize("amount", [0, 5])
async def test_expired_packet_is_not_fulfilled(node: Node, lifetime: int, amount: int) -> None:
    peer, sender, _ = await begun(node)
    assert code(await node.send(peer, sender.prepare(amount, lifetime=lifetime), "number")) == "R00"


async def test_packet_that_expires_while_it_waits_for_the_writer_is_not_fulfilled(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, sender, _ = await begun(node)

    async def wait() -> None:
        node.clock.advance(LIFETIME / SECOND)

    before_each_write(node, monkeypatch, wait)
    assert code(await node.send(peer, sender.prepare(5))) == "R00"
    assert await node.wallet_balance() == 0


async def test_fault_is_a_temporary_error_that_says_nothing_and_holds_no_place(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await node.peer("up")
    monkeypatch.setattr(node.credentials, "open", lambda _: 1 / 0)
    for _ in range(MAX_PACKETS_IN_FLIGHT + 1):
        assert await node.send(peer, to(f"{OWN}.token")) == Reject(Code.INTERNAL_ERROR, OWN)
    assert "a packet from peer up failed" in caplog.text


def to(
    address: str, amount: int = 5, *, lifetime: int = LIFETIME, condition: bytes = CONFIGURATION_CONDITION
) -> Prepare:
    return Prepare(amount, START + lifetime, condition, address)


TOO_SOON = (1000, SECOND, 2 * SECOND - 1000)  # for the packet to be passed on


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        *(
            (body, "F01")
            for body in (b"", b"hello", encode_packet(Fulfill(bytes(32))), encode_packet(to(f"{OWN}.token"))[:-1])
        ),
        *((to(address), "F02") for address in (OWN, f"{OWN}er.token", "test.elsewhere")),
        *((to(address), "F02") for address in ("peer.settle", "peer.config.more", "self.x")),
        (to(f"{OWN}.nonsense"), "F06"),
        (to(CONFIGURATION, 1), "F00"),
        (to(CONFIGURATION, 0, condition=bytes(32)), "F00"),
        (to(CONFIGURATION, 0, lifetime=0), "R00"),
        *((to("test.far.x", amount, lifetime=lifetime), "R02") for amount in (0, 5) for lifetime in TOO_SOON),
    ],
)
async def test_packet_that_is_refused(node: Node, body: bytes | Prepare, wanted: str) -> None:
    peer = await node.peer("up", routes=["test"])
    await node.peer("far")  # where nothing answers, so that a packet that left would be T01
    reply = decoded(await node.connector.handle(peer, body if isinstance(body, bytes) else encode_packet(body), None))
    assert isinstance(reply, Reject)
    assert (reply.code, reply.triggered_by, reply.data) == (wanted, OWN, b"")
    assert await node.balance("up") == 0


# IL-DCP


async def test_configuration_is_that_of_the_peer(node: Node, vectors: dict[str, Any]) -> None:
    given = vectors["ildcp"]
    peer = await node.peer("child", ilp_address=given["response"]["clientAddress"])
    question = decode_prepare(bytes.fromhex(given["request"]["hex"]))
    assert (question.destination, question.condition.hex()) == (CONFIGURATION, given["condition"])
    assert question.condition == CONFIGURATION_CONDITION
    asked = Prepare(0, START + LIFETIME, question.condition, question.destination)
    assert await node.connector.handle(peer, encode_packet(asked), None) == bytes.fromhex(given["response"]["hex"])


# Across assets


async def exchange(node: Node, rate: str = "0.9", funds: str = "1000.00") -> tuple[PeerRecord, Sender, str]:
    """A peer in USD, and one who pays a wallet in EUR through it."""
    peer = await node.peer("up")
    payment = await node.payment(await node.wallet("erika", "EUR"), 10_000)
    await node.write(lambda tx: set_rate(tx, "USD", "EUR", rate))
    await node.write(lambda tx: assets.deposit_liquidity(tx, "EUR", 2, funds))
    return peer, node.sender(payment, EUR), payment


async def test_money_crosses_assets_rounded_down(node: Node) -> None:
    peer, sender, payment = await exchange(node)
    reply = await node.send(peer, sender.prepare(999, 899))
    assert isinstance(reply, Fulfill)
    assert sender.read(reply).prepare_amount == 899
    assert (await node.wallet_balance("erika"), await node.balance("up")) == (899, -999)
    assert (await node.received(payment)).received == 899
    reply = await node.send(peer, sender.prepare(999, 900))
    assert (code(reply), sender.read(reply).prepare_amount) == ("F99", 899)


@pytest.mark.parametrize(
    ("funds", "amount", "wanted"),
    [("1000.00", 1, "R01"), ("1000.00", 0, "FULFILL"), ("8.99", 1000, "T04"), ("8.99", 999, "FULFILL")],
)
async def test_exchange_needs_an_amount_that_is_worth_something_and_liquidity(
    node: Node, funds: str, amount: int, wanted: str
) -> None:
    peer, sender, _ = await exchange(node, funds=funds)
    assert code(await node.send(peer, sender.prepare(amount))) == wanted


async def test_exchange_without_a_rate_cannot_be_and_with_an_old_one_not_yet(node: Node) -> None:
    peer = await node.peer("up")
    sender = node.sender(await node.payment(await node.wallet("erika", "EUR")), EUR)
    assert code(await node.send(peer, sender.prepare(5))) == "F07"
    await node.write(
        lambda tx: (
            tx.execute(
                "INSERT INTO exchange_rate (base_code, counter_code, rate, set_at, expires_at) VALUES (?, ?, ?, ?, ?)",
                ("USD", "EUR", "0.9", START - 10, START - 1),
            ).rowcount
        )
    )
    assert code(await node.send(peer, sender.prepare(5))) == "T00"


async def test_exchange_that_passes_the_ledgers_largest_figure_says_how_much_would_do(node: Node) -> None:
    peer, sender, _ = await exchange(node, rate="100000000")
    reply = await node.send(peer, sender.prepare(10**12, fulfillable=False))
    assert code(reply) == "F08"
    told = Reject(Code.AMOUNT_TOO_LARGE, data=reply.data).too_large
    assert told == (10**12, MAX_LEDGER // 10**8)
    assert code(await node.send(peer, sender.prepare(told[1], fulfillable=False))) == "F99"


async def test_rate_that_changes_before_the_money_moves_moves_none(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    peer, sender, _ = await exchange(node)
    before_each_write(node, monkeypatch, lambda: node.write(lambda tx: set_rate(tx, "USD", "EUR", "0.8")))
    assert code(await node.send(peer, sender.prepare(1000))) == "T00"
    assert await node.wallet_balance("erika") == 0


# Credentials of wallets


async def test_wallet_itself_takes_any_number_of_payments(node: Node) -> None:
    peer, _ = await node.peer("up"), await node.wallet()
    for _ in range(2):
        sender = await to_wallet(node, "alice")
        assert isinstance(await node.send(peer, sender.prepare(70)), Fulfill)
    assert await node.wallet_balance() == 140
    await node.write(lambda tx: wallets.deactivate(tx, "alice"))
    assert code(await node.send(peer, sender.prepare(1))) == "F02"


async def to_wallet(node: Node, path: str) -> Sender:
    tag = await node.write(lambda tx: require_wallet(tx, path).tag)
    return sender_to(node.credentials.for_wallet(tag, USD).ilp_address, node.credentials, node.clock)


@pytest.mark.parametrize("is_number_used_again", [False, True])
async def test_address_of_a_wallet_that_was_lost_pays_nobody(node: Node, *, is_number_used_again: bool) -> None:
    """The wallet was opened after the backup that was restored since; its address never ends."""
    peer, carols = await node.peer("up"), await node.wallet("carol")
    sender = await to_wallet(node, "carol")

    def lose(work: Work) -> None:
        account_id = require_wallet(work, "carol").account_id
        work.execute("DELETE FROM wallet_address WHERE id = ?", (carols,))
        work.execute("DELETE FROM account WHERE id = ?", (account_id,))

    await node.write(lose)
    if is_number_used_again:
        assert await node.wallet("dave") == carols
    assert code(await node.send(peer, sender.prepare(700))) == "F02"
    assert not is_number_used_again or await node.wallet_balance("dave") == 0
    await node.wallet("alice")
    assert isinstance(await node.send(peer, (await to_wallet(node, "alice")).prepare(1)), Fulfill), "no fail-stop"


# How much a peer may send


async def test_packets_in_flight_are_limited_for_each_peer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await node.peer("one"), await node.peer("other")
    sender = node.sender(await node.payment(await node.wallet()))
    opened = asyncio.Event()
    before_each_write(node, monkeypatch, opened.wait)
    held_back = [asyncio.create_task(node.send(one, sender.prepare(1))) for _ in range(MAX_PACKETS_IN_FLIGHT)]
    await asyncio.sleep(0)
    assert code(await node.send(one, sender.prepare(1))) == "T03"
    theirs = asyncio.create_task(node.send(other, sender.prepare(1)))
    opened.set()
    assert isinstance(await theirs, Fulfill)
    assert {code(reply) for reply in await asyncio.gather(*held_back)} == {"FULFILL"}
    assert isinstance(await node.send(one, sender.prepare(1)), Fulfill)


async def test_packets_a_second_are_limited_for_each_peer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await node.peer("one"), await node.peer("other")
    monkeypatch.setattr(node.connector, "_rate_limiter", RateLimiter(3, node.clock))
    sender = node.sender(await node.payment(await node.wallet()))
    for _ in range(3 * BURST_SECONDS):
        assert isinstance(await node.send(one, sender.prepare(0)), Fulfill)
    assert code(await node.send(one, sender.prepare(0))) == "T05"
    assert isinstance(await node.send(other, sender.prepare(0)), Fulfill)
    node.clock.advance(1)
    assert isinstance(await node.send(one, sender.prepare(0)), Fulfill)


# Repeated requests


async def test_repeated_request_gets_its_first_answer_and_moves_nothing(node: Node) -> None:
    peer, sender, _ = await begun(node, 100)
    prepare = encode_packet(sender.prepare(100))
    first = await node.connector.handle(peer, prepare, "number-1")
    assert isinstance(decoded(first), Fulfill)
    # The payment is completed, the packet expires, the peer's terms change: the answer stays.
    assert await node.connector.handle(peer, prepare, "number-1") == first
    node.clock.advance(60)
    assert await node.connector.handle(peer, prepare, "number-1") == first
    await node.write(lambda tx: peers.PEERS.update(tx, peer.id, max_packet=5))
    strict = await node.database.read(lambda tx: require_peer(tx, "up"))
    assert await node.connector.handle(strict, prepare, "number-1") == first
    assert await node.wallet_balance() == 100


async def test_requests_at_once_with_one_number_move_money_once_and_those_of_other_peers_too(node: Node) -> None:
    peer, sender, _ = await begun(node)
    prepare = encode_packet(sender.prepare(7))
    answers = await asyncio.gather(*(node.connector.handle(peer, prepare, "one") for _ in range(20)))
    assert len(set(answers)) == 1
    assert isinstance(await node.send(await node.peer("other"), sender.prepare(5), "one"), Fulfill)
    assert await node.wallet_balance() == 12


async def test_request_that_expires_before_the_first_is_committed_is_not_denied(node: Node) -> None:
    """The money has moved but is not durable yet, so no read sees it: the peer must not get R00."""
    peer, sender, _ = await begun(node)
    prepare = encode_packet(sender.prepare(5))
    async with commit_held(node.database) as gate:
        first = asyncio.create_task(node.connector.handle(peer, prepare, "number"))
        await gate.wait()  # its unit has run
        node.clock.advance(60)
        second = asyncio.create_task(node.connector.handle(peer, prepare, "number"))
        for _ in range(20):  # it is read that the packet has expired
            await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
    assert await second == await first
    assert isinstance(decoded(await first), Fulfill)


async def test_old_answers_are_forgotten_a_few_at_a_time(node: Node) -> None:
    peer = await node.peer("up")

    def store_many(work: Work) -> list[int]:
        for at in range(600):
            peers.insert_reply(
                work, peers.ANSWERS, peer.id, f"old-{at}", bytes(32), b"reply", START - peers.ANSWERS.after - 1
            )
        counts = []
        for at in range(256):
            work.now += MILLISECOND
            store_response(work, Request(peer.id, f"new-{at}", bytes((at,)) * 32), Fulfill(bytes(32)))
            counts.append(work.execute("SELECT count(*) FROM answered_request").fetchone()[0])
        assert peers.find_request(work, peer.id, "new-0") is not None
        return counts

    counts = await node.write(store_many)
    assert counts[-1] == 256 + 600 - 512  # for each that is stored two are deleted, at other times
    assert max(before - after for before, after in pairwise(counts)) == 31


# The receiving end against the replies of the common receivers


USD = Asset("USD", 2)
SOURCE = CredentialSource(bytes(range(32)), "test.node")


def sender() -> Sender:
    return sender_to(SOURCE.for_payment("payment", USD).ilp_address, SOURCE, MovableClock(10**15, frozen=True))


def arrival(prepare: Prepare) -> Arrival:
    opened = SOURCE.open(prepare.destination)
    assert opened is not None
    return Arrival(prepare, prepare.amount, opened, "test.node")


def test_asset_is_told_to_whoever_introduces_itself_also_when_fulfilled() -> None:
    one = sender()
    for fulfillable in (True, False):
        reply = arrival(one.prepare(0, 0, ConnectionNewAddress(""), fulfillable=fulfillable)).reply()
        assert isinstance(reply, Fulfill) == fulfillable
        assert one.read(reply).frames == (ConnectionAssetDetails("USD", 2),)


@given(
    amount=st.integers(0, 2**64 - 1),
    minimum=st.integers(0, 2**64 - 1),
    fulfillable=st.booleans(),
    kind=st.sampled_from(PacketType),
)
def test_packet_is_fulfilled_only_when_it_can_be_and_is_enough(
    amount: int, minimum: int, fulfillable: bool, kind: PacketType
) -> None:
    one = sender()
    prepare = one.prepare(amount, minimum, fulfillable=fulfillable, kind=kind)
    if kind is not PacketType.PREPARE:
        with pytest.raises(PacketRejected, match=Code.BAD_REQUEST):
            arrival(prepare)
        return
    reply = arrival(prepare).reply()
    good = fulfillable and amount >= minimum
    assert isinstance(reply, Fulfill) == good
    said = one.read(reply)
    assert (said.sequence, said.prepare_amount) == (one.sequence, amount)
    assert said.packet_type == (PacketType.FULFILL if good else PacketType.REJECT)


@given(st.binary(max_size=200))
def test_data_that_the_sender_did_not_seal_is_unexpected(data: bytes) -> None:
    one = sender()
    with pytest.raises(PacketRejected, match=Code.UNEXPECTED_PAYMENT):
        arrival(Prepare(5, 10**15, bytes(32), one.address, data))
