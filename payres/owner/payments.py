"""One movement of a wallet as its owner sees it: a payment out or in, a deposit or a withdrawal."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from payres.errors import nothing_here
from payres.grants.wording import ShownUrl, visible_name, visible_text, visible_url
from payres.owner.sending import BILL, KeptWish, free_balance, kept_wish
from payres.store import payments
from payres.store.entries import MOVEMENTS
from payres.store.grants import GRANTS
from payres.store.payments import INCOMING, OUTGOING, IncomingRecord, OutgoingRecord, RefundRecord
from payres.store.quotes import QUOTES
from payres.store.wallets import WALLETS, WalletRecord
from payres.store.work import Work

MAX_NOTE_LENGTH: Final = 300  # characters that are shown of what another server's client wrote
REFUNDS: Final = 20


class Who(msgspec.Struct, frozen=True):
    """The other side: what they are called, and their wallet address if it is known."""

    name: str = ""
    address: ShownUrl | None = None
    to: str = ""  # the same as a URL, where more can be sent


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A payment from the wallet, made by the app of this name under the grant, or by the owner, for whom `again` is the
    price, and who may have paid a bill. `free` is what the wallet can spend now."""

    payment: OutgoingRecord
    who: Who
    note: str
    app: str
    grant_id: str | None
    again: str | None
    is_bill: bool
    refunds: Sequence[RefundRecord]
    free: int
    kind: Literal["outgoing"] = "outgoing"

    @property
    def host(self) -> str:
        """Where the receiver is, if it is elsewhere."""
        return visible_url(self.payment.terms.receiver).host


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A payment into the wallet: `who` has paid, or the last of several who did; nobody is known on other servers."""

    payment: IncomingRecord
    who: Who
    note: str
    refunds: Sequence[RefundRecord]
    kind: Literal["incoming"] = "incoming"


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator has put into the wallet, or taken out."""

    kind: Literal["deposit", "withdrawal"]
    amount: int
    reference: str | None
    created_at: int


def find(work: Work, wallet: WalletRecord, payment_id: str) -> Outgoing | Incoming | Moved:
    """A movement of the wallet. Raises NotFound."""
    outgoing = OUTGOING.get(work, payment_id)
    if outgoing is not None and outgoing.wallet_address_id == wallet.id:
        return _outgoing(work, wallet, outgoing)
    incoming = INCOMING.get(work, payment_id)
    if incoming is not None and incoming.wallet_address_id == wallet.id:
        return _incoming(work, incoming)
    movement = MOVEMENTS.get(work, payment_id)
    if movement is not None and movement.account_id == wallet.account_id:
        kind: Literal["deposit", "withdrawal"] = "deposit" if movement.kind == "deposit" else "withdrawal"
        return Moved(kind=kind, amount=movement.amount, reference=movement.reference, created_at=movement.created_at)
    raise nothing_here()


def note_of(metadata: str | None) -> str:
    """What a payment is for: its description, where clients put it, on one line and without hidden characters."""
    try:
        # The rest may be anything: JSON numbers have no bounds.
        told = msgspec.json.decode(metadata or "{}", type=dict[str, msgspec.Raw])
        found = msgspec.json.decode(told.get("description", b'""'), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    line = " ".join(visible_text(found).split())
    return line if len(line) <= MAX_NOTE_LENGTH else f"{line[: MAX_NOTE_LENGTH - 1]}…"


def _outgoing(work: Work, wallet: WalletRecord, payment: OutgoingRecord) -> Outgoing:
    quote = QUOTES.get(work, payment.quote_id) if payment.quote_id else None
    wish = kept_wish(quote.wish) if quote and quote.wish else None
    grant = GRANTS.get(work, payment.grant_id) if payment.grant_id else None
    return Outgoing(
        payment=payment,
        who=_receiver(work, payment, wish),
        note=note_of(payment.metadata),
        app=(grant and visible_name(grant.client_name, None)) or "",
        grant_id=payment.grant_id,
        again=payment.quote_id if wish else None,
        is_bill=bool(wish and wish.is_bill),
        refunds=payments.refunds_of(work, "outgoing", payment.id, REFUNDS),
        free=free_balance(work, wallet),
    )


def _receiver(work: Work, payment: OutgoingRecord, wish: KeptWish | None) -> Who:
    """Who gets a payment: a wallet here; elsewhere whom its owner had named, or else the server."""
    if payment.terms.incoming_payment_id is not None:
        incoming = INCOMING.by_id(work, payment.terms.incoming_payment_id)
        return _wallet(work, incoming.wallet_address_id)
    if wish is not None:
        return Who(wish.called, visible_url(wish.address), "" if BILL in wish.address else wish.address)
    return Who(visible_url(payment.terms.receiver).host)


def _incoming(work: Work, payment: IncomingRecord) -> Incoming:
    payer_id = payments.last_payer(work, payment.id)
    payer = OUTGOING.by_id(work, payer_id) if payer_id else None
    # Who pays a bill has a note of their own; what an app writes into a payment is for the app.
    told = payer.metadata if payer and payer.grant_id is None else None
    return Incoming(
        payment=payment,
        who=_wallet(work, payer.wallet_address_id) if payer else Who(),
        note=note_of(payment.metadata) or note_of(told),
        refunds=payments.refunds_of(work, "incoming", payment.id, REFUNDS),
    )


def _wallet(work: Work, wallet_id: int) -> Who:
    wallet = WALLETS.by_id(work, wallet_id)
    url = work.urls.wallet(wallet.path)
    return Who(visible_name(wallet.public_name, url) or wallet.path, visible_url(url), url)
