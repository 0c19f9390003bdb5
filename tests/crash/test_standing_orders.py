"""`payres serve` killed while it pays standing orders."""

import os
import random
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from payres.core.protocol.clock import DAY, SECOND, SystemClock
from payres.core.store.connections import connect_writer
from payres.core.store.wallets import find_wallet
from payres.people.standing_orders import windows_of
from payres.people.store.standing_orders import ORDERS
from tests.crash.serve import SharedClock, serve_by
from tests.crash.server import FILES, Server
from tests.helpers import wait_until
from tests.works import standing_order

KILLS = int(os.environ.get("CRASH_KILLS", "6"))
ORDERS_OF_ALICE = 20


def test_killed_at_any_moment_pays_each_date_once(tmp_path: Path) -> None:
    clock = SharedClock(tmp_path / "clock")
    server = Server(tmp_path / "bank", program=partial(serve_by, tmp_path / "clock"))
    server.open_wallet("alice", "USD", 10_000)
    server.open_wallet("bob", "USD")
    first = SystemClock().now() // SECOND * SECOND + DAY
    interval = windows_of(first, "P1D", KILLS).interval
    with FILES, closing(connect_writer(str(server.database))) as tx:
        alice = find_wallet(tx, "alice")
        assert alice is not None
        for _ in range(ORDERS_OF_ALICE):
            order = standing_order(alice.id, server.wallet("bob"), interval=interval, next_at=first)
            ORDERS.insert(tx, order)
    settled = "SELECT count(*) FROM standing_order_run WHERE state = 'paid'"
    for day in range(1, KILLS + 1):
        clock.advance(DAY)
        server.start()
        time.sleep(random.random() / 10)  # the moment is drawn by chance
        server.kill()
        server.start()
        wait_until(lambda: server.select(settled) == [(day * ORDERS_OF_ALICE,)])  # noqa: B023 - called at once
        server.kill()
    dates = KILLS * ORDERS_OF_ALICE
    assert server.select("SELECT count(*), count(DISTINCT id) FROM outgoing_payment") == [(dates, dates)]
    assert server.select("SELECT DISTINCT state FROM standing_order") == [("ended",)]
    assert server.command("wallet", "show", "bob")["balance"] == f"{dates}.00"
    server.command("ledger", "check")
