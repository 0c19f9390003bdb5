"""Access: which access item of a grant permits what (decisions: Access; facts 1.1).

`read-all` includes `read` and `list-all` includes `list`; nothing else implies anything. Without the `-all` form a
client sees its own resources only, and what it may not see does not exist for it.
"""

from functools import lru_cache
from typing import Literal

import msgspec

from payres.errors import Refusal, insufficient_access
from payres.urls import normalise
from payres.wire import Access, IncomingPaymentAccess, Limits, OutgoingPaymentAccess, QuoteAccess

AccessType = Literal["incoming-payment", "outgoing-payment", "quote"]
Action = Literal["create", "complete", "read", "list"]

STRUCTS = {"incoming-payment": IncomingPaymentAccess, "outgoing-payment": OutgoingPaymentAccess, "quote": QuoteAccess}
INCLUDING = {"read": "read-all", "list": "list-all"}


class Permission(msgspec.Struct, frozen=True):
    """What a verified request may do: the caller, its grant, and the access items that carry the type and action."""

    client_id: int
    grant_id: str
    action: Action
    items: tuple[Access, ...]

    def item_for(self, wallet_address: str) -> Access:
        """The first item that covers this wallet address. Refuses with 403."""
        normal = normalise(wallet_address)
        for item in self.items:
            if not item.identifier or normalise(item.identifier) == normal:
                return item
        raise insufficient_access("identifier", "The access token's grant does not cover this wallet address")

    def owner_filter(self, wallet_address: str) -> int | None:
        """The client whose resources of this wallet address may be seen; None when all may. Refuses with 403."""
        item = self.item_for(wallet_address)
        return None if INCLUDING.get(self.action) in item.actions else self.client_id

    def limits_for(self, wallet_address: str) -> Limits | None:
        """The limits on spending from this wallet address, None when there are none. Refuses with 403."""
        item = self.item_for(wallet_address)
        return item.limits or None if isinstance(item, OutgoingPaymentAccess) else None

    def identifier(self) -> str | None:
        """The one wallet address that the grant names, for requests that leave it out."""
        named = {item.identifier for item in self.items}
        only = named.pop() if len(named) == 1 else None
        return only or None


def permit(client_id: int, grant_id: str, access: str, kind: AccessType, action: Action) -> Permission:
    """The permission that a grant's access (JSON text) gives for one action. Refuses with 403."""
    wanted = {action, INCLUDING.get(action, action)}
    items = tuple(item for item in _items(access) if isinstance(item, STRUCTS[kind]) and wanted & set(item.actions))
    if not items:
        raise _missing(kind, action)
    return Permission(client_id, grant_id, action, items)


def encode_access(items: list[Access]) -> str:
    """The JSON text that is stored and echoed."""
    return msgspec.json.encode(items).decode()


@lru_cache(maxsize=1024)
def _items(access: str) -> tuple[Access, ...]:
    return msgspec.json.decode(access, type=tuple[Access, ...])


def granted_access(access: str) -> tuple[Access, ...]:
    """The access items in a stored JSON text."""
    return _items(access)


def _missing(kind: AccessType, action: Action) -> Refusal:
    return insufficient_access(
        "action",
        f"The access token does not permit this: ask for a grant with type {kind} and action {action}",
        type=kind,
        action=action,
    )
