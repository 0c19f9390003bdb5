"""Refunds: what goes back, to whom, and never more than was received."""

from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres import ledger
from payres.amounts import format_decimal
from payres.errors import DomainError, InsufficientFunds, InvalidAmount, InvalidRequest, NotFound, WrongState
from payres.operator import assets, invariants, wallets
from payres.operator.refunds import Wanted, refund
from payres.payments.settlement import pay_locally
from payres.store import accounts, clients, incoming, outgoing
from payres.store.connections import connect_writer
from payres.store.incoming import IncomingRecord
from payres.store.outgoing import OutgoingRecord
from payres.store.refunds import refunds_of_incoming
from payres.store.units import savepoint
from payres.store.wallets import WalletRecord
from payres.store.work import Work
from payres.terms import Terms
from tests.helpers import examples
from tests.works import work_at

NOW = 1_700_000_000_000_000
ASSETS = {"alice": "USD", "bob": "USD", "emma": "EUR"}


@pytest.fixture
def tx() -> Iterator[Work]:
    with closing(connect_writer(":memory:")) as connection:
        work = work_at(connection, NOW)
        keep_books(work)
        yield work


def keep_books(work: Work) -> None:
    """Wallets of two payers in dollars and one in euros, each with 1,000.00, and a shop that takes any amount."""
    for path, code in ASSETS.items():
        wallets.create_wallet(work, path, code, 2, None, None)
        wallets.deposit(work, path, "1000.00")
    shop = wallets.create_wallet(work, "shop", "USD", 2, None, None)
    for code in ("USD", "EUR"):
        assets.deposit_liquidity(work, code, 2, "1000.00")
    client = clients.ensure_client(work, "https://a.example/x", "https://a.example/x", None, NOW)
    incoming.insert_incoming(work, IncomingRecord("bill", shop.id, client.id, None, 0, None, NOW, NOW + 1, None))


def pay(work: Work, path: str, receive: int, *, debit: int | None = None, fee: int = 0) -> str:
    """Pays the bill from a wallet; the id of the payment."""
    payer, receiver = wallets.require_wallet(work, path), incoming.find_incoming(work, "bill")
    assert receiver is not None
    shop = wallets.require_wallet(work, "shop")
    debit = receive + fee if debit is None else debit
    terms = Terms(
        receiver="http://127.0.0.1:8080/incoming-payments/bill",
        incoming_payment_id="bill",
        debit=debit,
        fee=fee,
        receive=receive,
        asset=shop.asset,
    )
    ended = {"sent": debit, "delivered": receive, "state": "completed", "failure": None, "ended_at": NOW}
    payment = OutgoingRecord(
        id=work.new_id(),
        wallet_address_id=payer.id,
        client_id=1,
        grant_id=None,
        window_start=0,
        quote_id=None,
        terms=terms,
        metadata=None,
        created_at=NOW,
        **ended,  # type: ignore[arg-type]
    )
    outgoing.insert_outgoing(work, payment)
    pay_locally(work, payer, payment, receiver, shop)
    return payment.id


def balance(work: Work, path: str) -> str:
    wallet: WalletRecord = wallets.require_wallet(work, path)
    return format_decimal(accounts.account_by_id(work, wallet.account_id).balance, wallet.asset)


def check_books(work: Work) -> None:
    broken = invariants.first_broken(invariants.check(work))
    assert broken is None, broken


def test_fee_stays_with_the_operator(tx: Work) -> None:
    pay(tx, "alice", 500, fee=20)
    [made] = refund(tx, Wanted("bill", "r-1"))
    assert (made.amount, made.returned) == (500, 500)
    assert balance(tx, "alice") == "999.80"
    check_books(tx)


def test_exchange_is_undone_at_the_rate_of_the_payment_rounded_down(tx: Work) -> None:
    pay(tx, "emma", 300, debit=210, fee=10)
    [third] = refund(tx, Wanted("bill", "r-1", "1.00"))
    assert (third.amount, third.returned) == (100, 66)
    [rest] = refund(tx, Wanted("bill", "r-2"))
    assert (rest.amount, rest.returned) == (200, 133)
    assert (balance(tx, "emma"), balance(tx, "shop")) == ("999.89", "0.00")
    check_books(tx)


