"""Long responses that are made while they are sent: exports, and the feed of events."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payres.core.http.responses import CutShort

# Bytes passed to a connection at a time.
PIECE_BYTES: Final = 64 * 1024


class Stream(Response):
    """Sends parts of any length; each is requested when the client has read the one before.

    `first` is sent before them; after `seconds` the stream is cut short. Nothing else notices that the client
    disconnects: the parts must end then.
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
