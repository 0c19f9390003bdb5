"""The client for asyncio: awaits what the calls ask for."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import httpx2

from payres.client import calls, grants
from payres.client.base import Base
from payres.client.core import Acquire, Ask, Core, Effect, Sleep, Steps, failure_of
from payres.client.grants import Server, Token
from payres.wire import IncomingPayment, OutgoingPayment, Page

P = ParamSpec("P")
T = TypeVar("T")


async def run(http: httpx2.AsyncClient, steps: Steps[T]) -> T:
    """The result of a call whose effects are performed one after the other."""
    resume, value = steps.send, None
    while True:
        try:
            effect = resume(value)
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            resume, value = steps.send, await _perform(http, effect)
        except BaseException as error:
            resume, value = steps.throw, error


async def _perform(http: httpx2.AsyncClient, effect: Effect) -> Any:
    match effect:
        case Sleep():
            return await asyncio.sleep(effect.seconds)
        case Ask():
            answer = effect.function(effect.argument)
            return await answer if inspect.isawaitable(answer) else answer
        case Acquire():
            # Its holder may be a task of this very loop, or a thread.
            while not effect.lock.acquire(blocking=False):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return None
        case _:
            try:
                return await http.send(effect)
            except httpx2.HTTPError as error:
                raise failure_of(error) from error


def asynchronous(
    steps: Callable[Concatenate[Core, P], Steps[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A call as a method to await."""

    @wraps(steps)
    async def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(self._http, steps(self._core, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]", method)


class Resource:
    """Calls of one kind."""

    def __init__(self, core: Core, http: httpx2.AsyncClient) -> None:
        self._core, self._http = core, http


class Payments(Resource, Generic[T]):
    """Calls about payments, of which there may be many pages."""

    list: Callable[..., Coroutine[Any, Any, Page[T]]]

    async def iterate(
        self, server: Server, access_token: Token, *, wallet_address: str | None = None
    ) -> AsyncIterator[T]:
        """All of them, newest first; a page is asked for when the one before has been used up."""
        cursor, seen = None, set[str]()
        while True:
            page = await self.list(server, access_token, wallet_address=wallet_address, first=100, cursor=cursor)
            for payment in page.result:
                yield payment
            if (cursor := calls.next_cursor(page, seen)) is None:
                return


class WalletAddresses(Resource):
    get, get_keys = asynchronous(calls.wallet_address), asynchronous(calls.keys)
    get_did_document = asynchronous(calls.did_document)


class Grants(Resource):
    request, continue_, cancel = (
        asynchronous(grants.request),
        asynchronous(grants.continue_),
        asynchronous(grants.cancel),
    )
    obtain, start, finish, wait = (
        asynchronous(grants.obtain),
        asynchronous(grants.start),
        asynchronous(grants.finish),
        asynchronous(grants.wait),
    )


class IncomingPayments(Payments[IncomingPayment]):
    create, get = asynchronous(calls.create_incoming), asynchronous(calls.INCOMING.get)
    get_public, complete = (
        asynchronous(calls.get_public),
        asynchronous(calls.complete),
    )
    list, wait = asynchronous(calls.INCOMING.list), asynchronous(calls.INCOMING.wait)


class Quotes(Resource):
    create, get = asynchronous(calls.create_quote), asynchronous(calls.QUOTES.get)


class OutgoingPayments(Payments[OutgoingPayment]):
    create, get = asynchronous(calls.create_outgoing), asynchronous(calls.OUTGOING.get)
    list, wait = asynchronous(calls.OUTGOING.list), asynchronous(calls.OUTGOING.wait)
    get_grant_spent_amounts = asynchronous(calls.spent_amounts)


class Tokens(Resource):
    rotate, revoke = asynchronous(grants.rotate), asynchronous(grants.revoke)


class AsyncClient(Base[httpx2.AsyncBaseTransport]):
    """An Open Payments client for all tasks of one loop. Close it, or use it with `async with`."""

    def _open(self, core: Core, transport: httpx2.AsyncBaseTransport | None) -> None:
        self._http = http = httpx2.AsyncClient(transport=transport, trust_env=False)
        self.wallet_address, self.grant = WalletAddresses(core, http), Grants(core, http)
        self.incoming_payment, self.quote = IncomingPayments(core, http), Quotes(core, http)
        self.outgoing_payment, self.token = OutgoingPayments(core, http), Tokens(core, http)

    async def aclose(self) -> None:
        """Closes its connections."""
        self._is_closed = True
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
