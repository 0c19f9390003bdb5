"""Texts of unauthenticated clients that would be taken for SQL, for markup, for headers or for another address."""

import json
import logging
import string
from contextlib import closing
from html import unescape
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from payres.core.http import resources
from payres.core.protocol.limits import MAX_URL_LENGTH
from payres.core.store import wallets
from payres.core.store.work import Transaction
from tests.attacks.conftest import PASSWORD
from tests.conftest import Refused
from tests.helpers import TIMEOUT, sign_in_token, usd
from tests.instance import Instance
from tests.signing_client import Client

SQL = [
    *("' OR '1'='1", "' OR 1=1 --", "'; DROP TABLE wallet_address; --", '"; UPDATE account SET balance = 9000000; --'),
    *("' UNION SELECT value FROM secret --", "') ; ATTACH DATABASE '/tmp/stolen.db' AS stolen --", "%' ESCAPE '!"),
    *("\\'; VACUUM INTO '/tmp/stolen.db' --", "?1 :wallet @p $p"),
]


def sent_to_the_resource_server(instance: Instance, text: str) -> list[httpx2.Response]:
    """Answers to requests that are right but for one text, which stands in each place in turn."""
    client, bob, alice, in_url = instance.client, instance.wallet("bob"), instance.wallet("alice"), quote(text, safe="")
    incoming = client.grant({"type": "incoming-payment", "actions": ["create", "read", "list", "complete"]})
    quotes = client.grant({"type": "quote", "actions": ["create", "read"]})
    spending = {"type": "outgoing-payment", "actions": ["create", "read", "list"], "identifier": alice}
    outgoing = client.grant(spending)
    amount = {"value": "1", "assetCode": text[:32], "assetScale": 2}
    pays = {"walletAddress": alice, "debitAmount": usd(100)}
    named = f"{instance.base_url}/{in_url}"
    billed, priced = f"{named}/incoming-payments/1", {"walletAddress": bob, "receiver": bob, "method": "ilp"}
    key = {"idempotency-key": json.dumps(text)}
    lists = f"/incoming-payments?wallet-address={quote(bob, safe='')}"
    return [
        client.get(f"/incoming-payments/{in_url}", incoming),
        client.get(f"/quotes/{in_url}", quotes),
        client.get(f"/outgoing-payments/{in_url}", outgoing),
        client.get(f"/incoming-payments?wallet-address={in_url}", incoming),
        client.get(f"/incoming-payments?wallet-address={quote(named, safe='')}", incoming),
        client.get(f"{lists}&cursor={in_url}", incoming),
        client.get(f"{lists}&first={in_url}", incoming),
        client.get(f"/outgoing-payments?wallet-address={in_url}&first=1", outgoing),
        client.get("/quotes/1", text),
        client.post("/incoming-payments", {"walletAddress": text}, incoming),
        client.post("/incoming-payments", {"walletAddress": named}, incoming),
        client.post("/incoming-payments", {"walletAddress": bob, "incomingAmount": amount}, incoming),
        client.post("/incoming-payments", {"walletAddress": bob, "expiresAt": text}, incoming),
        client.post("/incoming-payments", {"walletAddress": bob, "metadata": {text: text}}, incoming),
        client.request("POST", "/incoming-payments", {"walletAddress": bob}, incoming, key),
        client.post(f"/incoming-payments/{in_url}/complete", None, incoming),
        client.post("/quotes", priced | {"walletAddress": named}, quotes),
        client.post("/quotes", priced | {"receiver": billed}, quotes),
        client.post("/quotes", priced | {"method": text}, quotes),
        client.post("/outgoing-payments", pays | {"quoteId": f"{instance.base_url}/quotes/{in_url}"}, outgoing),
        client.post("/outgoing-payments", pays | {"incomingPayment": billed}, outgoing),
    ]


