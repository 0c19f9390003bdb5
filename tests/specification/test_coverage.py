"""Every part has its rules, and every rule a row that keeps it and one that breaks it."""

from collections.abc import Callable

from tests.specification.rules import PARTS, RULES
from tests.specification.scenario import Row
from tests.specification.test_amounts import ROWS as AMOUNTS
from tests.specification.test_authentication import ROWS as AUTHENTICATION
from tests.specification.test_continuation import ROWS as CONTINUATION
from tests.specification.test_errors import ROWS as ERRORS
from tests.specification.test_incoming_payments import ROWS as INCOMING_PAYMENTS
from tests.specification.test_lists import ROWS as LISTS
from tests.specification.test_official_checks import ROWS as OFFICIAL_CHECKS
from tests.specification.test_outgoing_payments import ROWS as OUTGOING_PAYMENTS
from tests.specification.test_quotes import ROWS as QUOTES

TABLES: tuple[list[Row], ...] = (
    AMOUNTS,
    AUTHENTICATION,
    CONTINUATION,
    ERRORS,
    INCOMING_PAYMENTS,
    LISTS,
    OFFICIAL_CHECKS,
    OUTGOING_PAYMENTS,
    QUOTES,
)
KEPT = {number for rows in TABLES for row in rows if row.keeps for number in row.rules}
BROKEN = {number for rows in TABLES for row in rows if not row.keeps for number in row.rules}


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
    record_property("rows", sum(map(len, TABLES)))
    record_property("rules_without_rows", len(untried))
    assert len(set(numbers)) == len(numbers)
    assert {*KEPT, *BROKEN} <= set(numbers)
    assert {rule.part for rule in RULES} == set(PARTS)
