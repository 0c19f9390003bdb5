"""The client for threads: performs what the calls ask for, and waits."""

import functools
import time
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import httpx2

from payres.client import calls, grants
from payres.client.core import Acquire, Ask, Core, Effect, Key, Sleep, Steps, failure_of
from payres.client.grants import Grant, Server
from payres.clock import Clock, SystemClock
from payres.wire import IncomingPayment, OutgoingPayment

P = ParamSpec("P")
T = TypeVar("T")


def run(http: httpx2.Client, steps: Steps[T]) -> T:
    """The result of a call whose effects are performed one after the other."""
    perform: Callable[[], Effect] = functools.partial(next, steps)
    while True:
        try:
            effect = perform()
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            perform = functools.partial(steps.send, _perform(http, effect))
        except BaseException as error:
            perform = functools.partial(steps.throw, error)


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

    @functools.wraps(steps)
    def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self._http, steps(self._core, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], T]", method)


class _Resource:
    def __init__(self, core: Core, http: httpx2.Client) -> None:
        self._core, self._http = core, http


class WalletAddresses(_Resource):
    get, get_keys = sync(calls.wallet_address_get), sync(calls.wallet_address_keys)
    get_did_document = sync(calls.wallet_address_did_document)


class Grants(_Resource):
    request, continue_, cancel = sync(grants.request), sync(grants.continue_), sync(grants.cancel)
    obtain, start, finish, wait = sync(grants.obtain), sync(grants.start), sync(grants.finish), sync(grants.wait)


class IncomingPayments(_Resource):
    create, get = sync(calls.incoming_payment_create), sync(calls.incoming_payment_get)
    get_public, complete = sync(calls.incoming_payment_get_public), sync(calls.incoming_payment_complete)
    list, wait = sync(calls.incoming_payment_list), sync(calls.incoming_payment_wait)

    def iterate(
        self, server: Server, access_token: str | Grant, *, wallet_address: str | None = None
    ) -> Iterator[IncomingPayment]:
        """All of them, newest first; a page is asked for when the one before has been used up."""
        cursor, seen = None, set[str]()
        while True:
            page = self.list(server, access_token, wallet_address=wallet_address, first=100, cursor=cursor)
            yield from page.result
            if (cursor := calls.next_cursor(page, seen)) is None:
                return


class Quotes(_Resource):
    create, get = sync(calls.quote_create), sync(calls.quote_get)


class OutgoingPayments(_Resource):
    create, get = sync(calls.outgoing_payment_create), sync(calls.outgoing_payment_get)
    list, wait = sync(calls.outgoing_payment_list), sync(calls.outgoing_payment_wait)
    get_grant_spent_amounts = sync(calls.grant_spent_amounts)

    def iterate(
        self, server: Server, access_token: str | Grant, *, wallet_address: str | None = None
    ) -> Iterator[OutgoingPayment]:
        """All of them, newest first; a page is asked for when the one before has been used up."""
        cursor, seen = None, set[str]()
        while True:
            page = self.list(server, access_token, wallet_address=wallet_address, first=100, cursor=cursor)
            yield from page.result
            if (cursor := calls.next_cursor(page, seen)) is None:
                return


class Tokens(_Resource):
    rotate, revoke = sync(grants.rotate), sync(grants.revoke)


class Client:
    """An Open Payments client for all threads of a process, not across `fork`. Close it, or use it with `with`."""

    def __init__(
        self,
        wallet_address: str | None = None,
        private_key: Key | None = None,
        kid: str | None = None,
        *,
        use_http: bool = False,
        timeout: float = 15,
        max_retries: int = 2,
        strict: bool = False,
        on_rotate: Callable[[Grant], object] | None = None,
        transport: httpx2.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        core = Core(
            wallet_address,
            private_key,
            kid,
            use_http=use_http,
            timeout=timeout,
            max_retries=max_retries,
            strict=strict,
            on_rotate=on_rotate,
            clock=clock or SystemClock(),
        )
        http = httpx2.Client(transport=transport, trust_env=False)
        self._core, self._http = core, http
        self.wallet_address, self.grant, self.token = (
            WalletAddresses(core, http),
            Grants(core, http),
            Tokens(core, http),
        )
        self.incoming_payment, self.quote = IncomingPayments(core, http), Quotes(core, http)
        self.outgoing_payment = OutgoingPayments(core, http)

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        http = getattr(self, "_http", None)
        if http is not None and not http.is_closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<Client {self._core.wallet_address} ...{(self._core.kid or '')[-4:]}>"
