"""Rules of outgoing payments (parts 2.4, 4.3): checked, limited, funded and recorded in one unit, or not at all."""

import msgspec

from payres import ledger
from payres.amounts import MAX_LEDGER, Asset
from payres.errors import InsufficientFunds, InvalidAmount, InvalidQuote, InvalidRequest, NotFound, WrongState
from payres.grants.limits import PaymentTerms, Spent, check_limits, spent_in_window
from payres.identifiers import Identifiers
from payres.payments.elsewhere import Offer, Path, decode_path, encode_path
from payres.payments.incoming import check_countable
from payres.payments.quotes import fixed_send_terms
from payres.payments.receivers import open_receiver
from payres.store import assets, grants, outgoing, quotes
from payres.store.database import Transaction
from payres.store.outgoing import OutgoingRecord
from payres.store.wallets import WalletRecord
from payres.urls import Urls
from payres.wire import Limits, OutgoingPaymentRequest, metadata_text


class Created(msgspec.Struct, frozen=True):
    """A payment just made and what its grant has now spent, the payment included."""

    payment: OutgoingRecord
    spent: Spent


class _Plan(msgspec.Struct, frozen=True):
    """The terms of a payment before it is made; amounts in minor units."""

    quote_id: str | None
    receiver: str
    incoming_payment_id: str | None
    debit: int
    receive: int
    receive_asset: Asset
    fee: int
    path: Path | None = None


