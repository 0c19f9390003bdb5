import base64
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import msgspec
import pytest
from argon2 import PasswordHasher
from starlette.applications import Starlette

from payres.accounts import owners
from payres.accounts.limits import MAX_KNOWN_BROWSERS, MAX_WRONG_PASSWORDS
from payres.accounts.passwords import hash_password
from payres.accounts.sessions import Browser, csrf_token, open_session
from payres.accounts.store.owners import OF_OWNERS, OWNERS, owner_at
from payres.application import create_app
from payres.core.grants import requests, tokens
from payres.core.grants.requests import request_grant
from payres.core.http.context import Context
from payres.core.process.slots import Slots, SlotsBusy
from payres.core.protocol.errors import DomainError
from payres.core.protocol.gnap import GrantRequest, GrantResponse
from payres.core.protocol.identifiers import hash_secret
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.core.store.clients import Client
from payres.core.store.grants import GRANTS
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Transaction, Work
from payres.operator import grants, keys, wallets
from payres.people import consent as consent_rules
from payres.settings import settings_with
from payres.testing.clock import MovableClock
from tests.accounts.test_factor_pages import hidden
from tests.helpers import Json, usd
from tests.operator.pages.browser import hidden_fields, words_of

T = TypeVar("T")
BASE = "https://pay.example"
SHOP = "https://shop.example/pay"
PASSWORD = "correct horse"  # as cheap to check as Argon2 allows, so that the tests need not wait for it
PASSWORD_HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
FINISH = "https://shop.example/done?order=17"
SPEND = {"type": "outgoing-payment", "actions": ["create"], "identifier": f"{BASE}/alice"}
LIMITED = SPEND | {"limits": {"debitAmount": usd(2000)}}
COOKIE = "__Host-payres_session"
FORM_COOKIE, FORM_SECRET = "__Host-payres_form", "f" * 43


class Site:
    """A server with wallets alice and bob, whose clock stands still, and a browser that keeps its cookies."""

    def __init__(self, app: Starlette, clock: MovableClock) -> None:
        self.app = app
        self.clock = clock
        self.context: Context = app.state.context
        self.browser = self.new_browser()
        self.grants: dict[str, GrantResponse] = {}

    def new_browser(self, address: str = "127.0.0.1") -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False, client=(address, 1))
        return httpx2.AsyncClient(transport=transport, base_url=self.context.urls.base)

    async def visitor(self, path: str, cookie: str = "", address: str = "127.0.0.1", **form: str) -> httpx2.Response:
        """What another browser with this cookie gets for a form, or without one for the page."""
        cookie = f"{cookie}; {FORM_COOKIE}={FORM_SECRET}"
        async with self.new_browser(address) as browser:
            if not form:
                return await browser.get(path, headers={"cookie": cookie})
            return await browser.post(path, data={"csrf": csrf_token(FORM_SECRET)} | form, headers={"cookie": cookie})

    async def known_cookie(self, path: str) -> str:
        """The name of the cookie in a browser that this wallet knows."""
        return f"__Host-payres_known_{(await self.write(lambda tx: require_wallet(tx, path))).id}"

    async def guess(self, path: str) -> None:
        """Others give many wrong passwords, each from an address of its own."""
        for host in range(21):
            guessed = await self.visitor(path, address=f"192.0.2.{host}", choice="sign-in", password="wrong")
        assert guessed.status_code == 429

    async def write(self, unit: Callable[[Work], T]) -> T:
        return await self.context.database.write(unit)

    async def ask(
        self, *access: Any, name: str | None = "Super Shop", finish: str | None = FINISH, subject: str | None = None
    ) -> str:
        """Asks for a grant as the shop; the path of the consent page."""
        interact: dict[str, Any] = {"start": ["redirect"]}
        if finish is not None:
            interact["finish"] = {"method": "redirect", "uri": finish, "nonce": "client-nonce"}
        body: dict[str, Any] = {"client": SHOP, "interact": interact}
        if access or not subject:
            body["access_token"] = {"access": list(access) or [LIMITED]}
        if subject:
            body["subject"] = {"sub_ids": [{"id": subject, "format": "uri"}]}
        asked, client = msgspec.convert(body, GrantRequest), Client(SHOP, SHOP, None)
        answer = await self.write(lambda work: request_grant(work, asked, client, name))
        assert answer.interact
        path = urlsplit(answer.interact.redirect).path
        self.grants[path] = answer
        return path

    async def state(self, path: str) -> str:
        """Where the grant behind a consent page stands."""

        def unit(tx: Transaction) -> str:
            grant = GRANTS.get(tx, self.grant_id(path))
            assert grant
            return grant.state

        return await self.context.database.read(unit)

    async def continue_grant(self, path: str, reference: str) -> GrantResponse:
        """What the client does once the browser is back."""
        follow_up = self.grants[path].continue_
        token = follow_up.access_token.value
        return await self.write(lambda work: requests.continue_grant(work, self.grant_id(path), token, reference))

    def grant_id(self, path: str) -> str:
        return self.grants[path].continue_.uri.rsplit("/", 1)[1]

    def form_secrets(self) -> list[str]:
        """What the browser has for forms that sign in."""
        return [value for name, value in self.browser.cookies.items() if name.endswith("payres_form")]

    async def submit(self, path: str, choice: str, **fields: str) -> httpx2.Response:
        """Sends a form; `fields` are its other fields. One that signs in was shown before."""
        if choice == "sign-in":
            if not self.form_secrets():
                await self.browser.get(path)
            fields = {"csrf": csrf_token(self.form_secrets()[0])} | fields
        return await self.browser.post(path, data={"choice": choice} | fields)

    async def sign_in(self, path: str, password: str = PASSWORD) -> httpx2.Response:
        return await self.submit(path, "sign-in", password=password)

    async def open(self, *access: Any, finish: str | None = FINISH) -> tuple[str, dict[str, str]]:
        """Asks for a grant, signs in and opens the page; its path, and the hidden fields of the form that decides."""
        path = await self.ask(*access, finish=finish)
        return path, await self.open_signed_in(path)

    async def open_signed_in(self, path: str) -> dict[str, str]:
        """Signs in and opens the page; the hidden fields of the form that decides."""
        assert (await self.sign_in(path)).status_code == 303
        page = await self.browser.get(path)
        assert page.status_code == 200, page.text
        return hidden_fields(page)


