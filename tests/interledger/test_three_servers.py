"""Payments across a server in the middle, which exchanges them and owes and is owed on both sides."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from payres.testing.instance import Instance
from payres.testing.peering import peer
from tests.interledger.network import (
    EUR,
    JPY,
    SLOWLY,
    USD,
    add_liquidity,
    amount,
    bill,
    change,
    check_books,
    ended,
    hurried,
    network,
    operator_money,
    pay,
    peer_of,
    received,
    set_rate,
    wait_for_packet,
    wallet_money,
)

Row = Sequence[Instance]


@pytest.fixture
def row(tmp_path: Path) -> Iterator[Row]:
    """`a` keeps US dollars and `c` yen. `a` and `b` have a link in dollars, `b` and `c` one in euros."""
    with network(tmp_path, "a", "b", "c") as row:
        a, b, c = row
        peer(a, b, "USD", 2, routes=["test.c"])
        peer(c, b, "EUR", 2, routes=["test.a"])
        a.create_wallet("payer", "USD", 2, deposit="1000.00")
        c.create_wallet("getter", "JPY", 0, deposit="100000")
        for server in row:
            set_rate(server, "USD", "EUR", "0.92")
            set_rate(server, "EUR", "JPY", "160")
            set_rate(server, "USD", "JPY", "147.2")
        for asset in (USD, EUR):
            add_liquidity(b, asset)
        for asset in (EUR, JPY):
            add_liquidity(c, asset)
        yield row
        check_books(*row)


def test_payment_crosses_three_currencies(row: Row) -> None:
    a, b, c = row
    receiver = bill(c, c.wallet("getter"), 1472, JPY)
    paid = pay(a, a.wallet("payer"), receiver)
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", 1000, 1472)
    assert received(c, receiver).received == 1472
    assert wallet_money(a, "payer") == (99_000, 0)
    assert (peer_of(b, "a").balance, peer_of(b, "c").balance) == (-1000, 920)
    assert operator_money(b, USD) == 100_000_000 + 1000
    assert operator_money(b, EUR) == 100_000_000 - 920
    assert operator_money(c, EUR) == 100_000_000 + 920
    assert operator_money(c, JPY) == 1_000_000 - 1472
    assert peer_of(a, "b").repeats_answers, "payres knows another payres by its answers"


@pytest.mark.parametrize(("wanted", "cents", "arrives"), [(1, 2, 1), (20, 15, 20)])
def test_small_payment_is_whole_although_every_server_rounds(row: Row, wanted: int, cents: int, arrives: int) -> None:
    a, _, c = row
    paid = pay(a, a.wallet("payer"), bill(c, c.wallet("getter"), wanted, JPY))
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", cents, arrives)
    assert paid.quote
    assert paid.quote["debitAmount"] == amount(cents)


def test_payment_comes_back_the_other_way(row: Row) -> None:
    a, b, c = row
    receiver = bill(a, a.wallet("payer"), 1000, USD)
    paid = pay(c, c.wallet("getter"), receiver)
    assert (paid.record.state, paid.record.delivered) == ("completed", 1000)
    assert paid.record.sent <= 1472 + 1
    assert received(a, receiver).received == 1000
    assert peer_of(b, "a").balance == 1000
    assert peer_of(b, "c").balance < 0


def test_route_that_ends_in_the_middle_of_a_payment_fails_it_in_part(row: Row) -> None:
    a, b, c = row
    change(b, "a", max_packet=100)
    hurried(a, largest_round=1, **SLOWLY)
    receiver = bill(c, c.wallet("getter"), 29_440, JPY)
    quoted = a.client.create_quote(a.wallet("payer"), receiver)
    created = a.client.create_outgoing_payment(a.wallet("payer"), quoted["id"])
    wait_for_packet(b, "c")
    change(b, "c", remove_routes=["test.c"])
    paid = ended(a, created)
    assert paid.ended["failed"]
    assert "F02 from test.b" in (paid.record.failure or "")
    assert 0 < paid.record.sent < paid.record.terms.debit
    assert paid.record.delivered == received(c, receiver).received
    assert wallet_money(a, "payer") == (100_000 - paid.record.sent, 0)
