"""The operator's rules of Interledger peers: the terms agreed with each, and settlements.

The balance of a peer's account is what we owe the peer; below zero it is what the peer owes us, up to its credit limit.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final

import msgspec

from payres.core.payments import ledger
from payres.core.protocol.amounts import MAX_LEDGER, Asset, describe_amount, format_decimal
from payres.core.protocol.errors import InvalidRequest, WrongState, require
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.visible import is_visible
from payres.core.protocol.wire import Resource, Scale, Text, require_amount
from payres.core.remote.ip_addresses import names_private_host
from payres.core.store import audit, server_secrets
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.work import Work
from payres.interledger.clearing import ABOVE_LIMIT, SHORT_THERE
from payres.interledger.ilp_addresses import is_ilp_address
from payres.interledger.settings import InterledgerSettings
from payres.interledger.store import packets, peers
from payres.interledger.store.peers import PEERS, ROUTE_TABLE, PeerRecord
from payres.operator import movements
from payres.operator.assets import open_asset
from payres.operator.declared import look_overs
from payres.operator.declared.declarations import FOR_GOOD, CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import MAX_NAME_LENGTH, Currency, DecimalText, Name, Reference, Sum, said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, decimals, fact, represent
from payres.operator.store.movements import MovementRecord, page_of_movements

MAX_TOKEN_LENGTH: Final = 1000
CREDIT: Final = "What the peer may owe us, in units of the asset: 1000.00."
MAX_PACKET: Final = "Most in one packet, in the smallest unit: with 2 decimals, 10000 is 100.00"
CreditLimit = Annotated[DecimalText, said(CREDIT)]
PeerNote = Annotated[str, said(max_length=MAX_NAME_LENGTH, is_long=True, typed=lambda _, text: " ".join(text.split()))]
PeerToken = Annotated[Text, said(metavar="TOKEN", secret=True)]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
_TOKEN: Final = re.compile(rf"[!-~]{{1,{MAX_TOKEN_LENGTH}}}")


class PacketSum(Resource, frozen=True, kw_only=True):
    packets: int
    amount: str


class Peer(Resource, frozen=True, kw_only=True):
    """A peer without its tokens. `balance` is what we owe it, below zero what it owes us; `left` is what it can still
    send."""

    name: str
    ilp_address: str
    routes: list[str]
    url: str
    asset_code: str
    asset_scale: int
    balance: str
    standing: str
    credit_limit: str
    left: str
    reserved: str
    in_flight: PacketSum
    unresolved: PacketSum = msgspec.field(name="inDoubt")  # its name on the wire stays
    max_packet: int | None
    packets_received: int
    packets_sent: int
    repeats_answers: bool
    last_error: str | None
    last_error_at: Time | None
    note: str | None
    created_at: Time


def peer(work: Work, record: PeerRecord) -> Peer:
    def packet_sum(found: tuple[int, int]) -> PacketSum:
        return PacketSum(packets=found[0], amount=format_decimal(found[1], record.asset))

    left = ledger.free_balance(ACCOUNTS.by_id(work, record.account_id))
    return represent(
        Peer,
        record,
        routes=list(peers.routes_of_peer(work, record.id)),
        standing=describe_balance(record),
        **decimals(record.asset, balance=record.balance, credit_limit=-record.floor, left=left, reserved=record.held),
        in_flight=packet_sum(packets.count_and_sum(work, record.id, "prepared")),
        unresolved=packet_sum(packets.count_and_sum(work, record.id, "doubtful")),
        repeats_answers=bool(record.repeats_answers),
    )


def describe_balance(peer: PeerRecord) -> str:
    """Who owes whom how much, in words."""
    amount = describe_amount(abs(peer.balance), peer.asset)
    if peer.balance > 0:
        return f"we owe the peer {amount}"
    return f"the peer owes us {amount}" if peer.balance < 0 else "nothing is owed either way"


def require_peer(work: Work, name: str) -> PeerRecord:
    """The active peer of a name. Raises NotFound."""
    return require(peers.find_peer(work, name), f"There is no peer {name!r}", "`payres peer list` shows all")


def _packets(peer: Peer, found: PacketSum) -> Cell:
    counted = f"{found.packets} packet{'' if found.packets == 1 else 's'}"
    return Cell(f"{found.amount} in {counted}", unit=peer.asset_code) if found.packets else Cell("nothing")


def _largest(peer: Peer) -> str:
    if peer.max_packet is None:
        return "any size"
    shown = describe_amount(peer.max_packet, Asset(peer.asset_code, peer.asset_scale))
    return f"{shown}, which is {peer.max_packet} of its smallest unit"


def _in_asset(member: str) -> Callable[[Peer], str]:
    return lambda one: f"{one.asset_code} {getattr(one, member)}"


PEER: Final = Shape(
    peer,
    Column("Peer", "name", "long", section="peers"),
    Column("Standing", "standing"),
    Column("Balance", "balance", "number"),
    Column("Credit limit", _in_asset("credit_limit"), "number"),
    fact("It can still send", _in_asset("left"), "number"),
    fact("Reserved for packets from it", _in_asset("reserved"), "number"),
    fact("In flight to it", lambda one: _packets(one, one.in_flight)),
    Column("Asset", "asset_code"),
    fact("Decimals", "asset_scale", "number"),
    Column("Unresolved packets", lambda one: _packets(one, one.unresolved)),
    fact("Packets received", "packets_received", "number"),
    fact("Packets sent", "packets_sent", "number"),
    fact("Largest packet", _largest),
    fact("Repeats answers", lambda one: "yes" if one.repeats_answers else "not known"),
    Column("ILP address", "ilp_address", "code"),
    fact("Routes", lambda one: one.routes or "none: nothing is sent to it", "code"),
    fact("URL", "url", "code"),
    Column("Last error", "last_error", "long"),
    Column("Last error (UTC)", "last_error_at", "time"),
    fact("Note", "note"),
    fact("Added (UTC)", "created_at", "time"),
    read=require_peer,
    page="/peers/{name}",
    moving={"balance", "standing", "left", "reserved", "in_flight", "unresolved", "packets_received", "packets_sent"}
    | {"repeats_answers", "last_error", "last_error_at"},
    secrets=lambda _, one: (one.outgoing_token, one.incoming_token_hash),
)


@operation(
    "GET /peers peers:read",
    PEER,
    command=CommandLine("peer list"),
    listing=Listing(
        "peers", "There are no peers", "Peers", menu="Peers", advice="`payres peer add` connects to another server"
    ),
)
def list_peers(work: Work) -> Sequence[PeerRecord]:
    """List all peers and their balances."""
    return peers.list_peers(work)


@operation("GET /peers/{name} peers:read", PEER, command=CommandLine("peer show NAME", "first-bank"))
def show_peer(work: Work, name: str) -> PeerRecord:
    """Show a peer: its balance, its routes, its limits.

    The last error is shown too. Tokens are never shown.
    """
    return require_peer(work, name)


@operation(
    "POST /peers peers:write",
    PEER,
    command=CommandLine(
        "peer add NAME",
        "first-bank --ilp-address test.first-bank --asset USD --scale 2 \\\n"
        "  --url https://first-bank.example/ilp --outgoing-token-file to-first-bank \\\n"
        "  --incoming-token-file from-first-bank --credit-limit 1000.00 --max-packet 10000",
    ),
    form=OperationForm(
        *("Add the peer", None, "{name} is a peer from now on", "New peer"), lists="/peers", weighs=look_overs.of_peer
    ),
)
def add_peer(
    work: Work,
    name: Name,
    ilp_address: Annotated[Text, said("Such as test.first-bank.", metavar="ADDRESS", label="ILP address")],
    asset_code: Annotated[
        Currency, said("The currency between the two, such as USD.", option="--asset", metavar="CODE", label="Currency")
    ],
    asset_scale: Annotated[Scale, said("Its number of decimals: 2 for cents.", option="--scale", label="Decimals")],
    url: Annotated[Text, said("Where the peer takes packets (POST).", metavar="URL", label="URL")],
    outgoing_token: Annotated[PeerToken, said("What we send, and they get.", label="Token that we send")],
    incoming_token: Annotated[PeerToken, said("What they send, and we get.", label="Token that we get")],
    max_packet: Annotated[int, said(f"{MAX_PACKET}.", metavar="N", ge=1, le=MAX_LEDGER)] | None = None,
    credit_limit: Annotated[
        CreditLimit, said(f"{CREDIT} Without it the peer can only receive, or send what it paid before.")
    ] = "0",
    routes: Annotated[
        Sequence[Text], said("More addresses reached through it.", option="--route", metavar="PREFIX")
    ] = (),
) -> PeerRecord:
    """Add a peer, from the next packet on.

    Both sides keep the link in one currency. Each authenticates to the other with a token: the outgoing token here is
    the incoming one there.
    """
    _check_peer_name(work, name)
    _check_address(work, ilp_address)
    _check_routes(work, routes)
    _check_url(work, url)
    encrypted, hashed = _encrypted_token(work, outgoing_token), _hashed_token(work, incoming_token)
    tokens = {"outgoing_token": encrypted, "incoming_token_hash": hashed}
    asset = open_asset(work, asset_code, asset_scale)
    limit = require_amount(credit_limit, asset.asset, least=0)
    for other in peers.list_peers(work):
        if (other.ilp_address, other.asset_id) == (ilp_address, asset.id):
            raise WrongState(f"The peer {other.name} has this ILP address and asset already", name=other.name)
    account_id = ledger.open_account(work, "peer", asset.id, -limit)
    columns = {"account_id": account_id, "ilp_address": ilp_address, "url": url, "max_packet": max_packet}
    peer_id = PEERS.create(work, name=name, **columns, **tokens, created_at=work.now)
    peers.take_over(work, peer_id, ilp_address, asset.id)
    for prefix in (ilp_address, *routes):
        peers.add_route(work, peer_id, prefix)
    link = {"ilpAddress": ilp_address, "assetCode": asset_code, "assetScale": asset_scale, "url": url}
    limits = {"maxPacket": max_packet, "creditLimit": format_decimal(limit, asset.asset)}
    audit.record(work, "peer.add", name, **link, **limits, routes=routes or None)
    return require_peer(work, name)


@operation(
    "PATCH /peers/{name} peers:write",
    PEER,
    command=CommandLine("peer change NAME", "first-bank --credit-limit 2500.00 --route g"),
    form=OperationForm(
        "Change",
        PEER,
        done="The terms of {name} are changed",
        title="Change the terms",
        changes=True,
        weighs=look_overs.of_terms,
    ),
)
def change_peer(
    work: Work,
    name: str,
    url: Annotated[Text | None, said("Where the peer takes packets now.", metavar="URL", label="URL")] = None,
    outgoing_token: Annotated[PeerToken | None, said("We send it from now on.", label="Token that we send")] = None,
    incoming_token: Annotated[PeerToken | None, said("We get it from now on.", label="Token that we get")] = None,
    max_packet: Annotated[int, said(f"{MAX_PACKET}; 0 for any.", metavar="N", ge=0, le=MAX_LEDGER)] | None = None,
    credit_limit: CreditLimit | None = None,
    add_routes: Annotated[Sequence[Text], said("A route to add.", option="--route", metavar="PREFIX")] = (),
    remove_routes: Annotated[Sequence[Text], said("A route to remove.", option="--no-route", metavar="PREFIX")] = (),
) -> PeerRecord:
    """Change the terms of a peer, from the next packet on. What is left out stays as it is.

    The asset and the address of a peer cannot be changed: remove the peer and add it again.
    """
    peer = require_peer(work, name)
    columns: dict[str, str | bytes | int | None] = {
        "max_packet": peer.max_packet if max_packet is None else max_packet or None
    }
    if url is not None:
        _check_url(work, url)
        columns["url"] = url
    if outgoing_token is not None:
        columns["outgoing_token"] = _encrypted_token(work, outgoing_token)
    if incoming_token is not None:
        columns["incoming_token_hash"] = _hashed_token(work, incoming_token, peer.id)
    PEERS.update(work, peer.id, **columns)
    tokens = {"outgoing": outgoing_token, "incoming": incoming_token}
    limit = None if credit_limit is None else _set_credit_limit(work, peer, credit_limit)
    _change_routes(work, peer, add_routes, remove_routes)
    replaced = [which for which, token in tokens.items() if token] or None
    changed = {"url": url, "tokens": replaced, "maxPacket": max_packet, "creditLimit": limit}
    routes = {"addRoutes": add_routes or None, "removeRoutes": remove_routes or None}
    audit.record(work, "peer.change", name, **changed, **routes)
    return require_peer(work, name)


@operation(
    "PUT /peers/{name}/note peers:write",
    PEER,
    command=CommandLine("peer note NAME TEXT", 'first-bank "Ask Tess before raising the limit: +49 30 1234"'),
    form=OperationForm(
        "Save the note",
        PEER,
        done="The note is saved",
        title="Note",
        path="/peers/{name}/note",
        changes=True,
        unasked="only operators see it",
    ),
)
def write_note(work: Work, name: str, note: PeerNote) -> PeerRecord:
    """Write a note at a peer, such as whom to call. Only operators see it; an empty one removes it."""
    peer = require_peer(work, name)
    if note and not is_visible(note):
        raise InvalidRequest("A note has printable characters only", field="note")
    PEERS.update(work, peer.id, note=note or None)
    audit.record(work, "peer.note", name, note=note)
    return require_peer(work, name)


@operation(
    "DELETE /peers/{name} peers:write",
    PEER,
    command=CommandLine("peer remove NAME", "first-bank", text="The peer {name} is removed"),
    form=OperationForm(
        "Remove",
        PEER,
        done="{name} is no peer any more",
        title="End this peering",
        back="/peers",
        because=FOR_GOOD,
        ends=True,
    ),
)
def remove_peer(work: Work, name: str) -> PeerRecord:
    """End the peering with a peer. Settle with it first.

    It is refused while packets are in flight or something is owed. The history stays in the ledger. The name, the token
    and the address can be used again.
    """
    peer = require_peer(work, name)
    if refusal := unsettled(work, peer):
        raise refusal
    PEERS.update(work, peer.id, removed_at=work.now)
    return peer


def unsettled(work: Work, peer: PeerRecord) -> WrongState | None:
    """Why the peering cannot end yet: packets are in flight or unresolved, or something is owed."""
    name = peer.name
    count, _ = packets.count_and_sum(work, peer.id, "prepared")
    if count or peer.held:
        return WrongState(
            f"Packets to or from the peer {name} are in flight; try again when they are answered, or given"
            " up, which takes an hour when the peer cannot be reached"
        )
    unresolved, _ = packets.count_and_sum(work, peer.id, "doubtful")
    if unresolved:
        advice = f"`payres peer unresolved {name}` lists them, and `payres peer resolve` resolves each"
        sentence = f"Some packets to the peer {name} are unresolved: resolve them, then remove the peer"
        return WrongState(sentence, advice=advice)
    if peer.balance:
        owed, verb = format_decimal(abs(peer.balance), peer.asset), "withdraw" if peer.balance > 0 else "deposit"
        settle = "pay that, then record it" if peer.balance > 0 else "when that has been paid, record it"
        who = describe_balance(peer)
        sentence = f"{who[0].upper()}{who[1:]}: {settle}, then remove the peer"
        return WrongState(sentence, advice=f"`payres peer {verb} {name} {owed}` records it")
    return None


@operation("GET /peers/{name}/movements peers:read", movements.MOVEMENT)
def list_settlements(work: Work, name: str, page: PageQuery) -> tuple[Sequence[MovementRecord], PageBounds]:
    """List the settlements with a peer."""
    return page_of_movements(work, require_peer(work, name).account_id, page)


@operation(
    "POST /peers/{name}/deposits peers:write",
    movements.MOVEMENT,
    command=CommandLine("peer deposit NAME AMOUNT", "first-bank 100.00", then=PEER),
    form=movements.form("Record it", PEER, "came in: {standing}", title="They paid us", path="/peers/{name}/deposit"),
)
def deposit(
    work: Work, name: str, amount: Sum, reference: Reference | None = None, again: movements.Again = None
) -> MovementRecord:
    """Record what the peer paid us outside of payres. The peer then owes us less, or we owe it more."""
    peers.forget_error(work, require_peer(work, name).id, ABOVE_LIMIT)
    return movements.move(work, require_peer(work, name).account_id, "deposit", amount, reference, again)


@operation(
    "POST /peers/{name}/withdrawals peers:write",
    movements.MOVEMENT,
    command=CommandLine("peer withdraw NAME AMOUNT", "first-bank 100.00", then=PEER),
    form=movements.form("Record it", PEER, "went out: {standing}", title="We paid them", path="/peers/{name}/withdraw"),
)
def withdraw(
    work: Work, name: str, amount: Sum, reference: Reference | None = None, again: movements.Again = None
) -> MovementRecord:
    """Record what we paid the peer outside of payres.

    We then owe the peer less, or it owes us more, up to its credit limit.
    """
    peers.forget_error(work, require_peer(work, name).id, SHORT_THERE)
    return movements.move(work, require_peer(work, name).account_id, "withdrawal", amount, reference, again)


def _set_credit_limit(work: Work, peer: PeerRecord, text: str) -> str:
    """Returns the limit with all its decimals."""
    limit = require_amount(text, peer.asset, least=0)
    try:
        ledger.set_floor(work, peer.account_id, -limit)
        peers.forget_error(work, peer.id, ABOVE_LIMIT)
    except ledger.NotEnough as lack:
        used = describe_amount(peer.held - peer.balance, peer.asset)
        raise WrongState(
            f"The peer {peer.name} uses {used} of its credit, packets in flight included; the limit"
            " cannot be lower than that"
        ) from lack
    return format_decimal(limit, peer.asset)


def _change_routes(work: Work, peer: PeerRecord, add: Sequence[str], remove: Sequence[str]) -> None:
    _check_routes(work, add)
    for prefix in remove:
        if not ROUTE_TABLE.delete(work, prefix=prefix, peer_id=peer.id):
            advice = f"`payres peer show {peer.name}` lists its routes"
            raise InvalidRequest(f"The peer {peer.name} has no route {prefix!r}", advice=advice, field="routes")
    for prefix in add:
        peers.add_route(work, peer.id, prefix)


def _check_peer_name(work: Work, name: str) -> None:
    if not _NAME.fullmatch(name):
        sentence = f"{name!r} cannot be a peer's name: use 1 to 64 letters, digits and - . _ ~, such as first-bank"
        raise InvalidRequest(sentence, field="name")
    if peers.find_peer(work, name) is not None:
        raise WrongState(f"There is a peer {name} already; choose another name", name=name)


def _check_address(work: Work, address: str) -> None:
    if not is_ilp_address(address):
        raise InvalidRequest(f"{address!r} is not an ILP address such as test.first-bank", field="ilp_address")
    if address == work.settings.of(InterledgerSettings).ilp_address:
        sentence = f"{address} is this server's own ILP address; a peer has another (see the setting ilp_address)"
        raise InvalidRequest(sentence, field="ilp_address")
    _check_scheme(address, "ilp_address")


def _check_routes(work: Work, routes: Iterable[str]) -> None:
    """Raises for our own address as a route. A prefix of it is fine, for a parent, and an address below it, for a
    child."""
    for prefix in routes:
        # A scheme alone is a valid prefix too; with a segment it can be checked as an address.
        if not is_ilp_address(prefix if "." in prefix else f"{prefix}.x"):
            raise InvalidRequest(
                f"{prefix!r} is not a prefix of ILP addresses: write an address such as test.first-bank, or a scheme"
                " alone, such as g or test",
                field="routes",
            )
        if prefix == work.settings.of(InterledgerSettings).ilp_address:
            sentence = f"{prefix} is this server's own ILP address; packets for it do not go to a peer"
            raise InvalidRequest(sentence, field="routes")
        _check_scheme(prefix, "routes")


def _check_scheme(prefix: str, field: str) -> None:
    if prefix.partition(".")[0] == "peer":  # RFC 15: these are for the two ends of a link
        raise InvalidRequest(f"Packets for {prefix} are never passed on; use another scheme than peer", field=field)


def _check_url(work: Work, url: str) -> None:
    """Raises InvalidRequest; warns of a URL that gets no packets."""
    if not is_http_url(url) or not url.isascii() or "#" in url:
        raise InvalidRequest(
            "The URL that the peer takes packets at must be an http or https URL such as https://first-bank.example/ilp,"
            " without user information and fragment",
            field="url",
        )
    is_private = not url.lower().startswith("https:") or names_private_host(url)
    if is_private and not work.settings.allow_private_hosts:
        work.environment.warn(
            "Packets are sent to https URLs at public addresses only, unless allow_private_hosts is on"
        )


def _encrypted_token(work: Work, token: str) -> bytes:
    """The outgoing token as it is stored: encrypted, because it has to be read again."""
    _check_token("outgoing", token)
    return server_secrets.encrypt(work, peers.TOKENS_SECRET, token)


def _hashed_token(work: Work, token: str, peer_id: int | None = None) -> bytes:
    """The incoming token as it is stored: hashed. It identifies the peer, so it must be unique."""
    _check_token("incoming", token)
    hashed = hash_secret(token)
    other = peers.peer_by_token(work, hashed)
    if other is not None and other.id != peer_id:
        sentence = f"The peer {other.name} has this incoming token; each peer needs one of its own"
        raise WrongState(sentence, name=other.name)
    return hashed


def _check_token(which: str, token: str) -> None:
    if not _TOKEN.fullmatch(token):
        raise InvalidRequest(
            f"The {which} token cannot be a bearer token: it is 1 to {MAX_TOKEN_LENGTH} printable ASCII characters"
            " without spaces",
            field=f"{which}_token",
        )
