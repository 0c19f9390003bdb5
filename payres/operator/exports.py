"""Exports: payments, the ledger, and the statement of a wallet, row by row in bounded memory.

Times are from `since` until just before `until`, in microseconds. Rows are made a batch with each step, each in a
transaction of its own, so that no snapshot is held; what is written after the first step is left out.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from payres.amounts import Asset, format_decimal
from payres.clock import DAY, LATEST, format_time, format_time_if_any
from payres.errors import InvalidRequest
from payres.identifiers import first_identifier
from payres.operator.inputs import require_time
from payres.operator.wallets import require_wallet
from payres.store import entries
from payres.store.entries import TransferLine
from payres.store.payments import PaymentRecord, payments_in_order
from payres.store.wallets import WALLETS, WalletRecord
from payres.store.work import Work

Row = Mapping[str, str | int | None]
Format = Literal["csv", "jsonl"]

MEDIA_TYPES: Final[Mapping[Format, str]] = {"csv": "text/csv", "jsonl": "application/jsonl"}
BATCH_TRANSFERS: Final = 2_000  # of which those of other wallets or times are skipped
BATCH_PAYMENTS: Final = 1_000
SLACK: Final = DAY  # how far the time in an id, which is of the machine, may be from that of the payment


class Export:
    """A table that comes in batches, one with each step until `done`.

    `columns` are the names of all members of a row, in their order; `part` is how much has come, from 0 to 1.
    """

    columns: Sequence[str]
    done = False
    part = 0.0

    def __init__(self, since: int, until: int) -> None:
        self._since, self._until = since, until

    def step(self, work: Work) -> Sequence[Row]:
        """The next rows."""
        raise NotImplementedError


def period(since: str | None, until: str | None) -> tuple[int, int]:
    """The times that a period begins and ends at, all of time for None. Raises InvalidRequest."""
    begins = 0 if since is None else require_time(since, "from")
    ends = LATEST if until is None else require_time(until, "to")
    if begins >= ends:
        raise InvalidRequest("from must be before to", field="from")
    return begins, ends


def heading(export: Export, form: Format) -> str:
    """What comes before the rows: the names of the columns as CSV, nothing before lines of JSON."""
    return _as_csv([export.columns]) if form == "csv" else ""


def lines(export: Export, rows: Sequence[Row], form: Format) -> str:
    """The rows, a line each, or several for a text of several lines in CSV (RFC 4180)."""
    if form == "csv":
        return _as_csv([[row[column] for column in export.columns] for row in rows])
    return "".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows)


def _as_csv(rows: Sequence[Sequence[str | int | None]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


class _Transfers(Export):
    """The walk along the transfers that there are at the first step."""

    _next = 1
    _last: int | None = None
    _at_end = False

    def _batch(self, work: Work) -> tuple[int, int]:
        """The ids to look at next."""
        if self._last is None:
            self._last = entries.last_transfer(work)
        first, self._next = self._next, min(self._next + BATCH_TRANSFERS, self._last + 1)
        self.part = (self._next - 1) / max(self._last, 1)
        self._at_end = self._next > self._last
        return first, self._next - 1


class Ledger(_Transfers):
    """Every posted transfer, oldest first."""

    columns = (
        *("id", "createdAt", "kind", "amount", "assetCode", "assetScale", "debitAccount", "creditAccount"),
        *("outgoingPayment", "incomingPayment"),
    )

    def __init__(self, since: int, until: int, path: str | None = None) -> None:
        super().__init__(since, until)
        self._path = path

    def step(self, work: Work) -> Sequence[Row]:
        """Raises NotFound, InvalidRequest for a wallet that does not exist."""
        account_id = None if self._path is None else require_wallet(work, self._path).account_id
        found = entries.transfers(work, *self._batch(work), self._since, self._until, account_id)
        self.done = self._at_end
        return [self._row(one) for one in found]

    def _row(self, one: TransferLine) -> Row:
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


class Statement(_Transfers):
    """What went into a wallet and out of it, with the balance after each line.

    The first row is the balance at `since`, the last the balance at `until`: the amounts between are the difference.
    Of a period that goes on, the last is the balance at the first step.
    """

    columns = ("createdAt", "kind", "amount", "balance", "assetCode", "counterpart", "payment")

    def __init__(self, path: str, since: int, until: int) -> None:
        super().__init__(since, until)
        self._path = path
        self._closes_at: int | None = None
        self._balance = 0
        self._is_open = False

    def step(self, work: Work) -> Sequence[Row]:
        """Sums up what was before, and then gives the lines. Raises NotFound, InvalidRequest."""
        wallet = require_wallet(work, self._path)
        if self._closes_at is None:
            if self._since > work.now:
                raise InvalidRequest("from is in the future, and what the balance will be is not known", field="from")
            self._closes_at = min(self._until, work.now)
        first, last = self._batch(work)
        if not self._is_open:
            self._balance += entries.net_change(work, wallet.account_id, first, last, self._since)
            if not self._at_end:
                return []
            self._is_open, self._next = True, 1
            opens_at = min(max(self._since, wallet.created_at), self._closes_at)
            return [self._total(wallet.asset, "opening balance", opens_at)]
        found = entries.transfers(work, first, last, self._since, self._until, wallet.account_id)
        rows = [self._line(work, wallet.account_id, one) for one in found]
        self.done = self._at_end
        return [*rows, self._total(wallet.asset, "closing balance", self._closes_at)] if self.done else rows

    def _line(self, work: Work, account_id: int, one: TransferLine) -> Row:
        is_credit = one.credit_account_id == account_id
        amount = one.amount if is_credit else -one.amount
        self._balance += amount
        counterpart = (work.urls.wallet(one.payer) if one.payer else None) if is_credit else one.receiver
        return {
            "createdAt": format_time(one.created_at),
            "kind": one.kind,
            "amount": format_decimal(amount, one.asset),
            "balance": format_decimal(self._balance, one.asset),
            "assetCode": one.asset_code,
            "counterpart": (None if one.kind == "fee" else counterpart) or (one.debit if is_credit else one.credit),
            # What was received goes back from the payment that received it to the one that paid.
            "payment": one.incoming_payment_id if is_credit != (one.kind == "refund") else one.outgoing_payment_id,
        }

    def _total(self, asset: Asset, kind: str, moment: int) -> Row:
        balance = format_decimal(self._balance, asset)
        empty = dict.fromkeys(self.columns)
        return empty | {"createdAt": format_time(moment), "kind": kind, "balance": balance, "assetCode": asset.code}


class Payments(Export):
    """Payments of both directions, oldest first."""

    columns = (
        *("direction", "id", "walletAddress", "state", "amount", "moved", "assetCode", "assetScale", "receiver"),
        *("failure", "metadata", "createdAt", "endedAt"),
    )

    def __init__(self, since: int, until: int, path: str | None = None) -> None:
        super().__init__(since, until)
        self._path = path
        self._after = first_identifier(since - SLACK)
        self._now: int | None = None
        self._begins_at: int | None = None

    def step(self, work: Work) -> Sequence[Row]:
        """Raises NotFound, InvalidRequest for a wallet that does not exist."""
        wallet_id = None if self._path is None else require_wallet(work, self._path).id
        self._now = self._now or work.now
        until = min(self._until, self._now)
        before = first_identifier(until + SLACK)
        found = payments_in_order(work, self._after, before, self._since, until, wallet_id, BATCH_PAYMENTS)
        self.done = len(found) < BATCH_PAYMENTS
        if self.done:
            self.part = 1.0
        else:
            self._after = found[-1].id
            self._begins_at = self._begins_at or found[0].created_at
            self.part = (found[-1].created_at - self._begins_at) / max(until - self._begins_at, 1)
        wallets = {wallet_id: WALLETS.by_id(work, wallet_id) for wallet_id in {one.wallet_address_id for one in found}}
        return [self._row(work, one, wallets[one.wallet_address_id], self._now) for one in found]

    def _row(self, work: Work, one: PaymentRecord, wallet: WalletRecord, now: int) -> Row:
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
