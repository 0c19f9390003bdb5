from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from payres.core.protocol.amounts import (
    MAX_LEDGER,
    MAX_VALUE,
    Asset,
    Fee,
    Split,
    TooLarge,
    TooSmall,
    convert,
    convert_back,
    describe_amount,
    fee_on,
    fixed_receive,
    fixed_send,
    format_decimal,
    minimum_send,
    parse_decimal,
    parse_rate,
    unit_rate,
)

USD = Asset("USD", 2)
JPY = Asset("JPY", 0)
XRP = Asset("XRP", 9)
FREE = Fee(0, 0)
PARITY = Fraction(1)

values = st.one_of(
    st.integers(1, 10_000),
    st.integers(1, MAX_VALUE),
    st.integers(MAX_LEDGER - 2, MAX_LEDGER + 2),
    st.integers(MAX_VALUE - 2, MAX_VALUE),
)
whole_rates = st.one_of(
    st.just(PARITY),
    st.fractions(min_value=Fraction(1, 10**6), max_value=10**6, max_denominator=10**9),
    st.decimals(min_value="0.0001", max_value=10_000, places=4).map(Fraction),
)
assets = st.builds(Asset, st.just("ABC"), st.integers(0, 12))
rates = st.builds(unit_rate, whole_rates, assets, assets)
fees = st.builds(Fee, st.one_of(st.just(0), st.integers(0, 10**6)), st.one_of(st.just(0), st.integers(0, 9_999)))


@pytest.mark.parametrize(
    ("text", "asset", "value"),
    [
        ("100.00", USD, 10_000),
        ("1000", USD, 100_000),
        ("0.5", USD, 50),
        ("0.01", USD, 1),
        ("0", USD, 0),
        ("12", JPY, 12),
        ("0.000000001", XRP, 1),
        ("184467440737095516.15", USD, MAX_VALUE),
        ("0." + "0" * 254 + "3", Asset("TINY", 255), 3),
    ],
)
def test_parse_decimal_reads_what_people_write(text: str, asset: Asset, value: int) -> None:
    assert parse_decimal(text, asset) == value


NO_AMOUNTS = {
    "smallest unit is USD 0.01": (("", USD),),
    "has 3 decimals, but the smallest unit is USD 0.01": (("1.005", USD),),
    "has 3 decimals": (("1.000", USD),),
    "has 1 decimal, but the smallest unit is JPY 1": (("1.0", JPY),),
    "digits and a decimal point only": (
        *(("-1", USD), ("+1", USD), ("1e3", USD), (" 1", USD), ("1 000", USD), ("1,000.00", USD), (".5", USD)),
        *(("5.", USD), ("\u0661", USD), ("1" * 100_000, USD)),
        *(("1,000", Asset("KWD", 3)), ("1’000", USD), ("1\n2", USD), ("12\n", USD)),
    ),
    "largest amount is USD 184,467,440,737,095,516.15": (("184467440737095516.16", USD),),
}


