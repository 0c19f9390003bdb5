"""The page of the search, as operators read it."""

import re
from collections.abc import Sequence
from html import unescape
from typing import Any

import pytest

from payres.core.store.rows import Table
from payres.core.store.work import Work
from payres.operator import search
from payres.operator.store import search as store
from payres.operator.store.all_payments import PAYMENTS
from payres.operator.store.search import find_matches
from tests.instance import Instance
from tests.operator.pages.browser import Browser, words_of
from tests.operator.pages.seed import HOSTILE, Seeded, fail_to_pay_frank, fill


@pytest.fixture(scope="module")
def seeded(payres: Instance) -> Seeded:
    return fill(payres)


@pytest.fixture(scope="module")
def frank(payres: Instance, seeded: Seeded) -> str:
    """The id of a payment to a wallet elsewhere."""
    return payres.write(fail_to_pay_frank)


def marked(ann: Browser, text: str) -> set[str]:
    """The words that the page marks."""
    return set(re.findall("<mark>(.*?)</mark>", ann.get("/admin/search", q=text).text))


def test_kinds_have_their_rows_and_a_view_each(ann: Browser, seeded: Seeded) -> None:
    page = ann.get("/admin/search", q="ALICE").text
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Wallets", "Payments", "Grants", "Changes"]
    kinds = re.findall(r'href="/admin/search\?q=ALICE&amp;kind=(\w+)"', page)
    assert kinds[:2] == ["wallets", "payments"]
    assert 'href="/admin/wallets/alice"' in page
    words = ann.words("/admin/search", q="ALICE", kind="grants")
    assert "for “ALICE” All " in words
    assert re.findall(r"<h2>(.*?)</h2>", ann.get("/admin/search", q="ALICE", kind="grants").text) == ["Grants"]
    assert marked(ann, "ALICE") == {"alice", "Alice"}


def test_id_leads_to_its_thing(ann: Browser, seeded: Seeded) -> None:
    page = ann.get("/admin/search", q=f"https://elsewhere.example/outgoing-payments/{seeded.outgoing}").text
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Payments"]
    assert f'href="/admin/payments/{seeded.outgoing}"' in page
    assert marked(ann, seeded.outgoing[-6:]) == {seeded.outgoing[-6:]}


def test_nothing_is_said_kindly(ann: Browser, seeded: Seeded) -> None:
    assert ann.words("/admin/search").startswith("Search Every word must be found: ")
    assert ann.words("/admin/search", q=" \t\u200b").startswith("Search Every word ")
    assert ann.words("/admin/search", q="zzz", kind="payments").startswith("Nothing for “zzz” Every word ")
    assert ann.words("/admin/search", q="alice", kind="nonsense") == ann.words("/admin/search", q="alice")


@pytest.mark.parametrize("text", [HOSTILE, "<mark>", "&lt;", '"><b>', "'", "%", "_", "\u202e", "\x00", "a" * 10_000])
def test_hostile_text_is_text(ann: Browser, seeded: Seeded, text: str) -> None:
    page = ann.get("/admin/search", q=text)
    assert page.status_code == 200
    shown = page.text.replace("<mark>", "").replace("</mark>", "")
    assert not re.search(r"<script|<img|<b>(?!<bdi>)|[\u202a-\u202e\u2066-\u2069\x00]", shown)
    assert len(shown) < 60_000


def test_only_who_is_signed_in_searches(browser: Browser, payres: Instance) -> None:
    assert browser.get("/admin/search", q="alice").status_code == 401


def test_words_must_all_be_found_and_each_leads_on(ann: Browser, frank: str) -> None:
    words = ann.words("/admin/search", q="alice 18.00")
    assert words.startswith("1 result for “alice 18.00” With both: alice and the amount 18.00. Only alice, "), words
    assert " · Only 18.00, 1 " in words
    assert "Alice pays Frank’s “Fish”" in words
    assert marked(ann, "alice 18") == {"Alice", "18.00"}
    for three in ("alice frank 18.00", "alice frank 18.51"):
        assert "Nothing has one of them" not in ann.words("/admin/search", q=three), "of three none is tried alone"
    none = ann.words("/admin/search", q="frank 18.51")
    near = "frank, from 18.00 to 19.00Fees and rates make amounts differ"
    assert none.startswith("Nothing has both “frank” and “18.51” No payment, bill or deposit is of 18.51. "), none
    assert "Only “frank”Names, addresses, notes" in none
    assert near in none
    [link] = re.findall(
        r'href="(/admin/search[^"]*18\.00\.\.19\.00[^"]*)"', ann.get("/admin/search?q=frank 18.51").text
    )
    assert ann.words(unescape(link)).startswith("1 result for “"), link


def test_wallet_elsewhere_leads_to_its_payments(ann: Browser, frank: str) -> None:
    page = ann.get("/admin/search", q="frank")
    assert re.findall(r"<h2>(.*?)</h2>", page.text) == ["Wallets elsewhere", "Payments"]
    words = words_of(page)
    assert "Frank’s “Fish”tide.example/frank · 1 payment from here, none arrivedUSD 0.00" in words
    assert "Names of wallets elsewhere are as their servers gave them." in words
    [link] = {one for one in re.findall(r'href="([^"]+)"', page.text) if "counterpart" in one}
    rows = ann.rows(link)
    assert frank in {row["Payment"] for row in rows}
    assert {row["title"] for row in rows} == {"Alice pays Frank’s “Fish”"}
    assert "Alice pays Frank’s “Fish” USD 18.00 Outgoing payment " in ann.words(f"/admin/payments/{frank}")
    assert "<title>Alice pays Frank’s “Fish” USD 18.00 ·" in ann.get(f"/admin/payments/{frank}").text


def test_kind_is_looked_through_once_a_word_unless_both_are_in_it(
    payres: Instance, ann: Browser, frank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But of a wallet that a word names, more payments are looked at than of all."""
    looked = list[str]()

    def counted(work: Work, table: Table[Any], *given: Any, **more: Any) -> Sequence[Any]:
        looked.extend([table.source] * ("of_wallet" not in more))
        return find_matches(work, table, *given, **more)

    monkeypatch.setattr(search, "find_matches", counted)
    for typed, times in (("nothing nobody", 2), ("frank nobody", 2), ("frank 18.51", 3), ("frank 18.00", 3)):
        looked.clear()
        ann.get("/admin/search", q=typed)
        assert looked.count(PAYMENTS.source) == times, typed
    payres.client.create_incoming_payment(payres.wallet("bob"))
    monkeypatch.setattr(store, "NEWEST", 1)
    assert ann.words("/admin/search", q="18.00").startswith("Nothing for ")
    assert ann.words("/admin/search", q="alice 18.00").startswith("1 result for ")
