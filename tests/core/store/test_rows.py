"""Rows as structs: a row is read, changed and read again by one key, or found by its columns."""

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


def test_rows_are_found_by_their_columns_in_the_order_of_their_keys() -> None:
    places = Table(Place, "place p", prefix="p.")
    tx = sqlite3.connect(":memory:")
    tx.execute("CREATE TABLE place (code TEXT, visits INTEGER)")
    tx.executemany("INSERT INTO place VALUES (?, ?)", [("b", 1), ("a", 1), ("c", 2)])
    assert places.find(tx, code="b", visits=1) == Place("b", 1)
    assert places.find(tx, code="b", visits=2) is None
    assert [one.code for one in places.list(tx, visits=1)] == ["a", "b"]
    assert [one.code for one in places.list(tx)] == ["a", "b", "c"]
    tx.close()
