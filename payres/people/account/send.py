"""Sending money: the form, the price, and its confirmation."""

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from payres.core.http.error_answers import note_error
from payres.core.process.rate_limiter import count_for_client
from payres.core.protocol.amounts import Asset, Terms
from payres.core.protocol.errors import DomainError
from payres.core.protocol.visible import visible_url
from payres.core.store.work import Work
from payres.html.amounts import Mistyped, typed_amount
from payres.html.error_sentences import problem_of
from payres.html.html import redirect
from payres.html.language import marked
from payres.html.visits import Form
from payres.interledger.node import node_of
from payres.people.account.visits import HOME, OwnerVisit
from payres.people.rules import sending
from payres.people.rules.sending import KeptWish, Price, Wish

MAX_NOTE: Final = 140
FAILED: Final = 400
# The field and its message, by the reason of an error, else by its code.
PROBLEMS: Final[Mapping[str, tuple[str, str]]] = {
    "no_address": ("to", marked("This is no wallet address. They look like {example} or https://{plain}.")),
    "no_wallet": ("to", marked("There is no wallet at this address. Check it with whoever gave it to you.")),
    "own_wallet": ("to", marked("This is your own wallet. Type the address that the money shall go to.")),
    "not_found": ("to", marked("There is no such bill. Ask for a new link.")),
    "completed": ("to", marked("This bill is paid, and takes no more money.")),
    "expired": ("to", marked("This bill has expired. Ask for a new one.")),
    "unreachable": ("to", marked("{host} does not answer. Check the address; if it is right, try again later.")),
    "untrusted_certificate": (
        "to",
        marked("The certificate of {host} is not trusted, so nothing was sent. Check the address."),
    ),
    "refused": ("to", marked("{host} does not let this server pay it. Ask whoever gave you the address.")),
    "bad_content": ("to", marked("{host} answers with something that cannot be paid. Check the address.")),
    "no_ilp_method": ("to", marked("No way for money leads from here to {host}. Ask whoever runs this server.")),
    "no_path": (
        "to",
        marked("No way for money leads to {host} now. Try less, try later, or ask whoever runs this server."),
    ),
    "no_exchange_rate": ("to", marked("This server does not change {own} into {theirs}. Ask for an address in {own}.")),
    "exchange_rate_expired": ("to", marked("The exchange rate is being renewed. Try again in a minute.")),
    "wallet": ("amount", marked("You have {free}, and this takes {needed}. Send less.")),
    "liquidity": ("amount", marked("This server cannot change so much now. Send less, or try again later.")),
    "nothing_arrives": ("amount", marked("Of this nothing would arrive. Send at least {least}.")),
    "remaining": ("amount", marked("This bill takes {remaining} more. Pay that or less.")),
    "invalid_amount": ("amount", marked("This amount cannot be sent. Try another one.")),
    "invalid_request": ("", marked("One of the two wallets was closed meanwhile. Nothing was sent.")),
    "invalid_quote": ("", marked("Of this bill a part was paid meanwhile. See the new price.")),
    "invalid_receiver": ("to", marked("This cannot be paid. Ask whoever gave you the address for another one.")),
}


async def show(visit: OwnerVisit) -> Response:
    """GET /account/send: the form, filled in from a link or an earlier price. The link of a local bill with an amount
    leads to its price at once."""
    given = visit.request.query_params
    if visit.context.urls.resource_id("incoming-payments", given.get("bill", "")):  # a link may not reach other servers
        return await _ask_price(visit, Wish(to=given["bill"]))
    if "again" in given:
        wish: Wish = (await _find_price(visit, given["again"])).wish
    else:
        wish = Wish(to=given.get("to", ""), amount=given.get("amount", ""), note=given.get("note", ""))
    return await _show_form(visit, wish)


async def ask(visit: OwnerVisit, form: Form) -> Response:
    """Asks for the price of the form."""
    wish = Wish(
        to=form.get("to", ""),
        amount=form.get("amount", ""),
        fixed="receive" if form.get("fixed") == "receive" else "send",
        note=" ".join(form.get("note", "").split()),
    )
    return await _ask_price(visit, wish)


async def show_price(visit: OwnerVisit) -> Response:
    """GET /account/send/{quote}: the price, or a redirect to its payment."""
    price = await _find_price(visit, visit.segments["quote"])
    return redirect(payment_path(price.payment_id)) if price.payment_id else _show_price(visit, price)


async def ask_again(visit: OwnerVisit, _: Form) -> Response:
    """Asks for a new price for the same input."""
    kept = (await _find_price(visit, visit.segments["quote"])).wish
    return await _ask_price(visit, Wish(to=kept.to, amount=kept.amount, fixed=kept.fixed, note=kept.note))


async def confirm(visit: OwnerVisit, _: Form) -> Response:
    """Pays once, and redirects to the payment."""
    quote_id = visit.segments["quote"]
    try:
        payment_id = await visit.write(partial(sending.confirm, wallet=visit.wallet, quote_id=quote_id))
    except DomainError as error:
        price = await _find_price(visit, quote_id)
        return _show_price(visit, price, note_error(visit.request, error))
    node_of(visit.context).payments.wake()
    return redirect(payment_path(payment_id))


def payment_path(payment_id: str) -> str:
    """The path of a payment's page."""
    return f"/account/payments/{payment_id}"


