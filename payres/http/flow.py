"""Flow control of one connection: when its bytes are read, and when its answers wait."""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl


class Flow(FlowControl):
    """Reads no further while bytes that have come wait to be parsed, and writes an answer that has begun to its end.

    uvicorn waits in the middle of an answer for the client to read, though all of it is in memory in any case; it is
    counted only where the transport has it.
    """

    def __init__(self, transport: asyncio.Transport, held: bytearray) -> None:
        super().__init__(transport)
        self._held = held

    def resume_reading(self) -> None:
        if not self._held:
            super().resume_reading()

    async def drain(self) -> None:
        """Waits for nothing."""
