"""Rows as structs: a row is read, changed and read again by one key."""

import sqlite3

import msgspec

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
