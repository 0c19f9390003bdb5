"""Exports: payments, the ledger, and the statement of a wallet, row by row in bounded memory.

A period is from `since` until just before `until`, in microseconds. Each step makes a batch of rows in its own
transaction, so that no snapshot is held; rows written after the first step are left out.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.clock import DAY, LATEST, format_time, format_time_if_any
from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.identifiers import first_identifier
from payres.core.store import accounts
from payres.core.store.wallets import WALLETS, WalletRecord, require_wallet
from payres.core.store.work import Work
from payres.html.exports import FILES, Export, ExportRow, Format, Walk
from payres.operator.declared.declarations import CommandLine, operation
from payres.operator.declared.inputs import MAX_NAME_LENGTH, TimeText, require_time, said
from payres.operator.store.all_payments import PaymentRecord, payments_in_order
from payres.operator.wallets import named_wallet
from payres.people.statements import batches, export_of
from payres.people.store import transfers
from payres.people.store.transfers import TransferLine

BATCH_PAYMENTS: Final = 1_000
SLACK: Final = DAY  # how far the time in an id, from the machine's clock, may be from that of the payment
LEDGER: Final = (
    *("id", "createdAt", "kind", "amount", "assetCode", "assetScale", "debitAccount", "creditAccount"),
    *("outgoingPayment", "incomingPayment"),
)

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
        for first, end in batches(last):
            found = transfers.transfers(work, first, end, since, until, account_id)
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
    return export_of(wallet, *_period(from_, to), format_)


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