def test_refund_that_would_bring_nothing_is_refused(tx: Work) -> None:
    pay(tx, "emma", 300, debit=2)
    with pytest.raises(InvalidAmount, match="nothing would arrive"):
        refund(tx, Wanted("bill", "r-1", "0.01"))


def test_refund_across_assets_needs_liquidity(tx: Work) -> None:
    pay(tx, "emma", 300, debit=300)
    assets.withdraw_liquidity(tx, "EUR", 2, "1002.00")
    with pytest.raises(InsufficientFunds) as refusal, savepoint(tx):
        refund(tx, Wanted("bill", "r-1"))
    assert refusal.value.details["reason"] == "liquidity"
    assert not refunds_of_incoming(tx, "bill")


def test_wallet_that_paid_itself_gets_its_money_back(tx: Work) -> None:
    wallets.deposit(tx, "shop", "5.00")
    pay(tx, "shop", 500)
    refund(tx, Wanted("bill", "r-1"))
    assert balance(tx, "shop") == "5.00"
    check_books(tx)


def test_payer_who_is_inactive_takes_no_money(tx: Work) -> None:
    pay(tx, "alice", 500)
    wallets.deactivate(tx, "alice")
    with pytest.raises(WrongState, match="inactive"):
        refund(tx, Wanted("bill", "r-1"))


def test_what_came_from_other_servers_does_not_go_back(tx: Work) -> None:
    pay(tx, "alice", 500)
    shop = wallets.require_wallet(tx, "shop")
    outside = ledger.operator_account(tx, shop.asset_id, "external")
    ledger.transfer(tx, outside, shop.account_id, 200, "payment", incoming_payment_id="bill")
    incoming.add_received(tx, "bill", 200, None, None)
    with pytest.raises(WrongState, match=r"2\.00 USD of this came from other servers"), savepoint(tx):
        refund(tx, Wanted("bill", "r-1"))
    refund(tx, Wanted("bill", "r-2", "5.00"))
    assert balance(tx, "alice") == "1000.00"
    check_books(tx)


@pytest.mark.parametrize("reference", ["", "a\nb", "a" * 101])
def test_reference_that_is_none_is_refused(tx: Work, reference: str) -> None:
    pay(tx, "alice", 500)
    with pytest.raises(InvalidRequest):
        refund(tx, Wanted("bill", reference))
    with pytest.raises(NotFound):
        refund(tx, Wanted("nothing", "r-1"))


PAID = st.lists(st.tuples(st.sampled_from(sorted(ASSETS)), st.integers(1, 5_000), st.integers(0, 9)), max_size=4)
ASKED = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(1, 8_000)), max_size=6)


@given(paid=PAID, asked=ASKED, spent=st.integers(0, 5_000))
@examples(60)
def test_never_more_goes_back_than_came(
    paid: list[tuple[str, int, int]], asked: list[tuple[str, int | None]], spent: int
) -> None:
    """Whatever was paid, and whatever is asked for under whichever reference."""
    with closing(connect_writer(":memory:")) as connection:
        work = work_at(connection, NOW)
        keep_books(work)
        sent = {pay(work, path, receive, debit=receive + fee, fee=fee): receive for path, receive, fee in paid}
        with suppress(DomainError):
            wallets.withdraw(work, "shop", format_decimal(spent, wallets.require_wallet(work, "shop").asset))
        for reference, amount in asked:
            with suppress(DomainError), savepoint(work):
                refund(
                    work, Wanted("bill", reference, None if amount is None else f"{amount // 100}.{amount % 100:02}")
                )
        made = refunds_of_incoming(work, "bill")
        assert sum(one.amount for one in made) <= sum(sent.values())
        for payment_id, receive in sent.items():
            assert sum(one.amount for one in made if one.outgoing_payment_id == payment_id) <= receive
        assert all(one.returned <= one.amount for one in made)
        check_books(work)
