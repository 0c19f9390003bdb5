"""What is looked over before it changes money or lasts: before beside after, its proportion, and what is unusual."""

import re
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from html import unescape
from typing import Any, Final

import httpx2
import pytest

from payres.core.payments.quotes import rate_between
from payres.core.store import accounts
from payres.core.store.accounts import RateRecord
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import assets, operators, peers, wallets, webhooks
from payres.operator.declared import look_overs
from payres.operator.declared.declarations import LookOver
from payres.operator.declared.shapes import facts_of
from payres.operator.refunds import WantedRefund
from payres.people.store.refunds import REFUNDS
from payres.people.store.standing_orders import ORDERS
from tests.helpers import last_segment, usd
from tests.instance import Instance
from tests.operator.pages.browser import PASSWORD, Browser, hidden_fields, words_of
from tests.works import refund, standing_order

MOST: Final = "That takes most of each payment"
TERMS: Final[dict[str, Any]] = {
    "asset_code": "USD",
    "asset_scale": 2,
    "url": "https://tide.example/ilp",
    "ilp_address": "test.tide",
}
TOKENS: Final[dict[str, Any]] = {"outgoing_token": "to-tide", "incoming_token": "from-tide"}


def prepare(work: Work) -> None:
    """Wallets in USD, EUR and JPY, a rate by an operator and one of the service, a fee, liquidity, and a peer."""
    for code, scale in (("USD", 2), ("EUR", 2), ("JPY", 0)):
        wallets.create_wallet(work, f"in-{code.lower()}", code, scale, None, None)
    assets.set_rate(work, "USD", "EUR", "0.92")
    accounts.refresh_rate(work, RateRecord("USD", "JPY", "150", work.now, work.now + 1))
    assets.set_fee(work, "USD", 2, "0.10", 50)
    assets.deposit_liquidity(work, "USD", 2, "2410.00")
    peers.add_peer(work, "tide", **TERMS, **TOKENS, credit_limit="1000.00")


def rows(found: LookOver) -> dict[str, tuple[str, str]]:
    return {label: (now.shown, then.shown) for label, now, then in found.rows}


@pytest.mark.parametrize(
    ("pair", "rate", "risk"),
    [
        ("USD EUR", "0.93", ""),
        ("USD EUR", "1.0119", ""),
        ("USD EUR", "1.012", "That is 10 % more Is it right?"),
        ("USD EUR", "0.828", "That is 10 % less Is it right?"),
        ("USD EUR", "0.46", "That is 50 % less Is it right?"),
        ("USD EUR", "9.20", "That is 10 times as much Is a point in the wrong place?"),
        ("EUR USD", "0.1087", "That is 90 % less Is a point in the wrong place?"),
        ("USD JPY", "15", "That is 90 % less Is a point in the wrong place? The rates service says 150."),
        ("EUR JPY", "160", ""),
        ("EUR CHF", "0.95", "Nothing here is in CHF Is the code right? The rate is used once a wallet has it."),
    ],
)
def test_rate_is_compared_with_the_one_before(tx: Work, pair: str, rate: str, risk: str) -> None:
    prepare(tx)
    base, counter = pair.split()
    found = look_overs.of_rate(tx, base, counter, rate)
    assert " ".join(found.risk or ()) == risk
    if (pair, rate) == ("USD EUR", "9.20"):
        assert (found.question, found.button) == ("One USD buys EUR 9.20?", "Set EUR 9.20")
        assert rows(found) == {
            "One USD buys EUR": ("0.92", "9.20"),
            "USD 100.00 arrive as EUR": ("92.00", "920.00"),
            "One EUR buys USD": ("1.087", "0.1087"),
        }
        assert found.set_by.endswith(", today")
    if pair == "EUR JPY":
        assert rows(found)["EUR 100.00 arrive as JPY"] == ("–", "16,000")


