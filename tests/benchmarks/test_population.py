"""The databases that are measured on: the same each time, whole, and with what the requests need."""

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.population import CLIENTS, FEW_PAYMENTS, SAMPLE, populate
from payres.core.protocol.limits import DEFAULT_PAGE


def test_each_client_has_a_page_of_payments_in_the_busiest_wallet(tmp_path: Path) -> None:
    population = populate(tmp_path / "payres.db", "http://wallet.example", FEW_PAYMENTS)
    query = "SELECT count(*) FROM incoming_payment p JOIN wallet_address w ON w.id = p.wallet_address_id"
    with closing(sqlite3.connect(population.path)) as database:
        per_client = database.execute(f"{query} WHERE path = 'wallet-0' GROUP BY client_id").fetchall()
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    assert len(per_client) == CLIENTS
    assert min(per_client) >= (DEFAULT_PAGE,)
    assert len(set(population.payments)) == SAMPLE
