"""What the webhook of a server was told, compared with what the server has committed."""

from collections.abc import Collection

from payres.identifiers import event_id
from payres.store.work import Transaction
from tests.crash.server import Server
from tests.events.endpoint import Endpoint
from tests.helpers import wait_until

SINCE_WEBHOOK = "SELECT created_at, sequence FROM event WHERE created_at > (SELECT created_at FROM webhook)"
CREATED = ("incoming_payment", "outgoing_payment")


def received(endpoint: Endpoint) -> set[str]:
    """The ids of the events that the endpoint has got so far."""
    return {one.headers["webhook-id"] for one in list(endpoint.received)}


def check_told(server: Server, endpoint: Endpoint, before: Collection[str] = ()) -> int:
    """Every event of a committed change was sent, and no other ever; returns how many there are.

    An event that was lost before its commit had another id: its time was another. `before` were sent by a server that
    is no more.
    """
    committed = {event_id(*row) for row in server.select(SINCE_WEBHOOK)}

    def missing() -> set[str]:
        return committed.difference(received(endpoint), before)

    wait_until(lambda: not missing(), lambda: f"{len(missing())} of {len(committed)} were not sent")
    assert received(endpoint) <= committed
    assert server.select("SELECT count(*) FROM delivery WHERE state = 'failed'") == [(0,)]
    return len(committed)


def check_written(tx: Transaction) -> set[str]:
    """Payments and the events of their creation are there together or not at all; returns the ids of all events."""
    for table in CREATED:
        stored = set(tx.execute(f"SELECT id FROM {table}"))
        assert stored == set(tx.execute("SELECT subject FROM event WHERE type = ?", (f"{table}.created",)))
    return {event_id(*row) for row in tx.execute(SINCE_WEBHOOK)}
