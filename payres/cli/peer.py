"""`payres peer`: the help of the group, and the commands that are written by hand."""

import click

from payres.cli.commands import Group
from payres.cli.operations import table_text
from payres.cli.session import Session, with_session
from payres.operator import unresolved_packets
from payres.operator.declared.declarations import operation_of
from payres.operator.unresolved_packets import PACKET, UNRESOLVED_PAYMENT, Resolution


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
    rules = unresolved_packets.list_unresolved_payments, unresolved_packets.list_unresolved
    payments, packets = session.read(lambda work: [operation_of(one).run(work, {"name": name}).result for one in rules])
    columns, found = (PACKET.listed, packets) if is_each else (UNRESOLVED_PAYMENT.listed, payments)
    text = table_text(columns, found) if found else f"No packet to {name} is unresolved"
    session.show({"payments": payments, "packets": packets}, text)


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
    outcome: Resolution = "delivered" if delivered else "returned"
    one = session.write(lambda work: unresolved_packets.resolve(work, packet, outcome))
    session.show(one, f"Packet {one.id} with {one.asset_code} {one.amount} is recorded as {outcome}")
