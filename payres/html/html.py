"""HTML pages: rendering of templates, headers, and error pages.

Pages load only their icon, which is the logo, and their style sheet and web manifest, whose paths change with their
content, so that browsers may keep them. The few lines of script that consent pages and forms for passkeys have are
inline, with their hash in the Content-Security-Policy; no other script runs, and these turn no text into markup or
code. The headers of pages forbid framing, caching and referrers.
"""

import base64
import hashlib
import logging
import re
import string
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error, where_to_ask
from payres.core.http.observation import shown_path
from payres.core.process.settings import Settings
from payres.core.protocol.errors import DomainError, ServerFailed, nothing_here
from payres.core.protocol.limits import MAX_URL_LENGTH
from payres.core.protocol.visible import visible_url
from payres.html.brand import ACCENTS, GROUNDS, SHIELD, dark_accent, logo, on_accent
from payres.html.language import Language, marked, preferred
from payres.html.preferences import chosen_language, zone_of
from payres.html.sentences import capital, ended, failure_of, length_words, problem_of
from payres.html.settings import PageSettings

if TYPE_CHECKING:
    from jinja2 import Environment


# Each part has the templates of its pages, and all extend those here.
_WITH_PAGES: Final = ("html", "accounts", "people", "operator")
TEMPLATES: Final = tuple(Path(__file__).parents[1] / part / "templates" for part in _WITH_PAGES)
STYLE_SHEETS: Final = ("style.css",)
# The folder of the operator's templates, which are English only and have a further style sheet.
OPERATORS: Final = "admin/"
# The folder of the templates that both have, in the `layout` of either.
SHARED: Final = "security/"
OPERATORS_STYLE_SHEETS: Final = (*STYLE_SHEETS, "admin.css")
# The macros that templates have without importing them, by their file, with the names that they have there.
PARTS: Final = {"parts.html": ("common", "parts")}
OPERATORS_PARTS: Final = {"parts.html": ("common",), f"{OPERATORS}parts.html": ("parts",)}
KEPT: Final = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
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
    leads_away: bool = False,
    script: str = "",
) -> Response:
    """Renders a template; `script` is the one that may run. Its forms may send to this server only, unless one
    `leads_away`: browsers apply form-action to all redirects after a form, also to those of other servers, which may
    lead into an app by a scheme that nobody here knows."""
    is_operators = str(values.get("layout", template)).startswith(OPERATORS)
    brand = brand_of(context_of(request).settings)
    style, _ = _style(OPERATORS_STYLE_SHEETS if is_operators else STYLE_SHEETS, brand.style)
    host = context_of(request).urls.base.partition("://")[2]
    language = operators_language(request) if is_operators else language_of(request)
    common = {
        "style": style,
        "manifest": _manifest(brand)[0],
        "script": script,
        "server": host,
        "language": language,
        "say": language.say,
        "count": language.count,
        "typed": {},
    }
    common |= {"brand": brand, "why": partial(failure_of, language), "length_words": partial(length_words, language)}
    environment, values = _environment(), {**common, **values}
    for file, names in (OPERATORS_PARTS if is_operators else PARTS).items():
        values |= dict.fromkeys(names, environment.get_template(file).make_module(values))
    text = environment.get_template(template).render(values)
    forms = "" if leads_away else " form-action 'self';"
    policy = (
        f"default-src 'none'; style-src 'self'; img-src 'self'; manifest-src 'self';{forms} base-uri 'none';"
        " frame-ancestors 'none'"
    )
    if script:
        policy += f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        policy += "; require-trusted-types-for 'script'; trusted-types 'none'"
    headers = HEADERS | {"Content-Security-Policy": policy}
    if status == HTTPStatus.UNAUTHORIZED:
        headers |= where_to_ask(request)
    return HTMLResponse(text, status, headers | {"Content-Language": language.code})


def language_of(request: Request) -> Language:
    """The reader's language, which they have chosen or by Accept-Language, its region, and their time zone."""
    code, region = preferred(request.headers.get("accept-language", ""), chosen_language(request))
    return Language(code, context_of(request).clock.now(), zone_of(request), region)


def operators_language(request: Request) -> Language:
    """English, in the time zone that this browser has chosen, or else that of the server."""
    return Language("en", context_of(request).clock.now(), zone_of(request))


async def read_static(request: Request) -> Response:
    """GET /static/{file}: the style sheet of owners' or operators' pages with the operator's colours, or the web
    manifest."""
    brand = brand_of(context_of(request).settings)
    sheets = dict(_style(names, brand.style) for names in (STYLE_SHEETS, OPERATORS_STYLE_SHEETS))
    path, manifest = _manifest(brand)
    if request.scope["path"] == path:
        return Response(manifest, headers=KEPT, media_type="application/manifest+json")
    if request.scope["path"] not in sheets:
        raise nothing_here()
    return Response(sheets[request.scope["path"]], headers=KEPT, media_type="text/css")


def load_templates(*parts: str) -> None:
    """Compiles the templates of these parts in advance, a few milliseconds each, and loads what draws QR codes."""
    import segno  # noqa: F401

    for folder in TEMPLATES:
        for file in sorted(folder.rglob("*.html")) if folder.parent.name in parts else ():
            _environment().get_template(file.relative_to(folder).as_posix())


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
        loader=FunctionLoader(read_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"capital": capital, "ended": ended, "with_marks": _with_marks}
    found.filters["segment"] = partial(quote, safe="")  # a wallet's path has slashes
    found.tests["plain_name"] = _is_plain_name
    return found


