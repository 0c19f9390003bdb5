"""Faults that tests inject into a sandbox server, to see how an app handles them: in its responses, and in the events
and packets that it sends."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payres.core.grants import tokens
from payres.core.http.context import Context
from payres.core.http.responses import CutShort, json_error
from payres.core.protocol.amounts import Asset
from payres.core.protocol.errors import (
    DomainError,
    InvalidRequest,
    ServerFailed,
    TooManyRequests,
    Unavailable,
    WrongState,
)
from payres.core.protocol.urls import Urls
from payres.core.store.clients import CLIENTS
from payres.core.store.events import EventRecord
from payres.core.store.grants import TOKENS
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Units, Work
from payres.interledger.carrier import Payer
from payres.interledger.node import node_of
from payres.interledger.outbound import Carry, Post
from payres.interledger.packets import Code, Fulfill, Outcome, PacketRejected, Prepare, Reject, too_large_data
from payres.operator import peers
from payres.testing.asked import Asked, find_asked
from payres.testing.journal import Journal
from payres.testing.names import require_known, require_operation, with_known
from payres.testing.request_rules import KeptRule, RequestRule, Rules
from payres.webhooks.sender import Sender

SENTENCE: Final = "A fault of the sandbox, as the test has asked for"
AMOUNT: Final = r"^[0-9]{1,15}(\.[0-9]{1,15})?$"
HASH: Final = re.compile(r"(?<=[?&]hash=)[^&#]*")
FALSE_HASH: Final = "ZmFsc2U%3D"
NOTED: Final = "sandbox_fault"  # the key in a request's state
# The current request and its scope.
ANSWERED: ContextVar[tuple[Asked, Scope] | None] = ContextVar("answered", default=None)
# What a fault needs, as the security schemes of operations have it.
NEEDED: Final = {"token": "gnap", "signature": "signature"}
# The target of a fault: a request, the redirect after a decision, an event, or the packets of a quote or payment.
FaultTarget = Literal["request", "redirect", "event", "quote", "payment"]
# The operations that faults of packets happen to.
OF_PACKETS: Final[Mapping[FaultTarget, str]] = {"quote": "create-quote", "payment": "create-outgoing-payment"}


class FaultRule(RequestRule, frozen=True, kw_only=True):
    """`operation` is a published operationId. The first `skip` matching requests are unaffected. `seconds` is a delay;
    `deliver` the part of a payment that is delivered, as a decimal."""

    fault: str
    times: Annotated[int, Meta(ge=1)] | None = 1
    operation: str | None = None
    skip: Annotated[int, Meta(ge=0)] = 0
    seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    deliver: Annotated[str, Meta(pattern=AMOUNT)] | None = None

    @property
    def kind(self) -> "FaultKind":
        return KINDS[self.fault]

    @property
    def wait(self) -> float:
        return self.seconds if self.seconds is not None else self.kind.seconds or 0

    def lets_pass(self, fitted: int) -> bool:
        return fitted < self.skip

    def acts(self, moment: FaultTarget, asked: Asked) -> bool:
        is_there = self.kind.needs is None or getattr(asked, self.kind.needs)
        is_asked = self.operation in {None, asked.operation}
        return moment in self.kind.moments and is_there and is_asked and self.fits(asked.wallet, asked.client)


class KeptFault(FaultRule, frozen=True, kw_only=True):
    id: str
    used: int


class FaultList(msgspec.Struct):
    faults: list[KeptFault]


class Met(msgspec.Struct):
    """A request affected by a fault; `answer` is its normal handler."""

    fault: FaultRule
    asked: Asked
    server: Units
    answer: ASGIApp
    scope: Scope
    receive: Receive
    send: Send


async def refuse(met: Met, error: DomainError) -> None:
    await json_error(error)(met.scope, met.receive, met.send)


async def answer_as_a_gateway(met: Met) -> None:
    await met.answer(met.scope, met.receive, _drop)
    await HTMLResponse("<h1>502 Bad Gateway</h1>", 502)(met.scope, met.receive, met.send)


async def lose_answer(met: Met) -> None:
    await met.answer(met.scope, met.receive, _drop)
    await reset_connection(met)


async def keep_silent(met: Met) -> None:
    await asyncio.sleep(met.fault.wait)
    await reset_connection(met)


async def reset_connection(_: Met) -> None:
    raise CutShort("a fault of the sandbox", is_reset=True)


async def delay(met: Met) -> None:
    async def send_late(message: Message) -> None:
        if message["type"] == "http.response.start":
            await asyncio.sleep(met.fault.wait)
        await met.send(message)

    await met.answer(met.scope, met.receive, send_late)


async def truncate(met: Met) -> None:
    async def send_half(message: Message) -> None:
        if message["type"] == "http.response.body":
            body = message.get("body", b"")
            await met.send({**message, "body": body[: len(body) // 2], "more_body": True})
            await reset_connection(met)
        await met.send(message)

    await met.answer(met.scope, met.receive, send_half)


async def change_first(met: Met, change: Callable[[Work, str], object]) -> None:
    """Applies `change` to the request's token before the request is handled."""
    assert met.asked.token is not None
    id = met.asked.token
    await met.server.write(lambda work: change(work, id))
    await met.answer(met.scope, met.receive, met.send)


