"""The owner's home page: the balance, payments in progress, the last movements, budgets, and the wallet address."""

from typing import Any, Final

from starlette.responses import Response

from payres.core.store.accounts import ACCOUNTS
from payres.core.store.work import Work
from payres.people.account.visits import HOME, OwnerVisit
from payres.people.rules import apps
from payres.people.rules.activity import Reader, Wanted

MOVEMENTS: Final = 10
IN_PROGRESS: Final = 5
BUDGETS: Final = 3


async def show(visit: OwnerVisit) -> Response:
    """GET /account."""

    def unit(work: Work) -> dict[str, Any]:
        wallet, account = visit.wallet, ACCOUNTS.by_id(work, visit.wallet.account_id)
        reader = Reader(work, wallet, visit.language.zone)
        under_way = reader.in_progress(IN_PROGRESS)
        rows = reader.page(Wanted(), MOVEMENTS + len(under_way)).rows
        shown = {one.key for one in under_way}
        return {
            "balance": account.balance - account.held,
            "in_progress": under_way,
            "rows": [row for row in rows if row.newest.key not in shown][:MOVEMENTS],
            "budgets": apps.budgets(work, wallet).apps[:BUDGETS],
            "address": work.urls.wallet(wallet.path),
            "pointer": work.urls.pointer(wallet.path) or work.urls.wallet(wallet.path),
        }

    return visit.show("home.html", tab=HOME, **await visit.read(unit))
