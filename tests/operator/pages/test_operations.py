"""What operators do in the pages: each by a form that says what will happen."""

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import httpx2
import msgspec
import pytest

from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.interledger.node import node_of
from payres.operator import assets, due_work, keys, wallets
from payres.operator.wallets import deposit
from payres.people.store.refunds import refunds_of
from tests.helpers import TIMEOUT, last_segment, sign_in_token, usd, wait_until
from tests.instance import Instance
from tests.operator.pages.browser import PASSWORD, Browser, hidden_fields, words_of
from tests.operator.pages.seed import Seeded, fill
from tests.operator.test_due_work import mail_set_aside
from tests.operator.test_refunds import pay_from_remote
from tests.webhooks.endpoint import Endpoint, answering
from tests.works import add_usd_peer


@pytest.fixture(scope="module")
def seeded(payres: Instance) -> Seeded:
    return fill(payres)


def open_wallet(payres: Instance, path: str, amount: str = "100.00") -> str:
    """A wallet of its own for a test; its page."""
    payres.create_wallet(path, deposit=amount)
    return f"/admin/wallets/{path}"


@pytest.mark.parametrize(("choice", "state"), [("true", "approved"), ("false", "denied")])
def test_deciding_in_the_owners_name_takes_a_reason(payres: Instance, ann: Browser, choice: str, state: str) -> None:
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("alice")}
    payres.client.request_grant(item, interact={"start": ["redirect"]})
    [newest] = payres.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
    path, reason = f"/admin/grants/{newest}", "She told me so on the telephone"
    assert f'action="{path}/decision"' in ann.get(path).text
    for without in ("", " "):
        answer = ann.send(f"{path}/decision", choice=choice, reason=without)
        assert (answer.status_code, 'id="reason-error"' in answer.text) == (400, True)
    looked_over = ann.send(f"{path}/decision", choice=choice, reason=reason)
    assert "this moves money" in words_of(looked_over)
    assert "waits for Alice" in ann.words(path), "who has only the session decides nothing"
    assert ann.send(f"{path}/decision", choice=choice, reason=reason, password=PASSWORD).headers["location"] == path
    words = ann.words(path)
    assert f"State {state}" in words
    assert f"“{reason}”" in words
    assert ann.rows("/admin/audit-log")[0]["Details"] == f"reason {reason}"
    assert "There is nothing left to do here." in ann.words(f"{path}/decision")


def test_what_was_given_up_meanwhile_leads_back_to_the_list(payres: Instance, ann: Browser) -> None:
    path = f"/admin/due/{(made := payres.write(mail_set_aside))}"
    page = ann.get(f"{path}/give-up")
    assert "because it is not tried again" in words_of(page)
    assert "cannot be undone" not in words_of(page)
    assert (
        "It is never sent. What it says stands in the owner's wallet too; one with a code can be asked for"
        in words_of(page)
    )
    payres.write(lambda work: due_work.give_up(work, made))
    sent = hidden_fields(page) | {"choice": "give", "password": PASSWORD}
    for method, left in (("POST", f"{path}/give-up"), ("GET", f"{path}/give-up"), ("GET", path)):
        answer = ann.http.request(method, left, data=sent if method == "POST" else None)
        assert (answer.status_code, answer.headers["location"]) == (303, "/admin/due")
        assert "It does not wait any more: it was done or given up meanwhile" in ann.words("/admin/due")


def test_wallet_says_that_its_owner_is_locked_out_until_it_is_unlocked(ann: Browser, payres: Instance) -> None:
    payres.create_wallet("erin", password=PASSWORD)
    with httpx2.Client(base_url=payres.base_url, timeout=TIMEOUT) as http:
        for _ in range(5):
            form = {"choice": "sign-in", "wallet": "erin", "password": "wrong", "csrf": sign_in_token(http, "/account")}
            assert http.post("/account", data=form).status_code == 401
    words = ann.words("/admin/wallets/erin")
    assert re.search(r"Wrong tries locked until \d\d:\d\d 5 in 15 minutes, from 1 address ", words)
    assert ann.send("/admin/wallets/erin/unlock", choice="unlock").status_code == 303
    assert "Wrong tries" not in ann.words("/admin/wallets/erin")


