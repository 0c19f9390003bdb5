"""The home page and the activity of a wallet."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest

from payres.core.protocol.clock import SECOND
from payres.operator import wallets
from payres.operator.exports import export_statement
from tests.helpers import receiver_of, usd
from tests.instance import Instance
from tests.operator.pages.seed import FORMULA, HOSTILE
from tests.people.browser import OwnersBrowser
from tests.people.test_apps_rules import ask, new_owner, path_of, pay

ACTIVITY = "/account/activity"


def test_home_shows_the_balance_the_last_movements_and_who_may_spend(shared: Instance) -> None:
    owner, other, shop = new_owner(shared), new_owner(shared), shared.client
    with OwnersBrowser(shared, path_of(owner)) as browser:
        grant_id, token = ask(shop, owner, {"debitAmount": usd(2000)})
        pay(shop, owner, token, receiver_of(shared), 500)
        for _ in range(3):
            pay(shop, owner, token, receiver_of(shared, wallet=path_of(other)), 1)
        words = browser.words("/account")
        for said in ("USD94.97", "Bobby", "−5.00", "3 payments by", "−0.03", "+100.00", "5.03 of 20.00", "14.97left"):
            assert said in words
        page = browser.http.get("/account").text
        for link in ("/account/send", "/account/request", ACTIVITY, f"/account/apps/{grant_id}"):
            assert f'href="{link}"' in page
        assert shared.wallet(path_of(owner)) in page
        assert 'href="/account/payments/' in page
        [like] = re.findall(rf'href="({ACTIVITY}\?like=[0-9a-f-]+)"', page)
        assert browser.words(like).count("−0.01") == 3


def test_day_of_an_app_is_unfolded_where_the_clock_was_moved_ahead_of_the_ids(payres: Instance) -> None:
    payres.clock.advance(3 * 86_400)
    owner = new_owner(payres)
    _, token = ask(payres.client, owner, {"debitAmount": usd(2000)})
    for _ in range(3):
        pay(payres.client, owner, token, receiver_of(payres), 1)
    with OwnersBrowser(payres, path_of(owner)) as browser:
        [like] = re.findall(rf'href="({ACTIVITY}\?like=[0-9a-f-]+)"', browser.http.get("/account").text)
        assert browser.words(like).count("−0.01") == 3


def test_activity_is_paged_to_its_end(shared: Instance) -> None:
    owner = new_owner(shared)
    path = path_of(owner)
    for number in range(60):
        shared.write(partial(wallets.deposit, wallet=path, amount=f"{number + 1}.00"))
    with OwnersBrowser(shared, path) as browser:
        found, where = list[str](), f"{ACTIVITY}?show=in"
        while where:
            page = browser.http.get(where).text
            found += re.findall(r'<b class="in">\+([0-9]+)\.00</b>', page)
            earlier = re.search(rf'href="({ACTIVITY}\?show=in&amp;below=[0-9a-f-]+)">Earlier', page)
            where = earlier[1].replace("&amp;", "&") if earlier else ""
    assert found == [*map(str, range(60, 0, -1)), "100"]


def test_statement_is_a_file_whose_lines_sum_to_the_closing_balance(shared: Instance) -> None:
    owner, shop = new_owner(shared), shared.client
    _, token = ask(shop, owner, {"debitAmount": usd(2000)})
    pay(shop, owner, token, receiver_of(shared), 500)
    shared.write(lambda work: wallets.withdraw(work, path_of(owner), "1.00", FORMULA))
    with OwnersBrowser(shared, path_of(owner)) as browser:
        assert "Money in +100.00 Money out −6.00 Now USD 94.00" in browser.words(ACTIVITY)
        [link] = re.findall(rf'href="({ACTIVITY}/statement.csv\?month=\d+-\d+)"', browser.http.get(ACTIVITY).text)
        answer = browser.http.get(link)
        assert answer.headers["content-type"].startswith("text/csv")
        assert f'"{path_of(owner)}-20' in answer.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert sum(Decimal(row["Amount"] or 0) for row in rows) == Decimal(rows[-1]["Balance"]) == Decimal("94.00")
        for month in ("", "2020-01", "2999-01", "x", "2026-13"):
            assert browser.http.get(f"{ACTIVITY}/statement.csv", params={"month": month}).status_code == 404


def test_statement_is_in_the_words_of_its_reader(payres: Instance) -> None:
    """Names, notes, columns and times; the operator's has names for programs."""
    payres.create_wallet("reads", name="Rita", deposit="20.00")
    payres.create_wallet("writes", name="=Ben", deposit="20.00")
    with OwnersBrowser(payres, "writes") as payer:
        price = payer.send("/account/send", "price", {"to": "reads", "amount": "1.50", "note": "Bread\nand salt"})
        assert payer.send(price.headers["location"], "send").status_code == 303
    with OwnersBrowser(payres, "reads", **{"Accept-Language": "de"}) as reader:
        reader.http.cookies.set("payres_zone", "Asia/Kolkata", "127.0.0.1")
        [month] = set(re.findall(r"statement.csv\?month=(\d+-\d+)", reader.http.get(ACTIVITY).text))
        heading, *rows = csv.reader(io.StringIO(reader.http.get(f"{ACTIVITY}/statement.csv?month={month}").text))
    assert heading == ["Datum", "Art", "Name", "Adresse", "Notiz", "Betrag", "Guthaben", "Währung", "Zahlung"]
    assert [row[1] for row in rows] == ["Anfangssaldo", "Eingezahltes Geld", "Erhalten", "Endsaldo"]
    assert rows[2][2:8] == ["'=Ben", payres.wallet("writes"), "Bread and salt", "1.50", "21.50", "USD"]
    local = datetime.fromtimestamp(payres.clock.now() // SECOND, UTC) + timedelta(hours=5, minutes=30)
    assert abs(datetime.fromisoformat(rows[2][0]) - local.replace(tzinfo=None)) < timedelta(minutes=2)
    export = payres.read(lambda work: export_statement("reads").text(work))
    assert export.startswith('"createdAt","kind","amount","balance","assetCode","counterpart","payment"\n')


def test_request_that_nobody_has_paid_is_no_money_that_came(shared: Instance) -> None:
    owner = new_owner(shared)
    with OwnersBrowser(shared, path_of(owner)) as browser:
        browser.send("/account/request", "make", {"amount": "12.50", "note": "Your half", "days": "7"})
        for where in (ACTIVITY, "/account"):
            words = browser.words(where)
            assert "not paid yet 12.50" in words
            assert "+12.50" not in words


@pytest.mark.parametrize("query", ["month=x", "show=x", "below=x", "below=%00", f"text={'x' * 500}", "month=2020-01"])
def test_what_no_filter_can_be_is_left_out(shared: Instance, query: str) -> None:
    owner = new_owner(shared)
    with OwnersBrowser(shared, path_of(owner)) as browser:
        answer = browser.http.get(f"{ACTIVITY}?{query}")
        assert answer.status_code == 200
        assert ("There is nothing like this" in answer.text) == query.startswith("text")


def test_nothing_of_other_wallets_is_shown(shared: Instance) -> None:
    owner, other, shop = new_owner(shared), new_owner(shared), shared.client
    _, token = ask(shop, owner, {"debitAmount": usd(20_000)})
    pay(shop, owner, token, receiver_of(shared), 8765)  # as no time reads
    with OwnersBrowser(shared, path_of(owner)) as browser:
        payment_id, _ = re.findall(r'href="/account/payments/([0-9a-f-]+)"', browser.http.get(ACTIVITY).text)
        assert browser.http.get(f"{ACTIVITY}?like={payment_id}").status_code == 200
    with OwnersBrowser(shared, path_of(other)) as browser:
        assert browser.http.get(f"{ACTIVITY}?like={payment_id}").status_code == 404
        for where in ("/account", ACTIVITY, f"{ACTIVITY}?below=ffffffff-ffff-ffff-ffff-ffffffffffff&text=bob"):
            assert "87.65" not in browser.words(where)
        month = re.findall(r"month=(\d+-\d+)", browser.http.get(ACTIVITY).text)[-1]
        assert "87.65" not in browser.http.get(f"{ACTIVITY}/statement.csv?month={month}").text
        browser.http.cookies.clear()
        for where in ("/account", ACTIVITY, f"{ACTIVITY}/statement.csv?month={month}"):
            assert browser.http.get(where).status_code == 401


def test_names_and_notes_are_text(payres: Instance) -> None:
    shop = payres.new_client("hostile", name=HOSTILE.replace("\u202e", ""))
    owner = new_owner(payres)
    _, token = ask(shop, owner, {"debitAmount": usd(2000)})
    body = {"walletAddress": owner.wallet_address, "debitAmount": usd(5), "metadata": {"description": HOSTILE}}
    for _ in range(4):
        receiver = receiver_of(payres)
        answer = shop.post("/outgoing-payments", body | {"incomingPayment": receiver}, token)
        assert answer.status_code == 201, answer.text
    with OwnersBrowser(payres, path_of(owner)) as browser:
        for where in ("/account", ACTIVITY, f"{ACTIVITY}?text={HOSTILE}"):
            page = browser.http.get(where)
            assert page.status_code == 200
            assert "<script" not in page.text
            assert "<img" not in page.text
            assert "\u202e" not in page.text
