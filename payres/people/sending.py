"""Sending by the owner, without a grant: the owner's input gets a quote, and a confirmed quote is paid."""

from collections.abc import Mapping
from decimal import Context, Decimal
from functools import partial
from typing import Final, Literal

import msgspec
from msgspec.structs import asdict, replace
from starlette.responses import Response

from payres.accounts.store.owners import wallets_of
from payres.core.grants.clients import own_client
from payres.core.http.error_answers import note_error
from payres.core.payments import quotes as quote_rules
from payres.core.payments.incoming import LocalReceiver, add, complete, open_receiver, unpaid
from payres.core.payments.outgoing import check_funds, check_movable, pay_quote
from payres.core.process.rate_limiter import count_for_client
from payres.core.protocol.amounts import Asset, Terms, describe_amount
from payres.core.protocol.errors import DomainError, nothing_here
from payres.core.protocol.urls import ROOT_WALLET_PATH, canonical
from payres.core.protocol.visible import described, visible_url
from payres.core.store import audit, clients
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.quotes import QUOTES, QuoteRecord
from payres.core.store.representations import amount
from payres.core.store.wallets import WALLETS, WalletRecord, active_wallet
from payres.core.store.work import Units, Work
from payres.html.forms import Form, typed_url
from payres.html.html import redirect
from payres.html.language import marked
from payres.html.sentences import is_short, problem_of
from payres.html.typed_amounts import Mistyped, typed_amount
from payres.interledger.clearing import SLIPPAGE
from payres.interledger.node import node_of
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.remote_receivers import PAYING
from payres.interledger.store import remote_resources
from payres.people.own_wallets import own_wallet, spendable
from payres.people.payee_lookup import Payee, find_payee
from payres.people.sign_in import HOME, OwnerVisit
from payres.people.store import payments
from payres.people.store.remote_bills import BILL, called

