"""The HTTP server of `payres serve`: uvicorn's, whose application always gets to close what it has opened."""

import asyncio
import socket

import uvicorn

CUT_SECONDS = 1  # for requests that are cut to notice it


class HttpServer(uvicorn.Server):
    """Stops in two ways: told once, it finishes the requests under way; told again by Ctrl-C, it cuts them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops. Told again, uvicorn would leave the application and its requests to be cancelled with the loop."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self._cut()
            await self.lifespan.shutdown()

    async def _cut(self) -> None:
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CUT_SECONDS)
