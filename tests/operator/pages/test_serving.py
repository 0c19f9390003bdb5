import csv
import io
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import get_type_hints
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import msgspec
import pytest

from payres.accounts.visits import Place
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, format_time, parse_time
from payres.core.protocol.identifiers import new_id
from payres.core.store.work import Work
from payres.html.exports import as_csv
from payres.html.language import Language
from payres.operator.assets import set_fee
from payres.operator.audit import ENTRY, AuditEntry, told
from payres.operator.declared.declarations import declared
from payres.operator.declared.inputs import Input
from payres.operator.declared.shapes import Cell, Column, make_table
from payres.operator.pages.operations import OperationPage
from payres.operator.pages.overview import pair_chart
from payres.operator.pages.serving import admin_pages
from payres.operator.payments import PAYMENT
from payres.operator.store.missing_rates import note_missing_rates
from payres.operator.upkeep.backup_and_restore import Backup, record_backup
from payres.operator.upkeep.daily_volume import DAYS, Volume
from payres.operator.wallets import WALLET, create_wallet, deposit, rename
from tests.helpers import last_segment
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import Browser, hidden_fields, rows_of, words_of
from tests.operator.pages.seed import FORMULA, HOSTILE, Seeded, fill

TEXT = HOSTILE.removesuffix("\u202e")  # as it is shown: a mark of direction would turn around what follows


@pytest.fixture(scope="module")
def payres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    settings = {"metrics_token": "very-secret", "rates_url": "http://127.0.0.1:9/rates?key=very-secret"}
    with run_instance(tmp_path_factory.mktemp("pages") / "payres.db", **settings) as instance:
        yield instance


@pytest.fixture(scope="module")
def seeded(payres: Instance) -> Seeded:
    return fill(payres)


def paths(seeded: Seeded) -> list[str]:
    """Every page, some in several states."""
    return [
        *("/admin", "/admin?live=1", "/admin/wallets", "/admin/wallets/alice", "/admin/wallets/alice/movements"),
        *("/admin/wallets/savings%2Fof-a-wallet-with-a-long-path", "/admin/payments", "/admin/grants", "/admin/peers"),
        *(f"/admin/payments/{one}" for one in (seeded.incoming, seeded.outgoing, seeded.failed)),
        *("/admin/payments?state=sending", f"/admin/grants/{seeded.grant}", "/admin/peers/second", "/admin/api-keys"),
        "/admin/assets/USD/2",
        *("/admin/audit-log", "/admin/settings", "/admin/exports", f"/admin/webhooks/{seeded.webhook}"),
    ]


def test_story_of_a_payment_here_is_told_from_its_grant_to_its_end(ann: Browser, seeded: Seeded) -> None:
    words = ann.words(f"/admin/payments/{seeded.outgoing}")
    told = [
        "asked for a grant. ",
        "The owner of the wallet approved it.",
        "The payment began: at most USD 25.00 from alice to ",
        "USD 25.00 moved from the wallet alice to the wallet bob.",
        "It was completed. USD 25.00 was sent, and USD 25.00 arrived.",
    ]
    places = [words.index(sentence) for sentence in told]
    assert places == sorted(places)
    assert "A quote: USD 25.00 leaves the wallet, USD 0.00 of it as a fee, and USD 25.00 arrives." in words
    assert f'href="/admin/grants/{seeded.grant}"' in ann.get(f"/admin/payments/{seeded.outgoing}").text
    assert f'href="/admin/payments/{seeded.incoming}"' in ann.get(f"/admin/payments/{seeded.outgoing}").text


def test_story_of_an_incoming_payment_names_who_paid_and_has_the_metadata(ann: Browser, seeded: Seeded) -> None:
    words = ann.words(f"/admin/payments/{seeded.incoming}")
    assert "asked for USD 25.00, to be paid into bob." in words
    assert "It was completed. It had received USD 25.00." in words
    assert f"Paid by {seeded.outgoing}" in words
    assert '"order": 17' in words


def test_story_shows_what_became_of_events(ann: Browser, seeded: Seeded) -> None:
    rows = _table(ann, f"/admin/payments/{seeded.outgoing}", "Events")
    assert [(row["Event"], row["Delivery"], row["Attempts"]) for row in rows] == [
        ("outgoing_payment.created", "failed", "12"),
        ("outgoing_payment.completed", "failed", "12"),
    ]
    assert int(rows[1]["Sequence"]) == int(rows[0]["Sequence"]) + 1
    assert rows[0]["Error"] == f"it answered 410 {TEXT}"


def test_story_of_a_failed_payment_tells_of_its_packets(ann: Browser, seeded: Seeded) -> None:
    words = ann.words(f"/admin/payments/{seeded.failed}")
    assert "A packet of USD 5.00 went to the peer second. It is unresolved." in words
    assert f"It failed: the receiver said {TEXT}. USD 0.00 was sent, and GBP 0.00 arrived." in words


def test_story_says_who_decided(ann: Browser, payres: Instance, seeded: Seeded) -> None:
    def told(decider: str | None) -> str:
        change = "UPDATE interaction SET decided_by = ? WHERE grant_id = ?"
        payres.write(lambda work: work.execute(change, (decider, seeded.grant)).fetchall())
        return ann.words(f"/admin/payments/{seeded.outgoing}")

    assert "The operator approved it in the owner's name." in told("operator")
    assert "It was approved." in told(None)
    assert "The owner of the wallet approved it." in told("owner")


