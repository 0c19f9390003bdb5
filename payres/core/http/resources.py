"""Creating, reading and listing of incoming payments, quotes and outgoing payments."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import UnsetType
from starlette.requests import Request
from starlette.responses import Response

from payres.core.grants.access import Caller
from payres.core.grants.tokens import require_still_valid
from payres.core.http.authorize import authorize, authorize_reading
from payres.core.http.context import Context, context_of
from payres.core.http.observation import observation_of
from payres.core.http.request_head import header
from payres.core.http.requests import idempotency_key, page_query, read_body, read_json_body, wallet_address_of
from payres.core.http.responses import json_response
from payres.core.http.waiting import preferred_wait, wait_for_change
from payres.core.payments.idempotency import KeyedRequest, cache_response, find_response
from payres.core.payments.remote import Remote
from payres.core.protocol.amounts import Offer
from payres.core.protocol.errors import NotFound
from payres.core.protocol.gnap import AccessType
from payres.core.protocol.urls import Urls
from payres.core.protocol.wire import Page, WalletResource, decode, encode
from payres.core.store import wallets
from payres.core.store.grants import keep_grant
from payres.core.store.incoming_payments import IncomingRecord
from payres.core.store.outgoing_payments import OutgoingRecord
from payres.core.store.quotes import QuoteRecord
from payres.core.store.representations import page_of
from payres.core.store.rows import Table, page_of_wallet
from payres.core.store.wallets import WalletRecord, active_wallet
from payres.core.store.work import Work


class CreationRequest(Protocol):
    """A request body. An incoming payment may leave the wallet address to the grant."""

    @property
    def wallet_address(self) -> str | UnsetType: ...


A = TypeVar("A", bound=CreationRequest)
R = TypeVar("R", bound=IncomingRecord | OutgoingRecord | QuoteRecord)
B = TypeVar("B", bound=WalletResource)


class ResourceKind(msgspec.Struct, Generic[A, R, B], frozen=True):
    """What differs between resources: access type, table, representation and creation.

    `create` creates the resource in a unit of work and returns its representation, which `show_created` completes for
    the response. `find_offer` runs before it and asks the server of a remote receiver, if there can be one. Then
    `on_created` runs, after the commit. `is_final` says whether a resource can no longer change at a time; None if the
    kind never changes.
    """

    type: AccessType
    table: Table[R]
    show: Callable[[Urls, WalletRecord, R], B]
    decoder: msgspec.json.Decoder[A]
    create: Callable[[Work, Caller, A, Offer | None], B]
    show_created: Callable[[Context, B], B] | None = None
    find_offer: Callable[[Remote, Caller, A], Awaitable[Offer | None] | None] | None = None
    on_created: Callable[[Context, B], None] | None = None
    is_final: Callable[[R, int], bool] | None = None


async def create(request: Request, kind: ResourceKind[A, R, B]) -> Response:
    """201 with the resource, created now or by an earlier copy of the request.

    The order of the steps is the order of errors: 401, 403 by type and action, the key and the body, 403 by wallet
    address, the rules.
    """
    context = context_of(request)
    body = await read_json_body(request)
    caller = await authorize(request, body, kind.type, "create")
    key = idempotency_key(request.scope["headers"])
    asked = decode(kind.decoder, body)
    caller = caller.about(asked.wallet_address or None, context.urls)
    if key is None:
        answer, made = await _create(kind, context, caller, asked, None)
    else:
        implied = None if asked.wallet_address else caller.wallet_address
        keyed = KeyedRequest(caller.client_id, key, request.scope["path"], body, implied)
        # A copy waits for the first request, which may take seconds, and gets its response.
        async with context.idempotency_slots.slot(caller.client_id, key):
            answer, made = await _create(kind, context, caller, asked, keyed)
    if made is not None:
        observation_of(request.scope).payment = made.id.rpartition("/")[2]
        if kind.on_created is not None:
            kind.on_created(context, made)
    return json_response(msgspec.Raw(answer), 201, _echo(request))


def _echo(request: Request) -> Mapping[str, str]:
    """The Idempotency-Key as sent, which tells clients that requests that move money may be repeated."""
    key = header(request.scope["headers"], b"idempotency-key")
    return {} if key is None else {"Idempotency-Key": key.decode("latin-1")}


async def read(request: Request, kind: ResourceKind[A, R, B]) -> Response:
    """The resource of the path. Raises NotFound, InsufficientAccess."""
    wallet, record, headers = await find_visible(request, kind)
    return json_response(kind.show(context_of(request).urls, wallet, record), headers=headers)


async def list_page(request: Request, kind: ResourceKind[A, R, B]) -> Response:
    """The requested page, of one client's resources or of all. Specification 4.1, 4.2."""
    body = await read_body(request)

    def unit(work: Work, caller: Caller) -> "Page[B]":
        query, caller = page_query(request), caller.about(wallet_address_of(request), work.urls)
        wallet = active_wallet(work, caller.wallet_address, "wallet-address")
        found = page_of_wallet(work, kind.table, query, wallet.id, caller.only_client)
        return page_of(found, partial(kind.show, work.urls, wallet))

    return json_response(await authorize_reading(request, body, kind.type, "list", unit))