async def alter(met: Met, name: bytes, pattern: bytes, by: bytes) -> None:
    lines = met.scope["headers"]
    met.scope["headers"] = [(key, re.sub(pattern, by, value) if key == name else value) for key, value in lines]
    await met.answer(met.scope, met.receive, met.send)


class FaultKind(msgspec.Struct, frozen=True):
    """`needs` is the member of Asked that a request must have; `seconds` is the default delay."""

    act: Callable[[Met], Awaitable[None]] | None = None
    moments: tuple[FaultTarget, ...] = ("request",)
    needs: Literal["token", "signature"] | None = None
    seconds: float | None = None

    @property
    def needs_peer(self) -> bool:
        return "payment" in self.moments


KINDS: Final[Mapping[str, FaultKind]] = {
    "unavailable": FaultKind(partial(refuse, error=Unavailable(SENTENCE, retry_after=0))),
    "too_many_requests": FaultKind(partial(refuse, error=TooManyRequests(SENTENCE, retry_after=0))),
    "internal_error": FaultKind(partial(refuse, error=ServerFailed(SENTENCE))),
    "bad_gateway": FaultKind(answer_as_a_gateway),
    "lost_answer": FaultKind(lose_answer),
    "no_answer": FaultKind(keep_silent, seconds=30),
    "connection_reset": FaultKind(reset_connection),
    "slow": FaultKind(delay, seconds=2),
    "truncated": FaultKind(truncate),
    "expired_token": FaultKind(
        partial(change_first, change=lambda work, id: TOKENS.update(work, id, expires_at=work.now)), needs="token"
    ),
    "revoked_token": FaultKind(partial(change_first, change=tokens.revoke_token), needs="token"),
    "revoked_grant": FaultKind(
        partial(change_first, change=lambda work, id: tokens.revoke_grant(work, TOKENS.by_id(work, id).grant_id)),
        needs="token",
    ),
    "rotated_key": FaultKind(
        partial(alter, name=b"signature-input", pattern=rb'keyid="[^"]*"', by=b'keyid="rotated"'), needs="signature"
    ),
    "bad_signature": FaultKind(
        partial(alter, name=b"signature", pattern=rb"=:[^:]{4}", by=b"=:fake"), needs="signature"
    ),
    "wrong_hash": FaultKind(moments=("redirect",)),
    "duplicate_event": FaultKind(moments=("event",)),
    "receiver_unreachable": FaultKind(moments=("quote", "payment")),
    "slow_settlement": FaultKind(moments=("payment",), seconds=2),
    "partial_failure": FaultKind(moments=("payment",)),
}


def check(fault: FaultRule) -> None:
    """Raises InvalidRequest for a fault that can never happen."""
    require_known(fault.fault, KINDS, "fault")
    require_operation(fault.operation)
    kind = fault.kind
    if fault.operation is not None:
        _check_operation(fault, fault.operation)
    if fault.client is not None and kind.moments == ("event",):
        raise InvalidRequest(f"{fault.fault} has a wallet, but no client", field="client")
    if fault.seconds is not None and kind.seconds is None:
        raise InvalidRequest(f"{fault.fault} does not wait", field="seconds")
    if (fault.deliver is None) == (fault.fault == "partial_failure"):
        raise InvalidRequest("deliver is for partial_failure, which needs it", field="deliver")


def _check_operation(fault: FaultRule, operation: str) -> None:
    """Raises InvalidRequest if requests for the operation lack what the fault is about, or its wallet or client."""
    from payres.openapi.resources import OPERATIONS, security_of

    [name] = [name for name, one in OPERATIONS.items() if one.id == operation]
    signs = {scheme for one in security_of(*name.split(" ")) for scheme in one}
    kind, own = fault.kind, f"{fault.fault} is not of an operation"
    if kind.moments != ("request",):
        happens = [OF_PACKETS[moment] for moment in kind.moments if moment in OF_PACKETS]
        if operation not in happens:
            raise InvalidRequest(
                f"{fault.fault} happens to {' and '.join(happens)}" if happens else own, field="operation"
            )
    continues = kind.needs == "token" and operation.endswith("-continue")  # with the token of the continuation
    if kind.needs is not None and (continues or NEEDED[kind.needs] not in signs):
        needed = "access token" if kind.needs == "token" else kind.needs
        raise InvalidRequest(f"{operation} has no {needed}, which {fault.fault} is about", field="operation")
    if fault.client is not None and not signs:
        raise InvalidRequest(f"{operation} is not signed, so that its client is unknown", field="client")
    if fault.wallet is not None and operation == "discover":
        raise InvalidRequest("discover is of no wallet", field="wallet")


class Sending(msgspec.Struct, eq=False):
    """A payment affected by a fault. Packets may still deliver `left`, in minor units."""

    fault: FaultRule
    left: int
    lock: asyncio.Lock