def test_wallet_has_its_balance_payments_movements_and_keys(ann: Browser, seeded: Seeded) -> None:
    words = ann.words("/admin/wallets/alice")
    for part in (
        "Alice Balance USD 13,315.67 State active Reserved USD 0.00",
        f"Wallet address {ann.instance.wallet('alice')}",
        "Phone <b>of Alice</b>",
        seeded.kid,
        "Signs in as alice no password yet Second step none Signed in 0 browsers",
    ):
        assert part in words
    rows = _table(ann, "/admin/wallets/alice", "Last movements")
    moved = {("To Bob", "USD 25.00"), ("Deposit", "USD 12,345.67"), ("Withdrawal", "USD 5.00")}
    assert moved <= {(row["What"].partition(":")[0], row["Amount"]) for row in rows}


def test_grant_is_told_in_words_with_what_is_left(ann: Browser, seeded: Seeded) -> None:
    words = ann.words(f"/admin/grants/{seeded.grant}")
    assert "may pay up to USD 100.00 from Alice’s wallet To anyone it chooses." in words
    assert "Left USD 75.00 Spent USD 25.00" in words
    assert "From Alice Has USD" in words
    assert "/alice it may: see its own payments." in words
    assert seeded.outgoing[-8:] in words
    assert f"For the app’s developer Grant {seeded.grant}" in words
    assert "your wallet" not in words
    assert f'href="/admin/grants/{seeded.grant}"' in ann.get("/admin/grants").text
    [row] = [row for row in ann.rows("/admin/grants") if row["Spent"] == "USD 25.00"]
    assert (row["State"], row["Wallet"], row["Left"]) == ("issued", "Alice", "USD 75.00")
    assert row["What it may do"] == "It may pay up to USD 100.00."
    assert "Also grants that asked nobody leave out show" in ann.words("/admin/grants")
    assert "it may: ask for prices." in ann.words("/admin/grants", withoutConsent="true")


def test_peer_has_its_unresolved_packets(ann: Browser, seeded: Seeded) -> None:
    words = ann.words("/admin/peers/second")
    assert "alice to elsewhere.example1 packet USD 5.00" in words
    assert "counts 0.00 if none of these arrived, 5.00 if all did. The payment USD 5.00, expired " in words
    assert f'href="/admin/payments/{seeded.failed}">The payment</a>' in ann.get("/admin/peers/second").text
    assert "It arrived" in words
    assert "Not yet: Some packets to the peer second are unresolved" in words
    assert '<a href="/admin/peers/second/unresolved-packets">Each packet</a>' in ann.get("/admin/peers/second").text
    [packet] = ann.rows("/admin/peers/second/unresolved-packets")
    assert (packet["Packet"], packet["Payment"], packet["Amount"]) == (seeded.packet, seeded.failed, "USD 5.00")
    [peer] = ann.rows("/admin/peers")
    assert (peer["Peer"], peer["Unresolved packets"]) == ("second", "USD 5.00 in 1 packet")


def test_currency_has_its_rates_fee_and_liquidity(tmp_path: Path) -> None:
    def unit(work: Work) -> None:
        create_wallet(work, "ab", "A&B", 2, None, None)
        elsewhere = [("USD", f"X{n:02}") for n in range(20)]
        note_missing_rates(work, [("A&B", "USD"), ("A&B", "EUR"), ("EUR", "USD"), *elsewhere])
        set_fee(work, "USD", 2, "0.10", 50)

    with run_instance(tmp_path / "payres.db") as instance, Browser(instance) as opened:
        fill(instance)
        instance.write(unit)
        opened.follow_link("ann")
        words = opened.words("/admin/assets/USD/2")
        for part in (
            "2 decimals. 3 wallets hold USD ",
            "No valid rate between USD and A&B Payments between them are refused. Set it",
            "Asked for lately, and in no wallet or peer here: X00, X01, X02, X03, X04, X05, X06, X07 and 12 others. ",
            "Sending costs 0.10 and 0.5 % of the amount, at least 0.11 So sending 5.00 costs 0.13, and 100.00 costs",
            "Liquidity USD 1,000.00",
            "Fees collected USD 0.00",
        ):
            assert part in words, part
        assert words.count("No valid rate") == 1
        assert [row["Rate"] for row in opened.rows("/admin/assets/USD/2")] == ["1 EUR buys 1.08 USD"]
        [moved] = _table(opened, "/admin/assets/USD/2", "Liquidity in and out")
        assert (moved["What"], moved["Amount"]) == ("deposit", "USD 1,000.00")
        form = opened.get(_link(opened, "/admin/assets/USD/2", "Set it")).text
        assert [value in form for value in ('value="USD"', 'value="A&amp;B"')] == [True, True]
        instance.write(lambda work: set_fee(work, "USD", 2))
        assert "Sending costs nothing" in opened.words("/admin/assets/USD/2")


