"""Allowing an app more than usual asks for a second factor, and allowing the usual does not."""

from html import unescape
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest

from payres.core.grants.requests import request_grant
from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.gnap import GrantRequest
from payres.core.store.audit import AUDIT
from payres.core.store.clients import Client
from payres.core.store.grants import GRANTS
from tests.accounts.test_factor_pages import hidden, send_code, sign_in_there, sign_out, turn_on
from tests.helpers import Json, sign_in_token, usd
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in, signed_out
from tests.people.test_fresh_factors import approve, go_stale, is_asked

SHOP: Final = "https://shop.example/pay"


def ask(payres: Instance, path: str, limits: Json | None = None, actions: tuple[str, ...] = ("create",)) -> str:
    """An app asks to spend; the path of the page on which the owner decides."""
    access: dict[str, Any] = {"type": "outgoing-payment", "actions": list(actions), "identifier": payres.wallet(path)}
    if limits is not None:
        access["limits"] = limits
    interact = {"start": ["redirect"], "finish": {"method": "redirect", "uri": "https://shop.example/x", "nonce": "n"}}
    body: dict[str, Any] = {"client": SHOP, "interact": interact, "access_token": {"access": [access]}}
    asked = msgspec.convert(body, GrantRequest)
    answer = payres.write(lambda work: request_grant(work, asked, Client(SHOP, SHOP, None), "Shop"))
    assert answer.interact
    return urlsplit(answer.interact.redirect).path


def decide(owner: OwnersBrowser, page: str, choice: str = "approve", **fields: str) -> httpx2.Response:
    shown = hidden(owner.http.get(page))
    return owner.http.post(page, data=shown | {"choice": choice} | fields)


def is_done(answer: httpx2.Response) -> bool:
    return answer.status_code == 303 and answer.headers["location"].startswith("https://shop.example/x?")


def state_of(payres: Instance, page: str) -> str:
    return payres.read(lambda work: GRANTS.list(work, "ORDER BY id DESC LIMIT 1"))[0].state


@pytest.mark.parametrize(
    ("limits", "choice", "fields", "asks"),
    [
        ({"debitAmount": usd(500)}, "approve", {}, False),  # as much as was approved before
        ({"debitAmount": usd(501)}, "approve", {}, True),
        ({"debitAmount": usd(900)}, "approve", {"limit": "5.00"}, False),
        ({"debitAmount": usd(900)}, "approve", {"limit": "5.01"}, True),
        (None, "any", {}, True),
        (None, "approve", {"limit": "5.00"}, False),
        (None, "approve", {"limit": "6.00"}, True),
        (None, "deny", {}, False),
        ({"debitAmount": usd(900)}, "deny", {}, False),
        ({"receiveAmount": usd(900)}, "approve", {}, True),
    ],
)
def test_more_than_usual_asks_for_a_second_factor(
    payres: Instance, limits: Json | None, choice: str, fields: dict[str, str], asks: bool
) -> None:
    name = f"usual-{abs(hash(repr((limits, choice, fields))))}"
    with signed_in(payres, name) as owner:
        assert is_done(decide(owner, ask(payres, name, {"debitAmount": usd(500)}))), "without a factor"
        app, _ = turn_on(owner)
        go_stale(owner)
        page = ask(payres, name, limits)
        answer = decide(owner, page, choice, **fields)
        assert is_asked(answer) == asks
        if asks:
            assert "form-action" not in answer.headers["content-security-policy"]
            assert state_of(payres, page) == "pending"
            assert approve(owner, answer, "000000").status_code == 401
            answer = approve(owner, answer, app.next_code())
        assert is_done(answer)
        assert state_of(payres, page) == ("denied" if choice == "deny" else "approved")


@pytest.mark.parametrize(
    ("before", "asked", "asks"),
    [
        (None, "R/2026-01-01T00:00:00Z/P1M", False),
        (None, "R/2026-01-01T00:00:00Z/P1D", True),
        (None, "R/2026-01-01T00:00:00Z/PT1S", True),
        ("R/2026-01-01T00:00:00Z/P1D", "R/2026-01-01T00:00:00Z/P1D", False),
        ("R/2026-01-01T00:00:00Z/P1D", "R/2026-01-01T00:00:00Z/P1W", False),
    ],
)
def test_same_limit_more_often_is_more_than_usual(payres: Instance, before: str | None, asked: str, asks: bool) -> None:
    name = f"often-{abs(hash((before, asked)))}"
    with signed_in(payres, name) as owner:
        limits = {"debitAmount": usd(500)}
        assert is_done(decide(owner, ask(payres, name, limits | ({"interval": before} if before else {}))))
        turn_on(owner)
        assert owner.send("/account/security/limit", "set", {"limit": "5.00"}).status_code == 303
        go_stale(owner)
        assert is_asked(decide(owner, ask(payres, name, limits | {"interval": asked}))) == asks


