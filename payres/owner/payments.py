"""One movement of a wallet as its owner sees it, with what came before and after."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.errors import require
from payres.owner.movements import Movement, Reader
from payres.owner.sending import BILL, free_balance, kept_wish
from payres.store import payments
from payres.store.entries import MOVEMENTS
from payres.store.payments import INCOMING, OUTGOING, IncomingRecord, OutgoingRecord, RefundRecord
from payres.store.quotes import QUOTES
from payres.store.wallets import WalletRecord
from payres.store.work import Work
from payres.visible import note_of

REFUNDS: Final = 20


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """A movement, with the payment that it is. `again` is the price of one that the owner made, perhaps of a bill; `to`
    is the address where more can be sent. `free` is what the wallet can spend now. A deposit may have a `reference`."""

    shown: Movement
    note: str
    outgoing: OutgoingRecord | None = None
    incoming: IncomingRecord | None = None
    reference: str | None = None
    to: str = ""
    again: str | None = None
    is_bill: bool = False
    refunds: Sequence[RefundRecord] = ()
    free: int = 0


def find(work: Work, wallet: WalletRecord, reader: Reader, payment_id: str) -> Detail:
    """A movement of the wallet. Raises NotFound."""
    shown = require(reader.find(payment_id), "There is nothing at this address")
    outgoing = OUTGOING.get(work, payment_id)
    if outgoing is not None:
        return _outgoing(work, wallet, shown, outgoing)
    incoming = INCOMING.get(work, payment_id)
    if incoming is not None:
        return _incoming(work, shown, incoming)
    return Detail(shown=shown, note="", reference=MOVEMENTS.by_id(work, payment_id).reference)


def _outgoing(work: Work, wallet: WalletRecord, shown: Movement, payment: OutgoingRecord) -> Detail:
    quote = QUOTES.get(work, payment.quote_id) if payment.quote_id else None
    wish = kept_wish(quote.wish) if quote and quote.wish else None
    there = shown.counterpart
    is_known = there.address is not None and (wish is not None or there.wallet_id is not None)
    return Detail(
        shown=shown,
        note=shown.note,
        outgoing=payment,
        to=there.address.text if there.address and is_known and BILL not in there.address.text else "",
        again=payment.quote_id if wish else None,
        is_bill=bool(wish and wish.is_bill),
        refunds=payments.refunds_of(work, "outgoing", payment.id, REFUNDS),
        free=free_balance(work, wallet),
    )


def _incoming(work: Work, shown: Movement, payment: IncomingRecord) -> Detail:
    payer_id = payments.last_payer(work, payment.id)
    payer = OUTGOING.by_id(work, payer_id) if payer_id else None
    # Who pays a bill has a note of their own; what an app writes into a payment is for the app.
    told = payer.metadata if payer and payer.grant_id is None else None
    return Detail(
        shown=shown,
        note=shown.note or note_of(told),
        incoming=payment,
        to=shown.counterpart.address.text if shown.counterpart.address else "",
        refunds=payments.refunds_of(work, "incoming", payment.id, REFUNDS),
    )
