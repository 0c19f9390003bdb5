"""Flow control of one connection: when its bytes are read, and when its answers wait."""

import asyncio
import fcntl
import termios
from array import array
from contextlib import suppress

from uvicorn.protocols.http.flow_control import FlowControl


class Flow(FlowControl):
    """Reads no further while bytes that have come wait to be parsed, and lets only streams wait for their readers.

    uvicorn waits in the middle of any answer for the client to read, though one that is no stream is all in memory; it
    is counted only where the transport has it.
    """

    def __init__(self, transport: asyncio.Transport, held: bytearray) -> None:
        super().__init__(transport)
        self._held = held

    def resume_reading(self) -> None:
        if not self._held:
            super().resume_reading()

    async def drain(self) -> None:
        """Waits for nothing."""

    async def drain_stream(self) -> None:
        """Waits until the client has read enough; the end of the connection ends this too."""
        await super().drain()

    def unread_bytes(self) -> int:
        """How much the client has not read of what is buffered here and by the system."""
        count = array("i", [0])
        with suppress(OSError, ValueError):  # the socket is closed, or has no such count
            fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
        return self._transport.get_write_buffer_size() + count[0]
