"""What operators do, as a part: their API and pages, monitoring, the invariant check, the watch for a takeover."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from starlette.requests import Request

from payres.accounts.guesses import SignInGuard
from payres.accounts.passwords import PasswordGate
from payres.core.http.context import Context, context_of
from payres.core.http.routing import LateRoutes, Route
from payres.core.http.serving import Background, Opening, Part
from payres.core.process.worker import Worker
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.urls import ADMIN_ROOT, is_loopback
from payres.core.remote.transport import Bounds
from payres.core.store.base_url import record_base_url
from payres.core.store.wallets import count_wallets
from payres.operator.admin_hosts import AdminHosts
from payres.operator.declared.long_work import LongWorks
from payres.operator.services import OperatorServices, operator_of
from payres.operator.settings import OperatorSettings
from payres.operator.store.operators import OF_OPERATORS
from payres.operator.upkeep import monitoring
from payres.operator.upkeep.invariant_checks import PAUSE_SECONDS, BackgroundCheck
from payres.operator.upkeep.missing_rates import NOTES_SECONDS, store_missing_rates
from payres.operator.upkeep.readiness import Readiness
from payres.operator.upkeep.takeover import require_current, watch_base_url

log = logging.getLogger("payres.operator")


async def _open(opening: Opening) -> None:
    hosts = AdminHosts(opening.environment.settings.of(OperatorSettings).admin_hosts)
    guard = SignInGuard(opening.parts[PasswordGate], OF_OPERATORS)
    if not (opening.environment.settings.read_only or opening.environment.is_disposable):
        with suppress(Unavailable):  # the next start stores it
            before, count = await opening.database.write(lambda work: (record_base_url(work), count_wallets(work)))
            if before is not None and count:
                log.warning(
                    "the base URL is now %s: %d %s had addresses at %s; clients and keys know them by these",
                    *(opening.environment.urls.base, count, "wallet" if count == 1 else "wallets", before),
                )
    long_works = LongWorks(opening.environment.clock)
    opening.stack.push_async_callback(long_works.close)
    opening.parts[OperatorServices] = OperatorServices(hosts, Readiness(opening.database), guard, long_works)


def _workers(context: Context, opening: Opening) -> Iterator[Background]:
    if not is_loopback(context.urls.host):
        http = opening.client(Bounds(untrusted_hosts=False), is_private=True)  # its own address may be a private one
        yield watch_base_url(context.database, http, context.settings.base_url)
    if context.settings.of(OperatorSettings).backup_every:
        from payres.operator.upkeep.backup_schedule import keep_schedule  # loads the operations

        yield keep_schedule(context)
    if not context.is_disposable:
        from payres.operator.upkeep.health import keep_looking

        yield keep_looking(context)
    step = partial(store_missing_rates, context.database, context.metrics)
    yield Worker("the notes of missing rates", context.database, step, NOTES_SECONDS).run()
    # A server of a test ends before it is due.
    yield BackgroundCheck(context.database).run(PAUSE_SECONDS if context.is_disposable else 0)


def _late_routes() -> Sequence[Route]:
    from payres.operator.declared.api import admin_routes
    from payres.operator.pages.serving import page_routes

    return [*admin_routes(), *page_routes()]


def _let_in(request: Request) -> bool:
    return operator_of(context_of(request)).hosts.let_in(request.scope)


OPERATOR: Final = Part(
    "operator",
    open=_open,
    workers=_workers,
    check=require_current,
    routes=(
        Route("/healthz", {"GET": monitoring.healthz}, is_json=False),
        Route("/readyz", {"GET": monitoring.readyz}, is_json=False),
        Route("/metrics", {"GET": monitoring.read_metrics}, is_json=False),
    ),
    late=LateRoutes(_late_routes, (ADMIN_ROOT,), _let_in),
)
