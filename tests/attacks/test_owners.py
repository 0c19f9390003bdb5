"""Attacks on what wallet owners have: their consent and their sign-in."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from payres.accounts.limits import PASSWORDS_AT_ONCE, PASSWORDS_WAITING
from payres.operator import operators, wallets
from payres.operator.api_keys import create_api_key
from tests.attacks.conftest import PASSWORD
from tests.helpers import TIMEOUT, sign_in_token, wait_until
from tests.instance import Instance
from tests.people.browser import OwnersBrowser

NEW_PASSWORD = "battery staple"
FLOOD = 40
QUEUED = 1 + PASSWORDS_WAITING // PASSWORDS_AT_ONCE  # of one key, with the one that is hashed


@pytest.fixture
def owner(shared: Instance) -> str:
    """The path of a wallet for one test."""
    path = f"owner-{secrets.token_hex(4)}"
    shared.create_wallet(path, password=PASSWORD)
    return path


Ask = Callable[[httpx2.Client, str], httpx2.Response]


def reset_link(instance: Instance, path: str) -> tuple[str, Ask]:
    made = instance.write(lambda work: wallets.make_password_link(work, path))
    return made.url, _fill_in


def operators_link(instance: Instance, path: str) -> tuple[str, Ask]:
    made = instance.write(lambda work: operators.make_link(work, path, role="reads"))
    return made.url, _fill_in


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
    shared: Instance, owner: str, monkeypatch: pytest.MonkeyPatch, made_by: Callable[..., tuple[str, Ask]]
) -> None:
    """Few are hashed at a time, whoever asks, and pages are read meanwhile."""
    hashing, release = list[str](), threading.Event()

    def hashed_later(password: str) -> str:
        hashing.append(password)
        assert release.wait(TIMEOUT)
        return "hash"

    url, ask = made_by(shared, owner)
    monkeypatch.setattr("payres.accounts.passwords.hash_password", hashed_later)
    with (
        OwnersBrowser(shared, owner) as page,
        httpx2.Client(timeout=TIMEOUT) as http,
        ThreadPoolExecutor(FLOOD) as pool,
    ):
        http.get(url)  # sets the cookie that binds all these forms to one browser
        answers = [pool.submit(ask, http, url) for _ in range(FLOOD)]
        wait_until(lambda: sum(one.done() for one in answers) >= FLOOD - QUEUED)
        assert len(hashing) == 1, "one of a key at a time"
        assert page.words("/account/activity")
        release.set()
        statuses = Counter(one.result().status_code for one in answers)
    assert statuses.pop(503) == FLOOD - QUEUED
    assert statuses.pop(200 if made_by is api_key else 303) >= 1
    assert set(statuses) <= {404}
