import unicodedata
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.grants.gnap import INCOMING_ACTIONS, OUTGOING_ACTIONS, QUOTE_ACTIONS, Access
from payres.grants.wording import (
    ACTIONS,
    MAX_NAME_LENGTH,
    Permission,
    Spending,
    describe_access,
    describe_subject,
    visible_name,
    visible_url,
)
from payres.wire import encode
from tests.helpers import Json, amount, usd

ALICE = "https://pay.example/alice"
MONTHLY = "R11/2026-01-01T00:00:00Z/P1M"
RECEIVER = "https://shop.example/incoming-payments/0198c0de"


def describe_items(*items: Json) -> list[Permission]:
    return list(describe_access(encode(msgspec.convert(items, list[Access])).decode(), ALICE))


def outgoing(limits: Json | None = None, *actions: str) -> Json:
    item = {"type": "outgoing-payment", "actions": list(actions or ["create"]), "identifier": ALICE}
    return item if limits is None else item | {"limits": limits}


GETS = "what it takes for the receiver to get "
YEAR = "every month, 12 times, from 1 January 2026 00:00 UTC until 1 January 2027 00:00 UTC"
DAYS = "every day, from 1 January 2026 00:00 UTC, without an end"


@pytest.mark.parametrize(
    ("limits", "spending"),
    [
        ({"debitAmount": usd(2000)}, Spending("up to USD 20.00", "in total", None)),
        ({"debitAmount": usd(123456789)}, Spending("up to USD 1,234,567.89", "in total", None)),
        ({"debitAmount": amount(5, "JPY", 0)}, Spending("up to JPY 5", "in total", None)),
        ({"debitAmount": usd(2000), "interval": MONTHLY}, Spending("up to USD 20.00", YEAR, None)),
        ({"receiveAmount": amount(1000, "EUR", 3)}, Spending(f"{GETS}up to EUR 1.000", "in total", None)),
        (
            {"receiveAmount": amount(1, "EUR", 3), "interval": "R/2026-01-01T00:00Z/P1D", "receiver": RECEIVER},
            Spending(f"{GETS}up to EUR 0.001", DAYS, RECEIVER),
        ),
        # The client chose the code of a receiver's asset.
        ({"receiveAmount": amount(1, "U\u202eDSU", 0)}, Spending(f"{GETS}up to U%E2%80%AEDSU 1", "in total", None)),
        (None, Spending("any amount", "as often as it likes", None, unlimited=True)),
        ({}, Spending("any amount", "as often as it likes", None, unlimited=True)),
        ({"receiver": RECEIVER}, Spending("any amount", "as often as it likes", RECEIVER, unlimited=True)),
        ({"interval": "R/2026-01-01T00:00:00Z/P1D"}, Spending("any amount", DAYS, None, unlimited=True)),
    ],
)
def test_spending_names_amount_period_and_receiver(limits: Json | None, spending: Spending) -> None:
    assert describe_items(outgoing(limits))[0].spending == spending


@pytest.mark.parametrize(
    ("interval", "adds_up"),
    [
        ("R/2026-01-01T00:00:00Z/PT0.000001S", "USD 86,400,000,000.00 a day"),
        ("R/2026-01-01T00:00:00Z/PT1S", "USD 86,400.00 a day"),
        ("R/2026-01-01T00:00:00Z/PT7S", "USD 12,342.86 a day"),
        ("R/2026-01-01T00:00:00Z/2026-01-01T00:00:01Z", "USD 86,400.00 a day"),
        ("R/PT1M/2026-01-01T00:00:00Z", "USD 1,440.00 a day"),
        ("R-1/2026-01-01T00:00:00Z/PT59M59.999999S", "USD 24.01 a day"),
        ("R3/2026-01-01T00:00:00Z/PT1S", "USD 4.00 in all"),
        ("R86398/2026-01-01T00:00:00Z/PT1S", "USD 86,399.00 in all"),
        ("R86400/2026-01-01T00:00:00Z/PT1S", "USD 86,400.00 a day"),
        ("R0/2026-01-01T00:00:00Z/PT1S", None),
        ("R/2026-01-01T00:00:00Z/PT1H", None),
        ("R/2026-01-01T00:00:00Z/P1M", None),
        (None, None),
    ],
)
def test_spending_in_short_windows_says_what_they_add_up_to(interval: str | None, adds_up: str | None) -> None:
    more = {"interval": interval} if interval else {}
    totals = [
        permitted.spending and permitted.spending.total
        for limits in ({"debitAmount": usd(100)}, {"receiveAmount": usd(100)}, {"receiver": RECEIVER})
        for permitted in describe_items(outgoing(limits | more))
    ]
    assert totals == [adds_up, adds_up and f"{GETS}{adds_up}", None], "what is unlimited has a warning of its own"


