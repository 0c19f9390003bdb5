"""Visits, which are requests with a session, and what they find in a place. Every response is a page or a redirect."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from payres.accounts.store.kinds import Account
from payres.core.http.requests import ActorRequest
from payres.html.forms import Form
from payres.html.html import redirect
from payres.html.preferences import set_zone

Act = Callable[[Any, Form], Awaitable[Response]]  # what a form of a page does
TAKES_AWAY: Final = "it only takes access away"


class Visit(ActorRequest, frozen=True):
    """A request with a session; `session` is the secret in the cookie."""

    session: str

    @property
    @abstractmethod
    def account(self) -> Account:
        """Who is signed in."""

    @abstractmethod
    def show(self, template: str, status: int = 200, *, script: str = "", **values: Any) -> Response:
        """Renders a template in the layout of the account's pages."""

    @property
    def segments(self) -> Mapping[str, str]:
        """The path parameters."""
        found: Mapping[str, str] = self.request.path_params
        return found


class Unasked(msgspec.Struct, frozen=True):
    """An action that moves no money and gives no access, or only takes it away: `why` no second factor is asked for."""

    act: Act
    why: str

    async def __call__(self, visit: Any, form: Form) -> Response:
        return await self.act(visit, form)


class Place(NamedTuple):
    """The page of a path, and the actions of its forms by their `choice`. Who has a second factor must just have given
    it for each that is not `Unasked`, and for the page too if that `asks`. What was typed when the session had
    ended is shown again after the sign-in, by the one of `again` with the `choice` of its form."""

    show: Callable[[Any], Awaitable[Response]]
    acts: Mapping[str, Act] = {}
    asks: bool = False
    again: Mapping[str, Act] = {}


async def choose_zone(visit: Visit, form: Form, after: str) -> Response:
    """Stores the time zone of this browser in a cookie; an unknown zone restores the operator's. `after` is the next
    page."""
    response = redirect(after)
    set_zone(response, form.get("zone", ""), secure=visit.context.urls.base.startswith("https:"))
    return response
