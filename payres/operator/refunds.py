"""Refunds: return what an incoming payment received.

Money from local wallets returns to them, last payer first. Across assets the exchange is reversed at the payment's
rate: the receiver's money goes into the operator's liquidity, and the payer's comes out of it. Rounded down is the sum
of all refunds of a payment, not each, so that refunds in parts return as much as one.

Money from another server goes to a wallet address that the operator names, by an outgoing payment without a grant or
fee, which is recovered, ended and shown in events like any other. The part that was not sent can be refunded again.

Fees are not returned, and grants still count the amount as spent.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from payres.accounts.notices import notify
from payres.core.grants.clients import own_client
from payres.core.http.context import Context
from payres.core.payments import ledger
from payres.core.payments.idempotency import check_reference
from payres.core.payments.incoming import LocalReceiver, add, unpaid
from payres.core.payments.ledger import Side
from payres.core.payments.outgoing import check_funds, check_movable, insert, pay_or_hold
from payres.core.payments.quotes import local_terms
from payres.core.payments.settlement import warn_of_low
from payres.core.protocol.amounts import Offer, Terms, describe_amount, format_decimal
from payres.core.protocol.errors import (
    InsufficientFunds,
    InvalidAmount,
    InvalidReceiver,
    InvalidRequest,
    WrongState,
    require,
)
from payres.core.protocol.urls import canonical, canonical_url
from payres.core.protocol.visible import visible_text, visible_url
from payres.core.protocol.wire import List, Resource, Text, require_amount
from payres.core.store import audit, representations
from payres.core.store.connections import is_served
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import WALLETS, WalletRecord, active_wallet
from payres.core.store.work import Units, Work
from payres.html.language import Language
from payres.interledger.node import node_of, open_quotes
from payres.interledger.store import remote_resources
from payres.operator.declared.declarations import CommandLine, ContextUnits, LookOver, OperationForm, operation
from payres.operator.declared.inputs import MAX_REASON, DecimalText, Reference, check_reason, said
from payres.operator.declared.shapes import Cell, Time, decimals, represent
from payres.operator.movements import FORM_REFERENCE
from payres.operator.payments import PAYMENT, PaymentName
from payres.operator.refund_limits import ACTION, check_limit, said_at_field
from payres.operator.store.audit import last_details
from payres.people.refund_events import emit_refund
from payres.people.store import refunds as store
from payres.people.store.activity import payer_wallets
from payres.people.store.refunds import REFUNDS, RefundRecord, RefundState

# Refunds that one unit of work makes, with several rows each. More take several units, each committed on its own.
PARTS_AT_ONCE: Final = 64
Returned = Annotated[DecimalText | None, said("By default all that is left.")]
RefundReason = Annotated[
    str, said("Both owners and the audit log get this sentence.", label="Why", min_length=1, max_length=MAX_REASON)
]
Receiver = Annotated[
    Text | None,
    said(
        "The address that it goes back to, as the payer gave it to you.",
        metavar="WALLET_ADDRESS",
    ),
]


class Refund(Resource, frozen=True, kw_only=True):
    """`why` is what the operator wrote for both owners. `amount` leaves the receiver's wallet and `returned` has
    come back, each in its own asset: to the payer of `outgoingPayment`, or to the wallet address `to` by
    `returnPayment`. `sent` has left the receiver's wallet for good, or is held there while the state is `sending`."""

    id: str
    incoming_payment: str
    outgoing_payment: str | None
    return_payment: str | None
    receiver: str
    payer: str | None
    to: str | None
    state: RefundState
    failure: str | None
    amount: str
    sent: str
    asset_code: str
    returned: str
    returned_asset_code: str
    reference: str
    why: str | None
    created_at: Time


class WantedRefund(msgspec.Struct, frozen=True):
    """A requested refund: of an amount such as "10.00" or the rest; to the payers, or to the wallet address `to`. Both
    owners are told `why`."""

    payment_id: str
    reference: str
    amount: str | None = None
    to: str | None = None
    why: str | None = None