def sent_to_the_authorization_server(instance: Instance, anonymous: httpx2.Client, text: str) -> list[httpx2.Response]:
    """The same for grants, tokens, consent pages, wallet addresses and packets."""
    client, in_url, base = instance.client, quote(text, safe=""), instance.base_url
    named, wallet = f"{base}/{in_url}", instance.wallet("alice")
    spending = {"type": "outgoing-payment", "actions": ["create"], "identifier": wallet}
    asked = client.request_grant(spending).json()
    follow_up, token = asked["continue"]["uri"], asked["continue"]["access_token"]["value"]
    page = asked["interact"]["redirect"]
    finish = {"method": "redirect", "uri": f"https://shop.example/?{in_url}", "nonce": text}
    amount = {"value": "1", "assetCode": text[:32], "assetScale": 2}
    limits = [{"receiver": f"{named}/incoming-payments/1"}, {"interval": text}, {"receiveAmount": amount}]
    jwk = msgspec.structs.replace(client.jwk, kid=text)
    with closing(Client(wallet, client.private_key, jwk, base, instance.clock, instance.approve)) as impostor:
        unknown_kid = impostor.request_grant(spending, client=client.wallet_address)
    peer = {"authorization": f"Bearer {in_url}", "request-id": text}
    return [
        client.request_grant(spending, client=text),
        client.request_grant(spending, client=named),
        client.request_grant(spending, subject={"sub_ids": [{"id": named, "format": "uri"}]}),
        client.request_grant(spending | {"identifier": named}),
        client.request_grant(spending, interact={"start": ["redirect"], "finish": finish}),
        *(client.request_grant(spending | {"limits": limit}) for limit in limits),
        unknown_kid,
        client.post(f"/continue/{in_url}", None, token),
        client.post(follow_up, {"interact_ref": text}, token),
        client.post(follow_up, None, text),
        client.post(f"/token/{in_url}", None, token),
        client.delete(f"/token/{in_url}", text),
        anonymous.get(named),
        anonymous.get(f"{named}/jwks.json"),
        anonymous.get(f"{base}/interact/{in_url}/{in_url}"),
        anonymous.get(page, headers={"cookie": f"payres_session={in_url}"}),
        anonymous.post(page, data={"choice": "sign-in", "password": text, "csrf": sign_in_token(anonymous, page)}),
        anonymous.post(page, data={"choice": "sign-in", "password": text, "csrf": text}),
        anonymous.post(page, data={"choice": "approve", "csrf": text, "shown": text}),
        anonymous.post(f"{base}/ilp", headers=peer),
    ]


def contents(tx: Transaction) -> tuple[list[Any], list[Any]]:
    tables = tx.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    return tables, tx.execute("SELECT * FROM wallet_address ORDER BY id").fetchall()


@pytest.mark.parametrize("text", SQL)
def test_sql_injection_through_every_string(shared: Instance, anonymous: httpx2.Client, text: str) -> None:
    before, money = shared.read(contents), shared.balance("alice")
    answers = sent_to_the_resource_server(shared, text)
    assert {text: text} in [answer.json().get("metadata") for answer in answers], "it is kept as the text that it is"
    answers += sent_to_the_authorization_server(shared, anonymous, text)
    for answer in answers:
        assert answer.status_code < 500, (answer.request.url, answer.text)
        assert "sqlite" not in answer.text.lower()
    tables, addresses = shared.read(contents)
    assert tables == before[0]
    assert set(before[1]) <= set(addresses)
    assert shared.balance("alice") == money
    shared.check_ledger()


MARKUP = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style><svg/onload=alert(1)>",
    "{{ 7331 * 7331 }}{% for x in ().__class__.__mro__ %}{% endfor %}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "javascript:alert(1)//",
]


@pytest.mark.parametrize("markup", MARKUP)
def test_xss_through_every_name_on_a_consent_page(shared: Instance, anonymous: httpx2.Client, markup: str) -> None:
    """Names of the wallet and the client, the receiver, its currency, and where the answer goes: all texts of others.

    Whatever they are, the page has the tags that it has with harmless ones.
    """

    number = MARKUP.index(markup)
    hostile, harmless = pages(shared, f"xss-{number}", markup), pages(shared, f"fair-{number}", "F" * len(markup))
    assert [tags(page) for page in hostile] == [tags(page) for page in harmless]
    for page in hostile:
        assert "53743561" not in page
    assert all(tags(page) for page in hostile)
    shown = " ".join(unescape(page) for page in hostile)
    assert printable(markup) in shown  # it was there to be taken for markup


