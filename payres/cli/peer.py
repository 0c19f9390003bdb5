"""`payres peer`: Interledger peers, what they may owe, and what was settled with them outside of payres."""

from collections.abc import Sequence
from typing import Any

import click

from payres.admin import peers as endpoints
from payres.admin.requests import NewOutcome
from payres.admin.wire import Peer, ResolvedPacket, UnresolvedPacket
from payres.amounts import MAX_LEDGER, Asset, format_decimal
from payres.cli.commands import Group
from payres.cli.options import WholeNumber, movement_options, secret_option
from payres.cli.session import labelled, lists, reads, warn, writes
from payres.federation.ip_addresses import names_private_host
from payres.operator import assets, peers
from payres.operator.peers import NewPeer, PeerChange
from payres.store.work import Work


@click.group(cls=Group, old_names={"doubts": "unresolved"})
def peer() -> None:
    """A peer is a server that payments go to and come from. What one owes the other is settled outside of payres, by
    bank for example, and recorded with `payres peer deposit` and `payres peer withdraw`.

    Tokens on the command line can be read by others on the machine (`ps`). Files keep them secret.
    """


def _text(peer: Peer) -> str:
    code, in_flight, unresolved = peer.asset_code, peer.in_flight, peer.unresolved
    asset, most = Asset(code, peer.asset_scale), peer.max_packet
    return labelled(
        ("peer", peer.name),
        ("ILP address", peer.ilp_address),
        ("routes", ", ".join(peer.routes) or "(none: nothing is sent to it)"),
        ("URL", peer.url),
        ("asset", f"{code} with scale {peer.asset_scale}"),
        ("balance", peer.standing),
        ("credit limit", f"{peer.credit_limit} {code}; the peer can send {peer.left} {code} more"),
        (
            "in flight",
            f"{in_flight.packets} packets to it with {in_flight.amount} {code};"
            f" {peer.reserved} {code} reserved for packets from it",
        ),
        ("unresolved", f"{unresolved.packets} packets to it with {unresolved.amount} {code} are unresolved"),
        ("max packet", f"{most}, which is {format_decimal(most, asset)} {code}" if most else "(no bound)"),
        ("packets", f"{peer.packets_received} received, {peer.packets_sent} sent"),
        ("repeats answers", "yes" if peer.repeats_answers else "no"),
        ("last error", f"{peer.last_error_at}: {peer.last_error}" if peer.last_error is not None else "(none)"),
        ("created", peer.created_at),
    )


def _packet_line(one: UnresolvedPacket) -> str:
    return f"{one.id}  {one.expired_at}  {one.amount} {one.asset_code}  payment {one.payment} from {one.wallet}"


@peer.command(
    example=(
        "payres peer add first-bank --ilp-address test.first-bank --asset USD --scale 2 \\\n"
        "  --url https://first-bank.example/ilp --outgoing-token-file to-first-bank \\\n"
        "  --incoming-token-file from-first-bank --credit-limit 1000.00 --max-packet 10000"
    )
)
@click.argument("name")
@click.option("--ilp-address", required=True, metavar="ADDRESS", help="The peer's address, such as test.first-bank.")
@click.option("--asset", "asset_code", required=True, metavar="CODE", help="The currency between the two, such as USD.")
@click.option(
    "--scale",
    "asset_scale",
    required=True,
    type=WholeNumber(0, assets.MAX_SCALE),
    help="Its number of decimals: 2 for cents.",
)
@click.option("--url", required=True, metavar="URL", help="Where the peer takes packets (POST).")
@secret_option("outgoing-token", "TOKEN", "What we show the peer.")
@secret_option("incoming-token", "TOKEN", "What the peer shows us.")
@click.option("--max-packet", type=WholeNumber(1, MAX_LEDGER), metavar="N", help="Most in one packet, minor units.")
@click.option(
    "--credit-limit",
    default="0",
    metavar="AMOUNT",
    help="What the peer may owe us. Without it the peer can only receive, or send what it paid before.",
)
@click.option("--route", "routes", multiple=True, metavar="PREFIX", help="More addresses reached through it. Repeat.")
@writes(_text)
def add(work: Work, /, **agreed: Any) -> Peer:
    """Add a peer, from the next packet on.

    Both sides keep the link in one currency. Each shows the other a token: what is outgoing here is incoming there.
    """
    for missing in ("outgoing", "incoming"):
        if agreed[f"{missing}_token"] is None:
            raise click.UsageError(
                f"Give the {missing} token with --{missing}-token-file FILE or --{missing}-token TOKEN"
            )
    added = endpoints.add(work, NewPeer(**agreed))
    _warn_of_private_url(work, agreed["url"])
    return added


