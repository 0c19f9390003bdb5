"""Streams: answers that are made while they are sent, as fast as the client reads them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

# Bytes that are handed to a connection at a time.
PIECE_BYTES = 64 * 1024


class CutShort(Exception):
    """A stream cannot go on. The connection ends without the last chunk, so that nobody takes a part for all of it."""


class Stream(Response):
    """The parts, of any length, one after the other; each is asked for when the client has read the one before.

    `first` was asked for already; after so many seconds the stream is cut short. Nobody else listens for the client to
    go: the parts must end when it does.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes],
        media_type: str,
        headers: Mapping[str, str],
        *,
        first: bytes = b"",
        seconds: float | None = None,
    ) -> None:
        self._parts = parts
        self._first = first
        self._seconds = seconds
        self.status_code = 200
        self.media_type = media_type
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises CutShort."""
        async with aclosing(self._parts):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                try:
                    async with asyncio.timeout(self._seconds):
                        await _send(send, self._first)
                        async for part in self._parts:
                            await _send(send, part)
                except TimeoutError as error:
                    raise CutShort(f"it was not read within {self._seconds} seconds") from error
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, part: bytes) -> None:
    for start in range(0, len(part), PIECE_BYTES):
        piece = part[start : start + PIECE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
