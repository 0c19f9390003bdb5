"""`payres payment`: payments in both directions, each with its story, and refunds."""

from typing import Any, get_args

import click

from payres.admin import stories
from payres.admin.stories import PaymentEvent, PaymentStory
from payres.admin.wire import Payment, Refund
from payres.cli.groups import Group
from payres.cli.options import limit_option, reference_option
from payres.cli.session import Session, labelled, with_session
from payres.operator import payments, refunds
from payres.operator.payments import Wanted
from payres.store.pages import PageQuery
from payres.store.payments import Direction, State, page_of_payments
from payres.store.work import Work


@click.group(cls=Group)
def payment() -> None:
    """ID is the last part of a payment's URL."""


@payment.command("list", example="payres payment list --wallet alice --direction incoming --state completed")
@click.option("--wallet", metavar="PATH", help="Only of this wallet.")
@click.option("--direction", type=click.Choice(get_args(Direction)), help="Only incoming, or outgoing.")
@click.option("--state", type=click.Choice(get_args(State)), help="Only in this state.")
@click.option("--from", "created_from", metavar="TIME", help="Made on this day (UTC), or at this time, or later.")
@click.option("--to", "created_until", metavar="TIME", help="Made before then.")
@click.option("--counterpart", metavar="WHO", help="Another wallet here, or the beginning of a URL on another server.")
@click.option("--min", "least", metavar="AMOUNT", help="Received or sent at least so much; needs --wallet.")
@click.option("--max", "most", metavar="AMOUNT", help="Received or sent at most so much; needs --wallet.")
@click.option("--reason", metavar="TEXT", help="Failed with this in the reason.")
@limit_option
@with_session
def list_all(session: Session, /, wallet: str | None, limit: int, **options: Any) -> None:
    """List payments, newest first."""

    def unit(work: Work) -> list[Payment]:
        path = None if wallet is None else session.wallet_path(wallet)
        wanted = payments.payment_filter(work, Wanted(wallet=path, **options))
        records, _ = page_of_payments(work, wanted, PageQuery(limit), work.now)
        return [stories.payment(work, record) for record in records]

    session.show_list("payments", session.read(unit), _line, "There are no such payments")


@payment.command(example="payres payment show 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("id")
@with_session
def show(session: Session, id: str) -> None:
    """Show a payment with its story.

    What it was granted and quoted, what the ledger moved, which packets were sent, what was sent back, and its events.
    """
    found = session.read(lambda work: stories.story(work, payments.require_payment(work, id.rpartition("/")[2])))
    session.show(found, _text(found))


@payment.command(
    example="payres payment refund 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --amount 5.00 --reference returned-17"
)
@click.argument("id")
@click.option("--amount", metavar="AMOUNT", help="So much; all that is left when left out.")
@reference_option(required=True)
@with_session
def refund(session: Session, id: str, amount: str | None, reference: str) -> None:
    """Send back what an incoming payment received.

    It goes to the wallets here that had paid it, the last payer first. Never more goes back than was received.
    """
    made = session.write(
        lambda work: [
            stories.refund(work, one) for one in refunds.refund(work, id.rpartition("/")[2], reference, amount)
        ]
    )
    session.show_list("refunds", made, _refund_line, "Nothing was sent back")


def _line(one: Payment) -> str:
    amount = f"{one.moved} of {one.amount}" if one.amount is not None and one.amount != one.moved else one.moved
    where = f" to {one.receiver}" if one.receiver else ""
    why = f": {one.failure}" if one.failure else ""
    return (
        f"{one.id}  {one.created_at}  {one.direction}  {one.state}  {one.wallet}{where}  {amount} {one.asset_code}{why}"
    )


def _text(story: PaymentStory) -> str:
    one, quote = story.payment, story.quote
    rows = [
        ("payment", f"{one.id}, {one.direction}, {one.state}"),
        ("wallet", one.wallet_address),
        ("client", one.client),
        ("amount", f"{one.amount} {one.asset_code}" if one.amount is not None else "(any)"),
        ("received" if one.direction == "incoming" else "sent", f"{one.moved} {one.asset_code}"),
        ("created", one.created_at),
    ]
    rows += [("ended", one.ended_at)] if one.ended_at else []
    rows += [("receiver", one.receiver)] if one.receiver else []
    rows += [("delivered", f"{story.delivered.amount} {story.delivered.asset_code}")] if story.delivered else []
    rows += [("failure", one.failure)] if one.failure else []
    rows += [("grant", f"{story.grant.id}, {story.grant.state}, of {story.grant.client}")] if story.grant else []
    rows += [("quote", f"{quote.id}: {quote.debit.amount} with a fee of {quote.fee.amount}")] if quote else []
    rows += [("paid by", payer) for payer in story.payers]
    rows += [
        ("ledger", f"{entry.created_at}  {entry.amount} {entry.asset_code} from {entry.debit} to {entry.credit}")
        for entry in story.entries
    ]
    rows += [("packet", f"{packet.id}, {packet.state}, {packet.amount} to {packet.peer}") for packet in story.packets]
    rows += [("refund", _refund_line(made)) for made in story.refunds]
    rows += [("event", _event_line(event)) for event in story.events]
    return labelled(*rows)


def _event_line(event: PaymentEvent) -> str:
    sent = "".join(f", {one.state} to {one.webhook} in attempt {one.attempts}" for one in event.deliveries)
    return f"{event.sequence}, {event.timestamp}  {event.type}{sent}"


def _refund_line(made: Refund) -> str:
    returned = "" if made.asset_code == made.returned_asset_code else f" as {made.returned} {made.returned_asset_code}"
    return (
        f"{made.created_at}  {made.amount} {made.asset_code} from {made.receiver} to {made.payer}{returned},"
        f" {made.reference}"
    )
