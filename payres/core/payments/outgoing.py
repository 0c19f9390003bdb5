"""Rules of outgoing payments: checked, limited, paid and recorded in one unit, or not at all.

Specification 2.4, 4.3.
"""

import msgspec

from payres.core.grants.access import Caller
from payres.core.grants.spending_limits import Spent, check_limits
from payres.core.payments import ledger
from payres.core.payments.incoming import PAID_MEANWHILE, LocalReceiver, fits, open_receiver
from payres.core.payments.ledger import NotEnough
from payres.core.payments.quotes import local_terms
from payres.core.payments.settlement import emit_payment_event, pay_locally, short_of_liquidity
from payres.core.protocol.amounts import MAX_LEDGER, Offer, Terms, describe_amount
from payres.core.protocol.errors import InsufficientFunds, InvalidAmount, InvalidQuote, InvalidRequest, WrongState
from payres.core.protocol.wire import OutgoingPayment, OutgoingPaymentRequest, metadata_text, value_in
from payres.core.store import grants, quotes
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.representations import amount
from payres.core.store.wallets import WalletRecord, active_wallet
from payres.core.store.work import Work


def create(work: Work, caller: Caller, asked: OutgoingPaymentRequest, offer: Offer | None) -> OutgoingPayment:
    """A new payment, with its grant's spending including it.

    A local receiver gets the money in this unit; for another server it is held, to be sent. `offer` is for a receiver
    on another server, if the request names one instead of a quote.

    Raises InvalidRequest, InvalidQuote, InvalidReceiver, InvalidAmount, LimitExceeded, InsufficientFunds; WrongState if
    the quote was used before. Specification 4.3.
    """
    wallet = active_wallet(work, caller.wallet_address)
    terms, receiver = _terms(work, wallet, caller, asked, offer)
    check_movable(terms)
    limits = caller.limits
    window, before = check_limits(work, caller.grant_id, limits, terms)
    if terms.sends_all and limits is not None and limits.receive_amount:
        # If the grant limits the received amount, sending stops at the quoted amount.
        terms = msgspec.structs.replace(terms, sends_all=False)
    check_funds(work, wallet, terms.debit)
    payment = insert(
        work,
        wallet,
        caller.client_id,
        terms,
        grant_id=caller.grant_id,
        window_start=window,
        quote_id=work.urls.resource_id("quotes", asked.quote_id) if asked.quote_id else None,
        metadata=metadata_text(asked.metadata),
    )
    spent = _count_spending(work, payment, before)
    return msgspec.structs.replace(
        pay_or_hold(work, wallet, payment, receiver),
        grant_spent_debit_amount=amount(spent.debit, wallet.asset),
        grant_spent_receive_amount=amount(spent.receive, spent.receive_asset),
    )


def pay_quote(
    work: Work, wallet: WalletRecord, client_id: int, quote_id: str, metadata: str | None = None
) -> OutgoingRecord:
    """Pays a quote for the wallet's owner, who needs no grant.

    Raises InvalidQuote, InvalidReceiver, InvalidAmount, InsufficientFunds; WrongState if the quote was used before.
    """
    terms, receiver = _quoted_terms(work, wallet, client_id, quote_id)
    check_movable(terms)
    check_funds(work, wallet, terms.debit)
    payment = insert(work, wallet, client_id, terms, quote_id=quote_id, metadata=metadata)
    pay_or_hold(work, wallet, payment, receiver)
    return payment


def checked_payer(work: Work, caller: Caller, asked: OutgoingPaymentRequest) -> WalletRecord:
    """The wallet that is to pay `debit_amount` to a receiver on another server, if its balance and the grant suffice.

    Checked before that server is asked, to reject hopeless payments early. The received amount is only known to be at
    least one unit, in the asset of the grant's limit if it has one. Raises LimitExceeded, InsufficientFunds,
    InvalidAmount.
    """
    wallet, limits = active_wallet(work, caller.wallet_address), caller.limits
    assert asked.incoming_payment
    assert asked.debit_amount
    least = Terms(
        receiver=asked.incoming_payment,
        incoming_payment_id=None,
        debit=value_in(asked.debit_amount, wallet.asset, "debitAmount"),
        fee=0,
        receive=1,
        asset=limits.receive_amount.asset if limits and limits.receive_amount else wallet.asset,
    )
    check_movable(least)
    check_limits(work, caller.grant_id, limits, least)
    check_funds(work, wallet, least.debit)
    return wallet


