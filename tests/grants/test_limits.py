import pytest

from payres.amounts import Asset
from payres.clock import parse_time
from payres.errors import DomainError
from payres.grants.gnap import Limits
from payres.grants.limits import NO_INTERVAL, Spent, check_limits, spent_in_window
from payres.store.clients import ensure_client
from payres.store.grants import GRANTS, GrantRecord, add_spending
from payres.store.work import Transaction, Work
from payres.terms import Terms
from payres.wire import Amount
from tests.works import work_at

USD, EUR = Asset("USD", 2), Asset("EUR", 2)
RECEIVER = "https://pay.example/incoming-payments/1"
NOW = parse_time("2026-03-15T12:00:00Z")
MARCH = parse_time("2026-03-01T00:00:00Z")
MONTHLY = "R/2026-01-01T00:00:00Z/P1M"
GRANT = "grant-1"


@pytest.fixture
def tx(tx: Work) -> Transaction:
    keep_books(tx)
    return tx


def keep_books(tx: Transaction) -> None:
    client = ensure_client(tx, "https://shop.example", "https://shop.example", None, 1)
    for grant_id in (GRANT, "another"):
        GRANTS.insert(tx, GrantRecord(grant_id, client.id, None, "issued", "[]", None, None, b"", 1, 1, None))


def in_usd(value: int) -> Amount:
    return Amount(value=str(value), asset_code="USD", asset_scale=2)


def payment(debit: int, receive: int | None = None, asset: Asset = USD, receiver: str = RECEIVER) -> Terms:
    return Terms(
        receiver=receiver,
        incoming_payment_id=None,
        debit=debit,
        fee=0,
        receive=debit if receive is None else receive,
        asset=asset,
    )


def spend(tx: Transaction, window: int, debit: int, receive: int, asset: Asset = USD, grant_id: str = GRANT) -> None:
    add_spending(tx, grant_id, window, asset.code, asset.scale, debit, receive, NOW)


def refusal_of(tx: Transaction, limits: Limits, terms: Terms, now: int = NOW) -> dict[str, str] | None:
    """The details of the refusal, None when the payment is within the limits."""
    try:
        check_limits(work_at(tx, now), GRANT, limits, terms)
    except DomainError as refusal:
        return dict(refusal.details or {})
    return None


@pytest.mark.parametrize(
    ("receiver", "allowed"),
    [
        (RECEIVER, True),
        (f"{RECEIVER}/", True),
        ("https://PAY.example:443/incoming-payments/1", True),
        ("https://pay.example/incoming-payments/2", False),
        ("https://pay.example/incoming-payments/11", False),
        ("http://pay.example/incoming-payments/1", False),
        ("https://other.example/incoming-payments/1", False),
    ],
)
def test_receiver_is_the_one_named(tx: Transaction, receiver: str, allowed: bool) -> None:
    refusal = refusal_of(tx, Limits(receiver=RECEIVER), payment(1, receiver=receiver))
    assert refusal == (None if allowed else {"reason": "receiver"})


def test_spent_is_summed_over_assets_for_debit_and_kept_apart_for_receive(tx: Transaction) -> None:
    assert spent_in_window(tx, GRANT, NO_INTERVAL) is None
    add_spending(tx, GRANT, NO_INTERVAL, "USD", 2, 10, 9, NOW)
    add_spending(tx, GRANT, NO_INTERVAL, "EUR", 2, 20, 17, NOW + 1)
    assert spent_in_window(tx, GRANT, NO_INTERVAL) == Spent(30, 17, EUR)
    assert spent_in_window(tx, GRANT, NO_INTERVAL, USD) == Spent(30, 9, USD)
    assert spent_in_window(tx, GRANT, NO_INTERVAL, Asset("CHF", 2)) == Spent(30, 0, Asset("CHF", 2))
    add_spending(tx, GRANT, NO_INTERVAL, "USD", 2, -10, -9, NOW + 2)
    assert spent_in_window(tx, GRANT, NO_INTERVAL) == Spent(20, 17, EUR)
    assert spent_in_window(tx, GRANT, MARCH) is None


def test_nothing_is_spent_when_all_that_was_counted_came_back(tx: Transaction) -> None:
    spend(tx, MARCH, 10, 9)
    spend(tx, MARCH, -10, -9)
    assert spent_in_window(tx, GRANT, MARCH) is None
    assert spent_in_window(tx, GRANT, MARCH, USD) is None
    assert refusal_of(tx, Limits(debit_amount=in_usd(10), interval=MONTHLY), payment(10)) is None
    spend(tx, MARCH, 1, 0)
    assert spent_in_window(tx, GRANT, MARCH) == Spent(1, 0, USD)