class RefundPlan(msgspec.Struct, frozen=True):
    """A planned refund of an incoming payment: the whole amount, and the `parts` of it that return to local payments,
    newest first; none if it goes to a wallet address. `came` is the amount received from other servers. `made` are the
    ids of the existing refunds with the reference. If there are parts too, a crash interrupted it."""

    wanted: WantedRefund
    payment: IncomingRecord
    receiver: WalletRecord
    amount: int
    came: int = 0
    parts: Sequence[tuple[str, int]] = ()
    made: Sequence[str] = ()


@operation(
    "POST /payments/{id}/refunds payments:refund",
    command=CommandLine(
        "payment refund ID",
        "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --amount 5.00 --why 'never sent' --reference returned-17\n"
        "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --to https://x.example/ann --reference r-18",
        text=lambda made: "\n".join(map(_line, made.result)),
        member="refunds",
    ),
    form=OperationForm(
        "Refund",
        PAYMENT,
        done="{asset_code} {refunded:money} of {asset_code} {moved:money} went back so far, or are on their way",
        will=[
            "Send back what came in: to the wallets here that paid, the last one first, or to a wallet address.",
            "Without an amount, all that is left. Fees stay, and grants count the money as spent.",
        ],
        is_over=lambda one: one.direction != "incoming" or one.moved == one.refunded,
        plan=lambda work, id, **given: _meant(work, WantedRefund(id, **given)),
        weighs=lambda work, id, **given: _looked_over(work, WantedRefund(id, **given)),
        says=said_at_field,
    ),
    noun="payments",
    audits="payment.refund",
)
async def refund(
    call: ContextUnits,
    id: PaymentName,
    amount: Returned = None,
    to: Receiver = None,
    why: RefundReason | None = None,
    *,
    reference: Reference,
) -> List[Refund]:
    """Send back what an incoming payment received.

    It goes to the wallets here that paid, or to a wallet address. Without an amount, all that is left. Money from
    wallets here goes back to them, with a refund for each payment, the last one first. Money from another server
    goes to the wallet address in `to`: the server, which must be running, sends it, and `payres payment show` has
    the outcome. Repeating it with the same reference does nothing.
    """
    wanted = WantedRefund(id, reference, amount, to, why)
    offer = await _find_offer(call.context, wanted)
    async with call.context.idempotency_slots.slot("refunds", id):  # each sees what the one before has sent back
        made = await send_back(call, wanted, offer)
    if isinstance(call.context, Context):
        node_of(call.context).payments.wake()
    return made


async def _find_offer(context: Context | Any, wanted: WantedRefund) -> Offer | None:
    """The offer of another server, if the refund needs one; a command asks by itself."""
    plan = partial(plan_elsewhere, wanted=wanted)
    if isinstance(context, Context):
        return await node_of(context).quotes.offer_for_refund(wanted.to, plan)
    if wanted.to is None:
        return None
    try:
        async with open_quotes(context.settings) as quotes:
            return await quotes.offer_for_refund(wanted.to, plan)
    except InvalidReceiver as error:
        if is_served(context.settings.database):
            raise
        sentence = f"{error}; no server is running here, whose keys the other server asks for"
        raise InvalidReceiver(sentence, **error.details) from error


def _line(made: Refund) -> str:
    is_exact = made.asset_code == made.returned_asset_code and made.amount == made.returned
    returned = "" if is_exact or made.state == "sending" else f" as {made.returned_asset_code} {made.returned}"
    state = "" if made.to is None else f", {made.state}"
    why = f": {made.asset_code} {made.sent} was sent; {made.failure}" if made.failure else ""
    return (
        f"{made.created_at}  {made.asset_code} {made.amount} from {made.receiver} to {made.payer or made.to}{returned},"
        f" {made.reference}{state}{why}"
    )


