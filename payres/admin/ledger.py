"""The ledger: its entries, and the checks of its invariants."""

from contextlib import suppress
from functools import partial

from payres.admin import representations
from payres.admin.call import Call
from payres.admin.requests import LedgerQuery
from payres.admin.wire import LedgerCheck, LedgerEntry
from payres.errors import InvalidRequest, Unavailable, require
from payres.operator import invariant_checks
from payres.operator.assets import require_asset
from payres.operator.payments import require_payment
from payres.operator.peers import require_peer
from payres.operator.wallets import require_wallet
from payres.representations import page_of
from payres.store import accounts
from payres.store.entries import page_of_entries
from payres.store.rows import PageQuery
from payres.store.work import Work
from payres.wire import Page


def list_page(work: Work, page: PageQuery, query: LedgerQuery) -> Page[LedgerEntry]:
    """List the transfers of the ledger, or those of one account, which are looked for one by one."""
    account = _find_account(work, query.account) if query.account else None
    payment = require_payment(work, query.payment) if query.payment else None
    found = page_of_entries(work, page, account_id=account, payment=payment)
    return page_of(found, representations.ledger_entry)


async def check(call: Call) -> LedgerCheck:
    """Check every invariant of the ledger, over one snapshot. It takes long where there are many payments."""
    at, findings = await call.read(lambda work: (work.now, invariant_checks.check(work)))
    with suppress(Unavailable):  # what was found can be shown all the same
        await call.write(partial(invariant_checks.note, findings=findings, checked_at=at))
    return representations.ledger_check(findings)


def _find_account(work: Work, name: str) -> int:
    """The id of an account such as `wallet alice`, `peer second` or `liquidity USD 2`.

    Raises NotFound, InvalidRequest for another kind of name.
    """
    kind, _, whose = name.partition(" ")
    if kind == "wallet":
        return require_wallet(work, whose).account_id
    if kind == "peer":
        return require_peer(work, whose).account_id
    code, _, scale = whose.rpartition(" ")
    if kind not in {"liquidity", "fees", "external"} or not (scale.isascii() and scale.isdigit() and len(scale) <= 3):
        raise InvalidRequest(
            f"{name!r} names no account: write `wallet alice`, `peer second`, `liquidity USD 2`, `fees USD 2` or"
            " `external USD 2`",
            field="account",
        )
    found = accounts.find_operator_account(work, require_asset(work, code, int(scale)).id, kind)
    return require(found, f"The account {name} was not used yet").id