def test_wallets_without_a_password_and_inactive_ones_are_one_press_away(ann: Browser, payres: Instance) -> None:
    for path in ("new", "known", "shut"):
        payres.create_wallet(path, password=PASSWORD if path == "known" else None)
    payres.write(lambda work: wallets.deactivate(work, "shut"))
    page = ann.get("/admin/wallets").text
    found = {name: re.search(rf'href="/admin/wallets([^"]*)"[^>]*>{name}<', page) for name in wallets.VIEWS}
    listed = {
        name: {row["Wallet"] for row in ann.rows(f"/admin/wallets{match[1]}")} & {"new", "known", "shut"}
        for name, match in found.items()
        if match
    }
    assert listed == {"All": {"new", "known", "shut"}, "No password": {"new", "shut"}, "Deactivated": {"shut"}}


def test_key_is_added_by_its_whole_jwk(payres: Instance, ann: Browser) -> None:
    path = open_wallet(payres, "pasted")
    [room] = re.findall(r'<textarea id="jwk"[^>]*maxlength="(\d+)"', ann.get(f"{path}/new-key").text)
    jwk = jwk_from_public_bytes("key-1", b"k" * 32)
    text = msgspec.json.format(msgspec.json.encode(jwk)).decode()
    assert len(text) <= int(room)
    looked_over = ann.send(f"{path}/new-key", choice="add", jwk=text)
    assert "this is about who may do what" in words_of(looked_over)
    [carried] = re.findall(r'<input type="hidden" name="jwk" value="([^"]*)">', looked_over.text)
    form = hidden_fields(looked_over) | {"jwk": unescape(carried), "password": PASSWORD}
    assert ann.http.post(f"{path}/new-key", data=form).headers["location"] == path
    assert "The key key-1 is added" in ann.get(path).text


def test_secret_is_made_once_however_often_the_page_with_it_is_loaded(payres: Instance, ann: Browser) -> None:
    path = open_wallet(payres, "once")
    form = hidden_fields(ann.get(f"{path}/password-link")) | {"choice": "make", "password": PASSWORD}
    made, again = (ann.http.post(f"{path}/password-link", data=form) for _ in range(2))
    assert (made.status_code, "/account/reset/" in made.text) == (200, True)
    assert (again.status_code, "/account/reset/" in again.text) == (409, False)
    [link] = re.findall(r"/account/reset/[\w-]+", made.text)
    assert ann.get(link).status_code == 200, "the link that was shown still works"


@pytest.mark.parametrize("scale", ["1e1", "2.0", "02", " 2", "x", "", "\uff12"])
def test_whole_number_is_written_in_digits(payres: Instance, ann: Browser, scale: str) -> None:
    answer = ann.send("/admin/new-wallet", choice="open", path="whole", asset_code="USD", asset_scale=scale)
    assert (answer.status_code, f"{scale!r} is not a whole number" in words_of(answer)) == (400, True)


def test_key_of_a_wallet_is_revoked(payres: Instance, ann: Browser) -> None:
    own = open_wallet(payres, "keyed")
    jwk = jwk_from_public_bytes("a/b?c", bytes(range(32)))
    payres.write(lambda work: keys.add_key(work, "keyed", jwk))
    path = f"{own}/keys/a%2Fb%3Fc"
    assert f'href="{path}"' in ann.get(own).text
    looked_over = words_of(ann.send(f"{path}/revoke", choice="revoke"))
    assert "Key id a/b?c" in looked_over, "what is ended is named before the password"
    assert re.search(r"Now Then State valid revoked Revoked Today \d\d:\d\d Your password", looked_over)
    assert ann.send(f"{path}/revoke", choice="revoke", password=PASSWORD).headers["location"] == own
    assert "State revoked" in ann.words(path)


