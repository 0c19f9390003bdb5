"""Both clients behind one face, so that each test runs with either."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
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
            return self._loop.run_until_complete(made)

        return call

    def _items(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run_until_complete(anext(items))
            except StopAsyncIteration:
                return


@contextmanager
def opened(flavour: str, *args: Any, is_documented: bool = True, **options: Any) -> Iterator[Any]:
    """A client of that flavour: `sync` or `async`. Answers that are not payres's need not be documented."""
    if flavour == "sync":
        with Client(*args, **options) as client:
            if not is_documented:
                send = inspect.unwrap(httpx2.Client.send)
                client._http.send = partial(send, client._http)  # type: ignore[method-assign]
            yield client
        return
    loop = asyncio.new_event_loop()
    try:
        waiting = AsyncClient(*args, **options)
        yield Blocking(waiting, loop)
        loop.run_until_complete(waiting.aclose())
    finally:
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