@asynccontextmanager
async def open_site(path: Path, **settings: Any) -> AsyncIterator[Site]:
    clock = MovableClock(1_800_000_000_000_000, frozen=True)
    options = {"base_url": BASE, "interaction_lifetime": 3600, "database": str(path)} | settings
    app = create_app(settings_with(options), clock=clock)
    async with app.router.lifespan_context(app):
        site = Site(app, clock)

        def unit(tx: Work) -> None:
            for name in ("alice", "bob"):
                wallet = wallets.create_wallet(tx, name, "USD", 2, name.capitalize(), None)
                OWNERS.update(tx, wallet.owner_id, password_hash=PASSWORD_HASH)

        await site.write(unit)
        yield site
        await site.browser.aclose()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(tmp_path / "payres.db") as opened:
        yield opened


async def test_sign_in_page_says_who_asks_and_for_which_wallet(site: Site) -> None:
    page = await site.browser.get(await site.ask())
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    [cookie] = page.headers.get_list("set-cookie")
    assert sorted(cookie.split("; ")[1:]) == ["HttpOnly", "Path=/", "SameSite=lax", "Secure"]
    assert "Who asks Super Shop shop.example/pay It controls this address." in words_of(page)
    assert "Your wallet Alice pay.example/alice" in words_of(page)
    assert page.text.count("<script") == 1, "the page's own"


async def test_sign_in_sets_two_cookies_that_are_stored_hashed(site: Site) -> None:
    path = await site.ask()
    answer = await site.sign_in(path)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    cookies = [cookie.split("; ") for cookie in answer.headers.get_list("set-cookie")]
    assert [sorted(attributes) for _, *attributes in cookies] == [
        ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=lax", "Secure"],
        ["HttpOnly", "Max-Age=31536000", "Path=/", "SameSite=strict", "Secure"],
    ]
    names, values = zip(*(cookie.split("=") for cookie, *_ in cookies), strict=True)
    assert names == (COOKIE, await site.known_cookie("alice"))
    assert len(set(values)) == 2
    assert all(len(value) >= 43 for value in values)
    union = "SELECT id_hash FROM session UNION ALL SELECT id_hash FROM known_browser"
    stored = await site.write(lambda tx: tx.execute(union).fetchall())
    assert stored == [(hash_secret(value),) for value in values]


async def test_consent_page_says_what_is_asked(site: Site) -> None:
    limits = {
        "debitAmount": usd(2000),
        "interval": "R11/2027-01-01T00:00:00Z/P1M",
        "receiver": "https://shop.example/incoming-payments/1",
    }
    quote_item = {"type": "quote", "actions": ["create"], "identifier": f"{BASE}/alice"}
    path = await site.ask(SPEND | {"limits": limits}, quote_item, subject=f"{BASE}/alice")
    await site.sign_in(path)
    words = words_of(await site.browser.get(path))
    for part in (
        "Let Super Shop pay up to USD 20.00 a month, 12 times to shop.example?",
        "Each time, at most USD 20.00 How many times 12 In all, at most USD 240.00",
        "To shop.example/incoming-payments/1",
        # The clock of this site stands at 15 January 2027.
        "When From today until 1 January 2028. It starts again: 1 February 2027.",
        "What it does not use does not carry over.",
        "Who asks Super Shop shop.example/pay It controls this address.",
        "From Alice You have USD 0.00.",
        "Also In Alice it may: ask for prices It learns that you own https://pay.example/alice.",
        "Allow 12 × USD 20.00Allow up to this limit Don’t allow",
        "Then you go back to shop.example. This question closes in 1 hour.",
    ):
        assert part in words, words


@pytest.mark.parametrize(
    ("limits", "weight"),
    [
        ({}, "pay any amount? To anyone it chooses, without asking you again. Only the balance of your wallet"),
        (
            {"debitAmount": usd(2000), "interval": "R/2026-01-01T00:00:00Z/PT0.000001S"},
            "pay up to USD 20.00 many times a second? To anyone it chooses, without asking you again. This can come to"
            " USD 52,594,920,000,000.00 a month. It goes on until you stop it under Apps.",
        ),
        (
            {"debitAmount": usd(2000), "interval": "R/2026-01-01T00:00:00Z/P1M"},
            "pay up to USD 20.00 a month? To anyone it chooses, without asking you again. It goes on until you stop",
        ),
    ],
)
async def test_what_has_no_end_has_weight_and_no_inviting_button(site: Site, limits: Json, weight: str) -> None:
    path, _ = await site.open(SPEND | ({"limits": limits} if limits else {}), finish=None)
    page = await site.browser.get(path)
    assert weight in words_of(page), words_of(page)
    assert "Then you go" not in words_of(page)
    assert 'class="primary"' not in page.text


