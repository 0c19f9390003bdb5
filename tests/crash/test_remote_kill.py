"""Two and three `payres serve` that pay each other, killed in the middle of a payment of many packets.

REMOTE_SEED replays the moments that a failure names, REMOTE_KILLS prolongs the series, REMOTE_PACKETS the payments.
Unresolved packets are asked about when they have expired. With REMOTE_KILLS set that takes its 20 seconds, else the
servers have a clock that is moved as soon as the payment only waits for it.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise, repeat
from pathlib import Path

import pytest

from payres.core.protocol.clock import SystemClock
from payres.core.store.connections import connect_writer
from tests.core.payments.test_refunds import pay_from_remote
from tests.crash.load import drawn_by
from tests.crash.serve import SharedClock, serve, serve_by
from tests.crash.server import FILES, CommandFailed, Server, check_link, make_peers
from tests.helpers import is_refused, last_segment, usd, wait_until
from tests.interledger.lossy_link import Fate, LossyLink, lossy_link
from tests.works import work_at

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
    """A payment of many packets from the first server of a row to the last."""

    def __init__(self, row: Sequence[Node]) -> None:
        self.row = row
        self.payer = row[0]
        self.payee = row[-1]
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
        for left, right in pairwise(self.row):
            assert check_link(left, right)["balance"] == f"{VALUE // 100}.{VALUE % 100:02}"
        assert all(server.command("ledger", "check")["ok"] for server in self.row)

    def _wait(self, done: Callable[[], bool]) -> None:
        def is_done_by_now() -> bool:
            with FILES:
                self._clock.skip([server.database for server in self.row])
            return done()

        # Between looks at the database the servers have the machine to themselves.
        wait_until(is_done_by_now, "the payment gets no further", seconds=PAYMENT_SECONDS, pause=0.02)


def row_of(folder: Path, names: str) -> list[Node]:
    """Running nodes in a row, each the peer of the next."""
    row = [Node(folder, name) for name in names]
    make_peers(*row, max_packet=PACKET)
    for server in row:
        server.start()
    return row


def named(row: Sequence[Node], names: str) -> list[Node]:
    return [server for server in row if server.name in names]


@pytest.mark.parametrize(
    ("names", "turns"), [("ab", ONE_OR_BOTH), ("abc", ("b",))], ids=["payer, payee, both", "middle of three"]
)
def test_kill_in_the_middle_of_a_payment_neither_loses_nor_repeats_a_packet(
    names: str, turns: tuple[str, ...], tmp_path: Path
) -> None:
    row = row_of(tmp_path, names)
    payment = Payment(row)
    payment.begin()
    killed = turns * KILLS
    with drawn_by("REMOTE_SEED") as chance:
        moments = chance.sample(range(PACKETS // 20, PACKETS * 19 // 20), len(killed))
        for moment, these in zip(sorted(moments), killed, strict=True):
            payment.wait_until_fulfilled(moment)
            for server in chance.sample(named(row, these), len(these)):
                server.kill()
            for server in named(row, these):
                server.start()
        payment.wait_until_ended()
        payment.check()


def test_kills_around_a_refund_neither_lose_nor_repeat_it(tmp_path: Path) -> None:
    """Just after the command has made it, and in the middle of its packets."""
    a, b = row = row_of(tmp_path, "ab")
    paid, other = receive_from_remote(a), receive_from_remote(a)
    words = ("payment", "refund", paid, "--to", b.till, "--reference", "r-1")
    [made] = a.command(*words)["refunds"]
    a.kill()
    a.start()
    refund = Payment(row)
    refund.wait_until_fulfilled(PACKETS // 3)
    for server in row:
        server.kill()
    [again] = a.command(*words)["refunds"]
    assert (again["id"], again["sent"]) == (made["id"], made["amount"]), "all of it counts until it has ended"
    with pytest.raises(CommandFailed, match="no server is running here"):
        a.command("payment", "refund", other, "--to", b.till, "--reference", "r-1")
    for server in row:
        server.start()
    refund.wait_until_ended()
    assert a.select("SELECT state, sent, delivered, fee FROM outgoing_payment") == [("completed", VALUE, VALUE, 0)]
    assert b.select("SELECT received FROM incoming_payment") == [(VALUE,)]
    assert (a.balance("till"), b.balance("till")) == ((DEPOSIT + VALUE, 0), (DEPOSIT + VALUE, 0))
    assert a.select("SELECT count(*) FROM event WHERE type = 'refund.completed'") == [(1,)]
    assert all(server.command("ledger", "check")["ok"] for server in row)


def receive_from_remote(node: Node) -> str:
    """The id of an incoming payment that money came into from outside."""
    with closing(node.client()) as shop:
        payment_id = last_segment(shop.create_incoming_payment(node.till, usd(VALUE))["id"])
    with closing(connect_writer(str(node.database))) as connection:
        pay_from_remote(work_at(connection, SystemClock().now()), VALUE, "till", payment_id)
    return payment_id


@pytest.fixture
def unrepeated(tmp_path: Path) -> Iterator[tuple[list[Node], LossyLink, Payment]]:
    """A payment that can begin, to a payee that looks like one that repeats no answers."""
    payer, payee = row = row_of(tmp_path, "ab")
    with lossy_link(f"{payee.base_url}/ilp", 1, numbered=False) as link:
        payer.command("peer", "change", payee.name, "--url", link.url)
        yield row, link, Payment(row)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_end_of_a_server_costs_nobody_anything_where_answers_are_not_repeated(
    number: signal.Signals, unrepeated: tuple[list[Node], LossyLink, Payment]
) -> None:
    """The payee looks like one that repeats no answers, behind a gateway that answers 502 while it is away."""
    row, _, payment = unrepeated
    payer, payee = row
    payment.begin()
    for turn, names in enumerate(ONE_OR_BOTH, 1):
        payment.wait_until_fulfilled(PACKETS * turn // (len(ONE_OR_BOTH) + 1))
        for server in named(row, names):
            server.signal(number)
            server.wait()
        for server in named(row, names):
            server.start()
    payment.wait_until_ended()
    payment.check()
    assert payer.command("peer", "show", payee.name)["repeatsAnswers"] is False


def answered_until_shut(link: LossyLink, count: int) -> Iterator[Fate]:
    """So many answers; then the link shuts its own gate."""
    yield from repeat("answered", count)
    link.gate.clear()


def test_server_that_is_stopped_leaves_no_packet_unanswered(
    unrepeated: tuple[list[Node], LossyLink, Payment],
) -> None:
    (payer, _), link, payment = unrepeated
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
