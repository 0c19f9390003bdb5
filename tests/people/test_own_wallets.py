"""One owner with several wallets: which one is shown, which one a form is of, and bringing wallets together."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.accounts.limits import MAX_WRONG_PASSWORDS
from payres.accounts.owners import store_password
from payres.accounts.passwords import hash_password
from payres.accounts.sessions import csrf_token, verified_now
from payres.accounts.store.joined_wallets import open_joins
from payres.accounts.store.mail import ADDRESSES, AddressRecord
from payres.accounts.store.owners import OF_OWNERS, OWNERS, owner_at
from payres.core.protocol.clock import DAY
from payres.core.protocol.errors import SignInFailed, WrongState
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import RESET_PATH
from payres.core.store.migrations import schema
from payres.core.store.rows import number
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import assets, grants, keys, wallets
from payres.operator.separations import separate
from payres.operator.wallets import create_wallet
from payres.people.own_wallets import join, keep_apart
from payres.people.serving import PLACES
from payres.people.sign_in import NOTICES
from tests.accounts.test_factor_pages import send_code, with_codes
from tests.helpers import last_segment, new_jwk, sign_in_token, usd
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_out
from tests.people.test_sign_in import sign_in
from tests.versions import make_version, plain

NUMBERS = count(1)
OTHER = "another password"
BILL = "/incoming-payments/"


# What an owner has besides wallets.
ENDS = (
    *("session", "known_browser", "password_link", "half_sign_in"),
    *("totp", "recovery_code", "passkey", "factor_removal", "sign_in"),
    *("mail_address", "mail_choice"),
)


class Several(OwnersBrowser):
    """The browser of somebody with the wallets `path` (USD 100.00), `household` (USD 50.00) and `pottery` (EUR 20.00),
    who looks at the first."""

    def __init__(self, instance: Instance) -> None:
        at = next(NUMBERS)
        self.path, self.household, self.pottery = f"ann-{at}", f"household-{at}", f"pottery-{at}"
        instance.create_wallet(self.path, name="Ann", password=PASSWORD, deposit="100.00")

        def unit(work: Work) -> None:
            create_wallet(work, self.household, "USD", 2, "Household", None, self.path)
            create_wallet(work, self.pottery, "EUR", 2, "Pottery", None, self.path)
            wallets.deposit(work, self.household, "50.00")
            wallets.deposit(work, self.pottery, "20.00")
            assets.set_rate(work, "EUR", "USD", "1.1")
            assets.deposit_liquidity(work, "USD", 2, "20000.00", None)

        instance.write(unit)
        super().__init__(instance, self.path)

    def look_at(self, wallet: str, page: str = "/account") -> httpx2.Response:
        answer = self.send(page, "switch", {"wallet": wallet})
        assert (answer.status_code, answer.headers["location"]) == (303, page), answer.text
        return answer


@pytest.fixture
def ann(payres: Instance) -> Iterator[Several]:
    with Several(payres) as browser:
        yield browser


def bill(payres: Instance, cents: int | None, to: str = "alice") -> str:
    made = payres.client.create_incoming_payment(payres.wallet(to), usd(cents) if cents else None)
    return str(made["id"])


def test_account_shows_one_wallet_and_what_the_others_have(payres: Instance, ann: Several) -> None:
    words = ann.words("/account")
    assert words.startswith("Ann, one of your 3 wallets"), words
    assert f"Household {ann.household} USD 50.00" in words
    assert f"Pottery {ann.pottery} EUR 20.00" in words
    assert "Ann has USD100.00" in words
    ann.look_at(ann.pottery)
    words = ann.words("/account")
    assert "Pottery has EUR20.00" in words
    assert f"Ann {ann.path} USD 100.00" in words
    assert '<span class="who" title="Pottery">Pottery</span>' in ann.http.get("/settings/receive").text
    payres.write(lambda work: wallets.deactivate(work, ann.household))
    assert f"Household {ann.household} USD 50.00 closed" in ann.words("/account")
    ann.look_at(ann.household)
    words = ann.words("/account")
    assert ("Household has USD50.00" in words, words.count("Your wallet is closed and sends nothing.")) == (True, 1)


def test_who_has_one_wallet_sees_no_other(payres: Instance) -> None:
    payres.create_wallet("alone", name="Al", password=PASSWORD)
    with OwnersBrowser(payres, "alone") as browser:
        words = browser.words("/account")
        assert words.startswith("Al’s wallet Al, you have"), words
        assert "Change" not in words
        assert "Your own wallets" not in browser.words("/account/send")


@pytest.mark.parametrize("which", ["path", "household"])
def test_each_name_signs_in_and_shows_its_wallet(payres: Instance, ann: Several, which: str) -> None:
    with signed_out(payres) as http:
        assert sign_in(http, getattr(ann, which)).status_code == 303
        assert words_of(http.get("/account")).startswith({"path": "Ann", "household": "Household"}[which])


def test_wallet_of_somebody_else_is_not_there(payres: Instance, ann: Several) -> None:
    payres.create_wallet(other := f"not-{ann.path}", password=PASSWORD)
    for named in (other, "nobody-at-all", ""):
        assert ann.send("/account", "switch", {"wallet": named}).status_code == 404
        token = f"{csrf_token(ann.http.cookies['payres_session'])}.{named}"
        assert ann.send("/account/send", "price", csrf=token).status_code == 404
    assert ann.send("/account", "switch", {"wallet": ann.household}, csrf="0" * 64).status_code == 403
    assert "Ann has" in ann.words("/account")


FORMS = [(path, choice) for path, place in PLACES.items() for choice in place.acts]


@pytest.mark.parametrize(("path", "choice"), FORMS)
def test_form_of_a_stale_tab_is_refused(payres: Instance, ann: Several, path: str, choice: str) -> None:
    """The wallet was changed in another tab. The form is for what it was shown for, or for nothing."""
    stale, page = ann.csrf, re.sub(r"\{\w+\}", "1", path)
    ann.look_at(ann.household)
    before = payres.read(lambda work: number(work, "SELECT max(id) FROM audit"))
    answer = ann.send(page, choice, {"current": PASSWORD, "other": "alice", "password": PASSWORD}, csrf=stale)
    assert answer.status_code == 409
    said = "This form is of Ann You changed to Household in another tab. Nothing was done."
    assert words_of(answer).startswith(said)
    assert payres.read(lambda work: number(work, "SELECT max(id) FROM audit")) == before


def test_all_forms_of_an_owner_name_the_wallet(payres: Instance, ann: Several) -> None:
    pages = [path for path in PLACES if "{" not in path and not path.endswith(".csv") and path != NOTICES]
    asked = ann.send("/account/send", "price", {"to": "alice", "amount": "1.00"}).headers["location"]
    for page in [*pages, asked]:
        tokens = re.findall('name="csrf" value="([^"]*)"', ann.http.get(page).text)
        assert tokens, page
        assert set(tokens) == {ann.csrf}, page


def test_price_of_a_stale_tab_pays_nothing_and_is_found_again(payres: Instance, ann: Several) -> None:
    price, stale = ann.send("/account/send", "price", {"to": "alice", "amount": "7.00"}).headers["location"], ann.csrf
    assert "From Ann" in ann.words(price)
    ann.look_at(ann.household)
    refused = ann.send(price, "send", csrf=stale)
    assert refused.status_code == 409
    assert (payres.balance(ann.path), payres.balance(ann.household)) == ("100.00", "50.00")
    assert "From Ann It has USD 100.00; then USD 93.00." in ann.words(price), "it is of another wallet, and says so"
    named = re.search(r'name="wallet" value="([^"]*)">Look at <bdi>Ann<', refused.text)
    assert named is not None
    ann.look_at(named[1], price)
    assert ann.send(price, "send").status_code == 303
    assert (payres.balance(ann.path), payres.balance(ann.household)) == ("93.00", "50.00")


def test_money_goes_between_own_wallets(payres: Instance, ann: Several) -> None:
    page = ann.http.get("/account/send")
    assert "Ann has USD 100.00." in words_of(page)
    assert f'href="/account/send?to={payres.wallet(ann.household).replace(":", "%3A")}"' in page.text
    assert "A Ann" not in words_of(page)
    assert "H Household yours P Pottery yours T" in words_of(page)
    payres.write(lambda work: wallets.deactivate(work, ann.pottery))
    assert "Pottery" not in ann.words("/account/send")
    price = ann.send("/account/send", "price", {"to": ann.household, "amount": "10.00"}).headers["location"]
    assert ann.send(price, "send").status_code == 303
    assert (payres.balance(ann.path), payres.balance(ann.household)) == ("90.00", "60.00")
    assert "Paid before" not in ann.http.get("/account/send").text


def test_bill_is_paid_from_the_wallet_that_is_chosen(payres: Instance, ann: Several) -> None:
    """Only the form names it: the wallet that is looked at stays."""
    url = bill(payres, 1100)
    page = ann.http.get(f"/pay/{last_segment(url)}")
    words = words_of(page)
    choices = (
        "Ann takes USD 11.00 USD 100.00 Household takes USD 11.00 USD 50.00 Pottery takes about EUR 10.00 EUR 20.00"
    )
    assert f"Pay from For this bill only. You go on looking at Ann. {choices} See the price" in words
    assert "I have a wallet at" not in words
    assert f'<input type="hidden" name="bill" value="{url}">' in page.text
    assert re.findall(r'name="from" value="([^"]*)" required( checked)?', page.text) == [
        (ann.path, " checked"),
        (ann.household, ""),
        (ann.pottery, ""),
    ]
    price = ann.http.get("/account/send", params={"bill": url, "from": ann.pottery}).headers["location"]
    shown = ann.http.get(price)
    assert "Pay USD 11.00 from Pottery?" in words_of(shown)
    assert "Leaves Pottery EUR 10.00 From Pottery It has EUR 20.00; then EUR 10.00. Another wallet" in words_of(shown)
    assert f'href="/pay/{last_segment(url)}">Another wallet' in shown.text
    assert '<span class="who" title="Ann">Ann</span>' in shown.text
    paid = ann.send(price, "send")
    assert paid.status_code == 303
    assert (payres.balance(ann.path), payres.balance(ann.pottery)) == ("100.00", "10.00")
    words = ann.words(paid.headers["location"])
    assert "EUR 10.00 left Pottery, which has EUR 10.00. You are looking at Ann, as before." in words
    assert "Look at Pottery" in words
    assert ann.words("/account").startswith("Ann, one of your 3 wallets")
    ann.look_at(ann.pottery, paid.headers["location"])
    assert "You have EUR 10.00." in ann.words(paid.headers["location"])


def test_bill_says_what_a_wallet_lacks(payres: Instance, ann: Several) -> None:
    page = f"/pay/{last_segment(bill(payres, 3000))}"
    assert "Pottery It lacks EUR 7.28 EUR 20.00" in ann.words(page)
    assert re.findall(r'value="([^"]*)" required disabled', ann.http.get(page).text) == [ann.pottery]
    payres.write(lambda work: wallets.deactivate(work, ann.household))
    assert "Household" not in ann.words(page)
    too_much = bill(payres, 7000)
    refused = ann.words("/account/send", 403, bill=too_much, **{"from": ann.pottery})
    assert "From Pottery You have EUR 20.00. Another wallet" in refused
    assert f"looking at Ann. Ann {ann.path} USD 100.00" in ann.words(f"/pay/{last_segment(bill(payres, None))}"), "any"
    own = bill(payres, 100, ann.path)
    payres.write(lambda work: wallets.activate(work, ann.household))
    words = ann.words(f"/pay/{last_segment(own)}")
    assert "Household takes USD 1.00" in words
    assert "Ann takes" not in words
    words = ann.words(f"/pay/{last_segment(bill(payres, 900000))}")
    assert "Pottery It lacks EUR" in words
    assert "See the price" not in words, "none has enough"
    assert ann.http.get("/account/send", params={"bill": too_much, "from": "alice"}).status_code == 404
    with signed_out(payres) as http:
        assert "takes" not in words_of(http.get(page))
    with OwnersBrowser(payres, "bob") as alone:
        assert "Pay from Bob takes USD 30.00 USD" in alone.words(page)


def test_form_to_send_goes_on_with_the_wallet_of_its_price(payres: Instance, ann: Several) -> None:
    asked = ann.send("/account/send", "price", {"to": "alice", "amount": "7.00", "from": ann.household})
    form = ann.http.get("/account/send", params={"again": last_segment(asked.headers["location"])})
    assert "Household has USD 50.00." in words_of(form)
    assert f'<input type="hidden" name="from" value="{ann.household}">' in form.text
    assert 'name="from"' not in ann.http.get("/account/send").text


def test_apps_of_all_wallets_stand_together(payres: Instance, ann: Several) -> None:
    shop = payres.client

    def ask(path: str, currency: str, actions: Sequence[str] = ("create",), **limits: object) -> str:
        item = {"type": "outgoing-payment", "actions": [*actions], "identifier": payres.wallet(path)}
        amount = {"debitAmount": {"value": "2500", "assetCode": currency, "assetScale": 2}}
        return last_segment(
            shop.obtain_grant(item | ({"limits": amount | limits} if limits else {}))["continue"]["uri"]
        )

    monthly, url = {"interval": "R/2026-01-01T00:00:00Z/P1M"}, bill(payres, 1200)
    ask(ann.household, "USD", **monthly)
    of_pottery = ask(ann.pottery, "EUR", **monthly)
    of_bill = ask(ann.household, "USD", receiver=url)
    ask(ann.path, "USD", ["list-all"])
    words = ann.words("/account/apps")
    assert words.startswith(
        "Apps with access to your wallets All 3 wallets. Together at most USD 25.00 and EUR 25.00 a"
    )
    assert "And once, at most USD 25.00. All 4 Ann 1 Household 2 Pottery 1 P From Pottery" in words
    assert "For one bill AAliceby Example ShopFrom Household, at most USD 25.00, once.Stop" in words
    words = ann.words("/account/apps", wallet=ann.pottery)
    assert words.startswith("Apps with access to your wallets Together at most EUR 25.00 a month. You have EUR 20.00.")
    assert "From Household" not in words
    assert "All 3 wallets." in ann.words("/account/apps", wallet="alice"), "it is of somebody else"
    assert "From Pottery" in ann.words(f"/account/apps/{of_pottery}")
    for grant in (of_pottery, of_bill):
        assert ann.send(f"/account/apps/{grant}", "stop").status_code == 303
    words = ann.words("/account/apps")
    assert "Together at most USD 25.00 a month. All 2" in words
    assert "Household. It was stopped 0.00today" in words
    assert "Pottery. It was stopped" in ann.words("/account/apps/ended")
    with OwnersBrowser(payres, "bob") as bob:
        assert bob.http.get(f"/account/apps/{of_pottery}").status_code == 404


@pytest.mark.parametrize("page", ["/account/activity", "/account/orders"])
def test_pages_of_one_wallet_lead_to_the_others(payres: Instance, ann: Several, page: str) -> None:
    assert "AAnn One of your 3 walletsChange H Household" in ann.words(page)
    ann.look_at(ann.pottery, page)
    assert "PPottery One of your 3 walletsChange A Ann" in ann.words(page)


def test_consent_is_for_the_wallet_that_is_asked_for(payres: Instance, ann: Several) -> None:
    spend = {"type": "outgoing-payment", "actions": ["create"], "limits": {"debitAmount": usd(500)}}
    asked = payres.client.request_grant(spend | {"identifier": payres.wallet(ann.household)}).json()
    page = asked["interact"]["redirect"].removeprefix(payres.base_url)
    shown = ann.http.get(page)
    assert "From Household You have USD 50.00." in words_of(shown)
    assert '<span class="who" title="Household">Household</span>' in shown.text
    fields = dict(re.findall(r'name="(csrf|shown)" value="([^"]*)"', shown.text))
    assert ann.http.post(page, data=fields | {"choice": "approve"}).status_code == 303
    query = (
        "SELECT w.path FROM \"grant\" g JOIN wallet_address w ON w.id = g.wallet_address_id WHERE g.state = 'approved'"
    )
    assert (ann.household,) in payres.read(lambda work: work.execute(query).fetchall())
    assert "Ann has" in ann.words("/account"), "the session shows what it showed"


@pytest.mark.parametrize("through", ["page", "command", "link"])
def test_password_is_the_owners_and_ends_all_sessions(payres: Instance, ann: Several, through: str) -> None:
    with signed_out(payres) as there, signed_out(payres) as http:
        assert sign_in(there, ann.household).status_code == 303
        if through == "page":
            assert "It opens all your wallets: Ann, Household, Pottery." in ann.words("/settings/password")
            fields = {"current": PASSWORD, "password": OTHER, "again": OTHER}
            assert ann.send("/settings/password", "change", fields).status_code == 303
        elif through == "command":
            payres.write(lambda work: store_password(work, ann.household, hash_password(OTHER)))
            assert ann.http.get("/account").status_code == 401
        else:
            link = payres.write(lambda work: wallets.make_password_link(work, ann.pottery)).url
            path = link.removeprefix(payres.base_url)
            assert words_of(http.get(path)).startswith("Choose a password for Ann, Household, Pottery")
            fields = {"csrf": sign_in_token(http, path), "choice": "set", "password": OTHER, "again": OTHER}
            assert http.post(path, data=fields).status_code == 303
            assert ann.http.get("/account").status_code == 401
        assert there.get("/account").status_code == 401
        assert sign_in(http, ann.pottery, PASSWORD).status_code == 401
        assert sign_in(http, ann.pottery, OTHER).status_code == 303


def test_signing_out_other_browsers_is_for_all_wallets(payres: Instance, ann: Several) -> None:
    with signed_out(payres) as there:
        assert sign_in(there, ann.household).status_code == 303
        assert ann.send("/account/security", "others").status_code == 303
        assert there.get("/account").status_code == 401


def strange_wallet(payres: Instance) -> str:
    payres.create_wallet(path := f"stranger-{next(NUMBERS)}", name="Shop", password=OTHER, deposit="5.00")
    return path


def connect(browser: OwnersBrowser, other: str, password: str = OTHER, **more: str) -> httpx2.Response:
    return browser.send("/settings/wallets", "connect", {"other": other, "password": password} | more)


def wait_a_day(work: Work) -> None:
    """As if what was asked for had been a day ago, without the end of all sessions."""
    work.execute("UPDATE wallet_join SET due_at = ? WHERE joined_at IS NULL", (work.now,))


def join_in_time(work: Work, owner: Any, path: str, other: Any) -> None:
    assert join(work, owner, path, other) == "asked"
    wait_a_day(work)
    assert join(work, owner, path, other) == "connected"


def owners(payres: Instance, *paths: str) -> set[int]:
    return set(payres.read(lambda work: [require_wallet(work, path).owner_id for path in paths]))


def rows_of(payres: Instance, owner_id: int, tables: Sequence[str]) -> Sequence[int]:
    """How many rows each table has of an owner."""
    query = "SELECT count(*) FROM {} WHERE owner_id = ?"
    return payres.read(lambda work: [number(work, query.format(one), owner_id) for one in tables])


def test_wallets_are_brought_together_by_both_passwords(payres: Instance, ann: Several) -> None:
    other = strange_wallet(payres)
    payres.write(lambda work: create_wallet(work, f"{other}-2", "USD", 2, None, None, other))
    payres.write(lambda work: wallets.deactivate(work, f"{other}-2"))
    [old] = owners(payres, other)
    payres.write(lambda work: wallets.make_password_link(work, other))
    with signed_out(payres) as there:
        assert sign_in(there, other, OTHER).status_code == 303
        for _ in range(2):
            assert connect(ann, other).headers["location"] == "/settings/wallets?done=asked"
        assert "Whoever has the wallet is asked. Below" in (words := ann.words("/settings/wallets?done=asked"))
        assert f"You can connect {other} below tomorrow" in words
        assert f"Somebody gave the password of {other}" in words_of(there.get("/account"))
        assert len(owners(payres, ann.path, other)) == 2
        payres.write(wait_a_day)
        assert f"You can connect {other} below now, for a week" in ann.words("/settings/wallets")
        answer = connect(ann, f"${payres.wallet(other).partition('://')[2]}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/settings/wallets?done=connected")
        words = ann.words("/settings/wallets?done=connected")
        assert "and its password now open all your wallets." in words
        assert f"Shop {other} USD 5.00" in words
        assert f"{other}-2 USD 0.00 closed" in words
        assert there.get("/account").status_code == 401
        assert sign_in(there, other, OTHER).status_code == 401
        assert sign_in(there, other, PASSWORD).status_code == 303
    [owner] = owners(payres, ann.path, other, f"{other}-2")
    assert owner != old
    assert payres.read(lambda work: OWNERS.get(work, old)) is None
    assert rows_of(payres, old, ENDS) == [0] * len(ENDS)
    query = "SELECT actor, object FROM audit WHERE action = 'wallet.connect' ORDER BY id DESC LIMIT 2"
    found = payres.read(lambda work: work.execute(query).fetchall())
    assert set(found) == {(f"owner:{ann.path}", other), (f"owner:{ann.path}", f"{other}-2")}


def protect(payres: Instance, path: str, statement: str) -> None:
    payres.write(lambda work: work.execute(statement, (require_wallet(work, path).owner_id,)).rowcount)


CODES = "INSERT INTO totp (owner_id, secret, created_at, confirmed_at) VALUES (?, x'01', 1, {})"
PASSKEY = (
    "INSERT INTO passkey (id, owner_id, user_handle, credential_id, public_key, sign_count, is_backed_up, transports,"
    " name, created_at) VALUES (hex(randomblob(8)), ?, x'01', randomblob(8), x'01', 0, 0, '', 'Key', 1)"
)


@pytest.mark.parametrize("factor", [CODES.format(1), PASSKEY])
def test_second_factor_of_the_other_is_not_got_around(payres: Instance, ann: Several, factor: str) -> None:
    other = strange_wallet(payres)
    protect(payres, other, factor)
    answer = connect(ann, other)
    assert (answer.status_code, "This wallet has a second step" in words_of(answer)) == (401, True)
    assert len(owners(payres, ann.path, other)) == 2


def test_code_of_the_other_connects_at_once(payres: Instance, ann: Several) -> None:
    with with_codes(payres, other := f"coded-{ann.path}") as (_, app, recovery):
        code = app.next_code()
        with signed_out(payres) as http:
            send_code(http, sign_in(http, other), code)
        for typed, said in ((code, "used a moment ago"), ("000000", "This code is not right")):
            answer = connect(ann, other, PASSWORD, code=typed)
            assert (answer.status_code, said in words_of(answer), len(owners(payres, ann.path, other))) == (
                401,
                True,
                2,
            )
        assert connect(ann, other, PASSWORD, code=recovery[0]).headers["location"].endswith("done=connected")
        assert len(owners(payres, ann.path, other)) == 1


@pytest.mark.parametrize("how", ["owner", "asker", "password", "late", "ahead"])
def test_what_was_asked_for_ends(payres: Instance, ann: Several, how: str) -> None:
    """By a no of either side, a new password, after a week, or if a clock that was ahead has stored it."""
    other = strange_wallet(payres)
    assert connect(ann, other).headers["location"].endswith("done=asked")

    def end(work: Work) -> None:
        me, it = owner_at(work, ann.path), owner_at(work, other)
        if how in {"owner", "asker"}:
            keep_apart(work, it if how == "owner" else me)  # type: ignore[arg-type]
        elif how == "password":
            store_password(work, other, it.password_hash or "")  # type: ignore[union-attr]
        else:
            due_at = work.now - 7 * DAY if how == "late" else work.now + 30 * DAY
            work.execute("UPDATE wallet_join SET due_at = ?", (due_at,))
        assert open_joins(work, it.id, work.now) == []  # type: ignore[union-attr]

    payres.write(end)
    assert connect(ann, other).headers["location"].endswith("done=asked"), "from the beginning"
    assert len(owners(payres, ann.path, other)) == 2


def test_operator_gives_a_wallet_its_own_sign_in_again(payres: Instance, ann: Several) -> None:
    """What was set up since it was connected ends, and notices go where they went before."""
    other = strange_wallet(payres)
    payres.write(lambda work: keys.add_key(work, other, new_jwk("before")))

    def unit(work: Work) -> int:
        me, it = owner_at(work, ann.path), owner_at(work, other)
        ADDRESSES.insert(work, AddressRecord(it.id, "shop@mail.example", 1, "de", "Europe/Berlin"))  # type: ignore[union-attr]
        join_in_time(work, me, other, it)
        keys.add_key(work, other, new_jwk("since"))
        return it.id  # type: ignore[union-attr]

    payres.write(unit)
    grant = payres.client.request_grant(
        {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet(other)},
        interact={"start": ["redirect"]},
    ).json()
    payres.write(lambda work: grants.decide(work, grants.named_grant(work, grant["interact"]["redirect"]), True))
    link = payres.write(lambda work: separate(work, other, "its owner called"))
    assert ann.http.get("/account").status_code == 401
    assert len(owners(payres, ann.path, other)) == 2
    assert owners(payres, ann.path) == owners(payres, ann.household)
    [new] = owners(payres, other)
    found = payres.read(lambda work: ADDRESSES.by_id(work, new))
    assert (found.email, found.language) == ("shop@mail.example", "de")
    assert [one.kid for one in payres.read(lambda work: keys.list_keys(work, other))] == ["before"]
    query = 'SELECT g.state FROM "grant" g JOIN wallet_address w ON w.id = g.wallet_address_id WHERE w.path = ?'
    assert payres.read(lambda work: work.execute(query, (other,)).fetchall()) == [("revoked",)]
    with signed_out(payres) as http:
        path = urlsplit(link.url).path
        fields = {"choice": "set", "password": "a new one", "again": "a new one", "csrf": sign_in_token(http, path)}
        assert http.post(path, data=fields).status_code == 303
        assert "Shop’s wallet Shop, you have USD5.00" in words_of(http.get("/account"))
    with pytest.raises(WrongState, match="has a sign-in of its own"):
        payres.write(lambda work: separate(work, other, "again"))


def test_second_factor_of_the_visitor_stays(payres: Instance, ann: Several) -> None:
    other = strange_wallet(payres)
    protect(payres, ann.path, CODES.format(1))
    protect(payres, ann.path, PASSKEY)
    protect(payres, other, CODES.format("NULL"))  # one that was never confirmed guards nothing
    assert "This needs your second step again" in words_of(connect(ann, other))
    payres.write(lambda work: verified_now(work, OF_OWNERS, ann.http.cookies["payres_session"]))
    assert connect(ann, other).status_code == 303
    payres.write(wait_a_day)
    assert connect(ann, other).status_code == 303
    [owner] = owners(payres, ann.path, other)
    assert rows_of(payres, owner, ["totp", "passkey"]) == [1, 1]


def test_wallet_that_cannot_be_connected_says_why(payres: Instance, ann: Several) -> None:
    other = strange_wallet(payres)
    payres.create_wallet(without := f"{other}-new")
    cases: Mapping[tuple[str, str], tuple[int, str]] = {
        (other, "wrong"): (401, "This is not the password of this wallet. Try again."),
        ("nobody-at-all", OTHER): (401, "This is not the password of this wallet. Try again."),
        (without, ""): (401, "This is not the password of this wallet. Try again."),
        (ann.path, PASSWORD): (409, "This wallet is yours already: you find it above."),
        (ann.household, PASSWORD): (409, "This wallet is yours already: you find it above."),
    }
    for (named, password), (status, said) in cases.items():
        answer = connect(ann, named, password)
        assert (answer.status_code, said in words_of(answer)) == (status, True), named
        assert "<title>Error: Your wallets" in answer.text
        assert f'value="{named}"' in answer.text
    assert len(owners(payres, ann.path, other)) == 2


def test_session_is_no_way_to_guess_the_password_of_another_wallet(payres: Instance, ann: Several) -> None:
    other = strange_wallet(payres)
    statuses = [connect(ann, other, f"wrong {n}").status_code for n in range(MAX_WRONG_PASSWORDS + 1)]
    assert statuses == [401] * MAX_WRONG_PASSWORDS + [429]
    assert connect(ann, other).status_code == 429
    assert len(owners(payres, ann.path, other)) == 2


def test_two_who_connect_at_once_are_told_apart(payres: Instance, ann: Several) -> None:
    """Between the check of the password and the unit, another has taken the wallet, or its password was changed."""
    other, changed = strange_wallet(payres), strange_wallet(payres)

    def verified(path: str, by: str = ann.path) -> tuple[Any, Any]:
        found = payres.read(lambda work: (owner_at(work, by), owner_at(work, path)))
        assert None not in found
        return found

    (me, it), (rival, _) = verified(other), verified(other, strange_wallet(payres))
    payres.write(lambda work: join_in_time(work, me, other, it))
    with pytest.raises(WrongState):
        payres.write(lambda work: join(work, me, other, it))
    with pytest.raises(SignInFailed):
        payres.write(lambda work: join(work, rival, other, it))
    me, it = verified(changed)
    payres.write(lambda work: store_password(work, changed, hash_password("a third one")))
    with pytest.raises(SignInFailed):
        payres.write(lambda work: join(work, me, changed, it))
    assert owners(payres, ann.path) == owners(payres, other) != owners(payres, changed)


def test_all_that_an_owner_has_is_moved_or_ends() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema())
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        referring = {
            name
            for name in tables
            for row in connection.execute(f"PRAGMA foreign_key_list({name!r})")
            if row[2] == "owner"
        }
    assert referring == {"wallet_address", "mail", "wallet_join", *ENDS}


def test_cookies_and_links_of_earlier_versions_are_good(tmp_path: Path) -> None:
    """A database from before owners, with a session, a known browser and a link of the wallet."""
    session, known, link = "s" * 43, "k" * 43, "l" * 43
    secrets = [hash_secret(one) for one in (session, known, link)]
    with run_instance(tmp_path / "clock.db") as instance:
        now = instance.clock.now()
    with plain(tmp_path / "payres.db") as connection:
        make_version(connection, 33)
        connection.executescript(
            "INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2);"
            "INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1), (2, 'wallet', 1);"
        )
        insert = (
            "INSERT INTO wallet_address (id, path, public_name, asset_id, account_id, password_hash, created_at)"
            " VALUES (?, ?, ?, 1, ?, ?, 1)"
        )
        connection.execute(insert, (6, "bert", "Bert", 2, None))
        connection.execute(insert, (7, "anna", "Anna", 1, hash_password(PASSWORD)))
        until = now + 600_000_000
        columns = "(id_hash, wallet_address_id, created_at, expires_at)"
        connection.execute(f"INSERT INTO session {columns} VALUES (?, 7, ?, ?)", (secrets[0], now, until))
        connection.execute(
            "INSERT INTO known_browser (id_hash, wallet_address_id, expires_at) VALUES (?, 7, ?)",
            (secrets[1], until * 2),
        )
        connection.execute(
            "INSERT INTO password_link (link_hash, wallet_address_id, expires_at) VALUES (?, 6, ?)", (secrets[2], until)
        )
    with run_instance(tmp_path / "payres.db") as instance, signed_out(instance) as http, signed_out(instance) as other:
        for name, value in (("payres_session", session), ("payres_known_7", known)):
            http.cookies.set(name, value, "127.0.0.1")
        assert words_of(http.get("/account")).startswith("Anna’s wallet Anna, you have EUR0.00")
        for _ in range(MAX_WRONG_PASSWORDS):
            sign_in(other, "anna", "wrong")
        assert sign_in(other, "anna").status_code == 429
        http.cookies.delete("payres_session")
        assert sign_in(http, "anna").status_code == 303, "a known browser is not locked out"
        assert words_of(other.get(f"{RESET_PATH}{link}")).startswith("Choose a password for Bert’s wallet")
