"""How every refusal and every fault leaves the server: one JSON shape, and nothing of the inside."""

import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payres.errors import DomainError
from payres.http.error_responses import ErrorResponse, error_response
from payres.routes.context import context_of
from payres.routes.cross_origin import answer_headers
from payres.routes.messages import json_response
from payres.routes.rate_limits import rate_limits_of

log = logging.getLogger("payres.routes")

# Starlette's own answers to what no route takes.
ROUTING = {
    404: ("not_found", "There is nothing at this address"),
    405: ("method_not_allowed", "This address does not take that method"),
}


async def render_refusal(request: Request, error: Exception) -> Response:
    """The answer for a domain error. Every 401 says where to ask for a grant (part 5, rule 4), save those to peers."""
    assert isinstance(error, DomainError)
    refusal = error_response(error)
    rate_limits_of(request).count_failure(request.scope, refusal.status)
    if refusal.status == 405 and request.method == "OPTIONS":
        # What a 405 tells is what OPTIONS asks for: the methods (RFC 9110 section 9.3.7).
        return Response(status_code=204, headers=refusal.headers)
    response = refusal_response(refusal)
    if refusal.status == 401 and "WWW-Authenticate" not in refusal.headers:
        response.headers.update(where_to_ask(request))
    return response


def where_to_ask(request: Request) -> dict[str, str]:
    """The header of every 401 that names the authorization server (RFC 9635 section 9.1)."""
    return {"WWW-Authenticate": f"GNAP as_uri={context_of(request).urls.auth_server}"}


def refusal_response(error: DomainError) -> Response:
    """The answer for a domain error as far as no request is needed for it."""
    refusal = error_response(error)
    shown = {"code": refusal.code, "description": refusal.description}
    details = {"details": dict(refusal.details)} if refusal.details else {}
    return json_response({"error": shown | details}, refusal.status, dict(refusal.headers))


async def render_routing(request: Request, exception: Exception) -> Response:
    """The answer for an address or method that no route takes."""
    assert isinstance(exception, HTTPException)
    code, description = ROUTING.get(exception.status_code, ("invalid_request", "The request cannot be understood"))
    status = exception.status_code if exception.status_code in ROUTING else 400
    headers = {"Allow": _allowed_methods(request)} if status == 405 else exception.headers
    return await render_refusal(request, ErrorResponse(status, code, description, headers=headers))


def _allowed_methods(request: Request) -> str:
    """What every route at this address takes (RFC 9110 section 10.2.1); Starlette names those of the first alone."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = [route.methods or () for route in routes if route.path_regex.match(request.scope["path"])]
    return ", ".join(sorted({"OPTIONS", *(method for methods in matching for method in methods)}))


async def render_fault(request: Request, exception: Exception) -> Response:
    """The answer for a fault of ours; the log has the whole of it, the caller none."""
    path = request.scope["raw_path"].decode("ascii", "backslashreplace")  # escaped as it came: it shall forge no line
    log.error("%s %s failed", request.method, path, exc_info=exception)
    sentence = "The server failed; the fault is not yours"
    # uvicorn drops the connection after a fault, so the caller must not send its next request on it.
    headers = {"Connection": "close", **answer_headers(request)}
    return await render_refusal(request, ErrorResponse(500, "internal_error", sentence, headers=headers))
