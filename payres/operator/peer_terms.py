"""The terms agreed with an Interledger peer, and their validation."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from msgspec import Meta

from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.errors import InvalidRequest, WrongState
from payres.core.protocol.identifiers import hash_secret, is_ilp_address
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.wire import Body, Scale, Text
from payres.core.remote.ip_addresses import names_private_host
from payres.core.store import secrets
from payres.core.store.work import Work
from payres.interledger.store import peers
from payres.operator.assets import MAX_SCALE
from payres.operator.inputs import Code, DecimalText, Name, said

MAX_TOKEN_LENGTH: Final = 1000

CREDIT: Final = "What the peer may owe us, in units of the asset: 1000.00."
MAX_PACKET: Final = "Most in one packet, in the smallest unit: with scale 2, 10000 is 100.00"
CreditLimit = Annotated[DecimalText, said(CREDIT)]
MaxPacket = Annotated[int, Meta(ge=0, le=MAX_LEDGER)] | None
Token = Annotated[Text, said(metavar="TOKEN", secret=True)]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
_TOKEN: Final = re.compile(rf"[!-~]{{1,{MAX_TOKEN_LENGTH}}}")


class NewPeer(Body, frozen=True, kw_only=True):
    """`max_packet` is in the smallest unit; `routes` are reached through the peer besides its own address."""

    name: Name
    ilp_address: Annotated[Text, said("The peer's address, such as test.first-bank.", metavar="ADDRESS")]
    asset_code: Annotated[Code, said("The currency between the two, such as USD.", option="--asset", metavar="CODE")]
    asset_scale: Annotated[
        Scale, said("Its number of decimals: 2 for cents.", option="--scale", least=0, most=MAX_SCALE)
    ]
    url: Annotated[Text, said("Where the peer takes packets (POST).", metavar="URL")]
    outgoing_token: Annotated[Token, said("What we show the peer.")]
    incoming_token: Annotated[Token, said("What the peer shows us.")]
    max_packet: Annotated[MaxPacket, said(f"{MAX_PACKET}.", metavar="N", least=1, most=MAX_LEDGER)] = None
    credit_limit: Annotated[
        CreditLimit, said(f"{CREDIT} Without it the peer can only receive, or send what it paid before.")
    ] = "0"
    routes: Annotated[
        Sequence[Text], said("More addresses reached through it. May be repeated.", option="--route", metavar="PREFIX")
    ] = ()

    def __repr__(self) -> str:
        return f"NewPeer({self.name!r})"  # never the tokens


class PeerChange(Body, frozen=True, kw_only=True):
    """Members that are left out do not change. A `max_packet` of 0 removes the bound."""

    url: Annotated[Text | None, said("Where the peer takes packets now.", metavar="URL")] = None
    outgoing_token: Annotated[Token | None, said("What we show the peer from now on.")] = None
    incoming_token: Annotated[Token | None, said("What the peer shows us from now on.")] = None
    max_packet: Annotated[MaxPacket, said(f"{MAX_PACKET}; 0 for any.", metavar="N", least=0, most=MAX_LEDGER)] = None
    credit_limit: CreditLimit | None = None
    add_routes: Annotated[
        Sequence[Text], said("A route to add. May be repeated.", option="--route", metavar="PREFIX")
    ] = ()
    remove_routes: Annotated[
        Sequence[Text], said("A route to remove. May be repeated.", option="--no-route", metavar="PREFIX")
    ] = ()

    def __repr__(self) -> str:
        return "PeerChange(...)"  # never the tokens


def check_peer_name(work: Work, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be a peer's name: use 1 to 64 letters, digits and - . _ ~, such as first-bank",
            field="name",
        )
    if peers.find_peer(work, name) is not None:
        raise WrongState(f"There is a peer {name} already; choose another name", name=name)


def check_address(work: Work, address: str) -> None:
    if not is_ilp_address(address):
        raise InvalidRequest(f"{address!r} is not an ILP address such as test.first-bank", field="ilp_address")
    if address == work.settings.ilp_address:
        raise InvalidRequest(
            f"{address} is this server's own ILP address; a peer has another (see the setting ilp_address)",
            field="ilp_address",
        )
    _check_scheme(address, "ilp_address")


def check_routes(work: Work, routes: Iterable[str]) -> None:
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


def check_url(work: Work, url: str) -> None:
    """Raises InvalidRequest; warns of a URL that gets no packets."""
    if not is_http_url(url) or not url.isascii() or "#" in url:
        raise InvalidRequest(
            "The URL that the peer takes packets at must be an http or https URL such as https://first-bank.example/ilp,"
            " without user information and fragment",
            field="url",
        )
    is_private = not url.lower().startswith("https:") or names_private_host(url)
    if is_private and not work.settings.allow_private_hosts:
        work.warn("Packets are sent to https URLs at public addresses only, unless allow_private_hosts is on")


def encrypted_token(work: Work, token: str) -> bytes:
    """The outgoing token as it is stored: encrypted, because it has to be read again."""
    _check_token("outgoing", token)
    return secrets.encrypt(work, peers.TOKENS_SECRET, token)


def hashed_token(work: Work, token: str, peer_id: int | None = None) -> bytes:
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
