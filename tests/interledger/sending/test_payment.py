"""Payments over paths that reject, lose, hang, close or lie, and what the result then says."""

import asyncio
from collections.abc import Callable
from fractions import Fraction

import pytest
from msgspec.structs import replace

from payres.core.protocol.amounts import MAX_LEDGER, MAX_VALUE, Asset, ProbedPath
from payres.core.protocol.clock import SECOND
from payres.interledger.packets import (
    MAX_QUOTED,
    Code,
    Fulfill,
    Outcome,
    Prepare,
    Reject,
    Reply,
    Unanswered,
    too_large_data,
)
from payres.interledger.sending.connection import Answer, Destination, StreamConnection, close, stop_reason
from payres.interledger.sending.payment import Plan, Progress, Result, pay
from payres.interledger.sending.timing import monotonic
from payres.interledger.stream import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    Frame,
    PacketType,
    SharedSecret,
    StreamClose,
    StreamMaxMoney,
    StreamPacket,
)
from tests.interledger.sending.simulated_path import (
    ADDRESS,
    CONNECTOR,
    SECRET,
    TIMING,
    Receiver,
    SimulatedPath,
    TwoExchanges,
    connect,
    run,
)

EXACT = ProbedPath(Fraction(1), Fraction(10**12 + 1, 10**12), MAX_VALUE)
RATE = Fraction(99, 100)
T04 = Reject(Code.INSUFFICIENT_LIQUIDITY, CONNECTOR)
LOST = Unanswered("no answer")
FALLEN = "The path no longer delivers the minimum exchange rate of the payment."
LOST_TO_ROUNDING = "Rounding on the path takes more of what is left than may be lost."


class Scripted(SimulatedPath):
    """A path on which each packet has its own fate: `fates` are taken by the packets in order, then all goes well."""

    def __init__(self, *fates: Reject | Unanswered | None, max_packet: int | None = None, delay: float = 0) -> None:
        super().__init__(Fraction(1), max_packet, delay=delay)
        self.fates = list(fates)

    def on_the_way(self, prepare: Prepare) -> Reject | None:
        fate = self.fates.pop(0) if self.fates else None
        self.fate = fate
        return fate if isinstance(fate, Reject) else super().on_the_way(prepare)

    def on_the_way_back(self, reply: Reply) -> Outcome:
        return self.fate if isinstance(self.fate, Unanswered) else reply


