from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from payres.core.protocol.amounts import MAX_LEDGER, MAX_VALUE, Asset, parse_decimal
from payres.core.protocol.errors import InvalidAmount
from payres.html.language import Language
from payres.html.typed_amounts import Mistyped, typed_amount, typed_decimal

USD, EUR, JPY, ONE = Asset("USD", 2), Asset("EUR", 2), Asset("JPY", 0), Asset("ONE", 1)
KWD, FINE = Asset("KWD", 3), Asset("USD", 9)
ENGLISH, GERMAN = Language("en", 0), Language("de", 0)
MEXICAN, SWISS = Language("es", 0, region="mx"), Language("de", 0, region="ch")
LANGUAGES = (ENGLISH, GERMAN, Language("es", 0), MEXICAN, SWISS)


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
        ("1 234 567,5", USD, 123456750),
        ("1\u202f234.50", USD, 123450),
        ("1'234", USD, 123400),
        ("1,234,567", JPY, 1234567),
        ("1.234.567", JPY, 1234567),
        ("1.234", KWD, 1234),
        ("0,500", KWD, 500),
        (",500", KWD, 500),
        ("1234,500", KWD, 1234500),
        ("1,5000", FINE, 1_500_000_000),
        ("5,000.000", KWD, 5_000_000),
        ("１２．５０", USD, 1250),
        ("￥１２３", JPY, 123),
        ("\u3000１２ USD\n", USD, 1200),
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
        *(
            (text, USD, "Type an amount, like 12.50.")
            for text in ("1\n2", "1 2", "12 34", "1\t234", "1\n234", "5²", "½")
        ),
        ("1.234,567", USD, "USD has 2 decimals."),
        ("1.000,", KWD, "Type an amount, like 12.500."),  # 1000, or the page's own 1.000 and a comma by mistake?
        ("1,000.", USD, "Type an amount, like 12.50."),
        ("1.005", USD, "USD has 2 decimals. Type it like 12.50, and thousands without a point."),
        ("1.05", ONE, "ONE has one decimal. Type it like 12.5, and thousands without a point."),
        ("1.5", JPY, "JPY has no decimals. Type a whole number, without points."),
        ("1.234", JPY, "JPY has no decimals. Type a whole number, without points."),
        ("0,00", USD, "Type an amount above zero."),
        ("9" * 20, USD, "This is more than this server can move at once. Type less."),
    ],
)
def test_amount_that_could_mean_something_else_is_refused(text: str, asset: Asset, said: str) -> None:
    with pytest.raises(Mistyped, match=said):
        typed_amount(ENGLISH, text, asset)


@pytest.mark.parametrize(
    ("language", "text", "asset", "said"),
    [
        (ENGLISH, "1,000", KWD, "1,000 can be read in two ways. Type 1000.000 or 1.000."),
        (ENGLISH, "KWD 12,345", KWD, "12,345 can be read in two ways. Type 12345.000 or 12.345."),
        (ENGLISH, "1,500", FINE, "1,500 can be read in two ways. Type 1500.000000000 or 1.500000000."),
        (ENGLISH, "1,000", USD, "Type 1000.00, without a mark for thousands: 1,000 can be read in two ways."),
        (ENGLISH, "1,000", JPY, "Type 1000, without a mark for thousands: 1,000 can be read in two ways."),
        (GERMAN, "1.000", KWD, "1.000 lässt sich auf zwei Arten lesen. Geben Sie 1000,000 oder 1,000 ein."),
        (
            GERMAN,
            "1.000",
            EUR,
            "Geben Sie 1000,00 ein, ohne Zeichen für Tausender: 1.000 lässt sich auf zwei Arten lesen.",
        ),
        (Language("es", 0), "1.000", KWD, "1.000 se puede leer de dos maneras. Escriba 1000,000 o 1,000."),
        (MEXICAN, "1,000", KWD, "1,000 se puede leer de dos maneras. Escriba 1000.000 o 1.000."),
        (SWISS, "1,000", KWD, "1,000 lässt sich auf zwei Arten lesen. Geben Sie 1000.000 oder 1.000 ein."),
    ],
)
def test_one_separator_that_may_be_for_thousands_is_refused(
    language: Language, text: str, asset: Asset, said: str
) -> None:
    with pytest.raises(Mistyped) as refused:
        typed_amount(language, text, asset)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("language", "text", "value"),
    [
        (MEXICAN, "1,234.50", 123450),
        (SWISS, "1’234.50", 123450),
        (SWISS, "1'234.50", 123450),
        (SWISS, "1’234", 123400),
        (GERMAN, "1.234,50", 123450),
    ],
)
def test_amount_is_read_as_the_region_writes_it(language: Language, text: str, value: int) -> None:
    assert typed_amount(language, text, USD) == value


