"""A wallet moves to a second server: its address stays, its payments arrive there, and no money is made or lost."""

from collections.abc import Iterable
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx2

from payres.operator import wallets
from payres.testing.peering import peer
from tests.http_server import serving
from tests.instance import Instance, run_instance
from tests.interledger.network import amount, check_books, pay, peer_of, wallet_money
from tests.interledger.test_two_servers import FUNDS


def hand_on(handler: BaseHTTPRequestHandler, server: str) -> None:
    """Answers as the server at that base URL does."""
    body = handler.rfile.read(int(handler.headers.get("content-length", "0")))
    with closing(HTTPConnection(server.removeprefix("http://"))) as connection:
        connection.request(handler.command, handler.path, body or None, dict(handler.headers.items()))
        answer = connection.getresponse()
        content = answer.read()
        handler.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in {"connection", "keep-alive"}:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)


def pay_to(address: str, payer: Instance, value: int, servers: dict[str, Instance]) -> str:
    """Pays as a client does that knows a wallet address alone; the base URL of the server that the money went to."""
    found = httpx2.get(address).json()
    there = servers[found["resourceServer"]]
    bill = there.client.create_incoming_payment(found["id"], amount(value))["id"]
    assert pay(payer, payer.wallet("alice"), bill).ended["failed"] is False
    return there.base_url


def total(paths: Iterable[str], *servers: Instance) -> int:
    """What is in these wallets of all servers together."""
    return sum(wallet_money(server, path)[0] for server in servers for path in paths)


def test_moved_wallet_is_paid_at_its_old_address(tmp_path: Path) -> None:
    servers: dict[str, Instance] = {}  # by base URL
    moved: dict[str, str] = {}  # the base URL of the server that has a wallet address, and what is under it, now
    first = ""  # the base URL of the one behind the proxy that has all other paths

    def proxy(handler: BaseHTTPRequestHandler) -> None:
        found = (there for path, there in moved.items() if f"{handler.path}/".startswith(f"{path}/"))
        hand_on(handler, next(found, first))

    with (
        serving(proxy) as port,
        run_instance(tmp_path / "a.db", base_url=f"http://127.0.0.1:{port}", ilp_address="test.a") as a,
        run_instance(tmp_path / "b.db", ilp_address="test.b") as b,
    ):
        first = f"http://127.0.0.1:{a._server._listener.getsockname()[1]}"
        peer(a, b)
        servers |= {server.base_url: server for server in (a, b)}
        address = a.create_wallet("carol", deposit="500.00")
        assert [pay_to(address, payer, 1000, servers) for payer in (a, b)] == [a.base_url] * 2
        assert wallet_money(a, "carol") == (50_000 + 2000, 0)

        new = b.create_wallet("carol")
        moved["/carol"] = b.base_url
        assert httpx2.get(address).json()["id"] == new
        a.write(lambda work: wallets.deactivate(work, "carol"))
        balance = a.balance("carol")
        for _ in range(2):  # with a reference, a step that is repeated moves nothing twice
            a.write(lambda work: wallets.withdraw(work, "carol", balance, "move-carol"))
            b.write(lambda work: wallets.deposit(work, "carol", balance, "move-carol"))
        assert (wallet_money(a, "carol"), wallet_money(b, "carol")) == ((0, 0), (52_000, 0))

        assert [pay_to(address, payer, 500, servers) for payer in (a, b)] == [b.base_url] * 2
        assert (wallet_money(a, "carol"), wallet_money(b, "carol")) == ((0, 0), (53_000, 0))
        assert total(["alice", "bob", "carol"], a, b) == 4 * FUNDS + 50_000
        assert peer_of(a, "b").balance == 500 - 1000  # what a wallet of each paid to the other server
        check_books(a, b)
