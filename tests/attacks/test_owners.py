"""Attacks on what wallet owners have: their consent and their sign-in."""

import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from payres.core.grants.passwords import hash_password
from payres.core.protocol.limits import MAX_WRONG_PASSWORDS_PER_WALLET, PASSWORDS_AT_ONCE, PASSWORDS_WAITING
from payres.operator import operators, wallets
from payres.operator.api_keys import create_api_key
from tests.attacks.conftest import PASSWORD
from tests.helpers import TIMEOUT, sign_in_token, wait_until
from tests.instance import Instance
from tests.people.account.browser import OwnersBrowser

NEW_PASSWORD = "battery staple"
FLOOD = 40
QUEUED = 1 + PASSWORDS_WAITING // PASSWORDS_AT_ONCE  # of one key, with the one that is hashed


class Owner:
    """A wallet, and the browser that its owner signs in with."""

    def __init__(self, instance: Instance, browser: httpx2.Client) -> None:
        self.instance = instance
        self.browser = browser
        self.path = f"owner-{secrets.token_hex(4)}"
        instance.create_wallet(self.path, password=PASSWORD)

    def page(self, path: str | None = None) -> str:
        """A consent page of this wallet or another."""
        identifier = self.instance.wallet(path or self.path)
        item = {"type": "outgoing-payment", "actions": ["create"], "identifier": identifier}
        return str(self.instance.client.request_grant(item).json()["interact"]["redirect"])

    def sign_in(self, password: str = PASSWORD, page: str | None = None) -> int:
        """The status of the answer: 303 when it worked."""
        return sign_in(self.browser, page or self.page(), password).status_code

    def sign_out(self) -> None:
        page = self.page()
        [csrf] = re.findall(r'name="csrf" value="(\w+)"', self.browser.get(page).text)[:1]
        assert self.browser.post(page, data={"choice": "sign-out", "csrf": csrf}).status_code == 303

    def sign_in_to_a_second_wallet(self) -> None:
        second = f"second-{secrets.token_hex(4)}"
        self.instance.create_wallet(second, password=PASSWORD)
        assert self.sign_in(page=self.page(second)) == 303

    def get_a_new_password(self) -> None:
        self.instance.write(partial(wallets.set_password, path=self.path, password_hash=hash_password(NEW_PASSWORD)))


def sign_in(browser: httpx2.Client, page: str, password: str, address: str | None = None) -> httpx2.Response:
    headers = {"x-forwarded-for": address} if address else {}
    form = {"choice": "sign-in", "password": password, "csrf": sign_in_token(browser, page)}
    return browser.post(page, data=form, headers=headers)


def guess(page: str, anonymous: httpx2.Client) -> None:
    """As many wrong passwords as the wallet takes, each from an address of its own."""
    guesses = [sign_in(anonymous, page, "wrong", f"192.0.2.{n}") for n in range(MAX_WRONG_PASSWORDS_PER_WALLET)]
    assert {answer.status_code for answer in guesses} == {401}
    assert sign_in(anonymous, page, PASSWORD, "192.0.2.99").status_code == 429, "it takes no more"


@pytest.fixture
def owner(shared: Instance) -> Iterator[Owner]:
    with httpx2.Client(timeout=TIMEOUT, verify=False) as browser:
        yield Owner(shared, browser)


@pytest.mark.parametrize("then", [Owner.sign_out, Owner.sign_in_to_a_second_wallet, Owner.get_a_new_password])
def test_owner_locked_out_of_a_browser_that_is_known(
    owner: Owner, anonymous: httpx2.Client, then: Callable[[Owner], None]
) -> None:
    """By twenty wrong passwords of others, who need nothing for it but a request for consent."""
    assert owner.sign_in() == 303
    then(owner)
    guess(owner.page(), anonymous)
    password = NEW_PASSWORD if then is Owner.get_a_new_password else PASSWORD
    assert owner.sign_in(password) == 303


def test_browser_of_a_thief_after_a_new_password(owner: Owner, anonymous: httpx2.Client) -> None:
    """Who had the password has a browser that is known, and five guesses of its own, until the operator ends that."""
    assert owner.sign_in() == 303
    owner.instance.write(
        lambda work: wallets.set_password(work, owner.path, hash_password(NEW_PASSWORD), forget_browsers=True)
    )
    guess(owner.page(), anonymous)
    assert owner.sign_in(NEW_PASSWORD) == 429


def test_owner_locked_out_of_a_new_browser_until_the_operator_helps(owner: Owner, anonymous: httpx2.Client) -> None:
    guess(owner.page(), anonymous)
    assert owner.sign_in() == 429
    owner.instance.write(lambda work: wallets.unlock(work, owner.path))
    assert owner.sign_in() == 303


Ask = Callable[[httpx2.Client, str], httpx2.Response]


def reset_link(instance: Instance, path: str) -> tuple[str, Ask]:
    made = instance.write(lambda work: wallets.make_password_link(work, path))
    return made.url, _fill_in


def operators_link(instance: Instance, path: str) -> tuple[str, Ask]:
    made = instance.write(lambda work: operators.make_link(work, path, read_only=True))
    return f"{instance.base_url}/admin/link/{made.secret}", _fill_in


def api_key(instance: Instance, path: str) -> tuple[str, Ask]:
    made = instance.write(lambda work: create_api_key(work, path, ["wallets:write"], None))

    def ask(http: httpx2.Client, url: str) -> httpx2.Response:
        return http.put(url, json={"password": NEW_PASSWORD}, headers={"Authorization": f"Bearer {made.key}"})

    return f"{instance.base_url}/admin/v1/wallets/{path}/password", ask


def _fill_in(http: httpx2.Client, url: str) -> httpx2.Response:
    fields = {"choice": "set", "password": NEW_PASSWORD, "again": NEW_PASSWORD, "csrf": sign_in_token(http, url)}
    return http.post(url, data=fields)


@pytest.mark.parametrize("made_by", [reset_link, operators_link, api_key])
def test_flood_of_new_passwords(
    shared: Instance, owner: Owner, monkeypatch: pytest.MonkeyPatch, made_by: Callable[..., tuple[str, Ask]]
) -> None:
    """Few are hashed at a time, whoever asks, and pages are read meanwhile."""
    hashing, release = list[str](), threading.Event()

    def hashed_later(password: str) -> str:
        hashing.append(password)
        assert release.wait(TIMEOUT)
        return "hash"

    url, ask = made_by(shared, owner.path)
    monkeypatch.setattr("payres.core.grants.passwords.hash_password", hashed_later)
    with (
        OwnersBrowser(shared, owner.path) as page,
        httpx2.Client(timeout=TIMEOUT) as http,
        ThreadPoolExecutor(FLOOD) as pool,
    ):
        answers = [pool.submit(ask, http, url) for _ in range(FLOOD)]
        wait_until(lambda: sum(one.done() for one in answers) >= FLOOD - QUEUED)
        assert len(hashing) == 1, "one of a key at a time"
        assert page.words("/account/activity")
        release.set()
        statuses = Counter(one.result().status_code for one in answers)
    assert statuses.pop(503) == FLOOD - QUEUED
    assert statuses.pop(200 if made_by is api_key else 303) >= 1
    assert set(statuses) <= {404}
