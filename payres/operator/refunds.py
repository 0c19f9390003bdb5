"""Refunds: send back what an incoming payment received, to the wallets here that paid it, the last payer first.

Across assets the exchange is undone at the rate of the payment, rounded down: the receiver's money goes into the
operator's liquidity, and the payer's comes out of it. Fees are not returned, and grants still count the amount as
spent.
"""

from collections.abc import Sequence

from payres import ledger, representations
from payres.amounts import format_decimal
from payres.errors import InsufficientFunds, InvalidAmount, NotFound, WrongState
from payres.event_types import RefundEvent
from payres.operator import audit
from payres.operator.movements import check_reference, require_amount
from payres.store import assets, incoming, outgoing, wallets
from payres.store.fail_stop import RowMissing
from payres.store.outgoing import OutgoingRecord
from payres.store.payments import payers_of
from payres.store.refunds import RefundRecord, insert_refund, refunds_of_incoming
from payres.store.wallets import WalletRecord
from payres.store.work import Work


def refund(work: Work, payment_id: str, reference: str, text: str | None = None) -> Sequence[RefundRecord]:
    """Sends back an amount such as "10.00", or all that is left; one refund for each payment that it goes back to.

    A repeated reference refunds nothing again. Raises NotFound, InvalidRequest for the reference, InvalidAmount for
    more than is left, WrongState, InsufficientFunds.
    """
    payment = incoming.find_incoming(work, payment_id)
    if payment is None:
        raise NotFound(
            f"There is no incoming payment {payment_id}; `payres payment list --direction incoming` shows all"
        )
    check_reference(reference)
    receiver = wallets.wallet_by_id(work, payment.wallet_address_id)
    asset = assets.asset_by_id(work, receiver.asset_id)
    asked, before = None if text is None else require_amount(text, asset), refunds_of_incoming(work, payment.id)
    made = [one for one in before if one.reference == reference]
    if made:
        if asked is not None and asked != sum(one.amount for one in made):
            raise WrongState(f"The reference {reference!r} is that of another refund; give each one of its own")
        return made
    left = payment.received - sum(one.amount for one in before)
    amount = left if asked is None else asked
    if not 0 < amount <= left:
        most = format_decimal(left, asset.asset)
        raise InvalidAmount(f"{most} {asset.code} of the payment can still be sent back", remaining=str(left))
    refunds = [
        _send_back(work, receiver, payer, payment.id, part, reference)
        for payer, part in _parts(work, payment.id, before, amount, receiver)
    ]
    shown = f"{format_decimal(amount, asset.asset)} {asset.code}"
    audit.record(work, "payment.refund", payment.id, amount=shown, reference=reference)
    return refunds


def _parts(
    work: Work, payment_id: str, before: Sequence[RefundRecord], amount: int, receiver: WalletRecord
) -> Sequence[tuple[OutgoingRecord, int]]:
    """The payments that paid, the newest first, with what goes back to each. Raises WrongState."""
    parts = []
    for payer_id in reversed(payers_of(work, payment_id)):
        payer = outgoing.find_outgoing(work, payer_id)
        if payer is None:
            raise RowMissing(f"outgoing payment {payer_id} does not exist")
        open_part = payer.delivered - sum(one.amount for one in before if one.outgoing_payment_id == payer_id)
        part = min(open_part, amount)
        if part:
            amount -= part
            parts.append((payer, part))
    if amount:
        raise WrongState(
            f"{format_decimal(amount, receiver.asset)} {receiver.asset_code} of this came from other servers, to whose"
            " payers there is no way back: pay them from the wallet, and refund here what was paid here"
        )
    return parts


def _send_back(
    work: Work, receiver: WalletRecord, payer: OutgoingRecord, payment_id: str, amount: int, reference: str
) -> RefundRecord:
    wallet = wallets.wallet_by_id(work, payer.wallet_address_id)
    if not wallet.active:
        raise WrongState(f"The payer's wallet {wallet.path} is inactive and takes no money in", path=wallet.path)
    net = payer.terms.debit - payer.terms.fee
    returned = amount if wallet.asset_id == receiver.asset_id else amount * net // payer.terms.receive
    if not returned:
        raise InvalidAmount("Of this amount nothing would arrive in the payer's currency")
    made = RefundRecord(work.new_id(), payment_id, payer.id, amount, returned, reference, work.now)
    insert_refund(work, made)
    try:
        _move(work, receiver, wallet, made)
    except ledger.NotEnough as lack:
        reason = lack.account.kind
        code = (receiver if reason == "wallet" else wallet).asset_code
        raise InsufficientFunds(
            f"The {reason} has {lack.free} {code} free, in the smallest unit, which is less than the refund needs",
            reason=reason,
        ) from lack
    work.emit("refund.completed", made.id, _event(work, receiver, wallet, made))
    return made


def _event(work: Work, receiver: WalletRecord, payer: WalletRecord, made: RefundRecord) -> RefundEvent:
    return RefundEvent(
        id=made.id,
        incoming_payment=work.urls.resource("incoming-payments", made.incoming_payment_id),
        outgoing_payment=work.urls.resource("outgoing-payments", made.outgoing_payment_id),
        amount=representations.amount(made.amount, receiver.asset),
        returned=representations.amount(made.returned, payer.asset),
        reference=made.reference,
    )


def _move(work: Work, receiver: WalletRecord, payer: WalletRecord, made: RefundRecord) -> None:
    """Raises NotEnough."""
    if receiver.asset_id == payer.asset_id and receiver.id != payer.id:
        ledger.transfer(work, receiver.account_id, payer.account_id, made.amount, "payment", refund_id=made.id)
        return
    taken = ledger.operator_account(work, receiver.asset_id, "liquidity")
    given = ledger.operator_account(work, payer.asset_id, "liquidity")
    ledger.transfer(work, receiver.account_id, taken, made.amount, "exchange", refund_id=made.id)
    ledger.transfer(work, given, payer.account_id, made.returned, "payment", refund_id=made.id)