def _meant(work: Work, wanted: WantedRefund) -> Mapping[str, str]:
    """The amount, so that no more goes back than was looked over. Raises the errors of `plan`."""
    found = plan(work, wanted)
    return {"amount": format_decimal(found.amount, found.receiver.asset)}


def _looked_over(work: Work, wanted: WantedRefund) -> LookOver:
    """Whose money goes back to whom, and what went back before. Raises the errors of `plan`."""
    found = plan(work, wanted)
    asset, is_named = found.receiver.asset, not wanted.reference.startswith(FORM_REFERENCE)
    made = [REFUNDS.by_id(work, one) for one in found.made]
    counted = sum(one.counted for one in made)
    payers = [one for one, _ in found.parts] or [one.outgoing_payment_id for one in made if one.outgoing_payment_id]
    facts = [("From", found.receiver.name), ("To", wanted.to or _names_of(work, payers))]
    named = [("Reference", wanted.reference)] if is_named else []
    if made and is_named and not found.parts:
        facts += [*named, ("Went back, or is on its way", describe_amount(counted, asset))]
        text = f"This reference is that of a refund of {describe_amount(found.amount, asset)}, {_day(work, made[0])}."
        risk = "Nothing is sent again.", f"{text} To send more back, give another one."
        return LookOver("This refund was made before", "", (), facts, risk)
    rest = sum(part for _, part in found.parts) or found.amount
    # A form that is sent again, as its answer was lost, goes on with its own refund: that is no change by somebody.
    back = store.sent_back(work, found.payment.id) - (0 if is_named else counted)
    before, then = (Cell(format_decimal(one, asset), "number") for one in (back, back + rest))
    rows = [(f"Went back of {describe_amount(found.payment.received, asset)}", before, then)]
    facts += [("Why", wanted.why or "no reason: both owners read none"), *named]
    facts.append(("Fees", "stay, and grants count the money as spent"))
    amount = describe_amount(rest, asset)
    return LookOver(f"Send {amount} back?", f"Send {amount} back", rows, facts, _equal_before(work, found))


def _names_of(work: Work, payers: Sequence[str]) -> str:
    """The names of the wallets that get these outgoing payments back."""
    wallets = [OUTGOING.by_id(work, one).wallet_address_id for one in payers[:PARTS_AT_ONCE]]
    others = ["others"] if len(payers) > PARTS_AT_ONCE else []
    return ", ".join([*dict.fromkeys(WALLETS.by_id(work, one).name for one in wallets), *others])


def _equal_before(work: Work, found: RefundPlan) -> tuple[str, str] | None:
    """What is said if as much of the payment went back before, under another reference."""
    amounts: dict[str, int] = {}
    newest = store.refunds_of(work, "incoming", found.payment.id, PARTS_AT_ONCE)
    for one in newest:
        amounts[one.reference] = amounts.get(one.reference, 0) + one.counted
    equal = [
        one for one in newest if amounts[one.reference] == found.amount and one.reference != found.wanted.reference
    ]
    if not equal:
        return None
    last = equal[-1]
    named = "" if last.reference.startswith(FORM_REFERENCE) else f", “{visible_text(last.reference)}”"
    amount = describe_amount(found.amount, found.receiver.asset)
    return f"{amount} of this payment went back before", f"That was {_day(work, last)}{named}. Is this another one?"


def _day(work: Work, made: RefundRecord) -> str:
    return Language("en", work.now).day(made.created_at)


async def send_back(call: Units, wanted: WantedRefund, offer: Offer | None) -> List[Refund]:
    """Makes a refund, in several units of work if there are very many payments to refund. `offer` is that of another
    server. After a crash, repeating it does the rest. Raises the errors of `plan` and `make`."""
    offered = None if offer is None else offer.terms.debit
    found = await call.read(partial(plan, wanted=wanted, offered=offered))
    made = [*found.made]
    count = len(found.parts) if wanted.to is None else int(not made)
    for first in range(0, count, PARTS_AT_ONCE):
        made += await call.write(partial(make, found=found, first=first, offer=offer))
    return List(result=await call.read(lambda work: [shown_refund(work, REFUNDS.by_id(work, one)) for one in made]))


