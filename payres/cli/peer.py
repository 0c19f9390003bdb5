"""`payres peer`: Interledger peers, what they may owe, and what was settled with them elsewhere."""

from collections.abc import Sequence

import click

from payres import ledger
from payres.amounts import MAX_LEDGER, Asset, format_decimal
from payres.cli.secret_files import SecretFile, read_secret
from payres.cli.session import Resource, Session, with_session
from payres.clock import format_time
from payres.operator import assets, movements, peers
from payres.operator.peers import NewPeer, PeerChange
from payres.store import accounts, packets
from payres.store import assets as asset_store
from payres.store import peers as peer_store
from payres.store.peers import PeerRecord
from payres.store.work import Work


@click.group()
def peer() -> None:
    """Connect to other Interledger servers, and settle with them.

    A peer is a server that payments go to and come from. What it owes us and we owe it is settled elsewhere, by bank
    say, and booked with `payres peer deposit` and `payres peer withdraw`.

    Tokens on the command line can be read by others on the machine (`ps`). Files keep them secret.
    """


@peer.command()
@click.argument("name")
@click.option("--ilp-address", required=True, metavar="ADDRESS", help="The peer's address, such as test.first-bank.")
@click.option("--asset", required=True, metavar="CODE", help="The currency between the two, such as USD.")
@click.option("--scale", required=True, type=click.IntRange(0, 255), help="Its number of decimals: 2 for cents.")
@click.option("--url", required=True, metavar="URL", help="Where the peer takes packets (POST).")
@click.option("--outgoing-token", metavar="TOKEN", help="What we show the peer.")
@click.option("--outgoing-token-file", type=click.File("rb"), metavar="FILE", help="The same from a file, - for stdin.")
@click.option("--incoming-token", metavar="TOKEN", help="What the peer shows us.")
@click.option("--incoming-token-file", type=click.File("rb"), metavar="FILE", help="The same from a file, - for stdin.")
@click.option("--max-packet", type=click.IntRange(1, MAX_LEDGER), metavar="N", help="Most in one packet, minor units.")
@click.option(
    "--credit-limit",
    default="0",
    metavar="AMOUNT",
    help="What the peer may owe us. Without it the peer can only receive, or send what it paid before.",
)
@click.option("--route", "routes", multiple=True, metavar="PREFIX", help="More addresses reached through it. Repeat.")
@with_session
def add(
    session: Session,
    name: str,
    ilp_address: str,
    asset: str,
    scale: int,
    url: str,
    outgoing_token: str | None,
    outgoing_token_file: SecretFile,
    incoming_token: str | None,
    incoming_token_file: SecretFile,
    max_packet: int | None,
    credit_limit: str,
    routes: Sequence[str],
) -> None:
    """Add a peer. It holds for the next packet.

    Both sides keep the link in one currency. Each shows the other a token: what is outgoing here is incoming there.

    \b
    Example: payres peer add first-bank --ilp-address test.first-bank --asset USD --scale 2 \\
               --url https://first-bank.example/ilp --outgoing-token-file to-first-bank \\
               --incoming-token-file from-first-bank --credit-limit 1000.00 --max-packet 10000
    """
    outgoing, incoming = _read_tokens(outgoing_token, outgoing_token_file, incoming_token, incoming_token_file)
    if outgoing is None or incoming is None:
        missing = "outgoing" if outgoing is None else "incoming"
        raise click.UsageError(f"Give the {missing} token with --{missing}-token-file FILE or --{missing}-token TOKEN")

    def unit(work: Work) -> Resource:
        record = assets.open_asset(work, asset, scale)
        new = NewPeer(
            name=name,
            ilp_address=ilp_address,
            asset_code=asset,
            asset_scale=scale,
            url=url,
            outgoing_token=outgoing,
            incoming_token=incoming,
            max_packet=max_packet,
            credit_limit=movements.require_amount(credit_limit, record, least=0),
            routes=routes,
        )
        return describe(work, peers.add_peer(work, new))

    _show(session, session.write(unit, create=True))
    _mind_plain_http(session, url)