def pages(shared: Instance, path: str, text: str) -> list[str]:
    """The page for signing in, the one that asks and the one that tells, with a text for every name on them."""
    owner = shared.create_wallet(f"{path}-owner", name=text, password=PASSWORD)
    client = shared.new_client(f"{path}-client", name=text)
    dense = "".join(printable(text).split())
    access = {"type": "outgoing-payment", "actions": ["create"], "identifier": owner}
    limits = {
        "receiver": f"https://shop.example/{quote(dense, safe='<>{}&;:()/=')}/incoming-payments/1",
        "receiveAmount": {"value": "1", "assetCode": dense[:32], "assetScale": 2},
    }
    finish = {"method": "redirect", "uri": f"https://shop.example/?{dense}", "nonce": text}
    asked = client.request_grant(access | {"limits": limits}, interact={"start": ["redirect"], "finish": finish})
    assert asked.status_code == 200, asked.text
    url = asked.json()["interact"]["redirect"]
    with httpx2.Client(timeout=TIMEOUT, verify=False) as browser:
        first = browser.get(url).text
        second = signed_in(browser, url)
        fields = {name: field(second, name) for name in ("csrf", "shown")}
        browser.post(url, data={"choice": "deny"} | fields)
        return [first, second, browser.get(url).text]


def signed_in(browser: httpx2.Client, url: str) -> str:
    """The page that asks, after its owner has signed in."""
    form = {"choice": "sign-in", "password": PASSWORD, "csrf": sign_in_token(browser, url)}
    assert browser.post(url, data=form).status_code == 303
    return browser.get(url).text


def printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())


def tags(page: str) -> list[str]:
    """The tags of a page in turn, each to the first blank: what markup would add to."""
    return [part.partition(">")[0].split(" ")[0] for part in page.split("<")[1:]]


@pytest.mark.parametrize(
    "uri",
    [
        *("javascript:alert(1)", "data:text/html,<script>alert(1)</script>", "//evil.example/done", "/done"),
        *("file:///etc/passwd", "JavaScript:/%0aalert(1)", "javascript://com.example.app/%0aalert(1)", "vbscript:/x"),
        *("blob:https://shop.example/1", "filesystem:https://shop.example/temporary/x"),
        *("view-source:https://shop.example/", "about:blank", "intent://shop.example/#Intent;scheme=http;end"),
        *("mailto:/owner@bank.example", "com.example.app:/\r\nSet-Cookie: payres_session=planted"),
        *("com.example.app:alert(1)", "https://shop.example/\r\nSet-Cookie: payres_session=planted"),
        *("https://shop.example/\nLocation: https://evil.example/", "https://shop.example/\u2028x"),
        *("https://shop.example/\x00", "https://bank.example@evil.example/", "https://evil.example\\.bank.example/"),
        *("https://evil.example\\@bank.example/", "https://[::1", "https:///evil.example/", "https:evil.example"),
        *("\thttps://shop.example/", "https://", "https://user:secret@shop.example", "https://shop.example:port"),
        *("https://shop.example:99999", "https://shop%2eexample/", "https://shop.example/a b", "ftp://shop.example"),
        *("com.example.app:", "com.example.app", "com..app:/done", ".com.example:/done", "com.example.:/done"),
        *("1.example:/done", "shop.example:8080/done", "com.example.app:/a b", "com.example.app;x:/done"),
        *("com.example.app'x:/done", " com.example.app:/done", "com.ex\u00e4mple.app:/done", "myapp:/done"),
        *(f"{start}/{'x' * MAX_URL_LENGTH}" for start in ("https://shop.example", "com.example.app:")),
    ],
)
def test_open_redirect_and_header_injection_through_the_finish_uri(
    shared: Instance, refused: Refused, uri: str
) -> None:
    access = {"type": "outgoing-payment", "actions": ["create"], "identifier": shared.wallet("alice")}
    finish = {"method": "redirect", "uri": uri, "nonce": "n"}
    answer = shared.client.request_grant(access, interact={"start": ["redirect"], "finish": finish})
    refused(answer, 400, "invalid_request", field="interact.finish.uri")