def shown_refund(work: Work, record: RefundRecord) -> Refund:
    receiver = WALLETS.by_id(work, INCOMING.by_id(work, record.incoming_payment_id).wallet_address_id)
    # The payer's payment, or the one to the wallet address that the operator named.
    back = OUTGOING.by_id(work, record.outgoing_payment_id or record.return_payment_id or "")
    payer = WALLETS.by_id(work, back.wallet_address_id) if record.outgoing_payment_id else None
    returned = payer.asset if payer else back.terms.asset
    return represent(
        Refund,
        record,
        receiver,
        receiver=receiver.path,
        payer=payer.path if payer else None,
        to=record.wallet_address,
        **decimals(receiver.asset, amount=record.amount, sent=record.counted),
        returned=format_decimal(record.returned, returned),
        returned_asset_code=returned.code,
    )


def plan(work: Work, wanted: WantedRefund, offered: int | None = None) -> RefundPlan:
    """Plans a refund; `offered` is the amount of an offer, if there is one. May read very many payments. Raises
    NotFound, InvalidRequest, InvalidAmount; WrongState, also if the reference belongs to another refund."""
    payment = require(
        INCOMING.get(work, wanted.payment_id),
        f"There is no incoming payment {wanted.payment_id}",
        "`payres payment list --direction incoming` shows all",
    )
    receiver = WALLETS.by_id(work, payment.wallet_address_id)
    check_reference(wanted.reference)
    check_reason(wanted.why, "why")
    if wanted.to is not None and canonical_url(wanted.to) is None:
        raise InvalidRequest("to must be a wallet address, such as https://other.example/alice", field="to")
    asked = None if wanted.amount is None else require_amount(wanted.amount, receiver.asset)
    made = REFUNDS.list(work, incoming_payment_id=payment.id, reference=wanted.reference)
    if made:
        return _continued(work, RefundPlan(wanted, payment, receiver, _amount_of(work, made, receiver)), made, asked)
    came, left, origin = 0, payment.received - store.sent_back(work, payment.id), "payment"
    if wanted.to is not None:
        came = payment.received - store.delivered_here(work, payment.id)
        left, origin = came - store.sent_back(work, payment.id, remote=True), "payment came from other servers and"
    amount = asked if asked is not None else offered or left
    if not 0 < amount <= left:
        most = f"Only {describe_amount(left, receiver.asset)}" if left > 0 else "Nothing"
        raise InvalidAmount(f"{most} of the {origin} can still be sent back", remaining=str(left))
    check_limit(work, store.sent_back(work, payment.id), amount, receiver.asset)
    found = RefundPlan(wanted, payment, receiver, amount, came)
    return found if wanted.to is not None else _with_parts(work, found, amount)


def plan_elsewhere(work: Work, wanted: WantedRefund) -> tuple[WalletRecord, int] | None:
    """The wallet that pays a refund to another server, and the amount; None if it was already made. Raises like `plan`;
    WrongState, InsufficientFunds if the wallet cannot pay."""
    found = plan(work, wanted)
    if found.made:
        return None
    if not found.receiver.active:
        path = found.receiver.path
        raise WrongState(f"The wallet {path} is inactive and pays no other server; activate it first", path=path)
    check_funds(work, found.receiver, found.amount)
    return found.receiver, found.amount


