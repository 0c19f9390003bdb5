"""A further second step is one module and one template: everything else goes through the list."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from payres.accounts.second_factors import STEPS
from payres.accounts.second_step import Held, Refused, TypedStep
from payres.accounts.store.kinds import Kind
from payres.accounts.store.owners import OF_OWNERS
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.html import html
from tests.accounts.test_factor_pages import hidden
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import OwnersBrowser, signed_in, signed_out
from tests.people.test_sign_in import sign_in

KEY = "seven words on paper"


class PrintedKey(TypedStep):
    """A text that somebody has printed; the owners with these ids have it."""

    name = "printed key"
    ways: Mapping[str, str] = {"printed key": "Printed key", "wrong key": "Wrong key"}
    choice = field = "key"
    template = "printed_key.html"
    off = "passkey_removed"
    kept = ()
    heading = "Type the printed key"

    def __init__(self) -> None:
        self.owners = set[int]()

    def held(self, work: Work, kind: Kind, account_id: int) -> Held | None:
        return Held(1) if kind is OF_OWNERS and account_id in self.owners else None

    def verify(self, work: Work, kind: Kind, account_id: int, typed: str) -> Refused | None:
        return None if typed == KEY else Refused(self.field, "This is not what is printed.", way="wrong key")


@pytest.fixture
def printed_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrintedKey]:
    step = PrintedKey()
    monkeypatch.setattr(html, "TEMPLATES", (*html.TEMPLATES, Path(__file__).parent))
    STEPS.insert(0, step)
    yield step
    STEPS.remove(step)


@contextmanager
def with_key(payres: Instance, path: str, step: PrintedKey) -> Iterator[OwnersBrowser]:
    with signed_in(payres, path) as owner:
        step.owners.add(payres.read(lambda work: require_wallet(work, path).owner_id))
        yield owner


def test_further_second_step_signs_in_and_is_in_the_log(payres: Instance, printed_key: PrintedKey) -> None:
    with with_key(payres, "printed", printed_key) as owner, signed_out(payres) as http:
        page = sign_in(http, owner.path)
        assert "Type the printed key The password is right." in words_of(page)
        fields = hidden(page) | {"choice": "key"}
        wrong = http.post("/account", data=fields | {"key": "eight words"})
        assert (wrong.status_code, wrong.text.count("This is not what is printed.")) == (401, 1)
        assert http.post("/account", data=fields | {"key": KEY}).status_code == 303
        words = words_of(http.get("/account/security"))
    assert "Last sign-ins ✓ Printed key" in words
    assert "! Wrong key" in words


def test_further_second_step_is_asked_for_again(payres: Instance, printed_key: PrintedKey) -> None:
    with with_key(payres, "stale", printed_key) as owner:
        payres.clock.advance(301)
        page = owner.http.get("/settings/password")
        assert "Type the printed key This needs your second step again." in words_of(page)
        sent = hidden(page) | {"choice": "verify"}
        assert owner.http.post("/settings/password", data=sent | {"key": "eight words"}).status_code == 401
        assert owner.http.post("/settings/password", data=sent | {"key": KEY}).status_code == 303
        assert "Change your password" in owner.words("/settings/password")