SHOWN: Final = 3  # payees above the form, beside "All"
ALLOWED_CHANGE: Final = int(SLIPPAGE * 100)  # per cent, the slippage allowed for payments to other servers
LOOKED_AT: Final = 40  # the last payments searched for earlier payees
MAX_NOTE: Final = 140
FAILED: Final = 400
# The field and its message, by the reason of an error, else by its code.
PROBLEMS: Final[Mapping[str, tuple[str, str]]] = {
    "no_address": ("to", marked("This is no wallet address. They look like {example} or https://{plain}.")),
    "no_wallet": ("to", marked("There is no wallet at this address. Check it with whoever gave it to you.")),
    "own_wallet": ("to", marked("This is your own wallet. Type the address that the money shall go to.")),
    "not_found": ("to", marked("There is no such bill. Ask for a new link.")),
    "completed": ("to", marked("This bill is paid or cancelled, and takes no more money.")),
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
    "short_path": ("amount", marked("{host} cannot take so much now. Try less, or try again later.")),
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


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's input: the payee, and the amount to debit (`send`) or to deliver (`receive`)."""

    to: str = ""
    amount: str = ""
    fixed: Literal["send", "receive"] = "send"
    note: str = ""


class KeptWish(Wish, frozen=True, kw_only=True):
    """The input as stored with the quote, and the payee that it resolved to: the name that the payee claims, and the
    wallet address. `address` is the URL of the bill if its wallet address cannot be trusted; `purpose` is what the bill
    says it is for."""

    name: str | None
    address: str
    is_bill: bool
    purpose: str = ""

    @property
    def called(self) -> str:
        """The name, or else the address without its scheme, or the host of a bill."""
        return called(self.name, self.address)


class Price(msgspec.Struct, frozen=True):
    """A quote with the owner's input. `payment_id` is the payment made from it; `free` the wallet's free balance."""

    quote: QuoteRecord
    wish: KeptWish
    payment_id: str | None
    free: int


async def ask_price(
    call: Units,
    remote: RemoteQuotes,
    payer: WalletRecord,
    payee: Payee,
    wish: KeptWish,
    value: int | None,
    *,
    is_plan: bool = False,
) -> str:
    """Creates a quote and returns its id; `value` is the amount in minor units, None for the rest of a bill. For what
    `is_plan` the wallet need not have the money yet.

    Raises InvalidReceiver, InvalidAmount, InsufficientFunds, Unavailable.
    """
    sends = wish.fixed == "send"
    debit = amount(value, payer.asset) if value is not None and sends else None
    receive = amount(value, payee.asset) if value is not None and not sends else None
    if value is not None and sends and not is_plan:
        await call.read(lambda work: check_funds(work, payer, value))
    there = None
    if not payee.is_here:
        receiver = payee.bill
        if receiver is None:
            assert payee.wallet is not None, "a remote payee has a bill or a wallet"
            receiver = await remote.create_receiver(payee.wallet, wish.note, 0 if is_plan else PAYING, receive)
        checked_payer = partial(active_wallet, url=remote.urls.wallet(payer.path))
        there = await remote.offer(checked_payer, receiver, "to", debit, receive, at_once=True)

    def keep(work: Work) -> str:
        wallet, client_id = active_wallet(work, work.urls.wallet(payer.path)), own_client(work)
        offer = there
        if offer is None:
            found = _receiver_here(work, payee, wish, client_id)
            offer = quote_rules.local_offer(work, wallet, found, debit, receive)
            if payee.bill is None:
                add(work, found.wallet, found.payment)
        check_movable(offer.terms)
        if not is_plan:
            check_funds(work, wallet, offer.terms.debit)
        return quote_rules.insert(work, wallet, client_id, offer, msgspec.json.encode(wish).decode()).id

    return await call.write(keep)


def _receiver_here(work: Work, payee: Payee, wish: KeptWish, client_id: int) -> LocalReceiver:
    """The bill of a local payee, or an incoming payment that is not yet inserted."""
    if payee.bill is not None:
        return open_receiver(work, payee.bill, "to")
    wallet, until = active_wallet(work, payee.address, "to"), quote_rules.latest_expiry(work)
    return unpaid(work, wallet, client_id, described(wish.note), until)


def kept(wish: Wish, payee: Payee) -> KeptWish:
    """The input with its payee."""
    return KeptWish(
        **asdict(wish), name=payee.name, address=payee.address, is_bill=bool(payee.bill), purpose=payee.purpose
    )


def find_price(work: Work, wallet: WalletRecord, quote_id: str) -> Price:
    """A quote that the wallet's owner asked for. Raises NotFound."""
    quote = QUOTES.get(work, quote_id)
    if quote is None or quote.wallet_address_id != wallet.id or quote.wish is None:
        raise nothing_here()
    used = OUTGOING.find(work, quote_id=quote_id)
    return Price(quote, kept_wish(quote.wish), used.id if used else None, spendable(work, wallet))


def confirm_payment(work: Work, wallet: WalletRecord, quote_id: str) -> str:
    """Pays a quote and returns the payment's id; a second call returns the same payment.

    Raises NotFound, InvalidQuote, InvalidReceiver, InvalidAmount, InsufficientFunds.
    """
    price = find_price(work, wallet, quote_id)
    if price.payment_id is not None:
        return price.payment_id
    payer = active_wallet(work, work.urls.wallet(wallet.path))
    payment = pay_quote(work, payer, own_client(work), quote_id, described(price.wish.note))
    if price.wish.is_bill:
        pass
    elif payment.terms.incoming_payment_id is None:
        remote_resources.note_bill(work, payment.id, payment.terms.receiver, work.now)
    else:  # it was created for this payment only
        made = INCOMING.by_id(work, payment.terms.incoming_payment_id)
        complete(work, WALLETS.by_id(work, made.wallet_address_id), made)
    leaves = describe_amount(payment.terms.debit, payer.asset)
    audit.record(work, "payment.send", payment.id, amount=leaves, to=price.wish.address)
    return payment.id


def paid_before(work: Work, wallet: WalletRecord) -> list[KeptWish]:
    """The last payees of the owner, without duplicates, latest first."""
    own = clients.CLIENTS.find(work, identity=canonical(work.urls.wallet(ROOT_WALLET_PATH)))
    wishes = [] if own is None else payments.last_wishes(work, own.id, wallet.id, LOOKED_AT)
    latest: dict[str, KeptWish] = {}
    for wish in map(kept_wish, wishes):
        if BILL not in wish.address:
            latest.setdefault(wish.address, wish)
    return [*latest.values()]


def kept_wish(text: str) -> KeptWish:
    """Decodes the input stored with a quote."""
    return msgspec.json.decode(text, type=KeptWish)


async def show(visit: OwnerVisit) -> Response:
    """GET /account/send: the form, filled in from a link or an earlier price. The link of a local bill with an amount
    leads to its price at once."""
    given = visit.request.query_params
    visit = await _paying(visit, given)
    if visit.context.urls.resource_id("incoming-payments", given.get("bill", "")):  # a link may not reach other servers
        return await _ask_price(visit, Wish(to=given["bill"]))
    if "again" in given:
        visit, price = await _find_price(visit, given["again"])
        return await _show_form(visit, price.wish)
    return await show_typed(visit, given)


async def ask(visit: OwnerVisit, form: Form) -> Response:
    """Asks for the price of the form."""
    return await _ask_price(await _paying(visit, form), _typed(form))


async def show_typed(visit: OwnerVisit, form: Form) -> Response:
    """The form as it was filled in."""
    return await _show_form(await _paying(visit, form), _typed(form))


def _typed(form: Form) -> Wish:
    return Wish(
        to=form.get("to", ""),
        amount=form.get("amount", ""),
        fixed="receive" if form.get("fixed") == "receive" else "send",
        note=" ".join(form.get("note", "").split()),
    )


async def show_price(visit: OwnerVisit) -> Response:
    """GET /account/send/{quote}: the price, or a redirect to its payment."""
    visit, price = await _find_price(visit, visit.segments["quote"])
    return redirect(payment_path(price.payment_id)) if price.payment_id else await _show_price(visit, price)


async def ask_again(visit: OwnerVisit, _: Form) -> Response:
    """Asks for a new price for the same input."""
    visit, price = await _find_price(visit, visit.segments["quote"])
    kept = price.wish
    return await _ask_price(visit, Wish(to=kept.to, amount=kept.amount, fixed=kept.fixed, note=kept.note))


async def confirm(visit: OwnerVisit, _: Form) -> Response:
    """Pays once, and redirects to the payment."""
    quote_id = visit.segments["quote"]
    visit, price = await _find_price(visit, quote_id)
    try:
        payment_id = await visit.write(partial(confirm_payment, wallet=visit.wallet, quote_id=quote_id))
    except DomainError as error:
        visit, price = await _find_price(visit, quote_id)
        return await _show_price(visit, price, note_error(visit.request, error))
    node_of(visit.context).payments.wake()
    return redirect(payment_path(payment_id))


def payment_path(payment_id: str) -> str:
    """The path of a payment's page."""
    return f"/account/payments/{payment_id}"


async def _paying(visit: OwnerVisit, given: Form) -> OwnerVisit:
    """The visit of the wallet that pays: `from` names another one than that looked at."""
    if "from" not in given:
        return visit
    return replace(visit, wallet=await visit.read(lambda work: own_wallet(work, visit, given["from"])))


async def _find_price(visit: OwnerVisit, quote_id: str) -> tuple[OwnerVisit, Price]:
    """The price, and the visit of the wallet that pays it."""
    return await visit.found(partial(find_price, quote_id=quote_id))


async def _ask_price(visit: OwnerVisit, wish: Wish) -> Response:
    payer, problems, payee = visit.wallet, missing_input(visit, wish), None
    if problems:
        return await _show_form(visit, wish, problems, FAILED)
    try:
        payee = await typed_payee(visit, wish.to)
        asset = payer.asset if wish.fixed == "send" else payee.asset
        wants_all = not wish.amount.strip() and payee.remaining is not None
        value = None if wants_all else typed_amount(visit.language, wish.amount, asset)
        quote_id = await ask_price(visit, node_of(visit.context).quotes, payer, payee, kept(wish, payee), value)
    except Mistyped as error:
        return await _show_form(visit, wish, {"amount": str(error)}, FAILED)
    except DomainError as error:
        noted = note_error(visit.request, error)
        if payee and payee.remaining is not None and noted.details.get("reason") == "wallet" and not wish.amount:
            return await _show_lack(visit, wish, payee, noted)
        return await _show_form(visit, wish, await problem_with(visit, noted, wish, payee), noted.status)
    return redirect(f"/account/send/{quote_id}")


async def typed_payee(visit: OwnerVisit, to: str) -> Payee:
    """The payee that an owner typed. Raises InvalidReceiver, TooManyRequests, Unavailable."""
    context, payer = visit.context, visit.wallet
    # Requests to other servers count towards the wallet's rate limit.
    count_for_client(context.urls.wallet(payer.path), is_key=False)
    context.rate_limits.clients.check(context.urls.wallet(payer.path))
    return await find_payee(visit, node_of(context).quotes, payer, typed_url(context.urls, to))


def missing_input(visit: OwnerVisit, wish: Wish) -> Mapping[str, str]:
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
    def unit(work: Work) -> Mapping[str, object]:
        paid, urls = paid_before(work, visit.wallet), work.urls
        own = {urls.wallet(one.path): one for one in wallets_of(work, visit.owner.id) if one.id != visit.wallet.id}
        mine = [(one.name, visible_url(url), url, True) for url, one in own.items() if one.active]
        before = [(one.called, visible_url(one.address), one.address, False) for one in paid if one.address not in own]
        # One of the owner's own wallets is always among those shown; the last one paid if there are several.
        last = [one.address for one in paid]
        mine.sort(key=lambda one: last.index(one[2]) if one[2] in last else len(last))
        people = [*before[: SHOWN - len(mine[:1])], *mine][:SHOWN]
        return {"free": spendable(work, visit.wallet), "own": mine, "before": before, "people": people}

    shows_all = "all" in visit.request.query_params
    return await visit.show_found("send.html", unit, HOME, status, wish=wish, problems=problems or {}, all=shows_all)


async def _show_lack(visit: OwnerVisit, wish: Wish, payee: Payee, error: DomainError) -> Response:
    """The page of a bill for which the wallet has too little."""
    free = await visit.read(partial(spendable, wallet=visit.wallet))
    return visit.show(
        "lack.html",
        error.status,
        tab=HOME,
        wish=wish,
        whole=payee.remaining,
        bill=payee.bill and visit.context.urls.resource_id("incoming-payments", payee.bill),
        asset=payee.asset,
        purpose=payee.purpose,
        lack=int(error.details["needed"]) - free,
        free=free,
        who=kept(wish, payee).called,
        address=visible_url(payee.address),
    )


async def _show_price(visit: OwnerVisit, price: Price, error: DomainError | None = None) -> Response:
    """The price, or why it cannot be paid now."""
    terms, own = price.quote.terms, visit.wallet.asset
    is_over = not price.quote.lasts_at(visit.language.now)
    problem = said_at_field(visit, error, price.wish, terms.asset, price.free)[1] if error and not is_over else ""
    net, same = terms.debit - terms.fee, terms.asset == own
    return visit.show(
        "price.html",
        200 if error is None else error.status,
        price=price,
        pays_bill=price.wish.is_bill and visit.owner.has_several,
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
        percent=ALLOWED_CHANGE,
    )


def _rate(visit: OwnerVisit, net: int, terms: Terms) -> str:
    """The exchange rate, such as `1 USD = 0.9219 EUR`."""
    own, theirs = visit.wallet.asset, terms.asset
    spent, arrives = Decimal(net).scaleb(-own.scale), Decimal(terms.receive).scaleb(-theirs.scale)
    figures = f"{Context(prec=4).divide(arrives, spent):f}".replace(".", visit.language.point)
    return f"1 {own.code} = {figures} {theirs.code}"


async def problem_with(visit: OwnerVisit, error: DomainError, wish: Wish, payee: Payee | None) -> Mapping[str, str]:
    """What is wrong with a form, by its field."""
    free = await visit.read(partial(spendable, wallet=visit.wallet))
    return dict([said_at_field(visit, error, wish, payee.asset if payee else visit.wallet.asset, free)])


def said_at_field(visit: OwnerVisit, error: DomainError, wish: Wish, theirs: Asset, free: int) -> tuple[str, str]:
    """The form field of an error, and the message there."""
    own, language, details = visit.wallet.asset, visit.language, error.details
    reason = "remaining" if "remaining" in details else details.get("reason", "")
    if reason == "no_path" and is_short(str(error)):
        reason = "short_path"
    if reason == "wallet" and wish.fixed == "send" and wish.amount:
        return "amount", language.say("You have {free}. Send that or less.", free=language.money(free, own))
    field, sentence = PROBLEMS.get(reason) or PROBLEMS.get(error.code) or ("", "")
    if not sentence:
        return "", problem_of(language, error)
    server = visit.context.urls.base.partition("://")[2]
    values: dict[str, object] = {
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
        return visible_url(typed_url(visit.context.urls, wish.to)).host
    except DomainError:
        return ""