class Interference:
    def __init__(self, server: Units, max_body_bytes: int, journal: Journal) -> None:
        self.rules: Rules[FaultRule] = Rules("fault")
        self._server = server
        self._max_body_bytes = max_body_bytes
        self._journal = journal
        self._payments: dict[str, Sending | None] = {}

    async def add(self, context: Context, fault: FaultRule) -> KeptRule[FaultRule]:
        """Lets a fault happen from now on. Raises InvalidRequest if it never could, and WrongState without a peer."""
        check(fault)
        found = await with_known(context, fault)
        if fault.kind.needs_peer and not await context.database.read(peers.list_peers):
            raise WrongState(f"{fault.fault} happens to packets between servers: start the sandbox with --peers 2")
        return self.rules.add(found)

    def remove(self) -> None:
        self.rules.remove()
        self._payments.clear()

    def attach(self, context: Context) -> None:
        """Fills the hooks of a newly opened server, with which it sends events and packets."""
        payments, sender = node_of(context).payments, context.part(Sender)
        payments.before = partial(self._begin_payment, context.database)
        payments.outbound.carry = partial(self._carry, payments.outbound.carry)
        payments.outbound.post = partial(self._post, payments.outbound.post)
        sender.repeats = partial(self._repeats, context.urls)

    async def serve(self, answer: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, perhaps with a fault."""
        if not self.rules:
            await answer(scope, receive, send)
            return
        body, receive = await _read_body(receive, self._max_body_bytes)
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

    def redirect(self, redirect: str | None, asked: Asked) -> str | None:
        """The redirect after a decision, with a wrong hash if a fault applies."""
        if redirect and HASH.search(redirect) and self._use("redirect", asked):
            return HASH.sub(FALSE_HASH, redirect)
        return redirect

    def _use(self, moment: FaultTarget, asked: Asked) -> FaultRule | None:
        return self.rules.use(lambda fault: fault.acts(moment, asked))

    async def _send(self, send: Send, asked: Asked, scope: Scope, message: Message) -> None:
        for number, (name, value) in enumerate(message.get("headers", ())):
            before = value.decode("latin-1")
            if name == b"location" and (changed := self.redirect(before, asked) or before) != before:
                message["headers"][number] = name, changed.encode("latin-1")
                scope.setdefault("state", {})[NOTED] = "wrong_hash"
        await send(message)

    def _repeats(self, urls: Urls, event: EventRecord) -> bool:
        if not self.rules:
            return False
        address = msgspec.json.decode(event.data).get("walletAddress")
        return self._use("event", Asked(wallet=urls.wallet_path(address) if address else None)) is not None

    async def _begin_payment(self, database: Units, payment_id: str) -> None:
        if payment_id in self._payments or not self.rules:
            return
        asked, asset = await database.read(partial(_of_payment, payment_id=payment_id))
        fault = self._use("payment", asked)
        self._payments[payment_id] = None
        if fault is not None:
            left = int(Decimal(fault.deliver or "0").scaleb(asset.scale))  # rounds down
            self._payments[payment_id] = Sending(fault, left, asyncio.Lock())
            self._journal.note_fault(payment_id, fault.fault)
            await asyncio.sleep(fault.wait)

    async def _carry(self, carry: Carry, payer: Payer, prepare: Prepare) -> Outcome:
        sending = self._payments.get(payer.payment_id or "")
        if sending is None or sending.fault.fault == "slow_settlement":
            return await carry(payer, prepare)
        async with sending.lock:
            if sending.left == 0:
                raise PacketRejected(Code.UNREACHABLE, SENTENCE)
            if prepare.amount > sending.left:
                raise PacketRejected(Code.AMOUNT_TOO_LARGE, SENTENCE, too_large_data(prepare.amount, sending.left))
            outcome = await carry(payer, prepare)
            if isinstance(outcome, Fulfill):
                sending.left -= prepare.amount
            return outcome

    async def _post(self, post: Post, *packet: Any) -> Outcome:
        answered = ANSWERED.get()
        if answered is not None and answered[0].operation == "create-quote":
            asked, scope = answered
            if NOTED not in scope.get("state", {}) and (fault := self._use("quote", asked)):
                _note(scope, fault)
            if scope.get("state", {}).get(NOTED) == "receiver_unreachable":
                return Reject(Code.UNREACHABLE, message=SENTENCE)
        return await post(*packet)


def _of_payment(work: Work, payment_id: str) -> tuple[Asked, Asset]:
    payment = OUTGOING.by_id(work, payment_id)
    wallet = WALLETS.by_id(work, payment.wallet_address_id)
    client = None if payment.client_id is None else CLIENTS.by_id(work, payment.client_id)
    return Asked("create-outgoing-payment", wallet.path, client), wallet.asset


def _note(scope: Scope, fault: FaultRule) -> None:
    scope.setdefault("state", {})[NOTED] = fault.fault


async def _read_body(receive: Receive, most: int) -> tuple[bytes, Receive]:
    """The body, of one longer than `most` bytes a part, and a `receive` that replays it."""
    messages, body, more = list[Message](), bytearray(), True
    while more and len(body) <= most:
        messages.append(await receive())
        body += messages[-1].get("body", b"")
        more = messages[-1].get("more_body", False)

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return bytes(body), again


async def _drop(_: Message) -> None:
    pass
