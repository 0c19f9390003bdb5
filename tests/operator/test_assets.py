import pytest

from payres import ledger
from payres.amounts import MAX_LEDGER
from payres.errors import DomainError
from payres.operator import assets, wallets
from payres.store import accounts
from payres.store import assets as asset_store
from payres.store.accounts import ACCOUNTS
from payres.store.assets import AssetRecord, RateRecord
from payres.store.work import Work
from tests.works import NOW, work_at


def test_open_asset_makes_each_code_and_scale_once(tx: Work) -> None:
    assert assets.open_asset(tx, "USD", 2) == assets.open_asset(tx, "USD", 2)
    assert assets.open_asset(tx, "USD", 9).id != assets.open_asset(tx, "USD", 2).id


@pytest.mark.parametrize("code", ["usd", "Usd", "usdc", "usdc.e", "x"])
def test_small_letters_are_refused_unless_they_are_in_use(tx: Work, code: str) -> None:
    """`usd` would be another currency than USD, which no receiver on another server has."""
    for make in (
        lambda: assets.open_asset(tx, code, 2),
        lambda: assets.set_fee(tx, code, 2, "0.10", 0),
        lambda: assets.deposit_liquidity(tx, code, 2, "1.00"),
        lambda: assets.set_rate(tx, code, "EUR", "0.9"),
        lambda: assets.set_rate(tx, "EUR", code, "0.9"),
    ):
        with pytest.raises(DomainError, match=f"give {code.upper()}, not {code}") as refusal:
            make()
        assert refusal.value.status == 400
    assert asset_store.list_assets(tx) == []
    asset_store.ensure_asset(tx, code, 2)  # as an earlier version made it
    assert assets.set_fee(tx, code, 2, "0.10", 0).fee_fixed == 10
    assets.set_rate(tx, code, "EUR", "0.9")


@pytest.fixture
def warnings(tx: Work) -> list[str]:
    """What the user of a command is warned of."""
    found: list[str] = []
    tx.warn = found.append
    return found


def test_another_scale_of_a_code_in_use_is_worth_a_warning(tx: Work, warnings: list[str]) -> None:
    for code, scale in (("USD", 2), ("USD", 2), ("EUR", 9)):
        assets.open_asset(tx, code, scale)
    assert not warnings
    assets.open_asset(tx, "USD", 9)
    assert "USD is in use with scale 2. With scale 9 it is another asset" in warnings.pop()
    assets.open_asset(tx, "USD", 9)
    assert not warnings
    assets.open_asset(tx, "USD", 0)
    assert "scale 2 and 9" in warnings.pop()


@pytest.mark.parametrize("fixed", ["-0.10", "0.001", "x", "92233720368547758.08"])
def test_set_fee_refuses_what_is_no_amount(tx: Work, fixed: str) -> None:
    with pytest.raises(DomainError) as refusal:
        assets.set_fee(tx, "USD", 2, fixed, 0)
    assert refusal.value.code == "invalid_amount"


@pytest.mark.parametrize("basis_points", [-1, 10_000, 2**70])
def test_set_fee_refuses_a_share_that_leaves_nothing(tx: Work, basis_points: int) -> None:
    with pytest.raises(DomainError, match="basis points") as refusal:
        assets.set_fee(tx, "USD", 2, "0", basis_points)
    assert refusal.value.status == 400


def test_set_rate_keeps_the_exact_decimal_and_the_last_one_holds(tx: Work) -> None:
    assets.set_rate(tx, "USD", "EUR", "0.92")
    assets.set_rate(work_at(tx, NOW + 1), "USD", "EUR", "0.930")
    assert asset_store.list_rates(tx) == [RateRecord("USD", "EUR", "0.930", NOW + 1)]


@pytest.mark.parametrize("rate", ["0", "0.0", "-1", "1/2", "1e3", "", "nan", "1" * 65])
def test_set_rate_refuses_what_is_no_rate(tx: Work, rate: str) -> None:
    with pytest.raises(DomainError, match="cannot be a rate"):
        assets.set_rate(tx, "USD", "EUR", rate)


@pytest.mark.parametrize(("base", "counter"), [("USD", "USD"), ("U D", "EUR"), ("USD", "")])
def test_set_rate_refuses_codes_that_cannot_be_exchanged(tx: Work, base: str, counter: str) -> None:
    with pytest.raises(DomainError):
        assets.set_rate(tx, base, counter, "1.5")
    assert asset_store.list_rates(tx) == []


