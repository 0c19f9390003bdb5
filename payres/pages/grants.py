"""A grant: what a client may do, what it has spent, and what is left."""

from functools import partial

import msgspec
from starlette.responses import Response

from payres.admin import grants
from payres.grants.wording import describe_access
from payres.pages.lists import CLIENT, LEFT, SPENT, STATE
from payres.pages.tables import cell_of, facts_of, linked, page_of
from payres.pages.visit import View, Visit


@View
async def page(visit: Visit) -> Response:
    """The page of a grant."""
    grant = await visit.read(partial(grants.show, id=visit.segments["id"]))
    wallet_address, consent = grant.wallet_address or "", grant.interaction
    facts = [
        *facts_of([STATE, CLIENT], grant),
        ("Wallet", linked("wallets", visit.context.urls.wallet_path(wallet_address))),
        *facts_of([SPENT, LEFT], grant),
        ("Asked for (UTC)", cell_of(grant.created_at, "time")),
        ("Consent until (UTC)", cell_of(consent.expires_at if consent and not consent.decided_at else None, "time")),
        ("Decided (UTC)", cell_of(consent and consent.decided_at, "time")),
        ("Ended (UTC)", cell_of(grant.ended_at, "time")),
        ("Afterwards the owner goes to", cell_of(consent and consent.finish, "code")),
    ]
    actions = [] if grant.ended_at else [("Revoke", f"{page_of('grants', grant.id)}/revoke")]
    access = describe_access(msgspec.json.encode(grant.access).decode(), wallet_address)
    return visit.show("grant.html", "/grants", title=grant.id, facts=facts, access=access, actions=actions)
