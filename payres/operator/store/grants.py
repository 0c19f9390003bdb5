"""SQL of pages of grants in each state."""

from collections.abc import Mapping, Sequence
from typing import Final

from payres.core.store.grants import GRANTS, TO_CONTINUE, GrantRecord, GrantState
from payres.core.store.rows import PageBounds, PageQuery, Table, lasting, select_page
from payres.core.store.work import Transaction

WITH_INTERACTION = Table(GrantRecord, '"grant" g JOIN interaction i ON i.grant_id = g.id', prefix="g.")
# Starts from the interactions, newest first, to skip the grants without one, which may be far more.
CONSENTED = Table(GrantRecord, 'interaction i CROSS JOIN "grant" g ON g.id = i.grant_id', prefix="g.", key="i.grant_id")

# For each state, the stored state, and whether that lasts; and until when, and how long a stored state does.
IN_TIME: Final = {
    "pending": ("pending", ""),
    "expired": ("pending", "NOT "),
    "approved": ("approved", ""),
    "lapsed": ("approved", "NOT "),
}
_UNTIL: Final[Mapping[str, tuple[str, int | str]]] = {
    "pending": ("i.expires_at", "i.expires_at - g.created_at"),
    "approved": (f"i.decided_at + {TO_CONTINUE}", TO_CONTINUE),
}


def page_of_grants(
    tx: Transaction,
    state: GrantState | None,
    query: PageQuery,
    now: int,
    without_consent: bool,
    wallet_id: int | None = None,
) -> tuple[Sequence[GrantRecord], PageBounds]:
    """A page of grants, newest first, in one state or all; `without_consent` includes those that needed no consent.
    Only those that ask the owner of a wallet, if one is given.

    `expired` grants were not decided in time, `lapsed` ones were approved but not continued in time.
    """
    of_wallet = {"wallet_address_id = ?": wallet_id}
    if state not in IN_TIME:
        # Most grants in the other states had an interaction.
        table = GRANTS if without_consent else CONSENTED if state in {None, "issued"} else WITH_INTERACTION
        return select_page(tx, table, query, {"state = ?": state} | of_wallet)
    stored, negated = IN_TIME[state]
    column, lifetime = _UNTIL[stored]
    in_time, times = lasting(column, now, lifetime)
    return select_page(tx, WITH_INTERACTION, query, {"g.state = ?": stored, f"{negated}{in_time}": times} | of_wallet)
