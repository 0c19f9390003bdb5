"""HTML pages: templates, style and the headers that keep a page out of frames, caches and other sites' reach.

The pages have no scripts and load nothing: the style stands in the page and the policy names its hash.
"""

import base64
import hashlib
import string
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from payres.http.error_responses import ErrorResponse
from payres.routes.context import context_of
from payres.routes.refusals import where_to_ask

if TYPE_CHECKING:  # it loads slowly, and most servers are asked for consent long after they have started
    from jinja2 import Environment

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address of a consent page is a secret of the client and the owner
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

ASCII = string.punctuation  # what quote() would escape and a header need not; blanks are in no URL

TITLES = {
    "insufficient_access": "This form was not taken",
    "unknown_interaction": "There is no such request",
    "invalid_interaction": "Too late",
    "wrong_state": "This cannot be decided now",
    "too_large": "This form is too long",
    "too_many_requests": "Too many wrong passwords",
    "internal_error": "Something went wrong here",
    "unavailable": "The server is busy",
}


class Style(NamedTuple):
    """The style sheet and its hash as a Content-Security-Policy names it."""

    text: str
    source: str


def render(
    request: Request,
    template: str,
    values: Mapping[str, object],
    status: int = 200,
    form_action: str = "'self'",
) -> Response:
    """The page that a template makes of the values. form_action is where its forms, and what they lead to, may go."""
    style = _style()
    host = context_of(request).urls.base.partition("://")[2]
    text = _environment().get_template(template).render(style=style.text, server=host, **values)
    policy = (
        f"default-src 'none'; style-src {style.source}; form-action {form_action}; base-uri 'none';"
        " frame-ancestors 'none'"
    )
    headers = HEADERS | {"Content-Security-Policy": policy}
    if status == HTTPStatus.UNAUTHORIZED:
        headers |= where_to_ask(request)
    return HTMLResponse(text, status, headers)


def redirect(url: str) -> Response:
    """Sends the browser on with a GET, after a form was taken."""
    # Starlette's own redirect escapes more than a header has to, and a client's URL is to arrive as it was.
    return Response(status_code=HTTPStatus.SEE_OTHER, headers=HEADERS | {"Location": quote(url, safe=ASCII)})


def refusal_page(request: Request, refusal: ErrorResponse, again: str | None = None) -> Response:
    """The page for a refusal; `again` is where the owner can look at the request once more."""
    title = TITLES.get(refusal.code, "This did not work")
    values = {"title": title, "text": refusal.description, "again": again}
    response = render(request, "notice.html", values, refusal.status)
    response.headers.update(refusal.headers)
    return response


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=1)
def _style() -> Style:
    text = _read("consent.css")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Style(text, f"'sha256-{digest}'")


def _read(name: str) -> str:
    return (files("payres") / "templates" / name).read_text(encoding="utf-8")
