"""What forms and filters read of what people type, by the kind of each input."""

import re
from typing import Any, Final

import pytest

from payres.core.protocol.errors import DomainError
from payres.operator.declared.declarations import declared
from payres.operator.declared.inputs import Input

INPUTS: Final = {(one.id, name): found for one in declared() for name, found in one.inputs.items()}
# What is written in digits: a new input of a number must be here, with how people write it on pages in English.
NUMBERS: Final = {
    "amount": {"amount", "credit_limit", "fixed", "max_", "min_", "refund_limit"},
    "rate": {"rate"},
    "percent": {"basis_points"},
    "whole": {"after", "asset_scale", "limit", "max_packet", "scale", "wait"},
}
# Other inputs are names, words, addresses, times or secrets: none of these says that it is a number.
OF_NUMBERS: Final = re.compile(r"\b(amount|decimal|units|per ?cent|number of|price|fee|limit of|at most this)\b", re.I)


@pytest.mark.parametrize(("kind", "names"), NUMBERS.items())
def test_numbers_have_the_kind_that_says_how_they_are_read(kind: str, names: set[str]) -> None:
    assert {name for (_, name), one in INPUTS.items() if one.kind_of_field == kind} == names
    others = [place for place, one in INPUTS.items() if one.name in names and one.kind_of_field != kind]
    assert not others


def test_no_text_is_a_number() -> None:
    numbers = set[str]().union(*NUMBERS.values())
    said = {
        place: one.words for place, one in INPUTS.items() if place[1] not in numbers and one.kind_of_field == "text"
    }
    assert {name for (_, name), words in said.items() if OF_NUMBERS.search(words)} <= {"q", "refund_currency"}


@pytest.mark.parametrize(
    ("kind", "typed", "read"),
    [
        *(("amount", typed, "1000.00") for typed in ("1,000.00", "1000.00", "1.000,00", "1 000.00", "1’000,00")),
        *(("amount", typed, "1000") for typed in ("1,000", "1000")),
        *(("amount", typed, "1.10") for typed in ("1.10", "1,10")),
        ("amount", "1.000", "1.000"),
        ("amount", "a lot", "a lot"),
        *(("rate", typed, "1.10") for typed in ("1.10", "1,10")),
        *(("percent", typed, "50") for typed in ("0.5", "0,5", "0.50", "0.5%", "0,5 %")),
        *(("whole", typed, "10000") for typed in ("10,000", "10000")),
        ("text", "1,000", "1,000"),
    ],
)
def test_number_is_read_as_pages_write_it(kind: str, typed: str, read: str) -> None:
    assert of_kind(kind).plain(typed) == read


@pytest.mark.parametrize(
    ("kind", "typed", "said"),
    [
        ("rate", "1,100", "1,100 can be read in two ways: write 1100 or 1.100"),
        *(
            ("percent", typed, "no share: write it like 0.5, and at most 99.99")
            for typed in ("100", "0.555", "-1", "x")
        ),
    ],
)
def test_what_is_no_such_number_is_refused_in_the_words_of_the_form(kind: str, typed: str, said: str) -> None:
    with pytest.raises(DomainError, match=re.escape(said)):
        of_kind(kind).plain(typed)


def of_kind(kind: str) -> Input:
    return next(one for one in INPUTS.values() if one.kind_of_field == kind)


@pytest.mark.parametrize("one", {one.kind_of_field: one for one in INPUTS.values()}.values(), ids=lambda one: one.name)
def test_what_a_field_shows_is_read_as_what_it_was(one: Input) -> None:
    values: dict[str, list[Any]] = {"percent": [0, 1, 50, 100, 1050, 9999], "whole": [0, 10_000]}
    for value in values.get(one.kind_of_field, ["0.10", "1000.00"]):
        assert one.plain(one.filled(value)) == str(value)
