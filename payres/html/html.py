"""HTML pages: rendering of templates, headers, and error pages.

Pages load only their icon, which is the logo. The style is inline, and so is the one line of script that consent pages
have, each with its hash in the Content-Security-Policy; no other script runs. The headers forbid framing, caching and
referrers.
"""

import base64
import hashlib
import logging
import string
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error, where_to_ask
from payres.core.http.observation import shown_path
from payres.core.protocol.errors import DomainError, ServerFailed
from payres.core.protocol.limits import MAX_URL_LENGTH
from payres.core.protocol.visible import visible_url
from payres.html.brand import brand_of
from payres.html.error_sentences import failure_of, problem_of
from payres.html.language import Language, marked, preferred
from payres.html.zones import zone_of

if TYPE_CHECKING:  # it loads slowly
    from jinja2 import Environment

# Each part has the templates of its pages, and all extend those here.
TEMPLATES: Final = tuple(Path(__file__).parents[1] / part / "templates" for part in ("html", "operator", "people"))
STYLE_SHEETS: Final = ("style.css",)
# The folder of the operator's templates, which are English only and have a further style sheet.
OPERATORS: Final = "admin/"
OPERATORS_STYLE_SHEETS: Final = (*STYLE_SHEETS, "admin.css")
PAGE_METHODS: Final = "GET, HEAD, POST"  # of pages with a form
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the URL of a consent page is a secret
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
ASCII: Final = string.punctuation  # characters that quote() escapes but a header may contain

TITLES: Final = {
    "insufficient_access": marked("This form was not taken"),
    "unknown_interaction": marked("There is no such request"),
    "not_found": marked("There is nothing at this address"),
    "invalid_interaction": marked("Too late"),
    "wrong_state": marked("This cannot be decided now"),
    "too_large": marked("This form is too long"),
    "too_many_requests": marked("Too many attempts"),
    "internal_error": marked("Something went wrong here"),
    "unavailable": marked("The server is busy"),
}

log = logging.getLogger("payres.routes")


async def serve_page(
    request: Request,
    answer: Callable[[Request], Awaitable[Response]],
    template: str = "error.html",
    fault: str = "The fault is not yours. Please try again in a while",
) -> Response:
    """The response of an HTML endpoint; errors become pages. `fault` is the hint of a 500."""
    try:
        return await answer(request)
    except DomainError as error:
        found = note_error(request, error)
    except Exception:
        log.exception("%s %s failed", request.method, shown_path(request.scope))
        found = note_error(request, ServerFailed(fault))
    return error_page(request, found, template)


def render(
    request: Request,
    template: str,
    values: Mapping[str, object],
    status: int = 200,
    form_action: str = "'self'",
    script: str = "",
) -> Response:
    """Renders a template. `form_action` limits the targets of its forms and of the redirects that follow; `script` is
    the one that may run."""
    is_operators, brand = template.startswith(OPERATORS), brand_of(context_of(request).settings)
    style, style_hash = _style(OPERATORS_STYLE_SHEETS if is_operators else STYLE_SHEETS, brand.style)
    host = context_of(request).urls.base.partition("://")[2]
    language = Language("en", context_of(request).clock.now()) if is_operators else language_of(request)
    common = {
        "style": style,
        "script": script,
        "server": host,
        "language": language,
        "say": language.say,
        "count": language.count,
    }
    common |= {"brand": brand, "why": partial(failure_of, language)}
    text = _environment().get_template(template).render({**common, **values})
    policy = (
        f"default-src 'none'; style-src {style_hash}; img-src 'self'; form-action {form_action}; base-uri 'none';"
        " frame-ancestors 'none'"
    )
    policy += f"; script-src {_hash_source(script)}" if script else ""
    headers = HEADERS | {"Content-Security-Policy": policy}
    if status == HTTPStatus.UNAUTHORIZED:
        headers |= where_to_ask(request)
    return HTMLResponse(text, status, headers | {"Content-Language": language.code})


def language_of(request: Request) -> Language:
    """The reader's language and region, by Accept-Language, and time zone."""
    code, region = preferred(request.headers.get("accept-language", ""))
    return Language(code, context_of(request).clock.now(), zone_of(request), region)


def load_templates(*names: str) -> None:
    """Compiles templates in advance, a few milliseconds each."""
    for name in names:
        _environment().get_template(name)


def redirect(url: str) -> Response:
    """A 303 redirect, which the browser follows with GET."""
    # Starlette's RedirectResponse escapes more than necessary, which would change a client's URL.
    return Response(status_code=HTTPStatus.SEE_OTHER, headers=HEADERS | {"Location": quote(url, safe=ASCII)})


def error_page(request: Request, error: DomainError, template: str = "error.html") -> Response:
    language = language_of(request)
    is_missing, text = error.code == "not_found", problem_of(language, error)
    if is_missing:
        text = language.say("It may be mistyped, or what was here has ended. Opening it moved no money.")
    title = TITLES.get(error.code, marked("This did not work"))
    url = context_of(request).urls.base + request.scope["path"]
    asked = visible_url(url[:MAX_URL_LENGTH]) if is_missing else None
    values = {"title": title, "text": text, "asked": asked, "status": error.status, "english": str(error)}
    response = render(request, template, values, error.status)
    response.headers.update(error.headers)
    return response


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    found = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["capital"] = _capital
    return found


def _capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


@lru_cache(maxsize=4)
def _style(names: tuple[str, ...], more: str) -> tuple[str, str]:
    """The style sheets followed by `more`, and the hash as a Content-Security-Policy source."""
    text = "".join(map(_read, names)) + more
    return text, _hash_source(text)


def _hash_source(text: str) -> str:
    """The Content-Security-Policy source that allows an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    [file] = [one for folder in TEMPLATES if (one := folder / name).is_file()]
    return file.read_text(encoding="utf-8")
