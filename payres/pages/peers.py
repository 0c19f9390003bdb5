"""An Interledger peer: who owes whom, what went wrong, and packets of unknown outcome."""

from typing import Any, Final

from starlette.responses import Response

from payres.admin import peers
from payres.admin.wire import PacketSum, Peer
from payres.pages.lists import AMOUNT, ASSET, MOVEMENT_COLUMNS, WALLET
from payres.pages.tables import Cell, Column, facts_of, make_table
from payres.pages.visit import View, Visit
from payres.store.pages import PageQuery
from payres.store.work import Work

FEW: Final = PageQuery(10, None, "older")


def _packets(found: PacketSum) -> Cell:
    counted = f"{found.packets} packet{'' if found.packets == 1 else 's'}"
    return Cell(f"{found.amount} in {counted}" if found.packets else "nothing")


def _largest(peer: Peer) -> Cell:
    return Cell("any size" if peer.max_packet is None else f"{peer.max_packet} of the smallest unit")


FACTS: Final = (
    Column("Standing", "standing"),
    Column("Balance", "balance", "number"),
    Column("Credit limit", "credit_limit", "number"),
    Column("It can still send", "left", "number"),
    Column("Reserved for packets from it", "reserved", "number"),
    Column("In flight to it", lambda peer: _packets(peer.in_flight)),
    Column("Of unknown outcome", lambda peer: _packets(peer.in_doubt)),
    Column("Asset", lambda peer: Cell(f"{peer.asset_code}, {peer.asset_scale} decimals")),
    Column("Packets received", "packets_received", "number"),
    Column("Packets sent", "packets_sent", "number"),
    Column("Largest packet", _largest),
    Column("Repeats answers", lambda peer: Cell("yes" if peer.repeats_answers else "not known")),
    Column("ILP address", "ilp_address", "code"),
    Column("Routes", "routes", "code"),
    Column("URL", "url", "code"),
    Column("Last error", "last_error"),
    Column("At (UTC)", "last_error_at", "time"),
    Column("Added (UTC)", "created_at", "time"),
)
PACKET_COLUMNS: Final = (
    Column("Packet", "id", "code", "packets"),
    Column("Payment", "payment", "code", "payments"),
    WALLET,
    AMOUNT,
    ASSET,
    Column("Expired (UTC)", "expired_at", "time"),
)


@View
async def page(visit: Visit) -> Response:
    """The page of a peer."""
    name = visit.segments["name"]

    def unit(work: Work) -> dict[str, Any]:
        unresolved = peers.list_unresolved(work, name).result
        settlements = peers.list_settlements(work, name, FEW).result
        return {
            "facts": facts_of(FACTS, peers.show(work, name)),
            "packets": make_table("Unresolved packets", PACKET_COLUMNS, unresolved, "The outcome of each is known"),
            "settlements": make_table("Settlements", MOVEMENT_COLUMNS, settlements, "Nothing was settled yet"),
        }

    return visit.show("peer.html", "/peers", title=name, **await visit.read(unit))
