"""What answers every error and every fault: one JSON shape, for browsers a page, and nothing of the inside.

The statuses and codes are in `payres.errors`.
"""

import logging

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import DomainError, ServerFailed
from payres.http.observation import observation_of
from payres.http.responses import is_browser, json_error
from payres.routes.context import context_of
from payres.urls import ADMIN_API

log = logging.getLogger("payres.routes")


def render_error(request: Request, error: DomainError) -> Response:
    """The answer for a domain error. Every 401 says where to ask for a grant, save those to peers. Specification 5.

    A request from an address that guesses gets that answer, and no other, unless it has proven who sent it.
    """
    found = note_error(request, context_of(request).rate_limits.address_error(request.scope) or error)
    if found.status == 405 and request.method == "OPTIONS":
        # The Allow of a 405 is what OPTIONS asks for (RFC 9110 section 9.3.7).
        return Response(status_code=204, headers=found.headers)
    response = context_of(request).pages.error(request, found) if _is_for_people(request) else json_error(found)
    if found.status == 401 and "WWW-Authenticate" not in found.headers:
        response.headers.update(where_to_ask(request))
    return response


def _is_for_people(request: Request) -> bool:
    """Whether a browser shows the answer to somebody. The operator's API answers programs alone."""
    return is_browser(request.scope["headers"]) and not request.scope["path"].startswith(ADMIN_API)


def note_error(request: Request, error: DomainError) -> DomainError:
    """Returns the error with which the request is answered, after it was counted, and noted for the log."""
    context_of(request).rate_limits.count_failure(request.scope, error.status)
    observation_of(request.scope).error = error
    return error


def where_to_ask(request: Request) -> dict[str, str]:
    """The header of every 401 that names the authorization server (RFC 9635 section 9.1)."""
    return {"WWW-Authenticate": f"GNAP as_uri={context_of(request).urls.auth_server}"}


def fault_response(request: Request, exception: Exception) -> Response:
    """The answer for a fault of ours; the log has the whole of it, the caller none."""
    path = request.scope["raw_path"].decode("ascii", "backslashreplace")  # escaped as it came: it shall forge no line
    log.error("%s %s failed", request.method, path, exc_info=exception)
    sentence = "The server failed; the fault is not yours"
    # uvicorn drops the connection after a fault, so the caller must not send its next request on it.
    headers = {"Connection": "close"}
    return render_error(request, ServerFailed(sentence, headers))
