"""Refuses requests that come too often from one address, or too many at a time, before anything is done for them."""

from starlette.types import ASGIApp, Receive, Scope, Send

from payres.clock import SECOND
from payres.federation.lookups import requested_by
from payres.limits import MAX_REQUESTS_PER_ADDRESS
from payres.routes.rate_limits import PEERS, RateLimits
from payres.routes.refusals import refusal_response
from payres.throttle import origin_of, too_many


class Admission:
    """The first look at a request."""

    def __init__(self, app: ASGIApp, limits: RateLimits) -> None:
        self.app = app
        self.limits = limits
        self._under_way: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = origin_of(scope)
        requested_by.set(address or "")  # names that the request has looked up count for it too
        if address is None:
            await self.app(scope, receive, send)
            return
        refusal = self.limits.refusal_of_address(address, scope["path"])
        if refusal is not None:
            await refusal_response(refusal)(scope, receive, send)
        elif scope["path"] == PEERS:  # packets are counted by their peers: those of many payments may come from here
            await self.app(scope, receive, send)
        else:
            await self._serve(address, scope, receive, send)

    async def _serve(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        before = self._under_way.get(address, 0)
        if before >= MAX_REQUESTS_PER_ADDRESS:
            sentence = f"Your address has {before} requests under way. Wait for their answers before you send more"
            await refusal_response(too_many(SECOND, sentence))(scope, receive, send)
            return
        self._under_way[address] = before + 1
        try:
            await self.app(scope, receive, send)
        finally:
            left = self._under_way.pop(address) - 1
            if left:
                self._under_way[address] = left
