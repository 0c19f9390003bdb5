"""The power fails under load: what is on the disk at that moment is a database with all that was acknowledged.

POWER_CUTS prolongs the series; POWER_CUT_SEED draws the work and the cuts again that a failure names.
"""

import os
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from payres.core.protocol.identifiers import hash_secret
from payres.core.store.connections import connect_writer
from payres.core.store.work import Transaction
from payres.operator.upkeep import invariant_checks
from tests.crash import load
from tests.crash.load import UNLIMITED, Acknowledged, Load, drawn_by
from tests.crash.power_cut import Remains, cut_power
from tests.crash.server import Server
from tests.crash.told import check_told, check_written, received
from tests.helpers import Json, last_segment
from tests.webhooks.endpoint import Endpoint

CUTS = int(os.environ.get("POWER_CUTS", "6"))
RENEWED = min(CUTS, 10)  # the last of so many gets a server, and then the journals begin anew
ROWS = {
    "/incoming-payments": ("incoming_payment", "incoming_value", ["incomingAmount"]),
    "/quotes": ("quote", "debit_value || ' ' || receive_value", ["debitAmount", "receiveAmount"]),
    "/outgoing-payments": ("outgoing_payment", "debit || ' ' || receive", ["debitAmount", "receiveAmount"]),
}

pytestmark = pytest.mark.timeout(300 + 5 * CUTS)


@pytest.fixture
def server(tmp_path: Path, endpoint: Endpoint) -> Server:
    """A running server with everything for the load, and a webhook."""
    server = Server(tmp_path / "served", UNLIMITED)
    load.prepare(server)
    server.command("webhook", "add", endpoint.url, "--private")
    server.start()
    return server


def test_power_cut_under_load_leaves_a_database_with_all_that_was_acknowledged(
    server: Server, endpoint: Endpoint, tmp_path: Path, record_property: Any
) -> None:
    seen: Counter[str] = Counter()
    events = 0
    folder = tmp_path / "cut"
    with drawn_by("POWER_CUT_SEED") as chance, closing(Load(server, chance, [])) as at_work:
        for number in range(CUTS):
            with at_work.running():
                at_work.wait_for_answers(chance.randint(1, 30))
                known, told = at_work.acknowledged(), received(endpoint)  # before the copy begins
                remains = cut_power(server.database, folder, chance)
                told_later = received(endpoint)
            seen[f"{remains.order}, log {remains.damage}, {'whole' if remains.whole else 'short'}"] += 1
            check(remains, known, told)
            if number % RENEWED == RENEWED - 1:
                events += check_served(remains, told_later)
                at_work.check()
            shutil.rmtree(folder)
    record_property("power_cuts", CUTS)
    record_property("events", events)
    print(dict(seen))  # noqa: T201 - pytest -s shows what a long series has done


def check(remains: Remains, known: list[Acknowledged], told: set[str]) -> None:
    """The ledger balances and the file is sound. What was acknowledged is there; of a short log, up to some moment.

    So is every event that the webhook was told.
    """
    with closing(connect_writer(str(remains.database))) as connection:
        assert invariant_checks.first_broken(invariant_checks.check(connection)) is None
        written = check_written(connection)
        assert told <= written or not remains.whole, f"{remains}: an event was sent that is not there"
        for client in known:
            found = [is_there(connection, one.path, one.answer or {}) for one in client.made]
            assert found == sorted(found, reverse=True), f"{remains}: something is missing from the middle"
            assert all(found) or not remains.whole, f"{remains}: what was acknowledged is missing"
            for token in client.tokens if remains.whole else []:
                query = "SELECT revoked_at FROM access_token WHERE value_hash = ?"
                assert connection.execute(query, (hash_secret(token),)).fetchone(), f"{remains}: a token is missing"


def is_there(tx: Transaction, path: str, answer: Json) -> bool:
    """Whether a resource is stored, with the amounts that were acknowledged."""
    table, amounts, members = ROWS[path]
    row = tx.execute(f"SELECT {amounts} FROM {table} WHERE id = ?", (last_segment(answer["id"]),)).fetchone()
    if row is None:
        return False
    acknowledged = [answer[member]["value"] for member in members if member in answer]
    assert row[0] == (" ".join(acknowledged) or None)
    return True


def check_served(remains: Remains, told: set[str]) -> int:
    """A server takes up what was under way and brings it to its end; returns how many events there are.

    Those that the webhook may not have been told are sent to an endpoint of its own.
    """
    server = Server(remains.database.parent)
    with Endpoint().running() as endpoint:
        server.execute(f"UPDATE webhook SET url = '{endpoint.url}'")
        server.start()
        server.wait_for_payments()
        assert server.command("ledger", "check")["ok"]
        events = check_told(server, endpoint, told)
        server.kill()
        return events