def plan(amount: int, max_packet: int = MAX_VALUE, *, sends_all: bool = True) -> Plan:
    path = ProbedPath(EXACT.low, EXACT.high, max_packet)
    return Plan(amount if sends_all else amount * 2, amount * 99 // 100 if sends_all else amount, RATE, path, sends_all)


def pay_over(path: SimulatedPath, planned: Plan) -> tuple[Result, int]:
    """The result and the time it took."""

    async def timed() -> tuple[Result, int]:
        began = monotonic()
        return await pay(connect(path), Progress(planned)), monotonic() - began

    return run(timed())


def said(result: Result) -> str:
    return result.failure.sentence if result.failure else ""


@pytest.mark.parametrize(
    "code",
    [
        Code.APPLICATION_ERROR,
        Code.WRONG_CONDITION,
        Code.INSUFFICIENT_DESTINATION_AMOUNT,
        Code.INSUFFICIENT_SOURCE_AMOUNT,
        Code.AMOUNT_TOO_LARGE,
        Code.INTERNAL_ERROR,
        Code.INSUFFICIENT_LIQUIDITY,
        "T42",
    ],
)
def test_rejected_amount_is_sent_again(code: str) -> None:
    result, _ = pay_over(Scripted(None, Reject(code, CONNECTOR), max_packet=500), plan(1000, 500))
    assert result == Result(1000, 1000, 0, None)


@pytest.mark.parametrize("code", ["F00", "F01", "F02", "F03", "F06", "F07", "R00", "R02", "R99", "X99"])
def test_final_code_ends_the_payment_when_what_is_under_way_has_arrived(code: str) -> None:
    path = Scripted(None, Reject(code, CONNECTOR, "no\nway"), delay=0.06)
    result, _ = pay_over(path, plan(10_000, 100))
    assert result.failure
    assert result.failure.retryable
    assert said(result) == f"The payment was refused with {code} from test.connector ('no\\nway')."
    assert result.sent == result.delivered == path.receiver.received == 400
    assert len(path.log) == 5, "the rounds of one packet and of four"


@pytest.mark.parametrize(
    ("told", "amounts"), [(True, [1000, 300, 300, 300, 100]), (False, [1000, *[100] * 10])], ids=["told", "untold"]
)
def test_smaller_maximum_on_the_way_is_obeyed(told: bool, amounts: list[int]) -> None:
    path = SimulatedPath(max_packet=300, told=told)
    result, _ = pay_over(path, plan(1000))
    assert result == Result(1000, 1000, 0, None)
    assert [entry.prepare.amount for entry in path.log] == amounts


def test_path_that_takes_nothing_at_all_ends_the_payment() -> None:
    result, _ = pay_over(Scripted(Reject(Code.AMOUNT_TOO_LARGE, data=too_large_data(5, 0))), plan(1000))
    assert (said(result), result.sent) == ("A connector on the path takes no packet, however small.", 0)


def test_rounds_grow_to_twenty_and_are_halved_by_congestion() -> None:
    path = Scripted(*[None] * 41, T04, *[None] * 19, T04, delay=1)
    pay_over(path, plan(100_000, 1000))
    times = [entry.at for entry in path.log]
    assert [times.count(time) for time in sorted(set(times))] == [1, 4, 16, 20, 20, 10, 5, 20, 6]


def test_two_thousand_packets_take_a_little_more_than_ten_seconds() -> None:
    path = SimulatedPath(max_packet=100, delay=0.02)
    result, took = pay_over(path, plan(200_000, 100))
    assert (result.sent, result.failure) == (200_000, None)
    assert 9 * SECOND < took <= 11 * SECOND, "no more than 200 a second"
    assert path.most_packets <= 20


@pytest.mark.parametrize("sends_all", [True, False])
def test_lost_packet_is_not_replaced(sends_all: bool) -> None:
    path = Scripted(None, LOST, max_packet=300)
    result, _ = pay_over(path, plan(1000, 300, sends_all=sends_all))
    assert (result.sent, result.delivered, result.unresolved, result.failure) == (700, 700, 300, None)
    assert path.receiver.received == 1000


def test_payment_gives_up_ten_seconds_after_the_last_packet_that_arrived() -> None:
    path = Scripted(None, *[T04] * 2000)
    result, took = pay_over(path, plan(1000, 100))
    assert (said(result), result.sent) == (
        "Nothing has arrived for 10 seconds; the last answer was T04 from test.connector.",
        100,
    )
    assert 10 * SECOND <= took <= 11 * SECOND
    assert len(path.log) < 30, "each congestion doubles the pause"


def test_payment_of_which_nothing_passes_for_lack_of_money_ends_after_two_seconds_unless_it_has_begun() -> None:
    path = Scripted(*[T04] * 2000)
    result, took = pay_over(path, plan(1000, 100))
    assert (said(result), result.sent) == (
        "The path cannot take so much now; the last answer was T04 from test.connector.",
        0,
    )
    assert result.failure
    assert not result.failure.retryable
    assert 2 * SECOND <= took <= 3 * SECOND
    result, took = pay_over(Scripted(*[T04] * 2000), replace(plan(1000, 100), is_begun=True))
    assert result.failure
    assert result.failure.retryable
    assert 10 * SECOND <= took <= 11 * SECOND
    result, _ = pay_over(Scripted(*[T04] * 5), plan(1000, 100))
    assert result == Result(1000, 1000, 0, None), "a lack that passes"


@pytest.mark.parametrize(
    ("frame", "expected", "retryable"),
    [
        (ConnectionClose(3, "later"), "closed the connection with code 3: 'later'", True),
        (StreamClose(1, 1, ""), "closed the connection with code 1", True),
        (StreamClose(3, 1, ""), None, False),
        (ConnectionAssetDetails("EUR", 2), "counts in 'EUR' with scale 2, not in USD with scale 2", False),
        (ConnectionAssetDetails("USD", 9), "counts in 'USD' with scale 9, not in USD with scale 2", False),
        (ConnectionAssetDetails("USD", 2), None, False),
        (StreamMaxMoney(1, 989, 0), "takes 989 units at most, less than the 990 to be delivered", False),
        (StreamMaxMoney(1, 990, 0), None, False),
        (StreamMaxMoney(3, 1, 0), None, False),
    ],
)
def test_frames_of_the_receiver(frame: Frame, expected: str | None, retryable: bool) -> None:
    path = SimulatedPath(receiver=Receiver(frames=(frame,)))
    result, _ = pay_over(path, plan(1000, 500))
    assert said(result) == (f"The receiver {expected}." if expected else "")
    assert result.failure is None or result.failure.retryable == retryable
    assert result.sent == result.delivered == (500 if expected else 1000)


@pytest.mark.parametrize(("amount", "promised", "minimum"), [(50, 49, 49), (50, 48, 49), (50, 50, 50), (1, 0, 0)])
def test_last_packet_may_deliver_a_unit_less_if_the_promise_is_kept(amount: int, promised: int, minimum: int) -> None:
    path = SimulatedPath()
    pay_over(path, Plan(amount, promised, RATE, EXACT, sends_all=True))
    assert [entry.stream.prepare_amount for entry in path.log] == [minimum]


@pytest.mark.parametrize(("promised", "minimum"), [(992, 396), (998, 398)])
def test_last_packet_delivers_what_the_others_lack_of_the_promise(promised: int, minimum: int) -> None:
    path = SimulatedPath(max_packet=600)
    pay_over(path, Plan(1000, promised, RATE, ProbedPath(EXACT.low, EXACT.high, 600), sends_all=True))
    assert [entry.stream.prepare_amount for entry in path.log] == [594, minimum]


def test_last_packet_with_others_unresolved_may_not_deliver_less() -> None:
    path = Scripted(T04, LOST, max_packet=50)
    pay_over(path, Plan(100, 98, RATE, ProbedPath(EXACT.low, EXACT.high, 50), sends_all=True))
    assert [(entry.prepare.amount, entry.stream.prepare_amount) for entry in path.log] == [(50, 50)] * 3


def test_last_packet_that_cannot_keep_the_promise_is_not_sent() -> None:
    class Falling(SimulatedPath):
        def rate(self) -> Fraction:
            return RATE if not self.log else Fraction(1)

    path = Falling(max_packet=600)
    result, _ = pay_over(path, Plan(1000, 995, RATE, ProbedPath(EXACT.low, EXACT.high, 600), sends_all=True))
    assert (result.sent, result.failure is None, len(path.log)) == (600, False, 1)


def test_rest_that_no_packet_could_deliver_is_shared_with_the_packet_before() -> None:
    path = SimulatedPath(Fraction(1, 3), max_packet=66)
    bounds = ProbedPath(Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**6), 66)
    pay_over(path, Plan(200, 60, Fraction(3, 10), bounds, sends_all=True))
    assert [entry.prepare.amount for entry in path.log] == [66, 66, 34, 34]


