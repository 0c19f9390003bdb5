"""What support may send back, at the field and in the rule."""

import pytest

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY
from payres.core.protocol.errors import InsufficientAccess
from payres.core.store import audit
from payres.core.store.accounts import ensure_asset, set_rate
from payres.core.store.work import Work
from payres.operator import operators
from payres.operator.refund_limits import ACTION, check_limit, said_at_field
from tests.instance import Instance
from tests.operator.pages.browser import PASSWORD, Browser, words_of
from tests.operator.pages.seed import fill

EUR, USD = Asset("EUR", 2), Asset("USD", 2)


def test_limit_is_said_at_the_field_and_holds_for_a_payment_and_a_day(payres: Instance) -> None:
    seeded = fill(payres)
    with Browser(payres) as browser:
        browser.follow_link("ann")
        browser.follow_link("bea", role="support")
        payres.write(lambda work: operators.set_role(work, "bea", "support", "10.00", "USD"))
        page = f"/admin/payments/{seeded.incoming}/refund"
        assert "You may send back up to USD 10.00 of a payment, and today 40.00 more in all." in browser.words(page)
        answer = browser.send(page, choice="refund", amount="10.01")
        assert (answer.status_code, 'id="amount-error"' in answer.text) == (403, True)
        assert "USD 10.01 is more than you may send back. Ask ann, or send back less." in words_of(answer)
        whole = browser.send(page, choice="refund")
        assert "USD 25.00 is more than you may send back." in words_of(whole)
        for amount, code in (("6.00", 303), ("4.01", 403), ("4.00", 303), ("0.01", 403)):
            sent = browser.send(page, choice="refund", amount=amount, password=PASSWORD)
            assert sent.status_code == code, (amount, sent.text)
            if amount == "4.01":
                left = "Of this payment USD 6.00 went back already, and you may send back USD 4.00 more of it."
                assert left in words_of(sent)
        assert "today 30.00 more in all." in browser.words(page)
        payres.write(lambda work: operators.set_role(work, "bea", "support", "2.50", "USD"))
        assert "You may send back up to USD 2.50 of a payment, and today 0.00 more in all." in browser.words(page)


def is_taken(work: Work, sent_back: int, amount: int, asset: Asset = USD) -> bool:
    try:
        check_limit(work, sent_back, amount, asset)
    except InsufficientAccess:
        return False
    return True


def test_amounts_of_other_currencies_count_by_the_rate_and_old_ones_no_more(tx: Work) -> None:
    ensure_asset(tx, "USD", 2)
    operators.make_link(tx, "ann")
    assert is_taken(tx, 0, 10**9), "who has a shell"
    operators.make_link(tx, "mel", "support", "10.00", "USD")
    operators.make_link(tx, "bea", "support")
    tx.actor = "page:bea"
    with pytest.raises(InsufficientAccess, match=r"^You may send nothing back: ask somebody who may do everything$"):
        check_limit(tx, 0, 1, USD)
    tx.actor = "page:mel"
    assert [is_taken(tx, *case) for case in ((0, 1000), (0, 1001), (600, 400), (600, 401))] == [
        True,
        False,
        True,
        False,
    ]
    assert not is_taken(tx, 0, 1, EUR), "there is no rate"
    set_rate(tx, "EUR", "USD", "2", tx.now)
    assert [is_taken(tx, 0, amount, EUR) for amount in (500, 501)] == [True, False]
    said = r"Of this payment EUR 2\.00 went back already, and you may send back EUR 3\.00 more of it$"
    with pytest.raises(InsufficientAccess, match=said):
        check_limit(tx, 200, 301, EUR)
    for amount, words in (("30.00 USD", "10.00"), ("2.50 EUR", "5.00")):
        audit.record(tx, ACTION, "a-payment", amount=amount)
        assert said_at_field(tx) == {
            "amount": f"You may send back up to USD 10.00 of a payment, and today {words} more in all."
        }
    assert [is_taken(tx, 0, amount) for amount in (500, 501)] == [True, False]
    said = r"Of this payment USD 2\.00 went back already, and you may send back USD 5\.00 more today$"
    with pytest.raises(InsufficientAccess, match=said):
        check_limit(tx, 200, 501, USD)
    said = r"Of this payment USD 10\.00 went back already, and you may send back USD 0\.00 more of it$"
    with pytest.raises(InsufficientAccess, match=said):
        check_limit(tx, 1000, 1, USD)
    tx.now += DAY
    assert is_taken(tx, 0, 1000)
    tx.actor = "page:ann"
    assert is_taken(tx, 0, 10**9)
    assert said_at_field(tx) == {}
