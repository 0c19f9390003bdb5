"""What must hold of grants: none that an owner allowed is lost with an answer, and their limits hold by a count of our
own."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from payres.client.errors import OpenPaymentsError
from tests.simulation.apps import Allowance, App, Limit, amount_of
from tests.simulation.periods import PERIODS
from tests.simulation.town import Town, moment_of
from tests.simulation.world import Violation

CLOCKS: Final = 30_000_000  # microseconds by which a server's clock may be set back in a storm
SETTLING: Final = 5.0  # seconds until all that follows from a payment was done
LATEST_ENDED: Final = 3  # tokens of each app that are tried again
LATEST_GRANTS: Final = 4  # of each app, of which one is spent
SOMETHING: Final = 50  # minor units, more than a fee
SHORT: Final = ("PT15S", "PT20S")  # intervals that may end while a limit is tried
LAPSED: Final = "approval_expired"  # it was not continued within an hour of some clock, or was made long ago by it
PAID: Final = (
    "SELECT id, created_at, coalesce(ended_at, 0), receive_code, receiver, {} FROM outgoing_payment WHERE grant_id = ?"
)
# What rounding adds to a quote on its way counts for nobody.
COUNTED: Final[Mapping[str, str]] = {
    "debit": "debit, sent, unresolved_debit",
    "receive": "receive, min(delivered, receive), unresolved_receive",
}


class Payment(NamedTuple):
    """A payment under a grant. What is `unresolved` may count or not."""

    id: str
    created_at: int
    ended_at: int
    asset_code: str
    receiver: str
    wanted: int
    used: int
    unresolved: int


async def usable(town: Town) -> None:
    """11. What was consented to and not ended can be used, by the app that has asked for it."""
    for app in town.apps:
        for allowance in [*app.consents, *app.allowances]:
            if not allowance.is_over:
                await app.node.run(_use(app, allowance))


async def _use(app: App, allowance: Allowance) -> None:
    try:
        if allowance in app.consents:
            await app.take(allowance)
        await app.client.outgoing_payment.list(app.addresses[allowance.wallet], allowance.grant)
    except OpenPaymentsError as refused:
        allowance.is_over, server = True, allowance.wallet.server
        may_fail = server.was_restored_after(allowance.given)
        if allowance in app.consents:
            app.consents.remove(allowance)
            may_fail |= getattr(refused.__cause__, "reason", "") == LAPSED or server.was_wrong(allowance.given)
        if not may_fail:
            raise Violation(f"{app.name} cannot use grant {allowance.id}: {refused}") from refused


async def spendable(town: Town) -> None:
    """7. What is left of a limit can be spent, and no more; and servers say so. What was ended is refused still."""
    for app in town.apps:
        await app.node.run(_try_grants(app))
    await asyncio.sleep(SETTLING)


async def _try_grants(app: App) -> None:
    for wallet, token in app.ended[-LATEST_ENDED:]:
        await app.is_refused(wallet, token)
    for allowance in [one for one in app.allowances if not one.is_over][-LATEST_GRANTS:]:
        left, limit = await _left(app, allowance), allowance.limit
        if left is None or limit is None:
            continue
        is_over = window_of(limit, allowance.wallet.server.now()) is None
        if is_over or (limit.duration not in SHORT and not limit.receiver):
            await _try_limit(app, allowance, limit, left)
            return


async def _left(app: App, allowance: Allowance) -> int | None:
    """What may still be spent, after comparing that with what the server says; None if it is not known."""
    limit, server = allowance.limit, allowance.wallet.server
    payments, before = await _payments(allowance), server.now()
    address = app.addresses[allowance.wallet]
    told = await app.client.outgoing_payment.get_grant_spent_amounts(address, allowance.grant)
    window = window_of(limit, before)
    if window_of(limit, server.now()) != window:
        return None
    found = told.spent_receive_amount if limit and limit.of == "receive" else told.spent_debit_amount
    spent = int(found.value) if found else 0
    counted = [one for one in payments if window_of(limit, one.created_at) == window]
    least, unresolved = sum(one.used for one in counted), sum(one.unresolved for one in counted)
    if not least <= spent <= least + unresolved:
        raise Violation(f"grant {allowance.id} with {limit}: {spent} are told to be spent, but {counted} are")
    return None if limit is None else 0 if window is None else max(limit.value - spent, 0)


async def _try_limit(app: App, allowance: Allowance, limit: Limit, left: int) -> None:
    """Pays more than is left, which must be refused, and then what is left, which must not."""
    payees = [one for one in app.town.wallets if one.server is allowance.wallet.server and one is not allowance.wallet]
    payee = next((one for one in payees if limit.of == "debit" or one.asset == limit.asset), None)
    bill = payee and await app.ask_for(payee, None)
    if not bill:
        return
    for value in (left + 1, left) if left else (SOMETHING,):
        quote = await app.quote(allowance.wallet, bill.id, **{f"{limit.of}_amount": amount_of(value, limit.asset)})
        if quote is None:
            return  # too little for the fee, or too much for the liquidity
        asked = await app.pay(allowance, quote=quote)
        is_over = value > left
        if asked.state == "made" if is_over else "limit_exceeded" in asked.answers:
            raise Violation(f"grant {allowance.id} with {limit}, {left} left: {asked}")
        app.world.counts[f"apps: limits {'exceeded' if is_over else 'spent'}: {asked.state}"] += 1


async def limited(town: Town) -> None:
    """7. What the payments of a grant debit or deliver in a window was within its limit at each of them."""
    for allowance in [one for app in town.apps for one in app.allowances if one.limit]:
        payments = await _payments(allowance)
        for index, payment in enumerate(payments):
            _check(allowance, payments[:index], payment)


def _check(allowance: Allowance, earlier: Sequence[Payment], payment: Payment) -> None:
    limit, window = allowance.limit, window_of(allowance.limit, payment.created_at)
    counted = [
        one.used if one.ended_at <= payment.created_at + CLOCKS or allowance.wallet.server.wrong else one.wanted
        for one in earlier
        if window_of(limit, one.created_at) == window
    ]
    assert limit is not None
    is_wrong = limit.receiver not in ("", payment.receiver)
    is_wrong |= limit.of == "receive" and payment.asset_code != limit.asset.code
    if window is None or sum(counted) + payment.wanted > limit.value or is_wrong:
        raise Violation(f"grant {allowance.id} with {limit}: in window {window} {counted}, and then {payment}")


async def _payments(allowance: Allowance) -> Sequence[Payment]:
    sql = PAID.format(COUNTED[allowance.limit.of if allowance.limit else "debit"])
    found = [Payment(*row) for row in await allowance.wallet.server.rows(sql, allowance.id)]
    return sorted(found, key=lambda one: moment_of(one.id))


def window_of(limit: Limit | None, moment: int) -> int | None:
    """The number of the window that has this moment of the server's clock; None if none has."""
    if limit is None or not limit.duration:
        return 0
    number = PERIODS[limit.duration].number(limit.start, moment)
    return number if number >= 0 and (limit.repeated is None or number <= limit.repeated) else None
