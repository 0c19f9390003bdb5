"""Reading: what is the same for one resource and for a page of them, whatever their kind."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.errors import NotFound
from payres.grants.access import AccessType, Caller
from payres.http.responses import json_response
from payres.routes.authorize import authorize
from payres.routes.bodies import pagination
from payres.routes.context import context_of
from payres.routes.messages import read_body
from payres.routes.page_query import page_query, wallet_address_of
from payres.store import wallets
from payres.store.pages import PageBounds, PageQuery
from payres.store.wallets import WalletRecord, active_wallet
from payres.store.work import Transaction, Work
from payres.urls import Urls
from payres.wire import Resource, ResourcePage


class Record(Protocol):
    """A row that belongs to a wallet address and to the client that made it."""

    @property
    def id(self) -> str: ...

    @property
    def wallet_address_id(self) -> int: ...

    @property
    def client_id(self) -> int: ...


R = TypeVar("R", bound=Record)


class Kind(msgspec.Struct, Generic[R], frozen=True):
    """What the resources differ in: their access type, their name, how one is found, and how it is shown."""

    type: AccessType
    noun: str
    find: Callable[[Transaction, str], R | None]
    show: Callable[[Urls, WalletRecord, R], Resource]


async def read(request: Request, kind: Kind[R]) -> tuple[WalletRecord, R]:
    """The resource that the path names, with its wallet. Raises NotFound, InsufficientAccess."""
    body = await read_body(request)
    caller = await authorize(request, body, kind.type, "read")
    unit = partial(find_visible, kind=kind, caller=caller, record_id=request.path_params["id"])
    return await context_of(request).database.read(unit)


def find_visible(work: Work, kind: Kind[R], caller: Caller, record_id: str) -> tuple[WalletRecord, R]:
    """The resource, if it exists for the caller. Raises NotFound, InsufficientAccess."""
    wallet, record = find(work, kind, record_id)
    caller.require_sight(work.urls.wallet(wallet.path), record.client_id, _missing(kind))
    return wallet, record


def find(work: Work, kind: Kind[R], record_id: str) -> tuple[WalletRecord, R]:
    """The resource, whoever made it. Raises NotFound."""
    record = kind.find(work, record_id)
    if record is None:
        raise _missing(kind)
    return wallets.wallet_by_id(work, record.wallet_address_id), record


class Page(msgspec.Struct, Generic[R], frozen=True):
    """A page of a wallet address's resources, as found."""

    wallet: WalletRecord
    records: Sequence[R]
    bounds: PageBounds


class Pages(msgspec.Struct, Generic[R], frozen=True):
    """How pages of a kind are found: those of one client, or of all."""

    kind: Kind[R]
    find: Callable[[Transaction, int, int | None, PageQuery], tuple[Sequence[R], PageBounds]]


async def read_page(request: Request, pages: Pages[R]) -> Response:
    """The page that the query asks for. Specification 4.1, 4.2."""
    context, kind = context_of(request), pages.kind
    body = await read_body(request)
    caller = await authorize(request, body, kind.type, "list")
    query = page_query(request)
    unit = partial(_find_page, pages=pages, caller=caller, wallet_address=wallet_address_of(request), query=query)
    page = await context.database.read(unit)
    result = [kind.show(context.urls, page.wallet, record) for record in page.records]
    return json_response(ResourcePage(pagination=pagination(page.records, page.bounds), result=result))


def _find_page(work: Work, pages: Pages[R], caller: Caller, wallet_address: str, query: PageQuery) -> Page[R]:
    caller.require(wallet_address)
    owner = None if caller.sees_all(wallet_address) else caller.client_id
    wallet = active_wallet(work, wallet_address, "wallet-address")
    return Page(wallet, *pages.find(work, wallet.id, owner, query))


def _missing(kind: Kind[R]) -> NotFound:
    """The same answer whether it does not exist or is another client's."""
    return NotFound(f"There is no such {kind.noun}, or it is not this client's")
