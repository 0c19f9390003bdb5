"""`payres payment refund`, which may need an offer of another server, and `payres peer unresolved` and `resolve`."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from payres.cli import Group
from payres.cli.operations import table_text
from payres.cli.session import Session, with_session
from payres.core.protocol.errors import InvalidReceiver
from payres.core.protocol.terms import Offer
from payres.core.store.connections import is_served
from payres.core.store.work import Work
from payres.operator import refunds, unresolved_packets
from payres.operator.declarations import operation_of
from payres.operator.payment_history import Refund, send_back
from payres.operator.unresolved_packets import PACKET, Outcome, list_unresolved
from payres.operator.unresolved_payments import UNRESOLVED_PAYMENT, list_unresolved_payments


@click.group(cls=Group)
def payment() -> None:
    """ID is the last part of a payment's URL."""


def _refund_line(made: Refund) -> str:
    is_exact = made.asset_code == made.returned_asset_code and made.amount == made.returned
    returned = "" if is_exact or made.state == "sending" else f" as {made.returned} {made.returned_asset_code}"
    state = "" if made.to is None else f", {made.state}"
    why = f": {made.sent} {made.asset_code} was sent; {made.failure}" if made.failure else ""
    return (
        f"{made.created_at}  {made.amount} {made.asset_code} from {made.receiver} to {made.payer or made.to}{returned},"
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
    wanted = refunds.Wanted(id.rpartition("/")[2], reference, amount, to)
    offer = None if to is None else asyncio.run(_find_offer(session, wanted))
    made = session.in_steps(partial(send_back, wanted=wanted, offer=offer)).result
    session.show({"refunds": made}, "\n".join(map(_refund_line, made)))


async def _find_offer(session: Session, wanted: refunds.Wanted) -> Offer | None:
    from payres.interledger.node import open_quotes  # imported here, because it loads slowly

    session.database()
    session.require_writable()
    try:
        async with open_quotes(session.settings) as quotes:
            return await quotes.offer_for_refund(wanted.to, partial(refunds.plan_elsewhere, wanted=wanted))
    except InvalidReceiver as error:
        if is_served(session.settings.database):
            raise
        raise click.ClickException(
            f"{error}; no server is running here, whose keys the other server asks for"
        ) from error


@click.group(cls=Group, old_names={"doubts": "unresolved"})
def peer() -> None:
    """A peer is a server that payments go to and come from. Debts are settled outside of payres, for example by bank,
    and recorded with `payres peer deposit` and `payres peer withdraw`.

    Others on the machine can read tokens on the command line (`ps`). Use files to keep them secret.
    """


@peer.command(example="payres peer unresolved first-bank\npayres peer unresolved first-bank --packets")
@click.argument("name")
@click.option("--packets", "is_each", is_flag=True, help="List each packet, with its id for `payres peer resolve`.")
@with_session
def unresolved(session: Session, name: str, is_each: bool) -> None:
    """List the payments with unresolved packets of a peer.

    Each has the figures to compare with the peer's operator. The peer did not answer packets of our payments, and the
    receiver's balance does not show whether they arrived. Their payers have the money back. `payres peer resolve`
    records what the peer can prove.

    Packets from the peer are those accepted in the last 5 seconds before the server was killed, within the last 30
    days. A peer that does not repeat requests may have got no answer, and send the money again: compare the balances.

    With --json, both lists are printed: payments and packets.
    """
    payments, packets = session.read(partial(_unresolved, name=name))
    columns, found = (PACKET.listed, packets) if is_each else (UNRESOLVED_PAYMENT.listed, payments)
    text = table_text(columns, found) if found else f"No packet to {name} is unresolved"
    session.show({"payments": payments, "packets": packets}, text)


def _unresolved(work: Work, name: str) -> Sequence[Sequence[Any]]:
    rules = list_unresolved_payments, list_unresolved
    return [operation_of(rule).run(work, {"name": name}).result for rule in rules]


@peer.command(example="payres peer resolve 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --delivered")
@click.argument("packet")
@click.option("--delivered", is_flag=True, help="It arrived: the peer is owed its amount.")
@click.option("--returned", is_flag=True, help="It did not arrive: nothing is owed.")
@with_session
def resolve(session: Session, packet: str, delivered: bool, returned: bool) -> None:
    """Record the outcome of an unresolved packet.

    PACKET is its id in `payres peer unresolved --packets`. The payer has the money back, so a delivered packet is owed
    to the peer out of your liquidity.
    """
    if delivered == returned:
        raise click.UsageError("Give the outcome, with either --delivered or --returned")
    outcome: Outcome = "delivered" if delivered else "returned"
    one = session.write(lambda work: unresolved_packets.resolve(work, packet, outcome))
    session.show(one, f"Packet {one.id} with {one.amount} {one.asset_code} is recorded as {outcome}")
