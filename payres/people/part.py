"""What owners, payers and visitors see and do, as a part: their pages, and payments from wallets on other servers.

The modules of pages are imported on first use, because they load slowly.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import Context
from payres.core.http.routing import LateRoutes, Route
from payres.core.http.serving import Background, Opening, Part
from payres.core.process.rate_limiter import RateLimiter
from payres.core.protocol.clock import HOUR
from payres.core.protocol.errors import DomainError, Unavailable
from payres.core.protocol.limits import MAX_FORMS_OF_OWNER
from payres.core.protocol.urls import PAGE_ROOTS
from payres.html.sign_in import SignInGuard
from payres.html.store import mail
from payres.interledger.node import node_of
from payres.people.checkout_worker import CheckoutWorker
from payres.people.mail import MailWorker
from payres.people.order_worker import OrderWorker
from payres.people.remote_bills import RemoteBills
from payres.people.services import PeopleServices

if TYPE_CHECKING:
    from payres.people.checkout import Desk


class _Pages:
    """Fills the port `core.http.context.Pages`."""

    async def front(self, request: Request) -> Response:
        from payres.people.serving import front_page

        return await front_page(request)

    async def wallet(self, request: Request) -> Response:
        from payres.people.serving import wallet_page

        return await wallet_page(request)

    def error(self, request: Request, error: DomainError) -> Response:
        from payres.html.html import error_page

        return error_page(request, error)


async def _open(opening: Opening) -> None:
    settings = opening.environment.settings
    if not settings.read_only:
        with suppress(Unavailable):  # the worker does it, or the next start
            if bool(settings.smtp_host) == (await opening.database.read(mail.cursor) is None):
                await opening.database.write(partial(mail.turn, on=bool(settings.smtp_host)))
    bills = RemoteBills()
    opening.stack.push_async_callback(bills.aclose)
    forms = RateLimiter(MAX_FORMS_OF_OWNER, opening.environment.clock, HOUR, MAX_FORMS_OF_OWNER // 2)
    opening.parts[PeopleServices] = PeopleServices(opening.parts[SignInGuard], bills, forms)
    opening.pages = _Pages()


def _workers(context: Context, _: Opening) -> Iterator[Background]:
    yield CheckoutWorker(context.database, context.clock, partial(_checkout_desk, context)).run()
    yield OrderWorker(context.database, partial(node_of, context)).run()
    if context.settings.smtp_host:
        yield MailWorker(context).run()


def _checkout_desk(context: Context) -> "Desk":
    from payres.people.bills import desk_of

    return desk_of(context)


def _late_routes() -> Sequence[Route]:
    from payres.people.serving import page_routes

    return page_routes()


PEOPLE: Final = Part(
    "people",
    open=_open,
    workers=_workers,
    release=mail.release_events,
    late=LateRoutes(_late_routes, PAGE_ROOTS),
)
