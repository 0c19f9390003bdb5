"""The client for threads: performs what the calls ask for, and waits."""

import time
from collections.abc import Callable, Iterator
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


def run(http: httpx2.Client, steps: Steps[T]) -> T:
    """The result of a call whose effects are performed one after the other."""
    resume, value = steps.send, None
    while True:
        try:
            effect = resume(value)
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            resume, value = steps.send, _perform(http, effect)
        except BaseException as error:
            resume, value = steps.throw, error


def _perform(http: httpx2.Client, effect: Effect) -> Any:
    match effect:
        case Sleep():
            return time.sleep(effect.seconds)
        case Ask():
            return effect.function(effect.argument)
        case Acquire():
            return effect.lock.acquire()
        case _:
            try:
                return http.send(effect)
            except httpx2.HTTPError as error:
                raise failure_of(error) from error


def sync(steps: Callable[Concatenate[Core, P], Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    """A call as a method that returns its result."""

    @wraps(steps)
    def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self._http, steps(self._core, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], T]", method)


class Resource:
    """Calls of one kind."""

    def __init__(self, core: Core, http: httpx2.Client) -> None:
        self._core, self._http = core, http


class Payments(Resource, Generic[T]):
    """Calls about payments, of which there may be many pages."""

    list: Callable[..., Page[T]]

    def iterate(self, server: Server, access_token: Token, *, wallet_address: str | None = None) -> Iterator[T]:
        """All of them, newest first; a page is asked for when the one before has been used up."""
        cursor, seen = None, set[str]()
        while True:
            page = self.list(server, access_token, wallet_address=wallet_address, first=100, cursor=cursor)
            yield from page.result
            if (cursor := calls.next_cursor(page, seen)) is None:
                return


class WalletAddresses(Resource):
    get, get_keys = sync(calls.wallet_address), sync(calls.keys)
    get_did_document = sync(calls.did_document)


class Grants(Resource):
    request, continue_, cancel = sync(grants.request), sync(grants.continue_), sync(grants.cancel)
    obtain, start, finish, wait = sync(grants.obtain), sync(grants.start), sync(grants.finish), sync(grants.wait)


class IncomingPayments(Payments[IncomingPayment]):
    create, get = sync(calls.create_incoming), sync(calls.INCOMING.get)
    get_public, complete = sync(calls.get_public), sync(calls.complete)
    list, wait = sync(calls.INCOMING.list), sync(calls.INCOMING.wait)


class Quotes(Resource):
    create, get = sync(calls.create_quote), sync(calls.QUOTES.get)


class OutgoingPayments(Payments[OutgoingPayment]):
    create, get = sync(calls.create_outgoing), sync(calls.OUTGOING.get)
    list, wait = sync(calls.OUTGOING.list), sync(calls.OUTGOING.wait)
    get_grant_spent_amounts = sync(calls.spent_amounts)


class Tokens(Resource):
    rotate, revoke = sync(grants.rotate), sync(grants.revoke)


class Client(Base[httpx2.BaseTransport]):
    """An Open Payments client for all threads of a process, not across `fork`. Close it, or use it with `with`."""

    def _open(self, core: Core, transport: httpx2.BaseTransport | None) -> None:
        self._http = http = httpx2.Client(transport=transport, trust_env=False)
        self.wallet_address, self.grant = WalletAddresses(core, http), Grants(core, http)
        self.incoming_payment, self.quote = IncomingPayments(core, http), Quotes(core, http)
        self.outgoing_payment, self.token = OutgoingPayments(core, http), Tokens(core, http)

    def close(self) -> None:
        """Closes its connections."""
        self._is_closed = True
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