def test_deposit_takes_the_password_again_and_is_made_once(payres: Instance, ann: Browser) -> None:
    own = open_wallet(payres, "paid-in")
    form = hidden_fields(ann.get(f"{own}/deposit")) | {"choice": "deposit", "amount": "12.50", "password": PASSWORD}
    answer = ann.http.post(f"{own}/deposit", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, own), answer.text
    # As a second click sends it, and whoever goes back to write a reference or another amount.
    for more in ({}, {"reference": "invoice 8"}, {"amount": "1.00"}):
        answer = ann.http.post(f"{own}/deposit", data=form | more)
        assert (answer.status_code, "This form was carried out before" in answer.text) == (409, True)
        assert hidden_fields(answer)["once"] != form["once"]
    for once in ("", "r1"):
        assert ann.http.post(f"{own}/deposit", data=form | {"once": once}).status_code == 400
    assert payres.balance("paid-in") == "112.50"
    assert ann.rows("/admin/audit-log")[0]["Details"].startswith("amount 12.50 USD, reference page ")


def test_equal_deposit_is_looked_at_once_more_whoever_made_the_first(payres: Instance, ann: Browser) -> None:
    own = open_wallet(payres, "twice")
    given = {"choice": "deposit", "amount": "12.50", "reference": "transfer 4711", "password": PASSWORD}
    with Browser(payres) as eva:
        eva.follow_link("eva")
        assert eva.send(f"{own}/deposit", **given).status_code == 303
    payres.clock.advance(120)
    form = hidden_fields(ann.get(f"{own}/deposit")) | given
    for sent in (form, {name: text for name, text in form.items() if name != "password"}):
        asked = ann.http.post(f"{own}/deposit", data=sent)
        assert asked.status_code == 409
        assert re.match(
            r"Deposit USD 12\.50 into twice again\? eva did that 2 minutes ago USD 12\.50 into the wallet twice,"
            r" “transfer 4711”, at \d\d:\d\d\. It is there\. Now Then Balance USD 112\.50 USD 125\.00 Amount"
            r" USD 12\.50 Reference transfer 4711 The same as the first time: a number follows it Your password",
            words_of(asked),
        )
        assert f'<a class="button calm" href="{own}">See the first one</a>' in asked.text
    assert payres.balance("twice") == "112.50", "nothing is done yet"
    again = hidden_fields(asked)
    assert again["again"]
    wrong = ann.http.post(f"{own}/deposit", data=form | again | {"password": "wrong"})
    assert (wrong.status_code, "Deposit USD 12.50 into twice again?" in words_of(wrong)) == (401, True)
    answer = ann.http.post(f"{own}/deposit", data=form | hidden_fields(wrong))
    assert (answer.status_code, payres.balance("twice")) == (303, "125.00")
    told = ann.rows("/admin/audit-log")[0]["title"]
    assert told == "ann put USD 12.50 into the wallet twice once more, “transfer 4711 (2)”"
    payres.check_ledger()


