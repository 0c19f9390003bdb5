"""Who operates the server, in one request: a program with an API key, or a person who is signed in to the pages."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request

from payres.routes.context import Context, context_of
from payres.store.operators import ApiKeyRecord
from payres.store.work import Work

T = TypeVar("T")


class OperatorRequest(msgspec.Struct, frozen=True):
    """A request of who operates the server: a program or a person. `read` and `write` run units in their name.

    `authenticate` returns who asks, as the audit log names the actor. It raises TokenInvalid or SignInFailed for who
    may not ask now.
    """

    request: Request
    authenticate: Callable[[Work], str]

    @property
    def context(self) -> Context:
        return context_of(self.request)

    async def read(self, unit: Callable[[Work], T]) -> T:
        """The unit's result over one snapshot; on a connection of its own, so that no payment waits for it."""
        return await self.context.database.examine(self.authenticated(unit))

    async def write(self, unit: Callable[[Work], T]) -> T:
        """The unit's result, once its work is committed."""
        return await self.context.database.write(self.authenticated(unit))

    def authenticated(self, unit: Callable[[Work], T]) -> Callable[[Work], T]:
        """The unit in the name of who asks, if they still may."""

        def run(work: Work) -> T:
            work.actor = self.authenticate(work)
            return unit(work)

        return run


class Call(OperatorRequest, frozen=True):
    """One request with a valid key. What an endpoint cannot do in one transaction, it does with `read` and `write`."""

    key: ApiKeyRecord
