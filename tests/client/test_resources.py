"""What answers are to an app: plain objects, datetimes, and no number that stops it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from payres.client import errors
from tests.client.clients import Script
from tests.client.test_client import BASE, BILL, LISTED, MADE, ONE, QUOTE, TOKEN, WALLET, answer, scripted

METADATA = {"order": {"id": 42, "lines": ["a", "☕"], "price": 1.5, "paid": False, "none": None}}


def test_metadata_is_plain_and_times_have_a_zone() -> None:
    dated = {"createdAt": "2026-11-26T09:30:00.125Z", "expiresAt": "2026-11-26T11:30:00+02:00"}
    bodies = BILL | dated | {"metadata": METADATA}, QUOTE | dated, MADE | {"metadata": METADATA}
    with scripted(Script(*(answer(200, body) for body in bodies))) as client:
        bill = client.incoming_payment.get(ONE, "t")
        quote = client.quote.get(ONE, "t")
        payment = client.outgoing_payment.get(ONE, "t")
    assert bill.metadata == payment.metadata == METADATA
    assert type(bill.metadata) is dict
    assert json.loads(json.dumps(bill.metadata)) == METADATA
    assert bill.created_at == datetime(2026, 11, 26, 9, 30, 0, 125000, tzinfo=UTC)
    assert bill.expires_at == quote.expires_at == datetime(2026, 11, 26, 9, 30, tzinfo=UTC)
    assert quote.expires_at - quote.created_at == timedelta(milliseconds=-125)
    assert payment.created_at.tzinfo is not None


@pytest.mark.parametrize("moment", ["2026-11-26T09:30:00", "2026-11-26", "yesterday", 1790000000, None])
def test_time_without_a_zone_is_an_invalid_answer(moment: Any) -> None:
    script = Script(answer(200, MADE | {"createdAt": moment}))
    with scripted(script) as client, pytest.raises(errors.InvalidAnswer, match="createdAt"):
        client.outgoing_payment.get(ONE, "t")


def test_metadata_and_times_of_lists_are_the_same() -> None:
    listed = LISTED | {"result": [MADE | {"metadata": METADATA}]}
    with scripted(Script(answer(200, listed))) as client:
        [payment] = client.outgoing_payment.list(BASE, "t", wallet_address=WALLET).result
    assert (payment.metadata, payment.created_at) == (METADATA, datetime(2026, 1, 1, tzinfo=UTC))


def test_access_of_a_token_is_plain() -> None:
    access = [{"type": "quote", "actions": ["create"]}]
    with scripted(Script(answer(200, {"access_token": TOKEN | {"access": access}}))) as client:
        assert client.token.rotate(f"{BASE}/token/1", "t").access == access


@pytest.mark.parametrize(
    ("number", "found"),
    [
        ("1e400", float("inf")),
        ("-1e400", float("-inf")),
        ("9" * 30, int("9" * 30)),
        ("9" * 4000, int("9" * 4000)),
        ("9" * 5000, float("inf")),
    ],
    ids=lambda value: str(value)[:8],
)
def test_number_in_the_metadata_of_one_payment_hides_no_others(number: str, found: Any) -> None:
    """JSON has numbers of any size, which payres keeps as they were written: another client's stop no list."""
    text = json.dumps(LISTED | {"result": [MADE | {"metadata": {"a": 0.5}}, MADE]}).replace("0.5", number)
    with scripted(Script(httpx2.Response(200, content=text.encode()))) as client:
        first, second = client.outgoing_payment.list(BASE, "t", wallet_address=WALLET).result
    assert (first.metadata, second.id) == ({"a": found}, ONE)
