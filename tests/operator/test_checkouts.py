"""What operators see of payments from wallets on other servers."""

from typing import Any

import pytest

from payres.core.store.work import Work
from payres.operator.payment_history import history, story_of
from payres.operator.payments import require_payment
from payres.people.store.checkouts import CheckoutRecord, Stage, change_checkout, insert_checkout, note_failure
from tests.helpers import last_segment, receiver_of
from tests.instance import Instance

PAYER, PAYMENT = "https://wallet.example/alice", "https://wallet.example/outgoing-payments/1"


@pytest.mark.parametrize(
    ("state", "values", "silent", "told"),
    [
        ("asked", {}, None, None),
        (
            "returned",
            {},
            "wallet.example",
            f"{PAYER} has consented, and nothing was created there yet. It is tried again.",
        ),
        ("made", {}, "wallet.example", f"the server of {PAYER} was asked to pay, and it is not known whether it has."),
        ("made", {"payment": PAYMENT}, None, f"{PAYER} pays by {PAYMENT}."),
        ("paid", {"payment": PAYMENT}, None, f"{PAYER} has paid."),
        ("failed", {"failure": "no_funds"}, None, f"{PAYER} has not paid (no_funds)."),
    ],
)
def test_history_of_a_bill_says_what_became_of_it(
    shared: Instance, state: Stage, values: Any, silent: str | None, told: str | None
) -> None:
    bill = last_segment(receiver_of(shared, 1250))

    def unit(work: Work) -> list[str]:
        record = CheckoutRecord(bill.encode(), bill, b"browser", PAYER, 1250, "asked", work.now)
        insert_checkout(work, record, "pending", ("https://a.example/continue", "T"))
        if state != "asked":
            change_checkout(work, record, state, work.now, due_at=work.now, **values)
            note_failure(work, CheckoutRecord(bill.encode(), bill, b"browser", PAYER, 1250, state, 0), work.now, silent)
        moments = story_of(history(work, require_payment(work, bill)))
        return ["".join(part.printed for part in one.said) for one in moments[1:]]

    found = shared.write(unit)
    assert len(found) == int(told is not None)
    for sentence in found:
        assert sentence.startswith(f"On the payment page, for USD 12.50: {told}")
        assert ("wallet.example does not answer" in sentence) == (silent is not None)
