"""Every page in every language: nothing of it is left in English."""

import re
from collections.abc import Iterator
from html import unescape

import httpx2
import pytest

from payres.core.protocol.clock import DAY
from payres.core.store.wallets import require_wallet
from payres.html.language import LANGUAGE_CODES, TRANSLATED, LanguageCode, sentences
from payres.people.serving import PLACES
from payres.people.store.standing_orders import ORDERS
from tests.helpers import TIMEOUT, last_segment, sign_in_token, usd
from tests.instance import Instance, run_instance
from tests.works import standing_order

PASSWORD = "correct horse"
LEAST = 12  # characters of a sentence that no name or amount would be
FOR_EVERYONE = ("/", "/carol", "/pay/{bill}", "/pay/{paid}", "/nothing", "/account/reset/nothing", "/interact/a/b")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("languages") / "payres.db") as instance:
        instance.create_wallet("carol", name="Carol", deposit="50.00", password=PASSWORD)
        yield instance


@pytest.fixture(scope="module")
def names(server: Instance) -> dict[str, str]:
    """What the paths name: a bill, a payment of carol's and one of an app."""
    client, carol, bob = server.client, server.wallet("carol"), server.wallet("bob")
    bill, paid, sent = (client.create_incoming_payment(one, usd(1250)) for one in (carol, carol, bob))
    client.pay(server.wallet("alice"), paid["id"])
    payment = client.pay(carol, sent["id"])
    grants = server.read(lambda tx: tx.execute('SELECT id FROM "grant" WHERE wallet_address_id NOT NULL').fetchall())
    found = {"bill": last_segment(bill["id"]), "paid": last_segment(paid["id"]), "payment": last_segment(payment["id"])}
    due_at, bob = server.clock.now() + DAY, server.wallet("bob")
    order = server.read(lambda tx: standing_order(require_wallet(tx, "carol").id, bob, fixed="receive", next_at=due_at))
    server.write(lambda tx: ORDERS.insert(tx, order))
    return found | {"grant": grants[-1][0], "order": order.id}


@pytest.fixture
def browser(server: Instance) -> Iterator[httpx2.Client]:
    """The browser of carol, who is signed in."""
    with httpx2.Client(base_url=server.base_url, timeout=TIMEOUT, headers={"Accept": "text/html,*/*;q=0.8"}) as http:
        form = {"choice": "sign-in", "wallet": "carol", "password": PASSWORD, "csrf": sign_in_token(http, "/account")}
        assert http.post("/account", data=form).status_code == 303
        yield http


def words_of(page: httpx2.Response) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())


def left_in_english(words: str, code: LanguageCode) -> list[str]:
    """The sentences of the catalogue that stand there as they are in English."""
    return [
        english
        for english, other in sentences()[code].items()
        if len(english) >= LEAST and other != english and "{" not in english and unescape(english) in words
    ]


@pytest.mark.parametrize("code", LANGUAGE_CODES)
def test_every_page_is_in_the_language_of_its_reader(
    server: Instance, names: dict[str, str], browser: httpx2.Client, code: LanguageCode
) -> None:
    of_places = [path for path in PLACES if "{" not in path]
    of_things = [
        "/account/payments/{payment}",
        "/account/payments/{paid}",
        "/account/apps/{grant}",
        "/account/orders/{order}",
    ]
    for path in (*of_places, *of_things, *FOR_EVERYONE):
        page = browser.get(path.format(**names), headers={"Accept-Language": f"{code}-XX,{code};q=0.9,fr;q=0.8"})
        assert page.status_code < 500, path
        assert f'<html lang="{code}">' in page.text, path
        assert page.headers["content-language"] == code, path
        if code in TRANSLATED:
            assert left_in_english(words_of(page), code) == [], path
