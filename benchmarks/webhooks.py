"""Webhooks in the databases to measure on."""

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.population import Population
from benchmarks.servers import BASE_URL
from payres.operator import webhooks
from payres.operator.wallets import deposit
from payres.settings import Settings
from payres.store.connections import connect_writer
from payres.store.work import Environment, Work


def subscribe(population: Population, url: str, undelivered: int = 0) -> None:
    """A webhook for all events, on this machine, and so many that it has not got. The server must not be running."""
    wallet = population.wallet_addresses[1].removeprefix(f"{BASE_URL}/")
    with closing(connect_writer(str(population.path))) as connection:
        work = Work(connection, Environment.of(Settings(base_url=BASE_URL)))
        connection.execute("BEGIN")
        webhooks.add(work, url, private=True)
        for _ in range(undelivered):
            deposit(work, wallet, "0.01")
        connection.execute("COMMIT")


def attempted(database: Path) -> int:
    """Up to which event all have been sent to the one webhook, or tried to be."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader:
        found: int = reader.execute("SELECT cursor FROM webhook").fetchone()[0]
        return found
