"""The ledger as operators read it: its entries, and the results of the invariant checks."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from payres.core.http.context import Context
from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.errors import InvalidRequest, Unavailable, require
from payres.core.protocol.wire import Resource
from payres.core.store import accounts
from payres.core.store.connections import is_served
from payres.core.store.copies import StepNote
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.runs import note_kill
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Units, Work
from payres.operator.assets import require_asset
from payres.operator.declared.declarations import CommandLine, ContextUnits, OperationForm, operation
from payres.operator.declared.inputs import Name
from payres.operator.declared.shapes import Shape, Time, represent
from payres.operator.payments import require_payment
from payres.operator.peers import require_peer
from payres.operator.services import operator_of
from payres.operator.store.entries import page_of_entries
from payres.operator.store.invariants import FILE, LEDGER_INVARIANTS
from payres.operator.upkeep import invariant_checks
from payres.operator.upkeep.invariant_checks import Finding, first_broken
from payres.people.store.transfers import EntryRecord

UNITS: Final = {"references": "tables"} | {one.name: one.rows for one in (*LEDGER_INVARIANTS, FILE)}
# In the form of an entry: `wallet alice`, `peer second` or `liquidity USD 2`.
AccountName = Annotated[str, Meta(max_length=300)]


class LedgerEntry(Resource, frozen=True, kw_only=True):
    """A transfer between two accounts of one asset, each named by its kind and, for kinds such as `wallet`, its
    owner."""

    id: str
    kind: str
    amount: str
    asset_code: str
    asset_scale: int
    debit: str
    credit: str
    outgoing_payment: str | None
    incoming_payment: str | None
    packet: str | None
    refund: str | None
    created_at: Time


class InvariantCheck(Resource, frozen=True, kw_only=True):
    name: str
    claim: str
    holds: bool
    examined: int
    breaches: list[str]


class LedgerCheck(Resource, frozen=True, kw_only=True):
    """`broken` names the first invariant that does not hold."""

    ok: bool
    broken: str | None
    checks: list[InvariantCheck]


def ledger_entry(work: Work, record: EntryRecord) -> LedgerEntry:
    return represent(LedgerEntry, record, id=str(record.id), amount=format_decimal(record.amount, record.asset))


def ledger_check(findings: Sequence[Finding]) -> LedgerCheck:
    broken = first_broken(findings)
    checks = [represent(InvariantCheck, one) for one in findings]
    return LedgerCheck(ok=broken is None, broken=broken.name if broken else None, checks=checks)


def _checked(found: LedgerCheck) -> str:
    return "\n".join(map(_line, found.checks))


def _line(one: InvariantCheck) -> str:
    if one.holds:
        return f"ok      {one.name}: {one.claim} ({one.examined} {UNITS[one.name]})"
    return "\n          ".join([f"BROKEN  {one.name}: it does not hold that {one.claim}", *one.breaches])


def _broken(found: LedgerCheck) -> str | None:
    first = next((one for one in found.checks if not one.holds), None)
    return f"The invariant `{first.name}` is broken: {first.breaches[0]}" if first else None


@operation(
    "GET /ledger/check ledger:read",
    command=CommandLine("ledger check", text=_checked, failure=_broken),
    form=OperationForm(
        "Check now",
        path="/health/ledger/check",
        back="/health/ledger",
        will="Check every invariant of the ledger. You may leave the page.",
        done="The check began",
        begins="check",
    ),
)
async def check(call: ContextUnits) -> LedgerCheck:
    """Check every invariant of the ledger, over one snapshot. This takes long if there are many payments.

    The server goes on serving. The exit code is 1 if an invariant is broken, and the first broken one is named.
    """
    if not isinstance(call.context, Context):  # that of a command
        return await _check(call, lambda *_: None)
    actor, works = await call.read(lambda work: work.actor), operator_of(call.context).long_works
    return await works.run("check", actor, lambda one: _check(call, one.note))


async def _check(call: Units, note: StepNote) -> LedgerCheck:
    at, findings = await call.read(lambda work: (work.now, invariant_checks.check(work, note)))

    def unit(work: Work) -> None:
        if not is_served(work.settings.database):
            note_kill(work)
        invariant_checks.note(work, findings, at)

    with suppress(Unavailable):  # the findings can be shown all the same
        await call.write(unit)
    return ledger_check(findings)


ENTRY: Final = Shape(ledger_entry)


@operation("GET /ledger/entries ledger:read", ENTRY)
def list_entries(
    work: Work, page: PageQuery, payment: Name | UnsetType = UNSET, account: AccountName | UnsetType = UNSET
) -> tuple[Sequence[EntryRecord], PageBounds]:
    """List the transfers of the ledger, or of one account, which takes a scan of the ledger."""
    account_id = _find_account(work, account) if account else None
    record = require_payment(work, payment) if payment else None
    return page_of_entries(work, page, account_id=account_id, payment=record)


def _find_account(work: Work, name: str) -> int:
    """The id of an account such as `wallet alice`, `peer second` or `liquidity USD 2`. Raises NotFound, InvalidRequest
    for a name of another form."""
    kind, _, whose = name.partition(" ")
    if kind == "wallet":
        return require_wallet(work, whose).account_id
    if kind == "peer":
        return require_peer(work, whose).account_id
    code, _, scale = whose.rpartition(" ")
    if kind not in {"liquidity", "fees", "external"} or not (scale.isascii() and scale.isdigit() and len(scale) <= 3):
        raise InvalidRequest(
            f"{name!r} is not an account: write `wallet alice`, `peer second`, `liquidity USD 2`, `fees USD 2` or"
            " `external USD 2`",
            field="account",
        )
    found = accounts.find_operator_account(work, require_asset(work, code, int(scale)).id, kind)
    return require(found, f"The account {name} has not been used yet").id
