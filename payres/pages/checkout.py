"""The payment page's form for any wallet: the payer is sent to their own wallet, comes back, and sees what became of
the payment.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from payres.clock import SECOND
from payres.errors import DomainError, InvalidReceiver, MethodNotAllowed, TooManyRequests
from payres.owner import checkout
from payres.owner.checkout import Checkout, Desk, Forged, NotBegun
from payres.owner.sending import typed_url
from payres.pages import bills
from payres.pages.amounts import Mistyped, typed_amount
from payres.pages.bills import Bill, bill_of, find_bill
from payres.pages.error_sentences import problem_of
from payres.pages.forms import check_sign_in, form_secret, read_form
from payres.pages.html import PAGE_METHODS, language_of, redirect, render, serve_page
from payres.pages.language import marked
from payres.routes.context import Context, context_of
from payres.routes.error_answers import note_error
from payres.store.work import Work
from payres.visible import visible_url

# Seconds after which the page looks again: for money on its way, and once it is late.
LOOK_SECONDS: Final = 2
LATE_SECONDS: Final = 30

PROBLEMS: Final[Mapping[str, str]] = {
    "no_address": marked("This is no wallet address. It looks like $wallet.example/you; your wallet shows it."),
    "silent": marked("{host} does not answer. Check the address, or try again in a moment."),
    "busy": marked("The server is busy. Nothing was done; try again in a moment."),
    "no_wallet": marked("There is no wallet at this address. Check it for typing errors."),
    "not_open": marked("{host} has no wallet that can be asked to pay. Try another wallet."),
    "no_way": marked("Your wallet at {host} cannot pay this, or money does not get from there to here."),
}


class End(NamedTuple):
    """What the page says of a payment: the sign, what is so, and what that means."""

    sign: str
    title: str
    text: str
    status: int = 200


class Back(NamedTuple):
    """A payer who came back: the payment that was begun, and the bill that it pays."""

    found: Checkout
    bill: Bill


ENDS: Final[Mapping[str, End]] = {
    "paid": End("", marked("Paid"), marked("<bdi>{name}</bdi> has your <b>{amount}</b>.")),
    "made": End(
        "wait",
        marked("On its way"),
        marked("Your wallet sends <b>{amount}</b> to <bdi>{name}</bdi>. This page looks again by itself."),
    ),
    "moment": End("wait", marked("One moment"), marked("Your wallet agrees. This page goes on by itself.")),
    "late": End(
        "wait",
        marked("Not here yet"),
        marked("<bdi>{name}</bdi> has not got it yet. Look in your wallet whether it has paid before you pay again."),
    ),
    "asked": End(
        "wait",
        marked("Your wallet has not agreed yet"),
        marked("Nothing was paid so far. Go on there, or begin again."),
    ),
    "denied": End("bad", marked("Not paid"), marked("It was not allowed at your wallet, so no money has left it.")),
    "closed": End(
        "bad",
        marked("Not paid"),
        marked("Meanwhile the bill was paid, or it has ended. No money has left your wallet."),
    ),
    "refused": End(
        "bad",
        marked("Your wallet did not pay"),
        marked("What it agreed to does not hold any more. No money has left it; you can begin again."),
    ),
    "no_funds": End(
        "bad",
        marked("Your wallet did not pay"),
        marked("It does not have enough money for this. No money has left it."),
    ),
    "silent": End(
        "bad", marked("Your wallet did not answer"), marked("No money has left it; you can begin again in a moment.")
    ),
    "failed": End(
        "bad",
        marked("The payment has failed"),
        marked("Your wallet could not deliver it. What did not arrive stays in your wallet."),
    ),
    "part": End(
        "bad",
        marked("The payment stopped halfway"),
        marked("A part may have arrived; the rest stays in your wallet, which shows how much has left it."),
    ),
    "elsewhere": End(
        "bad",
        marked("This was begun in another browser"),
        marked("Nothing was paid from here. Go on in that browser, or begin again in this one."),
        403,
    ),
    "forged": End(
        "bad",
        marked("This answer is not from your wallet"),
        marked(
            "It does not fit what your wallet was asked, so nothing was paid. Go back to your wallet, or begin again."
        ),
        400,
    ),
}


async def serve_bill(request: Request) -> Response:
    """The payment page /pay/{id}, and its form."""
    return await serve_page(request, _answer_bill)


async def serve_return(request: Request) -> Response:
    """GET /pay/{id}/return/{state}: where the payer's wallet sends them back to."""
    return await serve_page(request, _answer_return)


async def _answer_bill(request: Request) -> Response:
    _check_address(request)
    bill = await context_of(request).database.read(partial(find_bill, payment_id=request.path_params["id"]))
    if request.method in {"GET", "HEAD"}:
        return bills.show(request, bill)
    if request.method != "POST":
        raise MethodNotAllowed(PAGE_METHODS)
    return await _begin(request, bill, await read_form(request))