def test_standing_orders_that_it_changes_too_are_counted(tx: Work) -> None:
    prepare(tx)
    dollars, euros = (require_wallet(tx, path).id for path in ("in-usd", "in-eur"))
    for wallet, given in (
        (dollars, {"receive_code": "EUR"}),
        (euros, {}),
        (dollars, {}),
        (dollars, {"state": "paused"}),
    ):
        ORDERS.insert(tx, standing_order(wallet, "https://b.example/b", **given))
    assert ("Also changes", "2 standing orders") in look_overs.of_rate(tx, "USD", "EUR", "0.93").facts
    assert "Also changes" not in dict(look_overs.of_rate(tx, "USD", "JPY", "150").facts)
    words = "2 standing orders: one stops that would take more than its owner allowed"
    assert ("Also changes", words) in look_overs.of_fee(tx, "USD", 2, "0.10", 60).facts


@pytest.mark.parametrize(
    ("fixed", "share", "said", "risk"),
    [
        ("0.10", 60, "0.10 and 0.6 %", ""),
        ("1.19", 0, "1.19", ""),
        ("1.20", 0, "1.20", "That is 2 times as much"),
        ("5.00", 0, "5.00", "That is 8.333 times as much"),
        ("0.10", 110, "0.10 and 1.1 %", "That is 2 times as much It is 2.2 times the share of now."),
        ("0.10", 600, "0.10 and 6 %", "That is more than 5 % of a payment It is 12 times the share of now."),
        ("0.10", 9000, "0.10 and 90 %", f"{MOST} It is 180 times the share of now. Did you mean 0.9 %?"),
        ("0", 0, "nothing", ""),
    ],
)
def test_fee_says_what_sending_costs(tx: Work, fixed: str, share: int, said: str, risk: str) -> None:
    prepare(tx)
    found = look_overs.of_fee(tx, "USD", 2, fixed, share)
    assert (found.question, " ".join(found.risk or ()).strip()) == (f"A fee of {said}?", risk)
    if share == 9000:
        assert rows(found)["Sending USD 100.00 costs"] == ("0.60", "90.10")
        assert rows(found)["Sending USD 5.00 costs"] == ("0.13", "4.60")


@pytest.mark.parametrize(
    ("limit", "risk"),
    [
        ("1999.99", ""),
        ("2000.00", "That is 2 times as much"),
        ("100000.00", "That is 100 times as much"),
        ("500.00", ""),
    ],
)
def test_credit_limit_is_held_against_the_liquidity(tx: Work, limit: str, risk: str) -> None:
    prepare(tx)
    found = look_overs.of_terms(tx, "tide", limit, outgoing_token="new")
    assert found is not None
    assert (found.risk[0] if found.risk else "") == risk
    assert ("Token that we send", "a new one") in found.facts
    if found.risk:
        assert found.risk[1] == "If tide never pays, you have to: all of your liquidity in USD is 2,410.00."
    new = look_overs.of_peer(tx, "north", "USD", 2, "2410.01")
    assert new.risk is not None
    assert new.risk[0] == "That is more than all of your liquidity"
    assert look_overs.of_peer(tx, "north", "USD", 2, "2410.00").risk is None


def test_rate_is_set_all_the_same_after_a_look(payres: Instance, ann: Browser) -> None:
    for code in ("LOA", "LOB"):
        payres.create_wallet(f"in-{code.lower()}", asset=code)
    payres.write(lambda work: assets.set_rate(work, "LOA", "LOB", "0.92"))
    assert "Currency Priced in One unit buys An exact decimal" in ann.words("/admin/set-rate")
    assert "One LOA buys An exact decimal, such as 0.92. LOB" in ann.words("/admin/set-rate", base="LOA", counter="LOB")
    assert "One unit buys" in ann.words("/admin/set-rate", base="LOA or so {rate}")
    asked = ann.send("/admin/set-rate", choice="set", base="LOA", counter="LOB", rate="9.20")
    words = words_of(asked)
    assert "One LOA buys LOB 9.20? That is 10 times as much Is a point in the wrong place?" in words
    assert "Now Then One LOA buys LOB 0.92 9.20" in words
    assert words.endswith("Change it Set LOB 9.20 all the same")
    [back] = re.findall(r'<a class="button calm" href="([^"]*)">Change it', asked.text)
    assert re.search(r'name="rate"[^>]* value="9.20"', ann.get(unescape(back)).text)
    form = hidden_fields(asked) | {"rate": "9.20"}
    wrong = ann.http.post("/admin/set-rate", data=form | {"password": "wrong"})
    assert (wrong.status_code, "Now Then One LOA buys LOB 0.92 9.20" in words_of(wrong)) == (401, True)
    for rate, status in (("x", 400), ("9.20", 303)):  # what was changed meanwhile is refused, not looked over
        bad = ann.http.post("/admin/set-rate", data=hidden_fields(wrong) | {"rate": rate, "password": PASSWORD})
        assert bad.status_code == status
    assert ann.http.post("/admin/set-rate", data=form | {"rate": "x", "password": "wrong"}).status_code == 400
    assert "1 LOA buys 9.20 LOB" in ann.words("/admin/rates/LOA/LOB")