@peer.command()
@click.argument("name")
@click.option("--url", metavar="URL", help="Where the peer takes packets now.")
@click.option("--outgoing-token", metavar="TOKEN", help="What we show the peer from now on.")
@click.option("--outgoing-token-file", type=click.File("rb"), metavar="FILE", help="The same from a file, - for stdin.")
@click.option("--incoming-token", metavar="TOKEN", help="What the peer shows us from now on.")
@click.option("--incoming-token-file", type=click.File("rb"), metavar="FILE", help="The same from a file, - for stdin.")
@click.option("--max-packet", type=click.IntRange(0, MAX_LEDGER), metavar="N", help="Most in one packet; 0 for any.")
@click.option("--credit-limit", metavar="AMOUNT", help="What the peer may owe us.")
@click.option("--route", "add_routes", multiple=True, metavar="PREFIX", help="One more route. Repeat.")
@click.option("--no-route", "remove_routes", multiple=True, metavar="PREFIX", help="One route less. Repeat.")
@with_session
def change(
    session: Session,
    name: str,
    url: str | None,
    outgoing_token: str | None,
    outgoing_token_file: SecretFile,
    incoming_token: str | None,
    incoming_token_file: SecretFile,
    max_packet: int | None,
    credit_limit: str | None,
    add_routes: Sequence[str],
    remove_routes: Sequence[str],
) -> None:
    """Change what was agreed with a peer. It holds for the next packet.

    What is not named stays as it is. The currency and the address of a peer are for ever: remove the peer and add it
    anew.

    \b
    Example: payres peer change first-bank --credit-limit 2500.00 --route g
    """
    outgoing, incoming = _read_tokens(outgoing_token, outgoing_token_file, incoming_token, incoming_token_file)
    if (url, outgoing, incoming, max_packet, credit_limit) == (None,) * 5 and not add_routes and not remove_routes:
        raise click.UsageError("Name what is to change, such as --credit-limit 2500.00")

    def unit(work: Work) -> Resource:
        record = peers.require_peer(work, name)
        asset = asset_store.asset_by_id(work, record.asset_id)
        changes = PeerChange(
            url=url,
            outgoing_token=outgoing,
            incoming_token=incoming,
            max_packet=max_packet,
            credit_limit=None if credit_limit is None else movements.require_amount(credit_limit, asset, least=0),
            add_routes=add_routes,
            remove_routes=remove_routes,
        )
        return describe(work, peers.change_peer(work, name, changes))

    _show(session, session.write(unit))
    _mind_plain_http(session, url)


@peer.command("list")
@with_session
def list_all(session: Session) -> None:
    """List all peers with who owes whom.

    \b
    Example: payres peer list
    """
    found = session.read(lambda work: [describe(work, record) for record in peer_store.list_peers(work)])
    lines = [f"{one['name']}  {one['ilpAddress']}  {one['assetCode']}: {one['standing']}" for one in found]
    session.show({"peers": found}, "\n".join(lines) or "There are no peers yet; `payres peer add` adds one")


@peer.command()
@click.argument("name")
@with_session
def show(session: Session, name: str) -> None:
    """Show a peer: who owes whom, its routes, its limits.

    What went wrong last with it is there too. Tokens are never shown.

    \b
    Example: payres peer show first-bank
    """
    _show(session, session.read(lambda work: describe(work, peers.require_peer(work, name))))


@peer.command()
@click.argument("name")
@click.argument("amount")
@with_session
def deposit(session: Session, name: str, amount: str) -> None:
    """Book what the peer paid us elsewhere.

    It then owes us less, or we owe it more. AMOUNT is a decimal in units of the currency.

    \b
    Example: payres peer deposit first-bank 100.00
    """
    _show(session, session.write(lambda work: describe(work, peers.deposit(work, name, amount))))


@peer.command()
@click.argument("name")
@click.argument("amount")
@with_session
def withdraw(session: Session, name: str, amount: str) -> None:
    """Book what we paid the peer elsewhere.

    We then owe it less, or it owes us more, which its credit limit bounds. AMOUNT is a decimal in units of the
    currency.

    \b
    Example: payres peer withdraw first-bank 100.00
    """
    _show(session, session.write(lambda work: describe(work, peers.withdraw(work, name, amount))))


