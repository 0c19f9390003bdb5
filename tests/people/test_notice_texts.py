"""What mails to owners say, word for word, and what none of them has."""

import re
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, Final, get_args

import pytest

from payres.accounts.notices import NoticeKind
from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, AddressRecord, MailRecord
from payres.core.protocol.clock import DAY, HOUR
from payres.core.protocol.gnap import Limits, OutgoingPaymentAccess
from payres.core.protocol.wire import Amount, encode
from payres.core.store.work import Environment, Work
from payres.interledger.clearing import end_sending
from payres.operator.wallets import create_wallet, deposit
from payres.people.not_me import REMEDIES
from payres.people.notice_texts import message_of
from payres.settings import settings_with
from payres.testing.clock import MovableClock
from tests.people.mail_server import text_of
from tests.people.test_activity_rules import send_away
from tests.works import NOW, issued_grant

# What the units that tell of a kind give, beside the browser.
BROWSER: Final = {"browser": "Firefox on Linux", "session": "ab", "address": "203.0.113.9"}
CHROME: Final = {"browser": "Chrome on Windows", "address": "203.0.113.9"}
LEFT: Final = {"codes": True, "passkeys": ["Pixel 9", "YubiKey"]}
ORDER: Final = {
    "wallet": "household",
    "payee": "Landlord",
    "host": "tide.example",
    "amount": 65000,
    "asset_code": "EUR",
    "asset_scale": 2,
    "problem": "wallet",
    "day": NOW,
    "again": NOW + HOUR,
    "until": NOW + 3 * DAY,
    "next": NOW + 30 * DAY,
}
BILL: Final = "https://shop.example/incoming-payments/0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11"
APP: Final = {"app": "Podcast Player", "host": "tide.example", "grant": "spends"}
CHOSEN: Final = {"to": "https://tide.example/rent", "fixed": "send", "every": "P1M", "note": "Rent"}
PLAN: Final = {**ORDER, **CHOSEN, "first": NOW + DAY, "ends": None, "order": "1"}
DATA: Final[Mapping[str, Mapping[str, Any]]] = {
    "new_browser": {**CHROME, "way": "passkey", "name": "Pixel 9"},
    "half_sign_in": CHROME,
    "codes_on": {"recovery": True},
    "codes_off": {"left": {**LEFT, "codes": False}},
    "recovery_codes": {"old": True},
    "passkey_added": {"name": "Pixel 9", "passkey": "1"},
    "passkey_removed": {"name": "YubiKey", "left": {"codes": False, "passkeys": ["Pixel 9"]}},
    "passkey_suspect": {"name": "YubiKey"},
    "remove_factors": {"left": LEFT, "due_at": NOW + DAY, "why": "lost the telephone"},
    "factors_removed": {"left": LEFT, "why": "lost the telephone"},
    "keep_factors": {"left": LEFT, "how": "mail", "browser": None, "session": None},
    "app": APP,
    "grant_by_operator": {**APP, "app": "Green Grocer", "why": "asked for by telephone"},
    "key_added": {"name": "Alice’s browser"},
    "wallet_connected": {"wallet": "pottery", "joins": "alice", **CHROME},
    "wallet_asked_for": {"wallet": "pottery", "joins": "alice", "due_at": NOW + DAY, **CHROME},
    "wallet_kept_apart": {"wallet": "pottery"},
    "wallet_separated": {"wallet": "pottery", "other": "alice", "why": "its owner called, and knows what was paid in"},
    "wallet_renamed": {"name": "Alice & Bob"},
    "wallet_closed": {"wallet": "household"},
    "wallet_opened": {"wallet": "household"},
    "standing_order": PLAN,
    "standing_order_changed": {
        **PLAN,
        "was": {**PLAN, "amount": 60000, "to": "https://pay.example/rent", "host": "pay.example", "first": None},
    },
    **dict.fromkeys(("order_waiting", "order_failed"), ORDER),
    "order_paused": {**ORDER, "problem": "no_wallet"},
    "order_missed": {**ORDER, "problem": "late"},
    "refund_out": {
        "payer": "Alice",
        "wallet": "bobs-books",
        "amount": 1250,
        "whole": 1250,
        "asset_code": "USD",
        "asset_scale": 2,
        "day": NOW - 5 * DAY,
        "why": "Order 2041 was never sent",
    },
    "code": {"code": "48210937"},
}
SETTINGS: Final[Mapping[str, Any]] = {
    "name": "Harbour",
    "base_url": "https://harbour.example",
    "help_url": "https://harbour.example/help",
    "smtp_host": "x",
    "mail_from": "wallet@pay.example",
}
MAIL_ID: Final = "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11"


