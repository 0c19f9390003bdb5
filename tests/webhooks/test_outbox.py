"""What is written into the outbox: one event for each change, with the resource as clients see it."""

import asyncio
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from payres.core.grants.tokens import revoke_grant
from payres.core.protocol.clock import SECOND, format_time
from payres.core.protocol.identifiers import event_id, sequence_of
from payres.core.store import events
from payres.core.store.connections import connect_writer
from payres.core.store.database import Database
from payres.core.store.work import Work
from payres.operator import assets, payment_history, wallets
from payres.operator.payments import require_payment
from payres.operator.refunds import WantedRefund
from payres.operator.store.events import events_of, find_event
from payres.testing.peering import peer
from tests.helpers import Json, amount, last_segment, usd, wait_until
from tests.instance import Instance
from tests.interledger.network import network
from tests.webhooks.conftest import Outbox, Sample
from tests.works import refund, work_at

NOW = 1_800_000_000_000_000


def bill(instance: Instance, wanted: int | None = None, **members: Any) -> Json:
    return instance.client.create_incoming_payment(
        instance.wallet("bob"), None if wanted is None else usd(wanted), **members
    )


def pay(instance: Instance, receiver: Json, value: int) -> Json:
    return instance.client.pay(instance.wallet("alice"), receiver["id"], debitAmount=usd(value))


def without(shown: Json, *names: str) -> Json:
    return {name: value for name, value in shown.items() if name not in names}


