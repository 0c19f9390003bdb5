"""The statement of a wallet's month as a file, in its owner's words: that of operators, with the name at the other end
and what each payment was for, the kinds and columns in the reader's language, and times in their zone.

Amounts keep the point: spreadsheets and programs read the file.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

from starlette.responses import Response

from payres.core.protocol.clock import format_time, parse_time
from payres.core.protocol.errors import nothing_here
from payres.core.protocol.limits import OWNER_EXPORT_SECONDS
from payres.core.store.work import Work
from payres.html.language import Language, marked
from payres.operator.api import send_export
from payres.operator.exports import Export, ExportRow, Walk, export_statement
from payres.people.activity import Reader, months_of
from payres.people.payments import payers_note
from payres.people.services import people_of
from payres.people.sessions import OwnerVisit

COLUMNS: Final = (
    *(marked("Date"), marked("Kind"), marked("Name"), marked("Address"), marked("Note"), marked("Amount")),
    *(marked("Balance"), marked("Currency"), marked("Payment")),
)
KINDS: Final[Mapping[str, str]] = {
    "opening balance": marked("Balance at the beginning"),
    "closing balance": marked("Balance at the end"),
    "deposit": marked("Money paid in"),
    "withdrawal": marked("Money paid out"),
    "refund": marked("Refund"),
    "fee": marked("Cost of sending"),
}


async def download(visit: OwnerVisit) -> Response:
    """GET /account/activity/statement.csv: the statement of a month."""
    found = next((one for one in months_of(visit) if one.name == visit.request.query_params.get("month")), None)
    if found is None:
        raise nothing_here()
    kept = export_statement(visit.wallet.path, format_time(found.since), format_time(found.until))
    columns = [*map(visit.language.say, COLUMNS)]
    export = Export(f"{visit.wallet.path} {found.name}", columns, _in_words(visit, kept), "csv")
    slots = people_of(visit.context).export_slots
    return await send_export(visit, export, visit.owner.id, slots, OWNER_EXPORT_SECONDS)


def _in_words(visit: OwnerVisit, kept: Export) -> Callable[[Work], Walk]:
    def walk(work: Work) -> Walk:
        while True:
            rows = kept.step(work)
            reader = Reader(work, visit.wallet, visit.language.zone)
            about = cache(partial(_about, work, reader))  # many transfers may belong to one payment
            work = yield [_line(visit.language, row, about(str(row["payment"] or ""))) for row in rows], kept.part

    return walk


def _about(work: Work, reader: Reader, payment_id: str) -> tuple[str, str, str]:
    """The name and the address at the other end of a payment, and what it was for; empty if there is none."""
    found = reader.find(payment_id) if payment_id else None
    if found is None:
        return "", "", ""
    other = found.counterpart
    note = found.note or found.purpose or payers_note(work, payment_id)
    return other.name or "", other.address.text if other.address else "", note


def _line(language: Language, row: ExportRow, about: tuple[str, str, str]) -> ExportRow:
    kind, amount = str(row["kind"]), str(row["amount"] or "")
    words = KINDS.get(kind) or (marked("Sent") if amount.startswith("-") else marked("Received"))
    date = language.sortable(parse_time(str(row["createdAt"])))
    values = (date, language.say(words), *about, amount, row["balance"], row["assetCode"], row["payment"])
    return dict(zip(COLUMNS, values, strict=True))