@pytest.mark.parametrize("language", ["en", "de", "de-CH", "es", ""])
def test_forms_read_the_same_in_every_browser(payres: Instance, ann: Browser, language: str) -> None:
    """The pages are in English in all of them, and write 1,000.00."""
    payres.write(lambda work: assets.set_rate(work, "EUR", "USD", "1.00"))
    headers, main = {"Accept-Language": language}, "/admin"
    path = f"{main}/wallets/alice/deposit"
    for typed in ("1,000", "1,000.00", "1.000,00"):
        form = hidden_fields(ann.get(path)) | {"choice": "deposit", "amount": typed}
        shown = words_of(ann.http.post(path, data=form, headers=headers))
        assert re.search(r"Amount USD 1,000(\.00)? ", shown), shown
    path = f"{main}/set-rate"
    form = hidden_fields(ann.get(path)) | {"choice": "set", "base": "EUR", "counter": "USD", "rate": "1,10"}
    assert "One EUR buys USD 1.10?" in words_of(ann.http.post(path, data=form, headers=headers))
    path = f"{main}/assets/USD/2/set"
    page = ann.http.get(path, headers=headers)
    assert 'name="fixed" type="text" value="0.00"' in page.text
    form = hidden_fields(page) | {"choice": "set", "fixed": "0,10", "basis_points": "0,5"}
    shown = words_of(ann.http.post(path, data=form, headers=headers))
    assert "Each payment, USD 0.00 0.10 and of the amount 0 % 0.5 %" in shown, shown
    found = ann.http.get(f"{main}/payments?wallet=alice&min=1,000.00", headers=headers)
    assert (found.status_code, 'value="1,000.00"' in found.text) == (200, True)


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"amount": "1.00", "password": ""}, 401, "This is not the password of this operator."),
        ({"amount": "1.00", "password": "wrong"}, 401, "This is not the password of this operator."),
        ({"amount": "<b>", "password": PASSWORD}, 400, "'<b>' is not an amount of USD"),
        ({"password": PASSWORD}, 400, "'' is not an amount of USD"),
        ({"amount": "1.00", "choice": "deposit", "password": PASSWORD}, 400, "This form is not one of this page's"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_moves(
    payres: Instance, browser: Browser, fields: dict[str, str], status: int, problem: str
) -> None:
    browser.follow_link("ben")
    before = payres.balance("bob")
    answer = browser.send("/admin/wallets/bob/withdraw", **{"choice": "withdraw"} | fields)
    assert answer.status_code == status
    assert problem in words_of(answer)
    assert "<b>" not in answer.text
    assert payres.balance("bob") == before


def test_passwords_in_forms_that_move_money_are_guesses_too(payres: Instance, browser: Browser) -> None:
    own = open_wallet(payres, "guessed")
    browser.follow_link("thief")
    fields = {"choice": "withdraw", "amount": "1.00"}
    statuses = [browser.send(f"{own}/withdraw", **fields, password=f"guess {n}").status_code for n in range(6)]
    assert statuses == [401] * 5 + [429]
    assert browser.send(f"{own}/withdraw", **fields, password=PASSWORD).status_code == 429
    assert payres.balance("guessed") == "100.00"


def test_packet_is_resolved_as_delivered(payres: Instance, ann: Browser, seeded: Seeded) -> None:
    path = f"/admin/packets/{seeded.packet}"
    assert f'href="{path}"' in ann.get("/admin/peers/second/unresolved-packets").text
    assert f'<form method="post" action="{path}"' in ann.get("/admin/peers/second").text
    assert "Your password" not in ann.words(path), "the outcome is chosen first"
    assert "Delivered: the peer is owed USD 5.00, which is paid out of your liquidity." in ann.words(path)
    looked_over = words_of(ann.send(path, choice="delivered"))
    assert "Amount USD 5.00" in looked_over
    assert "Your password, because this moves money" in looked_over
    answer = ann.send(path, choice="delivered", password=PASSWORD)
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin/peers/second")
    words = ann.words("/admin/peers/second")
    assert "We owe second USD5.00 " in words
    assert "Unresolved" not in words
    assert "End this peering Not yet: We owe the peer USD 5.00: pay that, then record it" in words
    newest = ann.rows("/admin/audit-log")[0]
    assert (newest["Did what"], newest["To what"]) == ("packet.resolve", seeded.packet)
    assert ann.get(path).status_code == 409, "it is resolved"
    payres.check_ledger()


def test_peer_is_settled_with_and_has_a_note(payres: Instance, ann: Browser) -> None:
    payres.write(
        lambda work: add_usd_peer(work, "tide", "1000.00", outgoing_token="to-tide", incoming_token="from-tide")
    )
    forms = re.findall(r'<a class="button[^"]*" href="([^"]+)"', ann.get("/admin/peers/tide").text)
    assert [form.rpartition("/")[2] for form in forms] == ["deposit", "withdraw", "change", "remove"], "money first"
    fields = {"choice": "record", "amount": "922.40", "reference": "bank 4711", "password": PASSWORD}
    assert ann.send("/admin/peers/tide/withdraw", **fields).status_code == 303
    assert ann.send("/admin/peers/tide/note", choice="save", note="Ask Tess\r\nfirst").status_code == 303
    words = ann.words("/admin/peers/tide")
    assert "tide owes us USD922.40 92 % of at most 1,000.00 77.60 left; at 0, payments from tide stop" in words
    assert "For operators only. Ask Tess first Save the note" in words
    [row] = ann.rows("/admin/peers/tide")
    assert (row["What"], row["Amount"], row["Reference"]) == ("We paid them", "USD 922.40", "bank 4711")
    assert row["By"] == "ann"


def test_labels_of_fields_are_words(ann: Browser) -> None:
    words = ann.words("/admin/new-peer")
    for label in ("ILP address", "URL", "Currency", "Decimals", "Largest packet"):
        assert f" {label} " in words


def test_payment_is_refunded_in_part_and_then_in_whole(payres: Instance, ann: Browser, seeded: Seeded) -> None:
    path = f"/admin/payments/{seeded.incoming}"
    assert f'href="{path}/refund"' in ann.get(path).text
    part = ann.send(f"{path}/refund", choice="refund", amount="5.00", reference="broken cup", password=PASSWORD)
    assert (part.status_code, part.headers["location"]) == (303, path)
    assert "USD 5.00 was sent back to alice, under the reference broken cup." in ann.words(path)
    assert "5.00 refunded" in ann.words("/admin/wallets/bob")
    other = ann.words(f"/admin/payments/{seeded.outgoing}")
    assert "USD 5.00 came back from bob, under the reference broken cup." in other
    rest = ann.send(f"{path}/refund", choice="refund")
    went_back = "Now Then Went back of USD 25.00 5.00 25.00"
    assert f"Send USD 20.00 back? {went_back} From Bob To Alice Why no reason" in words_of(rest), (
        "what is left is named"
    )
    form = hidden_fields(rest) | {"amount": "20.00", "password": PASSWORD}
    assert '<input type="hidden" name="amount" value="20.00">' in rest.text
    assert ann.http.post(f"{path}/refund", data=form).status_code == 303
    words = ann.words(path)
    assert "Sent back USD 25.00" in words
    assert "USD 20.00 was sent back to alice. " in words, "without the reference of the form"
    payres.check_ledger()


def test_refund_form_sent_many_times_at_once_is_carried_out_once(payres: Instance, ann: Browser) -> None:
    """Whatever references are written into its copies, and also after it was refused."""
    url = payres.client.create_incoming_payment(payres.wallet("bob"), usd(500))["id"]
    payres.client.pay(payres.wallet("alice"), url)
    path = f"/admin/payments/{last_segment(url)}/refund"
    form = hidden_fields(ann.get(path)) | {"choice": "refund", "amount": "1.00", "password": PASSWORD}
    assert ann.http.post(path, data=form | {"amount": "6.00"}).status_code == 400
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda number: ann.http.post(path, data=form | {"reference": f"r-{number}"}), range(4))
        assert sorted(answer.status_code for answer in answers) == [303, 409, 409, 409]
    assert len(payres.read(lambda work: refunds_of(work, "incoming", last_segment(url), 100))) == 1


