"""The senders from npm pay our wallets, each as a peer of ours: both sides must count the same, to the unit."""

import json
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from payres.core.store.work import Transaction
from payres.operator import peers
from tests.helpers import TIMEOUT, Json, amount, last_segment, wait_until
from tests.interop.conftest import RunProgram
from tests.interop.node import Node, mark

SENDERS = ("pay", "stream-send")
PRICES = {"USD": 0.92, "EUR": 1}


def bill(node: Node, asset: str = "USD", wanted: int | None = None) -> Json:
    """An incoming payment into a wallet of its own."""
    incoming_amount = None if wanted is None else amount(wanted, asset)
    return node.instance.client.create_incoming_payment(node.open_wallet(asset), incoming_amount)


def credentials(payment: Mapping[str, Any]) -> Json:
    [method] = payment["methods"]
    return {"destination": method["ilpAddress"], "sharedSecret": method["sharedSecret"]}


def expire(tx: Transaction, payment_id: str) -> None:
    tx.execute("UPDATE incoming_payment SET expires_at = created_at + 1 WHERE id = ?", (payment_id,))


def check_totals(node: Node, name: str, payment: Json, result: Json) -> Json:
    """Both sides have counted the same, and so has the wallet; returns the incoming payment."""
    read = node.read(payment)
    assert int(read["receivedAmount"]["value"]) == result["amountDelivered"]
    assert node.balance(payment["walletAddress"]) == result["amountDelivered"]
    assert -node.peer(name).balance == result["amountSent"]
    assert node.peer(name).held == 0
    node.instance.check_ledger()
    return read


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize(
    ("asset", "wanted", "max_packet"),
    [("USD", None, None), ("USD", 12_345, None), ("USD", 12_345, 1_000), ("EUR", None, None), ("EUR", None, 997)],
)
def test_fixed_send(
    node: Node, run_program: RunProgram, sender: str, asset: str, wanted: int | None, max_packet: int | None
) -> None:
    name = mark()
    peer, payment = node.add_peer(name, max_packet=max_packet), bill(node, asset, wanted)
    more = {"amountToSend": 12_345, "prices": PRICES}
    result = run_program(sender, peer | credentials(payment) | more)
    assert (result["amountSent"], result["error"]) == (12_345, None)
    read = check_totals(node, name, payment, result)
    assert read["completed"] is (wanted is not None)
    least_packets = -(-12_345 // (max_packet or 12_345))
    assert node.peer(name).packets_received == least_packets
    lost_to_rounding = least_packets if asset == "EUR" else 0
    exact = 12_345 * 92 // 100 if asset == "EUR" else 12_345
    assert exact - lost_to_rounding <= result["amountDelivered"] <= exact


@pytest.mark.parametrize(
    ("asset", "delivered", "wanted", "max_packet"),
    [
        ("USD", 5_000, None, None),
        ("USD", 5_001, 5_001, 1_234),
        ("EUR", 5_000, None, None),
        ("EUR", 5_001, 5_001, 1_234),
    ],
)
def test_fixed_delivery(
    node: Node, run_program: RunProgram, asset: str, delivered: int, wanted: int | None, max_packet: int | None
) -> None:
    name = mark()
    peer, payment = node.add_peer(name, max_packet=max_packet), bill(node, asset, wanted)
    result = run_program("pay", peer | credentials(payment) | {"amountToDeliver": delivered, "prices": PRICES})
    assert result["error"] is None
    assert result["amountDelivered"] == delivered
    assert result["amountSent"] <= result["quote"]["maxSourceAmount"]
    assert result["quote"]["maxPacketAmount"] == (max_packet or 2**64 - 1)
    read = check_totals(node, name, payment, result)
    assert read["completed"] is (wanted is not None)


@pytest.mark.parametrize("sender", SENDERS)
def test_wallet_address_is_paid_by_spsp(node: Node, run_program: RunProgram, sender: str) -> None:
    name, wallet = mark(), node.open_wallet("EUR")
    request = urllib.request.Request(wallet, headers={"Accept": "application/spsp4+json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        assert answer.headers["Content-Type"] == "application/spsp4+json"
        details = json.load(answer)
    where = {"destination": details["destination_account"], "sharedSecret": details["shared_secret"]}
    peer = node.add_peer(name, max_packet=4_000)
    result = run_program(sender, peer | where | {"amountToSend": 10_000, "prices": PRICES})
    assert (result["amountSent"], result["error"]) == (10_000, None)
    assert node.balance(wallet) == result["amountDelivered"] == 9_200
    assert node.peer(name).balance == -10_000
    node.instance.check_ledger()


@pytest.mark.parametrize("sender", SENDERS)
def test_no_more_is_taken_than_is_wanted(node: Node, run_program: RunProgram, sender: str) -> None:
    name = mark()
    peer, payment = node.add_peer(name, max_packet=3_000), bill(node, wanted=10_000)
    result = run_program(sender, peer | credentials(payment) | {"amountToSend": 20_000, "timeout": 1_000})
    assert result["error"]
    assert result["amountDelivered"] == 9_000
    assert check_totals(node, name, payment, result)["completed"] is False


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("end", ["completed", "expired"])
def test_ended_payment_takes_no_money(node: Node, run_program: RunProgram, sender: str, end: str) -> None:
    name = mark()
    peer, payment = node.add_peer(name), bill(node)
    if end == "completed":
        grant = {"type": "incoming-payment", "actions": ["complete"], "identifier": payment["walletAddress"]}
        client = node.instance.client
        assert client.post(f"{payment['id']}/complete", token=client.grant(grant)).status_code == 200
    else:
        node.instance.write(partial(expire, payment_id=last_segment(payment["id"])))
    result = run_program(sender, peer | credentials(payment) | {"amountToSend": 1_000, "timeout": 1_000})
    assert (result["amountSent"], result["amountDelivered"]) == (0, 0)
    assert result["error"] == "ConnectorError" if sender == "pay" else result["error"]
    check_totals(node, name, payment, result)


def test_credit_is_the_limit(node: Node, run_program: RunProgram) -> None:
    name = mark()
    peer, payment = node.add_peer(name, max_packet=2_000, credit_limit="65.00"), bill(node)
    result = run_program("stream-send", peer | credentials(payment) | {"amountToSend": 10_000, "timeout": 1_000})
    assert result["error"]
    assert 4_500 < result["amountSent"] <= 6_500
    check_totals(node, name, payment, result)


def test_payment_waits_at_the_limit_of_credit_until_the_peer_has_settled(node: Node, run_program: RunProgram) -> None:
    name = mark()
    peer, payment = node.add_peer(name, max_packet=2_000, credit_limit="65.00"), bill(node, wanted=10_000)
    with ThreadPoolExecutor() as threads:
        paying = threads.submit(run_program, "pay", peer | credentials(payment) | {"amountToSend": 10_000})
        wait_until(lambda: node.peer(name).balance <= -6_000)
        node.instance.write(lambda tx: peers.deposit(tx, name, "60.00"))
        result = paying.result()
    assert (result["amountSent"], result["amountDelivered"], result["error"]) == (10_000, 10_000, None)
    assert node.read(payment)["completed"]
    assert node.peer(name).balance == -4_000
    node.instance.check_ledger()
