"""Forms and cookies: of the session of an owner or operator, and of each wallet or operator that knows the browser."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from payres.core.http.context import context_of
from payres.core.http.requests import media_type_of, read_body
from payres.core.payments.incoming import unpayable
from payres.core.protocol.errors import InsufficientAccess, InvalidRequest, UnsupportedMediaType
from payres.core.protocol.limits import MAX_JWKS_KEYS
from payres.core.protocol.urls import ROOT_WALLET_PATH, Urls, canonical, canonical_url, is_loopback
from payres.core.protocol.visible import visible_text
from payres.core.signatures.jwk import has_private_key
from payres.html.limits import MAX_FORM_BYTES, MAX_FORM_FIELDS

Form = Mapping[str, str]
AROUND: Final = "<>()[]\"'“”„‘’«».,;"  # characters often pasted along with an address

FORM_TYPE: Final = "application/x-www-form-urlencoded"
BOXES: Final = "key_id"  # the field of checkboxes, which may be repeated
CARRIED: Final = "of."  # before the name of a field that waits for a sign-in or a second step


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form from a page of this server; repeated values of BOXES are joined by spaces.

    Raises InvalidRequest (400) for a malformed form, 403 for another site's form, 413 for a long one, 415 for another
    media type.
    """
    _check_origin(request)
    if media_type_of(request) != FORM_TYPE:
        raise UnsupportedMediaType(f"This page takes forms only, as {FORM_TYPE}")
    body = await read_body(request, MAX_FORM_BYTES)
    most = MAX_FORM_FIELDS + MAX_JWKS_KEYS
    try:
        text = body.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=most)
    except ValueError as error:
        raise _malformed() from error
    boxes = [value for name, value in pairs if name == BOXES]
    fields = dict(pairs)
    if len(fields) > MAX_FORM_FIELDS or len(fields) != len(pairs) - max(len(boxes) - 1, 0):
        raise _malformed()
    return fields | ({BOXES: " ".join(boxes)} if boxes else {})


def _check_origin(request: Request) -> None:
    """Refuses forms of other sites, by Sec-Fetch-Site and Origin. The Origin of our own forms is `null`, because of the
    pages' Referrer-Policy. Browsers that send neither are checked by the CSRF token alone."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin", "null")
    if site not in {"same-origin", "none"} or (
        origin != "null" and canonical(origin) != context_of(request).urls.canonical_base
    ):
        raise InsufficientAccess("It came from another site. Nothing was decided", reason="cross_site")


def not_of_page(field: str = "choice") -> InvalidRequest:
    """The error for a form, or a choice in it, that the page does not have."""
    return InvalidRequest("This form is not one of this page's. Please open it again", field=field)


def shown_again(form: Form) -> dict[str, str]:
    """The fields of a form as a page may send them back: empty where a private key was typed."""
    return {name: "" if has_private_key(text) else text for name, text in form.items()}


def carrying(form: Form) -> dict[str, str]:
    """The fields of a form as another one carries them along."""
    return {f"{CARRIED}{name}": text for name, text in shown_again(form).items()}


def carried(form: Form) -> dict[str, str]:
    """The fields that a form carries along, of another one."""
    return {name.removeprefix(CARRIED): text for name, text in form.items() if name.startswith(CARRIED)}


def here(request: Request) -> str:
    """The path and query of a request."""
    query = request.scope["query_string"]
    return str((request.scope["raw_path"] + (b"?" + query if query else b"")).decode("ascii"))


def _malformed() -> InvalidRequest:
    return InvalidRequest("The form that arrived cannot be read. Please open the request again", field="body")


def typed_url(urls: Urls, text: str) -> str:
    """The URL of a typed wallet address, payment pointer, incoming payment or payment page, in any notation.

    Raises InvalidReceiver.
    """
    bare = "".join(visible_text(text).split()).strip(AROUND).removeprefix("$")
    host = bare.partition("/")[0]
    if bare and not set("/.:@") & set(bare):
        bare = urls.wallet(bare.lower())
    elif "://" not in bare:
        own, _, authority = urls.base.partition("://")
        scheme = own if host.lower() == authority or is_loopback(host.partition(":")[0]) else "https"
        bare = f"{scheme}://{bare}"
    url = canonical_url(bare)
    if url is None:
        raise unpayable("to", "it is no wallet address, and no payment pointer", "no_address")
    return url if urlsplit(url).path else f"{url}/{ROOT_WALLET_PATH}"
