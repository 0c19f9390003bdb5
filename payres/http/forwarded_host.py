"""A base URL that is loopback behind a proxy with a public name, said once in the log.

The wallet addresses and tokens of such a server lead nowhere, and no signature over the public URL verifies.
"""

import logging
from collections.abc import Awaitable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from payres.signatures.reasons import shown
from payres.urls import is_loopback

log = logging.getLogger("payres.http")


class ForwardedHost:
    """Middleware for a server whose base URL is loopback: looks for an X-Forwarded-Host that is not."""

    def __init__(self, app: ASGIApp, base_url: str) -> None:
        self.app = app
        self._base_url = base_url
        self._is_told = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if not self._is_told:
            for name, value in scope["headers"]:
                if name == b"x-forwarded-host" and not _names_this_machine(value):
                    self._tell(value)
        return self.app(scope, receive, send)

    def _tell(self, value: bytes) -> None:
        self._is_told = True
        log.warning(
            "A request came with X-Forwarded-Host: %s, but base_url is %s, which only this machine reaches. If that is"
            " the name that clients use, set base_url to it (--base-url or PAYRES_BASE_URL)",
            shown(value.decode("latin-1")),
            self._base_url,
        )


def _names_this_machine(value: bytes) -> bool:
    """Whether the first host of the header, which is the client's, is this machine."""
    first = value.decode("latin-1").partition(",")[0].strip()
    try:
        host = urlsplit(f"//{first}").hostname
    except ValueError:
        host = None
    return host is None or is_loopback(host)
