"""What must hold between the book of the foreign server and those of payres, within what each can know."""

from collections import Counter
from typing import Final

from tests.simulation.foreign import Foreign
from tests.simulation.server import Server
from tests.simulation.town import Town
from tests.simulation.world import Violation

SENT: Final = (
    "SELECT o.receiver, sum(k.amount) FROM packet k JOIN peer p ON p.id = k.to_peer_id JOIN outgoing_payment o"
    " ON o.id = k.outgoing_payment_id WHERE p.ilp_address = ? AND k.state = 'fulfilled' GROUP BY o.receiver"
)
ARRIVED: Final = (
    "SELECT coalesce(t.incoming_payment_id, ''), t.amount FROM transfer t"
    " JOIN peer p ON p.account_id = t.debit_account_id WHERE p.ilp_address = ?"
)
PROMISED: Final = (
    "SELECT receiver, sum(receive) FROM outgoing_payment WHERE state = 'completed' AND receiver LIKE ?"
    " GROUP BY receiver"
)


async def foreign_books(town: Town) -> None:
    """What payres counts as paid to a server that repeats nothing has arrived there, and what that server counts as
    paid is here, and no more, but for packets that came late or had no answer. What is completed delivered its promise.
    """
    if town.foreign is None:
        return
    promised = Counter[str]()
    for server in town.servers:
        await _check_sent(town.foreign, server)
        await _check_arrived(town.foreign, server)
        promised.update(dict(await server.rows(PROMISED, f"{town.foreign.base_url}/%")))
    for url, value in promised.items():
        received = town.foreign.bills[url.rpartition("/")[2]].received
        if received < value and url not in town.foreign.lied:
            raise Violation(f"paid abroad into {url}: {value} were promised and completed, {received} arrived")


async def _check_sent(foreign: Foreign, server: Server) -> None:
    sent, prompt, late = Counter(dict(await server.rows(SENT, foreign.ilp))), Counter[str](), Counter[str]()
    for one in foreign.taken.values():
        if one.link == server.name:
            (late if one.is_late else prompt)[one.bill] += one.amount
    for url in {**sent, **prompt, **late}:
        # One that told another amount than had arrived may be paid less than arrived.
        if not (prompt[url] <= sent[url] or url in foreign.lied) or sent[url] > prompt[url] + late[url]:
            counted = f"{server.name} counts {sent[url]}, {prompt[url]} arrived and {late[url]} late"
            raise Violation(f"paid abroad into {url}: {counted}")


async def _check_arrived(foreign: Foreign, server: Server) -> None:
    """Packet by packet."""
    known, unknown = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for one in foreign.posted:
        if one.link == server.name and not one.lie and (one.arrived is not None or not one.is_known):
            (unknown if one.arrived is None else known)[one.receiver.rpartition("/")[2], one.amount] += 1
    arrived = Counter((id, amount) for id, amount in await server.rows(ARRIVED, foreign.ilp))
    if (lost := known - arrived) or (more := arrived - known - unknown):
        raise Violation(f"paid from abroad at {server.name}: not there {lost}, never sent {more if not lost else {}}")
