"""Whole payments against those of another STREAM sender: what it quoted, every packet it sent, and what came of it."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from payres.amounts import Asset, unit_rate
from payres.interledger.packets import Fulfill, Reject
from payres.interledger.sending.connection import Connection, SendingFailed, close
from payres.interledger.sending.payment import Plan, Result, pay
from payres.interledger.sending.probe import max_source, min_delivery, probe
from tests.interledger.sending.simulated_path import Entry, SimulatedPath, connect, run

Vector = dict[str, Any]


async def quote(vector: Vector, connection: Connection) -> Plan:
    external = external_rate(vector)
    assert external is not None
    rate = external * (1 - Fraction(str(vector["slippage"])))
    path = await probe(connection)
    if "amountToSend" in vector:
        amount = int(vector["amountToSend"])
        return Plan(amount, min_delivery(amount, path, rate), rate, path, sends_all=True)
    amount = int(vector["amountToDeliver"])
    return Plan(max_source(amount, path, rate), amount, rate, path, sends_all=False)


def external_rate(vector: Vector) -> Fraction | None:
    source, destination = (Asset(**vector[side]) for side in ("sourceAsset", "destinationAsset"))
    if source.code == destination.code:
        return unit_rate(Fraction(1), source, destination)
    prices = {code: Fraction(str(price)) for code, price in vector["prices"].items()}
    if not {source.code, destination.code} <= prices.keys():
        return None
    return unit_rate(prices[source.code] / prices[destination.code], source, destination)


def simulated(vector: Vector) -> SimulatedPath:
    return SimulatedPath(
        Fraction(*map(int, vector["rate"])), int(vector["maxPacket"]) if "maxPacket" in vector else None
    )


def ratio(pair: Sequence[str]) -> Fraction:
    return Fraction(int(pair[0]), int(pair[1]))


def as_logged(entry: Entry) -> Vector:
    if isinstance(entry.outcome, Fulfill):
        reply = "FULFILL"
    else:
        assert isinstance(entry.outcome, Reject)
        reply = entry.outcome.code
    return {
        "amount": str(entry.prepare.amount),
        "minDestination": str(entry.stream.prepare_amount),
        "arrived": str(entry.arrived),
        "frames": [type(frame).__name__ for frame in entry.stream.frames],
        "reply": reply,
    }


# What the last packet of a delivery must deliver: all that is missing, or the minimum rate when others are in flight.
# The implementation in JavaScript asks for less.
LAST_OF_A_DELIVERY = {
    "same asset, fixed delivery": "10000",
    "USD/2 to EUR/2 at 0.9, fixed delivery, max packet 777": "107",
    "USD/2 to JPY/0 at 150, fixed delivery": "1501",
    "zero slippage, exact rate": "500",
    "one unit, fixed delivery": "1",
}


def test_sender_vectors(sender_vector: Vector) -> None:
    path = simulated(sender_vector)

    async def whole() -> tuple[Plan, int, Result]:
        connection = connect(path, Asset(**sender_vector["destinationAsset"]))
        plan = await quote(sender_vector, connection)
        probes = len(path.log)
        result = await pay(connection, plan)
        await close(connection)
        return plan, probes, result

    match sender_vector.get("error"):
        case "ExternalRateUnavailable":
            assert external_rate(sender_vector) is None  # refused before, with NoRate
            return
        case "InsufficientExchangeRate":
            with pytest.raises(SendingFailed, match=r"below the minimum of 0\.99"):
                run(whole())
            return
    plan, probes, result = run(whole())
    expected = sender_vector["quote"]
    assert plan.max_source == int(expected["maxSourceAmount"])
    assert plan.min_delivery == int(expected["minDeliveryAmount"])
    assert plan.min_rate == ratio(expected["minExchangeRate"])
    assert plan.path.low == ratio(expected["lowEstimatedExchangeRate"])
    assert plan.path.high == ratio(expected["highEstimatedExchangeRate"])
    assert plan.path.max_packet == int(expected["maxPacketAmount"])
    assert result.sent == path.fulfilled == int(sender_vector["result"]["amountSent"])
    assert result.delivered == path.receiver.received == int(sender_vector["result"]["amountDelivered"])
    assert (result.failure, result.unresolved) == (sender_vector["result"]["error"], 0)
    # The implementation in JavaScript probes with many packets at once.
    assert [entry.prepare.amount for entry in path.log[:probes]] == probed(sender_vector)
    assert [entry.stream.sequence for entry in path.log] == list(range(len(path.log)))
    sent = [packet for packet in sender_vector["packets"] if packet["phase"] != "quote"]
    if minimum := LAST_OF_A_DELIVERY.get(sender_vector["name"]):
        sent[-2] = {**sent[-2], "minDestination": minimum}
    assert [as_logged(entry) for entry in path.log[probes:]] == [
        {key: packet[key] for key in packet if key not in ("phase", "fulfillable", "sequence")} for packet in sent
    ]


def probed(vector: Vector) -> list[int]:
    return [10**12, int(vector["maxPacket"])] if "maxPacket" in vector else [10**12]