@pytest.mark.parametrize("sends_all", [True, False])
def test_receiver_that_closes_with_the_last_packet_has_been_paid(sends_all: bool) -> None:
    class Closing(Receiver):
        def _say(self, packet: StreamPacket, kind: PacketType, arrived: int, frames: tuple[Frame, ...]) -> bytes:
            return super()._say(packet, kind, arrived, frames if kind == PacketType.FULFILL else ())

    path = SimulatedPath(receiver=Closing(frames=(ConnectionClose(),)))
    assert pay_over(path, plan(1000, sends_all=sends_all))[0] == Result(1000, 1000, 0, None)


@pytest.mark.parametrize(
    "words",
    [
        None,
        StreamPacket(0, PacketType.FULFILL, 494),
        StreamPacket(0, PacketType.REJECT, 500),
        StreamPacket(1, PacketType.FULFILL, 500),
    ],
    ids=["no words", "too little", "a reject", "another packet"],
)
def test_fulfill_without_the_right_words_counts_and_ends_the_payment(words: StreamPacket | None) -> None:
    class Garbling(SimulatedPath):
        def on_the_way_back(self, reply: Reply) -> Outcome:
            assert isinstance(reply, Fulfill)
            return Fulfill(reply.fulfillment, self.receiver.secret.encrypt_packet(words) if words else b"")

    path = Garbling()
    result, _ = pay_over(path, plan(1000, 500))
    assert said(result) == "The receiver has taken a packet without saying that enough of it has arrived."
    assert (result.sent, result.delivered, path.delivered) == (500, 495, 495), "the minimum of the packet"


