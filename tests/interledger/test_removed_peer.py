"""A peer that is removed while a packet of its is on the way in: the packet moves nothing, whatever was settled."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from click.testing import CliRunner

from payres.cli import main
from payres.interledger.packets import Code, Fulfill, Reject, decode_reply, encode
from payres.operator import peers
from payres.routes import ilp
from payres.store.accounts import ACCOUNTS
from payres.store.peers import account_of_peer
from payres.testing.instance import Instance, run_instance
from payres.testing.peering import peer
from tests.helpers import TIMEOUT, last_segment
from tests.interledger.network import USD, bill, change, received, wallet_money
from tests.interledger.node import FULFILLMENT, FakePeer, Node, far_prepare, fulfilling, sender_to

FUNDS = 100_000
TOKEN = "what-the-peer-shows"


def test_packet_whose_body_comes_after_the_removal_is_not_paid(tmp_path: Path) -> None:
    database = tmp_path / "b.db"
    with run_instance(tmp_path / "a.db", ilp_address="test.a") as a, run_instance(database, ilp_address="test.b") as b:
        peer(a, b)
        change(b, "a", incoming_token=TOKEN)
        receiver = bill(b, b.wallet("bob"), 500)
        source = b.context.credentials
        address = source.for_payment(last_segment(receiver), USD).ilp_address
        body = encode(sender_to(address, source, b.clock).prepare(500))
        with request_under_way(b, len(body)) as connection:
            removed = CliRunner().invoke(main, ["peer", "remove", "test.a", "--database", str(database)])
            assert removed.stdout == "The peer test.a is removed\n", removed.output
            connection.sendall(body)
            head, _, answer = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        reply = decode_reply(answer)
        assert isinstance(reply, Reject)
        assert reply.code == Code.UNREACHABLE
        assert received(b, receiver).received == 0
        assert wallet_money(b, "bob") == (FUNDS, 0)
        b.check_ledger()


async def test_packet_that_is_decided_after_the_removal_is_not_passed_on(node: Node) -> None:
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        await node.peer("far", url=far.url)
        near = await node.peer("near")
        await node.write(lambda tx: peers.remove_peer(tx, "near"))
        reply = await node.send(near, far_prepare(node, 500, FULFILLMENT), "number")
    assert isinstance(reply, Reject)
    assert not far.requests
    assert (await money_of(node, near.id), await node.balance("far")) == (0, 0)
    assert not await node.under_way()


async def test_answer_of_before_is_still_given_and_moves_nothing(node: Node) -> None:
    """Settled, removed, and asked once more: the peer that lost an answer learns what became of its packet."""
    near = await node.peer("near")
    prepare = node.sender(await node.payment(await node.wallet())).prepare(500)
    first = await node.send(near, prepare, "number")
    assert isinstance(first, Fulfill)
    await node.write(lambda tx: peers.deposit(tx, "near", "5.00"))
    await node.write(lambda tx: peers.remove_peer(tx, "near"))
    assert await node.send(near, prepare, "number") == first
    assert (await node.wallet_balance(), await money_of(node, near.id)) == (500, 0)


async def money_of(node: Node, peer_id: int) -> int:
    """What we owe a peer, removed or not."""
    return await node.database.read(lambda tx: ACCOUNTS.by_id(tx, account_of_peer(tx, peer_id)).balance)


@contextmanager
def request_under_way(instance: Instance, size: int) -> Iterator[socket.socket]:
    """A request with a packet of that size, whose token is checked and whose body the server waits for."""
    host, port = urlsplit(instance.base_url).netloc.split(":")
    headers = {
        "Host": host,
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": ilp.MEDIA_TYPE,
        "Content-Length": str(size),
        "Connection": "close",
        "Expect": "100-continue",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
        connection.sendall(f"POST /ilp HTTP/1.1\r\n{lines}\r\n".encode())
        # Sent when the endpoint first asks for the body (RFC 9110 section 10.1.1).
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield connection
