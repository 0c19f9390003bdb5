"""One visit of an operator who is signed in: reading, changing and rendering in their name."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.admin.call import OperatorRequest
from payres.grants.consent import csrf_token
from payres.operator import operators
from payres.routes.pages import STYLE_SHEET, render
from payres.store.operators import OperatorRecord
from payres.store.work import Work

Form = Mapping[str, str]
STYLE_SHEETS: Final = (STYLE_SHEET, "admin.css")


class Visit(OperatorRequest, frozen=True):
    """A request of an operator; `session` is the secret in the cookie."""

    operator: OperatorRecord
    session: str

    @property
    def segments(self) -> Mapping[str, str]:
        """What the path names."""
        found: Mapping[str, str] = self.request.path_params
        return found

    def authenticate(self, work: Work) -> str:
        return operators.actor_of(operators.require_session(work, self.session))

    def show(self, template: str, section: str, status: int = 200, **values: Any) -> Response:
        """The page that a template makes of the values; `section` is its path in the navigation."""
        common = {"operator": self.operator, "csrf": csrf_token(self.session), "section": section, "refresh": None}
        return render(self.request, f"admin/{template}", common | values, status, style_sheets=STYLE_SHEETS)


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
