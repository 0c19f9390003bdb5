"""Exports: payments, the ledger and statements as files of any length, a batch at a time, as fast as they are read.

Between two batches nothing is held but the position: no transaction, no thread. One whose reader has gone ends.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from payres.clock import SECOND
from payres.errors import DomainError
from payres.http.responses import CutShort, Stream
from payres.limits import EXPORT_SECONDS, MAX_EXPORTS, MAX_EXPORTS_OF_CALLER
from payres.operator.exports import MEDIA_TYPES, Export, Format
from payres.rate_limiter import too_many
from payres.routes.context import context_of
from payres.store.work import Work

# Runs a unit of work in the name of who asked, and raises what says that they may no longer.
Read = Callable[[Callable[[Work], str]], Awaitable[str]]


async def send_export(request: Request, export: Export, actor: str, read: Read) -> Response:
    """The answer. Raises TooManyRequests, and what the first step of the export does: before a byte is sent."""
    parts = _parts(request, export, actor, read)
    first = await anext(parts)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    headers |= attachment(export.name, export.form)
    return Stream(parts, MEDIA_TYPES[export.form], headers, first=first, seconds=EXPORT_SECONDS)


def attachment(name: str, form: Format) -> dict[str, str]:
    """The header with which browsers store a file under this name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return {"Content-Disposition": f'attachment; filename="{plain}.{form}"'}


async def _parts(request: Request, export: Export, actor: str, read: Read) -> AsyncGenerator[bytes]:
    slots = context_of(request).export_slots
    if not slots.try_take(actor):
        raise too_many(
            SECOND, f"At most {MAX_EXPORTS} exports are read at a time, {MAX_EXPORTS_OF_CALLER} by one caller"
        )
    gone = asyncio.ensure_future(_wait_until_gone(request.receive))
    try:
        yield (await read(export.text)).encode()  # made where the unit runs and not on the event loop's thread
        while not (export.done or gone.done()):
            try:
                lines = await read(export.text)
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
