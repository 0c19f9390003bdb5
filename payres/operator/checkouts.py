"""Payments from wallets on other servers that were begun on a payment page, as operators see them."""

from typing import Final

from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.clock import format_time
from payres.core.protocol.visible import visible_url
from payres.core.protocol.wire import Resource
from payres.core.store.payments import IncomingRecord
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.interledger.store.checkouts import State, checkouts_of
from payres.operator.shapes import represent

SENTENCES: Final = {
    "returned": "{payer} has consented, and nothing was created there yet. It is tried again.",
    "made": "{payer} pays by {payment}.",
    "unknown": "the server of {payer} was asked to pay, and it is not known whether it has. It is asked again.",
    "paid": "{payer} has paid.",
    "failed": "{payer} has not paid ({failure}).",
}


class Checkout(Resource, frozen=True, kw_only=True):
    """A payment from a wallet on another server, begun on the payment page, from when the payer has returned.

    In state `returned` that server was not sent the creation of a payment yet, in `made` it was; `payment` is its URL,
    and null as long as it is not known whether it was created. `silent` is the host that did not answer the last
    request."""

    payer: str
    amount: str
    asset_code: str
    state: State
    failure: str | None
    payment: str | None
    silent: str | None
    changed_at: str


def list_checkouts(work: Work, payment: IncomingRecord, limit: int) -> list[Checkout]:
    """The newest of an incoming payment, oldest first."""
    asset = WALLETS.by_id(work, payment.wallet_address_id).asset
    return [
        represent(
            Checkout,
            one,
            amount=format_decimal(one.amount, asset),
            asset_code=asset.code,
            changed_at=format_time(one.changed_at),
        )
        for one in reversed(checkouts_of(work, payment.id, limit))
    ]


def sentence_of(checkout: Checkout) -> str:
    """What became of it."""
    word = "unknown" if checkout.state == "made" and checkout.payment is None else checkout.state
    payer, payment = visible_url(checkout.payer).text, visible_url(checkout.payment or "").text
    said = SENTENCES[word].format(payer=payer, failure=checkout.failure, payment=payment)
    silent = f" {checkout.silent} does not answer." if checkout.silent else ""
    return f"On the payment page, for {checkout.asset_code} {checkout.amount}: {said}{silent}"
