import re
from functools import partial

import httpx2
import pytest
from starlette.requests import Request

from payres.accounts.limits import MAX_WRONG_PASSWORDS_PER_WALLET
from payres.accounts.sessions import close_session, find_session
from payres.accounts.store.owners import OF_OWNERS
from payres.core.http.context import context_of
from payres.core.store.rows import number
from payres.core.store.work import Work
from payres.people import serving
from payres.people.sign_in import OwnerSignIn, OwnerVisit
from tests.helpers import sign_in_token
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in, signed_out

WRONG = "This is not the password of this wallet. Try again."
TOO_MANY = "There were too many attempts. Try again in 1"


def sign_in(
    http: httpx2.Client, wallet: str, password: str = PASSWORD, path: str = "/account", address: str = "192.0.2.1"
) -> httpx2.Response:
    """The answer to the form; in place of a half sign-in's, the page that it leads to."""
    fields = {"choice": "sign-in", "wallet": wallet, "password": password, "csrf": sign_in_token(http, path)}
    answer = http.post(path, data=fields, headers={"X-Forwarded-For": address})
    return http.get(path) if "payres_half" in answer.cookies else answer


def sessions_of(payres: Instance, session: str) -> object:
    return payres.read(lambda work: find_session(work, OF_OWNERS, session))


def last_entry(work: Work) -> int:
    """The last of the audit log."""
    return number(work, "SELECT max(id) FROM audit")


@pytest.mark.parametrize("name", ["{path}", " {path} ", "{PATH}", "{url}", "{bare}", "${bare}", "${bare}/"])
def test_wallet_is_named_as_people_write_it(payres: Instance, name: str) -> None:
    path = f"named-{abs(hash(name))}"
    url = payres.create_wallet(path, password=PASSWORD)
    text = name.format(path=path, PATH=path.upper(), url=url, bare=url.partition("://")[2])
    with signed_out(payres) as http:
        assert sign_in(http, text).status_code == 303


def test_host_alone_names_the_wallet_of_the_whole_host(payres: Instance) -> None:
    payres.create_wallet(".well-known/pay", password=PASSWORD)
    with signed_out(payres) as http:
        assert sign_in(http, f"${payres.base_url.partition('://')[2]}").status_code == 303


def test_signing_in_leads_to_the_page_that_was_asked_for(payres: Instance) -> None:
    payres.create_wallet("back", password=PASSWORD)
    with signed_out(payres) as http:
        answer = http.get("/settings/receive?wallet=back&x=%C3%A4")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("GNAP")
        assert 'value="back"' in answer.text, "the name is filled in"
        answer = sign_in(http, "back", path="/settings/receive?wallet=back&x=%C3%A4")
        assert (answer.status_code, answer.headers["location"]) == (303, "/settings/receive?wallet=back&x=%C3%A4")


def test_unknown_wallet_is_answered_as_a_wrong_password_is(payres: Instance) -> None:
    payres.create_wallet("known", password=PASSWORD)
    payres.create_wallet("mute")
    with signed_out(payres) as http:
        pages = []
        for name in ("known", "mute", "nobody", "no wallet at all", "https://elsewhere.example/x", "$", "<b>"):
            answer = sign_in(http, name, "wrong")
            assert answer.status_code == 401
            assert "<title>Error: " in answer.text
            assert "<b>&" not in answer.text
            pages.append(words_of(answer))
        assert len(set(pages)) == 1
        assert WRONG in pages[0]


@pytest.mark.parametrize("name", ["guessed", "nobody-here"])
def test_wrong_passwords_are_limited_for_a_wallet_that_is_there_or_not(payres: Instance, name: str) -> None:
    if name == "guessed":
        payres.create_wallet(name, password=PASSWORD)
    with signed_out(payres) as http:
        guesses = [
            sign_in(http, name, "wrong", address=f"198.51.100.{n}") for n in range(MAX_WRONG_PASSWORDS_PER_WALLET)
        ]
        assert {answer.status_code for answer in guesses} == {401}
        answer = sign_in(http, name, address="203.0.113.1")
        assert (answer.status_code, TOO_MANY in words_of(answer)) == (429, True)
        assert int(answer.headers["retry-after"]) <= 900


