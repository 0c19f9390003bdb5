import pytest

from payres.amounts import Asset
from payres.pages.amounts import Mistyped, typed_amount
from payres.pages.language import Language

USD, EUR, JPY, ONE = Asset("USD", 2), Asset("EUR", 2), Asset("JPY", 0), Asset("ONE", 1)
ENGLISH = Language("en", 0)


@pytest.mark.parametrize(
    ("text", "asset", "value"),
    [
        ("12", USD, 1200),
        ("12.5", USD, 1250),
        (" 12,50 ", USD, 1250),
        ("12.", USD, 1200),
        ("007", USD, 700),
        ("1,234.50", USD, 123450),
        ("1.234,5", USD, 123450),
        ("1’234.50", USD, 123450),
        ("1,234,567", USD, 123456700),
        ("USD 5", USD, 500),
        ("5 USD", USD, 500),
        ("5 usd", USD, 500),
        ("$5", USD, 500),
        ("5,00 €", EUR, 500),
        (",5", USD, 50),
        (".05", USD, 5),
        ("1,234", JPY, 1234),
        ("1.234.567", JPY, 1234567),
    ],
)
def test_amount_is_read_as_people_write_it(text: str, asset: Asset, value: int) -> None:
    assert typed_amount(ENGLISH, text, asset) == value


@pytest.mark.parametrize(
    ("text", "asset", "said"),
    [
        *(
            (text, USD, "Type an amount, like 12.50.")
            for text in ("", ".", "1.2.3", "1,23.4", "0x10", "1e3", "-1", "+1")
        ),
        *(
            (text, USD, "Type an amount, like 12.50.")
            for text in ("١٢", "9" * 301, "1,234,567,89", "€5", "5 EUR", "$", ",")
        ),
        ("1,000", USD, "USD has 2 decimals. Type it like 12.50, and thousands without a point."),
        ("1.234,567", USD, "USD has 2 decimals."),
        ("1.005", USD, "USD has 2 decimals. Type it like 12.50, and thousands without a point."),
        ("1.05", ONE, "ONE has one decimal. Type it like 12.5, and thousands without a point."),
        ("1.5", JPY, "JPY has no decimals. Type a whole number, without points."),
        ("0,00", USD, "Type an amount above zero."),
        ("9" * 20, USD, "This is more than this server can move at once. Type less."),
    ],
)
def test_amount_that_could_mean_something_else_is_refused(text: str, asset: Asset, said: str) -> None:
    with pytest.raises(Mistyped, match=said):
        typed_amount(ENGLISH, text, asset)
