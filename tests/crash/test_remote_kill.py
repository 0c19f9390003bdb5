"""Two `payres serve`, one of which pays the other, killed and stopped in the middle of a payment of many packets.

REMOTE_SEED replays the moments that a failure names, REMOTE_KILLS prolongs the series, REMOTE_PACKETS the payments.
Unresolved packets are asked about when they have expired. With REMOTE_KILLS set that takes its 20 seconds, else the
servers have a clock that is moved as soon as the payment only waits for it.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import repeat
from pathlib import Path

import pytest

from tests.crash.load import drawn_by
from tests.crash.serve import SharedClock, serve, serve_by
from tests.crash.server import FILES, Server, check_link, make_peers
from tests.helpers import is_refused, usd, wait_until
from tests.interledger.lossy_link import Fate, LossyLink, lossy_link

KILLS = int(os.environ.get("REMOTE_KILLS", "1"))
IN_REAL_TIME = "REMOTE_KILLS" in os.environ
PACKETS = int(os.environ.get("REMOTE_PACKETS", "120"))
PACKET = 5  # cents
VALUE = PACKETS * PACKET
FEE = 10
DEPOSIT = 10_000_00
ONE_OR_BOTH = ("a", "b", "ab")
PAYMENT_SECONDS = 60 + 60 * len(ONE_OR_BOTH) * KILLS  # for a busy machine: a kill takes half of it

pytestmark = pytest.mark.timeout(PAYMENT_SECONDS + 240)


class Node(Server):
    """A server with an ILP address, a shop, and the wallet `till` with some money."""

    def __init__(self, folder: Path, name: str) -> None:
        program = serve if IN_REAL_TIME else partial(serve_by, folder / "clock")
        super().__init__(folder / name, program=program, is_node=True)
        self.till = self.wallet("till")
        self.open_wallet("till", "USD", DEPOSIT // 100)
        self.open_client("shop")
        self.command("fee", "set", "USD", "2", "--fixed", f"0.{FEE}")


class Payment:
    """A payment of many packets from a server to its peer."""

    def __init__(self, payer: Node, payee: Node) -> None:
        self.payer = payer
        self.payee = payee
        self._clock = SharedClock(self.payer.folder.parent / "clock")

    def begin(self) -> None:
        with closing(self.payee.client()) as shop:
            amount = usd(VALUE)
            receiver = shop.create_incoming_payment(self.payee.till, amount)["id"]
        with closing(self.payer.client()) as shop:
            shop.pay(self.payer.till, receiver)

    @property
    def state(self) -> str:
        ((state,),) = self.payer.select("SELECT state FROM outgoing_payment")
        return str(state)

    def wait_until_fulfilled(self, packets: int) -> None:
        """Returns when so many packets have been fulfilled, or the payment has ended."""
        query = "SELECT count(*) FROM packet WHERE state = 'fulfilled'"
        self._wait(lambda: self.payer.select(query)[0][0] >= packets or self.state != "sending")

    def wait_until_ended(self) -> None:
        self._wait(lambda: self.state != "sending")

    def check(self) -> None:
        """It was sent, delivered and received once, and every server says the same of it."""
        assert self.payer.select("SELECT state, sent - fee, delivered, fee, failure FROM outgoing_payment") == [
            ("completed", VALUE, VALUE, FEE, None)
        ]
        assert self.payee.select("SELECT received, completed_at IS NULL FROM incoming_payment") == [(VALUE, 0)]
        assert self.payer.balance("till") == (DEPOSIT - VALUE - FEE, 0)
        assert self.payee.balance("till") == (DEPOSIT + VALUE, 0)
        assert check_link(self.payer, self.payee)["balance"] == f"{VALUE // 100}.{VALUE % 100:02}"
        assert all(server.command("ledger", "check")["ok"] for server in (self.payer, self.payee))

    def _wait(self, done: Callable[[], bool]) -> None:
        def is_done_by_now() -> bool:
            with FILES:
                self._clock.skip([self.payer.database, self.payee.database])
            return done()

        # Between looks at the database the servers have the machine to themselves.
        wait_until(is_done_by_now, "the payment gets no further", seconds=PAYMENT_SECONDS, pause=0.02)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Node, Node]:
    """Two running nodes, each the peer of the other."""
    a, b = (Node(tmp_path, name) for name in "ab")
    make_peers(a, b, max_packet=PACKET)
    for server in (a, b):
        server.start()
    return a, b


def named(pair: Sequence[Node], names: str) -> list[Node]:
    return [server for server in pair if server.name in names]


def test_kill_in_the_middle_of_a_payment_neither_loses_nor_repeats_a_packet(pair: tuple[Node, Node]) -> None:
    payment = Payment(*pair)
    payment.begin()
    killed = ONE_OR_BOTH * KILLS
    with drawn_by("REMOTE_SEED") as chance:
        moments = chance.sample(range(PACKETS // 20, PACKETS * 19 // 20), len(killed))
        for moment, these in zip(sorted(moments), killed, strict=True):
            payment.wait_until_fulfilled(moment)
            for server in chance.sample(named(pair, these), len(these)):
                server.kill()
            for server in named(pair, these):
                server.start()
        payment.wait_until_ended()
        payment.check()


def answered_until_shut(link: LossyLink, count: int) -> Iterator[Fate]:
    """So many answers; then the link shuts its own gate."""
    yield from repeat("answered", count)
    link.gate.clear()


def test_server_that_is_stopped_leaves_no_packet_unanswered(pair: tuple[Node, Node]) -> None:
    """Also where the payee looks like one that repeats no answers."""
    payer, payee = pair
    payment = Payment(payer, payee)
    with lossy_link(f"{payee.base_url}/ilp") as link:
        payer.command("peer", "change", payee.name, "--url", link.url)
        link.script = answered_until_shut(link, PACKETS // 6)  # with what may be on its way beside, far from all
        payment.begin()
        wait_until(lambda: link.open and not link.gate.is_set())
        payer.signal(signal.SIGTERM)
        wait_until(lambda: is_refused(payer.port))
        link.gate.set()
        assert payer.wait() == 0
        assert payment.state == "sending"
        assert payer.select("SELECT count(*) FROM packet WHERE state = 'prepared'") == [(0,)]
        payer.start()
        payment.wait_until_ended()
        payment.check()
