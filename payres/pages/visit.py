"""One visit of an operator who is signed in: reading, changing and rendering in their name."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from payres.admin.call import OperatorRequest
from payres.grants.sign_in import csrf_token
from payres.routes.pages import STYLE_SHEET, render
from payres.store.operators import OperatorRecord

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

    def show(self, template: str, section: str, status: int = 200, **values: Any) -> Response:
        """The page that a template makes of the values; `section` is its path in the navigation."""
        common = {"operator": self.operator, "csrf": csrf_token(self.session), "section": section, "refresh": None}
        return render(self.request, f"admin/{template}", common | values, status, style_sheets=STYLE_SHEETS)


# What one address shows to who is signed in.
Page = Callable[[Visit], Awaitable[Response]]
