"""Two instances as Interledger peers, so that wallets of one can pay into wallets of the other."""

import secrets
from collections.abc import Sequence
from functools import partial

from payres.amounts import MAX_LEDGER, Asset, format_decimal, parse_decimal
from payres.operator.peer_terms import NewPeer
from payres.operator.peers import add_peer
from payres.testing.instance import Instance


def peer(
    one: Instance,
    other: Instance,
    asset: str = "USD",
    scale: int = 2,
    *,
    credit_limit: str = "1000000.00",
    max_packet: int | None = None,
    routes: Sequence[str] = (),
) -> None:
    """Peers two instances; each is to the other a peer whose name is its ILP address, so these must differ.

    The link is in one currency. `credit_limit` (decimal text) is what each may owe the other, `max_packet` (minor
    units) the most that each takes in a packet, and `routes` are ILP addresses that `one` reaches through `other`,
    besides its own.
    """
    unit = Asset(asset, scale)
    limit = format_decimal(min(parse_decimal(credit_limit, unit), MAX_LEDGER), unit)
    tokens = secrets.token_urlsafe(), secrets.token_urlsafe()
    for here, there, (shown, seen), beyond in ((one, other, tokens, routes), (other, one, tokens[::-1], ())):
        address = there.context.settings.ilp_address
        new = NewPeer(
            name=address,
            ilp_address=address,
            asset_code=asset,
            asset_scale=scale,
            url=f"{there.base_url}/ilp",
            outgoing_token=shown,
            incoming_token=seen,
            max_packet=max_packet,
            credit_limit=limit,
            routes=beyond,
        )
        here.write(partial(add_peer, new=new))