@pytest.mark.parametrize(
    ("text", "asset", "sentence"), [(*row, sentence) for sentence, rows in NO_AMOUNTS.items() for row in rows]
)
def test_parse_decimal_refuses_with_the_smallest_unit(text: str, asset: Asset, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_decimal(text, asset)


@pytest.mark.parametrize(
    ("value", "asset", "plain", "described"),
    [
        (100_000, USD, "1000.00", "USD 1,000.00"),
        (1, USD, "0.01", "USD 0.01"),
        (0, USD, "0.00", "USD 0.00"),
        (-12_345_605, USD, "-123456.05", "USD -123,456.05"),
        (1_234_567, JPY, "1234567", "JPY 1,234,567"),
        (MAX_VALUE, XRP, "18446744073.709551615", "XRP 18,446,744,073.709551615"),
    ],
)
def test_amounts_are_shown_to_people(value: int, asset: Asset, plain: str, described: str) -> None:
    assert format_decimal(value, asset) == plain
    assert describe_amount(value, asset) == described


@given(st.integers(0, MAX_VALUE), st.integers(0, 255))
def test_format_decimal_is_read_back_unchanged(value: int, scale: int) -> None:
    asset = Asset("ABC", scale)
    assert parse_decimal(format_decimal(value, asset), asset) == value


@pytest.mark.parametrize(
    ("text", "rate"),
    [("0.92", Fraction(23, 25)), ("1", PARITY), ("1.0", PARITY), ("007.5", Fraction(15, 2)), ("150", Fraction(150))],
)
def test_parse_rate_is_exact(text: str, rate: Fraction) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "0", "0.000", "-1", "+1", "1/2", "1e3", " 1", ".5", "1.", "1_0", "nan", "inf", "\u0661", "1" * 65]
)
def test_parse_rate_refuses_everything_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"decimal number above zero .* such as 0\.92"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("amount", "fee", "charge"),
    [
        (10_000, FREE, 0),
        (10_000, Fee(25, 0), 25),
        (10_000, Fee(0, 100), 100),
        (10_001, Fee(0, 100), 101),
        (1, Fee(0, 1), 1),
        (0, Fee(3, 100), 3),
        (MAX_VALUE, Fee(0, 1), 1_844_674_407_370_956),
    ],
)
def test_fee_on_rounds_up(amount: int, fee: Fee, charge: int) -> None:
    assert fee_on(amount, fee) == charge


@pytest.mark.parametrize(("fixed", "basis_points"), [(-1, 0), (0, -1), (0, 10_000)])
def test_fee_refuses_what_is_no_fee(fixed: int, basis_points: int) -> None:
    with pytest.raises(ValueError, match=r"^a (fixed )?fee "):
        Fee(fixed, basis_points)


@given(values, whole_rates, assets, assets)
def test_conversion_agrees_with_decimal_arithmetic(amount: int, rate: Fraction, one: Asset, other: Asset) -> None:
    with localcontext(prec=200):  # far more digits than any of these quotients needs to be told from a whole number
        factor = Decimal(rate.numerator).scaleb(other.scale - one.scale)
        exact = Decimal(amount) * factor / rate.denominator
        price = Decimal(amount) * rate.denominator / factor
        assert convert(amount, unit_rate(rate, one, other)) == exact.to_integral_value(ROUND_FLOOR)
        assert convert_back(amount, unit_rate(rate, one, other)) == price.to_integral_value(ROUND_CEILING)


@given(values, rates)
def test_converting_there_and_back_never_gains(amount: int, rate: Fraction) -> None:
    assert convert_back(convert(amount, rate), rate) <= amount
    assert convert(convert_back(amount, rate), rate) >= amount
    assert convert(convert(amount, rate), 1 / rate) <= amount


@given(values, rates)
def test_price_is_the_least_that_delivers(amount: int, rate: Fraction) -> None:
    price = convert_back(amount, rate)
    assert convert(price, rate) >= amount
    assert convert(price - 1, rate) < amount


def test_fixed_send_takes_the_fee_out() -> None:
    assert fixed_send(10_000, Fee(25, 100), Fraction("0.92")) == Split(debit=10_000, receive=9_085, fee=125)


def test_fixed_receive_puts_the_fee_on_top() -> None:
    # 9085 / 0.92 is 9875 exactly; the fee is 25 + ceil(98.75).
    assert fixed_receive(9_085, Fee(25, 100), Fraction("0.92")) == Split(debit=9_999, receive=9_085, fee=124)


def test_terms_cross_scales() -> None:
    to_nano = unit_rate(PARITY, USD, XRP)
    assert fixed_send(1, FREE, to_nano) == Split(1, 10_000_000, 0)
    assert fixed_receive(10_000_001, FREE, to_nano) == Split(2, 10_000_001, 0)


def test_terms_are_exact_at_the_edges_of_uint64() -> None:
    assert fixed_send(MAX_VALUE, FREE, PARITY) == Split(MAX_VALUE, MAX_VALUE, 0)
    assert fixed_receive(MAX_VALUE, FREE, PARITY) == Split(MAX_VALUE, MAX_VALUE, 0)
    assert fixed_receive(MAX_VALUE - 1, Fee(1, 0), PARITY) == Split(MAX_VALUE, MAX_VALUE - 1, 1)
    assert fixed_send(MAX_LEDGER, Fee(0, 1), PARITY).receive == MAX_LEDGER - 922_337_203_685_478