def test_settings_are_those_in_effect_and_secrets_are_masked(ann: Browser) -> None:
    answer = ann.get("/admin/settings")
    assert "very-secret" not in answer.text
    shown = {row["Setting"]: (row["Value"], row["From"]) for row in ann.rows("/admin/settings")}
    assert shown["metrics_token"] == ("••••••••", "set")
    assert shown["rates_url"] == ("http://127.0.0.1:9/rates?••••••••", "set")
    assert shown["signature_max_age"] == ("300", "default")
    assert shown["allow_private_hosts"] == ("true", "set")


def test_operator_chooses_a_time_zone(payres: Instance) -> None:
    with Browser(payres) as browser:
        browser.follow_link("zoe", role="reads")
        assert browser.send("/admin/settings", choice="zone", zone="Asia/Kathmandu").status_code == 303
        assert browser.http.cookies["payres_zone"].strip('"') == "Asia/Kathmandu"
        assert '<option value="Asia/Kathmandu" selected>' in browser.get("/admin/settings").text
        browser.send("/admin/settings", choice="zone", zone="")
        assert "selected" not in browser.get("/admin/settings").text
        assert browser.send("/admin/settings", choice="else").status_code == 400


def test_overview_shows_money_volume_and_what_needs_attention(ann: Browser, payres: Instance, seeded: Seeded) -> None:
    payres.write(lambda work: rename(work, "bob", "Bob"))
    words = ann.words("/admin")
    for part in (
        "Payments can be taken",
        "1 packet is unresolved",
        "Last 14 days EUR USD Received USD 25.00 Sent USD 25.00",
        "Last backup: none by payres.",
        "server renamed the wallet bob",
        "Webhooks 0 active, 1 disabled",
        "Server payres ",
    ):
        assert part in words, part
    [_, dollars] = ann.rows("/admin")
    assert dollars.pop("title") == "USD"
    assert dollars.pop("Currency").endswith(" wallets")
    assert dollars == {"In wallets": "14,340.67", "Liquidity": "1,000.00", "Fees": ""}
    now = payres.read(lambda work: work.now)
    payres.write(lambda work: record_backup(work, Backup(Path("/backups/1.db"), 1, 1, now)))
    shown = ann.words("/admin")
    assert "Ledger in order, checked today " in shown
    assert f"Last backup: Today {format_time(now)[11:16]}." in shown


def test_chart_has_a_view_for_each_currency_and_no_axis_without_figures(ann: Browser, seeded: Seeded) -> None:
    assert '<a href="/admin?currency=USD" aria-current="page">USD</a>' in ann.get("/admin").text
    empty = ann.get("/admin", currency="EUR")
    assert "Nothing yet: no EUR was paid or received." in words_of(empty)
    assert '<svg class="chart"' not in empty.text
    assert 'href="/admin?currency=EUR&amp;live=1"' in empty.text
    assert ann.words("/admin", currency="XXX") == ann.words("/admin")


def test_what_needs_attention_leads_to_the_pages_that_help(ann: Browser, seeded: Seeded) -> None:
    part = ann.get("/admin").text.partition('<ol class="card list attention">')[2].partition("</ol>")[0]
    links = re.findall(r'<a class="row" href="/admin/health#([^"]+)">', part)
    health = ann.get("/admin/health").text
    assert [unquote(one) for one in links] == re.findall('<li id="([^"]+)"><details', health)
    assert [one for one in links if one in {"packets", "events"}] == ["packets", "events"]
    assert "payres peer unresolved" not in health
    assert "<code>payres webhook remove " in health, "the second command stays"
    assert "payres webhook test" not in health
    assert f'action="/admin/webhooks/{seeded.webhook}/test"' in health


def test_chart_has_axes_and_two_weeks(ann: Browser, payres: Instance, seeded: Seeded) -> None:
    today = payres.read(lambda work: work.now)
    days = [Language("en", today).short_date(day) for day in (today - 13 * DAY, today)]
    page = ann.get("/admin").text
    assert f"sent on each day from {days[0]} to {days[1]} (UTC), at most USD 25.00; the table" in page
    assert "<span>30.00</span><span>15.00</span><span>0.00</span>" in page
    assert page.count("<line ") == 3 * page.count('<svg class="chart"')


