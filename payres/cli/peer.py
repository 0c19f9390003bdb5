"""`payres peer`: Interledger peers, what they may owe, and what was settled with them outside of payres."""

from collections.abc import Callable
from typing import Any

import click

from payres.admin import representations
from payres.admin.wire import Peer
from payres.amounts import MAX_LEDGER, Asset, format_decimal
from payres.cli.groups import Group
from payres.cli.options import reference_option, secret_option
from payres.cli.session import Session, labelled, with_session
from payres.operator import assets, movements, peers, unresolved_packets
from payres.operator.peers import NewPeer, PeerChange
from payres.store import assets as asset_store
from payres.store import peers as peer_store
from payres.store.peers import PeerRecord
from payres.store.work import Work


@click.group(cls=Group)
def peer() -> None:
    """A peer is a server that payments go to and come from. What one owes the other is settled outside of payres, by
    bank for example, and recorded with `payres peer deposit` and `payres peer withdraw`.

    Tokens on the command line can be read by others on the machine (`ps`). Files keep them secret.
    """


@peer.command()
@click.argument("name")
@click.option("--ilp-address", required=True, metavar="ADDRESS", help="The peer's address, such as test.first-bank.")
@click.option("--asset", "asset_code", required=True, metavar="CODE", help="The currency between the two, such as USD.")
@click.option(
    "--scale", "asset_scale", required=True, type=click.IntRange(0, 255), help="Its number of decimals: 2 for cents."
)
@click.option("--url", required=True, metavar="URL", help="Where the peer takes packets (POST).")
@secret_option("outgoing-token", "TOKEN", "What we show the peer.")
@secret_option("incoming-token", "TOKEN", "What the peer shows us.")
@click.option("--max-packet", type=click.IntRange(1, MAX_LEDGER), metavar="N", help="Most in one packet, minor units.")
@click.option(
    "--credit-limit",
    default="0",
    metavar="AMOUNT",
    help="What the peer may owe us. Without it the peer can only receive, or send what it paid before.",
)
@click.option("--route", "routes", multiple=True, metavar="PREFIX", help="More addresses reached through it. Repeat.")
@with_session
def add(session: Session, /, credit_limit: str, **agreed: Any) -> None:
    """Add a peer, from the next packet on.

    Both sides keep the link in one currency. Each shows the other a token: what is outgoing here is incoming there.

    \b
    Example: payres peer add first-bank --ilp-address test.first-bank --asset USD --scale 2 \\
               --url https://first-bank.example/ilp --outgoing-token-file to-first-bank \\
               --incoming-token-file from-first-bank --credit-limit 1000.00 --max-packet 10000
    """
    for missing in ("outgoing", "incoming"):
        if agreed[f"{missing}_token"] is None:
            raise click.UsageError(
                f"Give the {missing} token with --{missing}-token-file FILE or --{missing}-token TOKEN"
            )

    def unit(work: Work) -> PeerRecord:
        session.warn(assets.other_scale_warning(work, agreed["asset_code"], agreed["asset_scale"]))
        asset = assets.open_asset(work, agreed["asset_code"], agreed["asset_scale"])
        limit = movements.require_amount(credit_limit, asset, least=0)
        return peers.add_peer(work, NewPeer(credit_limit=limit, **agreed))

    _change(session, agreed["name"], unit)
    _warn_of_plain_http(session, agreed["url"])


@peer.command()
@click.argument("name")
@click.option("--url", metavar="URL", help="Where the peer takes packets now.")
@secret_option("outgoing-token", "TOKEN", "What we show the peer from now on.")
@secret_option("incoming-token", "TOKEN", "What the peer shows us from now on.")
@click.option("--max-packet", type=click.IntRange(0, MAX_LEDGER), metavar="N", help="Most in one packet; 0 for any.")
@click.option("--credit-limit", metavar="AMOUNT", help="What the peer may owe us.")
@click.option("--route", "add_routes", multiple=True, metavar="PREFIX", help="One more route. Repeat.")
@click.option("--no-route", "remove_routes", multiple=True, metavar="PREFIX", help="One route less. Repeat.")
@with_session
def change(session: Session, /, name: str, credit_limit: str | None, **changes: Any) -> None:
    """Change what was agreed with a peer, from the next packet on.

    What is not named does not change. The asset and the address of a peer cannot be changed: remove the peer and add it
    again.

    \b
    Example: payres peer change first-bank --credit-limit 2500.00 --route g
    """
    if credit_limit is None and all(value in (None, ()) for value in changes.values()):
        raise click.UsageError("Name what is to change, such as --credit-limit 2500.00")

    def unit(work: Work) -> PeerRecord:
        asset = asset_store.asset_by_id(work, peers.require_peer(work, name).asset_id)
        limit = None if credit_limit is None else movements.require_amount(credit_limit, asset, least=0)
        return peers.change_peer(work, name, PeerChange(credit_limit=limit, **changes))

    _change(session, name, unit)
    _warn_of_plain_http(session, changes["url"])


