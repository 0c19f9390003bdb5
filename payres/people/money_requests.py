"""Requests for money: incoming payments that a wallet's owner makes without a grant, for others to pay.

Their client is the wallet itself, which distinguishes them from incoming payments of apps and of payers.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from payres.core.payments import incoming
from payres.core.payments.idempotency import KeyedRequest, cache_response, find_response
from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.errors import nothing_here
from payres.core.protocol.identifiers import new_id
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import described
from payres.core.store import audit, clients
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.wallets import WalletRecord, active_wallet
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import qr_code, redirect
from payres.html.typed_amounts import Mistyped, typed_amount
from payres.people.bills import Bill, bill_of
from payres.people.sending import MAX_NOTE
from payres.people.sign_in import HOME, OwnerVisit
from payres.people.store import activity

LISTED: Final = 100
PATH: Final = "/account/request"
DAYS: Final = (1, 7, 30)
LOOK_SECONDS: Final = 10  # until the page of an open request refreshes


def make_request(work: Work, wallet: WalletRecord, amount: int | None, note: str, lifetime: int, once: str = "") -> str:
    """Creates a request and returns its id. `amount` is in minor units, None for any; `lifetime` in microseconds.

    `once` is the id of the form: the same form sent again returns the first request. Raises InvalidRequest if the
    wallet is inactive.
    """
    address = work.urls.wallet(wallet.path)
    active_wallet(work, address)
    client_id = clients.ensure_client(work, canonical(address), address, None, work.now).id
    keyed = _keyed(client_id, once, [amount, note, lifetime]) if once else None
    known = find_response(work, keyed)
    if known is not None:
        return known.decode()
    until = work.now + min(lifetime, work.settings.incoming_payment_lifetime * SECOND)
    made = incoming.made(work, wallet, client_id, amount, described(note), until)
    incoming.add(work, wallet, made)
    cache_response(work, keyed, made.id.encode())
    audit.record(work, "payment.request", made.id, wallet=wallet.path)
    return made.id


def _keyed(client_id: int, once: str, typed: Sequence[int | str | None]) -> KeyedRequest:
    """A form under a key of what was typed too: changed after going back, it asks for something else."""
    body = msgspec.json.encode([once, *typed])
    return KeyedRequest(client_id, hashlib.sha256(body).hexdigest(), PATH, body)


def cancel_request(work: Work, wallet: WalletRecord, payment_id: str) -> None:
    """Completes a request, which then accepts no more money. Does nothing if it has ended.

    Raises NotFound.
    """
    found = find(work, wallet, payment_id)
    if found.open_at(work.now):
        incoming.complete(work, wallet, found)
        audit.record(work, "payment.cancel", found.id, wallet=wallet.path)


def find(work: Work, wallet: WalletRecord, payment_id: str) -> IncomingRecord:
    """A request that the wallet's owner made. Raises NotFound, also for other incoming payments."""
    found = INCOMING.get(work, payment_id)
    if found is None or not is_request(work, wallet, found):
        raise nothing_here()
    return found


def is_request(work: Work, wallet: WalletRecord, payment: IncomingRecord) -> bool:
    """Whether the wallet's owner made this incoming payment."""
    return payment.wallet_address_id == wallet.id and payment.client_id == _own_client(work, wallet)


def list_open(work: Work, wallet: WalletRecord) -> Sequence[Bill]:
    """The open requests, newest first, at most LISTED."""
    client = _own_client(work, wallet)
    found = [] if client is None else activity.open_requests(work, client, wallet.id, work.now, LISTED)
    return [bill_of(work, INCOMING.by_id(work, one), wallet) for one in found]


def _own_client(work: Work, wallet: WalletRecord) -> int | None:
    found = clients.CLIENTS.find(work, identity=canonical(work.urls.wallet(wallet.path)))
    return None if found is None else found.id


async def show(visit: OwnerVisit) -> Response:
    """GET /account/request: the form, filled in from a link."""
    return await show_form(visit, visit.request.query_params)


async def show_one(visit: OwnerVisit) -> Response:
    """GET /account/request/{id}; with `?ask=cancel` it asks whether to cancel it."""
    payment_id = visit.segments["id"]

    def unit(work: Work) -> tuple[Bill, Sequence[Bill]]:
        bill = bill_of(work, find(work, visit.wallet, payment_id), visit.wallet)
        return bill, list_open(work, visit.wallet)

    bill, listed = await visit.read(unit)
    asks = bill.is_open and visit.request.query_params.get("ask") == "cancel"
    refresh = LOOK_SECONDS if bill.is_open and not asks else None
    others = [one for one in listed if one.payment.id != payment_id]
    qr = qr_code(bill.page, visit.language.say("QR code of the payment page"))
    return visit.show(
        "one_request.html", tab=HOME, refresh=refresh, bill=bill, bills=others, path=PATH, qr=qr, asks=asks
    )


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
        return await show_form(visit, form, problems, 400)
    lifetime, once = int(days) * DAY, form.get("once", "")
    unit = partial(make_request, wallet=visit.wallet, amount=amount, note=note, lifetime=lifetime, once=once)
    return redirect(f"{PATH}/{await visit.write(unit)}")


async def cancel(visit: OwnerVisit, form: Form) -> Response:
    """Completes a request, unless it has ended; its page shows which."""
    payment_id = visit.segments["id"]
    await visit.write(partial(cancel_request, wallet=visit.wallet, payment_id=payment_id))
    return redirect(f"{PATH}/{payment_id}")


async def show_form(visit: OwnerVisit, given: Form, problems: Mapping[str, str] = {}, status: int = 200) -> Response:
    """The form, filled in with what is given, beside the open requests."""
    bills = await visit.read(partial(list_open, wallet=visit.wallet))
    return visit.show(
        "request.html",
        status,
        tab=HOME,
        path=PATH,
        bills=bills,
        problems=problems,
        given=given,
        once=given.get("once") or new_id(),
        lifetimes=_lifetimes(visit),
    )


def _lifetimes(visit: OwnerVisit) -> Sequence[int]:
    """The offered lifetimes in days, within the operator's limit."""
    longest = visit.context.settings.incoming_payment_lifetime * SECOND
    return [days for days in DAYS if days * DAY <= longest] or DAYS[:1]