@pytest.mark.parametrize(
    ("figure", "top"), [(0, 2), (1, 2), (9, 10), (11, 20), (2500, 3000), (99_999_900, 100_000_000)]
)
def test_axis_ends_at_a_round_figure(figure: int, top: int) -> None:
    asset, nothing = Asset("USD", 2), [0] * (DAYS - 1)
    sums = Volume(0, {asset: [min(figure, 1), *nothing]}, {asset: [*nothing, figure]}, complete=True)
    english = Language("en", 0)
    chart = pair_chart(asset, sums, english)
    assert chart["scale"] == [english.grouped(one, asset) for one in (top, top // 2, 0)]
    assert all(0 < bar["height"] <= chart["height"] for bar in chart["bars"])


def test_page_loads_again_by_itself_only_where_that_was_asked_for(ann: Browser, seeded: Seeded) -> None:
    assert 'http-equiv="refresh"' not in ann.get("/admin").text
    assert '<meta http-equiv="refresh" content="30">' in ann.get("/admin?live=1").text
    assert 'http-equiv="refresh"' not in ann.get(f"/admin/payments/{seeded.outgoing}?live=1").text, "it has ended"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {"incoming", "outgoing", "failed"}),
        ({"wallet": "alice", "min": "1.00"}, {"outgoing"}),
        ({"reason": "receiver said"}, {"failed"}),
        ({"from": "2020-01-01", "to": "2020-02-01"}, set()),
        ({"from": "2020-01-01"}, {"incoming", "outgoing", "failed"}),
        ({"from": "2020-01-01T00:00:00Z"}, {"incoming", "outgoing", "failed"}),
        ({"from": "2020-01-01 09:30"}, {"incoming", "outgoing", "failed"}),
        ({"wallet": "{base}/alice", "min": "1,000.00"}, set()),
        ({"counterpart": "elsewhere.example"}, {"failed"}),
        ({"counterpart": "bob"}, {"outgoing"}),
    ],
)
def test_payments_are_filtered_in_the_page_and_alike_in_csv(
    ann: Browser, seeded: Seeded, filters: dict[str, str], found: set[str]
) -> None:
    ids = {getattr(seeded, name) for name in found}
    filters = {name: text.format(base=ann.instance.base_url) for name, text in filters.items()}
    rows = ann.rows("/admin/payments", **filters)
    assert {row["Payment"] for row in rows} == ids
    written = _csv(ann, "/admin/payments", **filters)
    assert [row["Payment"] for row in written] == [row["Payment"] for row in rows]
    assert ("There are no such payments" in ann.words("/admin/payments", **filters)) == (not ids)


def test_prices_only_looked_at_are_left_out_until_they_are_asked_for(
    ann: Browser, payres: Instance, seeded: Seeded
) -> None:
    price = last_segment(payres.client.create_incoming_payment(payres.wallet("bob"))["id"])
    assert price not in ann.get("/admin/payments").text
    assert price not in ann.get("/admin/wallets/bob").text
    assert ann.rows("/admin/payments", used="false")[0]["Payment"] == price
    assert '<option value="true" selected>leave out</option>' in ann.get("/admin/payments").text


MISTAKES = (
    ({"min": "1.00"}, "min", "Name a wallet too: amounts are in its currency."),
    ({"max": "1.00"}, "max", "Name a wallet too: amounts are in its currency."),
    ({"wallet": "alice", "min": "12.345"}, "min", "'12.345' is not an amount of USD: "),
    ({"wallet": "alice", "max": "a lot"}, "max", "'a lot' is not an amount of USD: "),
    ({"wallet": "nobody"}, "wallet", "There is no wallet nobody."),
    ({"wallet": "https://elsewhere.example/x"}, "wallet", "https://elsewhere.example/x is not a wallet address under "),
    ({"counterpart": "nobody"}, "counterpart", "There is no wallet nobody."),
    ({"from": "yesterday"}, "from", "“yesterday” is no day. Write it like 2026-11-24."),
    ({"to": "2026-02-30"}, "to", "“2026-02-30” is no day. Write it like 2026-11-24."),
    ({"to": "2026-11-24T9"}, "to", "a time is written like "),
    ({"state": "never"}, "state", "state: Invalid enum value"),
    ({"used": "maybe"}, "used", "used: Expected"),
)


@pytest.mark.parametrize(("asked", "field", "said"), MISTAKES)
def test_mistake_in_a_filter_stays_in_its_field_and_nothing_is_listed(
    ann: Browser, seeded: Seeded, asked: dict[str, str], field: str, said: str
) -> None:
    for more in ({}, {"format": "csv"}):
        answer = ann.get("/admin/payments", **asked | {"direction": "incoming"} | more)
        assert answer.status_code == 400
        [error] = re.findall(rf'<p class="error" id="{field}-error" role="alert">(.*?)</p>', answer.text)
        assert unescape(error).startswith(said), error
        assert answer.text.count("autofocus") == 1
        assert "<option selected>incoming</option>" in answer.text
        assert all(f'value="{text}"' in answer.text for text in asked.values() if field not in {"state", "used"})
        assert "Nothing is shown until this is right." in words_of(answer)
        assert "<table" not in answer.text
        assert "<title>Error: Payments ·" in answer.text


def test_pages_are_in_english_whatever_is_read_elsewhere(ann: Browser) -> None:
    answer = ann.http.get("/admin", headers={"Accept-Language": "de"})
    assert (answer.headers["content-language"], '<html lang="en">' in answer.text) == ("en", True)
    assert "Skip to the page" in answer.text


def test_filters_are_folded_away_until_they_are_used(ann: Browser, seeded: Seeded) -> None:
    assert '<details class="card slim">\n<summary>Filter</summary>' in ann.get("/admin/payments").text
    used = ann.get("/admin/payments?state=failed").text
    assert '<details class="card slim" open>' in used
    assert '<a class="button" href="/admin/payments">Reset</a>' in used
    words = ann.words("/admin/payments")
    for label in ("Amount from", "Amount to", "Reason contains"):
        assert label in words


def test_files_have_the_columns_that_they_had(ann: Browser, seeded: Seeded) -> None:
    known = "Created (UTC),Payment,Direction,Wallet,Amount,Moved,Refunded,Asset,State,Receiver,Failure"
    assert ann.get("/admin/payments?format=csv").text.splitlines()[0].replace('"', "") == known