async def _begin(request: Request, bill: Bill, form: Mapping[str, str]) -> Response:
    """Sends the payer to their wallet, or says at the field why not."""
    context, language, browser = context_of(request), language_of(request), form_secret(request)
    host, problems = "", dict[str, str]()
    try:
        check_sign_in(request, form)
        if not bill.is_open:
            return redirect(f"/pay/{bill.payment.id}")
        amount = bill.payment.remaining or typed_amount(language, form.get("amount", ""), bill.wallet.asset)
        payer = typed_url(context.urls, form.get("payer", ""))
        if context.urls.is_ours(payer):
            return redirect(f"/account/send?to={quote(bill.url, safe='')}")
        host = visible_url(payer).host
        context.rate_limits.check_checkout(request.scope)
        assert browser is not None, "the form's token is of the cookie"
        return redirect(await checkout.begin(_desk(context), bill.payment, bill.wallet, amount, payer, browser))
    except NotBegun as error:
        problems, status = {"payer": language.say(PROBLEMS[error.problem], host=host)}, 422
    except InvalidReceiver:
        problems, status = {"payer": language.say(PROBLEMS["no_address"])}, 400
    except Mistyped as error:
        problems, status = {"amount": str(error)}, 400
    except DomainError as error:
        noted = note_error(request, error)
        problems, status = {"": problem_of(language, noted)}, noted.status
    return bills.show(request, bill, problems, form, status)


async def _answer_return(request: Request) -> Response:
    _check_address(request)
    if request.method not in {"GET", "HEAD"}:
        raise MethodNotAllowed("GET, HEAD")
    context, query, path = context_of(request), request.query_params, request.path_params
    back = await _find(request)
    found, asked = back.found, back.found.asked
    if not found.is_of(form_secret(request)):
        return _show(request, back, "elsewhere")
    plain = f"/pay/{path['id']}/return/{path['state']}"
    if request.method == "HEAD" or found.record.state != "asked" or asked is None:
        return redirect(plain) if query else await _show_state(request, back)
    desk, reference = _desk(context), query.get("interact_ref", "")
    if reference:
        wait = asked.not_before - context.clock.now()
        if wait > 0:
            return _show(request, back, "moment", -(-wait // SECOND))
        try:
            await checkout.finish(desk, found, reference, query.get("hash", ""))
        except Forged:
            return _show(request, back, "forged")
        if (await _find(request)).found.record.state == "asked":
            return _show(request, back, "moment", checkout.TOO_FAST // SECOND)
    elif "result" in query:
        await checkout.refuse(desk, found)
    else:
        return _show(request, back, "asked")
    return redirect(plain)


async def _show_state(request: Request, back: Back) -> Response:
    """Where a payment stands that the payer came back from."""
    await checkout.look(_desk(context_of(request)), back.found)
    back = await _find(request)
    record = back.found.record
    if record.state not in {"returned", "made"}:
        return _show(request, back, record.failure or record.state)
    is_late = back.found.is_late(context_of(request).clock.now())
    return _show(request, back, *(("late", LATE_SECONDS) if is_late else ("made", LOOK_SECONDS)))


def _show(request: Request, back: Back, word: str, refresh: int | None = None) -> Response:
    language, end, record, bill = language_of(request), ENDS[word], back.found.record, back.bill
    asked = back.found.asked
    values = {
        "bill": bill,
        "end": end,
        "text": language.say(end.text, name=bill.name, amount=language.money(record.amount, bill.wallet.asset)),
        # What the payer typed is for their own browser.
        "payer": None if word == "elsewhere" else visible_url(record.payer),
        "paid_at": language.moment(record.changed_at) if word == "paid" else None,
        # Not while the money may still come: it would be paid twice.
        "again": bill.is_open and word not in {"paid", "made", "late", "moment"},
        "wallet": asked.redirect if asked and word in {"asked", "forged"} else None,
    }
    response = render(request, "pay_return.html", values, end.status)
    if refresh is not None:
        response.headers["Refresh"] = str(refresh)
    return response


async def _find(request: Request) -> Back:
    path = request.path_params

    def unit(work: Work) -> Back:
        found = checkout.find(work, path["id"], path["state"])
        return Back(found, bill_of(work, found.payment, found.wallet))

    return await context_of(request).database.read(unit)


def _desk(context: Context) -> Desk:
    allows = context.settings.allow_private_hosts
    return Desk(context.database, context.urls, context.clock, context.http, context.identity, allows)


def _check_address(request: Request) -> None:
    too_many = context_of(request).rate_limits.address_error(request.scope)
    if too_many is not None:
        raise TooManyRequests(str(too_many), retry_after=too_many.retry_after)
