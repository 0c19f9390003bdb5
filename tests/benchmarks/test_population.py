"""The databases that are measured on: the same each time, whole, and with what the requests need."""

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.measures import FEW_PAYMENTS
from benchmarks.population import CLIENTS, SAMPLE, populate, populate_from
from payres.limits import DEFAULT_PAGE
from payres.store.connections import connect_writer

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


def test_large_database_is_built_once_and_altered_only_in_its_copies(tmp_path: Path) -> None:
    outdated = tmp_path / f"{SAMPLE}-0123456789ab.db"
    outdated.touch()
    told: list[str] = []
    paths = [tmp_path / "one.db", tmp_path / "other.db"]
    for path in paths:
        populate_from(tmp_path, path, BASE_URL, SAMPLE, told.append)
        connect_writer(str(path), is_locked=True).close()  # raises when anything in the schema is missing
    (kept,) = tmp_path.glob(f"{SAMPLE}-*.db")
    assert kept != outdated
    assert told.count(f"inserted {SAMPLE:,} of {SAMPLE:,} incoming payments") == 1
    assert rows(kept, "SELECT count(*) FROM access_token") == [(0,)]
    assert [rows(path, "SELECT count(*) FROM access_token") for path in paths] == [[(CLIENTS,)]] * 2
