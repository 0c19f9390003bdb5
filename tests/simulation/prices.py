"""What payments cost, by a model of its own: rates and fees as operators set them, all rounded against the payer."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Final, NamedTuple

from tests.simulation.operators import FEES, RATES
from tests.simulation.town import USD, Town
from tests.simulation.world import Violation

HERE: Final = (
    "SELECT o.id, s.code, o.receive_code, o.debit, o.fee, o.receive FROM outgoing_payment o"
    " JOIN wallet_address w ON w.id = o.wallet_address_id JOIN account a ON a.id = w.account_id"
    " JOIN asset s ON s.id = a.asset_id WHERE o.incoming_payment_id NOTNULL"
)
# Payments to other servers of which only a part arrived, with what their packets took.
PARTS: Final = (
    "SELECT o.id, o.debit, o.fee, o.sent, (SELECT coalesce(sum(k.source_amount), 0) FROM packet k"
    " WHERE k.outgoing_payment_id = o.id AND k.state = 'fulfilled') AS taken"
    " FROM outgoing_payment o WHERE o.state = 'failed' AND o.unresolved_debit = 0"
)
# What came back of payments that were refunded to their payer, who may get no more than the share that was sent back.
BACK: Final = (
    "SELECT o.id, sum(r.amount), sum(r.returned), o.debit - o.fee, o.receive FROM refund r"
    " JOIN outgoing_payment o ON o.id = r.outgoing_payment_id GROUP BY o.id"
)


class Terms(NamedTuple):
    """What a payment debits, with the fee in it, and what it delivers."""

    debit: int
    fee: int
    receive: int


async def priced(town: Town) -> None:
    """4. Each payment has the price and the fee of its day, and a part of one pays its share of the fee; a refund
    returns what was paid for it. What is rounded costs the operator nothing."""
    for server in town.servers:
        for id, code, receive_code, *amounts in await server.rows(HERE):
            terms = Terms(*amounts)
            if terms not in _possible(terms, code, receive_code):
                raise Violation(f"price of {id} at {server.name}, from {code} to {receive_code}: {terms}")
        for id, debit, fee, sent, taken in await server.rows(PARTS):
            share = math.ceil(Fraction(fee * taken, debit - fee)) if taken else 0
            if sent != taken + share and not server.archive.losses:
                raise Violation(f"fee of {id} at {server.name}: {sent - taken} of {fee}, for {taken} of {debit - fee}")
        for id, amount, returned, paid, received in await server.rows(BACK):
            if returned > Fraction(amount * paid, received):
                raise Violation(f"refunds of {id} at {server.name}: {returned} for {amount}, of {paid} for {received}")


def _possible(terms: Terms, code: str, receive_code: str) -> Iterator[Terms]:
    """The terms that a payment with this debit, or with this amount to receive, may have had."""
    way = 0 if code == receive_code else 1 if code == USD.code else -1
    for rate, rule in product((Fraction(rate) ** way for rate in RATES), FEES if code == USD.code else FEES[:1]):
        fee, price = _fee(terms.debit, *rule), math.ceil(terms.receive / rate)
        yield Terms(terms.debit, fee, math.floor((terms.debit - fee) * rate))
        yield Terms(price + _fee(price, *rule), _fee(price, *rule), terms.receive)


def _fee(amount: int, fixed: str, points: int) -> int:
    return math.ceil(Fraction(fixed) * 100) + math.ceil(Fraction(amount * points, 10_000))
