"""Refunds: send back what an incoming payment received.

What wallets here paid goes back to them, the last payer first. Across assets the exchange is undone at the rate of the
payment, rounded down: the receiver's money goes into the operator's liquidity, and the payer's comes out of it.

Money from another server goes to a wallet address that the operator names, by an outgoing payment without a grant,
which pays no fee and is recovered, ended and shown in events like any other. What of it has not left can be sent back
again.

Fees are not returned, and grants still count the amount as spent.
"""

from collections.abc import Sequence

import msgspec

from payres import ledger, representations
from payres.amounts import format_decimal
from payres.clock import SECOND
from payres.errors import InsufficientFunds, InvalidAmount, InvalidRequest, WrongState, require
from payres.ledger import Side
from payres.payments.idempotency import check_reference
from payres.payments.incoming import LocalReceiver, add
from payres.payments.outgoing import check_funds, check_movable, insert, pay_or_hold
from payres.payments.quotes import local_terms
from payres.payments.settlement import warn_of_low
from payres.store import audit, clients
from payres.store.assets import ASSETS
from payres.store.payments import (
    INCOMING,
    OUTGOING,
    REFUNDS,
    IncomingRecord,
    OutgoingRecord,
    RefundRecord,
    payers_of,
    refunds_of_incoming,
)
from payres.store.wallets import WALLETS, WalletRecord, active_wallet
from payres.store.work import Work
from payres.terms import Offer, Terms
from payres.urls import ROOT_WALLET_PATH, canonical, canonical_url
from payres.wire import require_amount


class Wanted(msgspec.Struct, frozen=True):
    """A refund as the operator wants it: of an amount such as "10.00", or of all that is left; to who paid, or to the
    wallet address `to`."""

    payment_id: str
    reference: str
    amount: str | None = None
    to: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """A refund that can be made: so much, from the wallet that had received it. `before` are the refunds so far."""

    payment: IncomingRecord
    receiver: WalletRecord
    payers: Sequence[OutgoingRecord]
    before: Sequence[RefundRecord]
    amount: int


def refund(work: Work, wanted: Wanted, offer: Offer | None = None) -> Sequence[RefundRecord]:
    """One refund for each payment that it goes back to, or one to the wallet address; `offer` is what one on another
    server gets.

    A repeated reference refunds nothing again. Raises NotFound, InvalidRequest, InvalidAmount for more than is left,
    WrongState, InsufficientFunds, NoRate.
    """
    made = find_made(work, wanted)
    if made:
        return made
    found = plan(work, wanted, None if offer is None else offer.terms.debit)
    if wanted.to is None:
        refunds = [
            _send_back(work, found.receiver, payer, found.payment.id, part, wanted.reference)
            for payer, part in _parts(found)
        ]
    else:
        refunds = [_send_to(work, found, wanted.to, wanted.reference, offer)]
    shown = f"{format_decimal(found.amount, found.receiver.asset)} {found.receiver.asset_code}"
    to = {} if wanted.to is None else {"to": canonical(wanted.to)}
    audit.record(work, "payment.refund", found.payment.id, amount=shown, reference=wanted.reference, **to)
    return refunds


def find_made(work: Work, wanted: Wanted) -> Sequence[RefundRecord]:
    """What was refunded under the reference. Raises NotFound, InvalidRequest, InvalidAmount; WrongState when that is
    another refund."""
    payment, receiver = _payment_of(work, wanted)
    check_reference(wanted.reference)
    if wanted.to is not None and canonical_url(wanted.to) is None:
        raise InvalidRequest("to must be a wallet address, such as https://other.example/alice", field="to")
    asset = ASSETS.by_id(work, receiver.asset_id)
    asked = None if wanted.amount is None else require_amount(wanted.amount, asset.asset)
    made = [one for one in refunds_of_incoming(work, payment.id) if one.reference == wanted.reference]
    to = None if wanted.to is None else canonical(wanted.to)
    is_other = (asked is not None and asked != sum(one.amount for one in made)) or any(
        one.wallet_address != to for one in made
    )
    if made and is_other:
        raise WrongState(f"The reference {wanted.reference!r} is that of another refund; give each one of its own")
    return made


def plan(work: Work, wanted: Wanted, offered: int | None = None) -> Plan:
    """What is to be sent back; with an offer, what that has `offered`. Raises InvalidAmount for more than is left."""
    payment, receiver = _payment_of(work, wanted)
    asset = ASSETS.by_id(work, receiver.asset_id)
    before = refunds_of_incoming(work, payment.id)
    payers = [OUTGOING.by_id(work, payer_id) for payer_id in payers_of(work, payment.id)]
    left, origin = payment.received - sum(one.counted for one in before), "payment"
    if wanted.to is not None:
        from_elsewhere = payment.received - sum(payer.delivered for payer in payers)
        left = from_elsewhere - sum(one.counted for one in before if one.outgoing_payment_id is None)
        origin = "payment came from other servers and"
    amount = require_amount(wanted.amount, asset.asset) if wanted.amount is not None else offered or left
    if not 0 < amount <= left:
        most = f"Only {format_decimal(left, asset.asset)} {asset.code}" if left > 0 else "Nothing"
        raise InvalidAmount(f"{most} of the {origin} can still be sent back", remaining=str(left))
    return Plan(payment, receiver, payers, before, amount)


