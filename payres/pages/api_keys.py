"""The keys of programs that use the operator's API."""

from typing import Final

from payres.pages.listing import Listing, page_for
from payres.pages.tables import Cell, Column, linked, long, state, time

COLUMNS: Final = (
    Column("Key", lambda one: linked("api-keys", one.id, "code")),
    Column("Name", long("name")),
    Column("Scopes", lambda one: Cell(" ".join(one.scopes), "code")),
    Column("State", state),
    Column("Created (UTC)", time("created_at")),
    Column("Expires (UTC)", time("expires_at")),
    Column("Last used (UTC)", time("last_used_at")),
)
LIST: Final = page_for(
    Listing("API keys", "api_keys.list_page", COLUMNS, "There are no API keys; `payres api-key create` makes one")
)
