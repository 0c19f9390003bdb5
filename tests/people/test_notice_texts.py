"""What mails to owners say, word for word, and what none of them has."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from payres.accounts import notices
from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, AddressRecord, MailRecord
from payres.core.process.settings import Settings
from payres.core.store.work import Environment, Work
from payres.operator.wallets import create_wallet, deposit
from payres.people.notice_texts import TEXTS, message_of
from payres.testing.clock import MovableClock
from tests.people.mail_server import text_of
from tests.works import NOW

# Data for every kind, as the units that tell of them give it.
DATA: Mapping[str, Any] = {
    "name": "My laptop",
    "app": "Shop",
    "host": "shop.example",
    "wallet": "savings",
    "payee": "Bob",
    "code": "01234567",
    "amount": 1_234_50,
    "asset_code": "USD",
    "asset_scale": 2,
    "due_at": NOW,
    "first_at": NOW,
    "by": "pottery",
    "why": "Its owner called",
}


@pytest.fixture
def work(tx: Work) -> Work:
    """A unit of a server with mail, and the wallet of Alice, who has an address."""
    settings = Settings(name="Harbour", base_url="https://pay.example", smtp_host="x", mail_from="wallet@pay.example")
    found = Work(tx, Environment.of(settings, MovableClock(NOW, frozen=True)))
    mail.turn(found, on=True)
    wallet = create_wallet(found, "alice", "USD", 2, "Alice", None)
    ADDRESSES.insert(found, AddressRecord(wallet.owner_id, "alice@mail.example", NOW - 1, "en", "Europe/Berlin"))
    return found


def record(kind: str, language: str = "en", data: Mapping[str, Any] = DATA) -> MailRecord:
    return MailRecord("0198", 1, kind, "0198", "alice@mail.example", dict(data), language, NOW, NOW)


SIGNED_IN = {
    "en": """
A browser on Linux signed in to your wallet. It is new here.

When: 14 November 2023, 23:13 (Berlin)
Wallet: alice

If this was not you, sign in as you always do, change your password, and
tell Harbour.

--
Harbour sends no links to sign in. If a mail has one, it is not from
there.
""",
    "de": """
Ein Browser auf Linux hat sich bei Ihrem Wallet angemeldet und ist hier
neu.

Wann: 14. November 2023, 23:13 (Berlin)
Wallet: alice

Waren Sie das nicht, melden Sie sich an wie immer, ändern Sie Ihr
Passwort, und sagen Sie Harbour Bescheid.

--
Harbour sendet keine Links zum Anmelden. Hat eine E-Mail einen, ist sie
nicht von dort.
""",
    "es": """
Un navegador en Linux ha iniciado sesión en su monedero. Es nuevo aquí.

Cuándo: 14 de noviembre de 2023, 23:13 (Berlin)
Monedero: alice

Si no ha sido usted, inicie sesión como siempre, cambie su contraseña y
avise a Harbour.

--
Harbour no envía enlaces para iniciar sesión. Si un correo lleva uno, no
es de allí.
""",
}


@pytest.mark.parametrize("language", SIGNED_IN)
def test_text_in_each_language(work: Work, language: str) -> None:
    message = message_of(work, record("new_browser", language, {"browser": "A browser on Linux"}))
    assert message is not None
    assert text_of(message) == SIGNED_IN[language].removeprefix("\n").replace("--\n", "-- \n")
    assert (message["From"], message["To"]) == ("Harbour <wallet@pay.example>", "alice@mail.example")
    assert (message["Message-ID"], message["Content-Language"]) == ("<0198.0@pay.example>", language)
    assert message["List-Unsubscribe"] is None, "what is about access is always sent"


@pytest.mark.parametrize("kind", ["app", "grant_by_operator", "key_added", "order_failed", "wallet_connected"])
def test_notice_names_the_wallet_that_it_is_about(work: Work, kind: str) -> None:
    message = message_of(work, record(kind))
    assert message is not None
    assert "\nWallet: savings\n" in text_of(message)


@pytest.mark.parametrize("language", ["en", "de-ch", "es"])
@pytest.mark.parametrize("kind", TEXTS)
def test_no_text_has_links_balances_or_gaps(work: Work, kind: str, language: str) -> None:
    deposit(work, "alice", "98765.43")
    message = message_of(work, record(kind, language))
    assert message is not None
    said = f"{message['Subject']}\n{text_of(message)}"
    assert not re.search(r"https?:|www\.|98.?765|[{}<>]|&\w+;", said), said
    assert ("01234567" in said) == (kind == "code")
    assert all(len(line) <= 72 for line in text_of(message).splitlines())
    assert message.as_bytes().isascii()


def test_money_says_amount_and_who_and_how_to_end_it(work: Work) -> None:
    deposit(work, "alice", "1234.50")
    mail_data = {"wallet": 1, "since": NOW - 1, "items": ["7:123450"], "more": True}
    message = message_of(work, record("money", "de", mail_data))
    assert message is not None
    assert message["Subject"] == "Viele Zahlungen sind angekommen"
    assert text_of(message).startswith(
        "USD 1.234,50, eingezahlt von Harbour\n\nDas sind die letzten; es waren mehr.\n\n"
        "Insgesamt kamen USD 1.234,50 an, seit 14. November 2023, 23:13 (Berlin).\n\nWallet: alice\n"
    )
    [url] = re.findall(r"<https://pay\.example(/account/notices/stop/\S+)>", message["List-Unsubscribe"])
    assert message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    token = url.rpartition("/")[2]
    notices.stop(work, token)
    assert mail.rates(work, 1) == {"money": "off", "failed": "off"}
    assert message_of(work, record("money", "de", mail_data | {"items": []})) is None


def test_values_are_text_and_no_markup(work: Work) -> None:
    message = message_of(work, record("key_added", data={"name": "<b>Tom & “Jerry”</b> {name} &amp;"}))
    assert message is not None
    assert "The key “<b>Tom & “Jerry”</b> {name} &amp;” was added." in text_of(message).replace("\n", " ")
