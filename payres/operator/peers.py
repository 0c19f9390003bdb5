"""The operator's rules of Interledger peers: what was agreed with each, and settlements.

The balance of a peer's account is what we owe it; below zero it is what the peer owes us, up to its credit limit.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta

from payres import ledger
from payres.amounts import MAX_LEDGER, format_decimal
from payres.errors import InvalidRequest, WrongState, require
from payres.identifiers import hash_secret, is_ilp_address
from payres.operator import movements
from payres.operator.assets import open_asset
from payres.operator.inputs import Code, DecimalText, Name
from payres.operator.movements import NamedAccount
from payres.store import audit, packets, peers, secrets
from payres.store.assets import ASSETS
from payres.store.entries import MovementRecord
from payres.store.peers import PEERS, PeerRecord
from payres.store.work import Work
from payres.urls import is_http_url
from payres.wire import Body, Scale, Text, require_amount

MAX_TOKEN_LENGTH = 1000

PacketAmount = Annotated[int, Meta(ge=0, le=MAX_LEDGER)]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
_TOKEN = re.compile(rf"[!-~]{{1,{MAX_TOKEN_LENGTH}}}")


class NewPeer(Body, frozen=True, kw_only=True):
    """`max_packet` is in the smallest unit; `routes` are reached through the peer besides its own address."""

    name: Name
    ilp_address: Text
    asset_code: Code
    asset_scale: Scale
    url: Text
    outgoing_token: Text
    incoming_token: Text
    max_packet: PacketAmount | None = None
    credit_limit: DecimalText = "0"
    routes: Sequence[Text] = ()

    def __repr__(self) -> str:
        return f"NewPeer({self.name!r})"  # never the tokens


class PeerChange(Body, frozen=True, kw_only=True):
    """What is left out stays. A `max_packet` of 0 takes the bound away."""

    url: Text | None = None
    outgoing_token: Text | None = None
    incoming_token: Text | None = None
    max_packet: PacketAmount | None = None
    credit_limit: DecimalText | None = None
    add_routes: Sequence[Text] = ()
    remove_routes: Sequence[Text] = ()

    def __repr__(self) -> str:
        return "PeerChange(...)"  # never the tokens


def add_peer(work: Work, new: NewPeer) -> PeerRecord:
    """Adds a peer, with an empty account that may fall to minus its credit limit.

    Raises InvalidRequest, WrongState when a name, a token, or an address in one asset is taken.
    """
    _check_name(work, new.name)
    _check_address(work, new.ilp_address)
    _check_routes(work, new.routes)
    _check_url(new.url)
    outgoing_token, incoming_token_hash = _outgoing(work, new.outgoing_token), _incoming(work, new.incoming_token)
    _check_max_packet(new.max_packet, least=1)
    asset = open_asset(work, new.asset_code, new.asset_scale)
    limit = require_amount(new.credit_limit, asset.asset, least=0)
    for other in peers.list_peers(work):
        if (other.ilp_address, other.asset_id) == (new.ilp_address, asset.id):
            raise WrongState(f"The peer {other.name} has this ILP address and asset already", name=other.name)
    account_id = ledger.open_account(work, "peer", asset.id, -limit)
    peer_id = PEERS.create(
        work,
        name=new.name,
        account_id=account_id,
        ilp_address=new.ilp_address,
        url=new.url,
        outgoing_token=outgoing_token,
        incoming_token_hash=incoming_token_hash,
        max_packet=new.max_packet,
        created_at=work.now,
    )
    for prefix in (new.ilp_address, *new.routes):
        peers.add_route(work, peer_id, prefix)
    agreed = {
        "ilpAddress": new.ilp_address,
        "assetCode": new.asset_code,
        "assetScale": new.asset_scale,
        "url": new.url,
        "maxPacket": new.max_packet,
        "creditLimit": format_decimal(limit, asset.asset),
        "routes": new.routes or None,
    }
    audit.record(work, "peer.add", new.name, **agreed)
    return require_peer(work, new.name)


def require_peer(work: Work, name: str) -> PeerRecord:
    """The active peer of a name. Raises NotFound."""
    return require(peers.find_peer(work, name), f"There is no peer {name!r}; `payres peer list` shows all")


def change_peer(work: Work, name: str, change: PeerChange) -> PeerRecord:
    """Changes what was agreed with a peer, from the next packet on.

    Raises NotFound, InvalidRequest, WrongState when a token is taken or a credit limit below what the peer owes.
    """
    peer = require_peer(work, name)
    columns: dict[str, Any] = {"max_packet": peer.max_packet}
    if change.url is not None:
        _check_url(change.url)
        columns["url"] = change.url
    if change.max_packet is not None:
        _check_max_packet(change.max_packet, least=0)
        columns["max_packet"] = change.max_packet or None
    if change.outgoing_token is not None:
        columns["outgoing_token"] = _outgoing(work, change.outgoing_token)
    if change.incoming_token is not None:
        columns["incoming_token_hash"] = _incoming(work, change.incoming_token, peer.id)
    PEERS.update(work, peer.id, **columns)
    limit = None
    if change.credit_limit is not None:
        limit = require_amount(change.credit_limit, ASSETS.by_id(work, peer.asset_id).asset, least=0)
        _set_credit_limit(work, peer, limit)
    _change_routes(work, peer, change)
    changed = {
        "url": change.url,
        "tokens": [token for token in ("outgoing", "incoming") if getattr(change, f"{token}_token") is not None]
        or None,
        "maxPacket": change.max_packet,
        "creditLimit": None if limit is None else format_decimal(limit, peer.asset),
        "addRoutes": change.add_routes or None,
        "removeRoutes": change.remove_routes or None,
    }
    audit.record(work, "peer.change", name, **changed)
    return require_peer(work, name)


def remove_peer(work: Work, name: str) -> PeerRecord:
    """Removes a peer; its name, token and address can be used again. Returns the peer as it was.

    Raises NotFound, WrongState while packets are in flight or unresolved and until nothing is owed either way.
    """
    peer = require_peer(work, name)
    count, _ = packets.in_flight(work, peer.id)
    if count or peer.held:
        raise WrongState(
            f"Packets to or from the peer {name} are in flight; try again when they are answered, or given"
            " up, which takes an hour when the peer cannot be reached"
        )
    unresolved, _ = packets.unresolved(work, peer.id)
    if unresolved:
        raise WrongState(
            f"{unresolved} packets to the peer {name} are unresolved: resolve those that `payres peer unresolved"
            f" {name}` lists with `payres peer resolve`, then remove the peer"
        )
    if peer.balance:
        command = f"payres peer {'withdraw' if peer.balance > 0 else 'deposit'} {name} {_decimal(peer, peer.balance)}"
        settle = "pay that, then record it" if peer.balance > 0 else "when that has been paid, record it"
        who = describe_balance(peer)
        raise WrongState(f"{who[0].upper()}{who[1:]}: {settle} with `{command}`, then remove the peer")
    PEERS.update(work, peer.id, removed_at=work.now)
    audit.record(work, "peer.remove", name)
    return peer


def deposit(work: Work, name: str, text: str, reference: str | None = None) -> MovementRecord:
    """Records an amount such as "100.00" that the peer paid us outside of payres: it owes us less, or we owe it more.

    Raises NotFound, InvalidAmount, WrongState for a reference that another movement has.
    """
    return movements.move(work, _account(work, name), "deposit", text, reference)


def withdraw(work: Work, name: str, text: str, reference: str | None = None) -> MovementRecord:
    """Records an amount such as "100.00" that we paid the peer outside of payres: we owe it less, or it owes us more.

    Raises InsufficientFunds past the peer's credit limit, and what `deposit` raises.
    """
    return movements.move(work, _account(work, name), "withdrawal", text, reference)


def describe_balance(peer: PeerRecord) -> str:
    """Who owes whom how much, in words."""
    amount = f"{_decimal(peer, peer.balance)} {peer.asset_code}"
    if peer.balance > 0:
        return f"we owe the peer {amount}"
    return f"the peer owes us {amount}" if peer.balance < 0 else "nothing is owed either way"


def _account(work: Work, name: str) -> NamedAccount:
    peer = require_peer(work, name)
    holder = f"The account of the peer {name}, its credit limit included,"
    return NamedAccount(peer.account_id, ASSETS.by_id(work, peer.asset_id), "peer", name, holder)


def _check_name(work: Work, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be a peer's name: use 1 to 64 letters, digits and - . _ ~, such as first-bank",
            field="name",
        )
    if peers.find_peer(work, name) is not None:
        raise WrongState(f"There is a peer {name} already; choose another name", name=name)


def _check_address(work: Work, address: str) -> None:
    if not is_ilp_address(address):
        raise InvalidRequest(f"{address!r} is not an ILP address such as test.first-bank", field="ilp_address")
    if address == work.settings.ilp_address:
        raise InvalidRequest(
            f"{address} is this server's own ILP address; a peer has another (see the setting ilp_address)",
            field="ilp_address",
        )
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
        if prefix == work.settings.ilp_address:
            raise InvalidRequest(
                f"{prefix} is this server's own ILP address; packets for it do not go to a peer", field="routes"
            )
        _check_scheme(prefix, "routes")


def _check_scheme(prefix: str, field: str) -> None:
    if prefix.partition(".")[0] == "peer":  # RFC 15: these are for the two ends of a link
        raise InvalidRequest(f"Packets for {prefix} are never passed on; use another scheme than peer", field=field)


def _check_url(url: str) -> None:
    if not is_http_url(url) or not url.isascii() or "#" in url:
        raise InvalidRequest(
            "The URL that the peer takes packets at must be an http or https URL such as https://first-bank.example/ilp,"
            " without user information and fragment",
            field="url",
        )


def _check_max_packet(value: int | None, least: int) -> None:
    if value is not None and not least <= value <= MAX_LEDGER:
        raise InvalidRequest(f"max_packet is from {least} to {MAX_LEDGER} minor units, not {value}", field="max_packet")


def _outgoing(work: Work, token: str) -> bytes:
    """The outgoing token as it is stored: encrypted, because it has to be read again."""
    _check_token("outgoing", token)
    return secrets.encrypt(work, peers.TOKENS_SECRET, token)


def _incoming(work: Work, token: str, peer_id: int | None = None) -> bytes:
    """The incoming token as it is stored: hashed. It identifies the peer, so it must be unique."""
    _check_token("incoming", token)
    hashed = hash_secret(token)
    other = peers.peer_by_token(work, hashed)
    if other is not None and other.id != peer_id:
        raise WrongState(
            f"The peer {other.name} has this incoming token; each peer needs one of its own", name=other.name
        )
    return hashed


def _check_token(which: str, token: str) -> None:
    if not _TOKEN.fullmatch(token):
        raise InvalidRequest(
            f"The {which} token cannot be a bearer token: it is 1 to {MAX_TOKEN_LENGTH} printable ASCII characters"
            " without spaces",
            field=f"{which}_token",
        )


def _set_credit_limit(work: Work, peer: PeerRecord, credit_limit: int) -> None:
    try:
        ledger.set_floor(work, peer.account_id, -credit_limit)
    except ledger.NotEnough as lack:
        used = _decimal(peer, peer.held - peer.balance)
        raise WrongState(
            f"The peer {peer.name} uses {used} {peer.asset_code} of its credit, packets in flight included; the limit"
            " cannot be lower than that"
        ) from lack


def _change_routes(work: Work, peer: PeerRecord, change: PeerChange) -> None:
    _check_routes(work, change.add_routes)
    for prefix in change.remove_routes:
        if not peers.delete_route(work, peer.id, prefix):
            raise InvalidRequest(
                f"The peer {peer.name} has no route {prefix!r}; `payres peer show {peer.name}` lists its routes",
                field="routes",
            )
    for prefix in change.add_routes:
        peers.add_route(work, peer.id, prefix)


def _decimal(peer: PeerRecord, amount: int) -> str:
    return format_decimal(abs(amount), peer.asset)