SHOWN: tuple[Callable[[Language, int, Asset], str], ...] = (
    Language.grouped,
    Language.decimal,
    lambda language, value, asset: Markup(language.money(value, asset)).striptags(),
    lambda language, value, asset: f"{language.grouped(value, asset)} {asset.code}",
)


@given(
    st.sampled_from(LANGUAGES),
    st.one_of(st.integers(1, MAX_LEDGER), st.integers(1, 9999), st.builds(lambda n: n * 1000, st.integers(1, 9999))),
    st.integers(0, 12),
    st.sampled_from(SHOWN),
)
def test_what_a_page_shows_is_the_same_amount_when_it_is_typed_there_or_is_refused(
    language: Language, value: int, scale: int, show: Callable[[Language, int, Asset], str]
) -> None:
    asset = Asset("USD", scale)
    with suppress(Mistyped):
        assert typed_amount(language, show(language, value, asset), asset) == value
    assert typed_amount(language, language.decimal(value, asset), asset) == value, "what fields are filled with"


def test_most_is_what_the_caller_allows() -> None:
    with pytest.raises(Mistyped, match="more than this server"):
        typed_amount(ENGLISH, str(MAX_VALUE), JPY)
    assert typed_amount(ENGLISH, str(MAX_VALUE), JPY, most=MAX_VALUE) == MAX_VALUE


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("1234.50", "1234.50"),
        ("25,00", "25.00"),
        ("1.234,50", "1234.50"),
        ("1,234.50", "1234.50"),
        ("1’234.50", "1234.50"),
        ("1 234 567,5", "1234567.5"),
        ("0", "0"),
        ("0,500", "0.500"),
        (",5", "0.5"),
        ("12.", "12"),
        ("１２．５０", "12.50"),
        *((text, text) for text in ("", "x", "-5", "1e3", "1.2.3", "9" * 301, "USD 5")),  # the rule refuses these
    ],
)
@pytest.mark.parametrize("point", [".", ","])
def test_typed_amount_becomes_the_decimal_that_rules_take(text: str, point: str, decimal: str) -> None:
    assert typed_decimal(text, point) == decimal


def test_currency_may_stand_beside_a_typed_decimal() -> None:
    assert [typed_decimal(text, asset=USD) for text in ("USD 1,234.50", "12,5 usd", "$5")] == ["1234.50", "12.5", "5"]
    assert typed_decimal("5 €", asset=USD) == "5 €"


@pytest.mark.parametrize(
    ("text", "point", "said"),
    [
        ("1,234", ".", "1,234 can be read in two ways: write 1234 or 1.234"),
        ("1.234", ",", "1.234 can be read in two ways: write 1234 or 1,234"),
    ],
)
def test_typed_decimal_that_can_be_read_in_two_ways_is_refused(text: str, point: str, said: str) -> None:
    with pytest.raises(InvalidAmount, match=said):
        typed_decimal(text, point)
    assert typed_decimal(text, ".,"[point == "."]) == "1.234", "the reader's decimal mark"


@given(st.sampled_from(LANGUAGES), st.integers(0, MAX_LEDGER), st.integers(0, 12), st.sampled_from(SHOWN))
def test_what_a_page_shows_is_the_same_decimal_or_refused(
    language: Language, value: int, scale: int, show: Callable[[Language, int, Asset], str]
) -> None:
    asset = Asset("USD", scale)
    with suppress(InvalidAmount):
        assert parse_decimal(typed_decimal(show(language, value, asset), language.point, asset), asset) == value
