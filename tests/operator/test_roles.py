"""What each role is offered in the pages, and what is refused beyond it."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Final
from urllib.parse import urlsplit

import pytest

from payres.accounts.store.owners import OF_OWNERS
from payres.core.store.work import Work
from payres.operator import operators
from payres.operator.api_keys import SCOPES
from payres.operator.declared.declarations import declared
from payres.operator.owners import require_owner
from payres.operator.pages.operations import OperationPage
from payres.operator.pages.serving import admin_pages
from payres.operator.roles import OF_PEOPLE, ROLES, Role, may
from payres.operator.store.operators import OPERATORS
from payres.operator.wallets import remove_wallet_factors
from tests.instance import Instance
from tests.operator.pages.browser import Browser, hidden_fields, words_of
from tests.operator.pages.seed import Seeded, fill
from tests.operator.test_due_work import mail_set_aside
from tests.operator.upkeep.test_restored_rights import turn_codes_on

FORMS: Final = {path: page for path, page in admin_pages().items() if isinstance(page, OperationPage)}
# All that changes something and is not for who may do everything alone.
LOOKING: Final = {"/admin/health/look", "/admin/health/ledger/check"}
SUPPORT: Final = LOOKING | {
    "/admin/wallets/{wallet}/password-link",
    "/admin/wallets/{wallet}/unlock",
    "/admin/wallets/{wallet}/remove-factors",
    "/admin/wallets/{wallet}/keep-factors",
    "/admin/wallets/{wallet}/sign-out",
    "/admin/due/{id}/try",
    "/admin/payments/{id}/refund",
}
MAY: Final = {"reads": LOOKING, "support": SUPPORT, "full": {*FORMS}}
LOOKED_AT: Final = {"/admin/packets/{id}"}  # the page of the thing is that of its form, without the form


@pytest.fixture(scope="module")
def seeded(payres: Instance) -> Seeded:
    found = fill(payres)

    def unit(work: Work) -> None:
        for path in ("alice", "bob"):
            turn_codes_on(work, OF_OWNERS, require_owner(work, path))
        remove_wallet_factors(work, "bob", "lost it")
        mail_set_aside(work)

    payres.write(unit)
    return found


@pytest.fixture(params=["reads", "support", "full"])
def role(request: pytest.FixtureRequest) -> Role:
    found: Role = request.param
    return found


@pytest.fixture
def person(payres: Instance, seeded: Seeded, role: Role) -> Iterator[Browser]:
    """The browser of somebody with the role."""
    with Browser(payres) as browser:
        browser.follow_link("ann")
        browser.follow_link(f"one-of-{role}", role=role)
        limit = ("50.00", "USD") if role == "support" else (None, None)
        payres.write(lambda work: operators.set_role(work, f"one-of-{role}", role, *limit))
        yield browser


def pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"{\w+}", "[^/]+", path))


def offered(browser: Browser) -> set[str]:
    """The forms to which a page leads, or that it has."""
    found, left, seen = set[str](), ["/admin"], set[str]()
    patterns = {path: pattern(path) for path in FORMS}
    while left:
        page = browser.get(left.pop())
        assert page.status_code == 200, page.url
        for url in re.findall(r'(?:href|action)="(/admin[^"]*)"', page.text):
            path = urlsplit(unescape(url)).path
            form = next((name for name, one in patterns.items() if one.fullmatch(path)), None)
            if form is not None:
                found.add(form)
            elif path not in seen and not path.endswith(("/admin/v1/openapi.json", "/statement", "/payments/export")):
                seen.add(path)
                left += [path] if "/exports/" not in path else []
    return found


def test_pages_offer_what_the_role_does_and_all_of_it(person: Browser, role: Role) -> None:
    assert offered(person) - MAY[role] <= LOOKED_AT
    if role == "support":
        assert offered(person) >= SUPPORT


def test_form_beyond_the_role_is_refused_and_shows_who_may(payres: Instance, person: Browser, role: Role) -> None:
    csrf = hidden_fields(person.get("/admin"))["csrf"]
    for path, page in FORMS.items():
        url = re.sub(r"{\w+}", "1", path)
        sent = {"csrf": csrf, "choice": next(iter(page.form.buttons))}
        refused = person.http.post(url, data=sent)
        assert (refused.status_code == 403) == (path not in MAY[role]), (path, refused.text)
        if refused.status_code == 403:
            assert "ask ann" in words_of(refused)
            shown = person.get(url)
            assert shown.status_code == 404 or "<form method" not in shown.text.partition("<main")[2], path


def test_roles_are_sets_of_the_scopes_of_keys_and_read_all() -> None:
    assert ROLES["reads"] < ROLES["support"] < ROLES["full"] == {*SCOPES, OF_PEOPLE}
    read = {scope for one in declared() if one.only_reads and one.form is None for scope in one.scopes}
    assert {one for one in read if not {*one.split("|")} & ROLES["reads"]} == {"backup:write"}, "names and sizes"


def test_support_sends_nothing_back_without_an_amount_for_it(payres: Instance, seeded: Seeded) -> None:
    with Browser(payres) as browser:
        browser.follow_link("mel", role="support")
        mel = payres.read(lambda work: OPERATORS.find(work, name="mel"))
        assert mel is not None
        assert not may(mel, ["payments:refund"])
        assert "Refund" not in browser.words(f"/admin/payments/{seeded.incoming}")