def test_another_wallets_session_is_that_wallets(payres: Instance) -> None:
    """A session shows the one wallet, whatever else a browser or a form says."""
    with signed_in(payres, "mine") as mine, signed_in(payres, "theirs") as theirs:
        assert "Theirs’s wallet" in theirs.words("/account?wallet=mine")
        answer = theirs.send("/account/security", "others", csrf=mine.csrf)
        assert answer.status_code == 403
        answer = theirs.send("/account/security", "others", {"wallet": "mine"})
        assert answer.status_code == 303
        assert mine.words("/account")


FORMS = [(path, choice) for path, place in serving.PLACES.items() for choice in (*place.acts, "sign-out")]


@pytest.mark.parametrize(("path", "choice"), FORMS)
def test_forms_of_other_sites_do_nothing(payres: Instance, path: str, choice: str) -> None:
    path = re.sub(r"{\w+}", "x", path)
    with (
        signed_in(payres, f"csrf-{choice}{path.replace('/', '-')}") as owner,
        OwnersBrowser(payres, "alice") as visitor,
    ):
        session, before = owner.http.cookies["payres_session"], payres.read(last_entry)
        for csrf, headers in (
            ("", {}),
            (visitor.csrf, {}),
            (owner.csrf, {"Origin": "https://evil.example"}),
            (owner.csrf, {"Sec-Fetch-Site": "cross-site"}),
        ):
            answer = owner.http.post(path, data={"choice": choice, "csrf": csrf}, headers=headers)
            assert answer.status_code == 403
            assert "Nothing was d" in words_of(answer)
        assert sessions_of(payres, session)
        assert payres.read(last_entry) == before


def test_form_of_who_is_signed_out_does_nothing_and_says_so(payres: Instance) -> None:
    with signed_in(payres, "gone") as owner:
        fields = {"csrf": owner.csrf, "choice": "zone", "zone": "Asia/Tokyo"}
        owner.send("/account", "sign-out")
        answer = owner.http.post("/settings", data=fields)
        assert answer.status_code == 401
        assert "You are signed out by now, so nothing was done. Sign in again." in words_of(answer)
        assert "payres_zone" not in owner.http.cookies


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_session_that_ends_during_a_request_leads_to_signing_in(
    payres: Instance, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    find_visit = OwnerSignIn.find_visit

    async def find_and_end(self: OwnerSignIn, request: Request, session: str) -> OwnerVisit | None:
        visit = await find_visit(self, request, session)
        assert visit is not None
        await context_of(request).database.write(partial(close_session, kind=OF_OWNERS, session=session))
        return visit

    with signed_in(payres, f"mid-{method.lower()}") as owner:
        monkeypatch.setattr(OwnerSignIn, "find_visit", find_and_end)
        path, fields = ("/account", None) if method == "GET" else ("/account/security", {"choice": "others"})
        answer = owner.http.request(method, path, data=fields and fields | {"csrf": owner.csrf})
        assert answer.status_code == 401
        assert "You are signed out by now" in words_of(answer)


@pytest.mark.parametrize(
    ("visits", "wait"),
    [
        (12, 15 * 60),  # a quarter of an hour unused
        (52, 14 * 60),  # half a day, however it was used
    ],
)
def test_session_lasts_a_quarter_of_an_hour_and_longer_when_it_is_used(
    payres: Instance, visits: int, wait: int
) -> None:
    with signed_in(payres, f"used-{visits}") as owner:
        for _ in range(visits):
            payres.clock.advance(14 * 60)
            owner.words("/account")
        payres.clock.advance(wait)
        owner.words("/account", 401)
