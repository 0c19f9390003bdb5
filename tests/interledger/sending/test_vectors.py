"""Whole payments against those of another STREAM sender: what it quoted, every packet it sent, and what came of it."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from payres.amounts import Asset, Scales
from payres.interledger.packets import Fulfill, Reject
from payres.interledger.sending.connection import Connection, close
from payres.interledger.sending.failures import SendingFailed
from payres.interledger.sending.path import max_source, min_delivery, minimum_rate
from payres.interledger.sending.payment import Plan, Result, pay
from payres.interledger.sending.probe import probe
from tests.interledger.sending.simulated_path import Entry, SimulatedPath, connect
from tests.interledger.sending.virtual_time import run

Vector = dict[str, Any]


async def quote(vector: Vector, connection: Connection) -> Plan:
    rate = minimum_rate(external_rate(vector), Fraction(str(vector["slippage"])), scales(vector))
    path = await probe(connection)
    if "amountToSend" in vector:
        amount = int(vector["amountToSend"])
        return Plan(amount, min_delivery(amount, path, rate), rate, path, sends_all=True)
    amount = int(vector["amountToDeliver"])
    return Plan(max_source(amount, path, rate), amount, rate, path, sends_all=False)


def external_rate(vector: Vector) -> Fraction | None:
    source, destination = vector["sourceAsset"]["code"], vector["destinationAsset"]["code"]
    if source == destination:
        return Fraction(1)
    prices = {code: Fraction(str(price)) for code, price in vector["prices"].items()}
    return prices[source] / prices[destination] if source in prices and destination in prices else None


def scales(vector: Vector) -> Scales:
    return Scales(vector["sourceAsset"]["scale"], vector["destinationAsset"]["scale"])


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
        "sequence": str(entry.stream.sequence),
        "amount": str(entry.prepare.amount),
        "minDestination": str(entry.stream.prepare_amount),
        # A connector that finds a packet too large does so before it converts the amount.
        "arrived": str(entry.prepare.amount if reply == "F08" else entry.arrived),
        "frames": [type(frame).__name__ for frame in entry.stream.frames],
        "reply": reply,
    }


# What the packet that ends a delivery has to deliver, where nothing would be left to make up for a unit less: the
# implementation in JavaScript forgives it the unit.
COMPLETES_THE_DELIVERY = {"zero slippage, exact rate": "500", "one unit, fixed delivery": "1"}


def test_sender_vectors(sender_vector: Vector) -> None:
    path = simulated(sender_vector)

    async def whole() -> tuple[Plan, Result]:
        connection = connect(path, Asset(**sender_vector["destinationAsset"]))
        plan = await quote(sender_vector, connection)
        result = await pay(connection, plan)
        await close(connection)
        return plan, result

    if "error" in sender_vector:
        with pytest.raises(SendingFailed) as caught:
            run(whole())
        assert caught.value.reason == sender_vector["error"]
    else:
        plan, result = run(whole())
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
    logged = [
        {key: packet[key] for key in packet if key not in ("phase", "fulfillable")}
        for packet in sender_vector["packets"]
    ]
    if asked := COMPLETES_THE_DELIVERY.get(sender_vector["name"]):
        logged[-2]["minDestination"] = asked
    assert [as_logged(entry) for entry in path.log] == logged
