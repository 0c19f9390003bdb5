"""Every part has its rules, and every rule a row that keeps it and one that breaks it."""

from collections.abc import Callable

from tests.specification import (
    test_amounts,
    test_authentication,
    test_continuation,
    test_errors,
    test_incoming_payments,
    test_lists,
    test_outgoing_payments,
    test_quotes,
)
from tests.specification.rules import PARTS, RULES

ROWS = [
    *(*test_amounts.ROWS, *test_authentication.ROWS, *test_continuation.ROWS, *test_errors.ROWS),
    *(*test_incoming_payments.ROWS, *test_lists.ROWS, *test_outgoing_payments.ROWS, *test_quotes.ROWS),
]
KEPT = {number for row in ROWS if row.code is None for number in row.rules}
BROKEN = {number for row in ROWS if row.code is not None for number in row.rules}


def test_every_part_has_rules_with_rows() -> None:
    assert [part for part in PARTS if not any(rule.part == part and rule.number in KEPT for rule in RULES)] == []


def test_every_rule_has_a_row_that_keeps_it_and_one_that_breaks_it() -> None:
    assert [rule for rule in RULES if rule.number not in KEPT] == [], "no row keeps them"
    assert [rule for rule in RULES if rule.unbreakable and rule.number in BROKEN] == [], "a row does break them"
    assert [rule for rule in RULES if not rule.unbreakable and rule.number not in BROKEN] == [], "no row breaks them"


def test_rows_name_rules_that_exist(record_property: Callable[[str, object], None]) -> None:
    numbers = [rule.number for rule in RULES]
    untried = [rule for rule in RULES if rule.number not in KEPT or not (rule.unbreakable or rule.number in BROKEN)]
    record_property("rules", len(numbers))
    record_property("rows", len(ROWS))
    record_property("rules_without_rows", len(untried))
    assert len(set(numbers)) == len(numbers)
    assert {*KEPT, *BROKEN} <= set(numbers)
    assert {rule.part for rule in RULES} == set(PARTS)
