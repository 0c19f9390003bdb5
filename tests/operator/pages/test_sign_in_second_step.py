"""Operators' second step: at sign-in, and in every form that asks for the password, as the table says."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx2
import pytest

from payres.accounts.visits import Place
from payres.operator.pages.operations import OperationPage
from payres.operator.pages.serving import admin_pages
from payres.operator.roles import Role
from tests.accounts.test_factor_pages import App, hidden
from tests.instance import Instance
from tests.operator.pages.browser import PASSWORD, Browser, words_of

PAGE: Final = ""  # in place of the choice of a form
CODES: Final = "/admin/security/codes"
PASSKEYS: Final = "/admin/security/passkeys"
RECOVERY: Final = "/admin/security/recovery-codes"
PAGES: Final = admin_pages()
FORMS: Final = {path: page for path, page in PAGES.items() if isinstance(page, OperationPage)}
# The forms that ask for neither the password nor a fresh second step; all others do.
ASKS_NOT: Final = {
    "/admin/new-wallet",
    "/admin/health/ledger/check",
    "/admin/health/look",
    "/admin/health/mail",
    "/admin/backups/make",
    "/admin/wallets/{wallet}/rename",
    "/admin/wallets/{wallet}/unlock",
    "/admin/wallets/{wallet}/keep-factors",
    "/admin/wallets/{wallet}/sign-out",
    "/admin/movements/{id}/undo",
    "/admin/peers/{name}/note",
    "/admin/webhooks/{id}/test",
    "/admin/webhooks/{id}/pause",
    "/admin/webhooks/{id}/resume",
    "/admin/webhooks/{id}/send",
    "/admin/operators/{name}/sign",
    "/admin/due/{id}/try",
}
READS: Final = {"/admin/health/ledger/check", "/admin/health/look", "/admin/health/mail"}
ASKS: Final = FORMS.keys() - ASKS_NOT
# The forms of hand-written pages, by their choice: those that ask for the second step alone, and others.
PLACES_ASK = {(CODES, PAGE), (CODES, "set-up"), (CODES, "confirm"), (CODES, "off"), (RECOVERY, "make")}
PLACES_ASK |= {(PASSKEYS + "/new", one) for one in (PAGE, "prove", "add")}
PLACES_ASK |= {(PASSKEYS + "/{passkey}", one) for one in ("rename", "remove")}
PLACES_ASK_NOT: Final = {(CODES, "keep")}


def turn_on(browser: Browser) -> tuple[App, list[str]]:
    """Turns codes on; returns the app and the recovery codes."""
    assert browser.send(CODES, choice="set-up", password=PASSWORD).status_code == 303
    [secret] = re.findall(r"readonly>([A-Z2-7]{32})</textarea>", browser.get(CODES).text)
    app = App(browser.instance, secret)
    answer = browser.send(CODES, choice="confirm", code=app.code())
    return app, re.findall(r"<li>([a-z2-7-]{19})</li>", answer.text)


@contextmanager
def operator(payres: Instance, name: str, state: str, *, role: Role = "full") -> Iterator[tuple[Browser, App | None]]:
    """The browser of an operator without a second step, or with one that was given long ago or just now."""
    with Browser(payres) as browser:
        browser.follow_link(name, role=role)
        app = turn_on(browser)[0] if state != "none" else None
        if state == "stale":
            payres.clock.advance(301)
        yield browser, app


def send_code(browser: Browser, page: httpx2.Response, code: str, path: str = "/admin", **more: str) -> httpx2.Response:
    return browser.http.post(path, data=hidden(page) | {"choice": "code", "code": code} | more)


def test_table_has_every_form() -> None:
    """Each form of an operation that changes money or access asks, or its declaration says why not."""
    assert {path for path, page in FORMS.items() if page.operation.because} == ASKS
    assert {path for path, page in FORMS.items() if page.form.unasked} == ASKS_NOT - READS
    assert FORMS.keys() >= ASKS_NOT
    places = {(path, choice) for path, page in PAGES.items() if isinstance(page, Place) for choice in page.acts}
    pages = {(path, PAGE) for path, page in PAGES.items() if isinstance(page, Place) and page.asks}
    assert places | pages == PLACES_ASK | PLACES_ASK_NOT


@pytest.mark.parametrize("state", ["none", "stale", "fresh"])
def test_operations_ask_for_password_and_second_step(payres: Instance, state: str) -> None:
    """A wrong code counts where one is asked for, and is not looked at elsewhere."""
    with operator(payres, f"tabled-{state}", state) as (browser, _):
        csrf = hidden(browser.get("/admin"))["csrf"]
        for path in sorted(ASKS | ASKS_NOT):
            sent = {
                "csrf": csrf,
                "choice": next(iter(FORMS[path].form.buttons)),
                "password": PASSWORD,
                "second_step": "000",
            }
            assert browser.http.post(re.sub(r"{\w+}", "1", path), data=sent).status_code < 500, path
            asked = payres.write(lambda work: work.execute("UPDATE totp SET wrong = 0 WHERE wrong > 0").rowcount)
            assert asked == (state == "stale" and path in ASKS), path


@pytest.mark.parametrize("state", ["none", "stale", "fresh"])
@pytest.mark.parametrize(("path", "choice"), sorted(PLACES_ASK | PLACES_ASK_NOT))
def test_places_ask_for_the_second_step(payres: Instance, path: str, choice: str, state: str) -> None:
    with operator(payres, f"{state}-{path.rpartition('/')[2]}-{choice}", state, role="reads") as (browser, _):
        csrf = hidden(browser.get("/admin"))["csrf"]
        answer = browser.http.post(path, data={"csrf": csrf, "choice": choice}) if choice else browser.get(path)
        assert answer.status_code < 500
        asked = "This needs your second step again" in words_of(answer)
        assert asked == (state == "stale" and (path, choice) in PLACES_ASK)


def test_sign_in_asks_for_a_code_or_a_recovery_code(payres: Instance) -> None:
    with operator(payres, "coded", "none") as (browser, _), Browser(payres) as other:
        app, recovery = turn_on(browser)
        page = other.sign_in("coded", path="/admin/wallets")
        assert "Now the six digits that your app shows for coded." in words_of(page)
        assert other.get("/admin").status_code == 401
        assert send_code(other, page, "000000", "/admin/wallets").status_code == 401
        answer = send_code(other, page, app.next_code(), "/admin/wallets", trust="30")
        assert (answer.status_code, answer.headers["location"]) == (303, "/admin/wallets")
        assert other.sign_in("coded").status_code == 303, "trusted"
        with Browser(payres) as third:
            assert send_code(third, third.sign_in("coded"), recovery[0]).status_code == 303


def test_money_moves_with_password_and_code(payres: Instance) -> None:
    with operator(payres, "payer", "stale") as (browser, app):
        assert app is not None
        before = payres.balance("bob")
        path, fields = "/admin/wallets/bob/deposit", {"choice": "deposit", "amount": "5.00"}
        looked_over = browser.send(path, **fields)
        assert "Code that your app shows now" in words_of(looked_over)
        sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', looked_over.text))
        assert browser.http.post(path, data=sent | {"password": PASSWORD}).status_code == 400
        refused = browser.http.post(path, data=sent | {"password": "wrong", "second_step": app.next_code()})
        assert refused.status_code == 401
        assert payres.balance("bob") == before
        answer = browser.http.post(path, data=sent | {"password": PASSWORD, "second_step": app.next_code()})
        assert answer.status_code == 303
        assert payres.balance("bob") != before
        assert "Code that your app shows now" not in words_of(browser.send(path, **fields)), "it is fresh"


def test_list_says_who_has_a_second_step_and_a_link_from_the_shell_removes_it(payres: Instance) -> None:
    with operator(payres, "listed", "fresh") as (browser, _):
        assert "Llisted youEverything. Codes. Signed in now." in browser.words("/admin/operators")
        browser.follow_link("listed")
        assert "Llisted you no second stepEverything. Signed in now." in browser.words("/admin/operators")


def test_operator_with_a_second_step_can_be_removed(payres: Instance) -> None:
    with operator(payres, "leaving", "fresh"), operator(payres, "staying", "fresh") as (browser, _):
        answer = browser.send("/admin/operators/leaving/remove", choice="remove", password=PASSWORD)
        assert (answer.status_code, answer.headers["location"]) == (303, "/admin/operators")
