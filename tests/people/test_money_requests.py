import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html import unescape
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from payres.core.protocol.clock import HOUR, SECOND, format_time
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.rows import PageQuery
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import audit
from payres.operator.wallets import deposit
from payres.people import money_requests
from tests.helpers import last_segment, receiver_of, usd
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import OwnersBrowser, signed_out

PATH = "/account/request"
DAY = 24 * 3600
LINKS = re.compile(r'href="((?:mailto|sms):[^"]*)"')


class Owner(OwnersBrowser):
    """That of the owner of a new wallet."""

    def __init__(self, instance: Instance) -> None:
        self.path = f"asker-{secrets.token_hex(4)}"
        instance.create_wallet(self.path, name="Asker")
        super().__init__(instance, self.path)


@pytest.fixture
def owner(shared: Instance) -> Iterator[Owner]:
    with Owner(shared) as found:
        yield found


def make(owner: Owner, amount: str = "25.00", note: str = "Lunch", days: str = "7") -> str:
    """The path of the page of a new request."""
    answer = owner.send(PATH, "make", {"amount": amount, "note": note, "days": days})
    assert answer.status_code == 303, words_of(answer)
    return str(answer.headers["location"])


def pay(instance: Instance, path: str, value: int) -> None:
    """Pays a request from the wallet of alice."""
    receiver = f"{instance.base_url}/incoming-payments/{path.rpartition('/')[2]}"
    instance.client.pay(instance.wallet("alice"), receiver, receiveAmount=usd(value))


@pytest.mark.parametrize(
    ("amount", "value"), [("25.00", "2500"), ("25,5", "2550"), ("0.01", "1"), (" 7 ", "700"), ("", None)]
)
def test_request_is_an_incoming_payment_with_the_note_as_its_description(
    shared: Instance, owner: Owner, amount: str, value: str | None
) -> None:
    path = make(owner, amount, "  Your half\tof the “concert” ", "1")
    page = shared.base_url + path.replace("account/request", "pay")
    record = shared.read(lambda work: INCOMING.by_id(work, path.rpartition("/")[2]))
    assert (record.incoming_value, record.metadata) == (value, '{"description":"Your half of the “concert”"}')
    assert record.expires_at - record.created_at == DAY * 1_000_000
    shown = owner.http.get(path)
    assert f"readonly>{page}</textarea>" in shown.text
    assert 'class="qr"' in shown.text
    asked = "Pay Asker" if value is None else f"Pay Asker USD {int(value) / 100:.2f}"
    subject = f"{asked}: Your half of the “concert”"
    links = {link.partition(":")[0]: parse_qs(urlsplit(unescape(link)).query) for link in LINKS.findall(shown.text)}
    text = f"{subject}\n{page}"
    assert links == {"mailto": {"subject": [subject], "body": [text]}, "sms": {"body": [text]}}
    assert int(shown.headers["refresh"]) > 0, "what comes is seen without doing anything"
    events = shared.read(lambda work: work.execute("SELECT type FROM event WHERE subject = ?", (record.id,)).fetchall())
    assert events == [("incoming_payment.created",)]


@pytest.mark.parametrize(
    ("field", "given", "sentence"),
    [
        ("amount", "0", "Type an amount above zero."),
        ("amount", "<b>", "Type an amount, like 12.50."),
        ("note", "x" * 141, "A note has at most 140 characters."),
        ("days", "31", "Choose one of these."),
        ("days", "", "Choose one of these."),
        ("days", "٧", "Choose one of these."),
    ],
)
def test_what_cannot_be_is_said_at_its_field_and_stays_there(
    owner: Owner, field: str, given: str, sentence: str
) -> None:
    answer = owner.send(PATH, "make", {"amount": "1.00", "note": "Lunch", "days": "1", field: given})
    assert answer.status_code == 400
    assert "<title>Error: " in answer.text
    assert sentence in words_of(answer)
    assert f'aria-describedby="{field}-hint {field}-error"' in answer.text or f'"{field}-error"' in answer.text
    if field != "days":
        assert given in [unescape(text) for text in re.findall(r'value="([^"]*)"', answer.text)]
    assert "Open requests" not in owner.words(PATH)


def test_form_that_is_sent_again_leads_to_the_first_request(shared: Instance, owner: Owner) -> None:
    """Three clicks at once too; another one, or one that was changed after going back, makes another request."""
    given = {"amount": "5.00", "note": "Lunch", "days": "1"}

    def opened() -> str:
        return str(re.findall(r'name="once" value="([^"]+)"', owner.http.get(PATH).text)[0])

    def sent(once: str, **changed: str) -> str:
        return str(owner.send(PATH, "make", given | {"once": once} | changed).headers["location"])

    first = opened()
    with ThreadPoolExecutor(3) as pool:
        paths = set(pool.map(sent, [first] * 3))
    assert len(paths) == 1
    assert paths.isdisjoint({sent(first, amount="6.00"), sent(opened())})
    assert {sent(first)} == paths
    wallet = shared.read(partial(require_wallet, wallet=owner.path))
    assert len(shared.read(partial(money_requests.list_open, wallet=wallet))) == 3
    refused = owner.send(PATH, "make", given | {"once": first, "amount": "0"})
    assert f'name="once" value="{first}"' in refused.text, "what is mended is the same form"


