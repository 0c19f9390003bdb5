"""The times of a checkout."""

from typing import Any, cast

import pytest

from payres.core.protocol.clock import DAY, MINUTE, SECOND
from payres.people.checkout import LONGEST_WAIT, AskedGrant, BillCheckout
from payres.people.store.checkouts import CheckoutRecord

NOW = 1_800_000_000 * SECOND


def checkout(changed_at: int, not_before: int) -> BillCheckout:
    record = CheckoutRecord(b"1", "1", b"1", "payer", 1, "asked", changed_at)
    asked = AskedGrant(grant=cast(Any, None), resource_server="", quote="", not_before=not_before)
    return BillCheckout(record, asked, cast(Any, None), cast(Any, None))


@pytest.mark.parametrize(
    ("not_before", "seconds"), [(NOW + 5 * SECOND, 5), (NOW + LONGEST_WAIT * SECOND, LONGEST_WAIT), (NOW + 30 * DAY, 0)]
)
def test_payer_waits_for_a_minute_at_most_even_if_the_clock_was_ahead(not_before: int, seconds: int) -> None:
    assert checkout(NOW, not_before).wait(NOW) == seconds


@pytest.mark.parametrize(("changed_at", "is_late"), [(NOW, False), (NOW - 3 * MINUTE, True), (NOW + 30 * DAY, True)])
def test_money_is_overdue_after_two_minutes_or_if_the_clock_was_ahead(changed_at: int, is_late: bool) -> None:
    assert checkout(changed_at, NOW).is_late(NOW) is is_late
