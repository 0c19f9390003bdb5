"""Error responses: one JSON shape, or a page for browsers, without internal details.

The statuses and codes are in `payres.core.protocol.errors`.
"""

import logging

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.observation import observation_of, shown_path
from payres.core.http.responses import is_browser, json_error
from payres.core.protocol.errors import DomainError, ServerFailed
from payres.core.protocol.urls import ADMIN_API

log = logging.getLogger("payres.routes")


def render_error(request: Request, error: DomainError) -> Response:
    """The response to a domain error. Every 401 except those to peers names the grant endpoint. Specification 5.

    An address with too many failures gets only that error, unless the request is authenticated.
    """
    found = note_error(request, context_of(request).rate_limits.address_error(request.scope) or error)
    if found.status == 405 and request.method == "OPTIONS":
        # The Allow header of a 405 also answers OPTIONS (RFC 9110 section 9.3.7).
        return Response(status_code=204, headers=found.headers)
    pages = context_of(request).pages
    response = pages.error(request, found) if pages and _is_for_people(request) else json_error(found)
    if found.status == 401 and "WWW-Authenticate" not in found.headers:
        response.headers.update(where_to_ask(request))
    return response


def _is_for_people(request: Request) -> bool:
    """Whether to respond with a page. The operator's API never does."""
    return is_browser(request.scope["headers"]) and not request.scope["path"].startswith(ADMIN_API)


def note_error(request: Request, error: DomainError) -> DomainError:
    """Counts the error and records it for the log; returns it."""
    context_of(request).rate_limits.count_failure(request.scope, error.status)
    observation_of(request.scope).error = error
    return error


def where_to_ask(request: Request) -> dict[str, str]:
    """The header of a 401 that names the authorization server (RFC 9635 section 9.1)."""
    return {"WWW-Authenticate": f"GNAP as_uri={context_of(request).urls.auth_server}"}


def fault_response(request: Request, exception: Exception) -> Response:
    """The response to an unexpected exception, which is logged and not shown."""
    log.error("%s %s failed", request.method, shown_path(request.scope), exc_info=exception)
    sentence = "The server failed; the fault is not yours"
    # uvicorn drops the connection after an exception, so the client must not reuse it.
    headers = {"Connection": "close"}
    return render_error(request, ServerFailed(sentence, headers))
