"""Kills under load: many clients at once, payments to another server among theirs, and SIGKILL at random moments.

CRASH_KILLS says how many (`make torture` has 500); CRASH_SEED draws the moments and the work that a failure names.
"""

import os
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.crash import load
from tests.crash.load import UNLIMITED, Load, drawn_by
from tests.crash.serve import serve_hurried
from tests.crash.server import Server, check_link, make_peers
from tests.crash.told import check_told
from tests.webhooks.endpoint import Endpoint

KILLS = int(os.environ.get("CRASH_KILLS", "2"))
RECEIVERS = 4
TILL_DEPOSIT = 1000

pytestmark = pytest.mark.timeout(300 + 20 * KILLS)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Server, Server]:
    """Two servers that are peers, not started: the one that is under load, and one with a till."""
    a, b = (Server(tmp_path / name, UNLIMITED, serve_hurried, is_node=True) for name in "ab")
    load.prepare(a)
    b.open_wallet("till", "USD", TILL_DEPOSIT)
    b.open_client("shop")
    make_peers(a, b, max_packet=15)
    return a, b


def open_receivers(server: Server) -> list[str]:
    """Incoming payments at the till that take any amount."""
    with closing(server.client()) as shop:
        return [shop.create_incoming_payment(server.wallet("till"))["id"] for _ in range(RECEIVERS)]


def test_kill_under_load_at_random_moments_keeps_every_answer(
    pair: tuple[Server, Server], endpoint: Endpoint, record_property: Any
) -> None:
    a, b = pair
    a.command("webhook", "add", endpoint.url, "--private")
    for server in pair:
        server.start()
    with drawn_by("CRASH_SEED") as chance, closing(Load(a, chance, open_receivers(b))) as at_work:
        for number in range(KILLS):
            b_too = chance.random() < 0.2
            with at_work.running():
                at_work.wait_for_answers(chance.randint(1, 150))
                threading.Timer(chance.uniform(0, 0.02), a.signal, [signal.SIGKILL]).start()
                assert a.wait() == -signal.SIGKILL
            if b_too:
                b.kill()
                b.start()
            a.start()
            try:
                at_work.check()
            except BaseException as error:
                error.add_note(f"after kill {number + 1}")
                raise
        a.wait_for_payments()
        at_work.check()
        check_both(a, b)
        record_property("events", check_told(a, endpoint))
        for server in pair:
            server.stop()
    record_property("kills", KILLS)
    record_property("acknowledged", at_work.figures.total())
    print(dict(at_work.figures), "cut off:", dict(at_work.cut_off))  # noqa: T201 - pytest -s shows what a long series has done


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
    check_link(a, b)