def test_payment_from_another_server_is_refunded_to_a_wallet_address(
    payres: Instance, ann: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes: list[None] = []
    monkeypatch.setattr(node_of(payres.context).payments, "wake", lambda: wakes.append(None))
    bill = str(payres.client.create_incoming_payment(payres.wallet("bob"))["id"]).rpartition("/")[2]
    payres.write(lambda work: pay_from_remote(work, 700, "bob", bill))
    path = f"/admin/payments/{bill}"
    form = {"choice": "refund", "reference": "broken jug", "password": PASSWORD}
    refused = ann.send(f"{path}/refund", to="alice", **form)
    assert (refused.status_code, "This must be a wallet address" in words_of(refused)) == (400, True)
    assert not wakes
    answer = ann.send(f"{path}/refund", to=payres.wallet("alice"), **form)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert len(wakes) == 1
    assert f"USD 7.00 was to be sent back to {payres.wallet('alice')} by a payment" in ann.words(path)
    sent = payres.read(lambda work: refunds_of(work, "incoming", bill, 100))[0].return_payment_id
    assert f"Refund of {bill}" in ann.words(f"/admin/payments/{sent}")
    payres.check_ledger()


ACTIONS = (
    *("/admin/wallets/bob/deposit", "/admin/wallets/bob/withdraw", "/admin/wallets/bob/deactivate"),
    *("/admin/grants/{grant}/revoke", "/admin/api-keys/{api_key}/revoke", "/admin/wallets/alice/keys/{kid}/revoke"),
    "/admin/payments/{incoming}/refund",
)


CHOICES = ("deposit", "withdraw", "deactivate", "revoke", "refund")


@pytest.mark.parametrize("path", ACTIONS)
def test_forged_form_and_who_may_look_only_change_nothing(
    browser: Browser, ann: Browser, reader: Browser, seeded: Seeded, path: str
) -> None:
    path, before = path.format(**seeded._asdict()), ann.rows("/admin/audit-log")
    assert "<button" not in reader.get(path).text.partition("<main")[2]
    another = {"csrf": hidden_fields(reader.get("/admin"))["csrf"]}
    for choice in CHOICES:
        form = {"choice": choice, "amount": "1.00", "password": PASSWORD}
        answer = reader.send(path, **form)
        assert (answer.status_code, "You may look at everything" in words_of(answer)) == (403, True)
        statuses = [ann.http.post(path, data=form | token).status_code for token in ({}, another)]
        assert [*statuses, browser.http.post(path, data=form | another).status_code] == [403, 403, 401]
    assert ann.rows("/admin/audit-log") == before


def test_webhook_shows_what_it_was_sent_and_gets_an_event_again(
    payres: Instance, ann: Browser, endpoint: Endpoint
) -> None:
    fields = {"name": "Order book", "events": "wallet.*", "url": endpoint.url, "private": "true", "password": PASSWORD}
    made = ann.send("/admin/new-webhook", choice="add", **fields)
    [path] = re.findall(r'<a class="button primary" href="(/admin/webhooks/[^"]+)">', made.text)
    [secret] = re.findall(r"<textarea[^>]* readonly[^>]*>(whsec_[^<]+)</textarea>", made.text)
    assert secret not in ann.get(path).text
    assert "Nothing was sent yet" in ann.words(path)
    endpoint.body, endpoint.answer = b"stored", answering(500, 200)
    payres.write(lambda work: deposit(work, "alice", "1.00"))
    wait_until(lambda: "500 stored" in ann.words(path))
    assert "It did not take the last event It was answered with 500." in ann.words(path)
    [event] = re.findall(r'name="event" value="([^"]+)"', ann.get(path).text)
    assert ann.send(f"{path}/send", choice="send", event=event).headers["location"] == path
    assert endpoint.wait_for(2)[1].event["id"] == event
    assert ann.send(f"{path}/pause", choice="pause").headers["location"] == path
    assert f'action="{path}/pause"' not in ann.get(path).text
    assert "whsec_" not in ann.send(f"{path}/secret", choice="make").text, "who has only the session sees no secret"
    renewed = ann.send(f"{path}/secret", choice="make", password=PASSWORD).text
    assert ("whsec_" in renewed, secret in renewed) == (True, False)
