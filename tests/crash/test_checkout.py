"""`payres serve` killed while it makes a payment from another wallet, which goes on when it starts again."""

from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Event

import httpx2
import pytest

from payres.core.protocol.clock import SystemClock
from payres.people.store.checkouts import LEASE
from tests.crash.serve import SharedClock, serve_by
from tests.crash.server import Server
from tests.helpers import TIMEOUT, Json, last_segment, sign_in_token, usd, wait_until
from tests.rafiki import Answer, Rafiki, run_rafiki


@pytest.fixture
def clock(tmp_path: Path) -> SharedClock:
    return SharedClock(tmp_path / "clock")


@pytest.fixture
def server(tmp_path: Path, clock: SharedClock) -> Iterator[Server]:
    found = Server(tmp_path / "shop", program=partial(serve_by, tmp_path / "clock"), is_node=True)
    found.open_wallet("bob", "USD")
    found.open_client("shop")
    found.start()
    yield found
    found.stop()


@pytest.fixture
def wallet() -> Iterator[Rafiki]:
    with run_rafiki(SystemClock()) as found:
        yield found


def return_from_wallet(server: Server, wallet: Rafiki) -> None:
    """Begins a payment in a browser and returns with the payer's consent, until the server is killed."""
    with closing(server.client()) as shop:
        bill = shop.create_incoming_payment(server.wallet("bob"), usd(1250))["id"]
    path = f"/pay/{last_segment(bill)}"
    with httpx2.Client(base_url=server.base_url, timeout=TIMEOUT) as browser:
        fields = {"csrf": sign_in_token(browser, path), "choice": "any", "payer": wallet.wallet}
        assert browser.post(path, data=fields).status_code == 303
        with suppress(httpx2.HTTPError):
            browser.get(wallet.approve(), follow_redirects=True)


def kill_in(server: Server, wallet: Rafiki, name: str, *, is_done: bool) -> Event:
    """Has the server killed at a call, which the other server has done by then or not.

    The event is set once its process is gone, and with it the socket that listens.
    """
    is_gone = Event()

    def answer(body: Json) -> Answer:
        wallet.answers, wallet.lost = {}, {name}
        made = wallet.usual(name, body) if is_done else (500, b"")
        server.kill()
        is_gone.set()
        return made

    wallet.answers[name] = answer
    return is_gone


def start_again(server: Server, wallet: Rafiki, clock: SharedClock, is_gone: Event) -> None:
    """By then the step of the process that died is due again."""
    assert is_gone.wait(TIMEOUT)
    wallet.lost = set()
    clock.advance(LEASE)
    server.start()


@pytest.mark.parametrize(
    ("name", "is_done", "keeps_keys", "creations"),
    [
        ("continue", False, False, 1),
        ("create", False, False, 2),
        ("create", True, False, 1),
        ("create", True, True, 2),
        ("read", False, False, 1),
    ],
)
def test_payment_is_made_once_whenever_the_server_is_killed(
    server: Server, clock: SharedClock, wallet: Rafiki, name: str, is_done: bool, keeps_keys: bool, creations: int
) -> None:
    wallet.keeps_keys = keeps_keys
    is_gone = kill_in(server, wallet, name, is_done=is_done)
    return_from_wallet(server, wallet)
    start_again(server, wallet, clock, is_gone)
    wait_until(lambda: wallet.made("read") > int(name == "read"), lambda: server.log.read_text()[-4000:])
    assert (wallet.made("create"), len(wallet.payments), wallet.refused[creations:]) == (creations, 1, [])


def test_kill_after_the_continuation_pays_nothing(server: Server, clock: SharedClock, wallet: Rafiki) -> None:
    """Its answer is given once, so nobody has the token; that is revoked."""
    is_gone = kill_in(server, wallet, "continue", is_done=True)
    return_from_wallet(server, wallet)
    start_again(server, wallet, clock, is_gone)
    wait_until(lambda: wallet.made("cancel"), lambda: server.log.read_text()[-4000:])
    assert server.select("SELECT state, failure, pending FROM checkout") == [("failed", "refused", None)]
    assert (wallet.made("continue"), wallet.made("create")) == (2, 0)
