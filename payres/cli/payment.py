"""`payres payment refund`: written by hand because a refund may need an offer of another server."""

import asyncio
from functools import partial

import click

from payres.cli.commands import Group
from payres.cli.options import decimal_of
from payres.cli.session import Session, with_session
from payres.core.protocol.amounts import Offer
from payres.core.protocol.errors import InvalidReceiver
from payres.core.store.connections import is_served
from payres.operator import refunds
from payres.operator.refunds import Refund, send_back


@click.group(cls=Group)
def payment() -> None:
    """ID is the last part of a payment's URL."""


def _refund_line(made: Refund) -> str:
    is_exact = made.asset_code == made.returned_asset_code and made.amount == made.returned
    returned = "" if is_exact or made.state == "sending" else f" as {made.returned_asset_code} {made.returned}"
    state = "" if made.to is None else f", {made.state}"
    why = f": {made.asset_code} {made.sent} was sent; {made.failure}" if made.failure else ""
    return (
        f"{made.created_at}  {made.asset_code} {made.amount} from {made.receiver} to {made.payer or made.to}{returned},"
        f" {made.reference}{state}{why}"
    )


@payment.command(
    example=(
        "payres payment refund 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --amount 5.00 --reference returned-17\n"
        "payres payment refund 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --to https://x.example/ann --reference r-18"
    )
)
@click.argument("id")
@click.option("--amount", metavar="AMOUNT", help="The amount; by default all that is left.")
@click.option("--to", metavar="WALLET_ADDRESS", help="The receiver of money that came from another server.")
@click.option(
    "--reference",
    required=True,
    metavar="TEXT",
    help="Your own name for it; a repetition with the same name changes nothing.",
)
@with_session
def refund(session: Session, id: str, amount: str | None, to: str | None, reference: str) -> None:
    """Send back what an incoming payment received.

    It goes to the wallets here that paid, the last payer first. Money from another server goes to a wallet address,
    which you name with --to: the server, which must be running, sends it, and `payres payment show` has the outcome. No
    more is sent back than was received.
    """
    wanted = refunds.WantedRefund(id.rpartition("/")[2], reference, amount and decimal_of(amount), to)
    offer = None if to is None else asyncio.run(_find_offer(session, wanted))
    made = session.in_steps(partial(send_back, wanted=wanted, offer=offer)).result
    session.show({"refunds": made}, "\n".join(map(_refund_line, made)))


async def _find_offer(session: Session, wanted: refunds.WantedRefund) -> Offer | None:
    from payres.interledger.node import open_quotes  # imported here, because it loads slowly

    session.database()
    session.require_writable()
    try:
        async with open_quotes(session.settings) as quotes:
            return await quotes.offer_for_refund(wanted.to, partial(refunds.plan_elsewhere, wanted=wanted))
    except InvalidReceiver as error:
        if is_served(session.settings.database):
            raise
        sentence = f"{error}; no server is running here, whose keys the other server asks for"
        raise click.ClickException(sentence) from error
