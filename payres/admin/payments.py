"""Payments in both directions, each with its history, and refunds."""

from functools import partial

from payres.admin import payment_history
from payres.admin.call import Call
from payres.admin.payment_history import PaymentHistory
from payres.admin.requests import NewRefund
from payres.admin.wire import Payment, Refund
from payres.operator import payments
from payres.operator.operations import List
from payres.operator.payments import PaymentQuery
from payres.payments.refunds import Wanted, refund
from payres.representations import page_of
from payres.store.payments import page_of_payments
from payres.store.rows import PageQuery
from payres.store.work import Work
from payres.wire import Page


def list_page(work: Work, page: PageQuery, query: PaymentQuery) -> Page[Payment]:
    """List payments, incoming and outgoing, of all wallets or of one."""
    found = page_of_payments(work, payments.payment_filter(work, query), page, work.now)
    return page_of(found, partial(payment_history.payment, work))


def show(work: Work, id: str) -> PaymentHistory:
    """Read a payment with its history: grant, quote, ledger entries, packets, refunds, events."""
    return payment_history.history(work, payments.require_payment(work, id))


async def send_back(call: Call, id: str, body: NewRefund) -> List[Refund]:
    """Send back what an incoming payment received: to the wallets here that paid, or to a wallet address."""
    wanted = Wanted(id, body.reference, body.amount, body.to)
    offer = await call.context.remote_quotes.offer_for_refund(wanted)
    made = await call.write(lambda work: [payment_history.refund(work, one) for one in refund(work, wanted, offer)])
    call.context.remote_payments.wake()
    return List(result=made)
