"""Sending money as an owner does, through the pages."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from html import unescape
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from threading import Event
from urllib.parse import quote

import httpx2
import pytest

from payres.core.payments import incoming
from payres.core.protocol.clock import DAY, SECOND, format_time
from payres.core.store import audit
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.retention import EMPTY_PAYMENT
from payres.core.store.rows import number
from payres.interledger.node import node_of
from payres.operator import assets, wallets
from payres.testing.peering import peer
from tests.helpers import TIMEOUT, Json, receiver_of, usd
from tests.http_server import reply, serving
from tests.instance import Instance
from tests.interledger.network import change, hurried, network
from tests.operator.pages.browser import words_of
from tests.people.browser import OwnersBrowser
from tests.tls import server_tls

NUMBERS = count(1)
SEND = "/account/send"


class Sender(OwnersBrowser):
    """The browser of the owner of a new wallet."""

    def __init__(self, instance: Instance, deposit: str = "100.00", name: str | None = "Dora", **headers: str) -> None:
        self.path = f"sends-by-page-{next(NUMBERS)}"
        instance.create_wallet(self.path, name=name, deposit=deposit)
        super().__init__(instance, self.path, **headers)

    def ask(self, to: str, amount: str = "", fixed: str = "send", note: str = "") -> httpx2.Response:
        return self.send(SEND, "price", {"to": to, "amount": amount, "fixed": fixed, "note": note})

    def price(self, to: str, amount: str = "", fixed: str = "send", note: str = "") -> str:
        """The path of the page of a price."""
        answer = self.ask(to, amount, fixed, note)
        assert answer.status_code == 303, words_of(answer)
        return str(answer.headers["location"])

    def pay(self, price: str) -> str:
        """The path of the payment of a price."""
        answer = self.send(price, "send")
        assert answer.status_code == 303, words_of(answer)
        return str(answer.headers["location"])

    @property
    def balance(self) -> str:
        return self.instance.balance(self.path)


@pytest.fixture
def sender(payres: Instance) -> Iterator[Sender]:
    with Sender(payres) as browser:
        yield browser


def new_wallet(instance: Instance, asset: str = "USD", scale: int = 2, name: str | None = "Erik") -> str:
    path = f"receiver-{next(NUMBERS)}"
    instance.create_wallet(path, asset, scale, name)
    return path


def problem(page: httpx2.Response, field: str) -> str:
    """What stands at a field, and nothing besides."""
    assert page.status_code >= 400, page.headers
    assert re.search(r"<title>(Error|Fehler): ", page.text), page.text[:900]
    found = dict(re.findall(r'<p class="error" id="(\w+)-error" role="alert">(.*?)</p>', page.text))
    assert found.keys() == {field}, found
    return re.sub("<[^>]*>", "", found[field])


def test_owner_sends_what_they_see_and_once(sender: Sender) -> None:
    path = new_wallet(sender.instance)
    price = sender.price(sender.instance.wallet(path), "12,50", note="Lunch on Friday")
    page = sender.words(price)
    for said in ("Send USD 12.50 to Erik?", "Erik gets", "USD12.50", "Lunch on Friday", "You have USD 87.50."):
        assert said in page
    assert sender.balance == "100.00"
    payment = sender.pay(price)
    assert sender.pay(price) == payment, "confirming twice leads to what was paid once"
    assert sender.http.get(price).headers["location"] == payment, "as does the back button"
    assert (sender.balance, sender.instance.balance(path)) == ("87.50", "12.50")
    assert "Erik has USD 12.50" in sender.words(payment)
    payment_id = payment.rpartition("/")[2]
    record = sender.instance.read(lambda work: OUTGOING.by_id(work, payment_id))
    assert (record.grant_id, record.metadata) == (None, '{"description":"Lunch on Friday"}')
    made = sender.instance.read(lambda work: INCOMING.by_id(work, str(record.terms.incoming_payment_id)))
    assert (made.incoming_value, made.received, made.completed, made.metadata) == (None, 1250, True, record.metadata)
    [noted] = sender.instance.read(
        lambda work: audit.AUDIT.list(work, "WHERE action = 'payment.send' AND object = ?", payment_id)
    )
    assert noted.actor == f"owner:{sender.path}"
    assert noted.details == {"amount": "USD 12.50", "to": sender.instance.wallet(path)}
    sender.instance.check_ledger()


def test_receiver_reads_who_has_paid_and_what_for(payres: Instance, sender: Sender) -> None:
    path = new_wallet(payres)
    payment = sender.pay(sender.price(path, "3", note="Thanks"))
    with OwnersBrowser(payres, path) as receiver:
        made = payres.read(lambda work: OUTGOING.by_id(work, payment.rpartition("/")[2])).terms.incoming_payment_id
        page = receiver.words(f"/account/payments/{made}")
        for said in ("From Dora", "USD3.00", "Thanks", f"/{sender.path}"):
            assert said in page
        assert receiver.http.get(payment).status_code == 404, "the payer's page is not theirs"
    assert sender.http.get(f"/account/payments/{made}").status_code == 404
    payres.clock.advance(700)
    assert "Sent to Erik" in sender.words(payment), "an old one says its facts"
    assert '<nav aria-label="Paid before">' in sender.http.get(SEND).text
    assert "E Erik To" in sender.words(SEND), "who is paid is one, without a list of all"


def test_last_receivers_stand_above_the_form_and_all_are_one_step_away(payres: Instance, sender: Sender) -> None:
    paths = [new_wallet(payres, name=name) for name in ("Anna", "Bruno", "Clara", "Dirk")]
    for path in paths:
        sender.pay(sender.price(path, "1"))
    assert "D Dirk C Clara B Bruno … All 4 To" in sender.words(SEND)
    assert "Anna" not in sender.words(SEND)
    words = sender.words(f"{SEND}?all=1")
    assert words.index("Paid before") < words.index("Anna")
    chosen = sender.http.get(SEND, params={"to": payres.wallet(paths[2])}).text
    assert re.findall(r'aria-current="true"><span[^>]*>.</span> <bdi title="(\w+)"', chosen) == ["Clara"]
    assert f'value="{payres.wallet(paths[2])}"' in chosen


def test_what_is_sent_again_keeps_amount_and_note(payres: Instance, sender: Sender) -> None:
    path = new_wallet(payres)
    bill = payres.client.create_incoming_payment(payres.wallet(new_wallet(payres)), usd(700))["id"]
    sent = (sender.price(path, "3", "receive", "Bread & salt"), sender.price(bill, note="For “you”"))
    fields = ('value="3"', 'value="receive" checked', 'value="Bread &amp; salt"'), ('value="7.00"', 'value="For “you”"')
    for price, kept in zip(sent, fields, strict=True):
        payment = sender.pay(price)
        for seconds in (0, 700):  # the page of a new payment and of an old one
            payres.clock.advance(seconds)
            [link] = re.findall(r'href="([^"]+)">Send again</a>', sender.http.get(payment).text)
            form = sender.http.get(unescape(link)).text
            assert [one for one in kept if one not in form] == []
    assert bill not in form, "a bill is paid once"


@pytest.mark.parametrize(
    ("to", "amount", "field", "said"),
    [
        ("", "1", "to", "Type or paste the address"),
        ("payto://iban/DE75512108001245126199", "1", "to", "This is no wallet address. They look like $127.0.0.1"),
        ("nobody-here", "1", "to", "There is no wallet at this address"),
        ("{base}/nobody-here", "1", "to", "There is no wallet at this address"),
        ("{base}/pay/nothing", "1", "to", "There is no such bill"),
        ("{base}/incoming-payments/nothing", "1", "to", "There is no such bill"),
        ("http://127.0.0.1:9/bob", "1", "to", "127.0.0.1:9 does not answer"),
        ("bob", "", "amount", "Type an amount, like 12.50."),
        ("bob", "1.234,567", "amount", "USD has 2 decimals."),
        ("bob", "100.01", "amount", "You have USD 100.00. Send that or less."),
    ],
)
def test_what_cannot_be_sent_is_said_at_its_field(sender: Sender, to: str, amount: str, field: str, said: str) -> None:
    typed = to.format(base=sender.instance.base_url)
    page = sender.ask(typed, amount, note="Lunch <b>")
    assert problem(page, field).startswith(said)
    assert "nothing has left your wallet" in words_of(page)
    for kept in (typed.replace("<", "&lt;"), amount, "Lunch &lt;b&gt;"):
        assert f'value="{kept}"' in page.text
    assert sender.balance == "100.00"


def test_own_wallet_is_not_paid(sender: Sender) -> None:
    assert problem(sender.ask(sender.path, "1"), "to").startswith("This is your own wallet")
    own_bill = receiver_of(sender.instance, 100, sender.path)
    assert problem(sender.ask(own_bill), "to").startswith("This is your own wallet")


def test_receiver_in_another_currency(sender: Sender) -> None:
    instance, path = sender.instance, new_wallet(sender.instance, "SEK")
    assert "does not change USD into SEK" in problem(sender.ask(path, "5"), "to")
    instance.write(lambda work: assets.set_rate(work, "USD", "SEK", "10.5"))
    assert "cannot change so much now" in problem(sender.ask(path, "5"), "amount")
    instance.write(lambda work: assets.deposit_liquidity(work, "SEK", 2, "5000.00"))
    page = sender.words(sender.price(path, "5"))
    for said in ("Erik gets SEK52.50", "Changed at 1 USD = 10.5 SEK USD 5.00", "Leaves your wallet USD 5.00"):
        assert said in page
    assert "This price holds for 14 minutes, until" in page
    page = sender.words(sender.price(path, "105", "receive"))
    assert "Send USD 10.00 to Erik?" in page
    assert problem(sender.ask(path, "1100", "receive"), "amount").startswith("You have USD 100.00, and this takes")


def test_bill_is_paid_by_its_link(sender: Sender) -> None:
    instance = sender.instance
    bill = receiver_of(instance, 1234, metadata={"description": "Order 17"})
    for link in (bill, bill.replace("/incoming-payments/", "/pay/")):
        words = sender.words(sender.price(link))
        assert "Send USD 12.34 to Bob?" in words
        assert "What for Order 17" in words
        assert "This price holds" not in words, "nothing is exchanged"
    assert "takes USD 12.34 more" in problem(sender.ask(bill, "12.35"), "amount")
    first, second = sender.price(bill), sender.price(bill)
    assert "What for Order 17" in sender.words(sender.pay(first))
    assert "Order 17" in sender.words("/account/activity")
    refused = sender.send(second, "send")
    assert refused.status_code == 400
    assert "This bill is paid" in words_of(refused)
    assert "Nothing has left your wallet." in words_of(refused)
    assert problem(sender.ask(bill), "to").startswith("This bill is paid")
    expired = receiver_of(instance, 5, expiresAt=format_time(instance.clock.now() + 60 * SECOND))
    open_ended = receiver_of(instance)
    assert problem(sender.ask(open_ended), "amount").startswith("Type an amount")
    instance.clock.advance(61)
    with Sender(instance) as later:
        assert problem(later.ask(expired), "to").startswith("This bill has expired")


def test_bill_that_is_too_big_says_what_is_missing(sender: Sender) -> None:
    bill = receiver_of(sender.instance, 11250)
    for page in (sender.ask(bill), sender.http.get(f"{SEND}?bill={quote(bill)}")):
        assert page.status_code == 403
        assert "This bill is USD 112.50; you lack USD 12.50" in words_of(page)
        assert "To Bob" in words_of(page)
        assert f'href="{SEND}?to={quote(bill)}"' in page.text, "a part may be paid"
    assert problem(sender.ask(bill, "112.50"), "amount") == "You have USD 100.00. Send that or less."
    assert "Send USD 40.00 to Bob?" in sender.words(sender.price(bill, "40"))


def test_price_that_has_expired_is_made_anew(sender: Sender) -> None:
    price = sender.price("bob", "2", note="Tea")
    sender.instance.clock.advance(1000)
    with OwnersBrowser(sender.instance, sender.path) as again:
        assert "The price has expired" in again.words(price)
        page = again.send(price, "send")
        assert page.status_code == 400
        assert "Nothing was sent, and what you typed is kept." in words_of(page)
        assert 'value="Tea"' in again.http.get(f"{SEND}?again={price.rpartition('/')[2]}").text
        answer = again.send(price, "again")
        assert "Tea" in again.words(answer.headers["location"])
    assert sender.balance == "100.00"


def test_balance_that_was_spent_meanwhile(sender: Sender) -> None:
    first, second = sender.price("bob", "60"), sender.price("bob", "70")
    sender.pay(first)
    page = sender.send(second, "send")
    assert page.status_code == 403
    assert "You have USD 40.00. Send that or less. Nothing has left your wallet." in words_of(page)
    assert sender.balance == "40.00"


@pytest.mark.parametrize("whose", ["payer", "receiver"])
def test_wallet_that_is_closed(sender: Sender, whose: str) -> None:
    instance, path = sender.instance, new_wallet(sender.instance)
    price = sender.price(path, "1")
    closed = sender.path if whose == "payer" else path
    instance.write(partial(wallets.deactivate, wallet=closed))
    assert "Nothing has left your wallet." in words_of(sender.send(price, "send"))
    page = sender.ask(path, "1")
    assert page.status_code == 400
    assert ("Your wallet is closed" if whose == "payer" else "There is no wallet") in words_of(page)
    assert sender.balance == "100.00"


def test_prices_and_payments_of_others_are_not_there(sender: Sender) -> None:
    price = sender.price("bob", "1")
    with Sender(sender.instance) as thief:
        assert [thief.http.get(price).status_code, thief.send(price, "send").status_code] == [404, 404]
        assert thief.http.get(f"{SEND}?again={price.rpartition('/')[2]}").status_code == 404
    quote = sender.instance.client.create_quote(
        sender.instance.wallet(sender.path), receiver_of(sender.instance), debitAmount=usd(100)
    )
    of_client = f"{SEND}/{quote['id'].rpartition('/')[2]}"
    assert [sender.http.get(of_client).status_code, sender.send(of_client, "send").status_code] == [404, 404]
    item: Json = {"type": "outgoing-payment", "actions": ["create"], "identifier": sender.instance.wallet(sender.path)}
    body = {
        "walletAddress": sender.instance.wallet(sender.path),
        "quoteId": f"{sender.instance.base_url}/quotes/{price.rpartition('/')[2]}",
    }
    client = sender.instance.client
    assert client.post("/outgoing-payments", body, client.grant(item)).status_code == 400, "nor can apps use hers"


def test_names_and_notes_are_text_and_cannot_pretend(payres: Instance, sender: Sender) -> None:
    name = "<script>alert(1)</script>Bob & {name}"
    path = new_wallet(payres, name=name)
    note = '"><img src=x> {amount}'
    price = sender.price(path, "1", note=note)
    payment = sender.pay(price)
    with Sender(payres) as other:
        pages = [sender.http.get(payment), sender.http.get(SEND), other.http.get(other.price(path, "1", note=note))]
    for page in pages:
        assert "<script" not in page.text
        assert "<img" not in page.text
        assert "alert(1)&lt;/script&gt;Bob &amp; {name}" in page.text


def test_link_fills_the_form_in_and_sends_nothing(sender: Sender) -> None:
    page = sender.http.get(SEND, params={"to": '$x.example/"onfocus=1', "amount": "5", "note": "hi"})
    for kept in ('value="$x.example/&#34;onfocus=1"', 'value="5"', 'value="hi"'):
        assert kept in page.text
    assert "Paid before" not in page.text


def test_sent_to_another_server_is_followed_to_its_end(pair: Sequence[Instance]) -> None:
    a, b = pair
    with Sender(a) as sender:
        price = sender.price(b.wallet("bob"), "5.00", note="Dinner")
        page = sender.words(price)
        for said in ("Send USD 5.00 to Bob?", "Bob gets at least", "Dinner", b.base_url.partition("//")[2]):
            assert said in page
        payment = sender.pay(price)
        assert sender.pay(price) == payment
        payment_id = payment.rpartition("/")[2]
        answer = sender.http.get(payment)
        assert answer.status_code == 200
        assert ("On its way to Bob" in answer.text) == (answer.headers.get("refresh") == "3")
        assert a.wait_for({"id": payment_id})["sentAmount"] == usd(500)
        assert "Bob has USD 5.00" in sender.words(payment)
        assert "refresh" not in sender.http.get(payment).headers
        assert b.balance("bob") == "1005.00"
        receiver = a.read(lambda work: OUTGOING.by_id(work, payment_id)).terms.receiver
        made = b.read(lambda work: INCOMING.by_id(work, receiver.rpartition("/")[2]))
        assert (made.incoming_value, made.metadata) == (None, '{"description":"Dinner"}')
        with OwnersBrowser(b, "bob") as bob:
            page = bob.words(f"/account/payments/{made.id}")
            assert "Received" in page
            assert "Dinner" in page
        assert "There is no wallet" in problem(sender.ask(f"{b.base_url}/nobody", "1"), "to")
        exact = sender.words(sender.price(b.wallet("bob"), "2.00", "receive"))
        assert "Bob gets USD2.00" in exact
        assert "at most" in exact


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"state": "sending", "sent": 0, "delivered": 0, "ended_at": None},
            [
                "On its way to Bob",
                "USD 5.00 has left your wallet. This page looks again",
                "Bob has it",
                "Travelling to",
            ],
        ),
        (
            {"state": "failed", "sent": 0, "delivered": 0, "failure": "the <path> is gone"},
            ["Bob was not paid", "Nothing was taken: you have USD 95.00.", "did not say why", "Try again"],
        ),
        (
            {"state": "failed", "sent": 0, "delivered": 0, "failure": "Nothing; the last answer was T04 from test.x."},
            ["cannot take so much now. Try less, or try again later. Nothing was taken", "Try again"],
        ),
        (
            {"state": "failed", "sent": 253, "delivered": 230, "failure": "gone"},
            ["A part arrived", "Bob has USD 2.30 of USD 4.95.", "You still have the other USD 2.47.", "Send the rest"],
        ),
        (
            {"state": "failed", "sent": 0, "delivered": 0, "failure": "gone", "unresolved_debit": 100},
            ["Bob was not paid", "Of USD 1.00 nobody knows yet whether it arrived. You have it back"],
        ),
    ],
)
def test_every_end_says_where_the_money_is(tmp_path: Path, row: Json, said: Sequence[str]) -> None:
    with network(tmp_path, "a", "b") as (a, b), Sender(a) as sender:
        peer(a, b)
        payment = sender.pay(sender.price(b.wallet("bob"), "5.00"))
        payment_id = payment.rpartition("/")[2]
        a.wait_for({"id": payment_id})
        vars(node_of(a.context).payments)["begin"] = lambda _: None  # what is made up here is not sent again
        a.write(lambda work: OUTGOING.update(work, payment_id, **row))
        page = sender.http.get(payment)
        words = words_of(page)
        for one in said:
            assert one in words
        assert page.headers.get("refresh") == ("3" if row["state"] == "sending" else None)
        if "Send the rest" in words:
            [rest] = re.findall(r'href="(/account/send\?to=[^"]*)"', page.text)
            assert 'value="2.47"' in sender.http.get(rest.replace("&amp;", "&")).text


def test_bill_of_another_server_is_paid_by_its_link(pair: Sequence[Instance]) -> None:
    a, b = pair
    bill = receiver_of(b, 321, metadata={"description": "Order 18"})
    with Sender(a) as sender:
        price = sender.price(bill.replace("/incoming-payments/", "/pay/"))
        assert "Bob gets USD3.21" in sender.words(price)
        assert "What for Order 18" in sender.words(price)
        payment = sender.pay(price)
        a.wait_for({"id": payment.rpartition("/")[2]})
        assert "Bob has USD 3.21" in sender.words(payment)
        assert "What for Order 18" in sender.words(payment)
        assert "Order 18" in sender.words("/account/activity")
        assert b.balance("bob") == "1003.21"
        assert (
            f'href="/account/send?to={quote(b.wallet("bob"))}&amp;amount=3.21&amp;note="'
            in sender.http.get(payment).text
        )
        assert problem(sender.ask(bill), "to").startswith("This bill is paid")


def test_server_without_a_way_is_said(tmp_path: Path) -> None:
    with network(tmp_path, "a", "b") as (a, b), Sender(a) as sender:
        page = sender.ask(b.wallet("bob"), "5")
        assert f"No way for money leads to {b.base_url[7:]} now" in problem(page, "to")
        assert a.read(lambda work: number(work, "SELECT count(*) FROM quote WHERE wish IS NOT NULL")) == 0


def test_peer_at_its_limit_takes_less(tmp_path: Path) -> None:
    with network(tmp_path, "a", "b") as (a, b), Sender(a) as sender:
        peer(a, b)
        change(b, "a", credit_limit=850)
        hurried(a, short_timeout=1)
        payment = sender.pay(sender.price(receiver_of(b, 1250)))
        a.wait_for({"id": payment.rpartition("/")[2]})
        page = sender.words(payment)
        assert f"{b.base_url[7:]} cannot take so much now. Try less, or try again later. Nothing was taken" in page
        assert "T04" not in page
        payment = sender.pay(sender.price(b.wallet("bob"), "8.00"))
        a.wait_for({"id": payment.rpartition("/")[2]})
        assert "Bob has USD" in sender.words(payment)


def test_way_that_cannot_take_so_much_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    with network(tmp_path, "a", "b", "c") as (a, b, c), Sender(a) as sender:
        peer(a, b, routes=["test.c"])
        peer(b, c, routes=["test.a"])
        change(b, "a", credit_limit=850)
        said = f"{c.base_url[7:]} cannot take so much now. Try less, or try again later."
        assert problem(sender.ask(c.wallet("bob"), "12.50"), "amount") == said
        payment = sender.pay(sender.price(c.wallet("bob"), "8.00"))
        a.wait_for({"id": payment.rpartition("/")[2]})
        assert "Bob has USD" in sender.words(payment)


def test_deposit_has_a_page(sender: Sender) -> None:
    instance = sender.instance
    instance.write(lambda work: wallets.deposit(work, sender.path, "7.00", "salary"))
    found = instance.read(lambda work: work.execute("SELECT id FROM movement ORDER BY id DESC LIMIT 1").fetchone()[0])
    page = sender.words(f"/account/payments/{found}")
    assert "Paid in by whoever runs this server USD7.00" in page
    assert "salary" in page
    with Sender(instance) as other:
        assert other.http.get(f"/account/payments/{found}").status_code == 404


def test_certificate_that_is_not_trusted_is_named(sender: Sender, tmp_path: Path) -> None:
    with serving(lambda handler: reply(handler, 200), server_tls(tmp_path / "tls.pem", "wallet.example")) as port:
        said = problem(sender.ask(f"https://127.0.0.1:{port}/bob", "1"), "to")
    assert said.startswith(f"The certificate of 127.0.0.1:{port} is not trusted, so nothing was sent.")


def test_other_servers_that_misbehave(payres: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they say is not shown, and none can hold the owner up."""
    wallet = {"id": "{base}/wallet", "publicName": "<b>Eve</b>", "assetCode": "USD", "assetScale": 2}
    wallet |= {"authServer": "{base}/auth", "resourceServer": "{base}"}
    pages: dict[str, tuple[int, str]] = {
        "/gone": (404, ""),
        "/broken": (500, ""),
        "/moved": (302, ""),
        "/page": (200, "<script>alert(1)</script>"),
        "/ours": (200, json.dumps(wallet | {"id": payres.wallet("alice")})),
        "/wallet": (200, json.dumps(wallet)),
        "/auth": (403, '{"error": "<script>"}'),
    }
    said = {
        "/gone": "There is no wallet at this address.",
        "/broken": "{host} does not answer.",
        "/moved": "There is no wallet at this address.",
        "/page": "There is no wallet at this address.",
        "/ours": "There is no wallet at this address.",
        "/wallet": "{host} does not let this server pay it.",
        "/silent": "{host} does not answer.",
    }
    stopped = Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/silent":
            stopped.wait(TIMEOUT)
        status, text = pages.get(handler.path, (200, ""))
        reply(handler, status, text.replace("{base}", f"http://{handler.headers['host']}").encode())

    with serving(answer) as port, Sender(payres) as sender:
        for path, sentence in said.items():
            if path == "/silent":  # the last: the others may take their time on a busy machine
                monkeypatch.setattr(node_of(payres.context).receivers, "_seconds", 0.2)
            page = sender.ask(f"http://127.0.0.1:{port}{path}", "1")
            assert problem(page, "to").startswith(sentence.format(host=f"127.0.0.1:{port}")), path
            assert "<script" not in page.text
        stopped.set()
        assert sender.balance == "100.00"


def test_price_after_months_without_one_keeps_this_server_as_its_client(payres: Instance) -> None:
    """What is left of the last price goes, and with the last row of a client its client would go."""
    bob = payres.wallet("bob")
    for _ in range(2):
        with Sender(payres) as browser:
            for _ in range(2):
                browser.price(bob, "5.00")
        payres.clock.advance(2 * DAY // SECOND)
        payres.write(incoming._expire_due)
        payres.clock.advance(2 * EMPTY_PAYMENT // SECOND)
    payres.check_ledger()
