"""The payment page of a local incoming payment, for everyone who has its link, and the view of one on all pages.

It shows no more than the public incoming payment, and not who has paid; and to an owner who is signed in, the wallets
that can pay it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts.cookies import check_sign_in, form_secret, render_sign_in
from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error
from payres.core.payments.incoming import unpayable
from payres.core.process.rate_limiter import address_of
from payres.core.protocol.errors import DomainError, MethodNotAllowed, nothing_here
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import canonical_host, is_loopback, with_ascii_host
from payres.core.protocol.visible import ShownUrl, note_of, visible_url
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.wallets import WalletRecord, find_wallet, find_with_wallet
from payres.core.store.work import Work
from payres.html.forms import read_form, typed_url
from payres.html.html import PAGE_METHODS, language_of, qr_code, redirect, render
from payres.html.language import marked
from payres.html.sentences import problem_of
from payres.html.typed_amounts import Mistyped, typed_amount
from payres.people import checkout, checkout_steps, own_wallets
from payres.people.checkout import BillCheckout
from payres.people.own_wallets import Payers
from payres.people.services import people_of
from payres.people.store.checkouts import gone_on

BillState = Literal["unpaid", "part", "open", "paid", "expired", "cancelled"]
LATE_SECONDS: Final = 30  # between the refreshes of a page once the money is overdue
# Refresh intervals in seconds of pages that go on by themselves.
REFRESHES: Final[Mapping[str, int]] = {"made": 2, "moment": 2, "waiting": 5, "unclear": 5, "late": LATE_SECONDS}
STATUSES: Final = {"other_browser": 403, "forged": 400}  # by page; 200 for all others
# Sentences on the payer's wallet, by the reason of an error.
PROBLEMS: Final[Mapping[str, str]] = {
    "no_address": marked("This is no wallet address. It looks like $wallet.example/you; your wallet shows it."),
    "no_wallet": marked("There is no wallet at this address. Check it for typing errors."),
    "unreachable": marked("{host} does not answer. Check the address, or try again in a moment."),
    "untrusted_certificate": marked(
        "The certificate of {host} is not trusted, so it was not asked. Check the address."
    ),
    "bad_content": marked("{host} has no wallet that can be asked to pay. Try another wallet."),
    "refused": marked("Your wallet at {host} cannot pay this, or money does not get from there to here."),
}


class Bill(NamedTuple):
    """An incoming payment as pages show it. `back` is the return URL in its metadata."""

    payment: IncomingRecord
    wallet: WalletRecord
    url: str
    page: str
    state: BillState
    note: str | None
    back: ShownUrl | None

    @property
    def name(self) -> str:
        """The payee's name."""
        return self.wallet.name

    @property
    def amount(self) -> int | None:
        """The requested amount; None if the payer chooses."""
        value = self.payment.incoming_value
        return None if value is None else int(value)

    @property
    def is_open(self) -> bool:
        """Whether it accepts money."""
        return self.state in {"unpaid", "part", "open"}

    @property
    def is_part_paid(self) -> bool:
        """Whether a part of the requested amount has come, and not all."""
        return bool(self.payment.received and self.payment.remaining)


def bill_of(work: Work, payment: IncomingRecord, wallet: WalletRecord) -> Bill:
    """The bill of an incoming payment into this wallet."""
    return Bill(
        payment,
        wallet,
        work.urls.resource("incoming-payments", payment.id),
        work.urls.resource("pay", payment.id),
        _state(payment, wallet, work.now),
        note_of(payment.metadata) or None,
        way_back(payment.metadata),
    )


def way_back(metadata: str | None) -> ShownUrl | None:
    """The `returnUrl` of metadata, if it is https or on the reader's own machine."""
    members: dict[str, msgspec.Raw] = msgspec.json.decode(metadata or "{}", type=dict[str, msgspec.Raw])
    try:
        found = with_ascii_host(msgspec.json.decode(members.get("returnUrl", b'""'), type=str))
    except (msgspec.DecodeError, UnicodeDecodeError):  # metadata may be anything
        return None
    parts = urlsplit(found or "")
    is_safe = parts.scheme == "https" or is_loopback(canonical_host(parts.hostname or ""))
    return visible_url(found) if found is not None and is_safe else None


def show(
    request: Request,
    bill: Bill,
    problems: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
    status: int = 200,
    payers: Payers = None,
    shown: str = "",
) -> Response:
    """The payment page; `problems` are by form field, `payers` what one who is signed in may pay from, `shown` what
    the browser's payments of it are known by (`gone_on`)."""
    context = context_of(request)
    values = {
        "bill": bill,
        "address": visible_url(context.urls.wallet(bill.wallet.path)),
        "own": quote(bill.url, safe=""),
        "qr": qr_code(bill.page, language_of(request).say("QR code of this page")),
        "problems": problems or {},
        "given": given or {},
        "payers": payers,
        "shown": shown,
    }
    return render_sign_in(request, "pay.html", values, status, leads_away=True)  # to the payer's wallet on any server


def find_bill(work: Work, payment_id: str) -> Bill:
    """The bill of an incoming payment. Raises NotFound."""
    found = find_with_wallet(work, INCOMING, payment_id)
    if found is None:
        raise nothing_here()
    return bill_of(work, *found)


def _state(payment: IncomingRecord, wallet: WalletRecord, now: int) -> BillState:
    if payment.completed:
        # A payee who asked for any amount completes it after money has arrived.
        return "paid" if payment.received and not payment.remaining else "cancelled"
    if not wallet.active:
        return "cancelled"
    if not payment.open_at(now):
        return "expired"
    if not payment.received:
        return "unpaid"
    return "open" if payment.remaining is None else "part"


