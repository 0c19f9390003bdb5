"""What waits: what is listed, tried now, and given up."""

from collections.abc import Callable

import pytest

from payres.accounts.mail import PAUSES as MAIL_PAUSES
from payres.accounts.store import mail
from payres.accounts.store.mail import MAILS, AddressRecord
from payres.agenda.store.agenda import FAULTS, FaultRecord
from payres.core.protocol.clock import DAY, HOUR, MINUTE
from payres.core.protocol.errors import NotFound, WrongState
from payres.core.store.clients import ensure_client
from payres.core.store.events import last_sequence
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger.store import remote_resources
from payres.operator import due_work, wallets
from payres.operator.store.due_work import count_due
from payres.people.store.checkouts import CHECKOUTS, CheckoutRecord, change_checkout, insert_checkout
from payres.people.store.standing_orders import GIVEN_UP, ORDERS, RUNS, RunRecord
from payres.webhooks import rules
from payres.webhooks.attempts import RETRY_PAUSES
from payres.webhooks.store.webhooks import DELIVERIES, WEBHOOKS, DeliveryRecord, note_due
from tests.people.test_activity_rules import send_away
from tests.works import NOW, standing_order, work_at


def failing_mail(work: Work) -> str:
    mail.insert_mail(work, AddressRecord(1, "a@mail.example", 1, "en", "UTC"), "test", {}, "k", work.now + HOUR)
    [one] = MAILS.list(work, "")
    mail.change_mail(work, one.id, attempts=1, last_error="451 come again")
    return f"mail:{one.id}"


def mail_set_aside(work: Work) -> str:
    mail.insert_mail(work, AddressRecord(1, "a@mail.example", 1, "en", "UTC"), "test", {})
    [one] = MAILS.list(work, "")
    FAULTS.insert(work, FaultRecord("mail", one.id, 1, 5, work.now, None, one.send_at or 0, "KeyError: 'x'"))
    return f"mail:{one.id}"


def failing_payment(work: Work) -> str:
    order = standing_order(1, "https://b.example/b")
    ORDERS.insert(work, order)
    RUNS.insert(work, RunRecord(order.id, 0, work.now, "waiting", None, "unreachable", 1, work.now + HOUR))
    return f"order-payment:{order.id}:0"


def failing_checkout(work: Work) -> str:
    shop = ensure_client(work, "https://shop.example", "https://shop.example", None, work.now)
    bill = (
        "INSERT INTO incoming_payment (id, wallet_address_id, client_id, created_at, expires_at) VALUES (?, 1, ?, ?, ?)"
    )
    work.execute(bill, ("bill", shop.id, work.now, work.now + DAY))
    record = CheckoutRecord(b"\x01\xab", "bill", b"b", "https://tide.example/c", 100, "asked", work.now)
    insert_checkout(work, record, "{}", ("https://tide.example/continue", "T"))
    change_checkout(work, record, "returned", work.now, due_at=work.now + MINUTE, attempts=2)
    return "checkout:01AB"


def bill_elsewhere(work: Work) -> str:
    """Its server has not answered since the payment ended."""
    payment = send_away(work, "alice", 1250)
    remote_resources.note_bill(work, payment, "https://tide.example/incoming-payments/1", work.now)
    assert not due_work.list_due(work)
    remote_resources.make_due(work, payment, work.now)
    remote_resources.postpone(work, payment, work.now + MINUTE, "tide.example did not answer", 0)
    return f"elsewhere:{payment}"


def failing_webhook(work: Work) -> str:
    hook = rules.add_of_wallet(work, require_wallet(work, "alice"), "https://hooks.example/a").webhook.id
    wallets.deposit(work, "alice", "1.00")
    tried = DeliveryRecord(last_sequence(work), hook, "pending", 1, work.now + HOUR, work.now, 500, None)
    DELIVERIES.insert(work, tried)
    WEBHOOKS.update(work, hook, last_error="It was answered with 500", last_attempt_at=work.now)
    note_due(work, hook, work.now)
    return f"webhook:{hook}"


