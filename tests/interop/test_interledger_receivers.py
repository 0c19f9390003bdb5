"""Our wallets pay the receivers from npm, both versions, over links that have every trouble a link can have.

What was quoted for is sent through the whole server: quote and outgoing payment by HTTP, to a receiver that another
Open Payments server describes. Trouble begins after the quote.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from payres.core.store.outgoing_payments import OutgoingRecord
from payres.interledger.node import node_of
from payres.interledger.remote_payments import Backoff
from payres.interledger.store.peers import PeerRecord
from tests.helpers import Json, amount, wait_until
from tests.interledger.network import Waits
from tests.interop.conftest import OpenReceiver
from tests.interop.node import Node, mark, run_node
from tests.interop.open_payments_server import OpenPaymentsServer, run_open_payments_server

DEPOSIT = 1_000_000
VERSIONS = ("alpha3", "alpha4")
BOTH = pytest.mark.parametrize("version", VERSIONS)

Begin = Callable[..., "Case"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Another than that of the other programs: its clock is moved."""
    with run_node(tmp_path_factory.mktemp("paying") / "payres.db") as node:
        yield node


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[OpenPaymentsServer]:
    with run_open_payments_server() as server:
        yield server


class Case(msgspec.Struct):
    """A wallet of the node, the receiver that it pays, and the peer by which that is reached."""

    node: Node
    receiver: Any
    wallet: str
    url: str
    peer_name: str
    waits: Waits
    quote: Json = {}
    payment: Json = {}

    @property
    def peer(self) -> PeerRecord:
        return self.node.peer(self.peer_name)

    def ask(self, **amounts: Json) -> "Case":
        """Quotes; amounts are those of the quote request."""
        self.quote = self.node.instance.client.create_quote(self.wallet, self.url, **amounts)
        return self

    def pay(self) -> "Case":
        """Pays what was quoted; the payment is then under way."""
        self.payment = self.node.instance.client.create_outgoing_payment(self.wallet, self.quote["id"])
        return self

    def pay_in_time(self) -> "Case":
        """Pays; time passes whenever the payment only waits, since packets that were lost have to expire first."""
        self.pay()
        self.waits.end((self.node.instance,), self.payment, seconds=30)
        return self

    def ended(self, state: str) -> OutgoingRecord:
        """The payment, which has ended in that state; nothing of it is left reserved, and the ledger balances."""
        ended = self.node.ended(self.payment)
        assert ended.state == state, ended
        read = self.node.read(self.payment)
        assert int(read["sentAmount"]["value"]) == ended.sent == DEPOSIT - self.node.balance(self.wallet)
        assert read["failed"] is (state == "failed")
        assert ended.sent <= ended.terms.debit
        self.node.instance.check_ledger()
        return ended

    def check_totals(self, state: str = "completed") -> OutgoingRecord:
        """Both sides have counted the same."""
        ended = self.ended(state)
        total = self.receiver.total()
        assert (total["received"], total["packets"]) == (ended.delivered, self.peer.packets_sent)
        if self.peer.asset_code == "USD":
            assert self.peer.balance == ended.sent
        return ended


@pytest.fixture
def begin(
    node: Node, elsewhere: OpenPaymentsServer, open_receiver: OpenReceiver, monkeypatch: pytest.MonkeyPatch
) -> Begin:
    """Opens a receiver with these settings as a peer, and a wallet to pay it from."""
    waits = Waits(monkeypatch)

    def begin(version: str, wanted: int | None = None, wallet: str = "USD", peer: str = "USD", **settings: Any) -> Case:
        name = mark()
        receiver = open_receiver(version=version, address=f"test.{name}", token=f"token-{name}", **settings)
        node.add_peer(name, receiver.url, asset=peer, token=f"token-{name}")
        asset = settings.get("asset", {"code": "USD", "scale": 2})
        return Case(
            node,
            receiver,
            node.open_wallet(wallet, f"{DEPOSIT // 100}.00"),
            elsewhere.add(receiver, asset, wanted),
            name,
            waits,
        )

    return begin


@BOTH
def test_fixed_send(begin: Begin, version: str) -> None:
    case = begin(version).ask(debitAmount=amount(10_000))
    assert case.quote["receiveAmount"] == amount(9_900)
    ended = case.pay().check_totals()
    assert (ended.sent, ended.delivered, case.peer.packets_sent) == (10_000, 10_000, 1)


@BOTH
def test_fixed_delivery(begin: Begin, version: str) -> None:
    case = begin(version).ask(receiveAmount=amount(5_001))
    ended = case.pay().check_totals()
    assert (ended.sent, ended.delivered, case.peer.packets_sent) == (5_001, 5_001, 1)


@BOTH
@pytest.mark.parametrize(("told", "packets"), [(True, 13), (False, 100)])
def test_packets_as_large_as_the_path_takes(begin: Begin, version: str, told: bool, packets: int) -> None:
    case = begin(version, wanted=10_000, maxPacket=777, tellMaxPacket=told).ask()
    ended = case.pay().check_totals()
    assert (ended.sent, ended.delivered, case.peer.packets_sent) == (10_000, 10_000, packets)
    assert case.node.read(case.payment)["receiveAmount"] == amount(10_000)


