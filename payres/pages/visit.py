"""One visit of an operator who is signed in: reading, changing and rendering in their name."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.grants.consent import csrf_token
from payres.operator import operators
from payres.routes.context import Context, context_of
from payres.routes.pages import STYLE_SHEET, render
from payres.store.operators import OperatorRecord
from payres.store.work import Work

T = TypeVar("T")
Form = Mapping[str, str]
STYLE_SHEETS: Final = (STYLE_SHEET, "admin.css")


class Visit(msgspec.Struct, frozen=True):
    """A request of an operator; `session` is the secret in the cookie."""

    request: Request
    operator: OperatorRecord
    session: str

    @property
    def context(self) -> Context:
        return context_of(self.request)

    @property
    def segments(self) -> Mapping[str, str]:
        """What the path names."""
        found: Mapping[str, str] = self.request.path_params
        return found

    async def read(self, unit: Callable[[Work], T]) -> T:
        """The unit's result over one snapshot; on a connection of its own, so that no payment waits for it."""
        return await self.context.database.examine(self._in_session(unit))

    async def write(self, unit: Callable[[Work], T]) -> T:
        """The unit's result, once its work is committed."""
        return await self.context.database.write(self._in_session(unit))

    def show(self, template: str, section: str, status: int = 200, **values: Any) -> Response:
        """The page that a template makes of the values; `section` is its path in the navigation."""
        common = {"operator": self.operator, "csrf": csrf_token(self.session), "section": section, "refresh": None}
        return render(self.request, f"admin/{template}", common | values, status, style_sheets=STYLE_SHEETS)

    def _in_session(self, unit: Callable[[Work], T]) -> Callable[[Work], T]:
        def checked(work: Work) -> T:
            work.actor = operators.actor_of(operators.require_session(work, self.session))
            return unit(work)

        return checked


class Page(msgspec.Struct, frozen=True):
    """What one address shows to who is signed in."""

    async def show(self, visit: Visit) -> Response:
        """The answer to GET."""
        raise NotImplementedError


class FunctionPage(Page, frozen=True):
    """A page that a function makes."""

    make: Callable[[Visit], Awaitable[Response]]

    async def show(self, visit: Visit) -> Response:
        return await self.make(visit)
