import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import Asset
from payres.store.assets import ensure_asset
from payres.store.clients import ensure_client
from payres.store.connections import connect_writer
from payres.store.payments import INCOMING, OUTGOING, IncomingRecord, OutgoingRecord
from payres.store.rows import PageQuery, Table, page_of_wallet
from payres.store.work import Transaction
from payres.terms import Terms
from tests.helpers import examples
from tests.works import sending_payment

Towards = Literal["older", "newer"]
Record = IncomingRecord | OutgoingRecord


class Item(NamedTuple):
    """A payment in a list: the higher the number, the newer. Wallets and clients are 1 or 2."""

    number: int
    wallet: int = 1
    client: int = 1


class Kind(NamedTuple):
    """One of the two kinds of payments that are listed."""

    insert: Callable[[Transaction, Item], None]
    table: Table[Any]


def identifier(number: int) -> str:
    """A UUIDv7 that sorts by its number."""
    return f"{number:08x}-0000-7000-8000-{0:012x}"


def add_incoming(tx: Transaction, item: Item) -> None:
    payment = IncomingRecord(identifier(item.number), item.wallet, item.client, None, 0, None, 1, 2, None)
    INCOMING.insert(tx, payment)


def add_outgoing(tx: Transaction, item: Item) -> None:
    payment = sending_payment(
        identifier(item.number),
        item.wallet,
        item.client,
        1,
        terms=Terms(
            receiver="https://example.com/incoming-payments/1",
            incoming_payment_id=None,
            debit=2,
            fee=1,
            receive=1,
            asset=Asset("EUR", 2),
        ),
    )
    OUTGOING.insert(tx, payment)


KINDS = {
    "incoming": Kind(add_incoming, INCOMING),
    "outgoing": Kind(add_outgoing, OUTGOING),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    """A database with wallet addresses 1 and 2 and clients 1 and 2, and no payments."""
    with closing(connect_writer(":memory:")) as opened:
        asset = ensure_asset(opened, "EUR", 2)
        for n in (1, 2):
            opened.execute("INSERT INTO account (id, kind, asset_id) VALUES (?, 'wallet', ?)", (n, asset.id))
            opened.execute(
                "INSERT INTO wallet_address (id, path, asset_id, account_id, created_at) VALUES (?, ?, ?, ?, 1)",
                (n, f"wallet{n}", asset.id, n),
            )
            assert ensure_client(opened, f"client{n}", f"https://client{n}.example", None, 1).id == n
        yield opened


@contextmanager
def holding(connection: sqlite3.Connection, kind: Kind, items: Sequence[Item]) -> Iterator[Transaction]:
    """The database with these payments in it, for the length of the block."""
    connection.execute("BEGIN")
    try:
        for item in items:
            kind.insert(connection, item)
        yield connection
    finally:
        connection.execute("ROLLBACK")


def numbers(records: Sequence[Record]) -> list[int]:
    return [int(record.id[:8], 16) for record in records]


def ask(
    tx: Transaction,
    kind: Kind,
    count: int,
    cursor: int | None = None,
    towards: Towards = "older",
    client: int | None = None,
) -> tuple[list[int], bool, bool]:
    """The numbers on a page of wallet 1, and whether older and newer ones exist."""
    query = PageQuery(count, None if cursor is None else identifier(cursor), towards)
    records, bounds = page_of_wallet(tx, kind.table, query, 1, client)
    return numbers(records), bounds.has_older, bounds.has_newer


# Against a plain list


def page_of_list(
    items: Sequence[Item], client: int | None, count: int, cursor: int | None, towards: Towards
) -> tuple[list[int], bool, bool]:
    listed = [item.number for item in items if item.wallet == 1 and client in (None, item.client)]
    older_side = sorted((n for n in listed if cursor is None or n < cursor), reverse=True)
    newer_side = sorted(n for n in listed if cursor is not None and n > cursor)
    page = older_side[:count] if towards == "older" or cursor is None else newer_side[:count][::-1]
    if page:
        return page, min(listed) < page[-1], max(listed) > page[0]
    if towards == "older":  # everything there is lies at the cursor or on its newer side
        return page, False, bool(listed)
    return page, bool(listed), False


ITEMS = st.lists(
    st.builds(Item, st.integers(1, 12), st.sampled_from([1, 1, 1, 2]), st.sampled_from([1, 2])),
    unique_by=lambda item: item.number,
    max_size=12,
)


@examples(150)
@given(
    name=st.sampled_from(sorted(KINDS)),
    items=ITEMS,
    client=st.sampled_from([None, 1, 2]),
    count=st.integers(1, 6),
    cursor=st.one_of(st.none(), st.integers(0, 13)),
    towards=st.sampled_from(["older", "newer"]),
)
def test_page_agrees_with_a_plain_list(
    connection: sqlite3.Connection,
    name: str,
    items: list[Item],
    client: int | None,
    count: int,
    cursor: int | None,
    towards: Towards,
) -> None:
    with holding(connection, KINDS[name], items) as tx:
        page = ask(tx, KINDS[name], count, cursor, towards, client)
    assert page == page_of_list(items, client, count, cursor, towards)


@examples(60)
@given(ITEMS, st.integers(1, 5))
def test_walk_there_and_back_meets_each_item_once(
    connection: sqlite3.Connection, items: list[Item], count: int
) -> None:
    expected = sorted((item.number for item in items if item.wallet == 1), reverse=True)
    kind = KINDS["incoming"]
    with holding(connection, kind, items) as tx:
        page, more, _ = ask(tx, kind, count)
        walked = list(page)
        while more:
            page, more, has_newer = ask(tx, kind, count, walked[-1])
            assert page
            assert has_newer
            walked += page
        assert walked == expected
        back: list[int] = walked[-1:]
        more = len(walked) > 1
        while more:
            page, has_older, more = ask(tx, kind, count, back[0], "newer")
            assert page
            assert has_older
            back = [*page, *back]
        assert back == expected
