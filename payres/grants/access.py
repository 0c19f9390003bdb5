"""Access: which access item of a grant permits what, and whose resources the caller then sees (part 5, rule 5).

`read-all` includes `read` and `list-all` includes `list`; nothing else implies anything. Without the `-all` form a
client reads and lists its own resources only, and what it may not see does not exist for it. `complete` is given for a
wallet address: it reaches what other clients made there.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from payres.errors import InsufficientAccess
from payres.store.tokens import TokenHolder
from payres.urls import normalise
from payres.wire import Access, Limits, OutgoingPaymentAccess

AccessType = Literal["incoming-payment", "outgoing-payment", "quote"]
Action = Literal["create", "complete", "read", "list"]

INCLUDING = {"read": "read-all", "list": "list-all"}


class Permission(msgspec.Struct, frozen=True):
    """What a verified request may do: the caller, its grant, and the access items that carry the type and action."""

    client_id: int
    grant_id: str
    token_id: str
    action: Action
    items: tuple[Access, ...]
    grant_stays: bool = False

    def item_for(self, wallet_address: str) -> Access:
        """The first item that covers this wallet address. Refuses with 403."""
        for item in self._covering(wallet_address):
            return item
        raise InsufficientAccess("The access token's grant does not cover this wallet address", reason="identifier")

    def owner_filter(self, wallet_address: str) -> int | None:
        """The client whose resources of this wallet address may be seen; None when all may. Refuses with 403."""
        self.item_for(wallet_address)
        return None if self._sees_all(wallet_address) else self.client_id

    def reaches(self, wallet_address: str, owner_id: int) -> bool:
        """Whether a resource that client `owner_id` made on this wallet address exists for the caller.

        Its own on a wallet address that the grant does not cover is refused with 403: that reveals nothing.
        """
        if owner_id == self.client_id:
            self.item_for(wallet_address)
            return True
        return self._sees_all(wallet_address)

    def _sees_all(self, wallet_address: str) -> bool:
        """`complete` is given for a wallet address, not for the client's own; reading and listing have their -all."""
        needed = INCLUDING.get(self.action, self.action)
        return any(needed in item.actions for item in self._covering(wallet_address))

    def _covering(self, wallet_address: str) -> Iterator[Access]:
        """Wallet paths do not tell upper from lower case, so their spellings are compared without it."""
        normal = normalise(wallet_address).lower()
        return (item for item in self.items if not item.identifier or normalise(item.identifier).lower() == normal)

    def limits_for(self, wallet_address: str) -> Limits | None:
        """The limits on spending from this wallet address, None when there are none. Refuses with 403."""
        item = self.item_for(wallet_address)
        return item.limits if isinstance(item, OutgoingPaymentAccess) and item.limits else None

    def identifier(self) -> str | None:
        """The one wallet address that the grant names, for requests that leave it out."""
        named = {normalise(item.identifier).lower() if item.identifier else "" for item in self.items}
        return (self.items[0].identifier or None) if len(named) == 1 else None


def permit(holder: TokenHolder, kind: AccessType, action: Action) -> Permission:
    """The permission that a token's grant gives for one action. Refuses with 403."""
    wanted: set[str] = {action, INCLUDING.get(action, action)}
    items = tuple(
        item
        for item in granted_access(holder.access)
        if item.__struct_config__.tag == kind and not wanted.isdisjoint(item.actions)
    )
    if not items:
        raise _missing(kind, action)
    return Permission(holder.client_id, holder.grant_id, holder.token_id, action, items, bool(holder.grant_stays))


def encode_access(items: list[Access]) -> str:
    """The JSON text that is stored and echoed."""
    return msgspec.json.encode(items).decode()


@lru_cache(maxsize=1024)
def granted_access(access: str) -> tuple[Access, ...]:
    """The access items in a stored JSON text."""
    return msgspec.json.decode(access, type=tuple[Access, ...])


def _missing(kind: AccessType, action: Action) -> InsufficientAccess:
    return InsufficientAccess(
        f"The access token does not permit this: ask for a grant with type {kind} and action {action}",
        reason="action",
        type=kind,
        action=action,
    )