@pytest.mark.parametrize(
    ("direction", "state", "amount", "moved", "refunded", "said"),
    [
        ("outgoing", "completed", "5.06", "5.00", "0.00", "USD 5.00"),
        ("outgoing", "sending", "5.06", "1.00", "0.00", "USD 1.00 of at most 5.06"),
        ("outgoing", "failed", "5.06", "0.00", "0.00", "USD 0.00 of at most 5.06"),
        ("incoming", "completed", "1005.00", "1005.00", "2.00", "USD 1,005.00, 2.00 refunded"),
        ("incoming", "completed", "90.00", "93.00", "0.00", "USD 93.00"),
        ("incoming", "completed", "5.00", "3.00", "0.00", "USD 3.00 of 5.00"),
        ("incoming", "pending", "5.00", "0.00", "0.00", "USD 0.00 of 5.00"),
        ("incoming", "pending", None, "0.00", "0.00", "USD 0.00"),
    ],
)
def test_amount_says_what_is_lacking_only_where_something_is(
    payres: Instance,
    seeded: Seeded,
    direction: str,
    state: str,
    amount: str | None,
    moved: str,
    refunded: str,
    said: str,
) -> None:
    given = {"direction": direction, "state": state, "amount": amount, "moved": moved, "refunded": refunded}
    one = msgspec.structs.replace(payres.read(lambda work: PAYMENT.find(work, id=seeded.outgoing)), **given)
    [cell] = [column.cell(one) for column in PAYMENT.on_pages if column.label == "Amount"]
    assert cell.shown == said


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ("0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", "…0c1f8d11"),
        ("evt_0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", "…0c1f8d11"),
        ("https://pay.example/incoming-payments/0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", "pay.example…0c1f8d11"),
        ("https://pay.example/alice", "https://pay.example/alice"),
        (
            "https://pay.example/alice-with-a-long-path “Her shop”",
            "https://pay.example/alice-with-a-long-path “Her shop”",
        ),
    ],
)
def test_long_names_are_shortened_in_tables(text: str, brief: str) -> None:
    assert Cell(text, "code").brief == brief


def test_what_is_shortened_stands_whole_in_the_title(ann: Browser, seeded: Seeded) -> None:
    page = ann.get("/admin/payments").text
    assert f'<span class="short code" title="{seeded.outgoing}">…{seeded.outgoing[-8:]}</span>' in page
    assert "Alice pays Bob</bdi>" in page
    assert "Alice pays elsewhere.example</bdi>" in page


def test_states_that_wait_look_like_none_that_are_over() -> None:
    assert {Cell(state, "state").tone for state in ("pending", "sending")} == {"waiting"}
    assert {Cell(state, "state").tone for state in ("delivered", "completed", "failed", "disabled")} == {"good", "bad"}


@pytest.mark.parametrize(
    ("filters", "actions"),
    [
        ({"action": "WALLET.with"}, ["wallet.withdraw"]),
        ({"actor": "server", "object": "second"}, ["peer.add"]),
        ({"actor": "page:ann"}, ["admin.set_password"]),
        ({"action": "peer", "to": "2020-01-01"}, []),
        ({"action": "peer", "from": "2020-01-01"}, ["peer.add"]),
        ({"actor": "nobody%"}, []),
    ],
)
def test_audit_log_is_filtered(ann: Browser, seeded: Seeded, filters: dict[str, str], actions: list[str]) -> None:
    assert [row["Did what"] for row in ann.rows("/admin/audit-log", **filters)] == actions


@pytest.mark.parametrize(
    ("action", "about", "link"),
    [
        ("wallet.deposit", "a/b", "/admin/wallets/a%2Fb"),
        ("key.add", "alice", "/admin/wallets/alice"),
        ("grant.revoke", "id", "/admin/grants/id"),
        ("payment.refund", "id", "/admin/payments/id"),
        ("api_key.create", "id", "/admin/api-keys/id"),
        ("webhook.add", "id", "/admin/webhooks/id"),
        ("webhook.replay", "an-event", None),
        ("peer.remove", "second", None),
        ("rate.set", "EUR USD", None),
    ],
)
def test_audit_log_leads_to_what_was_changed(action: str, about: str, link: str | None) -> None:
    said = AuditEntry(id="1", created_at="", actor="api:key", action=action, object=about, details={})
    assert [column.cell(said).link for column in ENTRY.listed] == [None, "/admin/api-keys/key", None, link, None]


MOVED = {"amount": "5.00 USD"}


@pytest.mark.parametrize(
    ("entry", "details", "sentence"),
    [
        (
            "page:ann wallet.deposit alice",
            MOVED | {"reference": "transfer 4711"},
            "ann put USD 5.00 into the wallet alice, “transfer 4711”",
        ),
        (
            "page:ann wallet.withdraw alice",
            MOVED | {"reference": "page 0198"},
            "ann took USD 5.00 out of the wallet alice",
        ),
        ("api:0198 wallet.create alice", {}, "a program created the wallet alice"),
        ("shell:root peer.deposit tide", MOVED, "root at the command recorded USD 5.00 paid by the peer tide"),
        ("owner:alice wallet.sign_out alice", {}, "the owner of alice ended the sessions of the wallet alice"),
        ("server rate.set EUR USD", {"rate": "1.1"}, "server set the rate EUR USD"),
        ("page:ann grant.deny 0198", {}, "ann denied the grant 0198"),
        ("page:ann api_key.revoke 0198", {}, "ann revoked the API key 0198"),
        ("owner:eli wallet.passkey_added eli", {}, "the owner of eli added a passkey to the wallet eli"),
        ("owner:eli wallet.ask_above eli", {}, "the owner of eli set what asks again for the wallet eli"),
    ],
)
def test_change_is_told_as_a_sentence(entry: str, details: dict[str, str], sentence: str) -> None:
    actor, action, about = entry.split(" ", 2)
    said = AuditEntry(id="1", created_at="", actor=actor, action=action, object=about, details=details)
    assert "".join(cell.text for cell in told(said)) == sentence