@peer.command("list")
@with_session
def list_all(session: Session) -> None:
    """List all peers with who owes whom.

    \b
    Example: payres peer list
    """
    found = session.read(lambda work: [representations.peer(work, record) for record in peer_store.list_peers(work)])
    session.show_list(
        "peers",
        found,
        lambda peer: f"{peer.name}  {peer.ilp_address}  {peer.asset_code}: {peer.standing}",
        "There are no peers yet; `payres peer add` adds one",
    )


@peer.command()
@click.argument("name")
@with_session
def show(session: Session, name: str) -> None:
    """Show a peer: who owes whom, its routes, its limits.

    What went wrong last with it is there too. Tokens are never shown.

    \b
    Example: payres peer show first-bank
    """
    found = session.read(lambda work: representations.peer(work, peers.require_peer(work, name)))
    session.show(found, _text(found))


@peer.command()
@click.argument("name")
@click.argument("amount")
@reference_option()
@with_session
def deposit(session: Session, name: str, amount: str, reference: str | None) -> None:
    """Record what the peer paid us outside of payres.

    It then owes us less, or we owe it more. AMOUNT is a decimal in units of the currency.

    \b
    Example: payres peer deposit first-bank 100.00
    """
    _change(session, name, lambda work: peers.deposit(work, name, amount, reference))


@peer.command()
@click.argument("name")
@click.argument("amount")
@reference_option()
@with_session
def withdraw(session: Session, name: str, amount: str, reference: str | None) -> None:
    """Record what we paid the peer outside of payres.

    We then owe it less, or it owes us more, which its credit limit bounds. AMOUNT is a decimal in units of the
    currency.

    \b
    Example: payres peer withdraw first-bank 100.00
    """
    _change(session, name, lambda work: peers.withdraw(work, name, amount, reference))


@peer.command()
@click.argument("name")
@with_session
def doubts(session: Session, name: str) -> None:
    """List packets to a peer whose outcome is unknown.

    The peer did not answer, and the receiver's figures do not show whether they arrived. Their payers have the money
    back. `payres peer resolve` records what the peer can show.

    \b
    Example: payres peer doubts first-bank
    """
    found = session.read(
        lambda work: list(map(representations.unresolved_packet, unresolved_packets.list_unresolved(work, name)))
    )
    session.show_list(
        "packets",
        found,
        lambda one: (
            f"{one.id}  {one.expired_at}  {one.amount} {one.asset_code}  payment {one.payment} from {one.wallet}"
        ),
        f"No packet to {name} has an unknown outcome",
    )


@peer.command()
@click.argument("packet")
@click.option("--delivered", is_flag=True, help="It arrived: the peer is owed its amount.")
@click.option("--returned", is_flag=True, help="It did not arrive: nothing is owed.")
@with_session
def resolve(session: Session, packet: str, delivered: bool, returned: bool) -> None:
    """Record what became of a packet of unknown outcome.

    PACKET is its id in `payres peer doubts`. The payer has the money back, so what was delivered is owed to the peer
    out of your liquidity.

    \b
    Example: payres peer resolve 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --delivered
    """
    if delivered == returned:
        raise click.UsageError("Say what became of it, with either --delivered or --returned")
    resolved = session.write(
        lambda work: representations.resolved_packet(
            unresolved_packets.resolve(work, packet, delivered=delivered), delivered=delivered
        )
    )
    session.show(
        resolved, f"Packet {packet} with {resolved.amount} {resolved.asset_code} is recorded as {resolved.outcome}"
    )


@peer.command()
@click.argument("name")
@with_session
def remove(session: Session, name: str) -> None:
    """End the peering with a peer. Settle with it first.

    It is refused while packets are in flight or something is owed. The history stays in the ledger.

    \b
    Example: payres peer remove first-bank
    """

    def unit(work: Work) -> Peer:
        shown = representations.peer(work, peers.require_peer(work, name))
        peers.remove_peer(work, name)
        return shown

    session.show(session.write(unit), f"The peer {name} is removed")


def _change(session: Session, name: str, unit: Callable[[Work], object]) -> None:
    """Runs the unit and prints the peer as it is then."""

    def changed(work: Work) -> Peer:
        unit(work)
        return representations.peer(work, peers.require_peer(work, name))

    shown = session.write(changed)
    session.show(shown, _text(shown))


def _text(peer: Peer) -> str:
    code, in_flight, unknown = peer.asset_code, peer.in_flight, peer.in_doubt
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
        ("unresolved", f"{unknown.packets} packets to it with {unknown.amount} {code} have an unknown outcome"),
        ("max packet", f"{most}, which is {format_decimal(most, asset)} {code}" if most else "(no bound)"),
        ("packets", f"{peer.packets_received} received, {peer.packets_sent} sent"),
        ("repeats answers", "yes" if peer.repeats_answers else "no"),
        ("last error", f"{peer.last_error_at}: {peer.last_error}" if peer.last_error is not None else "(none)"),
        ("created", peer.created_at),
    )


def _warn_of_plain_http(session: Session, url: str | None) -> None:
    if url is not None and url.lower().startswith("http:") and not session.settings.allow_private_hosts:
        session.warn("Packets are sent to https URLs at public addresses only, unless allow_private_hosts is on")
