import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from payres.core.protocol.urls import Urls
from payres.operator import wallets
from tests.conftest import Refused
from tests.core.http.test_responses_accept import BROWSER, PREFER_HTML, PREFER_JSON
from tests.helpers import receiver_of, usd
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import words_of
from tests.people.browser import signed_out

BACK = "https://shop.example/done?order=2041"


@pytest.fixture
def browser(shared: Instance) -> Iterator[httpx2.Client]:
    with signed_out(shared) as http:
        yield http


def bill(instance: Instance, value: int | None = 1250, wallet: str = "bob", **metadata: Any) -> str:
    """The path of the payment page of a new bill."""
    given = {"metadata": metadata} if metadata else {}
    return f"/pay/{receiver_of(instance, value, wallet, **given).rpartition('/')[2]}"


def pay(instance: Instance, path: str, value: int) -> None:
    receiver = f"{instance.base_url}/incoming-payments/{path.rpartition('/')[2]}"
    instance.client.pay(instance.wallet("alice"), receiver, receiveAmount=usd(value))


def complete(instance: Instance, path: str) -> None:
    item = {"type": "incoming-payment", "actions": ["complete"], "identifier": instance.wallet("bob")}
    url = f"/incoming-payments/{path.rpartition('/')[2]}/complete"
    assert instance.client.post(url, token=instance.client.grant(item)).status_code == 200


def test_page_says_who_asks_for_how_much_and_what_for(shared: Instance, browser: httpx2.Client) -> None:
    path = bill(shared, description="Order 2041")
    answer = browser.get(path)
    words = words_of(answer)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "form-action" not in answer.headers["content-security-policy"], "the payer's wallet may lead anywhere"
    host = shared.base_url.partition("://")[2]
    assert words.startswith(
        f"Bob asks for USD12.50 What for Order 2041 Paid to Bob http://{host}/bob State not paid yet"
    )
    assert f"<title>Pay Bob USD 12.50 · {host}</title>" in answer.text
    assert 'class="qr"' in answer.text
    url = quote(f"{shared.base_url}/incoming-payments/{path.rpartition('/')[2]}", safe="")
    assert f'href="/account/send?bill={url}"' in answer.text
    [cookie] = answer.headers.get_list("set-cookie")
    assert cookie.startswith("payres_form="), "for the form, and nobody is signed in"
    head = browser.head(path)
    assert (head.status_code, head.content) == (200, b"")


def test_page_tells_what_has_come_and_what_is_left(shared: Instance, browser: httpx2.Client) -> None:
    path = bill(shared)
    pay(shared, path, 500)
    assert "Bob asks for USD7.50" in words_of(browser.get(path))
    assert "In all USD 12.50 Paid so far USD 5.00 State a part is paid" in words_of(browser.get(path))
    free = bill(shared, None)
    assert "Pay Bob You choose how much." in words_of(browser.get(free))
    pay(shared, free, 123)
    assert "Paid so far USD 1.23 State open" in words_of(browser.get(free))
    complete(shared, free)
    assert words_of(browser.get(free)).startswith("Paid Bob has USD 1.23. Nobody needs to pay this again.")


def test_page_of_a_paid_bill_does_not_say_who_paid(shared: Instance, browser: httpx2.Client) -> None:
    path = bill(shared)
    pay(shared, path, 1250)
    answer = browser.get(path)
    assert words_of(answer).startswith("Paid Bob has USD 12.50. Nobody needs to pay this again.")
    assert "alice" not in answer.text.lower()
    assert "/account/send" not in answer.text
    assert "outgoing" not in answer.text


def test_ended_bill_leads_nobody_to_pay(shared: Instance, browser: httpx2.Client) -> None:
    path = bill(shared)
    pay(shared, path, 500)
    complete(shared, path)
    answer = browser.get(path)
    words = "USD 5.00 of USD 12.50 was paid. The rest can no longer be paid here: ask Bob for a new bill."
    assert f"This bill was cancelled {words}" in words_of(answer)
    assert "Paid so far USD 5.00" in words_of(answer)
    assert "/account/send" not in answer.text


def test_bill_of_a_closed_wallet_takes_nothing(shared: Instance, browser: httpx2.Client) -> None:
    shared.create_wallet("closing")
    path = bill(shared, wallet="closing")
    shared.write(lambda work: wallets.deactivate(work, "closing"))
    assert "This bill was cancelled" in words_of(browser.get(path))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (BACK, "shop.example"),
        ("http://localhost:3000/done", "localhost:3000"),
        ("https://bücher.example/fertig", "xn--bcher-kva.example"),
        ("http://shop.example/done", None),
        ("javascript:alert(1)", None),
        ("https://user:secret@shop.example/", None),
        ("//shop.example/done", None),
        ("/done", None),
        ("data:text/html,x", None),
        ("https://shop.example\\@evil.example/", None),
        ("https://shop.example/\nx", None),
        ("", None),
        (7, None),
        (["https://shop.example"], None),
    ],
)
def test_way_back_is_a_link_that_the_bill_names_and_says_its_host(
    shared: Instance, browser: httpx2.Client, url: Any, host: str | None
) -> None:
    path = bill(shared, 1, returnUrl=url)
    answer = browser.get(f"{path}?return={quote('https://evil.example', safe='')}&returnUrl=https://evil.example")
    assert "evil.example" not in answer.text
    own = ("/", "#", "mailto:?", "sms:?")
    links = [link for link in re.findall(r'<a [^>]*href="([^"]*)"', answer.text) if not link.startswith(own)]
    assert len(links) == (host is not None)
    assert (f"Back to {host} without paying" in words_of(answer)) == bool(host)
    pay(shared, path, 1)
    assert (f"Back to {host}" in words_of(browser.get(path))) == bool(host)
    assert "refresh" not in browser.get(path).headers, "it leads nobody there by itself"


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}",
    "\u202eyob yap\u202c",
    "a\u0000b\u2028c",
    "x" * 3000,
    "\u200b\u3164",
]


