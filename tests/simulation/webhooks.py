"""The machine that gets the webhooks of all servers, is not always well, and notes what it got; and its oracle."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payres.client import webhooks as client
from payres.client.errors import WebhookRejected
from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.identifiers import EVENT_ID, moment_of
from payres.core.store.events import EventRecord, events_after, last_sequence
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import webhooks
from payres.webhooks import rules
from tests.simulation.peace import come_to_rest
from tests.simulation.resident import Resident, listening
from tests.simulation.server import Server
from tests.simulation.town import Town, Wallet
from tests.simulation.world import Node, Violation

HAVE_ONE: Final = 0.35  # of the servers, and of the first wallets
REFUSED, LATER, SLOW, DOWN = "webhook refused", "webhook put off", "slow webhook", "webhooks down"
SHARES: Final = {REFUSED: 0.3, LATER: 0.1, SLOW: 0.15}  # of the deliveries in a storm, at most
STATUSES: Final = {REFUSED: 500, LATER: 503}
SLOW_SECONDS: Final = (2.0, 14.0, 20.0)  # payres waits for fifteen
DOWN_SECONDS: Final = (1.0, 10.0)
MOST: Final = 100_000
KEPT: Final = 29 * DAY  # that an event is there at least
TOLERATED: Final = 60 * SECOND  # by which the clock of a server may be wrong without a delivery that must be refused
OF_OWNERS: Final = ("incoming_payment.", "outgoing_payment.", "grant.", "refund.", "wallet.")
OPERATORS: Final = ("failure", "outgoingPayment")  # what owners are not told


class Hook(NamedTuple):
    """A webhook. `wallet` is None for that of a server's operator; it gets what happens after the event `since`."""

    server: Server
    wallet: Wallet | None
    secret: str
    since: int

    @property
    def path(self) -> str:
        return f"/{self.server.name}/{self.wallet.path if self.wallet else ''}"


class Hooks(Resident):
    """All webhooks, on one machine. `taken` are the bodies that were answered with a success, by the webhook's path and
    the event's id."""

    pause = 25.0

    def __init__(self, town: Town) -> None:
        super().__init__(town, "hooks")
        self.node: Final = Node(town.world, "hooks", "10.0.7.1")
        self.hooks, self.taken = list[Hook](), dict[tuple[str, str], bytes]()
        self._shares, self._protocol = dict[str, float](), listening(self._answer)

    async def prepare(self) -> None:
        self.node.boot()
        self.node.protocol = self._protocol
        for server in self.town.servers:
            for wallet in (None, next(one for one in self.town.wallets if one.server is server)):
                if self.draws.random() < HAVE_ONE:
                    await self._add(server, wallet)

    async def _add(self, server: Server, wallet: Wallet | None) -> None:
        url = f"http://hooks.test{Hook(server, wallet, '', 0).path}"

        def make(work: Work) -> Hook:
            found = wallet and require_wallet(work, wallet.path)
            added = rules.add_of_wallet(work, found, url) if found else webhooks.add(work, url)
            return Hook(server, wallet, added.secret, last_sequence(work))

        self.hooks.append(await server.write(make))

    async def live(self, seconds: float) -> None:
        """Answers some deliveries late or with an error."""
        draws = self.draws
        self._shares = {kind: draws.choice((0, most)) * draws.random() for kind, most in SHARES.items()}
        await super().live(seconds)
        self._shares = {}

    async def act(self) -> None:
        if self.world.happens(DOWN, self.world.next_of("hooks")):
            self.node.protocol = None
            await asyncio.sleep(self.draws.choice(DOWN_SECONDS))
            self.node.protocol = self._protocol

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        hook = next(one for one in self.hooks if one.path == scope["path"])
        kind, number = self.world.drawn(f"hook {hook.path}", self._shares) if self._shares else ("", "")
        kind = kind if kind and self.world.happens(kind, number) else ""
        if kind == SLOW:
            await asyncio.sleep(self.draws.choice(SLOW_SECONDS))
        id = self._verified(hook, dict(request.headers), body)
        status = STATUSES.get(kind, 204) if id else 500
        self.world.counts[f"webhooks {status}"] += 1
        if status == 204:
            self.taken[hook.path, id] = body
        await Response(None, status, {"retry-after": "90"} if status == 503 else None)(scope, receive, send)

    def _verified(self, hook: Hook, headers: dict[str, str], body: bytes) -> str:
        try:
            return client.verify(body, headers, hook.secret, clock=self.node).id
        except WebhookRejected as error:
            is_wrong = hook.server.was_wrong(self.world.microseconds)  # or was when it was sent
            elapsed = self.node.now() - int(headers["webhook-timestamp"]) * SECOND
            is_wrong |= self.world.microseconds - elapsed <= self.town.put_forward_at  # while it was under way
            if not is_wrong and abs(hook.server.now() - self.node.now()) <= TOLERATED:
                self.world.trouble.append(f"{hook.path}: {error}: {headers} {body!r}")
            return ""


async def all_taken(town: Town) -> None:
    """9. Each webhook has taken exactly the events that it is to get, as they are in the files."""
    await come_to_rest(town, with_events=True)
    for hook in town.hooks.hooks:
        wanted = {event.id: event for event in await _events_for(hook)}
        taken = {id: body for (path, id), body in town.hooks.taken.items() if path == hook.path}
        if lost := [event.type for id, event in wanted.items() if id not in taken]:
            raise Violation(f"the webhook {hook.path} has not got: {lost}")
        for id, body in taken.items():
            said = {key: one for key, one in json.loads(body).items() if key != "timestamp"}
            if id in wanted and said != _told(wanted[id], is_all=hook.wallet is None):
                raise Violation(f"the webhook {hook.path} got {body!r} for {wanted[id]}")
            moment = moment_of(id.removeprefix(EVENT_ID))
            is_lost = any(map(hook.server.has_lost, (moment, moment - TOLERATED)))  # by the server's own clock
            is_gone = moment < hook.server.now() - KEPT or is_lost
            if id not in wanted and not is_gone and not hook.server.may_have_purged(moment):
                raise Violation(f"the webhook {hook.path} got {body!r}, which never happened there")


async def _events_for(hook: Hook) -> Sequence[EventRecord]:
    def find(work: Work) -> Sequence[EventRecord]:
        found = events_after(work, hook.since, MOST)
        if hook.wallet is None:
            return found
        wallet = require_wallet(work, hook.wallet.path)
        return [one for one in found if one.wallet_address_id == wallet.id and one.type.startswith(OF_OWNERS)]

    return await hook.server.read(find)


def _told(event: EventRecord, *, is_all: bool) -> dict[str, Any]:
    """What the body says, but for the time, which the id has too."""
    data = {key: one for key, one in json.loads(event.data).items() if is_all or key not in OPERATORS}
    return {"id": event.id, "type": event.type, "sequence": event.sequence, "data": data}
