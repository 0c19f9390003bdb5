"""The port for pages: browsers get them in place of JSON. Without it, they get JSON too."""

from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from payres.core.protocol.errors import DomainError


class Pages(Protocol):
    """The public pages."""

    async def front(self, request: Request) -> Response:
        """GET / by a browser."""
        ...

    async def wallet(self, request: Request) -> Response:
        """GET of a wallet address by a browser."""
        ...

    def error(self, request: Request, error: DomainError) -> Response:
        """An error, for a browser."""
        ...
