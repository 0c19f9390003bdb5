"""Settlement of payments to local receivers: the money moves in the unit that creates the payment.

Exchanges use the operator's liquidity, whose accounts may run low.
"""

from collections.abc import Callable, Iterable, Sequence

from payres.core.payments import ledger
from payres.core.payments.incoming import credit
from payres.core.payments.ledger import Side, free_balance
from payres.core.protocol.amounts import Asset, describe_amount
from payres.core.protocol.errors import InsufficientFunds
from payres.core.protocol.event_types import LiquidityEvent, OutgoingPaymentEvent
from payres.core.protocol.wire import OutgoingPayment
from payres.core.store import accounts, representations
from payres.core.store.accounts import ASSETS, AccountRecord
from payres.core.store.incoming_payments import IncomingRecord
from payres.core.store.outgoing_payments import OutgoingRecord
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work

# How a part writes the events of a payment without a grant: `Environment.emit_ungranted`.
EmitPayment = Callable[[Work, WalletRecord, OutgoingRecord, OutgoingPaymentEvent, Sequence[str]], None]


def pay_locally(
    work: Work, wallet: WalletRecord, payment: OutgoingRecord, receiver: IncomingRecord, target: WalletRecord
) -> None:
    """Moves the fee to the operator and the rest to the receiver in the wallet `target`, which counts it; through
    liquidity across assets.

    Raises NotEnough, InvalidAmount; then the unit must be rolled back.
    """
    net = payment.terms.debit - payment.terms.fee
    if payment.terms.fee:
        fees = ledger.operator_account(work, wallet.asset_id, "fees")
        ledger.transfer(work, wallet.account_id, fees, payment.terms.fee, "fee", outgoing_payment_id=payment.id)
    payer = Side(wallet.account_id, wallet.asset_id, net)
    payee = Side(target.account_id, target.asset_id, payment.terms.receive)
    low = ledger.exchange(work, payer, payee, outgoing_payment_id=payment.id, incoming_payment_id=receiver.id)
    warn_of_low(work, low)
    credit(work, target, receiver, payment.terms.receive)


def emit_payment_event(work: Work, wallet: WalletRecord, payment: OutgoingRecord, *names: str) -> OutgoingPayment:
    """Writes these events. Returns the payment as its client sees it."""
    shown = representations.outgoing_payment(work.urls, wallet, payment)
    event, emit_ungranted = representations.outgoing_payment_event(shown, payment), work.environment.emit_ungranted
    if payment.grant_id is None and emit_ungranted is not None:
        emit_ungranted(work, wallet, payment, event, names)
    else:
        work.emit(names, payment.id, event, wallet.id)
    return shown


def check_liquidity(work: Work, asset_id: int, amount: int) -> None:
    """Raises InsufficientFunds if the operator's liquidity in the asset is below this amount."""
    account = accounts.find_operator_account(work, asset_id, "liquidity")
    if account is None or free_balance(account) < amount:
        raise short_of_liquidity(amount, ASSETS.by_id(work, asset_id).asset)


def short_of_liquidity(amount: int, asset: Asset) -> InsufficientFunds:
    """The error for an exchange that exceeds the operator's liquidity in the asset."""
    sentence = f"This server cannot exchange into {describe_amount(amount, asset)} at the moment; try less or later"
    return InsufficientFunds(sentence, reason="liquidity")


def warn_of_low(work: Work, low: Iterable[AccountRecord]) -> None:
    """Writes an event for each liquidity account that a movement left low."""
    for account in low:
        left = representations.amount(free_balance(account), ASSETS.by_id(work, account.asset_id).asset)
        work.emit("liquidity.low", None, LiquidityEvent(left=left))