def test_events_of_a_subject_are_found_by_their_times(tx: Work) -> None:
    for step in range(500):
        work = work_at(tx, NOW + step * SECOND)
        for subject in ("a", "b"):
            work.emit("grant.issued", subject, Sample(number=step))
    set_back = work_at(tx, NOW + 499 * SECOND - SECOND // 2)
    set_back.emit("grant.revoked", "a", Sample(number=-1))
    tx.execute("DELETE FROM event WHERE sequence % 7 = 3")

    def found(*seconds: float) -> list[tuple[int, bytes]]:
        moments = [NOW + round(one * SECOND) for one in seconds]
        return [(one.sequence, one.data) for one in events_of(tx, "a", moments)]

    assert found(0, 123, 123, 499) == [(1, b'{"number":0}'), (247, b'{"number":123}'), (999, b'{"number":499}')]
    assert found(498.5) == [(1001, b'{"number":-1}')], "the clock was set back a little"
    assert found(1, 0.5, -3, 1000) == [], "purged, or of no event"
    tx.execute("DELETE FROM event")
    assert found(0) == []


def test_event_has_the_incoming_payment_as_its_client_sees_it(instance: Instance, outbox: Outbox) -> None:
    made = bill(instance, 500, metadata={"externalRef": "INV-1"})
    [created] = [one for one in outbox.take() if one.type == "incoming_payment.created"]
    assert created.data == without(made, "methods")
    pay(instance, made, 200)
    told = dict(outbox.take())
    assert told["incoming_payment.partial_payment_received"] == created.data | {"receivedAmount": usd(200)}
    pay(instance, made, 300)
    told = dict(outbox.take())
    assert told["incoming_payment.completed"] == created.data | {"receivedAmount": usd(500), "completed": True}


def test_parts_have_an_event_every_ten_seconds_and_the_last_state_always(instance: Instance, outbox: Outbox) -> None:
    made = bill(instance, 500)

    def told_of_paying(value: int) -> list[Json]:
        outbox.take()
        pay(instance, made, value)
        return [one.data["receivedAmount"] for one in outbox.take() if one.data["id"] == made["id"]]

    assert told_of_paying(100) == [usd(100)]
    assert told_of_paying(100) == []
    instance.clock.advance(10)
    assert told_of_paying(100) == [usd(300)]
    assert told_of_paying(200) == [usd(500)]


def test_part_that_came_soon_after_another_has_its_event_once_the_pause_is_over(
    instance: Instance, outbox: Outbox
) -> None:
    made, told = bill(instance, 500), list[Json]()
    for _ in range(2):
        pay(instance, made, 100)
    outbox.take()

    def is_told() -> bool:
        told.extend(one.data for one in outbox.take() if one.data["id"] == made["id"])
        return bool(told)

    instance.clock.advance(10)
    wait_until(is_told)
    assert [one["receivedAmount"] for one in told] == [usd(200)]


def test_completion_by_the_client_has_one_event(instance: Instance, outbox: Outbox) -> None:
    token = instance.client.grant(
        {"type": "incoming-payment", "actions": ["create", "complete"], "identifier": instance.wallet("bob")}
    )
    made = instance.client.post("/incoming-payments", {"walletAddress": instance.wallet("bob")}, token).json()
    outbox.take()
    for _ in range(2):
        completed = instance.client.post(f"{made['id']}/complete", None, token)
    assert outbox.take() == [("incoming_payment.completed", completed.json())]


def test_local_payment_is_created_and_completed(instance: Instance, outbox: Outbox) -> None:
    receiver = bill(instance)
    outbox.take()
    made = pay(instance, receiver, 200)
    told = outbox.take()
    assert [one.type for one in told] == [
        "grant.issued",
        "incoming_payment.partial_payment_received",
        "outgoing_payment.created",
        "outgoing_payment.completed",
    ]
    issued, _, created, completed = told
    shown = without(made, "grantSpentDebitAmount", "grantSpentReceiveAmount")
    assert created.data == completed.data == shown | {"grant": issued.data["id"]}


def test_expired_payment_has_one_event(instance: Instance, outbox: Outbox) -> None:
    made = bill(instance, expiresAt=format_time(instance.clock.now() + 60_000_000))
    completed = bill(instance, 100, expiresAt=format_time(instance.clock.now() + 60_000_000))
    pay(instance, completed, 100)
    outbox.take()
    ours, told = {made["id"], completed["id"]}, list[tuple[str, str]]()

    def is_told() -> bool:
        told.extend((one.type, one.data["id"]) for one in outbox.take() if one.data["id"] in ours)
        return bool(told)

    instance.clock.advance(61)
    wait_until(is_told)
    instance.clock.advance(61)
    bill(instance)
    is_told()
    assert told == [("incoming_payment.expired", made["id"])]
    history = instance.read(lambda work: payment_history.history(work, require_payment(work, last_segment(made["id"]))))
    assert [one.type for one in history.events] == ["incoming_payment.created", "incoming_payment.expired"]


def test_refused_request_tells_nothing(instance: Instance, outbox: Outbox) -> None:
    made = bill(instance, 100)
    outbox.take()
    with pytest.raises(AssertionError, match="takes"):
        pay(instance, made, 200)
    assert [one.type for one in outbox.take() if not one.type.startswith("grant")] == []


def test_decisions_on_grants_have_events(instance: Instance, outbox: Outbox) -> None:
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": instance.wallet("alice")}
    asked = instance.client.request_grant(item).json()
    assert outbox.take() == [], "nobody has decided"
    instance.deny(asked["interact"]["redirect"])
    grant_id = asked["continue"]["uri"].rpartition("/")[2]
    data = {"id": grant_id, "client": "Example Shop", "walletAddress": instance.wallet("alice"), "access": [item]}
    assert outbox.take() == [("grant.denied", data)]
    answer = instance.client.obtain_grant(item)
    data["id"] = answer["continue"]["uri"].rpartition("/")[2]
    assert outbox.take() == [("grant.issued", data)]
    for _ in range(2):
        instance.write(lambda work: revoke_grant(work, data["id"]))
    assert outbox.take() == [("grant.revoked", data)]


def test_grants_that_anyone_can_have_have_no_events(instance: Instance, outbox: Outbox) -> None:
    answer = instance.client.obtain_grant({"type": "quote", "actions": ["create"]})
    instance.client.delete(answer["continue"]["uri"], answer["continue"]["access_token"]["value"])
    assert outbox.take() == []


def test_movements_of_wallets_have_events_and_no_warnings(instance: Instance, outbox: Outbox) -> None:
    instance.create_wallet("carol", deposit="100.00")
    for value in ("30.00", "70.00"):
        instance.write(partial(wallets.withdraw, wallet="carol", amount=value))
    address = instance.wallet("carol")
    assert outbox.take() == [
        ("wallet.deposited", {"walletAddress": address, "amount": usd(10000), "balance": usd(10000)}),
        ("wallet.withdrawn", {"walletAddress": address, "amount": usd(3000), "balance": usd(7000)}),
        ("wallet.withdrawn", {"walletAddress": address, "amount": usd(7000), "balance": usd(0)}),
    ]


def test_refund_has_an_event(instance: Instance, outbox: Outbox) -> None:
    made = bill(instance, 500)
    paid = pay(instance, made, 500)
    outbox.take()
    [back] = instance.write(lambda work: refund(work, WantedRefund(last_segment(made["id"]), "return-1", "2.00")))
    data = {"id": back.id, "incomingPayment": made["id"], "outgoingPayment": paid["id"], "reference": "return-1"}
    assert outbox.take() == [("refund.completed", data | {"amount": usd(200), "returned": usd(200)})]
    instance.write(lambda work: refund(work, WantedRefund(last_segment(made["id"]), "return-1")))
    assert outbox.take() == [], "it was done before"


def test_low_liquidity_has_one_event_until_there_is_more_again(outbox: Outbox, instance: Instance) -> None:
    euros = instance.create_wallet("elise", "EUR")
    instance.write(lambda work: assets.set_rate(work, "USD", "EUR", "1"))
    in_euros = instance.client.create_incoming_payment(euros)["id"]
    in_dollars = bill(instance)["id"]

    def told() -> list[int]:
        """What was left, as the events tell it."""
        return [int(one.data["left"]["value"]) for one in outbox.take() if one.type == "liquidity.low"]

    def pay_out(value: int) -> list[int]:
        """Takes so much out of the liquidity, or puts it in, by a payment."""
        if value > 0:
            instance.client.pay(instance.wallet("alice"), in_euros, debitAmount=usd(value))
        else:
            instance.client.pay(euros, in_dollars, debitAmount=amount(-value, "EUR"))
        return told()

    instance.write(lambda work: assets.deposit_liquidity(work, "EUR", 2, "95.00"))
    instance.write(lambda work: assets.withdraw_liquidity(work, "EUR", 2, "90.00"))
    assert told() == [500]
    instance.write(lambda work: assets.deposit_liquidity(work, "EUR", 2, "95.00"))
    assert pay_out(9000) == []
    assert pay_out(1) == [999]
    assert pay_out(1) == []
    assert pay_out(-500) == []
    assert pay_out(500) == [], "it was never twice as much"
    assert pay_out(-2000) == []
    assert pay_out(2000) == [998]


def test_low_credit_of_a_peer_has_an_event(tmp_path: Any) -> None:
    with network(tmp_path, "a", "b") as (a, b):
        peer(a, b, credit_limit="10.00")
        outbox = Outbox(b)
        made = b.client.create_incoming_payment(b.wallet("bob"))
        a.wait_for(a.client.pay(a.wallet("alice"), made["id"], debitAmount=usd(950)))
        [low] = [one.data for one in outbox.take() if one.type == "peer.credit_low"]
    assert low["creditLimit"] == usd(1000)
    assert int(low["left"]["value"]) < 100


def test_payment_that_fails_says_why(tmp_path: Any) -> None:
    with network(tmp_path, "a", "b") as (a, b):
        peer(a, b)
        made = b.client.create_incoming_payment(b.wallet("bob"))
        quote = a.client.create_quote(a.wallet("alice"), made["id"], debitAmount=usd(200))
        b.write(lambda work: wallets.deactivate(work, "bob"))
        outbox = Outbox(a)
        a.wait_for(a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]))
        _, created, failed = outbox.take()
    assert (created.type, failed.type) == ("outgoing_payment.created", "outgoing_payment.failed")
    assert failed.data.pop("failure")
    assert failed.data == created.data | {"failed": True}


