"""The HTTP server of `payres serve`: uvicorn's, whose application always gets to close what it has opened."""

import asyncio
import logging
import signal
import socket
from collections.abc import Mapping
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from payres.http.protocol import HttpProtocol
from payres.limits import BACKLOG, GRACE_SECONDS, KEEP_ALIVE_SECONDS

log = logging.getLogger("payres.http")

CUT_SECONDS: Final = 1  # for requests that are cut to notice it
# A client counts from when it has its answer, a little later than the server does.
KEEP_ALIVE_MARGIN: Final = 2
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def settings_of(trusted_proxies: str = "127.0.0.1") -> Mapping[str, Any]:
    """The settings of uvicorn with which a server speaks our protocol. `trusted_proxies` are addresses, separated by
    commas, whose X-Forwarded-For is believed."""
    return {
        "http": HttpProtocol,
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS + KEEP_ALIVE_MARGIN,
        "headers": [("Keep-Alive", f"timeout={KEEP_ALIVE_SECONDS}")],
        "forwarded_allow_ips": trusted_proxies,
    }


class HttpServer(uvicorn.Server):
    """On the first signal it finishes the requests in progress; on a second Ctrl-C it cuts them."""

    def __init__(self, app: ASGIApp, trusted_proxies: str) -> None:
        config = uvicorn.Config(
            app,
            loop="auto",  # uvloop, where there is one
            lifespan="on",
            server_header=False,
            date_header=True,
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE_SECONDS,
            proxy_headers=True,
            **settings_of(trusted_proxies),
        )
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until a signal stops it; one that comes before the loop runs waits until it does."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """By now uvicorn handles the signals."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops. On the second signal uvicorn would leave the application and its requests to end with the loop."""
        log.info("stopping: no new connections are taken, and the requests in progress are finished")
        await super().shutdown(sockets)
        if self.force_exit:
            tasks = list(self.server_state.tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=CUT_SECONDS)
            await self.lifespan.shutdown()
        log.info("stopped")