@pytest.mark.parametrize(
    ("uri", "is_taken"),
    [
        *((f"http://{host}/done", False) for host in ("shop.example", "10.0.0.7:8080", "localhost.shop.example")),
        *((f"http://{host}/done", True) for host in ("localhost:3000", "127.0.0.1", "[::1]:80", "a.localhost")),
        ("HTTP://shop.example/done", False),
        ("https://shop.example/done", True),
        ("com.example.app:/done", True),
    ],
)
def test_answer_to_a_finish_uri_crosses_no_net_in_plain_text(
    shared: Instance, guarded: Instance, refused: Refused, uri: str, is_taken: bool
) -> None:
    """On a server for the open net; where private hosts are allowed, plain http is too."""
    finish = {"method": "redirect", "uri": uri, "nonce": "n"}
    for instance in (shared, guarded):
        access = {"type": "outgoing-payment", "actions": ["create"], "identifier": instance.wallet("alice")}
        answer = instance.client.request_grant(access, interact={"start": ["redirect"], "finish": finish})
        if is_taken or instance is shared:
            assert answer.status_code == 200, answer.text
        else:
            refused(answer, 400, "invalid_request", field="interact.finish.uri")


ESCAPES = [
    "https://shop.example/%0d%0aSet-Cookie:%20a=b",
    "https://shop.example/?next=https://evil.example/%0d%0a%0d%0a<script>",
    "https://shop.example/;https://evil.example/",
    "https://sh\u00f6p.example/\u00e4",
]


@pytest.mark.parametrize("uri", ESCAPES)
def test_header_injection_by_escapes_in_the_finish_uri(shared: Instance, anonymous: httpx2.Client, uri: str) -> None:
    """What is escaped stays escaped, and the browser goes to the client's own host, by its ASCII name."""
    owner = shared.create_wallet(f"escaped-{ESCAPES.index(uri)}", password=PASSWORD)
    access = {"type": "outgoing-payment", "actions": ["create"], "identifier": owner}
    finish = {"method": "redirect", "uri": uri, "nonce": "n"}
    page = shared.client.request_grant(access, interact={"start": ["redirect"], "finish": finish}).json()["interact"]
    with httpx2.Client(timeout=TIMEOUT, verify=False) as browser:
        shown = signed_in(browser, page["redirect"])
        fields = {name: field(shown, name) for name in ("csrf", "shown")}
        answer = browser.post(page["redirect"], data={"choice": "deny"} | fields)
    assert answer.status_code == 303
    location = answer.headers["location"]
    assert location.startswith(quote(uri.replace("sh\u00f6p", "xn--shp-tna"), safe=string.punctuation))
    assert "set-cookie" not in answer.headers


def field(page: str, name: str) -> str:
    return page.partition(f'name="{name}" value="')[2].partition('"')[0]


@pytest.mark.parametrize(
    "path",
    [
        "/incoming-payments/a%0aCRITICAL%20payres:%20forged",
        "/incoming-payments/a%0d%0aforged",
        "/a%1b[2Jforged",
        "/a%e2%80%a8forged",
    ],
)
def test_log_injection_by_the_path(
    shared: Instance,
    anonymous: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    """What is logged of a fault names the request on one line, and has nothing that a terminal would act upon."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(wallets, "find_wallet", broken)
    monkeypatch.setattr(resources, "find", broken)
    with caplog.at_level(logging.ERROR, "payres.routes"):
        assert anonymous.get(shared.base_url + path).status_code == 500
    [message] = [record.getMessage() for record in caplog.records if record.name == "payres.routes"]
    assert message.isprintable()
    assert message == f"GET {path} failed"