async def test_what_all_apps_can_cost_a_month_stands_before_the_buttons(site: Site) -> None:
    monthly = SPEND | {"limits": {"debitAmount": usd(2000), "interval": "R/2026-01-01T00:00:00Z/P1M"}}
    path, fields = await site.open(monthly)
    assert "You have USD 0.00. This is USD 20.00 more than you have. Don’t allow" in words_of(
        await site.browser.get(path)
    )
    await site.submit(path, "approve", **fields, limit="5.00")
    path, _ = await site.open(monthly)
    page = words_of(await site.browser.get(path))
    assert "Your limit a month It asks for 20.00." in page
    assert "With this one, all apps together: up to USD 25.00 a month. Don’t allow" in page


@pytest.mark.parametrize(
    ("deposit", "limits", "said"),
    [
        ("0.00", {}, "This is USD 20.00 more than you have. What is more than you have is not paid."),
        ("19.99", {"interval": "R/2026-01-01T00:00:00Z/P1M"}, "This is USD 0.01 more than you have."),
        ("5.00", {"receiver": "https://shop.example/incoming-payments/1"}, "You lack USD 15.00 for this."),
        ("20.00", {}, None),
    ],
)
async def test_limit_above_the_balance_is_warned_of(site: Site, deposit: str, limits: Json, said: str | None) -> None:
    if deposit != "0.00":
        await site.write(lambda work: wallets.deposit(work, "alice", deposit))
    path, _ = await site.open(SPEND | {"limits": {"debitAmount": usd(2000)} | limits})
    page = words_of(await site.browser.get(path))
    assert said in page if said else "more than you have" not in page


async def test_button_says_that_it_is_about_what_arrives(site: Site) -> None:
    path, _ = await site.open(SPEND | {"limits": {"receiveAmount": usd(2000)}})
    assert "Allow USD 20.00 to arriveAllow up to this limit Don’t allow" in words_of(await site.browser.get(path))


async def test_single_bill_is_called_so_and_has_nothing_to_stop_later(site: Site) -> None:
    limits = {"debitAmount": usd(2000), "receiver": "https://shop.example/incoming-payments/1"}
    path = await site.ask(SPEND | {"limits": limits}, finish=None)
    assert "To pay this bill, or to say no." in words_of(await site.browser.get(path))
    fields = await site.open_signed_in(path)
    assert "You can stop it at any time" not in words_of(await site.browser.get(path))
    await site.submit(path, "approve", **fields)
    ended = words_of(await site.browser.get(path))
    assert "may now pay up to USD 20.00" in ended
    assert "You can stop it at any time" not in ended


async def test_headline_is_what_the_client_would_learn(site: Site) -> None:
    path = await site.ask(subject=f"{BASE}/alice")
    await site.sign_in(path)
    page = words_of(await site.browser.get(path))
    assert "Tell Super Shop that this wallet is yours? What It learns that you own https://pay.example/alice." in page


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [
        ("12,50", "1250", ""),
        ("USD 20", "2000", ""),
        ("20.01", "2000", "Give an amount above zero and not above 20.00."),
        ("184467440737095516.16", "2000", "This is more than this server can move at once. Type less."),
        ("0.00", "2000", "Type an amount above zero."),
        ("0.001", "2000", "USD has 2 decimals."),
        ("1,000", "2000", "1,000 can be read in two ways."),
        *((limit, "2000", "Type an amount, like 12.50.") for limit in ("", "-1", "1e1", "many", "1\u202f2")),
    ],
)
async def test_owner_allows_less_and_no_more_than_was_asked(site: Site, limit: str, value: str, problem: str) -> None:
    path, fields = await site.open(LIMITED)
    answer = await site.submit(path, "approve", limit=limit, **fields)
    assert answer.status_code == (400 if problem else 303)
    if problem:
        assert problem in words_of(answer)
        assert f'value="{limit}" aria-invalid="true"' in answer.text
    [item] = json.loads((await site.write(lambda tx: GRANTS.by_id(tx, site.grant_id(path)))).access)
    assert item["limits"]["debitAmount"]["value"] == value
    assert await site.state(path) == ("pending" if problem else "approved")


async def test_limit_that_was_typed_waits_for_a_sign_in(site: Site) -> None:
    path, fields = await site.open(LIMITED, finish=None)
    site.browser.cookies.delete(COOKIE)
    asked = await site.submit(path, "approve", **fields, limit="2.22")
    assert (asked.status_code, "What you typed is kept." in words_of(asked)) == (401, True)
    wrong = await site.browser.post(path, data=hidden(asked) | {"choice": "sign-in", "password": "wrong"})
    assert (wrong.status_code, "What you typed is kept." in words_of(wrong)) == (401, True)
    again = await site.browser.post(path, data=hidden(wrong) | {"choice": "sign-in", "password": PASSWORD})
    assert (again.status_code, await site.state(path)) == (200, "pending"), "it is seen before it is allowed"
    assert re.search(r'<details open>.*name="limit"[^>]* value="2\.22"', again.text, re.DOTALL)
    assert (await site.submit(path, "approve", **hidden_fields(again), limit="2.22")).status_code == 303
    [item] = json.loads((await site.write(lambda tx: GRANTS.by_id(tx, site.grant_id(path)))).access)
    assert item["limits"]["debitAmount"]["value"] == "222"