@pytest.fixture
def work(tx: Work) -> Work:
    """A unit of a server with mail, and the three wallets of Alice, who has an address."""
    settings = settings_with(SETTINGS)
    found = Work(tx, Environment.of(settings, MovableClock(NOW, frozen=True)))
    mail.turn(found, on=True)
    wallet = create_wallet(found, "alice", "USD", 2, "Alice", None)
    for path in ("household", "savings"):
        create_wallet(found, path, "USD", 2, None, None, "alice")
    ADDRESSES.insert(found, AddressRecord(wallet.owner_id, "alice@mail.example", NOW - 1, "en", "Europe/Berlin"))
    own, limits = (
        "https://harbour.example/alice",
        Limits(
            debit_amount=Amount(value="500", asset_code="USD", asset_scale=2), interval="R/2023-01-01T00:00:00Z/P1M"
        ),
    )
    accesses: Mapping[str, OutgoingPaymentAccess] = {
        "spends": OutgoingPaymentAccess(actions=["create"], identifier=own, limits=limits),
        "bill": OutgoingPaymentAccess(
            actions=["create"], identifier=own, limits=Limits(debit_amount=limits.debit_amount, receiver=BILL)
        ),
        "looks": OutgoingPaymentAccess(actions=["list-all", "read-all"], identifier=own),
    }
    found.execute("INSERT INTO client (id, identity, wallet_address, created_at) VALUES (1, 'c', 'c', 1)")
    for name, access in accesses.items():
        grant = issued_grant(found, 1)
        found.execute('UPDATE "grant" SET id = ?, access = ? WHERE id = ?', (name, encode([access]).decode(), grant.id))
    return found


def record(kind: str, language: str = "en", **data: Any) -> MailRecord:
    told = {"owner": 1, **BROWSER, **DATA.get(kind, {}), **data}
    return MailRecord(MAIL_ID, 1, kind, MAIL_ID, "alice@mail.example", told, language, NOW, NOW)


KINDS: Final = [kind for one in get_args(NoticeKind) for kind in (get_args(one) or (one,))]


def checked(message: EmailMessage | None, language: str, links: str = "") -> str:
    """The text of a mail, which fits a small screen, has all its values, and no link but these."""
    assert message is not None
    text = text_of(message)
    said = f"{message['Subject']}\n{text}"
    assert not re.search(r"www\.|98.?765|[{}<>]|&\w+;|\bNone\b", said), said
    near = r"\b(today|tomorrow|yesterday|heute|morgen|gestern|hoy|mañana|ayer)\b"
    assert not re.search(near, text, re.I), "it is read on another day"
    found = re.findall(r"https?:\S+", said)
    assert [bool(re.fullmatch(rf"https://harbour\.example/{links}", one)) for one in found] == [True] * bool(links)
    lines = text.splitlines()
    assert all(len(line) <= 72 or "://" in line for line in lines), text
    assert len(lines) <= (8 if language == "en" else 9), text
    assert message.as_bytes().isascii()
    return text


