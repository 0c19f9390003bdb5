"""What becomes of a packet that is posted to a peer, as far as its sender can know."""

import asyncio
import logging
import socket

import msgspec
import pytest

from payres.core.protocol.errors import Unavailable
from payres.interledger.oer import encode_packet
from payres.interledger.packets import Fulfill, Outcome, Reject, Unanswered
from payres.interledger.store import peers
from payres.interledger.store.peers import PeerRecord
from payres.operator.peers import require_peer
from tests.core.remote.conftest import Request
from tests.interledger.node import Behaviour, FakePeer, Node, answered, hanging_up, replying, with_status

PREPARE = b"\x0c\x03abc"
TOKEN = "a-token-that-nobody-may-see"
REQUEST_ID = "01a1fc79-0911-70a0-a0fa-6dccf4c9252b"


async def post(
    node: Node, url: str, request_id: str | None = REQUEST_ID, seconds: float = 5, token: str = TOKEN
) -> tuple[Outcome, bool]:
    """The outcome, and whether the peer repeats its answers."""
    peer = await node.database.read(lambda tx: peers.find_peer(tx, "next")) or await node.peer("next", url=url)
    return await node.link.post(msgspec.structs.replace(peer, url=url), token, PREPARE, request_id, seconds)


async def record(node: Node) -> PeerRecord:
    return await node.database.read(lambda tx: require_peer(tx, "next"))


async def test_request_is_that_of_ilp_over_http(node: Node) -> None:
    async with FakePeer(replying(Fulfill(bytes(32), b"thanks"))) as peer:
        outcome = await post(node, peer.url)
    assert outcome == (Fulfill(bytes(32), b"thanks"), True)
    [request] = peer.requests
    assert (request.method, request.target) == ("POST", "/ilp")
    assert request.body == PREPARE
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["content-type"] == request.headers["accept"] == "application/octet-stream"
    assert request.number == REQUEST_ID


REJECT = Reject("F99", "test.next", "no", b"data")


@pytest.mark.parametrize(
    ("behaviour", "wanted"),
    [
        (replying(REJECT), "answered"),
        *((with_status(status), "unsent") for status in ("400 No", "401 No", "404 No", "413 No", "429 No", "499 No")),
        *((with_status(status), "sent") for status in ("408 Slow", "500 Oops", "501 What", "502 Gateway")),
        *((with_status(status), "sent") for status in ("503 Later", "504 Gateway", "520 Odd")),
        *((with_status(status, encode_packet(REJECT)), "sent") for status in ("202 Accepted", "302 Found")),
        (with_status("200 OK", b""), "sent"),
        (with_status("200 OK", b"{}"), "sent"),
        (with_status("200 OK", b"\x0c\x00"), "sent"),
        (with_status("200 OK", encode_packet(REJECT)[:-1]), "sent"),
        (with_status("200 OK", b"x" * 70_000), "sent"),
        (hanging_up, "sent"),
    ],
)
async def test_outcome_says_whether_the_packet_may_have_been_processed(
    node: Node, behaviour: Behaviour, wanted: str
) -> None:
    async with FakePeer(behaviour) as peer:
        assert word(await post(node, peer.url)) == wanted


def word(posted: tuple[Outcome, bool]) -> str:
    outcome, _ = posted
    if not isinstance(outcome, Unanswered):
        return "answered"
    assert outcome.why
    return "sent" if outcome.sent else "unsent"


async def test_peer_that_is_not_there_has_processed_nothing(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert word(await post(node, f"http://127.0.0.1:{port}/")) == "unsent"
    assert word(await post(node, "http://name.invalid/")) == "unsent"
    assert word(await post(node, "not a url")) == "unsent"
    assert word(await post(node, f"http://127.0.0.1:{port}/", seconds=0)) == "unsent"


async def test_connection_that_dies_on_the_way_out_leaves_the_outcome_unknown(node: Node) -> None:
    """The peer closes without reading: bytes have left, and nobody says how far they came."""

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(closing, "127.0.0.1", 0)
    async with server:
        outcome = await post(node, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert word(outcome) == "sent"


async def test_token_is_in_no_sentence_and_no_log(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bad = f"{TOKEN}\r\nX: y"
    async with FakePeer(with_status("502 Gateway")) as peer:
        outcomes = [
            await post(node, peer.url),
            await post(node, peer.url, token=bad),
            await post(node, peer.url, token=f"{TOKEN}é"),
            await post(node, peer.url, token=""),
            await post(node, "http://name.invalid/"),
        ]
    assert list(map(word, outcomes)) == ["sent", "unsent", "unsent", "unsent", "unsent"]
    assert len(peer.requests) == 1
    assert not [one for one in outcomes if TOKEN in repr(one)]
    assert TOKEN not in caplog.text


async def test_peer_that_repeats_the_number_is_remembered_in_the_database(node: Node) -> None:
    async def behave(request: Request) -> bytes:
        return answered(REJECT, number)

    async with FakePeer(behave) as peer:
        # Another program runs there meanwhile; the number of another request is no promise.
        for number in (REQUEST_ID, None, REQUEST_ID, "another"):
            repeats = number == REQUEST_ID
            assert await post(node, peer.url) == (REJECT, repeats)
            assert bool((await record(node)).repeats_answers) == repeats


async def test_answer_survives_storage_that_fails_to_remember(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(unit: object) -> None:
        raise Unavailable("The server could not store this")

    await node.peer("next")
    async with FakePeer(replying(REJECT)) as peer:
        monkeypatch.setattr(node.database, "write", failing)
        assert word(await post(node, peer.url)) == "answered"
        monkeypatch.undo()
        assert not (await record(node)).repeats_answers
        await post(node, peer.url)
        assert (await record(node)).repeats_answers