async def find_visible(request: Request, kind: ResourceKind[A, R, B]) -> tuple[WalletRecord, R, Mapping[str, str]]:
    """The wallet and resource of the path, after a change if the request prefers to wait, and response headers.

    Raises NotFound, InsufficientAccess, and the errors of `require_still_valid`.
    """
    body = await read_body(request)
    record_id: str = request.scope["path_params"]["id"]

    # The types are quoted because an inner function's annotations are evaluated on each call.
    def find_first(work: Work, caller: Caller) -> "tuple[Caller, tuple[WalletRecord, R]]":
        return caller, find(work, kind, record_id, caller)

    def find_again(work: Work) -> "tuple[WalletRecord, R]":
        require_still_valid(work, caller)
        return find(work, kind, record_id, caller)

    caller, found = await authorize_reading(request, body, kind.type, "read", find_first)
    return await find_changed(request, kind, caller.client_id, found, find_again)


async def find_changed(
    request: Request,
    kind: ResourceKind[A, R, B],
    who: Hashable,
    before: tuple[WalletRecord, R],
    find_again: Callable[[Work], tuple[WalletRecord, R]],
) -> tuple[WalletRecord, R, Mapping[str, str]]:
    """`before` and response headers; if the request prefers to wait, the result of `find_again` after a change."""
    seconds = preferred_wait(request.scope["headers"])
    is_final = kind.is_final
    if seconds is None or is_final is None:
        return *before, {}
    context = context_of(request)

    def ends(found: tuple[WalletRecord, R]) -> bool:
        return found != before or is_final(found[1], context.clock.now())

    found, headers = await wait_for_change(request, seconds, who, before[1].id, find_again, ends)
    return *found, headers


def find(
    work: Work, kind: ResourceKind[A, R, B], record_id: str, caller: Caller | None = None
) -> tuple[WalletRecord, R]:
    """The resource and its wallet, if the caller may see it; without a caller, any. Raises NotFound, and
    InsufficientAccess for the caller's own resource on a wallet address that its grant does not cover."""
    # Hidden resources are excluded by the query, so that they take no longer than missing ones.
    found = wallets.find_with_wallet(work, kind.table, record_id, caller.only_client if caller else None)
    if found is None or (caller and not caller.sees(work.urls.wallet(found[1].path), found[0].client_id)):
        # The same response if it does not exist or is another client's.
        raise NotFound(f"There is no such {kind.type.replace('-', ' ')}, or it is not this client's")
    record, wallet = found
    return wallet, record


async def _create(
    kind: ResourceKind[A, R, B], context: Context, caller: Caller, asked: A, keyed: KeyedRequest | None
) -> tuple[bytes, B | None]:
    """The response body, and the created resource; None for a repeated request, which asks no other server.

    The body is stored under the key in the same commit as the resource. Raises KeyReused, and the errors of
    `require_still_valid` and of creating; then nothing is stored, and the key stays unused.
    """
    find_earlier = partial(_find_earlier, caller=caller, keyed=keyed)
    offer: Offer | None = None
    if kind.find_offer is not None:
        earlier = await context.database.read(find_earlier) if keyed is not None else None
        if earlier is not None:
            return earlier, None
        found = kind.find_offer(context.remote, caller, asked)
        offer = None if found is None else await found

    def unit(work: Work) -> "tuple[bytes, B | None]":
        earlier = find_earlier(work)
        if earlier is not None:
            return earlier, None
        if not caller.holder.record.grant_stays:
            keep_grant(work, caller.grant_id)
        made = kind.create(work, caller, asked, offer)
        if kind.show_created is not None:
            made = kind.show_created(context, made)
        answer = encode(made)
        cache_response(work, keyed, answer)
        return answer, made

    return await context.database.write(unit)


def _find_earlier(work: Work, caller: Caller, keyed: KeyedRequest | None) -> bytes | None:
    """The body that answered an earlier copy of the request."""
    require_still_valid(work, caller)
    return find_response(work, keyed)
