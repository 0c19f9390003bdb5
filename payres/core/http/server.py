"""The HTTP server of `payres serve`: uvicorn's, except that the application always gets to shut down."""

import asyncio
import logging
import signal
import socket
from collections.abc import Mapping
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from payres.core.http.connections import connections_of
from payres.core.http.protocol import HttpProtocol
from payres.core.protocol.limits import BACKLOG, GRACE_SECONDS, KEEP_ALIVE_SECONDS

log = logging.getLogger("payres.http")

CUT_SECONDS: Final = 1  # for cancelled requests to end
# A client counts from when it has its answer, a little later than the server does.
KEEP_ALIVE_MARGIN: Final = 2
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def settings_of(trusted_proxies: str = "127.0.0.1") -> Mapping[str, Any]:
    """The uvicorn settings for our protocol. `trusted_proxies`, comma-separated, may set X-Forwarded-For."""
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
    """On the first signal it finishes the requests in progress; on a second Ctrl-C it cancels them."""

    def __init__(self, app: ASGIApp, trusted_proxies: str) -> None:
        config = uvicorn.Config(
            app,
            loop="auto",  # uvloop, if installed
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
        """Serves until a signal stops it. Signals are blocked until the loop runs."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Unblocks the signals, which uvicorn handles by now."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops. After a second signal uvicorn would leave the application and its requests to end with the loop."""
        log.info("stopping: no new connections are accepted; requests in progress are finished")
        connections_of(self.server_state, self.config).is_stopping = True
        await super().shutdown(sockets)
        if self.force_exit:
            tasks = list(self.server_state.tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=CUT_SECONDS)
            await self.lifespan.shutdown()
        log.info("stopped")