SERVER = ["Health", "What waits", "Backups", "Operators", "Audit log", "Settings"]


def test_frame_has_sections_views_a_way_back_and_one_search_box(ann: Browser, seeded: Seeded) -> None:
    for path, section, trail, views in (
        ("/admin", "Overview", [], []),
        ("/admin/wallets/alice", "Wallets", [("/admin/wallets", "Wallets")], []),
        ("/admin/wallets/alice/movements", "Wallets", [("/admin/wallets/alice", "alice")], []),
        ("/admin/assets/USD/2", "Currencies", [("/admin/assets", "Currencies")], ["Currencies", "Exchange rates"]),
        ("/admin/api-keys", "Programs", [], ["Webhooks", "API keys", "Exports"]),
        ("/admin/audit-log", "Server", [], SERVER),
        (
            "/admin/webhooks/deliveries",
            "Programs",
            [("/admin/webhooks", "Webhooks")],
            ["Webhooks", "API keys", "Exports"],
        ),
    ):
        page = ann.get(path).text
        tabs = page.partition('<nav class="tabs"')[2].partition("</nav>")[0]
        assert re.findall(r'aria-current="page">([^<]+)', tabs) == [section]
        assert tabs.count("<li>") == 8
        assert page.count('role="search" action="/admin/search"') == 1
        assert re.findall(r'<nav class="trail" aria-label="Back"><a href="([^"]+)"><bdi>([^<]+)', page) == trail
        assert ("place admin inner" in page) == bool(trail)
        if views:
            shown = page.partition('<ul class="views">')[2].partition("</ul>")[0]
            assert re.findall(r">([^<]+)</a>", shown) == views
            assert shown.count("aria-current") == 1


def test_times_are_in_the_zone_of_the_browser_with_the_exact_one_beside(ann: Browser, payres: Instance) -> None:
    made = payres.read(lambda work: WALLET.find(work, wallet="alice")).created_at
    for zone, place in (("", "UTC"), ("Asia/Tokyo", "those of Tokyo")):
        page = ann.http.get(
            "/admin/wallets/alice", headers={"Cookie": f"payres_admin={ann.session}; payres_zone={zone}"}
        )
        shown = Language("en", parse_time(made), ZoneInfo(zone or "UTC")).stamp(made)
        assert f'<time datetime="{made}" title="{made[:10]} {made[11:19]} UTC">{shown}</time>' in page.text
        assert f"<li>Times are {place}.</li>" in page.text


@pytest.mark.parametrize(("text", "wide"), [("1,204.50", False), ("99999999.99", False), ("1234567890.12", True)])
def test_amount_of_twelve_digits_has_a_line_of_its_own(text: str, wide: bool) -> None:
    assert Cell(text, "number").is_wide == wide


def test_columns_have_their_places_on_a_telephone() -> None:
    columns = [
        Column("Created (UTC)", "a", "time"),
        Column("Payment", "b", "code", section="payments"),
        Column("What", "c", titles=True),
        *(Column(label, "d", "number") for label in ("Amount", "Fee")),
        Column("State", "e", "state"),
        Column("Ended (UTC)", "f", "second"),
    ]
    assert [one[1:] for one in make_table("", columns, [], "").places] == [
        *(("Payment", "own"), ("Created", "when"), ("Amount", "number"), ("Fee", "also"), ("State", "state")),
        ("Ended", "more"),
    ]


def test_empty_list_says_what_it_is_for(ann: Browser, seeded: Seeded, tmp_path: Path) -> None:
    with run_instance(tmp_path / "payres.db") as instance, Browser(instance) as opened:
        opened.follow_link("ann")
        for path in ("/admin/webhooks", "/admin/peers"):
            page = opened.get(path).text
            assert '<section class="card empty">' in page
            assert "<table" not in page
    assert '<section class="card empty">' not in ann.get("/admin/payments?reason=never").text


def test_empty_filters_of_a_form_are_left_out_of_the_url(ann: Browser, seeded: Seeded) -> None:
    answer = ann.get("/admin/payments", wallet="", state="failed", first="50")
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin/payments?state=failed&first=50")
    page = ann.get(answer.headers["location"]).text
    assert "<option selected>failed</option>" in page
    assert 'href="/admin/payments?state=failed&amp;first=50&amp;format=csv"' in page


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("colour=red", "unknown field colour"),
        ("cursor=x", "cursor must be a startCursor"),
        ("first=1000", "first must be a whole number"),
        ("first=1&first=2", "Give first once"),
    ],
)
def test_filter_that_cannot_be_is_explained(ann: Browser, query: str, sentence: str) -> None:
    answer = ann.get(f"/admin/payments?{query}")
    assert answer.status_code in {400, 404}
    assert sentence in words_of(answer)


