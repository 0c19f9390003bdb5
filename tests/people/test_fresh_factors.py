"""Every form of owners, without a second factor, with one that was given long ago, and with one that was just given."""

import re
from html import unescape
from typing import Final

import httpx2
import pytest

from payres.accounts.visits import Act, Unasked
from payres.people.serving import PLACES
from tests.accounts.test_factor_pages import RECOVERY, hidden, turn_on
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in

PAGE: Final = ""  # in place of the choice of a form
FORMS: Final = {(path, choice) for path, place in PLACES.items() for choice in place.acts}
# The pages that ask for a second factor that was given in the last five minutes, if the owner has one; and the forms
# that do not ask for it. All other forms do.
PAGES: Final = {
    (path, PAGE) for path in ("/account/security/codes", "/account/security/passkeys/new", "/settings/password")
}
ASKS_NOT: Final = {
    ("/account/apps/{grant}", "stop"),
    ("/account/request", "make"),
    ("/account/request/{id}", "cancel"),
    *(("/account/notices", choice) for choice in ("save", "test")),
    ("/account/orders/new", "look"),
    *(("/account/orders/{order}", choice) for choice in ("pause", "resume", "end")),
    ("/account/security", "end"),
    ("/account/security", "others"),
    ("/account/security/codes", "keep"),
    ("/account/send", "price"),
    ("/account/send/{quote}", "again"),
    ("/settings", "language"),
    ("/settings", "zone"),
    ("/settings/receive", "rename"),
    ("/settings/developer-keys", "revoke"),
    ("/settings/wallets", "keep"),
    *(("/settings/webhooks/{id}", choice) for choice in ("test", "pause", "resume", "remove")),
}
ASKS: Final = PAGES | (FORMS - ASKS_NOT)
NEEDS: Final = "This needs your second step again"
KEY: Final = '{"kty": "OKP", "crv": "Ed25519", "kid": "mine", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}'


def go_stale(owner: OwnersBrowser) -> None:
    owner.instance.clock.advance(301)


def submit(owner: OwnersBrowser, path: str, choice: str) -> httpx2.Response:
    path = re.sub(r"{\w+}", "x", path)
    return owner.send(path, choice) if choice else owner.http.get(path)


def is_asked(answer: httpx2.Response) -> bool:
    return answer.status_code == 200 and NEEDS in words_of(answer)


def approve(owner: OwnersBrowser, page: httpx2.Response, code: str, **changed: str) -> httpx2.Response:
    """Gives the code that a page asks for."""
    [path] = re.findall(r'method="post" action="([^"]*)"', page.text.partition("<main")[2])
    fields = {name: unescape(value) for name, value in hidden(page).items()}
    return owner.http.post(unescape(path), data=fields | {"choice": "verify", "code": code} | changed)


def test_table_has_every_form() -> None:
    assert {(path, PAGE) for path, place in PLACES.items() if place.asks} == PAGES
    unasked = {(path, one) for path, place in PLACES.items() for one, act in place.acts.items() if _says_why(act)}
    assert unasked == ASKS_NOT


def _says_why(act: Act) -> bool:
    return isinstance(act, Unasked) and bool(act.why)


@pytest.mark.parametrize(("path", "choice"), sorted(ASKS | ASKS_NOT))
@pytest.mark.parametrize("state", ["none", "stale", "fresh"])
def test_form_asks_for_a_second_factor(payres: Instance, path: str, choice: str, state: str) -> None:
    name = f"{state}{path}-{choice}".translate(str.maketrans("/{}", "---")).strip("-")
    with signed_in(payres, name) as owner:
        if state != "none":
            turn_on(owner)
        if state == "stale":
            go_stale(owner)
        answer = submit(owner, path, choice)
        assert answer.status_code < 500
        assert is_asked(answer) == (state == "stale" and (path, choice) in ASKS)


def test_form_is_carried_out_once_the_factor_is_given(payres: Instance) -> None:
    with signed_in(payres, "carried") as owner:
        app, recovery = turn_on(owner)
        go_stale(owner)
        sent = {"key": KEY, "nickname": "A “program” & <b>"}
        page = owner.send("/settings/developer-keys", "add", sent)
        assert is_asked(page)
        assert "A “program”" not in owner.words("/settings/developer-keys")
        wrong = approve(owner, page, "000000")
        assert wrong.status_code == 401
        answer = approve(owner, wrong, app.next_code())
        assert (answer.status_code, "?added=" in answer.headers["location"]) == (303, True)
        assert "A “program” & <b>" in owner.words("/settings/developer-keys")
        go_stale(owner)
        page = owner.http.get("/settings/password")
        assert is_asked(page)
        answer = approve(owner, page, recovery[0])
        assert (answer.status_code, answer.headers["location"]) == (303, "/settings/password")
        assert "Password that you have now" in owner.words("/settings/password")


def test_second_click_of_the_code_gets_what_the_first_has_done(payres: Instance) -> None:
    with signed_in(payres, "twice") as owner, signed_in(payres, "twice-payee"):
        app, _ = turn_on(owner)
        price = owner.send("/account/send", "price", {"to": payres.wallet("twice-payee"), "amount": "2"})
        go_stale(owner)
        page = owner.send(price.headers["location"], "send")
        assert is_asked(page)
        code = app.next_code()
        first, second = (approve(owner, page, code) for _ in range(2))
        assert (first.status_code, second.status_code) == (303, 303)
        assert first.headers["location"] == second.headers["location"]
        owner.instance.clock.advance(290)
        assert approve(owner, page, "000000").status_code == 303
        owner.instance.clock.advance(11)
        assert approve(owner, page, "000000").status_code == 401, "only a code makes the second factor last"


def test_factor_for_one_form_is_refused_for_another(payres: Instance) -> None:
    with signed_in(payres, "bound") as owner, signed_in(payres, "bound-other") as other:
        app, _ = turn_on(owner)
        go_stale(owner)
        page = owner.send("/settings/developer-keys", "add", {"key": KEY, "nickname": "Mine"})
        others = owner.send(RECOVERY, "make")
        code = app.next_code()
        for changed in (
            {"of.nickname": "Theirs"},
            {"of.choice": "revoke"},
            {"of.more": "1"},
            {"shown": hidden(others)["shown"]},
            {"shown": ""},
        ):
            answer = approve(owner, page, code, **changed)
            assert (answer.status_code, "This is not the request" in words_of(answer)) == (409, True), changed
        turn_on(other)
        go_stale(other)
        answer = approve(other, page, app.next_code(), csrf=other.csrf)
        assert answer.status_code == 409, "of another session"
        assert is_asked(owner.send(RECOVERY, "make")), "nothing of it has counted"
        assert approve(owner, page, app.next_code()).status_code == 303


def test_passwords_are_not_carried_along(payres: Instance) -> None:
    with signed_in(payres, "typed") as owner:
        app, _ = turn_on(owner)
        go_stale(owner)
        sent = {"current": PASSWORD, "password": "another horse", "again": "another horse"}
        page = owner.send("/settings/password", "change", sent)
        assert is_asked(page)
        assert "horse" not in page.text
        answer = approve(owner, page, app.next_code())
        assert (answer.status_code, answer.headers["location"]) == (303, "/settings/password")
        assert owner.send("/settings/password", "change", sent).headers["location"] == "/account/security?done=password"
        assert not is_asked(owner.http.get("/settings/password")), "the factor still counts in the new session"