def is_mail_over(work: Work) -> bool:
    return MAILS.list(work, "")[0].send_at is None


# What is said of each: the state, why, and how long it is tried; and whether it is given up.
CASES: dict[Callable[[Work], str], tuple[str, str | None, int | None, Callable[[Work], object]]] = {
    failing_mail: ("tried again", "451 come again", HOUR + sum(MAIL_PAUSES[1:]), is_mail_over),
    mail_set_aside: ("set aside", "KeyError: 'x'", None, is_mail_over),
    failing_payment: ("tried again", "unreachable", 3 * DAY, lambda tx: RUNS.list(tx, "")[0].problem == GIVEN_UP),
    failing_checkout: ("tried again", None, HOUR, lambda tx: CHECKOUTS.list(tx, "")[0].state == "failed"),
    bill_elsewhere: (
        "tried again",
        "tide.example did not answer",
        30 * DAY,
        lambda tx: not remote_resources.REMOTE_RESOURCES.list(tx, ""),
    ),
    failing_webhook: (
        "tried again",
        "It was answered with 500",
        HOUR + sum(RETRY_PAUSES[1:]),
        lambda tx: DELIVERIES.list(tx, "")[0].state == "failed",
    ),
}


@pytest.fixture
def work(tx: Work) -> Work:
    wallets.create_wallet(tx, "alice", "USD", 2, "Alice", None)
    wallets.deposit(tx, "alice", "100.00")
    mail.turn(tx, on=True)
    return tx


@pytest.mark.parametrize("make", CASES)
def test_what_waits_is_listed_tried_and_given_up(work: Work, make: Callable[[Work], str]) -> None:
    state, error, tried_for, is_over = CASES[make]
    made = make(work)
    [row] = due_work.list_due(work)
    shown = due_work.due(work, row)
    assert (shown.id, shown.wallet, shown.state, shown.last_error) == (made, "alice", state, error)
    assert due_work.given_up_at(row) == (tried_for and NOW + tried_for)
    kind = made.partition(":")[0]
    assert count_due(work, kind, work.now) == (0, None, state == "set aside")
    [row] = [due_work.retry(work, made) for _ in range(2)][1:]
    assert [row] == due_work.list_due(work)
    assert row.next_try == NOW
    assert make not in {failing_mail, failing_webhook} or row.attempts == 0, "its own attempts go on as before"
    assert count_due(work_at(work, NOW + 5), kind, NOW + 5) == (1, NOW, 0)
    due_work.give_up(work, made)
    assert is_over(work)
    left = [one for one in due_work.list_due(work) if one.kind != "elsewhere"]  # the grant of a checkout, to be ended
    assert [one.why for one in left] == ([GIVEN_UP] if make is failing_payment else [])


def test_what_the_node_does_is_listed_alone(work: Work) -> None:
    payment = send_away(work, "alice", 1250)
    assert not due_work.list_due(work)
    later = work_at(work, NOW + 2 * MINUTE)
    [row] = due_work.list_due(later)
    assert due_work.due(later, row).id == f"sending:{payment}"
    assert due_work.given_up_at(row) == NOW + 7 * DAY
    for rule in (due_work.retry, due_work.give_up):
        with pytest.raises(WrongState):
            rule(later, f"sending:{payment}")
        with pytest.raises(NotFound):
            rule(later, "mail:none")


def test_payment_that_may_have_been_created_is_not_given_up(work: Work) -> None:
    made = failing_checkout(work)
    [record] = CHECKOUTS.list(work, "")
    change_checkout(work, record, "made", work.now, due_at=work.now + DAY, attempts=1)
    [row] = due_work.list_due(work)
    assert due_work.given_up_at(row) == NOW + DAY, "it is asked about until its page ends"
    with pytest.raises(WrongState):
        due_work.give_up(work, made)
