"""What must hold in peace, whatever happened before. Each raises Violation with what it found."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import HOUR
from payres.core.store.work import Work
from payres.operator.upkeep import invariant_checks
from tests.simulation.apps import App, Asked
from tests.simulation.bills import ended, paid
from tests.simulation.foreign_oracles import foreign_books
from tests.simulation.hops import carried
from tests.simulation.limits import limited, spendable, usable
from tests.simulation.mails import mailed
from tests.simulation.operators import credited, moved, overwritten, refunded
from tests.simulation.payers import meant
from tests.simulation.peace import on_time
from tests.simulation.prices import priced
from tests.simulation.restores import STANDING, disturbed
from tests.simulation.rights import rightful
from tests.simulation.standing_orders import kept_orders
from tests.simulation.told import told
from tests.simulation.town import Town
from tests.simulation.unresolved import resolved
from tests.simulation.visitors import paid_pages
from tests.simulation.webhooks import all_taken
from tests.simulation.world import Violation

Oracle = Callable[[Town], Awaitable[None]]
HELD: Final = "SELECT kind, id, held FROM account WHERE held <> 0"
# With what is owed to those who are in no town.
SUMS: Final = (
    "SELECT s.code, s.scale, sum(a.balance) FROM account a JOIN asset s ON s.id = a.asset_id LEFT JOIN peer p"
    " ON p.account_id = a.id WHERE a.kind IN ('wallet', 'fees', 'liquidity')"
    " OR p.ilp_address IN ('test.foreign', 'test.payer') GROUP BY s.id"
)
QUOTED: Final = 12 * HOUR  # for which a quote is kept at least
TWICE: Final = "SELECT quote_id FROM outgoing_payment WHERE quote_id NOTNULL GROUP BY 1 HAVING count(*) > 1"
MADE: Final[Mapping[str, str]] = {
    "incoming": "SELECT metadata, id, CAST(incoming_value AS INTEGER) FROM incoming_payment WHERE metadata NOTNULL",
    "outgoing": "SELECT metadata, id, debit, receive, receiver, grant_id FROM outgoing_payment WHERE metadata NOTNULL",
    "quote": "SELECT '', id, CAST(debit_value AS INTEGER), CAST(receive_value AS INTEGER) FROM quote",
}


async def ledgers(town: Town) -> None:
    """Every invariant of every file holds. A fail-stop ends the world by itself."""
    for server in town.servers:
        examine = partial(server.context.database.examine, invariant_checks.check)
        broken = invariant_checks.first_broken(await server.ask(examine))
        if broken is not None:
            raise Violation(f"ledger of {server.name}: {broken.name}: {broken.breaches}")


async def mirrors(town: Town) -> None:
    """When all is resolved, what one server owes a peer, the peer has to get, but for what was paid outside. A
    restore costs no more than what moved since the backup, and that for good."""
    standing = {server: {peer: owed for peer, owed, _ in await server.rows(STANDING)} for server in town.servers}
    for one, other in town.links:
        here, there = standing[one][f"test.{other.name}"], standing[other][f"test.{one.name}"]
        lost = [loss.bounds[b.name] for a, b in ((one, other), (other, one)) for loss in a.archive.unsettled]
        if abs(here + there - town.missing[one, other]) > sum(lost):
            missing = town.missing[one, other]
            raise Violation(f"books of peers: {one.name} {here}, {other.name} {there}, missing {missing}")
        if lost:
            town.missing[one, other] = here + there
    for server in town.servers:
        server.archive.unsettled.clear()


async def holds(town: Town) -> None:
    """Nothing is held when nothing is under way."""
    for server in town.servers:
        if held := await server.rows(HELD):
            raise Violation(f"holds of {server.name} remain: {held}")


async def money(town: Town) -> None:
    """Wallets, fees and liquidity of all servers are what came from outside."""
    sums: Counter[Asset] = Counter()
    for server in town.servers:
        for code, scale, balance in await server.rows(SUMS):
            sums[Asset(code, scale)] += balance
    for one, other in town.links:
        sums[town.currency_of(one, other)] += town.missing[one, other]
    for asset, given in town.given.items():
        if sums[asset] != given:
            raise Violation(f"{asset.code}: {given} came from outside, {sums[asset]} are there")


async def loops(town: Town) -> None:
    """No exception reached a loop."""
    if town.world.trouble:
        raise Violation(f"unhandled: {town.world.trouble[:3]}")


async def rows(town: Town) -> None:
    """Adds every row to the hash of the seed."""
    for server in town.servers:
        found = await server.read(lambda work: list(_rows(work)))
        town.world.note("rows", server.name, found)


def _rows(work: Work) -> Iterator[str]:
    tables = work.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (table,) in tables:
        for row in work.execute(f'SELECT * FROM "{table}"'):
            yield f"{table} {row!r}"


async def kept(town: Town) -> None:
    """What was acknowledged is there as it was told, what was refused is not, and nothing was made twice."""
    found = {one.name: {kind: await one.rows(sql) for kind, sql in MADE.items()} for one in town.servers}
    for app in town.apps:
        for asked in app.asked:
            rows = found[asked.wallet.server.name][asked.kind]
            copies = [row[1:] for row in rows if row[0] == f'{{"mark":"{asked.mark}"}}' or row[1] == asked.id]
            _compare_asked(town, app, asked, copies)
    for server in town.servers:
        if twice := await server.rows(TWICE):
            raise Violation(f"quotes of {server.name} were paid twice: {twice}")


def _compare_asked(town: Town, app: App, asked: Asked, copies: Sequence[tuple[Any, ...]]) -> None:
    is_lost, is_repeated = asked.wallet.server.has_lost(asked.asked_at), _was_repeated(town, app, asked)
    if asked.state == "made":
        is_gone = (asked.id, *asked.values) not in copies
        is_short = asked.kind == "quote" or (asked.kind == "incoming" and asked.values == (None,))
        if is_short and town.world.microseconds - asked.asked_at > QUOTED:
            is_gone = False  # what nobody paid
        if asked.kind != "outgoing" and asked.wallet.server.may_have_purged(asked.asked_at):
            is_gone = bool(copies) and is_gone
        if is_gone and not is_lost:
            raise Violation(f"{asked} was acknowledged, and there is {copies}")
    elif asked.state == "refused" and copies and not is_repeated:
        raise Violation(f"{asked} was refused, and there is {copies}")
    if len(copies) > 1 and (asked.is_once or not (is_repeated or app.retries)):
        raise Violation(f"{asked} was made {len(copies)} times: {copies}")


def _was_repeated(town: Town, app: App, asked: Asked) -> bool:
    """Whether a copy of the request, or of another at the same time, came later by another way."""
    pair, begun, ended = f"{app.name}>{asked.wallet.server.name} ", asked.began - 0.01, asked.ended + 0.01
    repeated = [fault.at for fault in town.world.faults if fault.kind == "repeated" and fault.name.startswith(pair)]
    return any(begun <= at <= ended for at in repeated)


# In this order: what comes first pays once more, or compares books and notes what a later one counts by.
FIRST: Final[tuple[Oracle, ...]] = (disturbed, on_time, usable, spendable, limited, kept, ledgers)
BOOKS: Final[tuple[Oracle, ...]] = (
    *(rightful, overwritten, meant, resolved, foreign_books, mirrors, holds),
    *(moved, refunded, credited, priced, money, paid, carried),
)
LAST: Final = (ended, kept_orders, paid_pages, mailed, told, all_taken, loops, rows)
ALL: Final[tuple[Oracle, ...]] = (*FIRST, *BOOKS, *LAST)
