"""Server-side request forgery by URLs that an operator was talked into: those of peers, and of the rates service."""

from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from payres.core.store import accounts as asset_store
from payres.core.store.connections import connect_writer
from payres.interledger.node import node_of
from payres.interledger.oer import decode_reply, encode_packet
from payres.interledger.packets import Code, Prepare, Reject
from payres.interledger.remote_receivers import RemoteIncomingPayment
from payres.interledger.sending.connection import Destination
from tests.attacks.conftest import Trap
from tests.helpers import TIMEOUT, wait_until
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance
from tests.interledger.network import amount, bill, hurried, quote, skip_pauses, wallet_money
from tests.internet import PUBLIC, Internet
from tests.tls import Tls
from tests.works import add_usd_peer

TOKEN = "what-the-near-peer-shows"
INSIDE, CLOUD, BOTH, CHANGING = "inside.example", "cloud.example", "both.example", "changing.example"
REFUSED = "has no public address"
# Where a URL leads that is never to be asked, and what is said of it.
URLS = {
    "loopback": ("https://127.0.0.1:{port}", REFUSED),
    "loopback by name": ("https://localhost:{port}", REFUSED),
    "v4-mapped loopback": ("https://[::ffff:127.0.0.1]:{port}", REFUSED),
    "metadata of a cloud": ("https://169.254.169.254:{port}", REFUSED),
    "name of loopback": (f"https://{INSIDE}:{{port}}", REFUSED),
    "name of the metadata": (f"https://{CLOUD}:{{port}}", REFUSED),
    "plain http": ("http://127.0.0.1:{port}", "must start with https://"),
}
# Every status that redirects, and every kind of URL inside.
REDIRECTS = [
    (301, "https://127.0.0.1:{port}/"),
    (302, "http://127.0.0.1:{port}/"),
    (303, "https://[::ffff:127.0.0.1]:{port}/"),
    (307, "http://127.0.0.1:{port}/"),
    (308, "https://localhost:{port}/"),
]
NUMBERS = count(1)
FUNDS = 100_000


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    made = Internet(monkeypatch)
    made.point(INSIDE, ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
    made.point(CLOUD, ["169.254.169.254", "fd00:ec2::254"])
    made.point(BOTH, ["127.0.0.1", PUBLIC, "169.254.169.254"])
    made.point(CHANGING, [PUBLIC], ["127.0.0.1"])
    return made


@pytest.fixture
def server(internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Asks public addresses only; the peer `near` sends packets to it. It soon gives up, but not before an answer."""
    skip_pauses(monkeypatch)
    with run_instance(tmp_path / "payres.db", allow_private_hosts=False, ilp_address="test.here") as instance:
        timeouts = {"probe_timeout": 30 * SECOND, "idle_timeout": SECOND // 20, "close_timeout": 1}
        hurried(instance, first_pause=10 * SECOND, longest_pause=10 * SECOND, **timeouts)
        link(instance, "near", "https://near.example/ilp", incoming_token=TOKEN)
        yield instance


class Redirecting:
    """What `outside.example` answers to all that it is asked, and how often that was."""

    status, location = 307, ""
    requests = 0

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests += 1
        handler.rfile.read(int(handler.headers.get("content-length", "0")))
        reply(handler, self.status, Location=self.location)


@pytest.fixture
def outside(internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redirecting]:
    """`outside.example` at a public address, with a certificate that counts."""
    tls, answer = Tls(tmp_path), Redirecting()
    internet.point("outside.example", [PUBLIC])
    monkeypatch.setattr("payres.core.remote.http.system_tls", lambda: tls.client)
    with serving(answer, tls.server("outside.example")) as port:
        internet.reached[PUBLIC] = port
        yield answer


def forwarded(server: Instance, peer: str) -> str:
    """A packet with money, passed on for another peer."""
    reply = passed_on(server, peer, 500)
    assert reply.code == Code.PEER_UNREACHABLE
    return last_error(server, peer)


def quoted(server: Instance, peer: str) -> str:
    """The probe of a quote, which goes over a client of its own."""
    server.clock.advance(1)  # the same error is stored once a second
    before = last_error(server, peer)
    answer = quote_beyond(server, peer)
    assert (answer.status_code, answer.json()["error"]["details"]["reason"]) == (400, "no_path")
    found = last_error(server, peer)
    assert found != before
    return found


WAYS = [forwarded, quoted]  # payments leave over the link that packets are passed on over
Send = Callable[[Instance, str], str]


@pytest.mark.parametrize(("url", "sentence"), URLS.values(), ids=URLS.keys())
def test_ssrf_through_a_peer(server: Instance, internet: Internet, trap: Trap, url: str, sentence: str) -> None:
    for send in WAYS:
        peer = f"far-{next(NUMBERS)}"
        link(server, peer, f"{url.format(port=trap.port)}/ilp")
        assert sentence in send(server, peer), send
    assert (internet.connections, trap.taken) == ([], [])
    check_that_the_rest_is_well(server)


@pytest.mark.parametrize("send", WAYS)
def test_ssrf_through_a_peer_whose_name_changes(server: Instance, internet: Internet, trap: Trap, send: Send) -> None:
    """Each connection is to an address that was looked up for it and checked, never to what a second lookup gives."""
    link(server, "far", f"https://{CHANGING}:{trap.port}/ilp")
    internet.lookups.clear()
    assert "failed" in forwarded(server, "far")
    assert (internet.connections, internet.lookups[CHANGING]) == ([PUBLIC], 1)
    assert REFUSED in send(server, "far")
    assert (internet.connections, trap.taken) == ([PUBLIC], [])
    check_that_the_rest_is_well(server)


def test_ssrf_through_a_peer_that_redirects(
    outside: Redirecting, server: Instance, internet: Internet, trap: Trap
) -> None:
    link(server, "far", "https://outside.example/ilp")
    for status, location in REDIRECTS:
        outside.status, outside.location = status, location.format(port=trap.port)
        # What did not reach it would be unreachable.
        assert passed_on(server, "far", 500).code == Code.INTERNAL_ERROR
        assert passed_on(server, "far", 0).code == Code.INTERNAL_ERROR
        assert f"HTTP status {status}" in last_error(server, "far")
        assert f"HTTP status {status}" in quoted(server, "far")
    assert (set(internet.connections), trap.taken) == ({PUBLIC}, [])
    check_that_the_rest_is_well(server)


@pytest.mark.parametrize(("url", "sentence"), URLS.values(), ids=URLS.keys())
def test_ssrf_through_the_rates_service(
    internet: Internet, trap: Trap, tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str, sentence: str
) -> None:
    with asking_rates(tmp_path, f"{url.format(port=trap.port)}/rates?key=a-key") as server:
        wait_until(lambda: caplog.text.count("no exchange rates from") == 2)
        assert caplog.text.count(sentence) == 2
        assert "a-key" not in caplog.text
        assert (internet.connections, trap.taken) == ([], [])
        check_that_the_rest_is_well(server)
        answer = exchange(server)
        assert (answer.status_code, answer.json()["error"]["details"]["reason"]) == (400, "no_exchange_rate")


def asking_rates(folder: Path, url: str, **settings: Any) -> Any:
    """A server with two currencies that asks the service at the URL for rates."""
    database = folder / "rates.db"
    with closing(connect_writer(str(database))) as connection:
        for code in ("EUR", "USD"):
            asset_store.ensure_asset(connection, code, 2)
    return run_instance(database, allow_private_hosts=False, rates_url=url, **settings)


def link(server: Instance, name: str, url: str, **terms: Any) -> None:
    """Makes a peer at `test.NAME` whose packets go to the URL."""
    usual = {"url": url, "outgoing_token": "shown", "incoming_token": f"seen-{name}"}
    server.write(lambda work: add_usd_peer(work, name, "100.00", **(usual | terms)))


def passed_on(server: Instance, peer: str, value: int) -> Reject:
    """What `near` hears of its packet for somebody beyond the peer; it has no number, so it ends at once."""
    prepare = Prepare(value, server.clock.now() + 20 * SECOND, bytes(32), f"test.{peer}.receiver", b"")
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/octet-stream"}
    answer = httpx2.post(
        f"{server.base_url}/ilp", content=encode_packet(prepare), headers=headers, timeout=TIMEOUT, verify=False
    )
    reply = decode_reply(answer.content)
    assert isinstance(reply, Reject)
    return reply


def put_receiver_beyond(server: Instance, peer: str) -> None:
    """From now on every incoming payment on another server is read as one that is paid through the peer."""

    async def fetch_open(url: str, _: float) -> RemoteIncomingPayment:
        return RemoteIncomingPayment(
            url=url,
            wallet_address="https://elsewhere.example/carol",
            asset=Asset("USD", 2),
            incoming_value=None,
            received=0,
            expires_at=None,
            completed=False,
            method=Destination(f"test.{peer}.receiver", bytes(32), Asset("USD", 2)),
        )

    vars(node_of(server.context).receivers)["fetch_open"] = fetch_open


def quote_beyond(server: Instance, peer: str) -> httpx2.Response:
    """The answer to a request for a quote, for a receiver beyond the peer."""
    put_receiver_beyond(server, peer)
    answer: httpx2.Response = quote(server, "https://elsewhere.example/incoming-payments/1", debitAmount=amount(500))
    return answer


def exchange(server: Instance) -> httpx2.Response:
    """The answer to a request for a quote for a wallet in the other currency."""
    server.create_wallet("erika", asset="EUR")
    answer: httpx2.Response = quote(server, bill(server, server.wallet("erika")), debitAmount=amount(500))
    return answer


def last_error(server: Instance, peer: str) -> str:
    """What `payres peer show` tells the operator, with its time."""
    database = server.context.settings.database
    shown = CliRunner().invoke(main, ["peer", "show", peer, "--database", database]).stdout
    return "\n".join(line for line in shown.splitlines() if line.startswith("Last error "))


def check_that_the_rest_is_well(server: Instance) -> None:
    """Payments within the server are made, no money stays held, and the ledger balances."""
    assert wallet_money(server, "alice") == (FUNDS, 0)
    assert httpx2.get(f"{server.base_url}/readyz", timeout=TIMEOUT, verify=False).status_code == 200
    receiver = server.client.create_incoming_payment(server.wallet("bob"))["id"]
    server.client.pay(server.wallet("alice"), receiver, debitAmount=amount(500))
    assert (wallet_money(server, "alice"), wallet_money(server, "bob")) == ((FUNDS - 500, 0), (FUNDS + 500, 0))
    server.check_ledger()