async def test_limit_that_nobody_typed_is_not_called_so(site: Site) -> None:
    path, fields = await site.open(LIMITED)
    site.browser.cookies.delete(COOKIE)
    asked = await site.submit(path, "approve", **fields, limit="20.00")
    assert (asked.status_code, "What you typed is kept." in words_of(asked)) == (401, False)
    assert (await site.sign_in(path)).status_code == 303


@pytest.mark.parametrize(
    ("choice", "limit", "limits"),
    [("approve", "12.50", {"debitAmount": usd(1250)}), ("approve", "", None), ("any", "12.50", {}), ("any", "", {})],
)
async def test_owner_sets_a_limit_where_none_was_asked(
    site: Site, choice: str, limit: str, limits: Json | None
) -> None:
    path, fields = await site.open(SPEND)
    page = words_of(await site.browser.get(path))
    assert "It asks for no limit. You can set one." in page
    assert "Allow up to this limit" in page
    assert "Allow any amount" in page
    answer = await site.submit(path, choice, limit=limit, **fields)
    if limits is None:
        assert (answer.status_code, await site.state(path)) == (400, "pending")
        assert "Type an amount, like 12.50." in words_of(answer)
        return
    assert (answer.status_code, await site.state(path)) == (303, "approved")
    [item] = json.loads((await site.write(lambda tx: GRANTS.by_id(tx, site.grant_id(path)))).access)
    assert item.get("limits", {}) == limits


READS = {"actions": ["read-all", "list-all"]}


@pytest.mark.parametrize(
    ("items", "headline"),
    [
        ([SPEND | READS], "Let Super Shop see all your payments?"),
        ([SPEND | {"actions": ["read"]}], "Let Super Shop look into your wallet?"),
        ([SPEND | {"type": "incoming-payment"} | READS], "Let Super Shop look into your wallet?"),
        ([SPEND | READS, SPEND | {"type": "quote"}], "Let Super Shop do this in your wallet?"),
    ],
)
async def test_access_without_spending_says_what_is_seen_and_how_long(
    site: Site, items: list[Json], headline: str
) -> None:
    path, _ = await site.open(*items)
    page = words_of(await site.browser.get(path))
    assert headline in page
    assert "How long It goes on until you stop it under Apps." in page


async def test_key_of_the_wallet_itself_is_named(site: Site) -> None:
    own = f"{BASE}/alice"
    key = jwk_from_public_bytes("laptop", bytes(31) + b"\x01")

    def unit(work: Work) -> GrantResponse:
        keys.add_key(work, "alice", key, "Alice's laptop")
        asked = {"client": own, "interact": {"start": ["redirect"]}, "access_token": {"access": [LIMITED]}}
        client = Client(own, own, None)
        return request_grant(work, msgspec.convert(asked, GrantRequest), client, "Alice", "laptop")

    interact = (await site.write(unit)).interact
    assert interact
    path = urlsplit(interact.redirect).path
    await site.sign_in(path)
    words = words_of(await site.browser.get(path))
    assert "Let a program with your own key pay up to USD 20.00?" in words
    assert "A program with a key of this wallet: Alice's laptop Added today." in words


async def test_approve_redirects_to_the_client_with_a_right_hash(site: Site) -> None:
    path, fields = await site.open()
    answer = await site.submit(path, "approve", **fields)
    assert answer.status_code == 303
    location = urlsplit(answer.headers["location"])
    assert location._replace(query="").geturl() == "https://shop.example/done"
    query = {name: values[0] for name, values in parse_qs(location.query).items()}
    asked = site.grants[path].interact
    assert asked
    base = "\n".join(("client-nonce", asked.finish, query["interact_ref"], f"{BASE}/"))
    assert query == {
        "order": "17",
        "hash": base64.b64encode(hashlib.sha256(base.encode()).digest()).decode(),
        "interact_ref": query["interact_ref"],
    }
    assert (await site.continue_grant(path, query["interact_ref"])).access_token


@pytest.mark.parametrize(
    ("finish", "location"),
    [
        (FINISH, f"{FINISH}&result=grant_rejected"),
        # Byte for byte, but for a host in other letters.
        (
            "https://shop.example/a;b?s=%ff&flag&c=1+2;d|{e}^`'\"<%7e>#/route?x",
            "https://shop.example/a;b?s=%ff&flag&c=1+2;d|{e}^`'\"<%7e>&result=grant_rejected#/route?x",
        ),
        (
            "https://bücher.example/fertig?für=alle",
            f"https://xn--bcher-kva.example/fertig?{quote('für')}=alle&result=grant_rejected",
        ),
    ],
)
async def test_deny_redirects_to_the_client_without_a_reference(site: Site, finish: str, location: str) -> None:
    path, fields = await site.open(finish=finish)
    answer = await site.submit(path, "deny", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, location)
    assert await site.state(path) == "denied"


