"""Both clients behind one face, so that each test runs with either."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any

import httpx2

from payres.client import AsyncClient, Client


class Blocking:
    """An asynchronous client, or a part of it, whose methods return results."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._calling(found) if inspect.isroutine(found) else Blocking(found, self._loop)

    def _calling(self, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            if isinstance(made, AsyncIterator):
                return self._items(made)
            return asyncio.run_coroutine_threadsafe(made, self._loop).result()

        return call

    def _items(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield asyncio.run_coroutine_threadsafe(self._next(items), self._loop).result()
            except StopAsyncIteration:
                return

    async def _next(self, items: AsyncIterator[Any]) -> Any:
        return await anext(items)


@contextmanager
def opened(flavour: str, *args: Any, is_documented: bool = True, **options: Any) -> Iterator[Any]:
    """A client of that flavour: `sync` or `async`. Answers that are not payres's need not be documented."""
    if flavour == "sync":
        with Client(*args, **options) as client:
            if not is_documented:
                send = inspect.unwrap(httpx2.Client.send)
                client._core.http.send = partial(send, client._core.http)  # type: ignore[method-assign]
            yield client
        return
    # In a thread of its own, because Playwright has a loop in that of the tests.
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        waiting = AsyncClient(*args, **options)
        yield Blocking(waiting, loop)
        asyncio.run_coroutine_threadsafe(waiting.aclose(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Script(httpx2.MockTransport):
    """Answers with what is next, which may be an error to raise; keeps what was asked."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.asked: list[httpx2.Request] = []
        self._answers = list(answers)
        super().__init__(self._answer)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        # A response is used up by the client that gets it, and tables share theirs.
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)