async def test_sequence_rises_while_a_server_and_commands_write(tmp_path: Any) -> None:
    path = str(tmp_path / "payres.db")
    database = await Database.open(path)

    def unit(number: int) -> Any:
        return lambda work: work.emit("wallet.deposited", None, Sample(number))

    def command(number: int) -> None:
        with closing(connect_writer(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            unit(number)(work_at(connection, NOW))
            connection.execute("COMMIT")

    done = 0
    for batch in range(10):
        units = [database.write(unit(number)) for number in range(20)]
        await asyncio.gather(*units, asyncio.to_thread(command, batch))
        found = await database.read(lambda tx: events.events_after(tx, 0, 1000))
        assert len(found) == (batch + 1) * 21
        assert all(one.sequence < other.sequence for one, other in pairwise(found))
        assert found[-1].sequence > done, "what was read before stays before"
        done = found[-1].sequence
    await database.close()


def test_sequence_of_a_purged_event_is_not_used_again(tx: Work) -> None:
    for _ in range(2):
        tx.emit("wallet.deposited", None, Sample(1))
    tx.execute("DELETE FROM event")
    tx.emit("wallet.deposited", None, Sample(1))
    assert events.last_sequence(tx) == 3


def test_id_is_a_uuid_of_the_time_that_leads_to_its_event(tx: Work) -> None:
    work = work_at(tx, NOW + 1234)
    work.emit("wallet.deposited", None, Sample(1))
    [event] = events.events_after(work, 0, 2)
    assert event.id == "evt_01a3185c-5001-70ea-8000-000000000001"
    assert find_event(work, event.id) == event
    for other in ("evt_01a3185c-5002-70ea-8000-000000000001", event.id.upper(), "1", "evt_", event_id(NOW, 2)):
        assert find_event(work, other) is None
    assert sequence_of(event_id(NOW, 2**61)) == 2**61
