"""The words for what a grant permits, which are to say exactly that."""

from typing import Any, get_args

import msgspec
import pytest

from payres.core.grants.spending_limits import Spending, parse_interval, spending_of
from payres.core.protocol.clock import parse_time
from payres.core.protocol.gnap import INCOMING_ACTIONS, OUTGOING_ACTIONS, QUOTE_ACTIONS, Access
from payres.core.protocol.wire import encode
from payres.html.language import Language
from payres.html.sentences import ACTIONS, length_words, limit_words, other_words, spending_sentence
from tests.helpers import Json, amount, usd

ENGLISH, GERMAN = (Language(code, parse_time("2026-11-23T14:02:00Z")) for code in ("en", "de"))
ALICE = "https://pay.example/alice"
RECEIVER = "https://shop.example/incoming-payments/0198c0de"


def text_of(*items: Json) -> str:
    return encode(msgspec.convert(items, list[Access])).decode()


def outgoing(limits: Json | None = None, *actions: str) -> str:
    item = {"type": "outgoing-payment", "actions": list(actions or ["create"]), "identifier": ALICE}
    return text_of(item if limits is None else item | {"limits": limits})


def spending(**limits: Any) -> Spending:
    found = spending_of(outgoing(limits))
    assert found
    return found


def plain(text: str) -> str:
    return text.replace('<span class="money">', "").replace("</span>", "")


@pytest.mark.parametrize(
    ("limits", "english", "german"),
    [
        ({"debitAmount": usd(2000)}, "up to USD 20.00", "bis zu USD 20,00"),
        ({"debitAmount": usd(123456789)}, "up to USD 1,234,567.89", "bis zu USD 1.234.567,89"),
        ({"debitAmount": amount(5, "JPY", 0)}, "up to JPY 5", "bis zu JPY 5"),
        (
            {"debitAmount": usd(2000), "interval": "R11/2026-01-01T00:00:00Z/P1M"},
            "up to USD 20.00 a month, 12 times",
            "12-mal bis zu USD 20,00 im Monat",
        ),
        ({"debitAmount": usd(2000), "interval": "R0/2026-01-01T00:00:00Z/P1M"}, "up to USD 20.00", "bis zu USD 20,00"),
        (
            {"debitAmount": usd(2000), "interval": "R/2026-01-01T00:00:00Z/P1M"},
            "up to USD 20.00 a month",
            "bis zu USD 20,00 im Monat",
        ),
        (
            {"receiveAmount": amount(1, "EUR", 3), "interval": "R/2026-01-01T00:00Z/P1D", "receiver": RECEIVER},
            "up to what it takes for the receiver to get EUR 0.001 a day",
            "bis zu dem Betrag, mit dem beim Empfänger EUR 0,001 ankommen, am Tag",
        ),
        # The client chose the code of a receiver's asset.
        (
            {"receiveAmount": amount(1, "U\u202eDSU", 0)},
            "up to what it takes for the receiver to get U%E2%80%AEDSU 1",
            "bis zu dem Betrag, mit dem beim Empfänger U%E2%80%AEDSU 1 ankommen,",
        ),
        ({}, "any amount", "jeden beliebigen Betrag"),
        ({"receiver": RECEIVER}, "any amount", "jeden beliebigen Betrag"),
    ],
)
def test_limit_names_amount_and_period(limits: Json, english: str, german: str) -> None:
    found = spending(**limits)
    assert [plain(limit_words(language, found)) for language in (ENGLISH, GERMAN)] == [english, german]


@pytest.mark.parametrize(
    ("interval", "words", "a_month", "is_open"),
    [
        (None, None, 100, False),
        ("R11/2026-01-01T00:00:00Z/P1M", "a month", 100, False),
        ("R/2026-01-01T00:00:00Z/P1M", "a month", 100, True),
        ("R/2026-01-01T00:00:00Z/P1Y", "a year", 100, True),
        ("R/2026-01-01T00:00:00Z/P14D", "every 2 weeks", 218, True),
        ("R3/2026-01-01T00:00:00Z/PT36H", "every 36 hours", 400, False),
        ("R3/2026-01-01T00:00:00Z/P1M2D", "every 32 days", 100, False),
        ("R/2026-01-01T00:00:00Z/PT1S", "a second", 262974600, True),
        ("R3/2026-01-01T00:00:00Z/PT1S", "a second", 400, True),
        ("R3/2026-01-01T00:00:00Z/PT0.5S", "many times a second", 400, True),
    ],
)
def test_what_windows_come_to_is_said(interval: str | None, words: str | None, a_month: int, is_open: bool) -> None:
    found = spending(debitAmount=usd(100), **({"interval": interval} if interval else {}))
    assert (found.interval and length_words(ENGLISH, parse_interval(interval or ""))) == words
    assert (found.a_month, found.is_open) == (a_month, is_open)


def test_nothing_is_said_of_spending_where_nothing_may_be_spent() -> None:
    assert spending_of(outgoing({"debitAmount": usd(1)}, "read", "list-all")) is None
    assert spending_of("[]") is None


def test_sentence_of_spending_says_to_whom() -> None:
    assert plain(spending_sentence(ENGLISH, spending(debitAmount=usd(1)))) == (
        "It may pay up to USD 0.01, to anyone it chooses."
    )
    assert spending_sentence(ENGLISH, spending(receiver=RECEIVER)) == f"It may pay any amount, only to {RECEIVER}."


@pytest.mark.parametrize(
    ("kind", "actions"),
    [("outgoing-payment", OUTGOING_ACTIONS), ("incoming-payment", INCOMING_ACTIONS), ("quote", QUOTE_ACTIONS)],
)
def test_every_action_has_words(kind: str, actions: Any) -> None:
    said = {action for one, action in ACTIONS if one == kind} | ({"create"} if kind == "outgoing-payment" else set())
    assert said == set(get_args(actions))


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        (ALICE, "In Alice it may: ask to be paid."),
        ("https://PAY.example:443/alice/", "In Alice it may: ask to be paid."),
        ("https://pay.example/bob", "In https://pay.example/bob it may: ask to be paid."),
        (None, "In any wallet here it may: ask to be paid."),
    ],
)
def test_wallet_is_named(identifier: str | None, words: str) -> None:
    item = {"type": "incoming-payment", "actions": ["create"]} | ({"identifier": identifier} if identifier else {})
    assert [may.sentence for may in other_words(ENGLISH, text_of(item), None, ALICE, "Alice")] == [words]


def test_each_thing_is_said_once_in_each_wallet_and_names_cannot_break_out() -> None:
    access = text_of(
        {"type": "quote", "actions": ["read", "create"]},
        {"type": "outgoing-payment", "actions": ["read", "list"], "identifier": ALICE},
        {"type": "incoming-payment", "actions": ["complete", "list", "create", "read"]},
    )
    subject = '{"sub_ids":[{"id":"https://pay.example/<b>","format":"uri"}]}'
    assert [may.sentence for may in other_words(ENGLISH, access, subject, ALICE, "A<b>")] == [
        "In any wallet here it may: ask for prices, and see those; ask to be paid; see and close its own requests.",
        "In A&lt;b&gt; it may: see its own payments.",
        "It learns that you own https://pay.example/%3Cb%3E.",
    ]
