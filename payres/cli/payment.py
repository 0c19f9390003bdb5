"""`payres payment`: payments in both directions, each with its history, and refunds."""

import asyncio
from collections.abc import Sequence
from typing import Any, get_args

import click

from payres.admin import payment_history
from payres.admin import payments as endpoints
from payres.admin.payment_history import PaymentEvent, PaymentHistory
from payres.admin.wire import Payment, Refund
from payres.cli.commands import Group
from payres.cli.options import limit_option, reference_option
from payres.cli.session import Session, labelled, lists, reads, wallet_path, with_session
from payres.errors import InvalidReceiver
from payres.operator.payments import PaymentQuery
from payres.payments import refunds
from payres.store.connections import is_served
from payres.store.payments import Direction, State
from payres.store.rows import PageQuery
from payres.store.work import Work
from payres.terms import Offer


@click.group(cls=Group)
def payment() -> None:
    """ID is the last part of a payment's URL."""


def _line(one: Payment) -> str:
    amount = f"{one.moved} of {one.amount}" if one.amount is not None and one.amount != one.moved else one.moved
    where = f" to {one.receiver}" if one.receiver else ""
    why = f": {one.failure}" if one.failure else ""
    return (
        f"{one.id}  {one.created_at}  {one.direction}  {one.state}  {one.wallet}{where}  {amount} {one.asset_code}{why}"
    )


def _text(history: PaymentHistory) -> str:
    one, quote = history.payment, history.quote
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
    rows += [("refund of", one.refund_of)] if one.refund_of else []
    rows += [("delivered", f"{history.delivered.amount} {history.delivered.asset_code}")] if history.delivered else []
    rows += [("failure", one.failure)] if one.failure else []
    rows += (
        [("grant", f"{history.grant.id}, {history.grant.state}, of {history.grant.client}")] if history.grant else []
    )
    rows += [("quote", f"{quote.id}: {quote.debit.amount} with a fee of {quote.fee.amount}")] if quote else []
    rows += [("paid by", payer) for payer in history.payers]
    rows += [
        ("ledger", f"{entry.created_at}  {entry.amount} {entry.asset_code} from {entry.debit} to {entry.credit}")
        for entry in history.entries
    ]
    rows += [("packet", f"{packet.id}, {packet.state}, {packet.amount} to {packet.peer}") for packet in history.packets]
    rows += [("refund", _refund_line(made)) for made in history.refunds]
    rows += [("event", _event_line(event)) for event in history.events]
    return labelled(*rows)


def _event_line(event: PaymentEvent) -> str:
    sent = "".join(f", {one.state} to {one.webhook} in attempt {one.attempts}" for one in event.deliveries)
    return f"{event.sequence}, {event.timestamp}  {event.type}{sent}"


def _refund_line(made: Refund) -> str:
    is_exact = made.asset_code == made.returned_asset_code and made.amount == made.returned
    returned = "" if is_exact or made.state == "sending" else f" as {made.returned} {made.returned_asset_code}"
    state = "" if made.to is None else f", {made.state}"
    why = f": {made.sent} {made.asset_code} was sent; {made.failure}" if made.failure else ""
    return (
        f"{made.created_at}  {made.amount} {made.asset_code} from {made.receiver} to {made.payer or made.to}{returned},"
        f" {made.reference}{state}{why}"
    )


@payment.command("list", example="payres payment list --wallet alice --direction incoming --state completed")
@click.option("--wallet", metavar="PATH", help="Only of this wallet.")
@click.option("--direction", type=click.Choice(get_args(Direction)), help="Only incoming, or outgoing.")
@click.option("--state", type=click.Choice(get_args(State)), help="Only in this state.")
@click.option("--from", "from_", metavar="TIME", help="Made on this day (UTC), or at this time, or later.")
@click.option("--to", metavar="TIME", help="Made before then.")
@click.option("--counterpart", metavar="WHO", help="Another wallet here, or the beginning of a URL on another server.")
@click.option("--min", metavar="AMOUNT", help="Received or sent at least so much; needs --wallet.")
@click.option("--max", metavar="AMOUNT", help="Received or sent at most so much; needs --wallet.")
@click.option("--reason", metavar="TEXT", help="Failed with this in the reason.")
@limit_option
@lists("payments", _line, "There are no such payments")
def list_all(work: Work, /, wallet: str | None, limit: int, **options: Any) -> Sequence[Payment]:
    """List payments, newest first."""
    given = {name: value for name, value in options.items() if value is not None}
    if wallet is not None:
        given["wallet"] = wallet_path(work.urls, wallet)
    return endpoints.list_page(work, PageQuery(limit), PaymentQuery(**given)).result


@payment.command(example="payres payment show 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("id")
@reads(_text)
def show(work: Work, id: str) -> PaymentHistory:
    """Show a payment with its history.

    What it was granted and quoted, what the ledger moved, which packets were sent, what was sent back, and its events.
    """
    return endpoints.show(work, id.rpartition("/")[2])


@payment.command(
    example=(
        "payres payment refund 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --amount 5.00 --reference returned-17\n"
        "payres payment refund 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --to https://x.example/ann --reference r-18"
    )
)
@click.argument("id")
@click.option("--amount", metavar="AMOUNT", help="So much; all that is left when left out.")
@click.option("--to", metavar="WALLET_ADDRESS", help="Where money that came from another server goes.")
@reference_option(required=True)
@with_session
def refund(session: Session, id: str, amount: str | None, to: str | None, reference: str) -> None:
    """Send back what an incoming payment received.

    It goes to the wallets here that had paid it, the last payer first. What came from another server goes to a wallet
    address, which you name with --to: the server, which must be running, sends it, and `payres payment show` has what
    became of it. Never more goes back than was received.
    """
    wanted = refunds.Wanted(id.rpartition("/")[2], reference, amount, to)
    offer = None if to is None else asyncio.run(_find_offer(session, wanted))
    made = session.write(
        lambda work: [payment_history.refund(work, one) for one in refunds.refund(work, wanted, offer)]
    )
    session.show_list("refunds", made, _refund_line, "Nothing was sent back")


async def _find_offer(session: Session, wanted: refunds.Wanted) -> Offer | None:
    from payres.application import open_quotes  # only here, for it loads much

    session.database()
    session.require_writable()
    try:
        async with open_quotes(session.settings) as quotes:
            return await quotes.offer_for_refund(wanted)
    except InvalidReceiver as error:
        if is_served(session.settings.database):
            raise
        raise click.ClickException(
            f"{error}; no server is running here, whose keys the other server asks for"
        ) from error