def test_what_was_approved_long_ago_is_not_usual_and_the_owner_sets_an_amount(payres: Instance) -> None:
    with signed_in(payres, "long-ago") as owner:
        assert is_done(decide(owner, ask(payres, "long-ago", {"debitAmount": usd(500)})))
        turn_on(owner)
        assert owner.send("/account/security/limit", "set", {"limit": "three"}).status_code == 400
        assert owner.send("/account/security/limit", "set", {"limit": "3.00"}).status_code == 303
        assert 'value="3.00"' in owner.http.get("/account/security/limit").text
        audited = "WHERE action = 'wallet.ask_above' AND object = 'long-ago'"
        [entry] = payres.read(lambda work: AUDIT.list(work, audited))
        assert (entry.actor, entry.details) == ("owner:long-ago", {"limit": "USD 3.00"})
        payres.clock.advance(91 * DAY // SECOND)
        with OwnersBrowser(payres, "long-ago") as later:
            assert not is_asked(decide(later, ask(payres, "long-ago", {"debitAmount": usd(300)})))
            assert is_asked(decide(later, ask(payres, "long-ago", {"debitAmount": usd(301)})))


def test_reading_asks_for_nothing_and_a_fresh_factor_is_enough(payres: Instance) -> None:
    with signed_in(payres, "reading") as owner:
        turn_on(owner)
        assert is_done(decide(owner, ask(payres, "reading"), "any")), "fresh"
        go_stale(owner)
        assert is_done(decide(owner, ask(payres, "reading", actions=("read-all",))))


def test_factor_for_one_request_is_refused_on_another(payres: Instance) -> None:
    with signed_in(payres, "one-request") as owner:
        app, _ = turn_on(owner)
        go_stale(owner)
        pages = [ask(payres, "one-request", {"debitAmount": usd(value)}) for value in (700, 90_000)]
        asked = [decide(owner, page) for page in pages]
        assert all(map(is_asked, asked))
        small = {name: unescape(value) for name, value in hidden(asked[0]).items()}
        code = app.next_code()
        answer = owner.http.post(pages[1], data=small | {"choice": "verify", "code": code})
        assert (answer.status_code, "This is not the request" in words_of(answer)) == (409, True)
        changed = small | {"choice": "verify", "code": code, "of.limit": "700.00"}
        assert owner.http.post(pages[0], data=changed).status_code == 409
        assert is_done(approve(owner, asked[0], code)), "the code was not used up"


def test_consent_page_signs_in_with_password_and_code(payres: Instance) -> None:
    with signed_in(payres, "at-consent") as owner, signed_out(payres) as http:
        app, _ = turn_on(owner)
        page = ask(payres, "at-consent", {"debitAmount": usd(500)})
        fields = {"choice": "sign-in", "password": "correct horse", "csrf": sign_in_token(http, page)}
        assert http.post(page, data=fields).headers["location"] == page
        asked = http.get(page)
        assert "Now the six digits" in words_of(asked)
        assert "Do you allow" not in asked.text
        assert "Sign in to your wallet" in words_of(http.post(page, data=hidden(asked) | {"choice": "start-over"}))
        wrong = send_code(http, asked, "000000", page)
        assert wrong.status_code == 401
        answer = send_code(http, wrong, app.next_code(), page)
        assert (answer.status_code, answer.headers["location"]) == (303, page)
        assert "Do you allow" in http.get(page).text


@pytest.mark.parametrize("ends", ["at the decision", "at the second step"])
def test_limit_that_was_typed_waits_for_a_sign_in_with_a_second_step(payres: Instance, ends: str) -> None:
    name = f"limit-{ends}".replace(" ", "-")
    with signed_in(payres, name) as owner:
        app, _ = turn_on(owner)
        page = ask(payres, name, {"debitAmount": usd(500)})
        fields = hidden(owner.http.get(page)) | {"choice": "approve", "limit": "2.22"}
        if ends == "at the second step":
            go_stale(owner)
            fields = hidden(owner.http.post(page, data=fields)) | {"choice": "verify", "code": app.next_code()}
        sign_out(payres, owner)
        asked = owner.http.post(page, data=fields)
        assert "What you typed is kept." in words_of(asked)
        half = sign_in_there(asked, owner.http, password=PASSWORD)
        wrong = sign_in_there(half, owner.http, choice="code", code="000000")
        again = sign_in_there(wrong, owner.http, choice="code", code=app.next_code())
        assert (again.status_code, state_of(payres, page)) == (200, "pending")
        assert 'value="2.22"' in again.text
        done = owner.http.post(page, data=hidden(again) | {"choice": "approve", "limit": "2.22"})
        assert is_done(done)
        assert '"value":"222"' in payres.read(lambda work: GRANTS.list(work, "ORDER BY id DESC LIMIT 1"))[0].access
