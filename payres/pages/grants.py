"""Grants: what clients may do, what they have spent, and what is left."""

from typing import Final

import msgspec
from starlette.responses import Response

from payres.admin import grants
from payres.admin.wire import Grant
from payres.grants.wording import describe_access, visible_name
from payres.pages.listing import Listing, page_for
from payres.pages.tables import Cell, Column, linked, page_of, state, time
from payres.pages.visit import Page, Visit
from payres.store.work import Work


def client_cell(one: Grant) -> Cell:
    """The client, with its own name for itself in quotes: only the address is verified."""
    name = visible_name(one.client_name, one.client)
    return Cell(f"{one.client} “{name}”" if name else one.client, "long")


def spent_cell(one: Grant) -> Cell:
    """What was spent in the window that is open now."""
    return Cell(f"{one.spending.debit} {one.spending.debit_asset_code}" if one.spending else "", "number")


def left_cell(one: Grant) -> Cell:
    """What the limits leave."""
    found = one.spending
    if found is None:
        return Cell("", "number")
    if found.debit_left is not None:
        return Cell(f"{found.debit_left} {found.debit_asset_code}", "number")
    if found.receive_left is not None:
        return Cell(f"{found.receive_left} {found.receive_asset_code} to receive", "number")
    return Cell("no limit", "number")


COLUMNS: Final = (
    Column("Asked for (UTC)", time("created_at")),
    Column("Grant", lambda one: linked("grants", one.id, "code")),
    Column("Client", client_cell),
    Column("Wallet", lambda one: Cell(one.wallet_address or "", "long")),
    Column("State", state),
    Column("Spent", spent_cell),
    Column("Left", left_cell),
)
LIST: Final = page_for(Listing("Grants", "grants.list_page", COLUMNS, "No client has asked for such a grant"))


async def _show(visit: Visit) -> Response:
    def unit(work: Work) -> Grant:
        return grants.show(work, visit.segments["id"])

    grant = await visit.read(unit)
    urls, wallet_address = visit.context.urls, grant.wallet_address or ""
    path = urls.wallet_path(wallet_address)
    consent = grant.interaction
    facts = [
        ("State", Cell(grant.state, "state")),
        ("Client", client_cell(grant)),
        ("Wallet", linked("wallets", path) if path else Cell("")),
        ("Spent", spent_cell(grant)),
        ("Left", left_cell(grant)),
        ("Asked for (UTC)", Cell(grant.created_at, "time")),
        ("Consent until (UTC)", Cell(consent.expires_at if consent and not consent.decided_at else "", "time")),
        ("Decided (UTC)", Cell((consent.decided_at or "") if consent else "", "time")),
        ("Ended (UTC)", Cell(grant.ended_at or "", "time")),
        ("Afterwards the owner goes to", Cell((consent.finish or "") if consent else "", "code")),
    ]
    actions = [] if grant.ended_at else [("Revoke", f"{page_of('grants', grant.id)}/revoke")]
    access = describe_access(msgspec.json.encode(grant.access).decode(), wallet_address)
    return visit.show("grant.html", "/grants", title=grant.id, facts=facts, access=access, actions=actions)


PAGE: Final = Page(_show)