def test_rate_that_falls_below_the_minimum_ends_the_payment() -> None:
    class Falling(SimulatedPath):
        def rate(self) -> Fraction:
            return Fraction(1) if len(self.log) < 3 else Fraction(98, 100)

    path = Falling()
    result, _ = pay_over(path, plan(1000, 100))
    assert (said(result), result.sent, result.delivered) == (FALLEN, 300, 300)
    assert len(path.log) <= 5, "the receiver's words tell at once"


def test_rest_that_rounding_takes_is_no_failure_once_the_promise_is_kept() -> None:
    # Ten packets of a whole unit, and half a unit that no packet can deliver.
    path = SimulatedPath(Fraction(1, 10), max_packet=10)
    planned = Plan(105, 9, Fraction(99, 1000), ProbedPath(Fraction(1, 10), Fraction(2, 10), 10), sends_all=True)
    result, _ = pay_over(path, planned)
    assert (result.sent, result.delivered, result.failure) == (100, 10, None)


def test_error_of_the_outbound_is_raised_after_the_other_packets() -> None:
    class Broken(SimulatedPath):
        is_broken = False

        async def transit(self, prepare: Prepare) -> None:
            if self.log and not self.is_broken:
                self.is_broken = True
                raise OSError("the disk is full")
            await asyncio.sleep(0.2)

    path = Broken()
    with pytest.raises(OSError, match="the disk is full"):
        pay_over(path, plan(100_000, 100))
    assert path.packets == 0
    assert path.fulfilled == 400, "the first, and the other three of its round"


def test_cancelled_payment_stops_at_once() -> None:
    path = SimulatedPath(delay=5)

    async def cancel() -> int:
        task = asyncio.create_task(pay(connect(path), Progress(plan(10_000, 100))))
        await asyncio.sleep(6)
        assert path.packets == 4
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return monotonic()

    assert run(cancel()) == 6 * SECOND
    assert path.packets == 0


def test_plan_with_nothing_left_is_done() -> None:
    path = SimulatedPath()
    nothing = Plan(0, 0, RATE, EXACT, sends_all=True)
    assert pay_over(path, nothing)[0] == Result(0, 0, 0, None)
    enough = Plan(100, 0, RATE, EXACT, sends_all=False)
    assert pay_over(path, enough)[0] == Result(0, 0, 0, None)
    assert path.log == []


def test_delivery_that_costs_more_than_is_left_says_so() -> None:
    result, _ = pay_over(SimulatedPath(), Plan(900, 1000, RATE, EXACT, sends_all=False))
    assert (result.sent, result.delivered) == (900, 900)
    assert said(result) == "All that may be spent is spent, and 900 of 1000 have arrived."


def deliver_over(path: SimulatedPath, amount: int, max_packet: int, budget: int) -> Result:
    """A fixed delivery at a rate of 1.472, of which a hundredth may be lost."""
    bounds = ProbedPath(Fraction(1472, 1000), Fraction(1472, 1000) + Fraction(1, 10**9), max_packet)
    return pay_over(path, Plan(budget, amount, Fraction(amount, budget), bounds, sends_all=False))[0]


@pytest.mark.parametrize(
    ("amount", "max_packet", "budget", "sent"),
    [
        (3, MAX_VALUE, 3, 3),
        (50, MAX_VALUE, 35, 35),  # 34 would deliver 49, and the last one nothing
        (100, MAX_VALUE, 69, 69),
        (1000, MAX_VALUE, 687, 680),
        (1000, 100, 687, 681),
        (1011, 100, 694, 689),
        (942, 50, 647, 646),  # the last packet is of two units, since nothing arrives of one
    ],
)
def test_delivery_is_whole_although_every_connector_rounds(
    amount: int, max_packet: int, budget: int, sent: int
) -> None:
    result = deliver_over(TwoExchanges(max_packet=max_packet), amount, max_packet, budget)
    assert (result.failure, result.sent) == (None, sent)
    assert amount <= result.delivered <= amount + 1


