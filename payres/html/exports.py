"""Exports: rows that are read and sent in batches, as CSV or JSON Lines."""

import asyncio
import csv
import io
import re
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.requests import ActorRequest
from payres.core.http.responses import CutShort
from payres.core.process.rate_limiter import too_many
from payres.core.process.slots import Slots
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import DomainError
from payres.core.protocol.visible import visible_lines
from payres.core.store.work import Work
from payres.html.limits import EXPORT_SECONDS
from payres.html.streams import Stream

ExportRow = Mapping[str, str | int | None]
Format = Literal["csv", "jsonl"]
# Yields rows and the progress, from 0 to 1; takes the unit of work for the next rows.
Walk = Generator[tuple[Sequence[ExportRow], float], Work, None]
MEDIA_TYPES: Final[Mapping[Format, str]] = {"csv": "text/csv", "jsonl": "application/jsonl"}
FILES: Final = tuple(MEDIA_TYPES.values())


class Export:
    """A table that comes in batches, one with each step until `done`; the file is called `name`.

    `columns` are the names of all members of a row, in order; `part` is the progress, from 0 to 1.
    """

    def __init__(self, name: str, columns: Sequence[str], walk: Callable[[Work], Walk], form: Format) -> None:
        self.name = name
        self.columns = columns
        self.form = form
        self.part = 0.0
        self._begin = walk
        self._walk: Walk | None = None

    @property
    def done(self) -> bool:
        return self.part >= 1

    def step(self, work: Work) -> Sequence[ExportRow]:
        """The next rows. The first step raises NotFound, InvalidRequest."""
        if self._walk is None:
            self._walk = self._begin(work)
            rows, self.part = next(self._walk)
        else:
            rows, self.part = self._walk.send(work)
        return rows

    def text(self, work: Work) -> str:
        """The next rows as text. CSV (RFC 4180) begins with a heading, and a text of several lines takes several."""
        heading = [] if self._walk is not None else [self.columns]
        rows = self.step(work)
        if self.form == "jsonl":
            return "".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows)
        return as_csv([*heading, *(tuple(row.values()) for row in rows)], end="\n")


# Where a spreadsheet would begin a formula (OWASP, CSV injection), also in full width; a number is none, though it be
# negative. Where the decimal mark is a comma, cells are split at `;`, and quotes around a text do not prevent that.
FORMULA: Final = re.compile(
    r"(?:\A|(?<=[;\t\r\n]))(?!-[0-9]+(?:\.[0-9]+)?\Z)(?= *[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])"
)


def as_csv(rows: Iterable[Sequence[object]], end: str = "\r\n") -> str:
    """Rows as CSV (RFC 4180): texts in quotes, with a `'` before what a spreadsheet would evaluate."""
    file = io.StringIO()
    cells = ([FORMULA.sub("'", visible_lines(one)) if isinstance(one, str) else one for one in row] for row in rows)
    csv.writer(file, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC).writerows(cells)
    return file.getvalue()


async def send_export(
    call: ActorRequest, export: Export, caller: Hashable, slots: Slots, seconds: int = EXPORT_SECONDS
) -> Response:
    """The answer, in one of the caller's slots. Raises TooManyRequests, and the errors of
    the export's first step, before a byte is sent."""
    parts = _parts(call, export, caller, slots)
    first = await anext(parts)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    headers |= attachment(export.name, export.form)
    return Stream(parts, MEDIA_TYPES[export.form], headers, first=first, seconds=seconds)


def attachment(name: str, form: Format) -> dict[str, str]:
    """The header that makes browsers save a file under this name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return {"Content-Disposition": f'attachment; filename="{plain}.{form}"'}


async def _parts(call: ActorRequest, export: Export, caller: Hashable, slots: Slots) -> AsyncGenerator[bytes]:
    if not slots.try_take(caller):
        raise too_many(SECOND, "Too many exports are being read, in all or by this caller. Read those to their end")
    gone = asyncio.ensure_future(_wait_until_gone(call.request))
    try:
        yield (await call.read(export.text)).encode()  # encoded on the unit's thread and not on the event loop's
        while not (export.done or gone.done()):
            try:
                lines = await call.read(export.text)
            except DomainError as error:
                raise CutShort(str(error)) from error
            yield lines.encode()
        if gone.done():
            raise CutShort("the client has gone")
    finally:
        gone.cancel()
        slots.release(caller)


async def _wait_until_gone(request: Request) -> None:
    """Waits for a disconnect: a client that has sent everything may still read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