async def _find_price(visit: OwnerVisit, quote_id: str) -> Price:
    return await visit.read(partial(sending.find_price, wallet=visit.wallet, quote_id=quote_id))


async def _ask_price(visit: OwnerVisit, wish: Wish) -> Response:
    context, payer = visit.context, visit.wallet
    problems = _missing(visit, wish)
    if problems:
        return await _show_form(visit, wish, problems, FAILED)
    # Requests to other servers count towards the wallet's rate limit.
    count_for_client(context.urls.wallet(payer.path), is_key=False)
    payee = None
    try:
        context.rate_limits.check_client(context.urls.wallet(payer.path))
        url = sending.typed_url(context.urls, wish.to)
        payee = await sending.find_payee(visit, node_of(context).quotes, payer, url)
        asset = payer.asset if wish.fixed == "send" else payee.asset
        wants_all = not wish.amount.strip() and payee.remaining is not None
        value = None if wants_all else typed_amount(visit.language, wish.amount, asset)
        quote_id = await sending.ask_price(visit, node_of(context).quotes, payer, payee, wish, value)
    except Mistyped as error:
        return await _show_form(visit, wish, {"amount": str(error)}, FAILED)
    except DomainError as error:
        noted = note_error(visit.request, error)
        free = await visit.read(partial(sending.wallet_free_balance, wallet=payer))
        field, said = _said(visit, noted, wish, payee.asset if payee else payer.asset, free)
        return await _show_form(visit, wish, {field: said}, noted.status)
    return redirect(f"/account/send/{quote_id}")


def _missing(visit: OwnerVisit, wish: Wish) -> Mapping[str, str]:
    """The problems of the form that need no look-up."""
    say, found = visit.language.say, {}
    if not visit.wallet.active:
        found[""] = say("Your wallet is closed and sends nothing. Ask whoever runs this server.")
    if not wish.to.strip():
        found["to"] = say("Type or paste the address that the money shall go to.")
    if len(wish.note) > MAX_NOTE:
        found["note"] = say("A note has at most {number} characters.", number=MAX_NOTE)
    return found


async def _show_form(
    visit: OwnerVisit, wish: Wish, problems: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    def unit(work: Work) -> tuple[int, Sequence[KeptWish]]:
        return sending.wallet_free_balance(work, visit.wallet), sending.paid_before(work, visit.wallet)

    free, before = await visit.read(unit)
    latest = [(one.called, visible_url(one.address), one.address) for one in before]
    problems = problems or {}
    return visit.show("send.html", status, tab=HOME, wish=wish, problems=problems, free=free, before=latest)


def _show_price(visit: OwnerVisit, price: Price, error: DomainError | None = None) -> Response:
    """The price, or why it cannot be paid now."""
    terms, own = price.quote.terms, visit.wallet.asset
    is_over = visit.language.now >= price.quote.expires_at
    problem = _said(visit, error, price.wish, terms.asset, price.free)[1] if error and not is_over else ""
    net, same = terms.debit - terms.fee, terms.asset == own
    return visit.show(
        "price.html",
        200 if error is None else error.status,
        price=price,
        terms=terms,
        problem=problem,
        is_over=is_over,
        who=price.wish.called,
        address=visible_url(price.wish.address),
        net=net,
        rate="" if same else _rate(visit, net, terms),
        # Over Interledger one amount is exact; the other is a minimum received or a maximum sent.
        is_least=terms.sends_all,
        is_most=terms.path is not None and not terms.sends_all,
        lost=net - terms.receive if same else 0,
        percent=sending.ALLOWED_CHANGE,
    )


def _rate(visit: OwnerVisit, net: int, terms: Terms) -> str:
    """The exchange rate, such as `1 USD = 0.9219 EUR`."""
    own, theirs = visit.wallet.asset, terms.asset
    spent, arrives = Decimal(net).scaleb(-own.scale), Decimal(terms.receive).scaleb(-theirs.scale)
    figures = f"{Context(prec=4).divide(arrives, spent):f}".replace(".", visit.language.point)
    return f"1 {own.code} = {figures} {theirs.code}"


def _said(visit: OwnerVisit, error: DomainError, wish: Wish, theirs: Asset, free: int) -> tuple[str, str]:
    """The form field of an error, and the message there."""
    own, language, details = visit.wallet.asset, visit.language, error.details
    reason = "remaining" if "remaining" in details else details.get("reason", "")
    if reason == "wallet" and wish.fixed == "send":
        return "amount", language.say("You have {free}. Send that or less.", free=language.money(free, own))
    field, sentence = PROBLEMS.get(reason) or PROBLEMS.get(error.code) or ("", "")
    if not sentence:
        return "", problem_of(language, error)
    server = visit.context.urls.base.partition("://")[2]
    values: dict[str, Any] = {
        "example": f"${server}/bob",
        "plain": f"{server}/bob",
        "host": _host(visit, wish),
        "own": own.code,
        "theirs": theirs.code,
        "free": language.money(free, own),
        "needed": language.money(int(details.get("needed", 0)), own),
        "least": language.money(int(details.get("minSendAmount", {}).get("value", 1)), own),
        "remaining": language.money(int(details.get("remaining", 0)), theirs),
    }
    return field, language.say(sentence, **values)


def _host(visit: OwnerVisit, wish: Wish) -> str:
    try:
        return visible_url(sending.typed_url(visit.context.urls, wish.to)).host
    except DomainError:
        return ""
