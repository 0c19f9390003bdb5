"""The senders and receivers from npm against each other, so that what they do with payres says something of payres."""

from typing import Any

import pytest

from tests.helpers import Json
from tests.interop.conftest import OpenReceiver, RunProgram

USD = {"code": "USD", "scale": 2}


def settings(receiver: Any, **more: Any) -> Json:
    return {**receiver._asdict(), "token": "secret", "sourceAsset": USD, "amountToSend": 10_000, **more}


@pytest.mark.parametrize("sender", ["pay", "stream-send"])
def test_payment_arrives(run_program: RunProgram, open_receiver: OpenReceiver, sender: str) -> None:
    receiver = open_receiver(token="secret", maxPacket=4_000)
    result = run_program(sender, settings(receiver))
    assert (result["amountSent"], result["amountDelivered"], result["error"]) == (10_000, 10_000, None)
    total = receiver.total()
    assert (total["received"], total["packets"]) == (10_000, 3)
    assert total["requests"] - result["packets"] in {0, 1}  # a sender may close its connection after it has counted


@pytest.mark.parametrize("sender", ["pay", "stream-send"])
def test_unknown_token_ends_it(run_program: RunProgram, open_receiver: OpenReceiver, sender: str) -> None:
    receiver = open_receiver(token="another")
    assert run_program(sender, settings(receiver, timeout=500))["error"]
    assert receiver.total() == {"received": 0, "packets": 0, "requests": 0}


def test_largest_packet_is_found_without_being_told(run_program: RunProgram, open_receiver: OpenReceiver) -> None:
    receiver = open_receiver(maxPacket=4_321, tellMaxPacket=False)
    assert run_program("pay", settings(receiver))["quote"]["maxPacketAmount"] == 4_321
    assert receiver.total()["received"] == 10_000


def test_fixed_delivery_at_a_rate(run_program: RunProgram, open_receiver: OpenReceiver) -> None:
    receiver = open_receiver(asset={"code": "EUR", "scale": 2}, rate=[9, 10], latency=1)
    more = {"amountToSend": None, "amountToDeliver": 9_000, "prices": {"USD": 0.9, "EUR": 1}}
    result = run_program(
        "pay", {name: value for name, value in settings(receiver, **more).items() if value is not None}
    )
    assert (result["amountDelivered"], result["error"]) == (9_000, None)
    assert result["amountSent"] == 10_000
    assert receiver.total()["received"] == 9_000


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ({"rateAfter": {"packets": 2, "rate": [1, 2]}}, "InsufficientExchangeRate"),
        ({"closeAfter": 2}, "ClosedByReceiver"),
    ],
)
def test_trouble_on_the_way_ends_a_payment_early(
    run_program: RunProgram, open_receiver: OpenReceiver, trouble: Json, error: str
) -> None:
    receiver = open_receiver(maxPacket=1_000, **trouble)
    result = run_program("pay", settings(receiver))
    assert (result["amountSent"], result["amountDelivered"], result["error"]) == (2_000, 2_000, error)
    assert receiver.total()["received"] == 2_000


@pytest.mark.parametrize("trouble", [{"t00": 0.2}, {"http500": 0.2}])
def test_passing_trouble_only_slows_a_payment(
    run_program: RunProgram, open_receiver: OpenReceiver, trouble: Json
) -> None:
    receiver = open_receiver(maxPacket=1_000, seed=5)
    assert run_program("pay", settings(receiver, quoteOnly=True))["error"] is None
    assert receiver.change(**trouble)["maxPacket"] == 1_000
    result = run_program("pay", settings(receiver, destinationAsset=USD) | receiver.credentials())
    assert (result["amountSent"], result["error"]) == (10_000, None)
    assert receiver.total()["received"] == 10_000


def test_lost_answer_is_money_that_the_sender_does_not_know_of(
    run_program: RunProgram, open_receiver: OpenReceiver
) -> None:
    receiver = open_receiver(maxPacket=1_000, drop=0.3, seed=2)
    result = run_program("pay", settings(receiver, destinationAsset=USD))
    assert receiver.total()["received"] > result["amountDelivered"]


def test_newer_receiver_answers_probes_so_that_the_older_sender_gives_up(
    run_program: RunProgram, open_receiver: OpenReceiver
) -> None:
    receiver = open_receiver(version="alpha4")
    assert run_program("pay", settings(receiver, destinationAsset=USD))["error"] == "ConnectorError"