def test_set_rate_takes_the_place_of_the_service_for_both_ways(tx: Work) -> None:
    for base, counter in (("USD", "EUR"), ("EUR", "USD")):
        asset_store.refresh_rate(tx, RateRecord(base, counter, "0.5", NOW, NOW + 1))
    assets.set_rate(tx, "USD", "EUR", "0.92")
    assert asset_store.list_rates(tx) == [RateRecord("USD", "EUR", "0.92", NOW)]


@pytest.mark.parametrize(
    ("there", "back", "unused"),
    [("0.92", None, None), ("0.92", "1.08", None), ("0.92", "1.1", "EUR"), ("1.1", "0.92", "USD"), ("0.5", "2", None)],
)
def test_rate_that_gives_way_to_the_other_is_told(
    tx: Work, warnings: list[str], there: str, back: str | None, unused: str | None
) -> None:
    assets.set_rate(tx, "USD", "EUR", there)
    if back is not None:
        assets.set_rate(tx, "EUR", "USD", back)
    assert [warning.partition(" buy ")[0] for warning in warnings] == ([f"1 {unused} does not"] if unused else [])


def test_set_rate_leaves_the_operators_way_back(tx: Work) -> None:
    assets.set_rate(tx, "EUR", "USD", "1.1")
    assets.set_rate(tx, "USD", "EUR", "0.92")
    assert [rate.rate for rate in asset_store.list_rates(tx)] == ["1.1", "0.92"]


def test_remove_rate_leaves_the_pair_to_the_service(tx: Work) -> None:
    assets.set_rate(tx, "USD", "EUR", "0.92")
    assets.remove_rate(tx, "USD", "EUR")
    fetched = RateRecord("EUR", "USD", "1.1", NOW, NOW + 1)
    asset_store.refresh_rate(tx, fetched)
    assert asset_store.list_rates(tx) == [fetched]


def test_remove_rate_names_what_is_missing(tx: Work) -> None:
    with pytest.raises(DomainError, match="There is no rate from USD to EUR") as refusal:
        assets.remove_rate(tx, "USD", "EUR")
    assert refusal.value.status == 404


# Liquidity and collected fees


def balance(tx: Work, asset: AssetRecord, kind: str) -> int:
    return ACCOUNTS.by_id(tx, ledger.operator_account(tx, asset.id, kind)).balance


def test_liquidity_comes_from_outside_and_goes_back(tx: Work) -> None:
    assets.deposit_liquidity(tx, "EUR", 2, "1000.00")
    asset = assets.require_asset(tx, "EUR", 2)
    assert (balance(tx, asset, "liquidity"), balance(tx, asset, "external")) == (100_000, -100_000)
    assets.withdraw_liquidity(tx, "EUR", 2, "250.00")
    assert (balance(tx, asset, "liquidity"), balance(tx, asset, "external")) == (75_000, -75_000)


def test_withdraw_liquidity_leaves_what_payments_were_promised(tx: Work) -> None:
    assets.deposit_liquidity(tx, "EUR", 2, "10.00")
    asset = assets.require_asset(tx, "EUR", 2)
    accounts.change_account(tx, ledger.operator_account(tx, asset.id, "liquidity"), 0, 400, MAX_LEDGER)
    with pytest.raises(DomainError, match=r"The liquidity in EUR with scale 2 has 6.00 EUR free") as refusal:
        assets.withdraw_liquidity(tx, "EUR", 2, "6.01")
    assert refusal.value.code == "insufficient_funds"


def test_withdraw_fees_takes_what_was_collected(tx: Work) -> None:
    wallet = wallets.create_wallet(tx, "alice", "USD", 2, None, None)
    wallets.deposit(tx, "alice", "10.00")
    ledger.transfer(tx, wallet.account_id, ledger.operator_account(tx, wallet.asset_id, "fees"), 30, "fee")
    assets.withdraw_fees(tx, "USD", 2, "0.20")
    asset = assets.require_asset(tx, "USD", 2)
    assert (balance(tx, asset, "fees"), balance(tx, asset, "external")) == (10, -980)
    with pytest.raises(DomainError, match=r"has 0.10 USD free, less than 0.20 USD"):
        assets.withdraw_fees(tx, "USD", 2, "0.20")


@pytest.mark.parametrize("withdraw", [assets.withdraw_liquidity, assets.withdraw_fees])
def test_withdraw_refuses_an_asset_that_is_not_in_use(tx: Work, withdraw: object) -> None:
    assert callable(withdraw)
    with pytest.raises(DomainError, match="No account is kept in XYZ"):
        withdraw(tx, "XYZ", 2, "1.00")