@pytest.mark.parametrize(("choice", "title"), [("approve", "Allowed"), ("deny", "Not allowed")])
async def test_decision_without_finish_uri_ends_on_a_page(site: Site, choice: str, title: str) -> None:
    path, fields = await site.open(finish=None)
    answer = await site.submit(path, choice, **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    page = await site.browser.get(path)
    assert page.status_code == 200
    assert title in words_of(page)
    assert ('class="sign off"' in page.text) == (choice == "deny")
    assert "close this window, and go back to the app" in words_of(page)


@pytest.mark.parametrize("password", ["wrong", "", PASSWORD + " ", "\0", "x" * 5000, None])
async def test_wrong_password_shows_the_form_again(site: Site, password: str | None) -> None:
    fields = {} if password is None else {"password": password}
    answer = await site.submit(await site.ask(), "sign-in", **fields)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == f"GNAP as_uri={BASE}/"
    assert "This is not the password of this wallet." in words_of(answer)
    assert 'name="password"' in answer.text
    assert [cookie.partition("=")[0] for cookie in answer.headers.get_list("set-cookie")] == [FORM_COOKIE]


@pytest.mark.parametrize(
    ("cookie", "csrf"),
    [
        (f"{FORM_COOKIE}={FORM_SECRET}", csrf_token("another browser's".ljust(43, "-"))),
        (f"{FORM_COOKIE}={FORM_SECRET}", ""),
        (f"{FORM_COOKIE}=", csrf_token("")),
        ("", csrf_token(FORM_SECRET)),
    ],
)
async def test_form_that_another_site_made_signs_nobody_in(site: Site, cookie: str, csrf: str) -> None:
    """Not even with the right password: it would be that of a wallet of who made the form."""
    path = await site.ask()
    form = {"choice": "sign-in", "password": PASSWORD, "csrf": csrf}
    async with site.new_browser() as browser:
        for _ in range(MAX_WRONG_PASSWORDS + 1):
            answer = await browser.post(path, data=form, headers={"cookie": cookie})
            assert (answer.status_code, COOKIE in browser.cookies) == (403, False)
        assert "This page is too old" in words_of(answer)
        again = await browser.post(path, data=hidden_fields(answer) | {"choice": "sign-in", "password": PASSWORD})
        assert (again.status_code, COOKIE in browser.cookies) == (303, True)


async def test_form_that_is_not_taken_is_counted_by_its_code(site: Site) -> None:
    path = await site.ask()
    await site.sign_in(path, "wrong")
    await site.open_signed_in(path)
    await site.submit(path, "approve", csrf="0" * 64)
    assert site.context.metrics.errors == {"request_denied": 1, "insufficient_access": 1}


async def test_browser_is_known_for_a_year_from_its_last_sign_in(site: Site) -> None:
    for days, status in ((0, 429), (364, 303), (364, 303), (365, 429)):
        site.clock.advance(days * 86400)
        path = await site.ask()
        await site.guess(path)
        assert (await site.sign_in(path)).status_code == status
        site.clock.advance(900)
        assert (await site.sign_in(await site.ask())).status_code == 303


async def test_each_sign_in_makes_the_browser_known_anew(site: Site) -> None:
    path, name = await site.ask(), await site.known_cookie("alice")
    await site.sign_in(path)
    before = site.browser.cookies[name]
    await site.sign_in(path)
    assert site.browser.cookies[name] != before
    await site.guess(path)
    thief = await site.visitor(path, f"{name}={before}", choice="sign-in", password=PASSWORD)
    assert thief.status_code == 429
    assert (await site.sign_in(path)).status_code == 303
    await site.write(lambda tx: wallets.unlock(tx, "alice"))
    assert (await site.visitor(path, choice="sign-in", password=PASSWORD)).status_code == 303, "the operator helps"


async def test_browser_is_known_to_the_wallet_that_it_signed_in_to_alone(site: Site) -> None:
    path, bobs = await site.ask(), await site.ask(SPEND | {"identifier": f"{BASE}/bob"})
    await site.sign_in(path)
    await site.guess(bobs)
    secret = site.browser.cookies[await site.known_cookie("alice")]
    cookie = f"{await site.known_cookie('bob')}={secret}"
    pretending = await site.visitor(bobs, cookie, choice="sign-in", password=PASSWORD)
    assert pretending.status_code == 429
    assert (await site.sign_in(bobs)).status_code == 429


async def test_wallet_knows_so_many_browsers(site: Site) -> None:
    path = await site.ask()
    await site.sign_in(path)
    for _ in range(MAX_KNOWN_BROWSERS):
        site.clock.advance(1)
        await site.visitor(path, choice="sign-in", password=PASSWORD)
    stored = await site.write(lambda tx: tx.execute("SELECT count(*) FROM known_browser").fetchone())
    assert stored == (MAX_KNOWN_BROWSERS,)
    await site.guess(path)
    assert (await site.sign_in(path)).status_code == 429, "it is the one that was used the longest ago"


async def test_sign_in_that_finds_the_queue_full_is_asked_back_and_not_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await site.ask()

    def busy(*_: object) -> None:
        raise SlotsBusy

    with monkeypatch.context() as patch:
        patch.setattr(Slots, "slot", busy)
        for _ in range(6):
            answer = await site.sign_in(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "Nothing was decided" in words_of(answer)
        assert "The server is busy. Nothing was done" in words_of(answer)
        assert f'href="{path}"' in answer.text
    assert (await site.sign_in(path)).status_code == 303


async def test_wallet_without_password_is_decided_by_the_operator(site: Site) -> None:
    path = await site.ask()
    await site.write(lambda tx: tx.execute("UPDATE owner SET password_hash = NULL").fetchall())
    page, answer = await site.browser.get(path), await site.sign_in(path)
    assert (page.status_code, answer.status_code) == (200, 409)
    for one in (page, answer):
        assert "Ask whoever runs this server for a link that sets one" in words_of(one)
        assert "<form" not in one.text


@pytest.mark.parametrize("second", ["approve", "deny"])
async def test_second_decision_changes_nothing_and_links_to_the_first_redirect(site: Site, second: str) -> None:
    path, fields = await site.open()
    location = (await site.submit(path, "approve", **fields)).headers["location"]
    answer = await site.submit(path, second, **fields)
    assert answer.status_code == 409
    assert "Already allowed" in words_of(answer)
    assert f'href="{location.replace("&", "&amp;")}"' in answer.text
    assert await site.state(path) == "approved"


async def test_link_to_the_client_is_gone_once_the_client_has_continued(site: Site) -> None:
    path, fields = await site.open()
    location = (await site.submit(path, "approve", **fields)).headers["location"]
    await site.continue_grant(path, parse_qs(urlsplit(location).query)["interact_ref"][0])
    page = await site.browser.get(path)
    assert page.status_code == 200
    assert "interact_ref" not in page.text
    assert "Allowed" in words_of(page)


async def test_decided_page_gives_the_reference_to_the_owner_only(site: Site) -> None:
    path, fields = await site.open()
    await site.submit(path, "approve", **fields)
    pages = [await site.visitor(path), await site.visitor(path, choice="approve")]
    assert [page.status_code for page in pages] == [200, 409]
    for page in pages:
        assert "Already answered" in words_of(page)
        assert "shop.example" not in page.text


async def decide_as_operator(site: Site, path: str, approve: bool = True) -> str:
    """The operator decides; where the owner's browser would go."""
    decision = await site.write(lambda work: grants.decide(work, site.grant_id(path), approve))
    return str(decision.redirect)


@pytest.mark.parametrize("approve", [True, False])
async def test_open_page_goes_to_the_client_with_what_the_operator_decided(site: Site, approve: bool) -> None:
    """Signed in or not, as long as that informs the client."""
    path, _ = await site.open()
    link = await decide_as_operator(site, path, approve)
    for page in (await site.browser.get(path), await site.visitor(path), await site.browser.get(path)):
        assert (page.status_code, page.headers["location"]) == (303, link)
    late = await site.submit(path, "deny", **hidden_fields(page))
    assert (late.status_code, f'href="{link.replace("&", "&amp;")}"' in late.text) == (409, True)
    if approve:
        await site.continue_grant(path, parse_qs(urlsplit(link).query)["interact_ref"][0])
        assert "close this window" in words_of(await site.visitor(path))


async def test_application_is_opened_by_a_click_after_the_operators_decision(site: Site) -> None:
    path = await site.ask(finish="com.example.app:/done")
    await decide_as_operator(site, path)
    page = await site.visitor(path)
    assert (page.status_code, "Continue to the app com.example.app" in words_of(page)) == (200, True)


async def test_operators_approval_that_has_lapsed_leads_nowhere(site: Site) -> None:
    path = await site.ask()
    await decide_as_operator(site, path)
    site.clock.advance(3600)
    page = await site.visitor(path)
    assert (page.status_code, "shop.example" in page.text) == (200, False)


async def test_open_page_looks_again_and_never_while_a_password_may_be_typed(site: Site) -> None:
    path = await site.ask()
    site.clock.advance(600)
    form = await site.browser.get(path)
    assert ("3000", f'href="{path}"' in form.text) == (form.headers["refresh"], True), "when the request has expired"
    signed_in = await site.sign_in(path)
    assert (await site.browser.get(path)).headers["refresh"] == "3000", "or a limit that is typed would be lost"
    assert (await site.browser.get(await site.ask(SPEND))).headers["refresh"] == "3600"
    reads = SPEND | {"actions": ["read"]}
    assert (await site.browser.get(await site.ask(reads))).headers["refresh"] == "30", "nothing can be typed"
    await site.write(lambda tx: tx.execute("UPDATE owner SET password_hash = NULL").fetchall())
    waiting = await site.visitor(path)
    assert ("<input" in waiting.text, waiting.headers["refresh"]) == (False, "5")
    await decide_as_operator(site, path)
    for ended in (signed_in, await site.visitor(path), await site.visitor("/interact/nothing/here")):
        assert "refresh" not in ended.headers


async def test_approval_that_has_lapsed_leads_nowhere(site: Site) -> None:
    path, fields = await site.open()
    await site.submit(path, "approve", **fields)
    site.clock.advance(3600)
    await site.sign_in(await site.ask())
    page = await site.browser.get(path)
    assert page.status_code == 200
    assert "Expired" in words_of(page)
    assert "The app came back too late. Nothing is allowed." in words_of(page)
    assert "shop.example/done" not in page.text


async def test_unknown_requests_are_not_found(site: Site) -> None:
    path = await site.ask()
    for wrong in (path[:-1], f"{path}x", "/interact/nothing/here", "/interact/%00/%F0%9F%92%B8"):
        answer = await site.browser.get(wrong)
        assert answer.status_code == 404
        assert "There is no such request" in words_of(answer)


@pytest.mark.parametrize("choice", ["approve", "deny", "sign-out"])
@pytest.mark.parametrize("token", ["", "0" * 64, "ü"])
async def test_form_without_the_sessions_token_is_refused(site: Site, choice: str, token: str) -> None:
    path, fields = await site.open()
    answer = await site.submit(path, choice, **fields | {"csrf": token})
    assert answer.status_code == 403
    assert "Nothing was done" in words_of(answer)
    assert await site.state(path) == "pending"
    assert "Let Super Shop pay" in words_of(await site.browser.get(path))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://pay.example"}, 403),
        ({"origin": "https://pay.example.evil.example", "sec-fetch-site": "same-origin"}, 403),
        ({"origin": "null", "sec-fetch-site": "cross-site"}, 403),
        ({}, 303),
        ({"origin": "https://pay.example"}, 303),
        ({"origin": "null", "sec-fetch-site": "same-origin"}, 303),
        ({"sec-fetch-site": "none"}, 303),
    ],
)
async def test_form_is_taken_from_this_site_only(site: Site, headers: dict[str, str], status: int) -> None:
    path = await site.ask()
    fields = await site.open_signed_in(path) | {"password": PASSWORD}
    for choice, state in (("approve", "approved"), ("sign-in", "pending")):
        form = {"choice": choice} | fields
        if choice == "sign-in":
            form["csrf"] = csrf_token(site.form_secrets()[0])
        other = path if choice == "approve" else await site.ask()
        assert (await site.browser.post(other, data=form, headers=headers)).status_code == status
        assert await site.state(other) == (state if status == 303 else "pending")


