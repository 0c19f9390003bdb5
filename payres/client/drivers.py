"""Drivers that perform the effects of calls, for threads and for asyncio, and the descriptors of client methods."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import httpx2

from payres.client.core import Acquire, Ask, Core, Effect, Sleep, Steps
from payres.client.errors import AnswerLost, ConfigurationError, NotSent
from payres.wire import Page

P = ParamSpec("P")
T = TypeVar("T")
Http = TypeVar("Http", bound=httpx2.Client | httpx2.AsyncClient)
NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class Part(Generic[Http]):
    """The calls of one resource, in either client."""

    def __init__(self, core: Core, http: Http) -> None:
        self.core, self.http = core, http

    def run(self, steps: Steps[Any]) -> Any:
        """The result of the steps, or an awaitable of it."""
        if self.http.is_closed:
            raise ConfigurationError("The client is closed")
        return _wait(self.http, steps) if isinstance(self.http, httpx2.Client) else _run(self.http, steps)


class Method(Generic[P, T]):
    """A call as a method, which returns its result, or an awaitable of it."""

    def __init__(self, steps: Callable[Concatenate[Core, P], Steps[T]]) -> None:
        self._steps = steps

    @overload
    def __get__(self, part: Part[httpx2.Client], owner: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, part: Part[httpx2.AsyncClient], owner: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, part: Any, owner: object) -> Any:
        @wraps(self._steps)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return part.run(self._steps(part.core, *args, **kwargs))

        return method


class Iteration(Generic[P, T]):
    """A method that iterates over the items of all pages, which are requested as needed. A repeated cursor ends it."""

    def __init__(self, page: Callable[Concatenate[Core, str | None, P], Steps[Page[T]]]) -> None:
        self._page = page

    @overload
    def __get__(self, part: Part[httpx2.Client], owner: object) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, part: Part[httpx2.AsyncClient], owner: object) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, part: Any, owner: object) -> Any:
        def pages(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            cursor, seen = None, set[str | None]([None])
            while True:
                page = part.run(self._page(part.core, cursor, *args, **kwargs))
                yield from page.result
                if (cursor := _next(page)) in seen:
                    return
                seen.add(cursor)

        async def awaited(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            cursor, seen = None, set[str | None]([None])
            while True:
                page = await part.run(self._page(part.core, cursor, *args, **kwargs))
                for item in page.result:
                    yield item
                if (cursor := _next(page)) in seen:
                    return
                seen.add(cursor)

        return wraps(self._page)(pages if isinstance(part.http, httpx2.Client) else awaited)


def _next(page: Page[Any]) -> str | None:
    return (page.pagination.end_cursor or None) if page.pagination.has_next_page else None


def _wait(http: httpx2.Client, steps: Steps[T]) -> T:
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
            resume, value = steps.throw, _meaning(error)


def _perform(http: httpx2.Client, effect: Effect) -> Any:
    match effect:
        case Sleep():
            return time.sleep(effect.seconds)
        case Ask():
            return effect.function(effect.argument)
        case Acquire():
            return effect.lock.acquire()
        case _:
            return http.send(effect)


async def _run(http: httpx2.AsyncClient, steps: Steps[T]) -> T:
    resume, value = steps.send, None
    while True:
        try:
            effect = resume(value)
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            resume, value = steps.send, await _perform_in_task(http, effect)
        except BaseException as error:
            resume, value = steps.throw, _meaning(error)


async def _perform_in_task(http: httpx2.AsyncClient, effect: Effect) -> Any:
    match effect:
        case Sleep():
            return await asyncio.sleep(effect.seconds)
        case Ask():
            answer = effect.function(effect.argument)
            return await answer if inspect.isawaitable(answer) else answer
        case Acquire():
            # The holder may be a task of this loop, so the loop must not block.
            while not effect.lock.acquire(blocking=False):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return None
        case _:
            return await http.send(effect)


def _meaning(error: BaseException) -> BaseException:
    """The client's error for a failed effect: NotSent or AnswerLost for a failure of the transport."""
    if not isinstance(error, httpx2.HTTPError):
        return error
    found = (NotSent if isinstance(error, NEVER_SENT) else AnswerLost)(str(error) or type(error).__name__)
    found.__cause__ = error
    return found
