"""Rules of quotes: terms of a future payment, and for how long they hold. Specification 2.5, 4.7."""

from payres.clock import SECOND
from payres.errors import InvalidRequest
from payres.grants.access import Caller
from payres.payments.liquidity import check_liquidity
from payres.payments.pricing import local_terms
from payres.payments.receivers import open_receiver
from payres.store import retention
from payres.store.quotes import QUOTES, QuoteRecord
from payres.store.wallets import WalletRecord
from payres.store.work import Work
from payres.terms import Offer
from payres.wallet_addresses import active_wallet
from payres.wire import QuoteRequest


def create(work: Work, caller: Caller, asked: QuoteRequest, offer: Offer | None) -> tuple[WalletRecord, QuoteRecord]:
    """A quote, valid until its lifetime is over or the receiver expires; `offer` is what one on another server gets.

    Raises InvalidRequest, InvalidReceiver, InvalidAmount; InsufficientFunds for an exchange beyond the operator's
    liquidity. Specification 4.7.
    """
    check_amounts(asked)
    wallet = active_wallet(work, asked.wallet_address)
    if offer is None:
        receiver = open_receiver(work, asked.receiver, "receiver")
        terms = local_terms(work, wallet, receiver, asked.debit_amount or None, asked.receive_amount or None)
        if receiver.wallet.asset_id != wallet.asset_id:
            check_liquidity(work, receiver.wallet.asset_id, terms.receive)
        offer = Offer(terms, receiver.payment.expires_at)
    latest = work.now + work.settings.effective_quote_lifetime * SECOND
    expires_at = latest if offer.expires_at is None else min(latest, offer.expires_at)
    quote = QuoteRecord(
        id=work.new_id(),
        wallet_address_id=wallet.id,
        client_id=caller.client_id,
        terms=offer.terms,
        created_at=work.now,
        expires_at=expires_at,
        purge_at=expires_at + retention.UNUSED_QUOTE,
    )
    retention.purge(work, retention.QUOTES, work.now)
    QUOTES.insert(work, quote)
    return wallet, quote


def check_amounts(asked: QuoteRequest) -> None:
    """Raises InvalidRequest for a request that fixes both amounts."""
    if asked.debit_amount and asked.receive_amount:
        raise InvalidRequest("Give debitAmount or receiveAmount, not both", field="receiveAmount")
