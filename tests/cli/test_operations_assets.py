import pytest

from payres.core.protocol.clock import SECOND, SystemClock, format_time
from payres.core.store.accounts import RateRecord, find_rate, refresh_rate
from payres.core.store.work import Transaction
from tests.cli.conftest import AsJson, Command


@pytest.fixture(autouse=True)
def made(payres: Command) -> None:
    payres("init")


def test_rate_set_and_list(payres: Command, as_json: AsJson, tx: Transaction) -> None:
    result = payres("rate", "set", "USD", "EUR", "0.92")
    assert (result.exit_code, result.stdout) == (0, "1 USD buys 0.92 EUR\n")
    record = find_rate(tx, "USD", "EUR")
    assert record is not None
    assert (record.rate, record.expires_at) == ("0.92", None)
    (rate,) = as_json("rate", "list")["rates"]
    assert rate.keys() == {"base", "counter", "rate", "setAt", "source"}
    assert (rate["base"], rate["counter"], rate["rate"], rate["source"]) == ("USD", "EUR", "0.92", "operator")
    assert "1 USD buys 0.92 EUR  set here  2" in payres("rate", "list").stdout
    assert payres("rate", "remove", "USD", "EUR").stdout == "The rate from USD to EUR is removed\n"
    assert as_json("rate", "list") == {"rates": []}


@pytest.mark.parametrize(("seconds", "expired", "word"), [(60, False, "holds until 2"), (-1, True, "not used, held")])
def test_rate_list_shows_what_is_from_the_service_and_until_when(
    payres: Command, as_json: AsJson, tx: Transaction, seconds: int, expired: bool, word: str
) -> None:
    now = SystemClock().now()
    refresh_rate(tx, RateRecord("USD", "EUR", "0.92", now - 90 * SECOND, now + seconds * SECOND))
    (rate,) = as_json("rate", "list")["rates"]
    assert (rate["source"], rate["expired"]) == ("service", expired)
    assert rate["expiresAt"] == format_time(now + seconds * SECOND)
    line = payres("rate", "list").stdout
    assert "1 USD buys 0.92 EUR  the rates service  2" in line
    assert word in line


@pytest.mark.parametrize(
    "named", [("EUR", "2", "7.00"), ("7.00", "--asset", "EUR", "--scale", "2"), ("--asset=EUR", "7.00", "--scale=2")]
)
def test_asset_is_named_as_for_wallets_and_in_the_old_way(as_json: AsJson, named: tuple[str, ...]) -> None:
    assert as_json("liquidity", "deposit", *named)["liquidity"] == "7.00"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("fee set --fixed 1", "Missing option '--asset'."),
        ("liquidity deposit 5", "Missing option '--asset'."),
        ("liquidity deposit EUR 2", "Missing option '--asset'."),
        ("liquidity deposit 5 --asset EUR", "Missing option '--scale'."),
        ("liquidity deposit --asset EUR --scale 2", "Missing argument 'AMOUNT'."),
        ("liquidity deposit EUR 2 5 --asset EUR --scale 2", "Got unexpected extra arguments (2 5)"),
    ],
)
def test_asset_that_is_not_named_is_a_usage_error(payres: Command, typed: str, said: str) -> None:
    result = payres(*typed.split())
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {said}")
    assert "CODE SCALE" not in payres(*typed.split()[:2], "--help").stdout


def test_fee_set_shows_in_the_asset_list(payres: Command, as_json: AsJson) -> None:
    payres("fee", "set", "USD", "2", "--fixed", "0.10", "--basis-points", "50")
    assert as_json("asset", "list")["assets"] == [
        {
            "assetCode": "USD",
            "assetScale": 2,
            "fee": {"fixed": "0.10", "basisPoints": 50},
            "liquidity": "0.00",
            "fees": "0.00",
        }
    ]
    assert payres("asset", "list").stdout == (
        "Asset  Decimals  Sending costs                                Liquidity  Fees collected\n"
        "USD    2         0.10 and 0.5 % of the amount, at least 0.11       0.00            0.00\n"
    )
    assert as_json("fee", "set", "USD", "2", "--basis-points", "7")["fee"] == {"fixed": "0.00", "basisPoints": 7}