def insert(
    work: Work,
    wallet: WalletRecord,
    client_id: int,
    terms: Terms,
    grant_id: str | None = None,
    window_start: int = 0,
    quote_id: str | None = None,
    metadata: str | None = None,
) -> OutgoingRecord:
    """Inserts a payment for `pay_or_hold`: completed for a local receiver, `sending` for a remote one."""
    is_local = terms.incoming_payment_id is not None
    payment = OutgoingRecord(
        id=work.new_id(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        grant_id=grant_id,
        window_start=window_start,
        quote_id=quote_id,
        terms=terms,
        sent=terms.debit if is_local else 0,
        delivered=terms.receive if is_local else 0,
        state="completed" if is_local else "sending",
        failure=None,
        metadata=metadata,
        created_at=work.now,
        ended_at=work.now if is_local else None,
    )
    OUTGOING.insert(work, payment)
    return payment


def pay_or_hold(
    work: Work, wallet: WalletRecord, payment: OutgoingRecord, receiver: LocalReceiver | None
) -> OutgoingPayment:
    """Moves the money of a payment just inserted to the local receiver, or holds it; writes the events.

    Raises InsufficientFunds for lack of liquidity, InvalidAmount.
    """
    terms = payment.terms
    try:
        if receiver is not None:
            pay_locally(work, wallet, payment, receiver.payment, receiver.wallet)
        else:
            ledger.hold(work, wallet.account_id, terms.debit, outgoing_payment_id=payment.id)
    except NotEnough as lack:  # of liquidity
        raise short_of_liquidity(terms.receive, terms.asset) from lack
    if receiver is None:
        return emit_payment_event(work, wallet, payment, "outgoing_payment.created")
    return emit_payment_event(work, wallet, payment, "outgoing_payment.created", "outgoing_payment.completed")


def _terms(
    work: Work, wallet: WalletRecord, caller: Caller, asked: OutgoingPaymentRequest, offer: Offer | None
) -> tuple[Terms, LocalReceiver | None]:
    """The terms of the payment, and the receiver if it is local."""
    if asked.quote_id and not (asked.incoming_payment or asked.debit_amount):
        quote_id = work.urls.resource_id("quotes", asked.quote_id)
        return _quoted_terms(work, wallet, caller.client_id, quote_id)
    if asked.quote_id or not (asked.incoming_payment and asked.debit_amount):
        raise InvalidRequest("Give either quoteId, or incomingPayment together with debitAmount", field="quoteId")
    if offer is not None:
        return offer.terms, None
    receiver = open_receiver(work, asked.incoming_payment, "incomingPayment")
    return local_terms(work, wallet, receiver, asked.debit_amount, None), receiver


def _quoted_terms(
    work: Work, wallet: WalletRecord, client_id: int, quote_id: str | None
) -> tuple[Terms, LocalReceiver | None]:
    quote, is_used = (quotes.find_quote_and_use(work, quote_id) if quote_id else None) or (None, False)
    if quote is None or quote.client_id != client_id or quote.wallet_address_id != wallet.id:
        raise InvalidQuote("quoteId is not a quote of this client for this wallet address", field="quoteId")
    if is_used:
        raise WrongState("The quote has been used; ask for a new one", field="quoteId")
    if not quote.lasts_at(work.now):
        raise InvalidQuote("The quote has expired; ask for a new one", field="quoteId")
    if quote.terms.incoming_payment_id is None:
        return quote.terms, None
    receiver = open_receiver(work, quote.terms.receiver, "receiver")
    if not fits(receiver.payment.remaining, quote.terms.receive):
        raise InvalidQuote(PAID_MEANWHILE, field="quoteId")
    return quote.terms, receiver


def _count_spending(work: Work, payment: OutgoingRecord, before: Spent) -> Spent:
    """Adds the payment to its grant's spending in the window, even without limits. Returns the sums."""
    grant_id, window, terms, asset = payment.grant_id, payment.window_start, payment.terms, payment.terms.asset
    assert grant_id is not None
    spent = Spent(before.debit + terms.debit, before.receive + terms.receive, asset)
    if max(spent.debit, spent.receive) > MAX_LEDGER:
        raise InvalidAmount(f"One grant counts at most {MAX_LEDGER} minor units; ask for a new grant")
    grants.add_spending(work, grant_id, window, asset, terms.debit, terms.receive, work.now)
    return spent


def check_movable(terms: Terms) -> None:
    """Raises InvalidAmount for amounts beyond the range of the ledger."""
    if max(terms.debit, terms.receive) > MAX_LEDGER:
        raise InvalidAmount(f"The ledger moves at most {MAX_LEDGER} minor units at once")


def check_funds(work: Work, wallet: WalletRecord, debit: int) -> None:
    """Raises InsufficientFunds. Called before any write, so that an error does not affect other units of the batch."""
    try:
        ledger.check_free(work, wallet.account_id, debit)
    except NotEnough as lack:
        sentence = f"The wallet does not have the {describe_amount(debit, wallet.asset)} that the payment needs"
        raise InsufficientFunds(sentence, reason="wallet", needed=str(debit)) from lack
