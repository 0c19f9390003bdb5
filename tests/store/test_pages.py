"""Pages of a wallet's rows against a plain list, for every cursor: walking there and back visits each row once."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.store.assets import ensure_asset
from payres.store.clients import ensure_client
from payres.store.connections import connect_writer
from payres.store.payments import INCOMING, IncomingRecord
from payres.store.rows import PageQuery, page_of_wallet
from payres.store.work import Transaction
from tests.helpers import examples

Towards = Literal["older", "newer"]


class Item(NamedTuple):
    """A payment in a list: the higher the number, the newer. Wallets and clients are 1 or 2."""

    number: int
    wallet: int
    client: int


def identifier(number: int) -> str:
    """A UUIDv7 that sorts by its number."""
    return f"{number:08x}-0000-7000-8000-{0:012x}"


@pytest.fixture(scope="module")
def connection() -> Iterator[Transaction]:
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


def page_of_list(
    items: Sequence[Item], client: int | None, count: int, cursor: int | None, towards: Towards
) -> tuple[list[int], bool, bool]:
    """The numbers on a page of wallet 1, and whether older and newer ones exist."""
    listed = [item.number for item in items if item.wallet == 1 and client in (None, item.client)]
    older_side = sorted((n for n in listed if cursor is None or n < cursor), reverse=True)
    newer_side = sorted(n for n in listed if cursor is not None and n > cursor)
    page = older_side[:count] if towards == "older" or cursor is None else newer_side[:count][::-1]
    if page:
        return page, min(listed) < page[-1], max(listed) > page[0]
    if towards == "older":  # everything there is lies at the cursor or on its newer side
        return page, False, bool(listed)
    return page, bool(listed), False


@examples(200)
@given(
    items=st.lists(
        st.builds(Item, st.integers(1, 12), st.sampled_from([1, 1, 1, 2]), st.sampled_from([1, 2])),
        unique_by=lambda item: item.number,
        max_size=12,
    ),
    client=st.sampled_from([None, 1, 2]),
    count=st.integers(1, 6),
    cursor=st.one_of(st.none(), st.integers(0, 13)),
    towards=st.sampled_from(["older", "newer"]),
)
def test_page_agrees_with_a_plain_list(
    connection: Transaction, items: list[Item], client: int | None, count: int, cursor: int | None, towards: Towards
) -> None:
    query = PageQuery(count, None if cursor is None else identifier(cursor), towards)
    connection.execute("DELETE FROM incoming_payment")
    for number, wallet, maker in items:
        INCOMING.insert(connection, IncomingRecord(identifier(number), wallet, maker, None, 0, None, 1, 2, None))
    records, bounds = page_of_wallet(connection, INCOMING, query, 1, client)
    found = [int(record.id[:8], 16) for record in records], bounds.has_older, bounds.has_newer
    assert found == page_of_list(items, client, count, cursor, towards)