def test_form_comes_first_and_open_requests_tell_what_came(shared: Instance, owner: Owner) -> None:
    assert "Open requests" not in owner.words(PATH)
    paths = {note: make(owner, amount, note) for note, amount in [("Whole", "5"), ("Part", "60"), ("Any", "")]}
    pay(shared, paths["Whole"], 500)
    pay(shared, paths["Part"], 2000)
    pay(shared, paths["Any"], 123)
    words = owner.words(PATH)
    listed = words.partition("Open requests")[2]
    assert "Parta part is paid 60.0020.00 came" in listed
    assert "Anyopen Any amount1.23 came" in listed
    assert "Whole" not in listed
    assert "You were paid USD5.00" in owner.words(paths["Whole"])
    assert "refresh" not in owner.http.get(paths["Whole"]).headers
    assert "USD 20.00 came." in owner.words(paths["Part"])


def test_what_is_not_paid_yet_leads_from_the_activity_to_its_page(shared: Instance, owner: Owner) -> None:
    request = make(owner, "5", "Lunch").rpartition("/")[2]
    bill = last_segment(receiver_of(shared, 700, owner.path))
    assert f'href="{PATH}/{request}"' in owner.http.get(f"/account/payments/{request}").text
    assert f'href="/pay/{bill}"' in owner.http.get(f"/account/payments/{bill}").text


def test_cancelling_a_request_asks_once(owner: Owner) -> None:
    path = make(owner, "5", "Lunch")
    assert f'href="{path}?ask=cancel"' in owner.http.get(path).text
    asked = owner.http.get(f"{path}?ask=cancel")
    assert f'action="{path}"' in asked.text
    assert "Cancel this request? USD5.00 Lunch" in words_of(asked)
    assert "refresh" not in asked.headers, "the question stays until it is answered"
    assert owner.send(path, "cancel").status_code == 303
    assert "Cancel this request?" not in owner.words(f"{path}?ask=cancel")


def test_cancelled_request_takes_no_more_money(shared: Instance, owner: Owner) -> None:
    path = make(owner)
    assert owner.send(path, "cancel").headers["location"] == path
    assert "This request was cancelled" in owner.words(path)
    assert "Cancel the request" not in owner.words(path)
    payment_id = path.rpartition("/")[2]
    public = shared.client.get(f"/incoming-payments/{payment_id}").json()
    assert public["receivedAmount"]["value"] == "0"
    record = shared.read(lambda work: INCOMING.by_id(work, payment_id))
    assert record.completed
    assert owner.send(path, "cancel").status_code == 303, "and again does nothing"
    entries, _ = shared.read(lambda work: audit.list_entries(work, PageQuery(2), object_=payment_id))
    assert [(one.action, one.actor) for one in entries] == [
        ("payment.cancel", f"owner:{owner.path}"),
        ("payment.request", f"owner:{owner.path}"),
    ]


def test_paid_request_cannot_be_cancelled_any_more(shared: Instance, owner: Owner) -> None:
    path = make(owner, "5")
    pay(shared, path, 500)
    assert owner.send(path, "cancel").status_code == 303
    assert "You were paid" in owner.words(path)


def test_expired_request_says_so(payres: Instance) -> None:
    with Owner(payres) as owner:
        path = make(owner, days="1")
        payres.clock.advance(DAY + 1)
        answer = owner.http.get(path)
        assert answer.status_code == 401, "the session has ended too"
    with signed_out(payres) as http:
        words = words_of(http.get(path.replace("account/request", "pay")))
        assert "This bill has expired" in words
        assert "Ask Asker for a new one" in words