@pytest.mark.parametrize(("amount", "budget"), [(2, 2), (7, 5), (20, 14)])
def test_delivery_that_would_not_be_whole_costs_nothing(amount: int, budget: int) -> None:
    result = deliver_over(TwoExchanges(), amount, MAX_VALUE, budget)
    assert (said(result), result.sent) == (LOST_TO_ROUNDING, 0)


def test_last_packet_asks_for_what_is_missing_where_a_unit_is_worth_many() -> None:
    path = SimulatedPath(Fraction(92, 10), max_packet=7)
    bounds = ProbedPath(Fraction(92, 10), Fraction(92, 10) + Fraction(1, 10**9), 7)
    result, _ = pay_over(path, Plan(165, 1500, Fraction(1500, 165), bounds, sends_all=False))
    assert (result.sent, result.delivered, result.failure) == (165, 1508, None)
    assert path.log[-1].stream.prepare_amount == 28, "what arrives beyond that, the receiver takes as rounding"


# One connection: what its packets say, and which answers it believes


LIMITS = (ConnectionMaxStreamId(1), ConnectionMaxData(0))
USD = Asset("USD", 2)
secret = SharedSecret(SECRET)


class CoarseLink(SimulatedPath):
    """A hundredth of the sender's units to one of a link, and 55 of those to a hundredth of a unit of the receiver."""

    def exchanged(self, amount: int) -> int:
        return amount * 55 // 10_000 * 100 // 55

    def on_the_way(self, prepare: Prepare) -> Reject | None:
        if prepare.amount and not prepare.amount * 55 // 10_000:
            return Reject(Code.INSUFFICIENT_SOURCE_AMOUNT, CONNECTOR)
        return super().on_the_way(prepare)


def test_small_delivery_costs_its_price_or_nothing() -> None:
    """The price is what the quote has found out by asking the path."""
    path = CoarseLink()
    bounds = ProbedPath(Fraction(1, 100), Fraction(1, 100) + Fraction(1, 10**9), MAX_VALUE)
    result, _ = pay_over(path, Plan(1111, 10, Fraction(10, 1111), bounds, sends_all=False))
    assert (result.sent, result.delivered, result.failure) == (1111, 10, None)
    path = CoarseLink()
    result, _ = pay_over(path, Plan(1090, 10, Fraction(10, 1090), bounds, sends_all=False))
    assert (result.sent, said(result)) == (0, LOST_TO_ROUNDING)
    assert len(path.log) <= 3


class CoarserLink(SimulatedPath):
    """5,000 of the sender's units to one of a link, and as many of the receiver's."""

    def exchanged(self, amount: int) -> int:
        return amount // 5000 * 5000

    def on_the_way(self, prepare: Prepare) -> Reject | None:
        if 0 < prepare.amount < 5000:
            return Reject(Code.INSUFFICIENT_SOURCE_AMOUNT, CONNECTOR)
        return super().on_the_way(prepare)


def test_delivery_below_a_unit_of_a_link_is_tried_with_more_until_it_passes() -> None:
    path = CoarserLink()
    result, _ = pay_over(path, Plan(6000, 4000, Fraction(4, 6), EXACT, sends_all=False))
    assert [entry.prepare.amount for entry in path.log] == [4000, 4501, 5064, 5064]
    assert (result.sent, result.delivered, result.failure) == (5064, 5000, None)


class Canned:
    """Answers each packet with what a test makes of it."""

    def __init__(self, answer: Callable[[StreamPacket], Outcome]) -> None:
        self.answer = answer
        self.claimed: list[int] = []

    async def ask(self, prepare: Prepare) -> Outcome:
        return self.answer(secret.decrypt_packet(prepare.data))

    async def pay(self, prepare: Prepare, minimum: int, delivered: Callable[[Fulfill], int]) -> Outcome:
        outcome = await self.ask(prepare)
        if isinstance(outcome, Fulfill):
            self.claimed.append(delivered(outcome))
        return outcome


def say(sequence: int, kind: int, amount: int) -> bytes:
    return secret.encrypt_packet(StreamPacket(sequence, kind, amount))


