"""What the webhook of a server was told, compared with what the server has committed."""

from collections.abc import Collection

from payres.core.protocol.identifiers import event_id
from payres.core.store.work import Transaction
from tests.crash.server import Server
from tests.helpers import wait_until
from tests.webhooks.endpoint import Endpoint

SINCE_WEBHOOK = "SELECT created_at, sequence FROM event WHERE created_at > (SELECT created_at FROM webhook)"
LOOK_SECONDS = 0.1  # between two looks, which take a while with so many, in the endpoint's own process
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

    # After hundreds of kills that is tens of thousands, which take their time: what counts is that they become fewer.
    while left := len(missing()):
        wait_until(lambda: len(missing()) < left, f"{left} of {len(committed)} are not sent", pause=LOOK_SECONDS)
    assert received(endpoint) <= committed
    assert server.select("SELECT count(*) FROM delivery WHERE state = 'failed'") == [(0,)]
    return len(committed)


def check_written(tx: Transaction) -> set[str]:
    """Payments and the events of their creation are there together or not at all; returns the ids of all events."""
    for table in CREATED:
        stored = set(tx.execute(f"SELECT id FROM {table}"))
        assert stored == set(tx.execute("SELECT subject FROM event WHERE type = ?", (f"{table}.created",)))
    return {event_id(*row) for row in tx.execute(SINCE_WEBHOOK)}
