import pytest
from msgspec import UNSET, UnsetType

from payres.amounts import Asset
from payres.clock import parse_time
from payres.errors import DomainError
from payres.grants.gnap import Limits
from payres.grants.limits import NO_INTERVAL, Spent, check_limits, current_window, spent_in_window
from payres.store.clients import ensure_client
from payres.store.grants import GRANTS, GrantRecord, add_spending
from payres.store.work import Transaction, Work
from payres.terms import Terms
from payres.wire import Amount
from tests.works import work_at

USD, EUR = Asset("USD", 2), Asset("EUR", 2)
RECEIVER = "https://pay.example/incoming-payments/1"
NOW = parse_time("2026-03-15T12:00:00Z")
MARCH, APRIL = parse_time("2026-03-01T00:00:00Z"), parse_time("2026-04-01T00:00:00Z")
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


def test_no_limits_let_everything_pass(tx: Transaction) -> None:
    spend(tx, NO_INTERVAL, 10**18, 10**18)
    assert check_limits(work_at(tx, NOW), GRANT, None, payment(10**18))[0] == NO_INTERVAL
    assert check_limits(work_at(tx, NOW), GRANT, Limits(), payment(10**18))[0] == NO_INTERVAL


@pytest.mark.parametrize(
    ("limits", "spent", "terms", "details"),
    [
        (Limits(debit_amount=in_usd(100)), (0, 0), payment(100), None),
        (Limits(debit_amount=in_usd(100)), (0, 0), payment(101), ("debitAmount", "100", "101")),
        (Limits(debit_amount=in_usd(100)), (99, 0), payment(1), None),
        (Limits(debit_amount=in_usd(100)), (99, 0), payment(2), ("debitAmount", "1", "2")),
        (Limits(debit_amount=in_usd(100)), (100, 0), payment(1), ("debitAmount", "0", "1")),
        (Limits(debit_amount=in_usd(100)), (120, 0), payment(1), ("debitAmount", "0", "1")),
        (Limits(debit_amount=in_usd(100)), (0, 99), payment(100, 100), None),
        (Limits(receive_amount=in_usd(100)), (99, 0), payment(500, 100), None),
        (Limits(receive_amount=in_usd(100)), (0, 99), payment(500, 1), None),
        (Limits(receive_amount=in_usd(100)), (0, 99), payment(1, 2), ("receiveAmount", "1", "2")),
        (Limits(debit_amount=in_usd(2**64 - 1)), (2**63 - 1, 0), payment(2**63 - 1), None),
    ],
)
def test_amounts_are_spent_to_the_last_unit(
    tx: Transaction, limits: Limits, spent: tuple[int, int], terms: Terms, details: tuple[str, str, str] | None
) -> None:
    spend(tx, NO_INTERVAL, *spent)
    spend(tx, NO_INTERVAL, 10**9, 10**9, grant_id="another")
    expected = None if details is None else dict(zip(("reason", "left", "needed"), details, strict=True))
    assert refusal_of(tx, limits, terms) == expected


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


def test_receive_amount_is_in_the_asset_of_the_limit(tx: Transaction) -> None:
    limits = Limits(receive_amount=in_usd(100))
    assert refusal_of(tx, limits, payment(1, 1, EUR)) == {"reason": "receiveAmount"}
    assert refusal_of(tx, limits, payment(1, 1, Asset("USD", 3))) == {"reason": "receiveAmount"}
    spend(tx, NO_INTERVAL, 5, 500, EUR)
    assert refusal_of(tx, limits, payment(100, 100)) is None


@pytest.mark.parametrize(
    ("interval", "now", "window"),
    [
        (UNSET, NOW, NO_INTERVAL),
        (MONTHLY, NOW, MARCH),
        (MONTHLY, MARCH, MARCH),
        (MONTHLY, APRIL - 1, MARCH),
        (MONTHLY, APRIL, APRIL),
        (MONTHLY, parse_time("2025-12-31T23:59:59.999999Z"), None),
        ("R2/2026-01-01T00:00:00Z/P1M", APRIL - 1, MARCH),
        ("R2/2026-01-01T00:00:00Z/P1M", APRIL, None),
        ("R0/2026-03-01T00:00:00Z/2026-04-01T00:00:00Z", NOW, MARCH),
    ],
)
def test_window_is_the_one_open_now(tx: Transaction, interval: str | UnsetType, now: int, window: int | None) -> None:
    limits = Limits(interval=interval)
    assert current_window(limits, now) == window
    if window is None:
        assert refusal_of(tx, limits, payment(1), now) == {"reason": "interval"}
    else:
        assert check_limits(work_at(tx, now), GRANT, limits, payment(1))[0] == window


def test_each_window_has_the_whole_limit(tx: Transaction) -> None:
    limits = Limits(debit_amount=in_usd(100), interval=MONTHLY)
    spend(tx, MARCH, 100, 100)
    assert refusal_of(tx, limits, payment(1)) == {"reason": "debitAmount", "left": "0", "needed": "1"}
    assert refusal_of(tx, limits, payment(100), APRIL) is None
    assert refusal_of(tx, limits, payment(100), MARCH - 1) is None


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
