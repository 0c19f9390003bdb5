"""What the Web Monetization extension (1.3.2) reads in errors: it chooses what to do by `description`.

When a request gets which of these errors is in tests/specification, where each answer has the description that its
class has for its reason.
"""

import pytest

from tests.helpers import ERRORS

ROTATES = "Invalid Token"
RENEWS_THE_RECEIVER = "invalid receiver"
SWITCHES_GRANTS_OR_IS_OUT_OF_FUNDS = "unauthorized"  # by the code
RAISES_THE_AMOUNT = "non-positive receive amount"
RECONNECTS = "invalid client"


@pytest.mark.parametrize(
    ("status", "code", "reasons", "description"),
    [
        (401, "invalid_token", ["unknown_token", "expired_token", "revoked_token"], ROTATES),
        (400, "invalid_receiver", ["expired", "no_exchange_rate"], RENEWS_THE_RECEIVER),
        (403, "limit_exceeded", ["debitAmount", "receiveAmount", "revoked_grant"], SWITCHES_GRANTS_OR_IS_OUT_OF_FUNDS),
        (403, "insufficient_funds", ["wallet"], SWITCHES_GRANTS_OR_IS_OUT_OF_FUNDS),
        (403, "insufficient_funds", ["liquidity"], "insufficient funds"),  # which the wallet's owner cannot mend
        (400, "invalid_amount", ["nothing_arrives"], RAISES_THE_AMOUNT),
        (400, "invalid_client", ["unknown_key"], RECONNECTS),
        (401, "invalid_client", ["unknown_key"], "Signature validation error: unknown_key"),
    ],
)
def test_description_is_the_one_that_the_extension_knows(
    status: int, code: str, reasons: list[str], description: str
) -> None:
    kind = ERRORS[status, code]
    assert set(reasons) <= kind.reasons.keys()
    assert {kind.described(reason) for reason in reasons} == {description}