def row_changed(statement: str) -> Callable[[Site, str], Awaitable[object]]:
    return lambda site, _: site.write(lambda tx: tx.execute(statement).fetchall())


async def cancel(site: Site, path: str) -> None:
    await site.write(lambda work: tokens.revoke_grant(work, site.grant_id(path)))


async def deactivate(site: Site, _: str) -> None:
    await site.write(lambda tx: wallets.deactivate(tx, "alice"))


async def wait_too_long(site: Site, path: str) -> None:
    site.clock.advance(3590)
    await site.sign_in(path)
    site.clock.advance(10)


EXPIRED = "This request has expired"
INACTIVE = "This wallet is not active"
OTHER = "not the request that you were shown"
OTHER_SUBJECT = 'UPDATE "grant" SET subject = \'{"sub_ids":[{"id":"https://pay.example/alice","format":"uri"}]}\''


@pytest.mark.parametrize("choice", ["approve", "deny"])
@pytest.mark.parametrize(
    ("change", "status", "words", "shown"),
    [
        (wait_too_long, 400, EXPIRED, EXPIRED),
        (cancel, 409, "Cancelled", "cancelled"),
        (deactivate, 409, INACTIVE, INACTIVE),
        (row_changed("UPDATE \"grant\" SET access = replace(access, '2000', '200000')"), 409, OTHER, "Don’t allow"),
        (row_changed(OTHER_SUBJECT), 409, OTHER, "Don’t allow"),
        (row_changed("UPDATE \"grant\" SET client_name = 'Your bank'"), 409, OTHER, "Don’t allow"),
        (row_changed("UPDATE client SET identity = 'https://evil.example/pay'"), 409, OTHER, "Don’t allow"),
    ],
)
async def test_decision_on_what_has_ended_or_changed_meanwhile_is_none(
    site: Site, change: Callable[[Site, str], Awaitable[object]], status: int, words: str, shown: str, choice: str
) -> None:
    """And the page is then as it stands now."""
    path, fields = await site.open()
    await change(site, path)
    answer = await site.submit(path, choice, **fields)
    assert (answer.status_code, words in words_of(answer)) == (status, True)
    if words is not OTHER:
        answer = await site.sign_in(path)
        assert (answer.status_code, words in words_of(answer)) == (status, True)
    assert await site.state(path) == ("revoked" if change is cancel else "pending")
    assert shown in words_of(await site.browser.get(path))


