"""Names that tests give in requests and rules: only what is known by them can ever match."""

from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import msgspec

from payres.core.http.context import Context
from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.urls import canonical, is_http_url
from payres.core.remote.connection import FetchFailed
from payres.core.remote.wallet_addresses import fetch_keys
from payres.core.store import wallets
from payres.core.store.clients import CLIENTS
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work

T = TypeVar("T", bound=msgspec.Struct)
LISTED: Final = 50  # known names in an error


def require_known(name: str | None, known: Collection[str], member: str) -> None:
    """Raises InvalidRequest, which lists the known names, for another one. None is no name."""
    if name is not None and name not in known:
        raise InvalidRequest(f"There is no {member} {name!r}, but: {', '.join([*known][:LISTED])}", field=member)


def require_operation(id: str | None) -> None:
    """Raises InvalidRequest if there is no such published operationId."""
    from payres.openapi.resources import OPERATIONS

    require_known(id, [one.id for one in OPERATIONS.values()], "operation")


def wallet_named(work: Work, name: str, member: str = "wallet") -> WalletRecord:
    """The wallet with this path or address. Raises InvalidRequest."""
    known = {one.path: one for one in wallets.WALLETS.list(work)}
    path = (work.urls.wallet_path(name) or name).strip("/").lower()
    require_known(path, known, member)
    return known[path]


async def with_known(context: Context, given: T) -> T:
    """A rule or filter with its wallet as a path and its client as the identity that requests have.

    Raises InvalidRequest if there is no such wallet or client.
    """
    found: dict[str, str] = {}
    wallet, client = (getattr(given, member, None) for member in ("wallet", "client"))
    if wallet is not None:
        found["wallet"] = (await context.database.read(partial(wallet_named, name=wallet))).path
    if client is not None:
        found["client"] = await _client_named(context, client)
    return msgspec.structs.replace(given, **found)


async def _client_named(context: Context, name: str) -> str:
    """The identity of the client with this wallet address, path or thumbprint."""
    address = name if is_http_url(name) else context.urls.wallet(name.strip("/").lower())
    path, known = context.urls.wallet_path(address), await context.database.read(_known_clients)
    if name in known:
        return name
    identity = canonical(address if path is None else context.urls.wallet(path))
    if identity not in known and path is None:  # its first request may still be to come
        with suppress(FetchFailed):
            if (await fetch_keys(context.http, address)).keys:
                return identity
    require_known(identity, known, "client")
    return identity


def _known_clients(work: Work) -> list[str]:
    """The identities of wallets with a key, and of all that have asked."""
    here = [work.urls.wallet(one.path) for one in wallets.WALLETS.list(work) if wallets.list_keys(work, one.id)]
    return list(dict.fromkeys([*map(canonical, here), *(one.identity for one in CLIENTS.list(work))]))
