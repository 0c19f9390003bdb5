"""Exports: payments, the ledger and statements as files of any length, a batch at a time, as fast as they are read.

Between two batches nothing is held but the position: no transaction, no thread. One whose reader has gone ends.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from payres.clock import SECOND
from payres.errors import DomainError
from payres.http.streams import CutShort, Stream
from payres.limits import EXPORT_SECONDS, MAX_EXPORTS, MAX_EXPORTS_OF_CALLER
from payres.operator import exports
from payres.operator.exports import MEDIA_TYPES, Export, Format, Ledger, Payments, Statement, period
from payres.operator.inputs import Name, Query, TimeText
from payres.operator.operations import endpoint
from payres.rate_limiter import too_many
from payres.routes.context import context_of
from payres.store.work import Work

FILES: Final = tuple(MEDIA_TYPES.values())
# Runs a unit of work in the name of who asked, and raises what says that they may no longer.
Read = Callable[[Callable[[Work], str]], Awaitable[str]]


class PeriodQuery(Query, frozen=True, kw_only=True):
    """A period from a day or a time until just before another, and the form of the file."""

    from_: TimeText | UnsetType = msgspec.field(name="from", default=UNSET)
    to: TimeText | UnsetType = UNSET
    format: Format = "csv"


class ExportQuery(PeriodQuery, frozen=True, kw_only=True):
    wallet: Name | UnsetType = UNSET


class Download(NamedTuple):
    """What an endpoint answers with that exports; the file is called `name`."""

    name: str
    export: Export
    form: Format


@endpoint("GET /exports/payments", "payments:read", media_types=FILES)
def payments(query: ExportQuery) -> Download:
    """Export incoming and outgoing payments, oldest first."""
    return Download("payments", Payments(*_period(query), query.wallet or None), query.format)


@endpoint("GET /exports/ledger", "ledger:read", media_types=FILES)
def ledger(query: ExportQuery) -> Download:
    """Export every transfer of the ledger, oldest first, or those of the account of a wallet."""
    return Download("ledger", Ledger(*_period(query), query.wallet or None), query.format)


@endpoint("GET /wallets/{wallet}/statement", "ledger:read", media_types=FILES)
def statement(wallet: str, query: PeriodQuery) -> Download:
    """Export what went into a wallet and out of it, from the opening balance of a period to the closing one."""
    return Download(f"statement {wallet}", Statement(wallet, *_period(query)), query.format)


def _period(query: PeriodQuery) -> tuple[int, int]:
    return period(query.from_ or None, query.to or None)


async def send_download(request: Request, download: Download, actor: str, read: Read) -> Response:
    """The answer. Raises TooManyRequests, and what the first step of the export does: before a byte is sent."""
    parts = _parts(request, download, actor, read)
    first = await anext(parts)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    headers |= attachment(download.name, download.form)
    return Stream(parts, MEDIA_TYPES[download.form], headers, first=first, seconds=EXPORT_SECONDS)


def attachment(name: str, form: Format) -> dict[str, str]:
    """The header with which browsers store a file under this name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return {"Content-Disposition": f'attachment; filename="{plain}.{form}"'}


async def _parts(request: Request, download: Download, actor: str, read: Read) -> AsyncGenerator[bytes]:
    export, form, slots = download.export, download.form, context_of(request).export_slots
    if not slots.try_take(actor):
        raise too_many(
            SECOND, f"At most {MAX_EXPORTS} exports are read at a time, {MAX_EXPORTS_OF_CALLER} by one caller"
        )
    gone = asyncio.ensure_future(_wait_until_gone(request.receive))
    try:
        step = partial(_step, export=export, form=form)
        yield (exports.heading(export, form) + await read(step)).encode()
        while not (export.done or gone.done()):
            try:
                lines = await read(step)
            except DomainError as error:
                raise CutShort(str(error)) from error
            yield lines.encode()
        if gone.done():
            raise CutShort("the client has gone")
    finally:
        gone.cancel()
        slots.release(actor)


async def _wait_until_gone(receive: Receive) -> None:
    """A client that sends no more may still read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _step(work: Work, export: Export, form: Format) -> str:
    """The text of the next rows, made where the unit runs and not on the event loop's thread."""
    return exports.lines(export, export.step(work), form)
