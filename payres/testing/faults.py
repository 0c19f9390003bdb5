"""Faults that tests inject into future requests, to see how an app handles them. `payres.testing.interference` applies
them."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payres.core.grants import tokens
from payres.core.http.responses import CutShort, json_error
from payres.core.protocol.errors import DomainError, InvalidRequest, ServerFailed, TooManyRequests, Unavailable
from payres.core.store.grants import TOKENS
from payres.core.store.work import Work
from payres.testing.asked import Asked
from payres.testing.rules import Rule

SENTENCE: Final = "A fault of the sandbox, as the test has asked for"
AMOUNT: Final = r"^[0-9]{1,15}(\.[0-9]{1,15})?$"
# The target of a fault: a request, the redirect after a decision, an event, or the packets of a quote or payment.
Moment = Literal["request", "redirect", "event", "quote", "payment"]


class Fault(Rule, frozen=True, kw_only=True):
    """`operation` is a published operationId. The first `skip` matching requests are unaffected. `seconds` is a delay;
    `deliver` the part of a payment that is delivered, as a decimal."""

    fault: str
    times: Annotated[int, Meta(ge=1)] | None = 1
    operation: str | None = None
    skip: Annotated[int, Meta(ge=0)] = 0
    seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    deliver: Annotated[str, Meta(pattern=AMOUNT)] | None = None

    @property
    def kind(self) -> "Kind":
        return KINDS[self.fault]

    @property
    def wait(self) -> float:
        return self.seconds if self.seconds is not None else self.kind.seconds or 0

    def lets_pass(self, fitted: int) -> bool:
        return fitted < self.skip

    def acts(self, moment: Moment, asked: Asked) -> bool:
        is_there = self.kind.needs is None or getattr(asked, self.kind.needs)
        is_asked = self.operation in {None, asked.operation}
        return moment in self.kind.moments and is_there and is_asked and self.fits(asked.wallet, asked.client)


class Writer(Protocol):
    async def write(self, unit: Callable[[Work], None]) -> None: ...


class Met(msgspec.Struct):
    """A request affected by a fault; `answer` is its normal handler."""

    fault: Fault
    asked: Asked
    server: Writer
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


async def change_first(met: Met, change: Callable[[Work, str], Any]) -> None:
    """Applies `change` to the request's token before the request is handled."""
    assert met.asked.token is not None
    id = met.asked.token
    await met.server.write(lambda work: change(work, id))
    await met.answer(met.scope, met.receive, met.send)


async def alter(met: Met, name: bytes, pattern: bytes, by: bytes) -> None:
    """Replaces a pattern in a request header."""
    lines = met.scope["headers"]
    met.scope["headers"] = [(key, re.sub(pattern, by, value) if key == name else value) for key, value in lines]
    await met.answer(met.scope, met.receive, met.send)


class Kind(msgspec.Struct, frozen=True):
    """`needs` is the member of Asked that a request must have; `seconds` is the default delay."""

    act: Callable[[Met], Awaitable[None]] | None = None
    moments: tuple[Moment, ...] = ("request",)
    needs: Literal["token", "signature"] | None = None
    seconds: float | None = None

    @property
    def needs_peer(self) -> bool:
        return "payment" in self.moments


KINDS: Final[Mapping[str, Kind]] = {
    "unavailable": Kind(partial(refuse, error=Unavailable(SENTENCE, retry_after=0))),
    "too_many_requests": Kind(partial(refuse, error=TooManyRequests(SENTENCE, retry_after=0))),
    "internal_error": Kind(partial(refuse, error=ServerFailed(SENTENCE))),
    "bad_gateway": Kind(answer_as_a_gateway),
    "lost_answer": Kind(lose_answer),
    "no_answer": Kind(keep_silent, seconds=30),
    "connection_reset": Kind(reset_connection),
    "slow": Kind(delay, seconds=2),
    "truncated": Kind(truncate),
    "expired_token": Kind(
        partial(change_first, change=lambda work, id: TOKENS.update(work, id, expires_at=work.now)), needs="token"
    ),
    "revoked_token": Kind(partial(change_first, change=tokens.revoke_token), needs="token"),
    "revoked_grant": Kind(
        partial(change_first, change=lambda work, id: tokens.revoke_grant(work, TOKENS.by_id(work, id).grant_id)),
        needs="token",
    ),
    "rotated_key": Kind(
        partial(alter, name=b"signature-input", pattern=rb'keyid="[^"]*"', by=b'keyid="rotated"'), needs="signature"
    ),
    "bad_signature": Kind(partial(alter, name=b"signature", pattern=rb"=:[^:]{4}", by=b"=:fake"), needs="signature"),
    "wrong_hash": Kind(moments=("redirect",)),
    "duplicate_event": Kind(moments=("event",)),
    "receiver_unreachable": Kind(moments=("quote", "payment")),
    "slow_settlement": Kind(moments=("payment",), seconds=2),
    "partial_failure": Kind(moments=("payment",)),
}


def check(fault: Fault) -> None:
    """Raises InvalidRequest for a fault that can never occur."""
    from payres.core.http.openapi_of_resources import OPERATIONS  # loads slowly

    kind = KINDS.get(fault.fault)
    if kind is None:
        raise InvalidRequest(f"There are these faults: {', '.join(KINDS)}", field="fault")
    ids = [one.id for one in OPERATIONS.values()]
    if fault.operation is not None and fault.operation not in ids:
        raise InvalidRequest(f"There are these operations: {', '.join(ids)}", field="operation")
    if fault.operation is not None and kind.moments in {("redirect",), ("event",)}:
        raise InvalidRequest(f"{fault.fault} is not of an operation", field="operation")
    if fault.seconds is not None and kind.seconds is None:
        raise InvalidRequest(f"{fault.fault} does not wait", field="seconds")
    if (fault.deliver is None) == (fault.fault == "partial_failure"):
        raise InvalidRequest("deliver is for partial_failure, which needs it", field="deliver")


async def read_body(receive: Receive, most: int) -> tuple[bytes, Receive]:
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
