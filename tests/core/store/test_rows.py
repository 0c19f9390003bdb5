"""Rows as structs: a row is read, changed and read again by one key."""

import sqlite3

import msgspec

from payres.core.protocol.clock import DAY, HOUR
from payres.core.store.rows import Table


class Place(msgspec.Struct, frozen=True):
    code: str
    visits: int


def test_row_is_updated_by_the_key_that_it_is_read_by() -> None:
    places = Table(Place, "place p", prefix="p.")
    tx = sqlite3.connect(":memory:")
    tx.execute("CREATE TABLE place (id INTEGER PRIMARY KEY, code TEXT UNIQUE, visits INTEGER NOT NULL)")
    tx.executemany("INSERT INTO place (id, code, visits) VALUES (?, ?, 0)", [(1, "a"), (2, "b")])
    places.update(tx, "b", visits=3)
    assert [places.get(tx, code) for code in "ab"] == [Place("a", 0), Place("b", 3)]
    tx.close()


def test_rows_that_are_due_and_those_of_a_clock_that_was_ahead() -> None:
    places = Table(Place, "place")
    tx = sqlite3.connect(":memory:")
    tx.execute("CREATE TABLE place (code TEXT PRIMARY KEY, visits INTEGER)")
    now, longest = 1000 * HOUR, HOUR
    times = {"late": now - DAY, "due": now, "to come": now + longest, "never by itself": now + DAY, "no more": None}
    tx.executemany("INSERT INTO place VALUES (?, ?)", times.items())
    assert [one.code for one in places.due(tx, "visits", now, longest, 9)] == ["late", "due", "never by itself"]
    assert [one.code for one in places.due(tx, "visits", now, longest, 1)] == ["late"]
    tx.close()