def make(work: Work, found: RefundPlan, first: int = 0, offer: Offer | None = None) -> Sequence[str]:
    """Makes the refunds of the next PARTS_AT_ONCE parts of a plan, from `first` on, or the one to its wallet address,
    with `offer` if that is on another server. Returns their ids. Raises WrongState, also if another refund was made in
    the meantime; InsufficientFunds, NoRate."""
    wanted, receiver = found.wanted, found.receiver
    made = len(found.made) + first
    now_made = REFUNDS.count(work, incoming_payment_id=found.payment.id, reference=wanted.reference)
    if now_made != made:
        raise _changed()
    if made == 0:
        check_limit(work, store.sent_back(work, found.payment.id), found.amount, receiver.asset)
        shown = f"{format_decimal(found.amount, receiver.asset)} {receiver.asset_code}"
        to = {} if wanted.to is None else {"to": canonical(wanted.to)}
        audit.record(work, ACTION, found.payment.id, amount=shown, reference=wanted.reference, why=wanted.why, **to)
        notify(
            *(work, receiver.owner_id, "refund_out"),
            wallet=receiver.path,
            payer=_payer_of(work, found),
            amount=found.amount,
            whole=found.payment.received,
            day=found.payment.completed_at or found.payment.created_at,
            asset_code=receiver.asset_code,
            asset_scale=receiver.asset_scale,
            why=wanted.why,
        )
    if wanted.to is not None:
        return [_send_to(work, found, wanted.to, offer).id]
    return [_send_back(work, found, *part).id for part in found.parts[first : first + PARTS_AT_ONCE]]


def _payer_of(work: Work, found: RefundPlan) -> str:
    """Who is told to have paid: the first one here, or else the host that it goes to."""
    here = payer_wallets(work, found.payment.id)
    return WALLETS.by_id(work, here[0]).name if here else visible_url(found.wanted.to or "").host


def _continued(work: Work, found: RefundPlan, made: Sequence[RefundRecord], asked: int | None) -> RefundPlan:
    """The plan with the parts left by a crash, usually none. Raises WrongState if another refund was made."""
    to = None if found.wanted.to is None else canonical(found.wanted.to)
    if asked not in {None, found.amount} or any(one.wallet_address != to for one in made):
        name = found.wanted.reference
        raise WrongState(f"The reference {name!r} is that of another refund; give each one of its own")
    rest = found.amount - sum(one.amount for one in made)
    found = msgspec.structs.replace(found, made=[one.id for one in made])
    return _with_parts(work, found, rest) if rest else found


def _amount_of(work: Work, made: Sequence[RefundRecord], receiver: WalletRecord) -> int:
    """The whole amount of a refund of which these were made. The audit log records it with the first of them."""
    first, amount = made[0], sum(one.amount for one in made)
    if len(made) % PARTS_AT_ONCE:
        return amount  # the last unit was made too
    found = last_details(work, ACTION, first.incoming_payment_id, first.reference, first.id)
    return amount if found is None else require_amount(found["amount"].partition(" ")[0], receiver.asset)


def _with_parts(work: Work, found: RefundPlan, amount: int) -> RefundPlan:
    """The plan with the parts of an amount that returns to local payments. If they take several units of work, errors
    that would stop one in the middle are raised now, as far as foreseeable: WrongState, InsufficientFunds,
    InvalidAmount."""
    parts, receiver = [], found.receiver
    for payer_id, left in store.open_parts(work, found.payment.id):
        part = min(left, amount)
        if part:
            amount -= part
            parts.append((payer_id, part))
    if amount:
        missing = describe_amount(amount, receiver.asset)
        if found.made:
            raise WrongState(
                f"Of what this refund has still to do, {missing} went back under another reference since; send back"
                " what is left under a new reference"
            )
        raise WrongState(
            f"{missing} of this came from other servers: send that back by itself, to a wallet address that you name"
            " (to), and refund here what was paid here"
        )
    if len(parts) > PARTS_AT_ONCE:
        check_funds(work, receiver, sum(part for _, part in parts))
        for payer_id, part in parts:
            _returned(work, receiver, payer_id, part)
    return msgspec.structs.replace(found, parts=parts)


