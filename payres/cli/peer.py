"""`payres peer`: the help of the group, and the command that is written by hand."""

import click

from payres.cli.commands import Group
from payres.cli.session import Session, with_session
from payres.operator import unresolved_packets
from payres.operator.unresolved_packets import Outcome


@click.group(cls=Group, old_names={"doubts": "unresolved"})
def peer() -> None:
    """A peer is a server that payments go to and come from. Debts are settled outside of payres, for example by bank,
    and recorded with `payres peer deposit` and `payres peer withdraw`.

    Others on the machine can read tokens on the command line (`ps`). Use files to keep them secret.
    """


@peer.command(example="payres peer resolve 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --delivered")
@click.argument("packet")
@click.option("--delivered", is_flag=True, help="It arrived: the peer is owed its amount.")
@click.option("--returned", is_flag=True, help="It did not arrive: nothing is owed.")
@with_session
def resolve(session: Session, packet: str, delivered: bool, returned: bool) -> None:
    """Record the outcome of an unresolved packet.

    PACKET is its id in `payres peer unresolved`. The payer has the money back, so a delivered packet is owed to the
    peer out of your liquidity.
    """
    if delivered == returned:
        raise click.UsageError("Give the outcome, with either --delivered or --returned")
    outcome: Outcome = "delivered" if delivered else "returned"
    one = session.write(lambda work: unresolved_packets.resolve(work, packet, outcome))
    session.show(one, f"Packet {one.id} with {one.amount} {one.asset_code} is recorded as {outcome}")
