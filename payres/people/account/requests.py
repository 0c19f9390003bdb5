"""Pages of requests for money: a form, the open requests, and one request with its QR code."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from starlette.responses import Response

from payres.core.protocol.clock import DAY, SECOND
from payres.core.store.work import Work
from payres.html.amounts import Mistyped, typed_amount
from payres.html.html import redirect
from payres.html.qr import qr_code
from payres.html.visits import Form
from payres.people.account.send import MAX_NOTE
from payres.people.account.visits import HOME, OwnerVisit
from payres.people.bills import Bill, bill_of
from payres.people.rules import requests

PATH: Final = "/account/request"
DAYS: Final = (1, 7, 30)
LOOK_SECONDS: Final = 10  # until the page of an open request refreshes


async def show(visit: OwnerVisit) -> Response:
    """GET /account/request: the form, filled in from a link."""
    return await _show(visit, {}, visit.request.query_params)


async def show_one(visit: OwnerVisit) -> Response:
    """GET /account/request/{id}."""
    payment_id = visit.segments["id"]

    def unit(work: Work) -> tuple[Bill, Sequence[Bill]]:
        bill = bill_of(work, requests.find(work, visit.wallet, payment_id), visit.wallet)
        return bill, _list_open(work, visit)

    bill, listed = await visit.read(unit)
    refresh = LOOK_SECONDS if bill.is_open else None
    others = [one for one in listed if one.payment.id != payment_id]
    qr = qr_code(bill.page, visit.language.say("QR code of the payment page"))
    return visit.show("one_request.html", tab=HOME, refresh=refresh, bill=bill, bills=others, path=PATH, qr=qr)


async def make(visit: OwnerVisit, form: Form) -> Response:
    """Makes a request, and redirects to its page."""
    text, note, days = form.get("amount", "").strip(), " ".join(form.get("note", "").split()), form.get("days", "")
    problems: dict[str, str] = {}
    amount = None
    if text:
        try:
            amount = typed_amount(visit.language, text, visit.wallet.asset)
        except Mistyped as error:
            problems["amount"] = str(error)
    if len(note) > MAX_NOTE:
        problems["note"] = visit.language.say("A note has at most {number} characters.", number=MAX_NOTE)
    if days not in map(str, _lifetimes(visit)):
        problems["days"] = visit.language.say("Choose one of these.")
    if problems:
        return await _show(visit, problems, form, 400)
    unit = partial(requests.make, wallet=visit.wallet, amount=amount, note=note, lifetime=int(days) * DAY)
    return redirect(f"{PATH}/{await visit.write(unit)}")


async def cancel(visit: OwnerVisit, form: Form) -> Response:
    """Completes a request, unless it has ended; its page shows which."""
    payment_id = visit.segments["id"]
    await visit.write(partial(requests.cancel, wallet=visit.wallet, payment_id=payment_id))
    return redirect(f"{PATH}/{payment_id}")


async def _show(visit: OwnerVisit, problems: Mapping[str, str], given: Form, status: int = 200) -> Response:
    bills = await visit.read(partial(_list_open, visit=visit))
    lifetimes = _lifetimes(visit)
    return visit.show(
        "request.html", status, tab=HOME, path=PATH, bills=bills, problems=problems, given=given, lifetimes=lifetimes
    )


def _list_open(work: Work, visit: OwnerVisit) -> Sequence[Bill]:
    return [bill_of(work, one, visit.wallet) for one in requests.list_open(work, visit.wallet)]


def _lifetimes(visit: OwnerVisit) -> Sequence[int]:
    """The offered lifetimes in days, within the operator's limit."""
    longest = visit.context.settings.incoming_payment_lifetime * SECOND
    return [days for days in DAYS if days * DAY <= longest] or DAYS[:1]
