import msgspec
import pytest

from payres.core.payments import ledger
from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.errors import DomainError
from payres.core.store import accounts
from payres.core.store import accounts as asset_store
from payres.core.store.accounts import ACCOUNTS, RateRecord
from payres.core.store.work import Work
from payres.operator import assets, wallets
from tests.works import NOW, work_at


@pytest.mark.parametrize("code", ["usd", "Usd", "usdc", "usdc.e", "x"])
def test_small_letters_are_refused_unless_they_are_in_use(tx: Work, code: str) -> None:
    """`usd` would be another currency than USD, and no receiver on another server has it."""
    for make in (
        lambda: assets.open_asset(tx, code, 2),
        lambda: assets.set_rate(tx, code, "EUR", "0.9"),
        lambda: assets.set_rate(tx, "EUR", code, "0.9"),
    ):
        with pytest.raises(DomainError, match=f"give {code.upper()}, not {code}") as refusal:
            make()
        assert refusal.value.status == 400
    assert asset_store.list_assets(tx) == []
    asset_store.ensure_asset(tx, code, 2)  # as an earlier version created it
    assert assets.set_fee(tx, code, 2, "0.10", 0).fee_fixed == 10
    assets.set_rate(tx, code, "EUR", "0.9")


@pytest.mark.parametrize("basis_points", [-1, 10_000, 2**70])
def test_fee_that_leaves_nothing_is_refused(tx: Work, basis_points: int) -> None:
    with pytest.raises(DomainError, match="basis points") as refusal:
        assets.set_fee(tx, "USD", 2, "0", basis_points)
    assert refusal.value.status == 400


@pytest.mark.parametrize(("base", "counter"), [("USD", "USD"), ("U D", "EUR"), ("USD", "")])
def test_rate_of_what_cannot_be_exchanged_is_refused(tx: Work, base: str, counter: str) -> None:
    with pytest.raises(DomainError):
        assets.set_rate(tx, base, counter, "1.5")
    assert asset_store.list_rates(tx) == []


def test_rate_of_the_operator_takes_the_place_of_those_of_the_service_until_it_is_removed(tx: Work) -> None:
    fetched = [RateRecord(*pair, "0.5", NOW, NOW + 1) for pair in (("EUR", "USD"), ("USD", "EUR"))]
    for one in fetched:
        asset_store.refresh_rate(tx, one)
    assets.set_rate(tx, "USD", "EUR", "0.92")
    assert asset_store.list_rates(tx) == [RateRecord("USD", "EUR", "0.92", NOW)]
    assets.set_rate(work_at(tx, NOW + 1), "USD", "EUR", "0.930")
    assets.set_rate(tx, "EUR", "USD", "1.1")
    own = [RateRecord("EUR", "USD", "1.1", NOW), RateRecord("USD", "EUR", "0.930", NOW + 1)]
    assert asset_store.list_rates(tx) == own, "exactly as written, and the way back stays"
    for pair in (("USD", "EUR"), ("EUR", "USD")):
        assets.remove_rate(tx, *pair)
    asset_store.refresh_rate(tx, fetched[0])
    assert asset_store.list_rates(tx) == fetched[:1]


@pytest.mark.parametrize(
    ("there", "back", "unused"),
    [("0.92", None, None), ("0.92", "1.08", None), ("0.92", "1.1", "EUR"), ("1.1", "0.92", "USD"), ("0.5", "2", None)],
)
def test_rate_that_gives_way_to_the_other_is_told(tx: Work, there: str, back: str | None, unused: str | None) -> None:
    warnings: list[str] = []
    tx.environment = msgspec.structs.replace(tx.environment, warn=warnings.append)
    assets.set_rate(tx, "USD", "EUR", there)
    if back is not None:
        assets.set_rate(tx, "EUR", "USD", back)
    assert [warning.partition(" buy ")[0] for warning in warnings] == ([f"1 {unused} does not"] if unused else [])


def balance(tx: Work, code: str, kind: str) -> int:
    return ACCOUNTS.by_id(tx, ledger.operator_account(tx, assets.require_asset(tx, code, 2).id, kind)).balance


def test_liquidity_that_payments_were_promised_stays(tx: Work) -> None:
    assets.deposit_liquidity(tx, "EUR", 2, "10.00")
    asset = assets.require_asset(tx, "EUR", 2)
    accounts.change_account(tx, ledger.operator_account(tx, asset.id, "liquidity"), 0, 400, MAX_LEDGER)
    with pytest.raises(DomainError, match=r"The liquidity in EUR with scale 2 has EUR 6.00 free") as refusal:
        assets.withdraw_liquidity(tx, "EUR", 2, "6.01")
    assert refusal.value.code == "insufficient_funds"
    assets.withdraw_liquidity(tx, "EUR", 2, "6.00")
    assert (balance(tx, "EUR", "liquidity"), balance(tx, "EUR", "external")) == (400, -400)


def test_fees_that_were_collected_are_taken_out(tx: Work) -> None:
    wallet = wallets.create_wallet(tx, "alice", "USD", 2, None, None)
    wallets.deposit(tx, "alice", "10.00")
    ledger.transfer(tx, wallet.account_id, ledger.operator_account(tx, wallet.asset_id, "fees"), 30, "fee")
    assets.withdraw_fees(tx, "USD", 2, "0.20")
    assert (balance(tx, "USD", "fees"), balance(tx, "USD", "external")) == (10, -980)
    with pytest.raises(DomainError, match=r"has USD 0.10 free, less than USD 0.20"):
        assets.withdraw_fees(tx, "USD", 2, "0.20")
    with pytest.raises(DomainError, match="No account is kept in XYZ"):
        assets.withdraw_fees(tx, "XYZ", 2, "1.00")
