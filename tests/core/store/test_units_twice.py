"""Every unit of the flows is rolled back at its end and run again: the result must be that of one run."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from payres.core.store import transactions
from payres.core.store.transactions import Unfinished, Unit, attempt
from payres.core.store.work import Environment
from tests.helpers import Json, usd
from tests.instance import Instance
from tests.interledger.network import pay, wallet_money


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[Unit]:
    """The units that were run to their end and rolled back, to be run once more."""
    found: list[Unit] = []

    def give_up(
        units: Sequence[Unit],
        connection: sqlite3.Connection,
        environment: Environment,
        changed: list[str] | None = None,
    ) -> list[Any]:
        attempt(units, connection, environment, changed)
        found.extend(units)
        raise Unfinished

    monkeypatch.setattr(transactions, "attempt", give_up)
    return found


def post(instance: Instance, path: str, body: Json | None, token: str, key: str) -> Json:
    """What a creation answers, twice under one key."""
    headers = {"idempotency-key": key}
    first, again = (instance.client.request("POST", path, body, token, headers) for _ in range(2))
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.status_code == 201, first.text
    made: Json = first.json()
    return made


def test_local_payment_and_all_around_it(given_up: list[Unit], pair: Sequence[Instance]) -> None:
    a, _ = pair
    alice, bob = a.wallet("alice"), a.wallet("bob")
    kinds = ("incoming-payment", ["create", "complete", "read", "list"]), ("quote", ["create", "read"])
    token = a.client.grant(*({"type": kind, "actions": actions} for kind, actions in kinds))
    receiver = post(a, "/incoming-payments", {"walletAddress": bob, "incomingAmount": usd(500)}, token, "bill")["id"]
    asked = {"walletAddress": alice, "receiver": receiver, "method": "ilp", "debitAmount": usd(200)}
    quote = post(a, "/quotes", asked, token, "quote")["id"]
    spending = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": alice}
    granted = a.client.obtain_grant(spending | {"limits": {"debitAmount": usd(300)}})["access_token"]
    rotated = a.client.post(granted["manage"], token=granted["value"]).json()["access_token"]
    made = post(a, "/outgoing-payments", {"walletAddress": alice, "quoteId": quote}, rotated["value"], "payment")
    assert (made["sentAmount"], made["grantSpentDebitAmount"]) == (usd(200), usd(200))
    over = {"walletAddress": alice, "incomingPayment": receiver, "debitAmount": usd(101)}
    assert a.client.post("/outgoing-payments", over, rotated["value"]).status_code == 403
    completed = a.client.post(f"{receiver}/complete", None, token).json()
    assert (completed["receivedAmount"], completed["completed"]) == (usd(200), True)
    assert a.client.delete(rotated["manage"], rotated["value"]).status_code == 204
    assert (wallet_money(a, "alice"), wallet_money(a, "bob")) == ((99_800, 0), (100_200, 0))
    assert len(given_up) > 50


def test_payment_to_another_server(given_up: list[Unit], pair: Sequence[Instance]) -> None:
    a, b = pair
    receiver = b.client.create_incoming_payment(b.wallet("bob"), usd(1234))["id"]
    paid = pay(a, a.wallet("alice"), receiver)
    assert (paid.record.state, paid.record.delivered) == ("completed", 1234)
    assert wallet_money(b, "bob") == (101_234, 0)
    assert len(given_up) > 50