def test_spending_is_absent_where_nothing_may_be_spent() -> None:
    [permitted] = describe_items(outgoing({"debitAmount": usd(1)}, "read", "list-all"))
    assert permitted.spending is None
    assert permitted.actions == [
        "List every payment, also those made by other apps",
        "See the details of the payments that it made itself",
    ]


@pytest.mark.parametrize(
    ("kind", "actions"),
    [("outgoing-payment", OUTGOING_ACTIONS), ("incoming-payment", INCOMING_ACTIONS), ("quote", QUOTE_ACTIONS)],
)
def test_every_action_has_words(kind: str, actions: Any) -> None:
    said = set(ACTIONS[kind]) | ({"create"} if kind == "outgoing-payment" else set())
    assert said == set(get_args(actions))


@pytest.mark.parametrize(
    ("identifier", "heading"),
    [
        (ALICE, "Payments into your wallet"),
        ("https://PAY.example:443/alice/", "Payments into your wallet"),
        ("https://pay.example/bob", "Payments into https://pay.example/bob"),
        (None, "Payments into any wallet of this server"),
    ],
)
def test_heading_names_the_wallet(identifier: str | None, heading: str) -> None:
    item = {"type": "incoming-payment", "actions": ["create"]} | ({"identifier": identifier} if identifier else {})
    assert describe_items(item)[0].heading == heading


def test_who_is_no_owner_reads_whose_wallet_it_is() -> None:
    [permitted] = describe_access(encode(msgspec.convert([outgoing()], list[Access])).decode())
    assert permitted.heading == f"Payments from {ALICE}"


def test_spending_comes_first_and_an_action_says_what_it_includes_too() -> None:
    quote = {"type": "quote", "actions": ["read", "read-all", "create"]}
    items = describe_items(quote, {"type": "incoming-payment", "actions": ["read"]}, outgoing())
    assert [item.heading for item in items] == [
        "Payments from your wallet",
        "Prices of payments from any wallet of this server",
        "Payments into any wallet of this server",
    ]
    assert items[1].actions == [
        "Ask what a payment would cost",
        "See every price that was asked for, also by other apps",
    ]


def test_subject_is_the_wallet_address_that_it_confirms() -> None:
    assert describe_subject('{"sub_ids":[{"id":"https://pay.example/alice","format":"uri"}]}') == ALICE
    assert describe_subject(None) is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Super Shop", "Super Shop"),
        ("  Super \r\n\t Shop  ", "Super Shop"),
        ("a\u2028b\u2029c\x85d", "a b c d"),
        ("evil\u202etxt.exe\u202c", "eviltxt.exe"),
        ("\u2066Shop\u2069\u200f\u200e\ufeff\u00ad", "Shop"),
        ("Shop\x00\x1b[31m", "Shop[31m"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u200b\u200d\u3164\u2800", None),
        ("\u0301", None),
        ("   ", None),
        ("", None),
        (None, None),
        ("https://shop.example/pay", None),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_visible_name_keeps_what_can_be_seen(name: str | None, shown: str | None) -> None:
    assert visible_name(name, "https://shop.example/pay") == shown


@given(st.text(max_size=400))
def test_visible_name_is_short_and_on_one_line(name: str) -> None:
    shown = visible_name(name, None)
    if shown is not None:
        assert 0 < len(shown) <= MAX_NAME_LENGTH
        assert not {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert shown == shown.strip()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://shop.example/pay", ("https://", "shop.example", "/pay")),
        ("http://http/http", ("http://", "http", "/http")),
        ("http://127.0.0.1:8080", ("http://", "127.0.0.1:8080", "")),
        ("https://[::1]:1/a?b=c#d", ("https://", "[::1]:1", "/a?b=c#d")),
        ("https://paypаl.example/", ("https://", "payp%D0%B0l.example", "/")),
        ("https://a.example/\u202egpj", ("https://", "a.example", "/%E2%80%AEgpj")),
        ("https://a.example/%20x\\<>", ("https://", "a.example", "/%20x%5C%3C%3E")),
        ("com.example.app:/done", ("", "com.example.app", ":/done")),
        ("com.example.app://bank.example/", ("", "com.example.app", "://bank.example/")),
    ],
)
def test_visible_url_stresses_the_host_in_ascii(url: str, parts: tuple[str, str, str]) -> None:
    shown = visible_url(url)
    assert (shown.before, shown.host, shown.after) == parts
    assert shown.text == "".join(parts)
