"""The owner's home page: the balance, what is in progress, the last movements."""

from starlette.responses import Response

from payres.pages.account.visits import HOME, Visit
from payres.store.accounts import ACCOUNTS
from payres.store.work import Work


async def show(visit: Visit) -> Response:
    """GET /account."""

    def unit(work: Work) -> int:
        account = ACCOUNTS.by_id(work, visit.wallet.account_id)
        return account.balance - account.held

    return visit.show("home.html", tab=HOME, balance=await visit.read(unit))
