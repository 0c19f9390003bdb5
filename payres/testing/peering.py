"""Two servers as Interledger peers, so that wallets of one can pay into wallets of the other."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from payres.core.process.settings import Settings
from payres.core.protocol.amounts import MAX_LEDGER, Asset, format_decimal, parse_decimal
from payres.interledger.settings import InterledgerSettings
from payres.operator.peers import add_peer

if TYPE_CHECKING:
    from payres.testing.instance import Instance


def peer(
    one: "Instance",
    other: "Instance",
    asset: str = "USD",
    scale: int = 2,
    *,
    credit_limit: str = "1000000.00",
    max_packet: int | None = None,
    routes: Sequence[str] = (),
) -> None:
    """Peers two instances. A peer's name is its ILP address, so these must differ.

    The link is in one currency. `credit_limit` (a decimal) is the most that each may owe the other, `max_packet` (minor
    units) the largest packet that each accepts, and `routes` are further ILP addresses that `one` reaches through
    `other`.
    """
    unit = Asset(asset, scale)
    limit = format_decimal(min(parse_decimal(credit_limit, unit), MAX_LEDGER), unit)
    of_one, of_other = peers_of(
        one.context.settings, other.context.settings, unit, limit, max_packet=max_packet, routes=routes
    )
    one.write(partial(add_peer, **of_one))
    other.write(partial(add_peer, **of_other))


def peers_of(
    one: Settings,
    other: Settings,
    asset: Asset,
    credit_limit: str,
    *,
    max_packet: int | None = None,
    routes: Sequence[str] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of `add_peer` for `one` and for `other`, with two new shared tokens."""
    tokens = secrets.token_urlsafe(), secrets.token_urlsafe()

    def terms(there: Settings, outgoing: str, incoming: str, beyond: Sequence[str]) -> dict[str, Any]:
        address = there.of(InterledgerSettings).ilp_address
        return {
            "name": address,
            "ilp_address": address,
            "asset_code": asset.code,
            "asset_scale": asset.scale,
            "url": f"{there.base_url}/ilp",
            "outgoing_token": outgoing,
            "incoming_token": incoming,
            "max_packet": max_packet,
            "credit_limit": credit_limit,
            "routes": beyond,
        }

    return terms(other, *tokens, routes), terms(one, *tokens[::-1], ())
