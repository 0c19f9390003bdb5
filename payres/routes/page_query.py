"""The query of a list: which wallet address, and which page of it (parts 4.1, 4.2)."""

import uuid

from starlette.datastructures import QueryParams
from starlette.requests import Request

from payres.errors import InvalidRequest
from payres.limits import DEFAULT_PAGE, MAX_PAGE, MAX_QUERY_BYTES
from payres.store.pages import PageQuery


def wallet_address_of(request: Request) -> str:
    """The `wallet-address` of the query. Refuses with 400 a list of nobody's payments, and a long query."""
    values = _parameters(request).getlist("wallet-address")
    if len(values) != 1 or not values[0]:
        raise InvalidRequest(
            "Name the wallet address once, as the query parameter wallet-address", field="wallet-address"
        )
    return values[0]


def page_query(request: Request) -> PageQuery:
    """The page asked for. Refuses with 400 what contradicts itself or cannot be read, and a long query."""
    parameters = _parameters(request)
    for name in ("first", "last", "cursor"):
        if len(parameters.getlist(name)) > 1:
            raise InvalidRequest(f"Give {name} once", field=name)
    first, last = _count(parameters, "first"), _count(parameters, "last")
    cursor = _cursor(parameters.get("cursor"))
    if first and last:
        raise InvalidRequest("first and last exclude each other", field="last")
    if last and cursor is None:
        raise InvalidRequest("last counts back from a cursor: give cursor too", field="cursor")
    if last:
        return PageQuery(last, cursor, "newer")
    return PageQuery(first or DEFAULT_PAGE, cursor, "older")


def _parameters(request: Request) -> QueryParams:
    # Read as a whole, with all that it has besides what is asked for.
    if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
        raise InvalidRequest(f"The query is longer than the {MAX_QUERY_BYTES} bytes that a list needs", field="query")
    return request.query_params


def _count(parameters: QueryParams, name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_PAGE):
        raise InvalidRequest(f"{name} must be a whole number from 1 to {MAX_PAGE}", field=name)
    return int(text)


def _cursor(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        parsed = str(uuid.UUID(text))
    except ValueError:
        parsed = None
    if parsed != text.lower():
        raise InvalidRequest("cursor must be a startCursor or endCursor of an earlier page", field="cursor")
    return parsed
