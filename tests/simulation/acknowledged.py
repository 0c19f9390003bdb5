"""What servers have told apps and owners: what was acknowledged is there, what was refused is not."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from payres.core.protocol.clock import HOUR
from payres.core.store.payments import OUTGOING
from payres.core.store.work import Work
from tests.simulation.apps import App, Asked
from tests.simulation.town import Town
from tests.simulation.world import Violation

QUOTED: Final = 12 * HOUR  # for which a quote is kept at least
TWICE: Final = "SELECT quote_id FROM outgoing_payment WHERE quote_id NOTNULL GROUP BY 1 HAVING count(*) > 1"
MADE: Final[Mapping[str, str]] = {
    "incoming": "SELECT metadata, id, CAST(incoming_value AS INTEGER) FROM incoming_payment WHERE metadata NOTNULL",
    "outgoing": "SELECT metadata, id, debit, receive, receiver, grant_id FROM outgoing_payment WHERE metadata NOTNULL",
    "quote": "SELECT '', id, CAST(debit_value AS INTEGER), CAST(receive_value AS INTEGER) FROM quote",
}


async def kept(town: Town) -> None:
    """8. What was acknowledged is there as it was told, what was refused is not, and nothing was made twice."""
    found = {server.name: await server.read(_made) for server in town.servers}
    for app in town.apps:
        for asked in app.asked:
            rows = found[asked.wallet.server.name][asked.kind]
            copies = [row[1:] for row in rows if row[0] == f'{{"mark":"{asked.mark}"}}' or row[1] == asked.id]
            _compare(town, app, asked, copies)
    for server in town.servers:
        if twice := await server.rows(TWICE):
            raise Violation(f"quotes of {server.name} were paid twice: {twice}")


async def acknowledged(town: Town) -> None:
    """8. What was acknowledged is there."""
    for sent in town.sent:
        record = await sent.wallet.server.read(lambda work, id=sent.id: OUTGOING.get(work, id))  # type: ignore[misc]
        if record is None and not town.may_be_lost(sent.wallet.server, sent.id):
            raise Violation(f"the payment {sent.id} of {sent.wallet.url} was acknowledged and is gone")
        town.world.counts[f"payments {record.state if record else 'lost'}"] += 1


def _compare(town: Town, app: App, asked: Asked, copies: Sequence[tuple[Any, ...]]) -> None:
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


def _made(work: Work) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    return {kind: work.execute(sql).fetchall() for kind, sql in MADE.items()}