class Back(NamedTuple):
    """The checkout of a payer who returned, and its bill."""

    found: BillCheckout
    bill: Bill


async def answer_bill(request: Request) -> Response:
    """GET and POST /pay/{id}: the payment page and its form."""

    browser = form_secret(request)

    def unit(work: Work) -> tuple[Bill, Payers, str]:
        found = find_bill(work, request.path_params["id"])
        payers = own_wallets.payers_here(work, request, found.url) if found.is_open else None
        return found, payers, gone_on(work, found.payment.id, hash_secret(browser)) if browser else ""

    bill, payers, shown = await context_of(request).database.read(unit)
    if request.method in {"GET", "HEAD"}:
        return show(request, bill, payers=payers, shown=shown)
    if request.method != "POST":
        raise MethodNotAllowed(PAGE_METHODS)
    return await _begin(request, bill, payers, shown, await read_form(request))


async def answer_return(request: Request) -> Response:
    """GET /pay/{id}/return/{state}: where the payer's wallet redirects to, and the state of the payment."""
    if request.method not in {"GET", "HEAD"}:
        raise MethodNotAllowed("GET, HEAD")
    context, query, back = context_of(request), request.url.query, await _find(request)
    if not back.found.is_of(form_secret(request)):
        return _show(request, back, "other_browser")
    if request.method == "GET":
        is_new = back.found.record.state == "asked"
        if is_new and not await checkout.take_back(context, back.found, query):
            return _show(request, back, "forged" if query else "asked")
        back, now = await _find(request), context.clock.now()
        if back.found.record.is_due(now) or (is_new and not back.found.wait(now)):
            await checkout_steps.advance(context, back.found.record.id_hash)
    if query:
        return redirect(request.url.path)
    await checkout_steps.look(context, back.found)
    back = await _find(request)
    return _show(request, back, _word(back.found, context.clock.now()))


async def _begin(request: Request, bill: Bill, payers: Payers, now_shown: str, form: Mapping[str, str]) -> Response:
    """Redirects the payer to their wallet, or shows the problem at the field."""
    context, language, browser, host = context_of(request), language_of(request), form_secret(request), ""
    shown = form.get("shown", "")
    try:
        check_sign_in(request, form)
        if not bill.is_open:
            return redirect(f"/pay/{bill.payment.id}")
        amount = bill.payment.remaining or typed_amount(language, form.get("amount", ""), bill.wallet.asset)
        payer = typed_url(context.urls, form.get("payer", ""))
        if context.urls.is_ours(payer):
            await context.database.read(partial(_check_here, url=payer))
            way = "to" if bill.payment.remaining is None else "bill"
            return redirect(f"/account/send?{way}={quote(bill.url, safe='')}")
        host = visible_url(payer).host
        if (address := address_of(request.scope)) is not None:
            people_of(context).checkouts.check(address)
        assert browser is not None, "check_sign_in requires the cookie"
        url = await checkout.begin(context, bill.payment, bill.wallet, amount, payer, browser, shown)
        if url is not None:
            return redirect(url)
        said = language.say("Meanwhile your first payment has gone on. Look in your wallet before you pay again.")
        problems, status, shown = {"": str(said)}, 409, now_shown
    except Mistyped as error:
        problems, status = {"amount": str(error)}, 400
    except DomainError as error:
        noted = note_error(request, error)
        sentence, status = PROBLEMS.get(noted.details.get("reason", "")), noted.status
        problems = {"payer": language.say(sentence, host=host)} if sentence else {"": problem_of(language, noted)}
    return show(request, bill, problems, form, status, payers, shown)


def _check_here(work: Work, url: str) -> None:
    """Raises InvalidReceiver if a URL of this server is no wallet that can pay."""
    wallet = find_wallet(work, work.urls.wallet_path(url) or "")
    if wallet is None or not wallet.active:
        raise unpayable("payer", "there is no wallet at this address", "no_wallet")


def _word(found: BillCheckout, now: int) -> str:
    """The outcome that the page shows."""
    record = found.record
    if record.state == "returned":
        return "waiting" if record.silent else "moment"
    if record.state != "made":
        return record.failure or record.state
    if found.is_unknown:
        return "unclear"
    return "late" if found.is_late(now) else "made"


def _show(request: Request, back: Back, word: str) -> Response:
    """The page for an outcome `word`."""
    language, record, bill, asked = language_of(request), back.found.record, back.bill, back.found.asked
    now = context_of(request).clock.now()
    values = {
        "bill": bill,
        "word": word,
        "amount": language.money(record.amount, bill.wallet.asset),
        # Only the browser that began the checkout may see the payer's address.
        "payer": None if word == "other_browser" else visible_url(record.payer),
        "host": record.silent or visible_url(record.payer).host,
        "is_silent": record.silent is not None,
        "paid_at": language.moment(record.changed_at) if word == "paid" else None,
        # Not while the money may still arrive: the payer could pay twice.
        "again": bill.is_open and word not in {"paid", "made", "late", "moment", "unclear"},
        "wallet": asked.grant.redirect if asked and word in {"asked", "forged"} else None,
    }
    response = render(request, "pay_return.html", values, STATUSES.get(word, 200))
    if word in REFRESHES:
        is_late = word == "unclear" and back.found.is_late(now)
        seconds = max(REFRESHES[word], back.found.wait(now)) if word == "moment" else REFRESHES[word]
        response.headers["Refresh"] = str(LATE_SECONDS if is_late else seconds)
    return response


async def _find(request: Request) -> Back:
    path = request.path_params

    def unit(work: Work) -> Back:
        found = checkout.find(work, path["id"], path["state"])
        return Back(found, bill_of(work, found.payment, found.wallet))

    return await context_of(request).database.read(unit)
