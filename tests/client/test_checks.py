"""What is refused before anything is sent, and what is sent for dicts: amounts above all."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from msgspec import UNSET

from payres.client import Client, access, errors, money
from payres.core.protocol.amounts import Asset
from payres.core.protocol.gnap import Limits, OutgoingPaymentAccess
from payres.core.protocol.wire import Amount
from tests.client.clients import Script
from tests.client.test_client import BASE, BILL, FIVE, GRANTED, MADE, ONE, QUOTE, WALLET, answer, scripted
from tests.helpers import Json, usd

OF: Json = {"wallet_address": WALLET}
Call = Callable[[Client, Any], Any]


def ask(client: Client, *items: Any) -> Any:
    return client.grant.request(BASE, *items)


def spending(**limits: Any) -> Any:
    return access.outgoing_payment("create", identifier=WALLET, **limits)


def item(limits: Json) -> Json:
    return {"type": "outgoing-payment", "actions": ["create"], "identifier": WALLET, "limits": limits}


# Each call that takes an amount.
CALLS: dict[str, Call] = {
    "bill": lambda client, value: client.incoming_payment.create(BASE, "t", **OF, incoming_amount=value),
    "quote to send": lambda client, value: client.quote.create(BASE, "t", **OF, receiver=ONE, debit_amount=value),
    "quote to receive": lambda client, value: client.quote.create(BASE, "t", **OF, receiver=ONE, receive_amount=value),
    "payment": lambda client, value: client.outgoing_payment.create(
        BASE, "t", **OF, incoming_payment=f"{BASE}/r", debit_amount=value
    ),
    "limit to send": lambda client, value: ask(client, spending(debit_amount=value)),
    "limit to receive": lambda client, value: ask(client, spending(receive_amount=value)),
    "dict with a limit": lambda client, value: ask(client, item({"debitAmount": value})),
    "struct with a limit": lambda client, value: ask(
        client, OutgoingPaymentAccess(actions=["create"], identifier=WALLET, limits=Limits(debit_amount=value))
    ),
}
ANSWERS: Json = {
    "bill": BILL,
    "quote to send": QUOTE | {"receiver": ONE},
    "quote to receive": QUOTE | {"receiver": ONE},
    "payment": MADE,
}
WRONG: list[Any] = [
    *(500, 5.0, Decimal("5.00"), True, "5.00", "", [usd(500)], {}, b"500"),
    {"value": "500"},
    {"amount": "500", "asset_code": "USD", "asset_scale": 2},
    usd(500) | {"value": 500},
    usd(500) | {"value": 5.0},
    usd(500) | {"value": "5.00"},
    usd(500) | {"value": "-500"},
    usd(500) | {"value": ""},
    usd(500) | {"value": "٥"},
    usd(500) | {"value": str(2**64)},
    usd(500) | {"assetScale": "2"},
    usd(500) | {"assetScale": 256},
    usd(500) | {"assetCode": ""},
    usd(500) | {"assetCode": None},
    Amount(value=500, asset_code="USD", asset_scale=2),  # type: ignore[arg-type]
    Amount(value="5.00", asset_code="USD", asset_scale=2),
]


def sent(call: str, value: Any) -> list[httpx2.Request]:
    """What is sent for an amount."""
    body = ANSWERS.get(call)
    script = Script(GRANTED if body is None else answer(201, body))
    with scripted(script) as client:
        CALLS[call](client, value)
    return script.asked


@pytest.mark.parametrize("call", CALLS)
def test_amount_is_sent_whether_it_is_a_dict_or_not(call: str) -> None:
    [as_struct], [as_dict] = sent(call, FIVE), sent(call, usd(500))
    assert as_dict.content == as_struct.content
    assert json.loads(as_dict.content.partition(b'mount":')[2].partition(b"}")[0] + b"}") == usd(500)


@pytest.mark.parametrize("call", ANSWERS)
def test_server_may_drop_leading_zeros_of_an_amount(call: str) -> None:
    """A payment that was made must not look like one that was not, or an app makes it again."""
    assert len(sent(call, usd(500) | {"value": "00500"})) == 1


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_sent_for_what_is_no_amount(call: str) -> None:
    script = Script()
    with scripted(script) as client:
        for value in WRONG:
            with pytest.raises(errors.ConfigurationError, match="An amount is"):
                CALLS[call](client, value)
    assert not script.asked


def test_optional_amount_may_be_that_of_another_resource() -> None:
    """`UNSET` is what an absent member is, and `None` what no argument is."""
    for value in (None, UNSET):
        script = Script(answer(201, BILL))
        with scripted(script) as client:
            client.incoming_payment.create(BASE, "t", **OF, incoming_amount=value)
        assert json.loads(script.asked[0].content) == {"walletAddress": WALLET}


@pytest.mark.parametrize(
    "limits",
    [
        {"debit_amount": usd(500)},  # a server may ignore what it does not know
        {"debitAmount": usd(500), "recipient": ONE},
        {"receiver": ""},
        {"interval": 5},
        ["debitAmount"],
        {"debitAmount": usd(500), "receiveAmount": usd(500)},
    ],
    ids=str,
)
def test_limits_that_are_none_are_not_asked_for(limits: Any) -> None:
    script = Script()
    with scripted(script) as client, pytest.raises(errors.ConfigurationError):
        client.grant.request(BASE, item(limits))
    assert not script.asked


@pytest.mark.parametrize("name", ["receiver", "interval", "identifier"])
def test_empty_text_is_not_taken_for_no_limit(name: str) -> None:
    members: Json = {"identifier": WALLET, name: ""}
    with pytest.raises(errors.ConfigurationError, match=name):
        access.outgoing_payment("create", **members)
    if name == "identifier":
        for make in (access.incoming_payment, access.quote):
            with pytest.raises(errors.ConfigurationError, match=name):
                make("create", identifier="")


def test_other_arguments_that_are_no_text_are_refused_too() -> None:
    script = Script()
    with scripted(script) as client:
        for receiver in (None, 5, {"id": ONE}):
            with pytest.raises(errors.ConfigurationError, match="receiver"):
                client.quote.create(BASE, "t", **OF, receiver=receiver)
        with pytest.raises(errors.ConfigurationError, match="expiresAt"):
            client.incoming_payment.create(BASE, "t", **OF, expires_at="")
    assert not script.asked


def test_time_of_one_resource_is_that_of_another() -> None:
    moment = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)
    script = Script(answer(201, BILL), answer(201, BILL))
    with scripted(script) as client:
        client.incoming_payment.create(BASE, "t", **OF, expires_at=moment)
        client.incoming_payment.create(BASE, "t", **OF, expires_at="2026-11-26T09:30:00Z")
    assert [json.loads(request.content)["expiresAt"] for request in script.asked] == ["2026-11-26T09:30:00Z"] * 2


def test_amount_of_money_is_one() -> None:
    assert sent("payment", money("5.00", Asset("USD", 2)))


@pytest.mark.parametrize("value", ["abc", "-1", "", str(2**64)])
def test_amounts_of_answers_are_amounts(value: str) -> None:
    """So `int(amount.value)` and `decimal(amount)` never fail."""
    amount = usd(0) | {"value": value}
    public, spent = (
        {"authServer": BASE, "receivedAmount": amount},
        {"spentDebitAmount": amount, "spentReceiveAmount": None},
    )
    with scripted(Script(answer(200, public), answer(200, spent))) as client:
        with pytest.raises(errors.InvalidAnswer, match="string of digits"):
            client.incoming_payment.get_public(ONE)
        with pytest.raises(errors.InvalidAnswer, match="string of digits"):
            client.outgoing_payment.get_grant_spent_amounts(BASE, "t")