@peer.command()
@click.argument("name")
@with_session
def remove(session: Session, name: str) -> None:
    """End the peering with a peer. Settle with it first.

    It is refused while packets are under way or something is owed. The history stays in the books.

    \b
    Example: payres peer remove first-bank
    """

    def unit(work: Work) -> Resource:
        resource = describe(work, peers.require_peer(work, name))
        peers.remove_peer(work, name)
        return resource

    session.show(session.write(unit), f"The peer {name} is removed")


def describe(work: Work, record: PeerRecord) -> Resource:
    """A peer as it is printed, without its tokens. Amounts are decimals; the balance is what we owe the peer."""
    asset = record.asset
    count, amount = packets.in_flight(work, record.id)
    doubtful, doubt = packets.in_doubt(work, record.id)
    left = ledger.free_balance(accounts.account_by_id(work, record.account_id))
    return {
        "name": record.name,
        "ilpAddress": record.ilp_address,
        "routes": list(peer_store.routes_of_peer(work, record.id)),
        "url": record.url,
        "assetCode": record.asset_code,
        "assetScale": record.asset_scale,
        "balance": format_decimal(record.balance, asset),
        "standing": peers.describe_balance(record),
        "creditLimit": format_decimal(-record.floor, asset),
        "left": format_decimal(left, asset),
        "reserved": format_decimal(record.held, asset),
        "inFlight": {"packets": count, "amount": format_decimal(amount, asset)},
        "inDoubt": {"packets": doubtful, "amount": format_decimal(doubt, asset)},
        "maxPacket": record.max_packet,
        "packetsReceived": record.packets_received,
        "packetsSent": record.packets_sent,
        "repeatsAnswers": bool(record.repeats_answers),
        "lastError": record.last_error,
        "lastErrorAt": None if record.last_error_at is None else format_time(record.last_error_at),
        "createdAt": format_time(record.created_at),
    }


def _show(session: Session, resource: Resource) -> None:
    code, in_flight, routes = resource["assetCode"], resource["inFlight"], resource["routes"]
    in_doubt = resource["inDoubt"]
    assert isinstance(in_flight, dict)
    assert isinstance(in_doubt, dict)
    assert isinstance(routes, list)
    lines = [
        f"peer             {resource['name']}",
        f"ILP address      {resource['ilpAddress']}",
        f"routes           {', '.join(routes) or '(none: nothing is sent to it)'}",
        f"URL              {resource['url']}",
        f"asset            {code} with scale {resource['assetScale']}",
        f"balance          {resource['standing']}",
        f"credit limit     {resource['creditLimit']} {code}; the peer can send {resource['left']} {code} more",
        f"under way        {in_flight['packets']} packets to it with {in_flight['amount']} {code};"
        f" {resource['reserved']} {code} reserved for packets from it",
        f"in doubt         {in_doubt['packets']} packets that it never answered, with {in_doubt['amount']} {code}",
        f"max packet       {_bound(resource)}",
        f"packets          {resource['packetsReceived']} received, {resource['packetsSent']} sent",
        f"repeats answers  {'yes' if resource['repeatsAnswers'] else 'no'}",
        f"last error       {_last_error(resource)}",
        f"created          {resource['createdAt']}",
    ]
    session.show(resource, "\n".join(lines))


def _bound(resource: Resource) -> str:
    if not isinstance(resource["maxPacket"], int):
        return "(no bound)"
    asset = Asset(str(resource["assetCode"]), int(str(resource["assetScale"])))
    return f"{resource['maxPacket']}, which is {format_decimal(resource['maxPacket'], asset)} {asset.code}"


def _last_error(resource: Resource) -> str:
    return "(none)" if resource["lastError"] is None else f"{resource['lastErrorAt']}: {resource['lastError']}"


def _read_tokens(
    outgoing: str | None, outgoing_file: SecretFile, incoming: str | None, incoming_file: SecretFile
) -> tuple[str | None, str | None]:
    """The two tokens, each from its flag or a line of its file. In standard input the outgoing one comes first."""
    return (
        read_secret("outgoing-token", outgoing, outgoing_file),
        read_secret("incoming-token", incoming, incoming_file),
    )


def _mind_plain_http(session: Session, url: str | None) -> None:
    if url is not None and url.lower().startswith("http:") and not session.settings.allow_private_hosts:
        click.echo(
            "Mind: packets are sent to https URLs at public addresses only, unless allow_private_hosts is on", err=True
        )
