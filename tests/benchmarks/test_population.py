"""The databases that are measured on: the same each time, whole, and with what the requests need."""

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.measures import FEW_PAYMENTS
from benchmarks.population import CLIENTS, SAMPLE, populate
from payres.limits import DEFAULT_PAGE

BASE_URL = "http://wallet.example"


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_each_client_has_a_page_of_payments_in_the_busiest_wallet(tmp_path: Path) -> None:
    population = populate(tmp_path / "payres.db", BASE_URL, FEW_PAYMENTS)
    per_client = rows(
        population.path,
        "SELECT count(*) FROM incoming_payment JOIN wallet_address ON wallet_address.id = wallet_address_id"
        " WHERE path = 'wallet-0' GROUP BY client_id",
    )
    assert len(per_client) == CLIENTS
    assert min(per_client) >= (DEFAULT_PAGE,)
    assert len(set(population.payments)) == SAMPLE
    assert rows(population.path, "PRAGMA foreign_key_check") == []
