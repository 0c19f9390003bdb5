"""Exports: payments, the ledger, and the statement of a wallet, row by row in bounded memory.

A period is from `since` until just before `until`, in microseconds. Each step makes a batch of rows in its own
transaction, so that no snapshot is held; rows written after the first step are left out.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import DAY, LATEST, format_time, format_time_if_any
from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.identifiers import first_identifier
from payres.core.store import accounts
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Work
from payres.operator.declarations import CommandLine, operation
from payres.operator.inputs import MAX_NAME_LENGTH, TimeText, require_time, said
from payres.operator.shapes import as_csv
from payres.operator.store import entries
from payres.operator.store.all_payments import PaymentRecord, payments_in_order
from payres.operator.store.entries import TransferLine
from payres.operator.wallets import named_wallet, require_wallet

ExportRow = Mapping[str, str | int | None]
Format = Literal["csv", "jsonl"]
# Yields rows and the progress, from 0 to 1; takes the unit of work for the next rows.
Walk = Generator[tuple[Sequence[ExportRow], float], Work, None]

MEDIA_TYPES: Final[Mapping[Format, str]] = {"csv": "text/csv", "jsonl": "application/jsonl"}
FILES: Final = tuple(MEDIA_TYPES.values())
BATCH_TRANSFERS: Final = 2_000  # those of other wallets or times are skipped
BATCH_PAYMENTS: Final = 1_000
SLACK: Final = DAY  # how far the time in an id, from the machine's clock, may be from that of the payment
LEDGER: Final = (
    *("id", "createdAt", "kind", "amount", "assetCode", "assetScale", "debitAccount", "creditAccount"),
    *("outgoingPayment", "incomingPayment"),
)
STATEMENT: Final = ("createdAt", "kind", "amount", "balance", "assetCode", "counterpart", "payment")
PAYMENTS: Final = (
    *("direction", "id", "walletAddress", "state", "amount", "moved", "assetCode", "assetScale", "receiver"),
    *("failure", "metadata", "createdAt", "endedAt"),
)

OnlyWallet = Annotated[str, said("Only this wallet.", metavar="PATH", typed=named_wallet)]
FromTime = Annotated[TimeText | UnsetType, said("From this day or time on (UTC).")]
UntilTime = Annotated[TimeText | UnsetType, said("Until just before this day or time (UTC).")]
WalletFilter = Annotated[OnlyWallet, Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | UnsetType


def _period(from_: str | UnsetType, to: str | UnsetType) -> tuple[int, int]:
    """The beginning and the end of a period. Raises InvalidRequest."""
    begins = require_time(from_, "from") if from_ else 0
    ends = require_time(to, "to") if to else LATEST
    if begins >= ends:
        raise InvalidRequest("from must be before to", field="from")
    return begins, ends


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


@operation(
    "GET /exports/payments payments:read",
    command=CommandLine("export payments", "--from 2026-01-01 --to 2026-02-01 > january.csv"),
    media_types=FILES,
)
def export_payments(
    from_: FromTime = UNSET, to: UntilTime = UNSET, format_: Format = "csv", wallet: WalletFilter = UNSET
) -> Export:
    """Export incoming and outgoing payments, oldest first."""
    since, until = _period(from_, to)

    def walk(work: Work) -> Walk:
        wallet_id = require_wallet(work, wallet).id if wallet else None
        now, ends = work.now, min(until, work.now)
        after, before, begins = first_identifier(since - SLACK), first_identifier(ends + SLACK), None
        while True:
            found = payments_in_order(work, after, before, since, ends, wallet_id, BATCH_PAYMENTS)
            owners = {one.wallet_address_id for one in found}
            wallets = {owner: WALLETS.by_id(work, owner) for owner in owners}
            rows = [_payment(work, one, wallets[one.wallet_address_id], now) for one in found]
            if len(found) < BATCH_PAYMENTS:
                break
            after, begins = found[-1].id, begins or found[0].created_at
            work = yield rows, min((found[-1].created_at - begins) / max(ends - begins, 1), 0.999)
        yield rows, 1

    return Export("payments", PAYMENTS, walk, format_)


@operation(
    "GET /exports/ledger ledger:read",
    command=CommandLine("export ledger", "--format jsonl > ledger.jsonl"),
    media_types=FILES,
)
def export_ledger(
    from_: FromTime = UNSET, to: UntilTime = UNSET, format_: Format = "csv", wallet: WalletFilter = UNSET
) -> Export:
    """Export every transfer of the ledger, oldest first."""
    since, until = _period(from_, to)

    def walk(work: Work) -> Walk:
        account_id = require_wallet(work, wallet).account_id if wallet else None
        last = accounts.last_transfer(work)
        for first, end in _batches(last):
            found = entries.transfers(work, first, end, since, until, account_id)
            work = yield [_entry(one) for one in found], end / max(last, 1) if end < last else 1

    return Export("ledger", LEDGER, walk, format_)


@operation(
    "GET /wallets/{wallet}/statement ledger:read",
    command=CommandLine("export statement", "--wallet alice --from 2026-01-01 --to 2026-02-01"),
    media_types=FILES,
)
def export_statement(
    wallet: OnlyWallet, from_: FromTime = UNSET, to: UntilTime = UNSET, format_: Format = "csv"
) -> Export:
    """Export the movements of money into a wallet and out of it.

    Each line has the balance after it. The first is the opening balance, the last the closing balance.
    """
    since, until = _period(from_, to)

    def walk(work: Work) -> Walk:
        """For a period that has not ended, the closing balance is that at the first step."""
        record = require_wallet(work, wallet)
        if since > work.now:
            raise InvalidRequest("from is in the future, where the balance is not known", field="from")
        closes_at, last, balance = min(until, work.now), accounts.last_transfer(work), 0
        for first, end in _batches(last):
            balance += entries.net_change(work, record.account_id, first, end, since)
            if end < last:
                work = yield [], end / last / 2
        opens_at = min(max(since, record.created_at), closes_at)
        work = yield [_total(balance, record.asset, "opening balance", opens_at)], 0.5
        for first, end in _batches(last):
            rows = []
            for one in entries.transfers(work, first, end, since, until, record.account_id):
                balance += one.amount if one.credit_account_id == record.account_id else -one.amount
                rows.append(_line(work, record.account_id, one, balance))
            if end < last:
                work = yield rows, 0.5 + end / last / 2
        yield [*rows, _total(balance, record.asset, "closing balance", closes_at)], 1

    return Export(f"statement {wallet}", STATEMENT, walk, format_)


def _batches(last: int) -> Iterator[tuple[int, int]]:
    """The first and the last id of each batch; one is empty if there are no transfers."""
    for first in range(1, max(last, 1) + 1, BATCH_TRANSFERS):
        yield first, min(first + BATCH_TRANSFERS - 1, last)


def _entry(one: TransferLine) -> ExportRow:
    return {
        "id": str(one.id),
        "createdAt": format_time(one.created_at),
        "kind": one.kind,
        "amount": format_decimal(one.amount, one.asset),
        "assetCode": one.asset_code,
        "assetScale": one.asset_scale,
        "debitAccount": one.debit,
        "creditAccount": one.credit,
        "outgoingPayment": one.outgoing_payment_id,
        "incomingPayment": one.incoming_payment_id,
    }


def _line(work: Work, account_id: int, one: TransferLine, balance: int) -> ExportRow:
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


def _payment(work: Work, one: PaymentRecord, wallet: WalletRecord, now: int) -> ExportRow:
    state = one.state_at(now)
    ended_at = one.expires_at if state == "expired" else one.ended_at
    return {
        "direction": one.direction,
        "id": work.urls.resource(f"{one.direction}-payments", one.id),
        "walletAddress": work.urls.wallet(wallet.path),
        "state": state,
        "amount": None if one.amount is None else format_decimal(int(one.amount), wallet.asset),
        "moved": format_decimal(one.moved, wallet.asset),
        "assetCode": wallet.asset_code,
        "assetScale": wallet.asset_scale,
        "receiver": one.receiver,
        "failure": one.failure,
        "metadata": one.metadata,
        "createdAt": format_time(one.created_at),
        "endedAt": format_time_if_any(ended_at),
    }
