"""Waiting for a payment to end, also one of a payer who sends less than was quoted."""

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from payres.client import errors
from payres.client.resources import OutgoingPayment
from tests.client.clients import Script
from tests.client.test_client import BASE, FIVE, MADE, ONE, answer, error, pauses, scripted
from tests.helpers import Json, amount, usd

__all__ = ["pauses"]  # the fixture
# Of 1.01, to have 1.00 arrive.
QUOTED: Json = MADE | {"debitAmount": usd(101), "receiveAmount": usd(100)}


def sent(value: int, **more: Any) -> httpx2.Response:
    return answer(200, QUOTED | {"sentAmount": usd(value)} | more)


def received(value: int, asset: str = "USD") -> httpx2.Response:
    return answer(200, {"receivedAmount": amount(value, asset), "authServer": BASE})


ASKED = f"{BASE}/r"
NO_AMOUNT = answer(200, {"authServer": BASE})


@pytest.mark.parametrize(
    ("answers", "asked", "before"),
    [
        ([sent(101)], [ONE], None),
        ([sent(100, failed=True)], [ONE], None),
        ([sent(0), sent(101)], [ONE, ONE], None),
        # All has arrived, and nothing more is sent.
        ([sent(100), received(100), sent(100)], [ONE, ASKED, ONE], None),
        ([sent(99), received(103), sent(99)], [ONE, ASKED, ONE], None),
        # It is still being sent.
        ([sent(50), received(50), sent(101)], [ONE, ASKED, ONE], None),
        ([sent(99), received(100), sent(100), sent(100), received(100), sent(100)], [ONE, ASKED, ONE] * 2, None),
        # The receiver had received something before, from somebody else.
        ([sent(50), received(100), sent(101)], [ONE, ASKED, ONE], usd(50)),
        ([sent(100), received(150), sent(100)], [ONE, ASKED, ONE], usd(50)),
        # The receiver does not say, or does not answer.
        ([sent(100), answer(404, error("x")), sent(100, failed=True)], [ONE, ASKED, ONE], None),
        ([sent(100), NO_AMOUNT, sent(101)], [ONE, ASKED, ONE], None),
        ([sent(100), received(100, "EUR"), sent(101)], [ONE, ASKED, ONE], None),
        ([sent(100), answer(200, {"receivedAmount": usd(100) | {"value": "x"}}), sent(101)], [ONE, ASKED, ONE], None),
        ([sent(100), answer(302), sent(101)], [ONE, ASKED, ONE], None),
    ],
)
def test_outgoing_payment_is_waited_for_until_its_receiver_has_it(
    answers: Sequence[httpx2.Response], asked: list[str], before: Json | None
) -> None:
    script = Script(*answers)
    with scripted(script, max_retries=0) as client:
        found = client.outgoing_payment.wait(ONE, "token", received_before=before)
    assert isinstance(found, OutgoingPayment)
    assert [str(request.url) for request in script.asked] == asked
    assert all(("authorization" in one.headers) == (str(one.url) == ONE) for one in script.asked)


def test_condition_of_the_app_is_the_only_one() -> None:
    script = Script(sent(100), sent(101))
    with scripted(script) as client:
        found = client.outgoing_payment.wait(ONE, "token", lambda payment: payment.sent_amount == payment.debit_amount)
    assert found.sent_amount.value == "101"
    assert len(script.asked) == 2


def test_amount_received_before_is_an_amount() -> None:
    script = Script()
    with scripted(script) as client:
        for wrong in (100, "1.00", {"value": 100}):
            with pytest.raises(errors.ConfigurationError):
                client.outgoing_payment.wait(ONE, "token", received_before=wrong)
    assert not script.asked
    with scripted(Script(sent(0))) as client, pytest.raises(errors.WaitTimeout):
        client.outgoing_payment.wait(ONE, "token", timeout=0, received_before=FIVE)