def test_currency_is_not_made_in_passing(payres: Instance, ann: Browser) -> None:
    typed = {"choice": "open", "path": "in-gold", "asset_scale": "3", "public_name": "Gold"}
    blank = hidden_fields(ann.get("/admin/new-wallet")) | {"asset_code": "Gold"}
    asked = ann.http.post("/admin/new-wallet", data=blank | typed)
    words = words_of(asked)
    assert "A new currency, “Gold”? No wallet here has this currency Codes have three capitals, like USD." in words
    assert "USD 2" in words
    assert "Decimals 3, for ever. 0.001 is the least amount." in words
    assert "password" not in words
    assert not any(one["Asset"] == "Gold" for one in ann.rows("/admin/assets"))
    form = dict(re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', asked.text))
    made = ann.http.post("/admin/new-wallet", data=form)
    assert (made.status_code, made.headers["location"]) == (303, "/admin/wallets/in-gold")
    second = hidden_fields(ann.get("/admin/new-wallet")) | typed | {"asset_code": "Gold", "path": "in-gold-2"}
    second["public_name"] = "Gold 2"
    assert ann.http.post("/admin/new-wallet", data=second).headers["location"] == "/admin/wallets/in-gold-2"


def test_tokens_of_a_peer_are_sent_again_and_shown_nowhere(payres: Instance, ann: Browser) -> None:
    typed = {"name": "looked", "ilp_address": "test.looked", "asset_code": "USD", "asset_scale": "2"}
    typed |= {"url": "https://looked.example/ilp", **TOKENS, "choice": "add"}
    asked = ann.http.post("/admin/new-peer", data=hidden_fields(ann.get("/admin/new-peer")) | typed)
    assert "to-tide" not in words_of(asked)
    form = dict(re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', asked.text))
    assert ann.http.post("/admin/new-peer", data=form | {"password": PASSWORD}).status_code == 303
    assert "looked is a peer from now on" in ann.words("/admin/peers/looked")


@pytest.mark.parametrize(
    ("before", "pair", "rate", "now", "then", "risk"),
    [
        ("EUR USD 0.125", "USD EUR", "80", ("8", "800.00"), ("8", "800.00"), "1 USD does not buy 80 EUR"),
        ("EUR USD 0.125, USD EUR 80", "USD EUR", "7", ("8", "800.00"), ("7", "700.00"), "That is 12.5 % less"),
        ("USD EUR 80", "EUR USD", "0.125", ("0.0125", "1.25"), ("0.125", "12.50"), "That is 10 times as much"),
        ("USD EUR 2", "EUR USD", "1.25", ("0.5", "50.00"), ("0.5", "50.00"), "1 EUR does not buy 1.25 USD"),
    ],
)
def test_rate_is_shown_as_it_is_used(
    tx: Work, before: str, pair: str, rate: str, now: tuple[str, str], then: tuple[str, str], risk: str
) -> None:
    for code in ("USD", "EUR"):
        wallets.create_wallet(tx, f"in-{code.lower()}", code, 2, None, None)
    for one in before.split(", "):
        assets.set_rate(tx, *one.split())
    base, counter = pair.split()
    found = look_overs.of_rate(tx, base, counter, rate)
    hundred = f"{base} 100.00 arrive as {counter}"
    shown = rows(found)
    assert [shown[label] for label in (f"One {base} buys {counter}", hundred)] == [*zip(now, then, strict=True)]
    assert found.risk is not None
    assert found.risk[0] == risk
    assets.set_rate(tx, base, counter, rate)
    assert rate_between(tx, base, counter) == Fraction(then[0]), "what was said of it is so"
    used = [assets.rate(tx, one) for one in accounts.list_rates(tx)]
    words = [facts["Use"].text for facts in (dict(facts_of(assets.RATE.columns, one)) for one in used)]
    is_said = "does not buy" in " ".join(found.risk)
    assert ("not used: the inverse of the opposite one is lower" in words) == is_said


def test_decimals_of_a_currency_that_is_here_are_named(tx: Work) -> None:
    prepare(tx)
    found = look_overs.of_wallet(tx, "cents", "USD", 3)
    assert found is not None
    text = "With 3 it is another currency, for ever: a payment between the two is an exchange."
    assert found.risk == look_overs.of_peer(tx, "north", "USD", 3).risk == ("USD has 2 decimals here", text)


def test_currency_that_another_has_made_meanwhile_is_looked_at(payres: Instance, ann: Browser) -> None:
    typed = {"choice": "open", "asset_code": "LOX"}
    forms = {}
    for path, scale in (("lox-2", "2"), ("lox-3", "3"), ("lox-two", "2")):
        asked = ann.send("/admin/new-wallet", path=path, public_name=path, asset_scale=scale, **typed)
        found = re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', asked.text)
        forms[path] = {name: unescape(text) for name, text in found}
    status = {path: ann.http.post("/admin/new-wallet", data=form) for path, form in forms.items()}
    assert {path: one.status_code for path, one in status.items()} == {"lox-2": 303, "lox-3": 409, "lox-two": 303}
    assert "LOX has 2 decimals here With 3 it is another currency" in words_of(status["lox-3"])


@pytest.mark.parametrize(
    "path", ["/admin/rates/LOC/LOD/remove", "/admin/peers/ended/remove", "/admin/webhooks/{}/remove"]
)
def test_what_another_changed_meanwhile_is_not_ended_unseen(payres: Instance, ann: Browser, path: str) -> None:
    tokens = {"outgoing_token": "to-ended", "incoming_token": "from-ended"}
    if "peers" in path:
        payres.write(lambda work: peers.add_peer(work, "ended", **TERMS | tokens | {"ilp_address": "test.ended"}))
    payres.write(lambda work: assets.set_rate(work, "LOC", "LOD", "0.93"))
    hook = payres.write(lambda work: webhooks.add(work, "https://hooks.example/ended", "Ended").webhook).id
    path = path.format(hook)
    form = hidden_fields(ann.get(path)) | {"password": PASSWORD}
    payres.write(lambda work: assets.set_rate(work, "LOC", "LOD", "0.95"))
    if "peers" in path:
        payres.write(lambda work: peers.change_peer(work, "ended", credit_limit="2.00"))
    payres.write(lambda work: webhooks.change(work, hook, name="Still wanted"))
    refused = ann.http.post(path, data=form)
    assert (refused.status_code, "Somebody has changed it since you looked it over" in refused.text) == (409, True)
    assert ann.http.post(path, data=hidden_fields(refused) | {"password": PASSWORD}).status_code == 303


def test_hint_of_a_reference_is_that_of_the_page(payres: Instance, ann: Browser) -> None:
    """A command with the same reference changes nothing; a page asks, and then makes another one."""
    payres.create_wallet("hinted")
    words = ann.words("/admin/wallets/hinted/deposit")
    assert "if another one has it, you see that one first" in words
    assert "changes nothing" not in words


def paid(payres: Instance, amount: int = 19000) -> str:
    """The id of an incoming payment that alice paid to bob."""
    url = payres.client.create_incoming_payment(payres.wallet("bob"), usd(amount))["id"]
    payres.client.pay(payres.wallet("alice"), url)
    return last_segment(url)


def confirmed(page: httpx2.Response) -> dict[str, str]:
    """What the form of a page that is looked over sends with the password."""
    found = re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', page.text)
    return {name: unescape(text) for name, text in found} | {"password": PASSWORD}


def sent_back(payres: Instance, payment: str) -> list[tuple[int, str]]:
    made = payres.read(lambda work: REFUNDS.list(work, incoming_payment_id=payment))
    return [(one.amount, one.reference) for one in made]


def test_refund_that_another_made_meanwhile_is_looked_at_before_the_next(payres: Instance, ann: Browser) -> None:
    payment = paid(payres)
    path, typed = f"/admin/payments/{payment}/refund", {"choice": "refund", "amount": "20.00"}
    looked_over = ann.send(path, **typed, reference="complaint 77")
    assert "Went back of USD 190.00 0.00 20.00" in words_of(looked_over)
    with Browser(payres) as cat:
        cat.follow_link("cat")
        made = cat.http.post(path, data=confirmed(cat.send(path, **typed, reference="complaint 77, Cat")))
        assert made.status_code == 303
    refused = ann.http.post(path, data=confirmed(looked_over))
    assert refused.status_code == 409
    words = words_of(refused)
    assert "Somebody has changed it since you looked it over: look again." in words
    assert "Went back of USD 190.00 20.00 40.00" in words
    said = "USD 20.00 of this payment went back before That was today, “complaint 77, Cat”. Is this another one?"
    assert said in words
    assert sent_back(payres, payment) == [(2000, "complaint 77, Cat")]
    assert "went back before" not in words_of(ann.send(path, choice="refund", amount="19.00"))
    assert ann.http.post(path, data=confirmed(refused)).status_code == 303, "all the same"
    assert sent_back(payres, payment) == [(2000, "complaint 77, Cat"), (2000, "complaint 77")]
    payres.check_ledger()


def test_of_refunds_confirmed_at_the_same_time_one_is_made(payres: Instance, ann: Browser) -> None:
    payment = paid(payres)
    path = f"/admin/payments/{payment}/refund"
    forms = [confirmed(ann.send(path, choice="refund", amount="20.00")) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda form: ann.http.post(path, data=form), forms)
        assert sorted(answer.status_code for answer in answers) == [303, 409, 409, 409]
    assert [amount for amount, _ in sent_back(payres, payment)] == [2000]


def test_refund_whose_reference_was_used_says_that_it_sends_nothing(payres: Instance, ann: Browser) -> None:
    payment = paid(payres)
    path, typed = f"/admin/payments/{payment}/refund", {"choice": "refund", "reference": "complaint 78"}
    early = ann.send(path, **typed, amount="20.00")
    payres.write(lambda work: refund(work, WantedRefund(payment, "complaint 78", "20.00")))
    for answer, status in ((ann.send(path, **typed), 200), (ann.http.post(path, data=confirmed(early)), 409)):
        assert answer.status_code == status
        words = words_of(answer)
        assert "This refund was made before Nothing is sent again. This reference is that of a refund of" in words
        assert "USD 20.00, today. To send more back, give another one. From Bob To Alice Reference complaint" in words
        assert ("password" in answer.text, "Change it" in words) == (False, True)
    assert ann.send(path, **typed, amount="21.00").status_code == 409, "that of another refund"
    assert sent_back(payres, payment) == [(2000, "complaint 78")]


def test_refund_form_whose_answer_was_lost_is_taken_as_carried_out(payres: Instance, ann: Browser) -> None:
    payment = paid(payres)
    path = f"/admin/payments/{payment}/refund"
    form = confirmed(ann.send(path, choice="refund", amount="20.00"))
    reference = f"page {form['once']}"
    payres.write(lambda work: refund(work, WantedRefund(payment, reference, "20.00")))
    assert ann.http.post(path, data=form).status_code == 303
    assert sent_back(payres, payment) == [(2000, reference)]


def test_operator_whom_another_has_let_in_meanwhile_is_looked_at(payres: Instance, ann: Browser) -> None:
    path = "/admin/new-operator"
    asked = ann.send(path, choice="make", name="eve", role="full")
    assert "New operator? Name eve Role full" in words_of(asked)
    payres.write(lambda work: operators.make_link(work, "eve", role="support"))
    refused = ann.http.post(path, data=confirmed(asked))
    assert refused.status_code == 409
    assert "There is a link for this name already It ends, and with it the role “support”." in words_of(refused)
    assert "Somebody has changed it since you looked it over" in words_of(refused)
    assert ann.http.post(path, data=confirmed(refused)).status_code == 200, "all the same"
