from collections.abc import Iterator

import pytest

from payres import ledger
from payres.errors import DomainError
from payres.http.error_responses import error_response
from payres.operator import liquidity, wallets
from payres.store import accounts
from payres.store.assets import AssetRecord
from payres.store.connections import connect_writer
from payres.store.database import Transaction
from payres.store.work import Work
from tests.works import work_at

NOW = 1_700_000_000_000_000


@pytest.fixture
def tx() -> Iterator[Work]:
    connection = connect_writer(":memory:")
    yield work_at(connection, NOW)
    connection.close()


def balance(tx: Work, asset: AssetRecord, kind: str) -> int:
    return accounts.account_by_id(tx, ledger.operator_account(tx, asset.id, kind)).balance


def test_liquidity_comes_from_outside_and_goes_back(tx: Work) -> None:
    asset = liquidity.deposit_liquidity(tx, "EUR", 2, "1000.00")
    assert (balance(tx, asset, "liquidity"), balance(tx, asset, "external")) == (100_000, -100_000)
    liquidity.withdraw_liquidity(tx, "EUR", 2, "250.00")
    assert (balance(tx, asset, "liquidity"), balance(tx, asset, "external")) == (75_000, -75_000)


def test_withdraw_liquidity_leaves_what_payments_were_promised(tx: Work) -> None:
    asset = liquidity.deposit_liquidity(tx, "EUR", 2, "10.00")
    accounts.change_account(tx, ledger.operator_account(tx, asset.id, "liquidity"), 0, 400)
    with pytest.raises(DomainError, match=r"The liquidity in EUR with scale 2 has 6.00 EUR free") as refusal:
        liquidity.withdraw_liquidity(tx, "EUR", 2, "6.01")
    assert error_response(refusal.value).code == "insufficient_funds"


def test_withdraw_fees_takes_what_was_collected(tx: Work) -> None:
    wallet = wallets.create_wallet(tx, "alice", "USD", 2, None, None)
    wallets.deposit(tx, "alice", "10.00")
    ledger.transfer(tx, wallet.account_id, ledger.operator_account(tx, wallet.asset_id, "fees"), 30, "fee")
    asset = liquidity.withdraw_fees(tx, "USD", 2, "0.20")
    assert (balance(tx, asset, "fees"), balance(tx, asset, "external")) == (10, -980)
    with pytest.raises(DomainError, match=r"has 0.10 USD free, less than 0.20 USD"):
        liquidity.withdraw_fees(tx, "USD", 2, "0.20")


@pytest.mark.parametrize("withdraw", [liquidity.withdraw_liquidity, liquidity.withdraw_fees])
def test_withdraw_refuses_an_asset_that_is_not_in_use(tx: Transaction, withdraw: object) -> None:
    assert callable(withdraw)
    with pytest.raises(DomainError, match="No account is kept in XYZ"):
        withdraw(tx, "XYZ", 2, "1.00")