@BOTH
@pytest.mark.parametrize(
    ("settings", "peer"),
    [
        ({"asset": {"code": "EUR", "scale": 2}, "rate": [92, 100]}, "USD"),  # the peer exchanges
        ({"asset": {"code": "EUR", "scale": 2}}, "EUR"),  # we do
    ],
)
def test_another_currency(begin: Begin, version: str, settings: Json, peer: str) -> None:
    case = begin(version, peer=peer, maxPacket=997, **settings).ask(debitAmount=amount(10_000))
    ended = case.pay().check_totals()
    assert ended.sent == 10_000
    assert 9_200 - case.peer.packets_sent <= ended.delivered <= 9_200
    assert case.peer.balance == (10_000 if peer == "USD" else ended.delivered)
    more = begin(version, peer=peer, wanted=4_321, maxPacket=997, **settings).ask()
    assert more.pay().check_totals().delivered >= 4_321


@BOTH
@pytest.mark.parametrize(
    ("trouble", "seed"),
    [({"t00": 0.1}, 1), ({"t00": 0.1}, 2), ({"http500": 0.1}, 3), ({"http500": 0.1}, 4), ({"latency": 200}, 5)],
)
def test_passing_trouble(begin: Begin, version: str, trouble: Json, seed: int) -> None:
    case = begin(version, wanted=10_000, maxPacket=600, seed=seed).ask()
    case.receiver.change(**trouble)
    before = case.receiver.total()["requests"]
    ended = case.pay_in_time().check_totals()
    assert (ended.sent, ended.delivered, case.peer.packets_sent) == (10_000, 10_000, 17)
    repeated = case.receiver.total()["requests"] - before - 17
    assert repeated > 0 or "latency" in trouble


@BOTH
def test_receiver_that_closes(begin: Begin, version: str) -> None:
    case = begin(version, wanted=10_000, maxPacket=1_000).ask()
    case.receiver.change(closeAfter=3)
    ended = case.pay().check_totals("failed")
    assert (ended.sent, ended.delivered) == (3_000, 3_000)
    assert ended.failure is not None
    assert "closed the connection" in ended.failure


@pytest.mark.parametrize(
    ("version", "currency", "wanted", "close_after", "cost"),
    [
        ("alpha3", {}, 10_000, 3, 10_000),
        # What is left are 13 units, so few that rounding takes more of them than the minimum rate leaves.
        ("alpha4", {"asset": {"code": "EUR", "scale": 2}, "rate": [92, 100]}, 12 * 1_342 + 13, 12, 12 * 1_459 + 15),
    ],
)
def test_receiver_that_opens_again(
    begin: Begin,
    node: Node,
    version: str,
    currency: Json,
    wanted: int,
    close_after: int,
    cost: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = begin(version, wanted=wanted, maxPacket=1_459, **currency).ask()
    case.receiver.change(closeAfter=close_after)
    payments = node_of(node.instance.context).payments
    monkeypatch.setattr(payments, "backoff", Backoff(after_failure=0.5))
    one_by_one = msgspec.structs.replace(payments.outbound.timing, largest_round=1)  # so that the smallest comes last
    monkeypatch.setattr(payments.outbound, "timing", one_by_one)
    case.pay()
    wait_until(lambda: case.receiver.total()["packets"] == close_after)
    case.receiver.change(closeAfter=None)
    ended = case.check_totals()
    assert (ended.sent, ended.delivered) == (cost, wanted)


@BOTH
@pytest.mark.parametrize("fixed", ["debitAmount", "receiveAmount"])
def test_rate_that_moves_too_far(begin: Begin, version: str, fixed: str) -> None:
    case = begin(version, maxPacket=1_000).ask(**{fixed: amount(10_000)})
    case.receiver.change(rateAfter={"packets": 3, "rate": [98, 100]})
    ended = case.pay().check_totals("failed")
    assert (ended.sent, ended.delivered) == (3_000, 3_000)


@BOTH
def test_rate_that_moves_a_little(begin: Begin, version: str) -> None:
    case = begin(version, maxPacket=1_000).ask(debitAmount=amount(10_000))
    case.receiver.change(rateAfter={"packets": 5, "rate": [995, 1000]})
    ended = case.pay().check_totals()
    assert (ended.sent, ended.delivered) == (10_000, 9_975)


@BOTH
@pytest.mark.parametrize("kind", ["debitAmount", "incomingAmount"])
def test_lost_answers_cost_nothing_where_they_are_not_repeated(begin: Begin, version: str, kind: str) -> None:
    wanted = 10_000 if kind == "incomingAmount" else None
    case = begin(version, wanted, maxPacket=400, seed=7).ask(**({} if wanted else {"debitAmount": amount(10_000)}))
    case.receiver.change(drop=0.2)
    ended = case.pay_in_time().check_totals()
    assert (ended.sent, ended.delivered) == (10_000, 10_000)
    assert case.peer.last_error is not None


@BOTH
def test_lost_answers_are_asked_for_again(begin: Begin, version: str) -> None:
    case = begin(version, wanted=10_000, maxPacket=400, seed=3, repeats=True).ask()
    case.receiver.change(drop=0.2)
    ended = case.pay_in_time().check_totals()
    assert (ended.sent, ended.delivered) == (10_000, 10_000)
    assert case.peer.last_error is not None
