"""Interledger peers: who owes whom, what went wrong, and packets of unknown outcome."""

from typing import Any, Final

from starlette.responses import Response

from payres.admin import peers
from payres.admin.wire import PacketSum, Peer
from payres.pages.listing import Listing, page_for
from payres.pages.tables import Cell, Column, linked, long, make_table, number, text, time
from payres.pages.visit import Page, Visit
from payres.store.pages import PageQuery
from payres.store.work import Work

FEW: Final = PageQuery(10, None, "older")

COLUMNS: Final = (
    Column("Peer", lambda one: linked("peers", one.name)),
    Column("Standing", text("standing")),
    Column("Balance", number("balance")),
    Column("Credit limit", number("credit_limit")),
    Column("Asset", text("asset_code")),
    Column("Unresolved packets", lambda one: Cell(str(one.in_doubt.packets), "number")),
    Column("Last error", long("last_error")),
    Column("At (UTC)", time("last_error_at")),
)
PACKET_COLUMNS: Final = (
    Column("Packet", lambda one: linked("packets", one.id, "code")),
    Column("Payment", lambda one: linked("payments", one.payment, "code")),
    Column("Wallet", lambda one: linked("wallets", one.wallet)),
    Column("Amount", number("amount")),
    Column("Asset", text("asset_code")),
    Column("Expired (UTC)", time("expired_at")),
)
SETTLEMENT_COLUMNS: Final = (
    Column("Time (UTC)", time("created_at")),
    Column("What", text("kind")),
    Column("Amount", number("amount")),
    Column("Asset", text("asset_code")),
    Column("Reference", long("reference")),
)
LIST: Final = page_for(
    Listing("Peers", "peers.list_all", COLUMNS, "There are no peers; `payres peer add` connects to another server")
)


async def _show(visit: Visit) -> Response:
    name = visit.segments["name"]

    def unit(work: Work) -> dict[str, Any]:
        peer = peers.show(work, name)
        unresolved = peers.list_unresolved(work, name).result
        settlements = peers.list_settlements(work, name, FEW).result
        return {
            "facts": _facts(peer),
            "packets": make_table("Unresolved packets", PACKET_COLUMNS, unresolved, "The outcome of each is known"),
            "settlements": make_table("Settlements", SETTLEMENT_COLUMNS, settlements, "Nothing was settled yet"),
        }

    return visit.show("peer.html", "/peers", title=name, **await visit.read(unit))


def _facts(peer: Peer) -> list[tuple[str, Cell]]:
    largest = "any size" if peer.max_packet is None else f"{peer.max_packet} of the smallest unit"
    return [
        ("Standing", Cell(peer.standing)),
        ("Balance", Cell(peer.balance, "number")),
        ("Credit limit", Cell(peer.credit_limit, "number")),
        ("It can still send", Cell(peer.left, "number")),
        ("Reserved for packets from it", Cell(peer.reserved, "number")),
        ("In flight to it", Cell(_packets(peer.in_flight))),
        ("Of unknown outcome", Cell(_packets(peer.in_doubt))),
        ("Asset", Cell(f"{peer.asset_code}, {peer.asset_scale} decimals")),
        ("Packets received", Cell(str(peer.packets_received), "number")),
        ("Packets sent", Cell(str(peer.packets_sent), "number")),
        ("Largest packet", Cell(largest)),
        ("Repeats answers", Cell("yes" if peer.repeats_answers else "not known")),
        ("ILP address", Cell(peer.ilp_address, "code")),
        ("Routes", Cell(" ".join(peer.routes), "code")),
        ("URL", Cell(peer.url, "code")),
        ("Last error", Cell(peer.last_error or "")),
        ("At (UTC)", Cell(peer.last_error_at or "", "time")),
        ("Added (UTC)", Cell(peer.created_at, "time")),
    ]


def _packets(found: PacketSum) -> str:
    return (
        f"{found.amount} in {found.packets} packet{'' if found.packets == 1 else 's'}" if found.packets else "nothing"
    )


PAGE: Final = Page(_show)
