"""Access: what the access items of a grant permit, and which resources the caller sees.

Specification 5.5. `read-all` includes `read` and `list-all` includes `list`; no other action includes another. Without
the `-all` form a client reads, lists and completes only its own resources; others are answered as if they did not
exist.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from payres.core.protocol.errors import InsufficientAccess, InvalidRequest
from payres.core.protocol.gnap import Access, AccessType, Limits, OutgoingPaymentAccess
from payres.core.protocol.urls import Urls, canonical
from payres.core.signatures.jwk import JWK
from payres.core.store.clients import Client
from payres.core.store.grants import TokenHolder

# The actions of requests.
Action = Literal["create", "complete", "read", "list"]
# The forms of actions that include resources of other clients.
INCLUDING = {"read": "read-all", "list": "list-all"}


class Holder(NamedTuple):
    """A token's grant, its client, and those of the client's valid keys that were asked for by id, perhaps with others.

    `revision` is the database's `authorization_revision` if all of this is unchanged until that changes, else None.
    """

    record: TokenHolder
    client: Client
    kids: Sequence[str]
    keys: Mapping[str, JWK]
    revision: int | None = None


class Caller(msgspec.Struct, frozen=True):
    """The client of a verified request, with its grant's access items of the requested type and action.

    `wallet_address` is the wallet address of the request, once known; all items then cover it. `pays` if the request
    creates an outgoing payment; reading what a grant has spent needs the same action.
    """

    holder: Holder
    action: Action
    items: tuple[Access, ...]
    wallet_address: str = ""
    pays: bool = False

    @property
    def client_id(self) -> int:
        return self.holder.record.client_id

    @property
    def grant_id(self) -> str:
        return self.holder.record.grant_id

    def about(self, named: str | None, urls: Urls) -> "Caller":
        """The caller of a request about the wallet address that it names, or else the one in the grant.

        Raises InvalidRequest if neither names one, InsufficientAccess if no item covers it.
        """
        identifiers = {canonical(item.identifier).lower() if item.identifier else "" for item in self.items}
        found = named or (self.items[0].identifier if len(identifiers) == 1 else None)
        if not found:
            raise InvalidRequest("walletAddress is needed: the grant does not name one", field="walletAddress")
        wallet_address = urls.own(found)
        return msgspec.structs.replace(self, items=self._covering(wallet_address), wallet_address=wallet_address)

    @property
    def only_client(self) -> int | None:
        """The caller's client id, if it sees only its own resources; None if an -all action includes others'."""
        return None if self._has_all(self.items) else self.client_id

    @property
    def limits(self) -> Limits | None:
        """The limits on spending from the wallet address, None if there are none."""
        item = self.items[0]
        return item.limits if isinstance(item, OutgoingPaymentAccess) and item.limits else None

    def sees(self, wallet_address: str, owner_id: int) -> bool:
        """Whether the caller may learn of a resource of client `owner_id` on this wallet address.

        Raises InsufficientAccess for the caller's own resource on another wallet address, which reveals nothing.
        """
        if owner_id == self.client_id:
            return bool(self._covering(wallet_address))
        return self._has_all(item for item in self.items if _covers(item, wallet_address))

    def _covering(self, wallet_address: str) -> tuple[Access, ...]:
        found = tuple(item for item in self.items if _covers(item, wallet_address))
        if not found:
            raise InsufficientAccess("The access token's grant does not cover this wallet address", reason="identifier")
        return found

    def _has_all(self, items: Iterable[Access]) -> bool:
        needed = INCLUDING.get(self.action)
        return any(needed in item.actions for item in items)


def permit(holder: Holder, kind: AccessType, action: Action, *, pays: bool = False) -> Caller:
    """The holder of a token as the caller of one action. Raises InsufficientAccess."""
    items = _permitting(holder.record.access, kind, action)
    if not items:
        raise InsufficientAccess(
            f"The access token does not permit this: ask for a grant with type {kind} and action {action}",
            reason="action",
            type=kind,
            action=action,
        )
    return Caller(holder, action, items, pays=pays)


@lru_cache(maxsize=1024)
def granted_access(access: str) -> tuple[Access, ...]:
    """The access items in the JSON text that is stored and returned to the client."""
    return msgspec.json.decode(access, type=tuple[Access, ...])


@lru_cache(maxsize=1024)
def _permitting(access: str, kind: AccessType, action: Action) -> tuple[Access, ...]:
    """The access items in a stored JSON text with a type and an action."""
    wanted: set[str] = {action, INCLUDING.get(action, action)}
    return tuple(
        item
        for item in granted_access(access)
        if item.__struct_config__.tag == kind and not wanted.isdisjoint(item.actions)
    )


def _covers(item: Access, wallet_address: str) -> bool:
    """Whether the item covers the wallet address, ignoring case in paths."""
    return not item.identifier or canonical(item.identifier).lower() == canonical(wallet_address).lower()
