"""The statement of a wallet's month as a file, in its owner's words: that of operators, with the name at the other end
and what each payment was for, the kinds and columns in the reader's language, and times in their zone.

Amounts keep the point: spreadsheets and programs read the file.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Final

from starlette.responses import Response

from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import format_time, parse_time
from payres.core.protocol.errors import InvalidRequest, nothing_here
from payres.core.store import accounts
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.html.exports import Export, ExportRow, Format, Walk, send_export
from payres.html.language import Language, marked
from payres.people.activity import Reader, months_of
from payres.people.limits import OWNER_EXPORT_SECONDS
from payres.people.payments import payers_note
from payres.people.services import people_of
from payres.people.sign_in import OwnerVisit
from payres.people.store import transfers as store
from payres.people.store.transfers import TransferLine

STATEMENT: Final = ("createdAt", "kind", "amount", "balance", "assetCode", "counterpart", "payment")
BATCH_TRANSFERS: Final = 2_000  # those of other wallets or times are skipped
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
    kept = export_of(visit.wallet.path, found.since, found.until)
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


def export_of(path: str, since: int, until: int, form: Format = "csv") -> Export:
    """The movements of money into a wallet and out of it, each with the balance after it, between the opening and the
    closing balance. For a period that has not ended, the closing balance is that at the first step, which raises
    NotFound, and InvalidRequest for a period to come."""

    def walk(work: Work) -> Walk:
        record = require_wallet(work, path)
        if since > work.now:
            raise InvalidRequest("from is in the future, where the balance is not known", field="from")
        closes_at, last, balance = min(until, work.now), accounts.last_transfer(work), 0
        for first, end in batches(last):
            balance += store.net_change(work, record.account_id, first, end, since)
            if end < last:
                work = yield [], end / last / 2
        opens_at = min(max(since, record.created_at), closes_at)
        work = yield [_total(balance, record.asset, "opening balance", opens_at)], 0.5
        for first, end in batches(last):
            rows = []
            for one in store.transfers(work, first, end, since, until, record.account_id):
                balance += one.amount if one.credit_account_id == record.account_id else -one.amount
                rows.append(_movement(work, record.account_id, one, balance))
            if end < last:
                work = yield rows, 0.5 + end / last / 2
        yield [*rows, _total(balance, record.asset, "closing balance", closes_at)], 1

    return Export(f"statement {path}", STATEMENT, walk, form)


def batches(last: int) -> Iterator[tuple[int, int]]:
    """The first and the last id of each batch; one is empty if there are no transfers."""
    for first in range(1, max(last, 1) + 1, BATCH_TRANSFERS):
        yield first, min(first + BATCH_TRANSFERS - 1, last)


def _movement(work: Work, account_id: int, one: TransferLine, balance: int) -> ExportRow:
    is_credit = one.credit_account_id == account_id
    counterpart = (work.urls.wallet(one.payer) if one.payer else None) if is_credit else one.receiver
    return {
        "createdAt": format_time(one.created_at),
        "kind": one.kind,
        "amount": format_decimal(one.amount if is_credit else -one.amount, one.asset),
        "balance": format_decimal(balance, one.asset),
        "assetCode": one.asset_code,
        "counterpart": (None if one.kind == "fee" else counterpart) or (one.debit if is_credit else one.credit),
        # A refund goes back from the incoming payment to the outgoing one.
        "payment": one.incoming_payment_id if is_credit != (one.kind == "refund") else one.outgoing_payment_id,
    }


def _total(balance: int, asset: Asset, kind: str, moment: int) -> ExportRow:
    shown = {"createdAt": format_time(moment), "kind": kind, "assetCode": asset.code}
    return dict.fromkeys(STATEMENT) | shown | {"balance": format_decimal(balance, asset)}