async def test_expired_request_without_a_way_back_leads_to_the_wallet(site: Site) -> None:
    path = await site.ask(finish=None)
    await wait_too_long(site, path)
    page = await site.browser.get(path)
    assert EXPIRED in words_of(page)
    assert path not in page.text
    assert 'href="/account"' in page.text


async def test_what_was_shown_of_another_request_is_not_consent(site: Site) -> None:
    shown, path = await site.ask(), await site.ask()
    fields = await site.open_signed_in(shown)
    assert (await site.submit(path, "approve", **fields)).status_code == 409
    assert await site.state(path) == "pending"


async def test_session_of_another_wallet_has_to_sign_in(site: Site) -> None:
    path = await site.ask()
    bobs = await site.ask(SPEND | {"identifier": f"{BASE}/bob"})
    fields = await site.open_signed_in(path)
    assert "Sign in to your wallet" in words_of(await site.browser.get(bobs))
    answer = await site.submit(bobs, "approve", **fields)
    assert answer.status_code == 401
    assert 'name="password"' in answer.text
    assert await site.state(bobs) == "pending"


async def test_each_sign_in_has_a_session_of_its_own_and_ends_the_one_before(site: Site) -> None:
    path, fields = await site.open()
    before = site.browser.cookies[COOKIE]
    await site.sign_in(path)
    assert site.browser.cookies[COOKIE] != before
    assert "Sign in to" in words_of(await site.visitor(path, f"{COOKIE}={before}"))
    assert (await site.submit(path, "approve", **fields)).status_code == 403
    assert await site.state(path) == "pending"