@pytest.mark.parametrize(("number", "name"), list(enumerate(HOSTILE)))
def test_names_and_notes_are_text_that_hides_nothing(
    shared: Instance, browser: httpx2.Client, number: int, name: str
) -> None:
    wallet = f"hostile-{number}"
    shared.create_wallet(wallet)
    # As if the operator's rules for names had let it through.
    sql = "UPDATE wallet_address SET public_name = ? WHERE path = ?"
    shared.write(lambda work: work.execute(sql, (name, wallet)).rowcount)
    for path in (f"/{wallet}", bill(shared, wallet=wallet, description=name)):
        page = browser.get(path)
        assert page.status_code == 200
        assert "<script>" not in page.text
        assert "<img" not in page.text
        assert not re.search("[\u202e\u2028\u0000\u200b\u3164]", page.text)
        assert "x" * 400 not in page.text
        assert len(page.text) < 60_000
        assert f"/{wallet}" in page.text, "the address stands beside the name"
    assert number != len(HOSTILE) - 1 or f"<bdi>{wallet}</bdi>" in page.text, "where a name is empty to the eye"


@pytest.mark.parametrize("path", ["/pay/none", "/pay/", "/pay", "/pay/a/b", "/pay/%2e%2e", "/pay/" + "x" * 3000])
def test_bill_that_does_not_exist_is_a_page(browser: httpx2.Client, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_hundreds_of_guesses_are_stopped(tmp_path: Any) -> None:
    with run_instance(tmp_path / "payres.db", rate_limit_unauthenticated=10) as instance, signed_out(instance) as http:
        http.headers["X-Forwarded-For"] = "192.0.2.7"
        path = bill(instance)
        instance.clock.freeze(True)  # or a slow machine never asks too often
        statuses = [http.get(f"/pay/{n:032}").status_code for n in range(200)]
        assert statuses[0] == 404
        assert statuses[-1] == 429
        assert statuses.count(404) < 100
        refused = http.get(path)
        assert (refused.status_code, refused.headers["content-type"]) == (429, "text/html; charset=utf-8")
        assert int(refused.headers["retry-after"]) > 0
        http.headers["X-Forwarded-For"] = "192.0.2.8"
        assert http.get(path).status_code == 200, "others still get there"


def test_incoming_payment_leads_browsers_to_its_page_and_nobody_else(
    shared: Instance, anonymous: httpx2.Client
) -> None:
    receiver = receiver_of(shared, 100)
    for method in ("GET", "HEAD"):
        answer = anonymous.request(method, receiver, headers={"accept": BROWSER})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/pay/{receiver.rpartition('/')[2]}")
        assert answer.headers["vary"] == "Accept"
    for accept in PREFER_JSON:
        answer = anonymous.get(receiver, headers={"accept": accept})
        if "application/json" in accept or "*/*" in accept or not accept:
            assert answer.json()["receivedAmount"] == usd(0)
    unknown = anonymous.get(f"{shared.base_url}/incoming-payments/none%2fx", headers={"accept": BROWSER})
    assert unknown.status_code == 404
    answer = anonymous.get(receiver, headers={"accept": BROWSER, "authorization": "GNAP x"})
    assert answer.status_code == 401


@pytest.mark.parametrize("accept", PREFER_HTML)
def test_wallet_address_is_a_page_for_browsers(shared: Instance, browser: httpx2.Client, accept: str) -> None:
    answer = browser.get("/bob", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["vary"] == "Accept"
    address = shared.wallet("bob")
    assert f'<link rel="monetization" href="{address}">' in answer.text.partition("</head>")[0]
    assert words_of(answer).startswith("B Bob takes payments in USD from any wallet.")
    assert f'href="/account/send?to={quote(address)}"' in answer.text
    head = browser.head("/bob", headers={"accept": accept})
    assert (head.status_code, head.content, head.headers["vary"]) == (200, b"", "Accept")


def test_wallet_that_is_not_there_is_not_there_for_browsers_either(
    shared: Instance, browser: httpx2.Client, anonymous: httpx2.Client, refused: Refused
) -> None:
    shared.create_wallet("gone")
    shared.write(lambda work: wallets.deactivate(work, "gone"))
    pages = [browser.get(path) for path in ("/gone", "/never")]
    assert [page.status_code for page in pages] == [404, 404]
    assert pages[0].text.replace("gone", "never") == pages[1].text
    refused(anonymous.get(shared.wallet("gone")), 404, "not_found")
    assert browser.post("/bob").status_code == 405


@pytest.mark.parametrize(
    ("base_url", "path", "pointer"),
    [
        ("https://pay.example", "alice", "$pay.example/alice"),
        ("https://pay.example/", ".well-known/pay", "$pay.example"),
        ("http://127.0.0.1:8080", "alice", None),
    ],
)
def test_payment_pointer_is_for_https(base_url: str, path: str, pointer: str | None) -> None:
    assert Urls(base_url).pointer(path) == pointer
