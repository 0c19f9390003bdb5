"""The payment page of a local incoming payment, for everyone who has its link, and the view of one on all pages.

It shows no more than the public incoming payment, and not who has paid.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.errors import nothing_here
from payres.core.protocol.urls import canonical_host, is_loopback, with_ascii_host
from payres.core.protocol.visible import ShownUrl, note_of, visible_name, visible_url
from payres.core.store.payments import INCOMING, IncomingRecord
from payres.core.store.wallets import WalletRecord, find_with_wallet
from payres.core.store.work import Work
from payres.html.forms import render_sign_in
from payres.html.html import language_of
from payres.html.qr import qr_code

BillState = Literal["unpaid", "part", "open", "paid", "expired", "cancelled"]


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
        return visible_name(self.wallet.public_name, None) or self.wallet.path

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
) -> Response:
    """The payment page; `problems` are by form field."""
    context = context_of(request)
    values = {
        "bill": bill,
        "address": visible_url(context.urls.wallet(bill.wallet.path)),
        "own": quote(bill.url, safe=""),
        "qr": qr_code(bill.page, language_of(request).say("QR code of this page")),
        "problems": problems or {},
        "given": given or {},
    }
    # The form redirects to the payer's wallet on any server, and browsers apply form-action to redirects.
    action = "'self' https:" if context.urls.base.startswith("https:") else "'self' https: http:"
    return render_sign_in(request, "pay.html", values, status, form_action=action)


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