def test_close_tells_the_receiver_and_waits_only_so_long() -> None:
    path = SimulatedPath()
    run(close(connect(path)))
    assert path.log[0].stream.frames == (*LIMITS, ConnectionClose())
    assert path.log[0].prepare.amount == 0
    run(close(connect(SimulatedPath(delay=60))))


@pytest.mark.parametrize("said", [(), (ConnectionMaxData(0),)])
def test_receiver_that_speaks_of_the_connection_keeps_it(said: tuple[ConnectionMaxData, ...]) -> None:
    connection = connect(SimulatedPath(receiver=Receiver(frames=said)))
    run(connection.pay(1000, 990))
    assert connection.is_kept == bool(said)


@pytest.mark.parametrize(
    ("answer", "arrived"),
    [
        (lambda packet: Fulfill(b"f" * 32, say(packet.sequence, 13, 995)), 995),
        (lambda packet: Fulfill(b"f" * 32, say(packet.sequence, 14, 995)), 0),
        (lambda packet: Fulfill(b"f" * 32, say(packet.sequence + 1, 13, 995)), 0),
        (lambda packet: Fulfill(b"f" * 32, b"noise"), 0),
        (lambda packet: Reject("F99", data=say(packet.sequence, 14, 995)), 995),
        (lambda packet: Reject("F99", data=say(packet.sequence, 13, 995)), 995),
        (lambda packet: Reject("F99", data=say(packet.sequence, 12, 995)), 0),
        (lambda packet: Reject("F99", data=say(packet.sequence + 1, 14, 995)), 0),
        (lambda packet: Reject("F99", data=b""), 0),
        (lambda packet: Unanswered("no answer"), 0),
    ],
)
def test_answers_are_believed_when_the_receiver_answers_this_packet(
    answer: Callable[[StreamPacket], Outcome], arrived: int
) -> None:
    outbound = Canned(answer)
    got = run(StreamConnection(outbound, Destination(ADDRESS, SECRET, USD), TIMING).pay(1000, 990))
    assert got.arrived == arrived
    assert outbound.claimed == ([max(arrived, 990)] if isinstance(got.outcome, Fulfill) else [])


@pytest.mark.parametrize(("claim", "read"), [(5, 990), (2**64 - 1, MAX_LEDGER)])
def test_claim_is_read_within_the_minimum_and_the_largest_figure_of_the_ledger(claim: int, read: int) -> None:
    outbound = Canned(lambda packet: Fulfill(b"f" * 32, say(packet.sequence, 13, claim)))
    run(StreamConnection(outbound, Destination(ADDRESS, SECRET, USD), TIMING).pay(1000, 990))
    assert outbound.claimed == [read]


@pytest.mark.parametrize(
    ("code", "data", "found"),
    [
        ("F08", too_large_data(1000, 300), 300),
        ("F08", too_large_data(500, 150), 300),  # in the connector's units
        ("F08", too_large_data(3, 2), 666),
        ("F08", too_large_data(2**64 - 1, 2**63), 500),
        ("F08", too_large_data(1000, 0), 0),
        ("F08", b"", 100),
        ("F08", b"\0" * 15, 100),
        ("F08", too_large_data(4, 5), 100),
        ("F08", too_large_data(0, 0), 100),
        ("T04", too_large_data(1000, 300), None),
    ],
)
def test_smaller_amount_after_one_that_was_too_large(code: str, data: bytes, found: int | None) -> None:
    assert Answer(Reject(code, data=data)).smaller(1000) == found
    if not data:
        assert [Answer(Reject(code)).smaller(amount) for amount in (9, 2, 1)] == [1, 1, 0]


def test_sentences_quote_peers_cut_and_escaped() -> None:
    reject = Reject("F00", "test." + "a" * 1000, "\x1b[31mred\r\n" + "x" * 5000)
    sentence = str(reject)
    assert sentence.isprintable()
    assert len(sentence) < 3 * MAX_QUOTED
    closed = Reject(Code.APPLICATION_ERROR)
    frames = (ConnectionClose(9, "\n" * 5000),)
    failure = stop_reason(Answer(closed, StreamPacket(0, PacketType.REJECT, 0, frames)), 1, USD)
    assert failure
    assert failure.sentence.isprintable()
    assert len(failure.sentence) < 5 * MAX_QUOTED
