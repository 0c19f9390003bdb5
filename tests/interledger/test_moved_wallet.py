"""A wallet moves to a second server: its address stays, its payments arrive there, and no money is made or lost."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2

from payres.operator import wallets
from payres.testing.instance import Instance, run_instance
from payres.testing.peering import peer
from tests.interledger.network import amount, check_books, pay, peer_of, wallet_money
from tests.interledger.test_two_servers import FUNDS

HOP_BY_HOP = {"connection", "keep-alive"}


class Proxy(ThreadingHTTPServer):
    """The proxy in front of the first server, which sends what is asked for at some paths to the second."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.backend = ""
        self.moved: dict[str, str] = {}  # the base URL of the server that has a path now

    def target(self, path: str) -> str:
        """The server for a path: that of a moved wallet address for it, and for what is under it."""
        found = (there for moved, there in self.moved.items() if path == moved or path.startswith(f"{moved}/"))
        return next(found, self.backend)


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        with closing(HTTPConnection(self.server.target(self.path).removeprefix("http://"))) as connection:
            connection.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = connection.getresponse()
            content = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def proxied() -> Iterator[Proxy]:
    with Proxy() as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


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
    with (
        proxied() as proxy,
        run_instance(tmp_path / "a.db", base_url=proxy.url, ilp_address="test.a") as a,
        run_instance(tmp_path / "b.db", ilp_address="test.b") as b,
    ):
        proxy.backend = f"http://127.0.0.1:{a._server._listener.getsockname()[1]}"
        peer(a, b)
        servers = {server.base_url: server for server in (a, b)}
        address = a.create_wallet("carol", deposit="500.00")
        assert [pay_to(address, payer, 1000, servers) for payer in (a, b)] == [a.base_url] * 2
        assert wallet_money(a, "carol") == (50_000 + 2000, 0)

        new = b.create_wallet("carol")
        proxy.moved["/carol"] = b.base_url
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