async def test_sign_out_ends_the_session_and_takes_the_cookie_back(site: Site) -> None:
    path, fields = await site.open()
    session = site.browser.cookies[COOKIE]
    answer = await site.submit(path, "sign-out", csrf=fields["csrf"])
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert "Sign in to" in words_of(await site.visitor(path, f"{COOKIE}={session}"))
    assert (await site.submit(path, "sign-out")).status_code == 303


async def test_new_password_ends_what_the_old_one_is_opening(site: Site) -> None:
    await site.ask()
    verified = await site.write(lambda tx: owner_at(tx, "alice"))
    assert verified is not None
    await site.write(lambda tx: owners.store_password(tx, "alice", hash_password("new words")))
    with pytest.raises(DomainError) as caught:
        await site.write(lambda work: open_session(work, OF_OWNERS, verified, Browser()))
    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b"choice=approve&csrf=" + b"x" * 16_384, "application/x-www-form-urlencoded", 413),
        (b'{"choice":"approve"}', "application/json", 415),
        (b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x", 415),
        (b"", "", 415),
        (b"", "application/x-www-form-urlencoded", 400),
        (b"choice", "application/x-www-form-urlencoded", 400),
        (b"choice=dance", "application/x-www-form-urlencoded", 400),
        (b"choice=approve&choice=deny", "application/x-www-form-urlencoded", 400),
        (b"choice=%ff", "application/x-www-form-urlencoded", 400),
        (b"choice=\xff", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"f%d=1" % number for number in range(9)), "application/x-www-form-urlencoded", 400),
    ],
)
async def test_malformed_forms_are_refused_with_a_page(
    site: Site, content: bytes, media_type: str, status: int
) -> None:
    answer = await site.browser.post(await site.ask(), content=content, headers={"content-type": media_type})
    assert answer.status_code == status
    assert answer.text.startswith("<!doctype html>")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
async def test_other_methods_are_refused_with_a_page(site: Site, method: str) -> None:
    answer = await site.browser.request(method, await site.ask())
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert answer.text.startswith("<!doctype html>")


async def test_head_answers_as_get_does_and_a_slash_may_follow(site: Site) -> None:
    path = await site.ask()
    for target, status in ((path, 200), (f"{path}/", 200), ("/interact/nothing/here", 404)):
        head, get = await site.browser.head(target), await site.browser.get(target)
        for answer in (head, get):
            assert answer.headers.pop("x-request-id"), "each has its own"
        assert (head.status_code, head.headers) == (get.status_code, get.headers)
        assert get.status_code == status


async def test_fault_is_a_page_that_says_nothing_of_the_inside(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = await site.ask()
    monkeypatch.setattr(consent_rules, "find_request", lambda *_, **__: 1 // 0)
    with caplog.at_level(logging.ERROR):
        answer = await site.browser.get(path)
    assert answer.status_code == 500
    assert "Something went wrong here" in words_of(answer)
    assert "division" not in answer.text
    assert "ZeroDivisionError" in caplog.text
    assert path not in caplog.text


async def test_every_answer_keeps_out_of_frames_and_caches(site: Site) -> None:
    path = await site.ask()
    sign_in = await site.browser.get(path)
    signed_in = await site.sign_in(path)
    page = await site.browser.get(path)
    assert page.status_code == 200
    approved = await site.submit(path, "approve", **hidden_fields(page))
    for answer in (sign_in, signed_in, page, approved, await site.browser.get("/interact/nothing/here")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        if answer.status_code != 303:
            policy = answer.headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
            assert "style-src 'self'" in policy
            assert "<style" not in answer.text
    for answer in (sign_in, page):
        [script] = re.findall(r"<script>(.*)</script>", answer.text, re.S)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert answer.headers["content-security-policy"].count("script-src") == 1
        assert f"script-src 'sha256-{digest}'" in answer.headers["content-security-policy"].split("; ")


@pytest.mark.parametrize(
    ("finish", "policy"),
    [
        (None, ["form-action 'self'"]),
        ("https://shop.example/done", []),
        ("HTTP://127.0.0.1:8000/done", []),
        ("https://shop.example/;script-src%20*", []),
        ("COM.example.app:/;script-src%20*", []),
    ],
)
async def test_policy_lets_forms_lead_to_the_client_and_wherever_that_leads(
    site: Site, finish: str | None, policy: list[str]
) -> None:
    path = await site.ask(finish=finish)
    sign_in = await site.browser.get(path)
    await site.sign_in(path)
    page = await site.browser.get(path)
    assert "form-action 'self'" in sign_in.headers["content-security-policy"].split("; ")
    assert re.findall("form-action[^;]*", page.headers["content-security-policy"]) == policy
    [scripts] = re.findall("script-src[^;]*", page.headers["content-security-policy"])
    assert re.fullmatch("script-src 'sha256-[^' ]+'", scripts)


async def test_only_pages_that_wait_for_a_decision_load_again_by_a_script(site: Site) -> None:
    """Neither those that answer a form, which would be sent again, nor those with nothing left to wait for."""
    path = await site.ask()
    wrong = await site.sign_in(path, "wrong")
    fields = await site.open_signed_in(path)
    refused = await site.submit(path, "approve", **fields, limit="x")
    await decide_as_operator(site, path)
    decided = await site.browser.get(path)
    assert [one.status_code for one in (wrong, refused, decided)] == [401, 400, 303]
    for answer in (wrong, refused, decided, await site.browser.get("/interact/no/thing")):
        assert "location.reload" not in answer.text
