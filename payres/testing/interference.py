"""Injection of faults into a sandbox server: its responses, and the events and packets that it sends."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payres.core.http.context import Context
from payres.core.protocol.amounts import Asset
from payres.core.protocol.errors import DomainError
from payres.core.store.clients import CLIENTS
from payres.core.store.events import EventRecord
from payres.core.store.payments import OUTGOING
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.interledger.carrying import Payer
from payres.interledger.node import node_of
from payres.interledger.packets import Code, Fulfill, Outcome, Prepare, Reject, Rejected, too_large_data
from payres.testing.asked import Asked, find_asked
from payres.testing.faults import SENTENCE, Fault, Met, Moment, read_body
from payres.testing.rules import Rules
from payres.webhooks.sender import Attempt, Sender, Target

if TYPE_CHECKING:
    from payres.testing.server import Server

HASH: Final = re.compile(r"(?<=[?&]hash=)[^&#]*")
FALSE_HASH: Final = "ZmFsc2U%3D"
NOTED: Final = "sandbox_fault"  # the key in a request's state
# The current request and its scope.
ANSWERED: ContextVar[tuple[Asked, Scope] | None] = ContextVar("answered", default=None)


class Sending(msgspec.Struct, eq=False):
    """A payment affected by a fault. Packets may still deliver `left`, in minor units."""

    fault: Fault
    left: int
    lock: asyncio.Lock


class Interference:
    """The faults of one server."""

    def __init__(self, server: "Server") -> None:
        self.rules: Rules[Fault] = Rules("fault")
        self._server = server
        self._payments: dict[str, Sending | None] = {}
        self._waiting: set[str] = set()

    def remove(self) -> None:
        self.rules.remove()
        self._payments.clear()
        self._waiting.clear()

    def surround(self, context: Context) -> None:
        """Wraps the senders of events and packets of a newly opened server."""
        carrier = node_of(context).payments.outbound.carrier
        _wrap(context.part(Sender), "send", self._send_event)
        _wrap(node_of(context).payments, "send", self._begin_payment)
        _wrap(carrier, "carry", self._carry)
        _wrap(carrier, "post", self._post)

    async def serve(self, answer: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, perhaps with a fault."""
        if not self.rules:
            await answer(scope, receive, send)
            return
        body, receive = await read_body(receive, self._server.settings.max_body_bytes)
        asked = Asked()
        with suppress(DomainError):  # during a reset
            asked = await self._server.read(partial(find_asked, scope=scope, body=body))
        ANSWERED.set((asked, scope))
        fault = self._use("request", asked)
        if fault is None or fault.kind.act is None:
            await answer(scope, receive, partial(self._send, send, asked, scope))
        else:
            _note(scope, fault)
            await fault.kind.act(Met(fault, asked, self._server, answer, scope, receive, send))

    def falsified(self, redirect: str, asked: Asked) -> str | None:
        """The redirect after an approval with a wrong hash, if a fault applies."""
        if HASH.search(redirect) and self._use("redirect", asked):
            return HASH.sub(FALSE_HASH, redirect)
        return None

    def _use(self, moment: Moment, asked: Asked) -> Fault | None:
        return self.rules.use(lambda fault: fault.acts(moment, asked))

    async def _send(self, send: Send, asked: Asked, scope: Scope, message: Message) -> None:
        for number, (name, value) in enumerate(message.get("headers", ())):
            if name == b"location" and (changed := self.falsified(value.decode("latin-1"), asked)) is not None:
                message["headers"][number] = name, changed.encode("latin-1")
                scope.setdefault("state", {})[NOTED] = "wrong_hash"
        await send(message)

    def _send_event(self, send: Callable[..., Any]) -> Callable[..., Any]:
        async def sent(target: Target, event: EventRecord) -> Attempt:
            address = msgspec.json.decode(event.data).get("walletAddress") if self.rules else None
            wallet = self._server.context.urls.wallet_path(address) if address else None
            if self._use("event", Asked(wallet=wallet)):
                await send(target, event)
            attempt: Attempt = await send(target, event)
            return attempt

        return sent

    def _begin_payment(self, begin: Callable[[str], None]) -> Callable[[str], None]:
        async def find(payment_id: str) -> None:
            asked, asset = await self._server.read(partial(_of_payment, payment_id=payment_id))
            fault = self._use("payment", asked)
            if fault is None:
                self._payments[payment_id] = None
            else:
                left = int(Decimal(fault.deliver or "0").scaleb(asset.scale))  # rounds down
                self._payments[payment_id] = Sending(fault, left, asyncio.Lock())
                self._server.journal.note_fault(payment_id, fault.fault)
                await asyncio.sleep(fault.wait)
            self._waiting.discard(payment_id)
            begin(payment_id)

        def begun(payment_id: str) -> None:
            if payment_id in self._waiting:
                return
            if payment_id in self._payments or not self.rules:
                begin(payment_id)
                return
            self._waiting.add(payment_id)
            self._server.begin(find(payment_id))

        return begun

    def _carry(self, carry: Callable[..., Any]) -> Callable[..., Any]:
        async def carried(payer: Payer, prepare: Prepare) -> Outcome:
            sending = self._payments.get(payer.payment_id or "")
            if sending is None or sending.fault.fault == "slow_settlement":
                outcome: Outcome = await carry(payer, prepare)
                return outcome
            async with sending.lock:
                if sending.left == 0:
                    raise Rejected(Code.UNREACHABLE, SENTENCE)
                if prepare.amount > sending.left:
                    raise Rejected(Code.AMOUNT_TOO_LARGE, SENTENCE, too_large_data(prepare.amount, sending.left))
                outcome = await carry(payer, prepare)
                if isinstance(outcome, Fulfill):
                    sending.left -= prepare.amount
                return outcome

        return carried

    def _post(self, post: Callable[..., Any]) -> Callable[..., Any]:
        async def posted(*packet: Any) -> Outcome:
            answered = ANSWERED.get()
            if answered is not None and answered[0].operation == "create-quote":
                asked, scope = answered
                if NOTED not in scope.get("state", {}) and (fault := self._use("quote", asked)):
                    _note(scope, fault)
                if scope.get("state", {}).get(NOTED) == "receiver_unreachable":
                    return Reject(Code.UNREACHABLE, message=SENTENCE)
            outcome: Outcome = await post(*packet)
            return outcome

        return posted


def _of_payment(work: Work, payment_id: str) -> tuple[Asked, Asset]:
    """A payment's creation request, and the asset of its wallet."""
    payment = OUTGOING.by_id(work, payment_id)
    wallet = WALLETS.by_id(work, payment.wallet_address_id)
    client = None if payment.client_id is None else CLIENTS.by_id(work, payment.client_id)
    return Asked("create-outgoing-payment", wallet.path, client), wallet.asset


def _note(scope: Scope, fault: Fault) -> None:
    scope.setdefault("state", {})[NOTED] = fault.fault


def _wrap(owner: Any, name: str, around: Callable[[Any], Any]) -> None:
    """Wraps a method of this object."""
    setattr(owner, name, around(getattr(owner, name)))