@pytest.mark.parametrize("query", ["first=2", "first=x", "last=2&cursor=x", "colour=red"])
@pytest.mark.parametrize("path", ["/admin/peers", "/admin/webhooks", "/admin/webhooks/deliveries"])
def test_list_that_is_shown_whole_has_no_pages(ann: Browser, path: str, query: str) -> None:
    answer = ann.get(f"{path}?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in words_of(answer)


def test_pages_lead_to_older_and_newer_rows(ann: Browser, payres: Instance) -> None:
    def unit(work: Work) -> None:
        create_wallet(work, "paged", "EUR", 2, None, None)
        for number in range(6):
            deposit(work, "paged", f"{number + 1}.00")

    payres.write(unit)
    path, seen = "/admin/wallets/paged/movements?first=2", []
    while path:
        seen += [row["Amount"] for row in ann.rows(path)]
        path = _link(ann, path, "Older")
    assert seen == [f"EUR {n}.00" for n in (6, 5, 4, 3, 2, 1)]
    last = _link(ann, _link(ann, "/admin/wallets/paged/movements?first=2", "Older"), "Older")
    back = [row["Amount"] for row in ann.rows(_link(ann, last, "Newer"))]
    assert back == ["EUR 4.00", "EUR 3.00"]


def test_forms_lead_to_files_of_everything_or_of_a_period(ann: Browser, seeded: Seeded) -> None:
    for page, files in (
        ("/admin/exports", ["/admin/exports/payments", "/admin/exports/ledger"]),
        ("/admin/wallets/alice", ["/admin/wallets/alice/statement"]),
    ):
        assert re.findall(r'method="get" action="([^"]+)"', ann.get(page).text) == files
    kinds = [row["kind"] for row in _csv(ann, "/admin/wallets/alice/statement")]
    assert (kinds[0], kinds[-1]) == ("opening balance", "closing balance")
    assert len(kinds) > 3
    # As a form sends what was left empty, and a day.
    asked = {"from": "2020-01-01", "to": "2020-02-01", "format": "jsonl", "wallet": ""}
    answer = ann.get("/admin/exports/ledger", **asked)
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["content-disposition"] == 'attachment; filename="ledger.jsonl"'
    answer = ann.get("/admin/wallets/alice/statement", **{"from": "2020-02-01", "to": "2020-01-01"})
    assert (answer.status_code, "from must be before to" in answer.text) == (400, True)


def test_csv_has_the_rows_as_machines_read_them_and_no_formulas(ann: Browser, seeded: Seeded) -> None:
    answer = ann.get("/admin/wallets/alice/movements?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="deposits-and-withdrawals-of-alice.csv"'
    withdrawn, paid_in, _ = _csv(ann, "/admin/wallets/alice/movements")
    assert paid_in["Amount"] == "12345.67"
    assert paid_in["Time (UTC)"].endswith("Z")
    assert withdrawn["Reference"] == f"'{FORMULA}"


@pytest.mark.parametrize("start", ["=1", "+1", "-a", "@a"])
def test_text_that_begins_like_a_formula_is_written_as_text(start: str) -> None:
    assert as_csv([[start, "-1.00", 1]]) == f'"\'{start}","-1.00",1\r\n'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1234567", "1,234,567"),
        ("-1234567.89", "−1,234,567.89"),
        ("EUR 1234567.89 to receive", "EUR 1,234,567.89 to receive"),
        ("JPY 1234567", "JPY 1,234,567"),
        ("no limit", "no limit"),
        ("", ""),
    ],
)
def test_digits_of_numbers_are_in_groups_with_and_without_decimals(text: str, shown: str) -> None:
    assert Cell(text, "number").shown == shown


def test_who_may_look_only_gets_no_forms_on_the_pages_of_things(reader: Browser, seeded: Seeded) -> None:
    for path in ("/admin/peers/second", "/admin/assets/USD/2", "/admin/wallets/alice"):
        page = reader.get(path).text
        assert re.findall(r'name="choice" value="([^"]+)"', page) == ["sign-out"], path
        assert "/set-rate" not in page


def test_every_page_is_there_and_escapes_what_others_wrote(ann: Browser, reader: Browser, seeded: Seeded) -> None:
    for browser in (ann, reader):  # who may look only, too
        for path in paths(seeded):
            answer = browser.get(path)
            assert answer.status_code == 200, path
            for tag in ("<script", "<img", "<b>of", "<i>", "\u202e", 'onerror=alert(2)>"'):
                assert tag not in answer.text, path


@pytest.mark.parametrize(
    "path",
    [
        *("/admin/wallets/nobody", "/admin/payments/none", "/admin/grants/none", "/admin/peers/none"),
        *("/admin/wallets/%00", "/admin/nonsense", "/admin/a/b/c/", "/admin/v12", "/admin/link"),
        *("/admin/assets/USD/two", "/admin/assets/USD/2.0", "/admin/assets/USD/02/deposit"),
    ],
)
def test_what_does_not_exist_is_a_page_that_says_so(ann: Browser, path: str) -> None:
    answer = ann.get(path)
    assert answer.status_code in {400, 404}
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "To the overview" in words_of(answer)
    assert "`" not in words_of(answer), "commands look like commands"


