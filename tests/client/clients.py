"""Clients for tests, and servers that answer by a script."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx2

from payres.client import Client


@contextmanager
def opened(*args: Any, is_documented: bool = True, **options: Any) -> Iterator[Client]:
    """A client. Answers that are not payres's need not be documented."""
    with Client(*args, **options) as client:
        if not is_documented:
            http = client._core.http
            http.send = partial(inspect.unwrap(httpx2.Client.send), http)  # type: ignore[method-assign]
        yield client


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