@peer.command(example="payres peer change first-bank --credit-limit 2500.00 --route g")
@click.argument("name")
@click.option("--url", metavar="URL", help="Where the peer takes packets now.")
@secret_option("outgoing-token", "TOKEN", "What we show the peer from now on.")
@secret_option("incoming-token", "TOKEN", "What the peer shows us from now on.")
@click.option("--max-packet", type=WholeNumber(0, MAX_LEDGER), metavar="N", help="Most in one packet; 0 for any.")
@click.option("--credit-limit", metavar="AMOUNT", help="What the peer may owe us.")
@click.option("--route", "add_routes", multiple=True, metavar="PREFIX", help="One more route. Repeat.")
@click.option("--no-route", "remove_routes", multiple=True, metavar="PREFIX", help="One route less. Repeat.")
@writes(_text)
def change(work: Work, /, name: str, **changes: Any) -> Peer:
    """Change what was agreed with a peer, from the next packet on.

    What is not named does not change. The asset and the address of a peer cannot be changed: remove the peer and add it
    again.
    """
    if all(value in (None, ()) for value in changes.values()):
        raise click.UsageError("Name what is to change, such as --credit-limit 2500.00")
    changed = endpoints.change(work, name, PeerChange(**changes))
    _warn_of_private_url(work, changes["url"])
    return changed


@peer.command("list", example="payres peer list")
@lists(
    "peers",
    lambda peer: f"{peer.name}  {peer.ilp_address}  {peer.asset_code}: {peer.standing}",
    "There are no peers yet; `payres peer add` adds one",
)
def list_all(work: Work) -> Sequence[Peer]:
    """List all peers with who owes whom."""
    return endpoints.list_all(work).result


@peer.command(example="payres peer show first-bank")
@click.argument("name")
@reads(_text)
def show(work: Work, name: str) -> Peer:
    """Show a peer: who owes whom, its routes, its limits.

    What went wrong last with it is there too. Tokens are never shown.
    """
    return endpoints.show(work, name)


@peer.command(example="payres peer deposit first-bank 100.00")
@click.argument("name")
@movement_options
@writes(_text)
def deposit(work: Work, name: str, amount: str, reference: str | None) -> Peer:
    """Record what the peer paid us outside of payres.

    It then owes us less, or we owe it more. AMOUNT is a decimal in units of the currency.
    """
    peers.deposit(work, name, amount, reference)
    return endpoints.show(work, name)


@peer.command(example="payres peer withdraw first-bank 100.00")
@click.argument("name")
@movement_options
@writes(_text)
def withdraw(work: Work, name: str, amount: str, reference: str | None) -> Peer:
    """Record what we paid the peer outside of payres.

    We then owe it less, or it owes us more, which its credit limit bounds. AMOUNT is a decimal in units of the
    currency.
    """
    peers.withdraw(work, name, amount, reference)
    return endpoints.show(work, name)


@peer.command(example="payres peer unresolved first-bank")
@click.argument("name")
@lists("packets", _packet_line, "No packet to {name} is unresolved")
def unresolved(work: Work, name: str) -> Sequence[UnresolvedPacket]:
    """List the unresolved packets to a peer.

    The peer did not answer, and the receiver's figures do not show whether they arrived. Their payers have the money
    back. `payres peer resolve` records what the peer can show.
    """
    return endpoints.list_unresolved(work, name).result


@peer.command(example="payres peer resolve 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --delivered")
@click.argument("packet")
@click.option("--delivered", is_flag=True, help="It arrived: the peer is owed its amount.")
@click.option("--returned", is_flag=True, help="It did not arrive: nothing is owed.")
@writes(lambda one: f"Packet {one.id} with {one.amount} {one.asset_code} is recorded as {one.outcome}")
def resolve(work: Work, packet: str, delivered: bool, returned: bool) -> ResolvedPacket:
    """Record what became of an unresolved packet.

    PACKET is its id in `payres peer unresolved`. The payer has the money back, so what was delivered is owed to the
    peer out of your liquidity.
    """
    if delivered == returned:
        raise click.UsageError("Say what became of it, with either --delivered or --returned")
    return endpoints.resolve(work, packet, NewOutcome(outcome="delivered" if delivered else "returned"))


@peer.command(example="payres peer remove first-bank")
@click.argument("name")
@writes(lambda peer: f"The peer {peer.name} is removed")
def remove(work: Work, name: str) -> Peer:
    """End the peering with a peer. Settle with it first.

    It is refused while packets are in flight or something is owed. The history stays in the ledger.
    """
    return endpoints.remove(work, name)


def _warn_of_private_url(work: Work, url: str | None) -> None:
    if url is None or work.settings.allow_private_hosts:
        return
    if not url.lower().startswith("https:") or names_private_host(url):
        warn("Packets are sent to https URLs at public addresses only, unless allow_private_hosts is on")
