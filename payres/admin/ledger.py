"""The ledger: its entries, and the checks of its invariants."""

from contextlib import suppress
from functools import partial

from payres.admin import representations
from payres.admin.paging import page_of
from payres.admin.requests import LedgerQuery
from payres.admin.serving import Call
from payres.admin.wire import LedgerCheck, LedgerEntry
from payres.errors import Unavailable
from payres.operator import invariants
from payres.operator.entries import find_account
from payres.operator.payments import require_payment
from payres.store.entries import page_of_entries
from payres.store.pages import PageQuery
from payres.store.work import Work
from payres.wire import Page


def list_page(work: Work, page: PageQuery, query: LedgerQuery) -> Page[LedgerEntry]:
    """List the transfers of the ledger, or those of one account, which are looked for one by one."""
    account = find_account(work, query.account) if query.account else None
    payment = require_payment(work, query.payment) if query.payment else None
    found = page_of_entries(work, page, account_id=account, payment=payment)
    return page_of(found, representations.ledger_entry)


async def check(call: Call) -> LedgerCheck:
    """Check every invariant of the ledger, over one snapshot. It takes long where there are many payments."""
    at, findings = await call.read(lambda work: (work.now, invariants.check(work)))
    with suppress(Unavailable):  # what was found can be told all the same
        await call.write(partial(invariants.note, findings=findings, checked_at=at))
    return representations.ledger_check(findings)