@pytest.mark.parametrize("ends", ["expires", "is cancelled"])
def test_request_that_ends_paid_in_part_says_what_came_and_leads_to_the_rest(payres: Instance, ends: str) -> None:
    with Owner(payres) as owner:
        path = make(owner, "25.00", "Lunch & tea", "1")
        pay(payres, path, 1000)
        if ends == "is cancelled":
            owner.send(path, "cancel")
    payres.clock.advance(DAY + 1)
    with OwnersBrowser(payres, owner.path) as later:
        movement, has_ended = (
            path.replace(PATH, "/account/payments"),
            "for money has expired" if ends == "expires" else "was cancelled",
        )
        came = "10.00 of {}25.00 came. The rest can no longer be paid."
        for place in ("/account", "/account/activity"):
            assert came.format("") in later.words(place)
            assert ("expired" if ends == "expires" else "cancelled") in later.words(place)
        for place in (path, movement):
            assert f"This request {has_ended}" in later.words(place)
            assert f"USD {came.format('USD ')}" in later.words(place)
            assert (
                f'href="{PATH}?amount=15.00&amp;note=Lunch%20%26%20tea">Ask for the rest' in later.http.get(place).text
            )
        assert f'href="{path}"' in later.http.get(movement).text
        form = later.http.get(PATH, params={"amount": "15.00", "note": "Lunch & tea"}).text
        assert 'value="15.00"' in form
        assert 'value="Lunch &amp; tea"' in form
        bill = later.words(path.replace("account/request", "pay"))
        assert "USD 10.00 of USD 25.00 was paid. The rest can no longer be paid here: ask Asker for a new bill." in bill


def test_bill_of_a_shop_that_ends_paid_in_part_says_so(payres: Instance) -> None:
    with Owner(payres) as owner:
        expires_at = format_time(payres.clock.now() + 60 * SECOND)
        bill = last_segment(receiver_of(payres, 2500, owner.path, expiresAt=expires_at))
        pay(payres, bill, 1000)
        payres.clock.advance(61)
        words = owner.words(f"/account/payments/{bill}")
        assert "This bill has expired USD 10.00 of USD 25.00 came. The rest can no longer be paid." in words
        assert f'href="/pay/{bill}"' in owner.http.get(f"/account/payments/{bill}").text


def test_requests_of_others_are_not_there(shared: Instance, owner: Owner) -> None:
    path = make(owner)
    shops = shared.client.create_incoming_payment(shared.wallet(owner.path), usd(1))["id"].rpartition("/")[2]
    with Owner(shared) as other:
        for where in (path, f"{PATH}/{shops}", f"{PATH}/none"):
            assert other.http.get(where).status_code == 404
            assert other.send(where, "cancel").status_code == 404
    assert owner.http.get(f"{PATH}/{shops}").status_code == 404, "what an app has made is not a request of the owner"
    assert "not paid yet" in owner.words(path)


def test_note_is_text_and_nothing_else(owner: Owner) -> None:
    note = "</textarea><script>alert(1)</script>{{ 7*7 }}\u202eevil"
    path = make(owner, note=note)
    for page in (path, PATH, path.replace("account/request", "pay")):
        text = owner.http.get(page).text
        assert "<script>" not in text
        assert "\u202e" not in text
        assert "{{ 7*7 }}" in text


def test_bill_of_a_shop_is_paid_in_two_steps_and_leads_back(shared: Instance, owner: Owner) -> None:
    shared.write(lambda work: deposit(work, owner.path, "20.00"))
    shop = {"description": "Order 2041", "returnUrl": "https://shop.example/orders/2041"}
    bill = receiver_of(shared, 1250, metadata=shop)
    assert f'name="bill" value="{bill}"' in owner.http.get(f"/pay/{last_segment(bill)}").text
    link = f"/account/send?bill={quote(bill, safe='')}"
    price = owner.http.get(link)
    assert price.status_code == 303
    path = price.headers["location"]
    assert "Send USD 12.50 to Bob?" in owner.words(path)
    paid = owner.send(path, "send").headers["location"]
    assert "Back to shop.example" in owner.words(paid)
    assert 'href="https://shop.example/orders/2041" rel="noreferrer"' in owner.http.get(paid).text
    again = owner.http.get(link)
    assert again.status_code == 400
    assert "This bill is paid or cancelled, and takes no more money." in words_of(again)


@pytest.mark.parametrize(
    "bill", ["https://evil.example/incoming-payments/1", "", "x", "http://127.0.0.1/incoming-payments/1"]
)
def test_link_makes_this_server_ask_no_other(owner: Owner, bill: str) -> None:
    answer = owner.http.get("/account/send", params={"bill": bill})
    assert answer.status_code == 200
    assert "Send money" in words_of(answer)


def test_request_from_home_names_the_wallet_address(shared: Instance, owner: Owner) -> None:
    assert f"readonly>{shared.wallet(owner.path)}</textarea>" in owner.http.get("/account").text


def test_open_request_stays_listed_behind_hundreds_of_newer_ones(shared: Instance, owner: Owner) -> None:
    old = make(owner, note="The oldest one")
    wallet = shared.read(lambda work: require_wallet(work, owner.path))

    def paid(work: Work) -> None:
        for _ in range(300):
            money_requests.cancel_request(work, wallet, money_requests.make_request(work, wallet, 100, "", HOUR))

    shared.write(paid)
    assert "The oldest one" in owner.words(PATH)
    assert old in owner.http.get(PATH).text
