"""Exports: payments, the ledger, and the statement of a wallet, row by row in bounded memory.

Times are from `since` until just before `until`, in microseconds. Rows are made a batch with each step, each in a
transaction of its own; what is written after the first step is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from payres.amounts import Asset, format_decimal
from payres.clock import DAY, format_time
from payres.identifiers import first_identifier
from payres.operator.wallets import require_wallet
from payres.store import exports
from payres.store.exports import PaymentLine, PaymentQuery, TransferLine
from payres.store.work import Work

Row = Mapping[str, str | None]

BATCH_TRANSFERS: Final = 10_000  # of which those of other wallets or times are skipped
BATCH_PAYMENTS: Final = 1_000
SLACK: Final = DAY  # how far the time in an id, which is of the machine, may be from that of the payment


class Export(Protocol):
    """A table that comes in batches, one with each step until `done`."""

    done: bool

    @property
    def columns(self) -> Sequence[str]:
        """The names of all members of a row, in their order."""
        ...

    @property
    def part(self) -> float:
        """How much has come, from 0 to 1."""
        ...

    def step(self, work: Work) -> Sequence[Row]:
        """The next rows."""
        ...


class _Transfers:
    """The walk along the transfers that there are at the first step."""

    done = False

    def __init__(self) -> None:
        self._next = 1
        self._last: int | None = None

    @property
    def part(self) -> float:
        return min((self._next - 1) / self._last, 1.0) if self._last else 0.0

    def _batch(self, work: Work) -> tuple[int, int]:
        """The ids to look at next."""
        if self._last is None:
            self._last = exports.last_transfer(work)
        first, self._next = self._next, min(self._next + BATCH_TRANSFERS, self._last + 1)
        return first, self._next - 1

    def _ends(self) -> bool:
        return self._last is not None and self._next > self._last


class Ledger(_Transfers):
    """Every posted transfer, oldest first."""

    columns = (
        *("id", "createdAt", "kind", "amount", "assetCode", "assetScale", "debitAccount", "creditAccount"),
        *("outgoingPayment", "incomingPayment"),
    )

    def __init__(self, since: int, until: int, path: str | None = None) -> None:
        super().__init__()
        self._since, self._until, self._path = since, until, path

    def step(self, work: Work) -> Sequence[Row]:
        """Raises NotFound, InvalidRequest for a wallet that does not exist."""
        account_id = None if self._path is None else require_wallet(work, self._path).account_id
        found = exports.transfers(work, *self._batch(work), self._since, self._until, account_id)
        self.done = self._ends()
        return [self._row(one) for one in found]

    def _row(self, one: TransferLine) -> Row:
        return {
            "id": str(one.id),
            "createdAt": format_time(one.created_at),
            "kind": one.kind,
            "amount": format_decimal(one.amount, Asset(one.code, one.scale)),
            "assetCode": one.code,
            "assetScale": str(one.scale),
            "debitAccount": _account(one.debit_kind, one.debit_name),
            "creditAccount": _account(one.credit_kind, one.credit_name),
            "outgoingPayment": one.outgoing_payment_id,
            "incomingPayment": one.incoming_payment_id,
        }


class Statement(_Transfers):
    """What went into a wallet and out of it, with the balance after each line.

    The first row is the balance at `since`, the last the balance at `until`: the amounts between are the difference.
    """

    columns = ("createdAt", "kind", "amount", "balance", "assetCode", "counterpart", "payment")

    def __init__(self, path: str, since: int, until: int) -> None:
        super().__init__()
        self._path, self._since, self._until = path, since, until
        self._balance = 0
        self._is_open = False

    def step(self, work: Work) -> Sequence[Row]:
        """Sums up what was before, and then gives the lines. Raises NotFound, InvalidRequest."""
        wallet = require_wallet(work, self._path)
        first, last = self._batch(work)
        if not self._is_open:
            self._balance += exports.net_change(work, wallet.account_id, first, last, self._since)
            if not self._ends():
                return []
            self._is_open, self._next = True, 1
            return [self._total(wallet.asset, "opening balance", max(self._since, wallet.created_at))]
        found = exports.transfers(work, first, last, self._since, self._until, wallet.account_id)
        rows = [self._line(work, wallet.account_id, one) for one in found]
        self.done = self._ends()
        return [*rows, self._total(wallet.asset, "closing balance", min(self._until, work.now))] if self.done else rows

    def _line(self, work: Work, account_id: int, one: TransferLine) -> Row:
        is_credit = one.credit_account_id == account_id
        amount = one.amount if is_credit else -one.amount
        self._balance += amount
        asset = Asset(one.code, one.scale)
        other = (one.debit_kind, one.debit_name) if is_credit else (one.credit_kind, one.credit_name)
        counterpart = (work.urls.wallet(one.payer) if one.payer else None) if is_credit else one.receiver
        return {
            "createdAt": format_time(one.created_at),
            "kind": one.kind,
            "amount": format_decimal(amount, asset),
            "balance": format_decimal(self._balance, asset),
            "assetCode": asset.code,
            "counterpart": (None if one.kind == "fee" else counterpart) or _account(*other),
            # What was received goes back from the payment that received it to the one that paid.
            "payment": one.incoming_payment_id if is_credit != (one.kind == "refund") else one.outgoing_payment_id,
        }

    def _total(self, asset: Asset, kind: str, moment: int) -> Row:
        balance = format_decimal(self._balance, asset)
        empty = dict.fromkeys(self.columns)
        return empty | {"createdAt": format_time(moment), "kind": kind, "balance": balance, "assetCode": asset.code}


class Payments:
    """Incoming payments and then outgoing ones, oldest first."""

    columns = (
        *("direction", "id", "walletAddress", "state", "amount", "moved", "assetCode", "assetScale", "receiver"),
        *("failure", "metadata", "createdAt", "endedAt"),
    )
    done = False
    part = 0.0

    def __init__(self, since: int, until: int, path: str | None = None) -> None:
        self._since, self._until, self._path = since, until, path
        self._directions = ["incoming", "outgoing"]
        self._after = self._first = first_identifier(since - SLACK)
        self._now: int | None = None
        self._begins_at: int | None = None

    def step(self, work: Work) -> Sequence[Row]:
        """Raises NotFound, InvalidRequest for a wallet that does not exist."""
        wallet_id = None if self._path is None else require_wallet(work, self._path).id
        self._now = self._now or work.now
        until = min(self._until, self._now)
        query = PaymentQuery(self._after, first_identifier(until + SLACK), self._since, until, wallet_id)
        direction = self._directions[0]
        found = exports.payments(work, direction, query, BATCH_PAYMENTS, self._now)
        if len(found) == BATCH_PAYMENTS:
            self._after = found[-1].id
            self._begins_at = self._begins_at or found[0].created_at
            come = (found[-1].created_at - self._begins_at) / max(until - self._begins_at, 1)
        else:
            self._directions.pop(0)
            self._after, self.done, come = self._first, not self._directions, 0
        self.part = 1 - (len(self._directions) - come) / 2
        return [self._row(work, direction, one) for one in found]

    def _row(self, work: Work, direction: str, one: PaymentLine) -> Row:
        asset = Asset(one.code, one.scale)
        return {
            "direction": direction,
            "id": work.urls.resource(f"{direction}-payments", one.id),
            "walletAddress": work.urls.wallet(one.path),
            "state": one.state,
            "amount": None if one.amount is None else format_decimal(int(one.amount), asset),
            "moved": format_decimal(one.moved, asset),
            "assetCode": asset.code,
            "assetScale": str(asset.scale),
            "receiver": one.receiver,
            "failure": one.failure,
            "metadata": one.metadata,
            "createdAt": format_time(one.created_at),
            "endedAt": None if one.ended_at is None else format_time(one.ended_at),
        }


def _account(kind: str, name: str | None) -> str:
    """How an account is called: its kind, and the wallet or peer that it is of."""
    return kind if name is None else f"{kind} {name}"
