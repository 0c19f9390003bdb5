"""What payments cost, by a model of its own: rates and fees as operators had set them, rounded against the payer."""

from typing import Final, NamedTuple

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from tests.simulation.currencies import GRAINS
from tests.simulation.server import Server
from tests.simulation.town import Town, exchanged, moment_of
from tests.simulation.world import Violation

# With what priced them, and whether they go to another server. A refund to a wallet is a payment without a fee.
PAYMENTS: Final = (
    "SELECT o.id, coalesce(o.quote_id, o.id), o.debit, o.fee, o.receive, o.incoming_payment_id IS NULL, s.code,"
    " s.scale, o.receive_code, o.receive_scale, EXISTS (SELECT 1 FROM refund r WHERE r.return_payment_id = o.id)"
    " FROM outgoing_payment o JOIN wallet_address w ON w.id = o.wallet_address_id"
    " JOIN account a ON a.id = w.account_id JOIN asset s ON s.id = a.asset_id"
)
# Ended payments to other servers, with what their packets took.
ENDED: Final = (
    "SELECT o.id, o.state, o.debit, o.fee, o.sent, (SELECT coalesce(sum(k.source_amount), 0) FROM packet k"
    " WHERE k.outgoing_payment_id = o.id AND k.state = 'fulfilled') AS taken FROM outgoing_payment o"
    " WHERE o.incoming_payment_id IS NULL AND o.unresolved_debit = 0"
)
# What came back of payments that were refunded to their payer, who gets the share that was sent back.
BACK: Final = (
    "SELECT o.id, sum(r.amount), sum(r.returned), o.debit - o.fee, o.receive FROM refund r"
    " JOIN outgoing_payment o ON o.id = r.outgoing_payment_id GROUP BY o.id"
)
PRICING: Final = 10 * SECOND  # from reading a fee to the quote that has it, with questions to other servers
SLIPPAGE: Final = (99, 100)  # what is promised of what the rate says, if servers on the way exchange too
SMALL: Final = 120  # cents: of less, each server's rounding on the way is asked for
SLACK: Final = 4  # cents that it may take


class Terms(NamedTuple):
    """What a payment debits, with the fee in it, and what it delivers."""

    debit: int
    fee: int
    receive: int


async def priced(town: Town) -> None:
    """Each payment has the price and the fee of its day, and a part of one pays its share of the fee; a refund
    returns what was paid for it. What is rounded costs the operator nothing."""
    for server in town.servers:
        for id, source, *amounts, is_away, code, scale, to_code, to_scale, is_free in await server.rows(PAYMENTS):
            assets = Asset(code, scale), Asset(to_code, to_scale)
            if not _is_fair(town, server, Terms(*amounts), assets, moment_of(source), is_away=is_away, is_free=is_free):
                raise Violation(f"price of {id} at {server.name}, from {code} to {to_code}: {Terms(*amounts)}")
        for id, state, debit, fee, sent, taken in await server.rows(ENDED):
            share = (fee if state == "completed" else -(-fee * taken // (debit - fee))) if taken else 0
            if sent != taken + share and not town.is_disturbed(id):
                raise Violation(f"fee of {id} at {server.name}: {sent - taken} of {fee}, for {taken} of {debit - fee}")
        for id, amount, returned, paid, received in await server.rows(BACK):
            if returned != amount * paid // received:
                raise Violation(f"refunds of {id} at {server.name}: {returned} for {amount}, of {paid} for {received}")


def _is_fair(
    town: Town, server: Server, terms: Terms, assets: tuple[Asset, Asset], at: int, *, is_away: bool, is_free: bool
) -> bool:
    """Whether a payment may have had these terms: with a fixed debit amount, or with a fixed amount to receive."""
    units = [GRAINS[asset.code] for asset in assets]
    net, fees = terms.debit - terms.fee, [("0", 0)]
    is_small = is_away and (net < SMALL * units[0] or terms.receive < SMALL * units[1])
    if not is_free and (server.name, "fee", assets[0].code) in town.settings:
        fees = town.in_force(server, "fee", assets[0].code, since=at - PRICING, until=at)
    charged = {amount: [_fee(amount, assets[0], *rule) for rule in fees] for amount in (terms.debit, net)}
    for one, other in town.rates(server, *assets, at - PRICING, at):
        rate = (one * SLIPPAGE[0], other * SLIPPAGE[1]) if is_away else (one, other)
        more = terms.receive - exchanged(net - is_away, rate, is_up=is_away)
        if terms.fee in charged[terms.debit] and abs(more) <= is_small * SLACK * units[1]:
            return True
        more = net - exchanged(terms.receive, rate[::-1], is_up=not is_away) - is_away
        if terms.fee in charged[net] and 0 <= more <= is_small * SLACK * units[0]:
            return True
    return False


def _fee(amount: int, asset: Asset, fixed: str, points: int) -> int:
    whole, _, part = fixed.partition(".")
    return int(whole + part.ljust(asset.scale, "0")) + -(-amount * points // 10_000)
