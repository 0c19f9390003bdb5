"""The Open Payments operation, wallet and client of a request."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.types import Scope

from payres.core.grants import clients
from payres.core.http.request_head import credentials, header
from payres.core.http.routing import Route, Router
from payres.core.protocol.errors import DomainError
from payres.core.protocol.gnap import ClientInstance, GrantRequest
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.clients import CLIENTS, Client
from payres.core.store.grants import GRANTS, INTERACTIONS, TOKENS, GrantRecord, TokenHolder, find_holder
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.quotes import QUOTES
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.testing.request_rules import CONSENT_PAGE

T = TypeVar("T")

ROUTER: Final = Router()  # of the core, whose operations these are
TABLES: Final[Mapping[str, Any]] = {"incoming-payments": INCOMING, "quotes": QUOTES, "outgoing-payments": OUTGOING}


class Asked(msgspec.Struct, frozen=True):
    """The published operationId, path of the local wallet, client, id of the access token, and whether there is a
    signature. None if absent or unknown."""

    operation: str | None = None
    wallet: str | None = None
    client: Client | None = None
    token: str | None = None
    signature: bool = False


class _Body(msgspec.Struct, rename="camel"):
    """The body of a request that creates a resource or asks for a grant."""

    wallet_address: str | None = None
    client: str | ClientInstance = ""


def find_asked(work: Work, scope: Scope, body: bytes) -> Asked:
    """The operation of a request, before or just after it is answered."""
    value = credentials(scope["headers"], "gnap")
    holder = None if value is None else find_holder(work, hash_secret(value))
    found = _asked(work, scope, body, holder)
    return msgspec.structs.replace(
        found,
        token=None if holder is None else holder.token_id,
        signature=header(scope["headers"], b"signature") is not None,
    )


def of_grant(work: Work, grant: GrantRecord) -> Asked:
    id = grant.wallet_address_id
    return Asked(
        wallet=None if id is None else WALLETS.by_id(work, id).path, client=CLIENTS.by_id(work, grant.client_id)
    )


def _asked(work: Work, scope: Scope, body: bytes, holder: TokenHolder | None) -> Asked:
    operation, collection, named = _operation(scope)
    if operation is None:
        page = CONSENT_PAGE.match(scope["path"])
        interaction = INTERACTIONS.get(work, page[1]) if page else None
        return of_grant(work, GRANTS.by_id(work, interaction.grant_id)) if interaction else Asked()
    if operation == "post-request":
        return _of_grant_request(work, body)
    grant = _grant(work, holder, collection, named)
    client = None if grant is None else CLIENTS.by_id(work, grant.client_id)
    if "path" in named:
        return Asked(operation, named["path"].lower(), client)
    address = QueryParams(scope["query_string"]).get("wallet-address") or _decoded(body, _Body()).wallet_address
    if address is not None:
        return Asked(operation, work.urls.wallet_path(address), client)
    record = TABLES[collection].get(work, named["id"]) if collection in TABLES and "id" in named else grant
    id = record and record.wallet_address_id
    return Asked(operation, WALLETS.by_id(work, id).path if id else None, client)


def _operation(scope: Scope) -> tuple[str | None, str, Mapping[str, str]]:
    """The operationId, the first segment of the path, and the path parameters."""
    from payres.openapi.resources import OPERATIONS

    path, method = scope["path"].rstrip("/") or "/", "GET" if scope["method"] == "HEAD" else scope["method"]
    route, named = ROUTER.find(path)
    operation = OPERATIONS.get(f"{method} {route.path.replace('//', '/')}") if isinstance(route, Route) else None
    return operation and operation.id, path.split("/")[1], named


def _of_grant_request(work: Work, body: bytes) -> Asked:
    """The operation of a grant request. Its wallet is the first one in the request."""
    asked = _decoded(body, GrantRequest(client=""))
    try:
        client = clients.identify(work.urls, _decoded(body, _Body()).client)
    except DomainError:
        client = None
    wallet = next((work.urls.wallet_path(address) for address in _addresses(asked)), None)
    return Asked("post-request", wallet, client)


def _addresses(asked: GrantRequest) -> Iterator[str]:
    for item in asked.access_token.access if asked.access_token else ():
        if item.identifier:
            yield item.identifier
    if asked.subject:
        yield asked.subject.sub_ids[0].id


def _grant(work: Work, holder: TokenHolder | None, collection: str, named: Mapping[str, str]) -> GrantRecord | None:
    """The grant that is continued, of the token that is managed, or of the access token."""
    if collection == "continue":
        return GRANTS.get(work, named["id"])
    if collection == "token":
        token = TOKENS.get(work, named["id"])
        return None if token is None else GRANTS.get(work, token.grant_id)
    return None if holder is None else GRANTS.get(work, holder.grant_id)


def _decoded(body: bytes, otherwise: T) -> T:
    """The body decoded as the type of `otherwise`, or `otherwise` if it is invalid."""
    try:
        return msgspec.json.decode(body, type=type(otherwise))
    except (ValueError, RecursionError):
        return otherwise