def create_outgoing_payment(
    tx: Transaction,
    urls: Urls,
    wallet: WalletRecord,
    client_id: int,
    grant_id: str,
    limits: Limits | None,
    request: OutgoingPaymentRequest,
    identifiers: Identifiers,
    now: int,
    offer: Offer | None = None,
) -> Created:
    """A new payment, its money reserved and its grant's limits taken. The settlement worker sends it.

    `offer` is what the way to a receiver on another server offers, when the request names one and no quote.

    Refuses with 400 `invalid_request`, `invalid_quote`, `invalid_receiver`, `invalid_amount`; 403 `limit_exceeded`,
    `insufficient_funds`; 409 `wrong_state` for a quote used before. Part 4.3.
    """
    plan = _plan(tx, urls, wallet, client_id, request, offer, now)
    terms = PaymentTerms(plan.receiver, plan.debit, plan.receive, plan.receive_asset)
    window = check_limits(tx, grant_id, limits, terms, now)
    payment = OutgoingRecord(
        id=identifiers.resource(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        grant_id=grant_id,
        window_start=window,
        quote_id=plan.quote_id,
        receiver=plan.receiver,
        incoming_payment_id=plan.incoming_payment_id,
        debit=plan.debit,
        receive=plan.receive,
        receive_code=plan.receive_asset.code,
        receive_scale=plan.receive_asset.scale,
        fee=plan.fee,
        sent=0,
        delivered=0,
        state="sending",
        failure=None,
        metadata=metadata_text(request.metadata),
        created_at=now,
        ended_at=None,
        path=_kept_path(plan.path, limits),
    )
    outgoing.insert_outgoing(tx, payment)
    _reserve(tx, wallet, payment, now)
    return Created(payment, _count_spending(tx, payment, grant_id, plan.receive_asset, now))


def require_outgoing(tx: Transaction, payment_id: str) -> OutgoingRecord:
    """The payment with this id; 404 when there is none."""
    payment = outgoing.find_outgoing(tx, payment_id)
    if payment is None:
        raise no_such_payment()
    return payment


def no_such_payment() -> NotFound:
    """The same answer whether it does not exist or is another client's."""
    return NotFound("There is no such outgoing payment, or it is not this client's")


def _kept_path(path: Path | None, limits: Limits | None) -> str | None:
    """The path as the payment keeps it; where the grant bounds what is received, it stops at what was promised."""
    if path is not None and limits is not None and limits.receive_amount:
        path = msgspec.structs.replace(path, sends_all=False)
    return None if path is None else encode_path(path)


def _plan(
    tx: Transaction,
    urls: Urls,
    wallet: WalletRecord,
    client_id: int,
    request: OutgoingPaymentRequest,
    offer: Offer | None,
    now: int,
) -> _Plan:
    direct = (request.incoming_payment, request.debit_amount)
    if request.quote_id and not any(direct):
        return _plan_from_quote(tx, urls, wallet, client_id, request.quote_id, now)
    if not request.quote_id and request.incoming_payment and request.debit_amount:
        if offer is not None:
            return _plan_from_offer(offer)
        receiver = open_receiver(tx, urls, request.incoming_payment, now, "incomingPayment")
        terms = fixed_send_terms(tx, wallet, receiver, request.debit_amount, now)
        _check_movable(terms.debit, terms.receive)
        check_countable(receiver.payment, terms.receive)
        return _Plan(
            quote_id=None,
            receiver=receiver.url,
            incoming_payment_id=receiver.payment.id,
            debit=terms.debit,
            receive=terms.receive,
            receive_asset=receiver.asset,
            fee=terms.fee,
        )
    raise InvalidRequest("Give either quoteId, or incomingPayment together with debitAmount", field="quoteId")


def _plan_from_offer(offer: Offer) -> _Plan:
    _check_movable(offer.debit, offer.receive)
    return _Plan(
        quote_id=None,
        receiver=offer.receiver,
        incoming_payment_id=None,
        debit=offer.debit,
        receive=offer.receive,
        receive_asset=offer.receive_asset,
        fee=offer.fee,
        path=offer.path,
    )


def _plan_from_quote(
    tx: Transaction, urls: Urls, wallet: WalletRecord, client_id: int, quote_url: str, now: int
) -> _Plan:
    quote_id = urls.resource_id("quotes", quote_url)
    quote = quotes.find_quote(tx, quote_id) if quote_id else None
    if quote is None or quote.client_id != client_id or quote.wallet_address_id != wallet.id:
        raise _invalid_quote("quoteId is not a quote of this client for this wallet address")
    if outgoing.quote_used(tx, quote.id):
        raise WrongState("The quote has been used; ask for a new one", field="quoteId")
    if now >= quote.expires_at:
        raise _invalid_quote("The quote has expired; ask for a new one")
    debit, receive = int(quote.debit_value), int(quote.receive_value)
    _check_movable(debit, receive)
    if quote.incoming_payment_id is not None:
        taker = open_receiver(tx, urls, quote.receiver, now, "receiver").payment
        if taker.remaining is not None and receive > taker.remaining:
            raise _invalid_quote("The receiver has been paid meanwhile and takes less than was quoted; quote again")
        check_countable(taker, receive)
    return _Plan(
        quote_id=quote.id,
        receiver=quote.receiver,
        incoming_payment_id=quote.incoming_payment_id,
        debit=debit,
        receive=receive,
        receive_asset=Asset(quote.receive_code, quote.receive_scale),
        fee=int(quote.fee_value),
        path=decode_path(quote.path) if quote.path is not None else None,
    )


def _reserve(tx: Transaction, wallet: WalletRecord, payment: OutgoingRecord, now: int) -> None:
    """Phase one: the sender's money and, across assets, the liquidity that will pay the receiver."""
    try:
        ledger.reserve(tx, wallet.account_id, payment.debit, payment.id, now)
    except ledger.NotEnough as error:
        raise InsufficientFunds(
            f"The wallet does not have the {payment.debit} that the payment needs",
            reason="wallet",
            needed=str(payment.debit),
        ) from error
    asset = assets.find_asset(tx, payment.receive_code, payment.receive_scale)
    if payment.incoming_payment_id is None or asset is None or asset.id == wallet.asset_id:
        return
    try:
        ledger.reserve(tx, ledger.operator_account(tx, asset.id, "liquidity"), payment.receive, payment.id, now)
    except ledger.NotEnough as error:
        raise InsufficientFunds(
            f"This server cannot exchange {payment.receive} into {asset.code} at the moment; try less or later",
            reason="liquidity",
        ) from error


def _count_spending(tx: Transaction, payment: OutgoingRecord, grant_id: str, asset: Asset, now: int) -> Spent:
    """Adds the payment to what its grant has spent in the window, limits or none; returns the sums."""
    before = spent_in_window(tx, grant_id, payment.window_start, asset) or Spent(0, 0, asset)
    if max(before.debit + payment.debit, before.receive + payment.receive) > MAX_LEDGER:
        raise InvalidAmount(f"One grant counts at most {MAX_LEDGER} minor units; ask for a new grant")
    grants.add_spending(
        tx, grant_id, payment.window_start, asset.code, asset.scale, payment.debit, payment.receive, now
    )
    spent = spent_in_window(tx, grant_id, payment.window_start, asset)
    assert spent is not None
    assert spent.debit == before.debit + payment.debit
    _check_spent(tx, payment, grant_id, spent)
    return spent


def _check_spent(tx: Transaction, payment: OutgoingRecord, grant_id: str, spent: Spent) -> None:
    """Holds what the grant has spent in the payment's window against its last payments. Raises LedgerBroken."""
    window, asset = payment.window_start, (payment.receive_code, payment.receive_scale)
    last = outgoing.last_spent(tx, grant_id, ledger.SUMMED)
    are_all = len(last) < ledger.SUMMED
    debits = [debit for its_window, _, _, debit, _ in last if its_window == window]
    receives = [receive for its_window, *its_asset, _, receive in last if (its_window, *its_asset) == (window, *asset)]
    ledger.check_sum(f"the debit of grant {grant_id} in the window from {window}", spent.debit, debits, are_all)
    ledger.check_sum(f"the receive of grant {grant_id} in the window from {window}", spent.receive, receives, are_all)


def _check_movable(debit: int, receive: int) -> None:
    if max(debit, receive) > MAX_LEDGER:
        raise InvalidAmount(f"The ledger moves at most {MAX_LEDGER} minor units at once")


def _invalid_quote(description: str) -> InvalidQuote:
    return InvalidQuote(description, field="quoteId")