def _payment_of(work: Work, wanted: Wanted) -> tuple[IncomingRecord, WalletRecord]:
    payment = require(
        INCOMING.get(work, wanted.payment_id),
        f"There is no incoming payment {wanted.payment_id}; `payres payment list --direction incoming` shows all",
    )
    return payment, WALLETS.by_id(work, payment.wallet_address_id)


def _parts(found: Plan) -> Sequence[tuple[OutgoingRecord, int]]:
    """The payments that paid, the newest first, with what goes back to each. Raises WrongState."""
    parts, amount, receiver = [], found.amount, found.receiver
    for payer in reversed(found.payers):
        open_part = payer.delivered - sum(one.amount for one in found.before if one.outgoing_payment_id == payer.id)
        part = min(open_part, amount)
        if part:
            amount -= part
            parts.append((payer, part))
    if amount:
        raise WrongState(
            f"{format_decimal(amount, receiver.asset)} {receiver.asset_code} of this came from other servers: send that"
            " back by itself, to a wallet address that you name (to), and refund here what was paid here"
        )
    return parts


def _send_back(
    work: Work, receiver: WalletRecord, payer: OutgoingRecord, payment_id: str, amount: int, reference: str
) -> RefundRecord:
    wallet = WALLETS.by_id(work, payer.wallet_address_id)
    if not wallet.active:
        raise WrongState(f"The payer's wallet {wallet.path} is inactive and takes no money in", path=wallet.path)
    net = payer.terms.debit - payer.terms.fee
    returned = amount if wallet.asset_id == receiver.asset_id else amount * net // payer.terms.receive
    if not returned:
        raise InvalidAmount("Of this amount nothing would arrive in the payer's currency")
    made = _insert(
        work,
        incoming_payment_id=payment_id,
        outgoing_payment_id=payer.id,
        amount=amount,
        returned=returned,
        reference=reference,
    )
    source = Side(receiver.account_id, receiver.asset_id, amount)
    target = Side(wallet.account_id, wallet.asset_id, returned)
    try:
        warn_of_low(work, ledger.exchange(work, source, target, refund_id=made.id))
    except ledger.NotEnough as lack:
        reason = lack.account.kind
        code = (receiver if reason == "wallet" else wallet).asset_code
        raise InsufficientFunds(
            f"The {reason} has {lack.free} {code} free, in the smallest unit, which is less than the refund needs",
            reason=reason,
        ) from lack
    work.emit("refund.completed", made.id, representations.refund_event(work.urls, made, receiver.asset, wallet.asset))
    return made


def _send_to(work: Work, found: Plan, to: str, reference: str, offer: Offer | None) -> RefundRecord:
    """An outgoing payment with this server as its client; to a wallet here it arrives in this unit."""
    sender = found.receiver
    own = work.urls.wallet(ROOT_WALLET_PATH)
    client_id = clients.ensure_client(work, canonical(own), own, None, work.now).id
    terms, receiver = _terms_here(work, sender, client_id, to, found.amount) if offer is None else (offer.terms, None)
    check_movable(terms)
    check_funds(work, sender, terms.debit)
    if receiver is not None:
        add(work, receiver.wallet, receiver.payment)
    payment = insert(work, sender, client_id, terms)
    made = _insert(
        work,
        incoming_payment_id=found.payment.id,
        return_payment_id=payment.id,
        wallet_address=canonical(to),
        amount=terms.debit,
        reference=reference,
    )
    pay_or_hold(work, sender, payment, receiver)
    return made


def _insert(work: Work, **columns: int | str) -> RefundRecord:
    refund_id = work.new_id()
    REFUNDS.create(work, id=refund_id, **columns, created_at=work.now)
    return REFUNDS.by_id(work, refund_id)


def _terms_here(work: Work, sender: WalletRecord, client_id: int, to: str, amount: int) -> tuple[Terms, LocalReceiver]:
    """What a wallet here gets, and the incoming payment for it, which is still to be added."""
    wallet = active_wallet(work, to, "to")
    if wallet.id == sender.id:
        raise InvalidRequest("to is the wallet that has received the money; name that of who sent it", field="to")
    wanted = IncomingRecord(
        id=work.new_id(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        incoming_value=None,
        received=0,
        metadata=None,
        created_at=work.now,
        expires_at=work.now + work.settings.incoming_payment_lifetime * SECOND,
        completed_at=None,
    )
    receiver = LocalReceiver(work.urls.resource("incoming-payments", wanted.id), wanted, wallet)
    debit = representations.amount(amount, sender.asset)
    terms = local_terms(work, sender, receiver, debit, None, is_free=True)
    complete = msgspec.structs.replace(wanted, incoming_value=str(terms.receive))
    return terms, msgspec.structs.replace(receiver, payment=complete)
