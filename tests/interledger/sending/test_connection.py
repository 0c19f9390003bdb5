"""One connection: what its packets say, and which answers it believes."""

from collections.abc import Callable

import pytest

from payres.amounts import MAX_LEDGER, Asset
from payres.interledger.packets import Code, Fulfill, Outcome, Prepare, Reject, Unanswered, too_large_data
from payres.interledger.sending.connection import (
    MAX_QUOTED,
    Answer,
    Connection,
    Destination,
    close,
    describe,
    failure_of,
)
from payres.interledger.stream import (
    ConnectionClose,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    PacketType,
    SharedSecret,
    StreamPacket,
)
from tests.interledger.sending.simulated_path import ADDRESS, SECRET, TIMING, Receiver, SimulatedPath, connect, run

LIMITS = (ConnectionMaxStreamId(1), ConnectionMaxData(0))
USD = Asset("USD", 2)
secret = SharedSecret(SECRET)


class Canned:
    """Answers each packet with what a test makes of it."""

    def __init__(self, answer: Callable[[StreamPacket], Outcome]) -> None:
        self.answer = answer
        self.claimed: list[int] = []

    async def ask(self, prepare: Prepare) -> Outcome:
        return self.answer(secret.decrypt_packet(prepare.data))

    async def pay(self, prepare: Prepare, delivered: Callable[[Fulfill], int]) -> Outcome:
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
    got = run(Connection(outbound, Destination(ADDRESS, SECRET, USD), TIMING).pay(1000, 990))
    assert got.arrived == arrived
    assert outbound.claimed == ([max(arrived, 990)] if isinstance(got.outcome, Fulfill) else [])


@pytest.mark.parametrize(("claim", "read"), [(5, 990), (2**64 - 1, MAX_LEDGER)])
def test_claim_is_read_within_the_minimum_and_the_largest_figure_of_the_ledger(claim: int, read: int) -> None:
    outbound = Canned(lambda packet: Fulfill(b"f" * 32, say(packet.sequence, 13, claim)))
    run(Connection(outbound, Destination(ADDRESS, SECRET, USD), TIMING).pay(1000, 990))
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
    sentence = describe(reject)
    assert sentence.isprintable()
    assert len(sentence) < 3 * MAX_QUOTED
    closed = Reject(Code.APPLICATION_ERROR)
    frames = (ConnectionClose(9, "\n" * 5000),)
    failure = failure_of(Answer(closed, StreamPacket(0, PacketType.REJECT, 0, frames)), 1, USD)
    assert failure
    assert failure.sentence.isprintable()
    assert len(failure.sentence) < 5 * MAX_QUOTED