def _returned(work: Work, receiver: WalletRecord, payer_id: str, amount: int) -> tuple[WalletRecord, int]:
    """The paying wallet, and what it gets, in its own asset: with what it got before, its share of all that was sent
    back, rounded down. Raises WrongState, InvalidAmount.
    """
    payer = OUTGOING.by_id(work, payer_id)
    wallet = WALLETS.by_id(work, payer.wallet_address_id)
    if not wallet.active:
        raise WrongState(f"The payer's wallet {wallet.path} is inactive and takes no money in", path=wallet.path)
    if wallet.asset_id == receiver.asset_id:
        return wallet, amount
    taken, net = payer.terms.receive, payer.terms.debit - payer.terms.fee
    sent = taken - store.open_part(work, payer_id) + amount
    returned = sent * net // taken - store.came_back(work, payer_id)
    if not returned:
        raise InvalidAmount("Of this amount nothing would arrive in the payer's currency; send back more at once")
    return wallet, returned


def _changed() -> WrongState:
    return WrongState("Something else of this payment was sent back meanwhile; send this refund again")


def _send_back(work: Work, found: RefundPlan, payer_id: str, amount: int) -> RefundRecord:
    if amount > store.open_part(work, payer_id):
        raise _changed()
    receiver = found.receiver
    wallet, returned = _returned(work, receiver, payer_id, amount)
    made = _insert(
        work,
        found,
        outgoing_payment_id=payer_id,
        amount=amount,
        returned=returned,
        from_wallet_id=receiver.id,
        to_wallet_id=wallet.id,
    )
    source = Side(receiver.account_id, receiver.asset_id, amount)
    target = Side(wallet.account_id, wallet.asset_id, returned)
    try:
        warn_of_low(work, ledger.exchange(work, source, target, refund_id=made.id))
    except ledger.NotEnough as lack:
        reason = lack.account.kind
        code = (receiver if reason == "wallet" else wallet).asset_code
        free = f"{lack.free} {code} free, in the smallest unit"
        raise InsufficientFunds(
            f"The {reason} has {free}, which is less than the refund needs", reason=reason
        ) from lack
    emit_refund(work, receiver, made, wallet.asset)
    return made


def _send_to(work: Work, found: RefundPlan, to: str, offer: Offer | None) -> RefundRecord:
    """Makes an outgoing payment with this server as its client; a local wallet gets it in this unit."""
    if found.amount > found.came - store.sent_back(work, found.payment.id, remote=True):
        raise _changed()
    sender = found.receiver
    client_id = own_client(work)
    terms, receiver = _terms_here(work, sender, client_id, to, found.amount) if offer is None else (offer.terms, None)
    check_movable(terms)
    check_funds(work, sender, terms.debit)
    if receiver is not None:
        add(work, receiver.wallet, receiver.payment)
    payment = insert(work, sender, client_id, terms)
    if receiver is None:
        remote_resources.note_bill(work, payment.id, terms.receiver, work.now)
    made = _insert(
        work,
        found,
        return_payment_id=payment.id,
        wallet_address=canonical(to),
        amount=terms.debit,
    )
    pay_or_hold(work, sender, payment, receiver)
    return made


def _insert(work: Work, found: RefundPlan, **columns: int | str) -> RefundRecord:
    refund_id, said = work.new_id(), {"reference": found.wanted.reference, "why": found.wanted.why}
    REFUNDS.create(work, id=refund_id, incoming_payment_id=found.payment.id, **columns, **said, created_at=work.now)
    return REFUNDS.by_id(work, refund_id)


def _terms_here(work: Work, sender: WalletRecord, client_id: int, to: str, amount: int) -> tuple[Terms, LocalReceiver]:
    """The terms for a local wallet, and its incoming payment, not yet inserted."""
    wallet = active_wallet(work, to, "to")
    if wallet.id == sender.id:
        raise InvalidRequest("to is the wallet that has received the money; name that of who sent it", field="to")
    receiver = unpaid(work, wallet, client_id)
    debit = representations.amount(amount, sender.asset)
    terms = local_terms(work, sender, receiver, debit, None, is_free=True)
    complete = msgspec.structs.replace(receiver.payment, incoming_value=str(terms.receive))
    return terms, msgspec.structs.replace(receiver, payment=complete)
