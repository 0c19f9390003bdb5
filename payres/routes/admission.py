"""Admission: the first look at a request, before anything is done for it."""

from starlette.types import ASGIApp, Receive, Scope, Send

from payres.routes.rate_limits import RateLimits
from payres.routes.refusals import refusal_response


class Admission:
    """Refuses what comes too often from one address."""

    def __init__(self, app: ASGIApp, limits: RateLimits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self.limits.refusal_of_address(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await refusal_response(refusal)(scope, receive, send)