@pytest.mark.parametrize("language", ["en", "de-ch", "es"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_language(work: Work, kind: str, language: str) -> None:
    deposit(work, "alice", "98765.43")
    checked(message_of(work, record(kind, language)), language, r"not-me/[\w-]{22}" if kind in REMEDIES else "")


# What is gathered by wallet: how many came or failed, and what the mail begins with.
GATHERED: Final[Mapping[tuple[str, int], tuple[str, str]]] = {
    ("money", 1): ("Money arrived: USD 1.00 paid in by Harbour", "USD 1.00 paid in by Harbour is in alice.\nWhen: "),
    ("money", 5): (
        "5 payments have arrived: USD 5.00",
        "USD 1.00 paid in by Harbour\n" * 3 + "and 2 more: USD 5.00 in all are in alice since 23:13 (Berlin).\n",
    ),
    ("failed", 1): (
        "Not paid: USD 1.00 to elsewhere.example",
        "USD 1.00 to elsewhere.example was not paid: nobody answered.\nNothing was taken from alice.\nWhen: ",
    ),
    ("failed", 5): (
        "5 payments did not go through",
        "USD 1.00 to elsewhere.example: nobody answered\n" * 3 + "and 2 more. Nothing was taken from alice.\nNo more",
    ),
    ("failed", 0): (
        "Only a part arrived: USD 0.40 of 1.00 to elsewhere.example",
        "elsewhere.example has USD 0.30 of USD 1.00: then nobody answered.\nUSD 0.40 left alice. You still have the ot",
    ),
}


@pytest.mark.parametrize("language", ["en", "de-ch", "es"])
@pytest.mark.parametrize(("kind", "number"), GATHERED)
def test_gathered_in_every_language(work: Work, kind: str, number: int, language: str) -> None:
    items = [f"{n}:100" for n in range(number)]
    if kind == "failed":
        deposit(work, "alice", "9.00")
        items = [send_away(work, "alice", 100) for _ in range(max(number, 1))]
        for one in items:
            end_sending(work, one, "Nothing has arrived for 30 seconds.")
        if not number:
            work.execute("UPDATE outgoing_payment SET sent = 40, delivered = 30")
    told = record(kind, language, wallet=1, since=NOW - 1, items=items, more=False)
    message = message_of(work, told)
    text = checked(message, language, r"account/notices/stop/1\.[\w-]{43}")
    if language == "en" and message is not None:
        assert (message["Subject"], text[: len(GATHERED[kind, number][1])]) == GATHERED[kind, number]


@pytest.mark.parametrize("language", ["en", "de-ch", "es"])
def test_bill_is_allowed_once_and_fails_with_what_it_asks_for(work: Work, language: str) -> None:
    text = checked(message_of(work, record("app", language, grant="bill")), language, r"not-me/[\w-]{22}")
    assert language != "en" or "up to USD 5.00, once, for a bill at shop.example." in " ".join(text.split())
    deposit(work, "alice", "9.00")
    paid = send_away(work, "alice", 100)
    end_sending(work, paid, "Nothing has arrived for 30 seconds.")
    work.execute("UPDATE outgoing_payment SET grant_id = 'bill', receive = 90 WHERE id = ?", (paid,))
    message = message_of(work, record("failed", language, wallet=1, since=NOW - 1, items=[paid], more=False))
    checked(message, language, r"account/notices/stop/1\.[\w-]{43}")
    assert message is not None
    assert message["Subject"].endswith(("USD 0.90", "USD 0,90"))


@pytest.mark.parametrize("language", ["en", "de-ch", "es"])
def test_who_joined_a_wallet_is_not_told_of_somebody_else(work: Work, language: str) -> None:
    told = message_of(work, record("wallet_connected", language, own=True))
    text = checked(told, language, r"not-me/[\w-]{22}")
    other = message_of(work, record("wallet_connected", language))
    assert told is not None
    assert other is not None
    assert told["Subject"] != other["Subject"]
    if language == "en":
        assert (told["Subject"], other["Subject"]) == (
            "pottery was joined to your sign-in",
            "pottery was joined to another sign-in",
        )
        assert text.startswith("pottery now opens with your name and password, those of alice.")
        assert "your name" not in text_of(other)