@pytest.mark.parametrize("path", ["/admin/v1", "/admin/v1/", "/admin/v1/nonsense", "/admin/v1/a/b"])
def test_what_does_not_exist_in_the_api_is_json(ann: Browser, path: str) -> None:
    answer = ann.http.get(path, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_names_of_wallets_lead_nowhere_else(ann: Browser, payres: Instance) -> None:
    payres.write(lambda work: create_wallet(work, "a/b", "USD", 2, None, None))
    assert 'href="/admin/wallets/a%2Fb"' in ann.get("/admin/wallets?first=100").text
    assert ann.words("/admin/wallets/a%2Fb").startswith("a/b")


def _table(browser: Browser, path: str, name: str) -> list[dict[str, str]]:
    body = browser.get(path).text.partition(f'aria-label="{name}"')[2].partition("<tbody")[2].partition("</tbody>")[0]
    return rows_of(body)


def _csv(browser: Browser, path: str, **filters: str) -> list[dict[str, str]]:
    answer = browser.get(path, **filters, format="csv")
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def _link(browser: Browser, path: str, name: str) -> str:
    """Where a link on a page leads; empty without one."""
    found = re.search(rf'href="([^"]+)">{name}</a>', browser.get(path).text)
    return unescape(found[1]) if found else ""


def _filled(path: str, names: dict[str, str], other: str) -> str:
    return re.sub(r"{(\w+)[^}]*}", lambda one: names.get(one[1], other), path)


def test_no_number_in_a_path_a_query_or_a_form_is_a_fault(tmp_path: Path) -> None:
    """On a server of its own, for some of it is done."""
    with run_instance(tmp_path / "payres.db") as instance, Browser(instance) as ann:
        ann.follow_link("ann")
        fill(instance)
        found = _statuses(ann, "99999999999999999999")
    assert {url: status for url, status in found.items() if status >= 500} == {}


def _statuses(ann: Browser, number: str) -> dict[str, int]:
    """The forms are sent as if they had been looked over, without the password and the once of their pages."""
    [moved] = ann.instance.read(lambda work: work.execute("SELECT max(id) FROM movement").fetchone())
    csrf, found = hidden_fields(ann.get("/admin"))["csrf"], {}
    for path, page in admin_pages().items():
        operation = getattr(page, "operation", None) or getattr(page, "keywords", {}).get("operation")
        names = operation.wire_names if operation else {}
        for there in (dict[str, str](), {"wallet": "alice", "code": "USD", "name": "second"}):
            url = _filled(path, there, number)
            for query in ({}, *({one: number} for one in {*names.values(), "first", "cursor", "q"} if there)):
                found[f"GET {url} {query}"] = ann.http.get(url, params=query).status_code
            for choice in page.acts if isinstance(page, Place) else ():
                found[f"POST {url} {choice}"] = ann.http.post(url, data={"csrf": csrf, "choice": choice}).status_code
            if isinstance(page, OperationPage):
                for choice in page.form.buttons:
                    typed = dict.fromkeys(names, number) | {"csrf": csrf, "choice": choice, "seen": "1"}
                    again = {"now": "-", "again": number}, {"choice": "", "again": moved}
                    for more in ({}, {"once": new_id()}, *again):
                        found[f"POST {url} {more}"] = ann.http.post(url, data=typed | more).status_code
    return found


def test_every_number_of_an_operation_and_a_name_has_bounds() -> None:
    """But for the `limit` of commands, which their option bounds."""
    kinds = {(one.id, name): item.kind for one in declared() for name, item in one.inputs.items()}
    shapes = {one.shows for one in declared()} | {one.form.about for one in declared() if one.form}
    for shape in shapes:
        if shape and shape.read:
            hints = get_type_hints(shape.read, include_extras=True)
            kinds |= {(shape.page, name): hints[name] for name in shape.names}
    for (where, name), kind in kinds.items():
        one = Input.of(name, kind, None)
        if one.type is int and name != "limit":
            assert any(meta.ge is not None and meta.le is not None and meta.le < 2**63 for meta in one.metas), where


def test_no_link_leads_to_nothing_whatever_the_path_of_a_wallet(tmp_path: Path) -> None:
    def unit(work: Work) -> None:
        create_wallet(work, "alice/savings", "USD", 2, "Savings", None, "alice")
        deposit(work, "alice/savings", "17.50", "transfer 4711")

    with run_instance(tmp_path / "payres.db") as instance, Browser(instance) as ann:
        ann.follow_link("ann")
        instance.write(unit)
        bill = instance.client.create_incoming_payment(instance.wallet("alice/savings"), None)["id"]
        pages = [f"/admin/payments/{last_segment(bill)}", "/admin/wallets/alice", "/admin/search?q=alice/savings"]
        pages += ["/admin/audit-log", "/admin/payments?used=false", "/admin/wallets/alice%2Fsavings", "/admin/wallets"]
        seen = set[str]()
        for page in pages:
            for link in re.findall(r'(?:href|action)="(/[^"]*savings[^"]*)"', ann.get(page).text):
                seen.add(link)
                assert ann.get(link.replace("&amp;", "&")).status_code in {200, 303}, (page, link)
    assert len(seen) > 10