def _with_marks(text: str, parts: Collection[str]) -> Markup:
    """The text with each place of parts of it marked, in any case of their letters."""
    longest_first = "|".join(map(re.escape, sorted(parts, key=len, reverse=True)))
    pieces = re.split(f"({longest_first})", text, flags=re.IGNORECASE) if parts else [text]
    return Markup("").join(Markup("<mark>{}</mark>").format(one) if n % 2 else one for n, one in enumerate(pieces))


def _is_plain_name(name: str) -> bool:
    """Whether a name that somebody else has chosen reads as nothing but a name inside a sentence."""
    return re.search(r"[\d?!:;()“”„\"«»]", name) is None


@lru_cache(maxsize=4)
def _style(names: tuple[str, ...], more: str) -> tuple[str, str]:
    """The path of the style sheets followed by `more`, and their text."""
    text = "".join(map(read_template, names)) + more
    return f"/static/style-{hashlib.sha256(text.encode()).hexdigest()[:16]}.css", text


def read_template(name: str) -> str:
    """The text of a template, style sheet or script."""
    [file] = [one for folder in TEMPLATES if (one := folder / name).is_file()]
    return file.read_text(encoding="utf-8")


LOGO: Final = ".brand img{flex:none;width:1.75rem;height:1.75rem;object-fit:contain}"


class Brand(msgspec.Struct, frozen=True):
    """`name` defaults to the host; `icon` is the path of the `logo`; `links` are in the footer; `style` is CSS."""

    name: str
    has_name: bool
    accent: str
    icon: str
    media_type: str
    logo: Markup
    links: tuple[tuple[str, str], ...]
    help_url: str
    style: str


@lru_cache(maxsize=4)
def brand_of(settings: Settings) -> Brand:
    """The brand in the settings."""
    chosen = settings.of(PageSettings)
    links = [
        (chosen.help_url, marked("Help")),
        (chosen.terms_url, marked("Terms")),
        (chosen.privacy_url, marked("Privacy")),
    ]
    found = logo(chosen.logo) if chosen.logo else None
    return Brand(
        name=chosen.name or settings.base_url.partition("://")[2],
        has_name=bool(chosen.name),
        accent=chosen.accent or ACCENTS[0],
        icon=found.path if found else "/favicon.ico",
        media_type=found.media_type if found else "image/svg+xml",
        logo=Markup('<img src="{}" alt="">').format(found.path) if found else Markup(SHIELD),  # noqa: S704 - ours
        links=tuple((url, label) for url, label in links if url),
        help_url=chosen.help_url,
        style=_brand_style(chosen.accent, chosen.accent_dark) + (LOGO if found else ""),
    )


@lru_cache(maxsize=4)
def _manifest(brand: Brand) -> tuple[str, bytes]:
    """The path of the web manifest, with which the account can stand on a home screen, and its text.

    An app on a home screen has no address bar; `minimal-ui` keeps a way back, and the host in sight.
    """
    text = msgspec.json.encode(
        {
            "id": "/account",
            "name": brand.name,
            "start_url": "/account",
            "scope": "/",
            "display": "minimal-ui",
            "theme_color": brand.accent,
            "background_color": GROUNDS[0][0],
            "icons": [{"src": brand.icon, "sizes": "any", "type": brand.media_type}],
        }
    )
    return f"/static/manifest-{hashlib.sha256(text).hexdigest()[:16]}.webmanifest", text


def _brand_style(light: str, dark: str) -> str:
    """CSS for colours that differ from the style sheet. The dark accent is derived from the light one by default."""
    if not light and not dark:
        return ""
    light = light or ACCENTS[0]
    dark = dark or dark_accent(light)
    return (
        f":root{{--accent:{light};--on-accent:{on_accent(light, dark=False)}}}"
        f"@media(prefers-color-scheme:dark){{:root{{--accent:{dark};--on-accent:{on_accent(dark, dark=True)}}}}}"
    )


QUIET: Final = 4  # modules of the quiet zone (ISO/IEC 18004)
# Scanners read every mask. Trying all eight for the best takes four times as long, and anybody can ask for codes; with
# URLs, this one is nearly as good.
MASK: Final = 2


def qr_code(text: str, label: str) -> Markup:
    """The QR code of a text, with a label for screen readers; `{{ qr }}` in a template shows it."""
    start, rest = _drawn(text)
    return start + Markup("<title>{}</title>").format(label) + rest


@lru_cache(maxsize=1024)  # 2 to 4 kB each
def _drawn(text: str) -> tuple[Markup, Markup]:
    """The code before and after its title. Cached, because drawing takes longer than the rest of a page."""
    import segno  # loads slowly

    svg = segno.make_qr(text, error="m", mask=MASK).svg_inline(
        border=QUIET, omitsize=True, svgclass="qr", lineclass=None
    )
    start, _, rest = svg.partition(">")
    return Markup(start.replace("<svg ", '<svg role="img" ', 1) + ">"), Markup(rest)  # noqa: S704 - of figures only