def test_terms_beyond_uint64_are_refused() -> None:
    with pytest.raises(TooLarge):
        fixed_receive(MAX_VALUE, Fee(1, 0), PARITY)
    with pytest.raises(TooLarge):
        fixed_send(MAX_VALUE + 1, FREE, unit_rate(PARITY, USD, JPY))
    with pytest.raises(TooLarge):
        fixed_send(MAX_VALUE // 10 + 1, FREE, Fraction(10))
    with pytest.raises(TooLarge):
        fixed_receive(MAX_VALUE, FREE, Fraction(1, 2))


@pytest.mark.parametrize(
    ("fee", "rate", "minimum"),
    [
        (FREE, PARITY, 1),
        (FREE, Fraction("0.92"), 2),
        (Fee(25, 0), PARITY, 26),
        (Fee(0, 100), PARITY, 2),
        (Fee(25, 100), Fraction("0.01"), 127),
        (Fee(0, 9_999), PARITY, 10_000),
        (FREE, Fraction(1, 10**7), 10_000_000),
    ],
)
def test_too_small_names_the_smallest_debit_that_works(fee: Fee, rate: Fraction, minimum: int) -> None:
    assert minimum_send(fee, rate) == minimum
    with pytest.raises(TooSmall, match=str(minimum)) as refused:
        fixed_send(minimum - 1, fee, rate)
    assert refused.value.minimum == minimum
    assert fixed_send(minimum, fee, rate).receive >= 1


@pytest.mark.parametrize("receive", [0, -1])
def test_fixed_receive_of_nothing_is_too_small(receive: int) -> None:
    with pytest.raises(TooSmall) as refused:
        fixed_receive(receive, Fee(25, 0), PARITY)
    assert refused.value.minimum == 26


@given(fees, rates)
def test_minimum_send_works_and_one_less_does_not(fee: Fee, rate: Fraction) -> None:
    minimum = minimum_send(fee, rate)
    assume(minimum <= MAX_VALUE and convert(minimum, rate) <= MAX_VALUE)
    assert fixed_send(minimum, fee, rate).receive >= 1
    with pytest.raises(TooSmall):
        fixed_send(minimum - 1, fee, rate)


@given(values, fees, rates)
def test_fixed_send_delivers_no_more_than_was_paid_for(debit: int, fee: Fee, rate: Fraction) -> None:
    if debit < minimum_send(fee, rate):
        with pytest.raises(TooSmall):
            fixed_send(debit, fee, rate)
        return
    try:
        terms = fixed_send(debit, fee, rate)
    except TooLarge:
        assert debit * rate > MAX_VALUE
        return
    assert terms.debit == debit
    assert 0 <= terms.fee < debit
    # The exact worth of what is left after the fee, before rounding.
    worth = (debit - terms.fee) * rate
    assert worth - 1 < terms.receive <= worth


@given(values, fees, rates)
def test_fixed_receive_is_paid_for_in_full(receive: int, fee: Fee, rate: Fraction) -> None:
    try:
        terms = fixed_receive(receive, fee, rate)
    except TooLarge:
        price = convert_back(receive, rate)
        assert price + fee_on(price, fee) > MAX_VALUE
        return
    source = terms.debit - terms.fee
    assert terms.receive == receive
    assert convert(source, rate) >= receive
    assert convert(source - 1, rate) < receive
    assert terms.fee == fee_on(source, fee)


@given(values, values, fees, rates)
def test_sending_more_never_delivers_less(one: int, other: int, fee: Fee, rate: Fraction) -> None:
    less, more = sorted((one, other))
    assume(convert(more, rate) <= MAX_VALUE and less >= minimum_send(fee, rate))
    assert fixed_send(less, fee, rate).receive <= fixed_send(more, fee, rate).receive
