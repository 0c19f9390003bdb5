"""What owners, payers and visitors see and do, as a part: their pages, and payments from wallets on other servers."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.accounts.guesses import SignInGuard
from payres.accounts.settings import MailSettings
from payres.accounts.store import mail
from payres.agenda.store.agenda import Agenda
from payres.core.http.admission import WAIT_AS_TOLD
from payres.core.http.context import Context
from payres.core.http.routing import LateRoutes, OnFirstUse, Route
from payres.core.http.serving import Background, Opening, Part
from payres.core.process.rate_limiter import RateLimiter
from payres.core.process.worker import Pause
from payres.core.protocol.clock import HOUR
from payres.core.protocol.errors import DomainError, Unavailable
from payres.core.protocol.urls import PAGE_ROOTS
from payres.core.store.work import Work
from payres.html.html import error_page
from payres.interledger.node import node_of
from payres.interledger.remote_resources import StillNeeded
from payres.people.limits import CHECKOUT_RATE, MAX_FORMS_OF_OWNER
from payres.people.mail import mail_worker
from payres.people.refund_events import emit_return_payment
from payres.people.remote_bills import RemoteBills
from payres.people.services import PeopleServices
from payres.people.store import checkouts, standing_orders

if TYPE_CHECKING:
    from payres.people.late_imports import Late

PAGE_SECONDS: Final = 1.0  # while a page does the step of a checkout


def _load() -> "Late":
    from payres.people.late_imports import Late

    return Late()


def _load_pages() -> "Late":
    late = _load()
    late.load_templates()
    return late


LATE: Final = OnFirstUse(_load)
LATE_PAGES: Final = OnFirstUse(_load_pages)


class _Pages:
    """Fills the port `core.http.context.Pages`."""

    async def front(self, request: Request) -> Response:
        return await (await LATE_PAGES.get()).front_page(request)

    async def wallet(self, request: Request) -> Response:
        return await (await LATE_PAGES.get()).wallet_page(request)

    def error(self, request: Request, error: DomainError) -> Response:
        return error_page(request, error)


async def _open(opening: Opening) -> None:
    settings = opening.environment.settings
    if not settings.read_only:
        with suppress(Unavailable):  # the worker does it, or the next start
            has_mail = settings.of(MailSettings).smtp_host != ""
            if has_mail == (await opening.database.read(mail.cursor) is None):
                await opening.database.write(partial(mail.turn, on=has_mail))
    bills = RemoteBills()
    opening.stack.push_async_callback(bills.aclose)
    most = MAX_FORMS_OF_OWNER if settings.rate_limit_creations else 0  # as many as they like in a sandbox
    clock, sent = opening.environment.clock, f"You have sent {MAX_FORMS_OF_OWNER} forms within an hour"
    begun = f"Too many payments were begun from this address. {WAIT_AS_TOLD}"
    begins = RateLimiter(CHECKOUT_RATE, clock, begun)
    forms = RateLimiter(most, clock, sent, HOUR, most // 2)
    opening.parts[PeopleServices] = PeopleServices(opening.parts[SignInGuard], bills, forms, begins)
    opening.parts[StillNeeded] = checkouts.is_open
    opening.pages = _Pages()


def _workers(context: Context, _: Opening) -> Iterator[Background]:
    agenda = partial(Agenda, database=context.database, changes=context.changes)
    yield agenda(checkouts.STEPS, step=partial(_advance, context)).run()
    yield agenda(checkouts.ENDS, step=partial(_end_page, context)).run()
    yield agenda(standing_orders.WINDOWS, step=partial(_begin_window, context), correct=_reopening).run()
    yield agenda(standing_orders.TRIES, step=partial(_try_run, context)).run()
    if context.settings.of(MailSettings).smtp_host:
        yield mail_worker(context).run()


async def _advance(context: Context, id_hash: bytes) -> Pause | None:
    if await (await LATE.get()).advance(context, id_hash):
        return None
    await asyncio.sleep(PAGE_SECONDS)
    return 0


async def _end_page(context: Context, id_hash: bytes) -> None:
    await context.database.write(lambda work: checkouts.end_page(work, id_hash, work.now))


async def _begin_window(context: Context, order_id: str) -> None:
    begin_window = (await LATE.get()).begin_window
    await context.database.write(lambda work: begin_window(work, order_id))


async def _reopening() -> Callable[[Work], None]:
    return (await LATE.get()).reopen


async def _try_run(context: Context, order_id: str, window: int) -> None:
    node, late = node_of(context), await LATE.get()
    await late.try_run(context.database, node.quotes, order_id, window)
    node.payments.wake()


def _page_routes() -> Sequence[Route]:
    return _load().page_routes()


PEOPLE: Final = Part(
    "people",
    open=_open,
    workers=_workers,
    release=mail.release_events,
    emit_ungranted=emit_return_payment,
    late=LateRoutes(_page_routes, PAGE_ROOTS),
)
