"""Codes, recovery codes and what needs them: signing in, fresh second factors, links, removal."""

import base64
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from html import escape, unescape
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.accounts.owners import store_password
from payres.accounts.passwords import hash_password
from payres.accounts.second_factors import verify
from payres.accounts.second_step import Refused
from payres.accounts.sessions import close_session, csrf_token
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.totp import STEP, code_at
from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.errors import WrongState
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator.owners import WALLET_OWNER
from payres.operator.pages.serving import admin_pages
from payres.operator.wallets import create_wallet, keep_wallet_factors, make_password_link, remove_wallet_factors
from payres.people.serving import PLACES
from tests.helpers import sign_in_token
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in, signed_out
from tests.people.test_sign_in import last_entry, sign_in

CODES = "/account/security/codes"
RECOVERY = "/account/security/recovery-codes"


class App:
    """An app that shows codes."""

    def __init__(self, instance: Instance, secret: str) -> None:
        self.instance = instance
        self.secret = base64.b32decode(secret)

    def code(self, steps: int = 0) -> str:
        """The code now, or of a step before or after."""
        return code_at(self.secret, self.instance.clock.now() // STEP + steps)

    def next_code(self) -> str:
        """A code that was never shown before, at the beginning of its time: a test ends long before that is over."""
        self.instance.clock.advance((STEP - self.instance.clock.now() % STEP) / SECOND + 1)
        return self.code()


def hidden(page: httpx2.Response) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">', page.text)
    return {name: unescape(value) for name, value in found}


def turn_on(owner: OwnersBrowser) -> tuple[App, list[str]]:
    """Turns codes on; returns the app and the recovery codes."""
    answer = owner.send(CODES, "set-up", {"password": PASSWORD})
    assert (answer.status_code, answer.headers["location"]) == (303, CODES), answer.text
    [secret] = re.findall(r"readonly>([A-Z2-7]{32})</textarea>", owner.http.get(CODES).text)
    app = App(owner.instance, secret)
    answer = owner.send(CODES, "confirm", {"code": app.code()})
    assert answer.status_code == 200, answer.text
    return app, re.findall(r"<li>([a-z2-7-]{19})</li>", answer.text)


@contextmanager
def with_codes(payres: Instance, path: str) -> Iterator[tuple[OwnersBrowser, App, list[str]]]:
    with signed_in(payres, path) as owner:
        app, recovery = turn_on(owner)
        yield owner, app, recovery


def asks_for_code(page: httpx2.Response) -> bool:
    return "Enter the code" in words_of(page)


def send_code(
    http: httpx2.Client, page: httpx2.Response, code: str, path: str = "/account", **more: str
) -> httpx2.Response:
    return http.post(path, data=hidden(page) | {"choice": "code", "code": code} | more)


def test_sign_in_asks_for_a_code_and_leads_to_the_page_that_was_asked_for(payres: Instance) -> None:
    with with_codes(payres, "asked") as (_, app, recovery), signed_out(payres) as http:
        assert len(set(recovery)) == 10
        page = sign_in(http, "asked", path="/settings/receive?x=1")
        assert page.status_code == 401
        assert "Now the six digits that your app shows for asked." in words_of(page)
        assert "payres_session" not in http.cookies
        wrong = send_code(http, page, "000000", "/settings/receive?x=1")
        assert (wrong.status_code, "9 more tries" in words_of(wrong)) == (401, True)
        answer = send_code(http, wrong, app.next_code(), "/settings/receive?x=1")
        assert (answer.status_code, answer.headers["location"]) == (303, "/settings/receive?x=1")
        assert http.get("/account").status_code == 200


def test_browser_that_is_trusted_is_asked_for_the_password_alone_for_thirty_days(payres: Instance) -> None:
    with with_codes(payres, "trusted") as (_, app, _), signed_out(payres) as http:
        assert send_code(http, sign_in(http, "trusted"), app.next_code()).status_code == 303
        page = sign_in(http, "trusted")
        assert asks_for_code(page), "known, and not trusted"
        assert send_code(http, page, app.next_code(), trust="30").status_code == 303
        assert sign_in(http, "trusted").status_code == 303
        payres.clock.advance(29 * DAY // 1_000_000)
        assert sign_in(http, "trusted").status_code == 303, "which makes nothing longer"
        payres.clock.advance(2 * DAY // 1_000_000)
        assert asks_for_code(sign_in(http, "trusted"))


def test_page_that_asks_for_a_code_is_there_when_it_is_loaded_again(payres: Instance) -> None:
    with with_codes(payres, "reloads") as (_, app, _), signed_out(payres) as http:
        sign_in(http, "reloads")
        for path in ("/account", "/account", "/settings/receive"):
            page = http.get(path)
            assert "the six digits that your app shows for reloads." in words_of(page)
        over = http.post("/account", data=hidden(page) | {"choice": "start-over"})
        assert "Sign in to your wallet" in words_of(over)
        assert hidden(sign_in(http, "reloads"))["half"] == hidden(page)["half"], "one half sign-in, one alarm"
        assert send_code(http, page, app.next_code(), "/settings/receive").status_code == 303
        assert http.get("/account").status_code == 200
        http.cookies.delete("payres_session")
        assert "Sign in to your wallet" in words_of(http.get("/account"))


def test_sign_in_to_another_wallet_ends_the_session_before_its_code(payres: Instance) -> None:
    with with_codes(payres, "coded"), signed_in(payres, "before") as browser, signed_out(payres) as http:
        stale = {"csrf": sign_in_token(http, "/account"), "choice": "sign-in", "wallet": "coded", "password": PASSWORD}
        http.cookies.update(browser.http.cookies)
        assert http.get("/account").status_code == 200
        assert http.post("/account", data=stale).status_code == 303
        assert "shows for coded." in words_of(http.get("/account"))
        assert browser.http.get("/account").status_code == 401


def test_turning_codes_on_forgets_other_browsers_and_ends_their_sessions(payres: Instance) -> None:
    with signed_in(payres, "sole") as owner, signed_out(payres) as other:
        assert sign_in(other, "sole").status_code == 303
        turn_on(owner)
        assert owner.http.get("/account").status_code == 200
        assert other.get("/account").status_code == 401
        assert asks_for_code(sign_in(other, "sole"))


def test_codes_that_were_set_up_wait_ten_minutes_to_be_confirmed(payres: Instance) -> None:
    with signed_in(payres, "waiting") as owner:
        owner.send(CODES, "set-up", {"password": PASSWORD})
        payres.clock.advance(599)
        [secret] = re.findall(r"readonly>([A-Z2-7]{32})</textarea>", owner.http.get(CODES).text)
        payres.clock.advance(1)
        assert secret not in owner.http.get(CODES).text
        answer = owner.send(CODES, "confirm", {"code": App(payres, secret).code()})
        assert (answer.status_code, "open the page again" in words_of(answer)) == (409, True)


def test_code_is_good_once_and_none_before_it(payres: Instance) -> None:
    with with_codes(payres, "once") as (_, app, _), signed_out(payres) as http, signed_out(payres) as thief:
        earlier = app.next_code()
        used = app.next_code()
        pages = [sign_in(one, "once") for one in (http, thief)]
        assert send_code(http, pages[0], used).status_code == 303
        for code in (used, earlier):
            answer = send_code(thief, pages[1], code)
            assert (answer.status_code, "used a moment ago" in words_of(answer)) == (401, True)
        assert "9 more tries" in words_of(send_code(thief, pages[1], "000000")), "it was not counted as wrong"
        assert thief.get("/account").status_code == 401


def test_two_posts_of_one_code_open_one_session(payres: Instance) -> None:
    with with_codes(payres, "twice") as (_, app, _), signed_out(payres) as http:
        page, code = sign_in(http, "twice"), app.next_code()
        cookies = dict(http.cookies)
        with ThreadPoolExecutor(2) as pool:
            answers = [*pool.map(lambda _: send_code_apart(payres, cookies, page, code), range(2))]
        assert sorted(answer.status_code for answer in answers) == [303, 401]


def send_code_apart(payres: Instance, cookies: dict[str, str], page: httpx2.Response, code: str) -> httpx2.Response:
    with signed_out(payres) as http:
        http.cookies.update(cookies)
        return send_code(http, page, code)


def test_after_ten_wrong_codes_in_a_row_only_a_recovery_code_helps(payres: Instance) -> None:
    with with_codes(payres, "guessed") as (_, app, recovery), signed_out(payres) as http:
        page = sign_in(http, "guessed")
        for _ in range(10):
            page = send_code(http, page, "000000")
            assert page.status_code == 401
        assert "Ten codes in a row were wrong" in words_of(page)
        assert send_code(http, page, app.next_code()).status_code == 401
        typed = recovery[0].upper().replace("-", " ")
        assert send_code(http, page, typed).status_code == 303
        assert send_code(http, sign_in(http, "guessed"), typed).status_code == 401, "it works once"
        assert send_code(http, sign_in(http, "guessed"), app.next_code()).status_code == 303


@pytest.mark.parametrize("has_helped", [True, False])
def test_codes_are_good_again_soon_after_the_clock_was_ahead(payres: Instance, has_helped: bool) -> None:
    path = f"ahead-{has_helped}".lower()
    with with_codes(payres, path) as (_, app, recovery), signed_out(payres) as http:
        payres.write(lambda work: work.execute("UPDATE totp SET last_step = last_step + 2880").rowcount)
        refused = send_code(http, sign_in(http, path), app.next_code())
        assert (refused.status_code, "was used" in words_of(refused)) == (401, True)
        if has_helped:
            assert send_code(http, sign_in(http, path), recovery[3]).status_code == 303
        app.next_code()
        assert send_code(http, sign_in(http, path), app.next_code()).status_code == 303


def test_half_sign_in_opens_no_page_and_ends_after_ten_minutes(payres: Instance) -> None:
    with with_codes(payres, "half") as (_, app, _), signed_out(payres) as http:
        page = sign_in(http, "half")
        half = hidden(page)["half"]
        for name in ("payres_session", "payres_admin", "payres_known_1"):
            http.cookies.set(name, half, domain=urlsplit(payres.base_url).hostname or "")
        for path in [*PLACES, *admin_pages()]:
            filled = re.sub(r"{[\w:]+}", "x", path)
            answers = [http.get(filled), http.post(filled, data={"csrf": csrf_token(half), "choice": "sign-out"})]
            statuses = {answer.status_code for answer in answers}
            assert statuses <= {401, 404}, path
        payres.clock.advance(10 * 60)
        answer = send_code(http, page, app.code())
        assert (answer.status_code, "Sign in again" in words_of(answer)) == (401, True)


def test_link_sets_a_password_and_passes_no_second_factor(payres: Instance) -> None:
    with with_codes(payres, "linked") as (_, app, _), signed_out(payres) as http, signed_out(payres) as known:
        assert send_code(known, sign_in(known, "linked"), app.next_code(), trust="30").status_code == 303
        made = payres.write(lambda work: make_password_link(work, "linked"))
        path = urlsplit(made.url).path
        fields = {"choice": "set", "password": "another horse", "again": "another horse"}
        answer = http.post(path, data=fields | {"csrf": sign_in_token(http, path)})
        page = http.get(answer.headers["location"])
        assert (page.status_code, asks_for_code(page)) == (401, True)
        assert set(http.cookies) == {"payres_form", "payres_half"}, "neither signed in nor known"
        assert asks_for_code(sign_in(known, "linked", "another horse")), "no browser is known any more"
        answer = send_code(http, page, app.next_code())
        assert (answer.status_code, answer.headers["location"]) == (303, "/account")
        assert http.get("/account").status_code == 200


def test_password_of_an_operator_or_a_program_leaves_the_factors(payres: Instance) -> None:
    with with_codes(payres, "given") as (_, app, _), signed_out(payres) as http:
        hashed = hash_password(PASSWORD)
        payres.write(lambda work: store_password(work, "given", hashed))
        page = sign_in(http, "given")
        assert asks_for_code(page)
        payres.write(lambda work: store_password(work, "given", hashed))
        assert send_code(http, page, app.next_code()).status_code == 401, "the password was changed meanwhile"


def test_factors_are_removed_a_day_after_an_operator_asked_unless_the_owner_says_no(payres: Instance) -> None:
    with with_codes(payres, "lost") as (owner, _, recovery), signed_out(payres) as http:
        due_at = set()
        for _ in range(2):
            payres.write(lambda work: remove_wallet_factors(work, "lost", "lost it"))
            due_at.add(payres.read(lambda work: WALLET_OWNER.find(work, wallet="lost")).removal_due_at)
        assert len(due_at - {None}) == 1
        assert "will remove your second step tomorrow" in owner.words("/account")
        assert owner.send(CODES, "keep").headers["location"] == "/account"
        assert "will remove" not in owner.words("/account")
        payres.write(lambda work: remove_wallet_factors(work, "lost", "lost it"))
        payres.write(lambda work: keep_wallet_factors(work, "lost"))
        with pytest.raises(WrongState, match="Nobody wants to remove"):
            payres.write(lambda work: keep_wallet_factors(work, "lost"))
        payres.write(lambda work: remove_wallet_factors(work, "lost", "lost it"))
        payres.clock.advance(24 * 60 * 60 - 1)
        assert asks_for_code(sign_in(http, "lost"))
        payres.clock.advance(1)
        assert sign_in(http, "lost").status_code == 303
        with pytest.raises(WrongState, match="lost has no second factor to remove"):
            payres.write(lambda work: remove_wallet_factors(work, "lost", "lost it"))
        found = payres.write(lambda work: verify(work, OF_OWNERS, require_wallet(work, "lost").owner_id, recovery[0]))
        assert isinstance(found, Refused)


def test_codes_off_and_recovery_codes_anew(payres: Instance) -> None:
    with with_codes(payres, "off") as (owner, _, recovery), signed_out(payres) as http:
        assert "You have 10 left" in owner.words(RECOVERY)
        made = owner.send(RECOVERY, "make")
        assert "they are shown this once. The old ones work no more. " in words_of(made)
        again = re.findall(r"<li>([a-z2-7-]{19})</li>", made.text)
        assert len(set(again) - set(recovery)) == 10
        page = sign_in(http, "off")
        assert send_code(http, page, recovery[0]).status_code == 401
        assert send_code(http, page, again[0]).status_code == 303
        assert "You have 9 left" in owner.words(RECOVERY)
        assert owner.send(CODES, "set-up", {"password": PASSWORD}).status_code == 409
        assert owner.send(CODES, "off").status_code == 303
        assert "You have none" in owner.words(RECOVERY)
        assert owner.send(RECOVERY, "make").status_code == 409
        with signed_out(payres) as other:
            assert sign_in(other, "off").status_code == 303


def test_codes_are_set_up_with_the_password_and_a_right_code(payres: Instance) -> None:
    with signed_in(payres, "set-up", language="de") as owner:
        assert "Das ist nicht das Passwort" in words_of(owner.send(CODES, "set-up", {"password": "wrong"}))
        assert owner.send(CODES, "confirm", {"code": "000000"}).status_code == 409
        owner.send(CODES, "set-up", {"password": PASSWORD})
        page = owner.http.get(CODES)
        assert "<svg" in page.text
        assert f"otpauth://totp/{urlsplit(payres.base_url).netloc}:set-up?secret=" in page.text
        wrong = owner.send(CODES, "confirm", {"code": "000000"})
        assert (wrong.status_code, "Dieser Code stimmt nicht" in words_of(wrong)) == (400, True)


def test_last_sign_ins_are_kept_with_what_they_were_made(payres: Instance) -> None:
    with with_codes(payres, "kept") as (_, app, recovery), signed_out(payres) as http:
        sign_in(http, "kept", "wrong")
        page = send_code(http, sign_in(http, "kept"), "000000")
        assert send_code(http, page, app.next_code(), trust="30").status_code == 303
        assert sign_in(http, "kept").status_code == 303
        with signed_out(payres) as other:
            assert send_code(other, sign_in(other, "kept"), recovery[0]).status_code == 303
        for _ in range(17):
            sign_in(http, "kept")

        def ways(work: Work) -> list[str]:
            of_owner = "SELECT way FROM sign_in WHERE owner_id = ? ORDER BY id"
            return [way for (way,) in work.execute(of_owner, (require_wallet(work, "kept").owner_id,))]

        found = payres.read(ways)
        ended_well = ["password and code", "password", "recovery code", *["password"] * 17]
        assert found == ["wrong password", "wrong code", *ended_well]


ORDER = {"to": "bob", "amount": "7.13", "fixed": "receive", "every": "P1W", "first": "2031-05-06", "until": "times"}
TYPED = [
    ("/account/send", "price", {"to": "bob", "amount": "7.13", "fixed": "receive", "note": "<b> & ü"}),
    ("/account/orders/new", "look", {**ORDER, "times": "7", "note": "Rent"}),
    ("/account/request", "make", {"amount": "7.13", "note": "Lunch", "days": "30"}),
    ("/settings/receive", "rename", {"name": "Another name"}),
    ("/settings/webhooks", "add", {"url": "https://hooks.example/me"}),
    ("/account/security/limit", "set", {"limit": "7.13"}),
]


def sign_in_there(answer: httpx2.Response, http: httpx2.Client, **fields: str) -> httpx2.Response:
    """Sends the form of a sign-in page, with all that this carries along."""
    return http.post(answer.request.url, data=hidden(answer) | {"choice": "sign-in"} | fields)


def sign_out(payres: Instance, owner: OwnersBrowser) -> None:
    payres.write(partial(close_session, kind=OF_OWNERS, session=owner.http.cookies["payres_session"]))


@pytest.mark.parametrize(("path", "choice", "typed"), TYPED)
def test_what_was_typed_waits_for_the_sign_in_and_is_seen_before_it_is_done(
    payres: Instance, path: str, choice: str, typed: dict[str, str]
) -> None:
    with signed_in(payres, f"typed-{choice}") as owner:
        fields = hidden(owner.http.get(path)) | typed | {"choice": choice}
        sign_out(payres, owner)
        before = payres.read(last_entry)
        asked = owner.http.post(path, data=fields)
        assert "You are signed out by now, so nothing was done." in words_of(asked)
        assert "What you typed is kept." in words_of(asked)
        wrong = sign_in_there(asked, owner.http, wallet=owner.path, password="wrong")
        again = sign_in_there(wrong, owner.http, wallet=owner.path, password=PASSWORD)
        assert again.status_code == 200
        for text in typed.values():
            assert f'value="{escape(text)}"' in again.text
        for name in ("fixed", "until"):
            assert name not in typed or f'name="{name}" value="{typed[name]}" checked' in again.text
        assert payres.read(last_entry) == before
        sent = owner.http.post(path, data=hidden(again) | typed | {"choice": choice})
        assert sent.status_code != 401, "the form is of the new session"


def test_what_was_typed_is_shown_to_nobody_else_and_waits_for_a_second_step_too(payres: Instance) -> None:
    path, typed = "/account/send", {"to": "bob", "amount": "7.13", "choice": "price"}
    with signed_in(payres, "typed-mine") as owner, signed_in(payres, "typed-theirs"):
        payres.write(lambda work: create_wallet(work, "typed-second", "USD", 2, None, None, "typed-mine"))
        app, _ = turn_on(owner)
        owner.send(path, "switch", {"wallet": "typed-second"})
        fields = hidden(owner.http.get(path)) | typed
        sign_out(payres, owner)
        asked = owner.http.post(path, data=fields)
        assert "password" not in str(hidden(asked))
        with signed_out(payres) as http:
            http.cookies.set("payres_form", owner.http.cookies["payres_form"], "127.0.0.1")
            half = sign_in_there(asked, http, wallet="typed-mine", password=PASSWORD)
            assert "7.13" in half.text
            wrong = sign_in_there(half, http, choice="code", code="000000")
            again = sign_in_there(wrong, http, choice="code", code=app.next_code())
            assert (again.status_code, 'value="7.13"' in again.text) == (200, True)
            assert hidden(again)["csrf"].endswith(".typed-second"), "in the wallet that it was typed for"
        theirs = sign_in_there(asked, owner.http, wallet="typed-theirs", password=PASSWORD)
        assert (theirs.status_code, theirs.headers["location"]) == (303, path)
