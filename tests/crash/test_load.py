"""Kills under load: many clients at once, payments to another server among theirs, and SIGKILL at random moments.

CRASH_KILLS says how many (`make torture` has 500); CRASH_SEED draws the moments and the work that a failure names.
"""

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.crash import load
from tests.crash.load import Load
from tests.crash.serve import serve_hurried
from tests.crash.server import UNLIMITED, Server
from tests.crash.told import check_told
from tests.events.endpoint import Endpoint

KILLS = int(os.environ.get("CRASH_KILLS", "2"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
RECEIVERS = 4
TILL_DEPOSIT = 1000
LONG_LIVED = {"PAYRES_ACCESS_TOKEN_LIFETIME": "86400"}

pytestmark = pytest.mark.timeout(300 + 20 * KILLS)


def settings(name: str) -> dict[str, str]:
    return UNLIMITED | LONG_LIVED | {"PAYRES_ILP_ADDRESS": f"test.{name}", "PAYRES_ALLOW_PRIVATE_HOSTS": "true"}


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Server]]:
    """Two servers that are peers, not started: the one that is under load, and one with a till."""
    monkeypatch.chdir(tmp_path)
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    a, b = (Server(folder, settings(folder.name), serve_hurried) for folder in folders)
    load.prepare(a)
    b.open_wallet("till", "USD", TILL_DEPOSIT)
    b.open_client("shop")
    there, back = secrets.token_urlsafe(), secrets.token_urlsafe()
    for here, other, shown, seen in ((a, b, there, back), (b, a, back, there)):
        terms = ["--asset", "USD", "--scale", "2", "--credit-limit", "1000000.00", "--max-packet", "15"]
        where = ["--ilp-address", f"test.{other.folder.name}", "--url", f"{other.base_url}/ilp"]
        tokens = ["--outgoing-token", shown, "--incoming-token", seen]
        here.command("peer", "add", other.folder.name, *where, *terms, *tokens)
    yield a, b
    for server in (a, b):
        server.kill()


def open_receivers(server: Server) -> list[str]:
    """Incoming payments at the till that take any amount."""
    with closing(server.client()) as shop:
        return [shop.create_incoming_payment(server.wallet("till"))["id"] for _ in range(RECEIVERS)]


def test_kill_under_load_at_random_moments_keeps_every_answer(
    pair: tuple[Server, Server], endpoint: Endpoint, record_property: Any
) -> None:
    a, b = pair
    a.command("webhook", "add", endpoint.url, "--private")
    chance = Random(SEED)
    try:
        for server in pair:
            server.start()
        with closing(Load(a, chance, open_receivers(b))) as at_work:
            for number in range(KILLS):
                b_too = chance.random() < 0.2
                with at_work.running():
                    try:
                        at_work.wait_for_answers(chance.randint(1, 150))
                        threading.Timer(chance.uniform(0, 0.02), a.signal, [signal.SIGKILL]).start()
                        assert a.wait() == -signal.SIGKILL
                    finally:
                        a.kill()
                if b_too:
                    b.kill()
                    b.start()
                a.start()
                try:
                    at_work.check()
                except BaseException as error:
                    error.add_note(f"after kill {number + 1}")
                    raise
            at_work.wait_until_ended()
            at_work.check()
            check_both(a, b)
            record_property("events", check_told(a, endpoint))
        for server in pair:
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
            assert server.side_files == []
    except BaseException as error:
        error.add_note(f"CRASH_SEED={SEED} draws the same moments again")
        raise
    record_property("kills", KILLS)
    record_property("acknowledged", at_work.figures.total())
    print(f"CRASH_SEED={SEED}", dict(at_work.figures), "cut off:", dict(at_work.cut_off))  # noqa: T201 - pytest -s shows what a long series has done


def check_both(a: Server, b: Server) -> None:
    """What was sent to the other server arrived there once, and each says of the other what it says itself."""
    ended = a.select(
        "SELECT state, count(*), sum(delivered), sum(sent) FROM outgoing_payment WHERE incoming_payment_id IS NULL"
        " GROUP BY state"
    )
    assert {state for state, *_ in ended} <= {"completed", "failed"}
    delivered = sum(one for _, _, one, _ in ended)
    assert b.select("SELECT coalesce(sum(received), 0) FROM incoming_payment") == [(delivered,)]
    assert b.balance("till") == (TILL_DEPOSIT * 100 + delivered, 0)
    assert b.command("ledger", "check")["ok"]
    ours, theirs = a.command("peer", "show", "b"), b.command("peer", "show", "a")
    assert (ours["balance"].lstrip("-"), ours["reserved"]) == (theirs["balance"].lstrip("-"), "0.00")
    assert (ours["packetsSent"], theirs["reserved"]) == (theirs["packetsReceived"], "0.00")
    for server in (a, b):
        assert server.select("SELECT count(*) FROM packet WHERE state IN ('prepared', 'doubtful')") == [(0,)]
