"""Other target URIs that a client may have signed, with what went wrong when it did."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from payres.signatures.base import Fields, field_value, header_fields
from payres.signatures.explain.capture import Capture
from payres.signatures.explain.guess import Guess
from payres.signatures.explain.variation import Variation, varied

_URI = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\??[^#]*)", re.IGNORECASE)
_PORT = re.compile(r":[0-9]+\Z")
_DEFAULT_PORT: Final = {"http": ":80", "https": ":443"}
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")

_AS_SENT = "sign the URL exactly as it is sent"


def other_targets(guess: Guess, capture: Capture) -> Iterator[Variation]:
    """The guess with every other target URI, the smallest changes first."""
    match = _URI.fullmatch(guess.message.target_uri)
    if match is None:
        return
    scheme, authority, path, query = match[1].lower(), match[2], match[3], match[4]
    origins = [("", scheme, authority, ""), *_origins(capture, scheme, authority)]
    places = [("", path + query, ""), *_places(path, query)]
    tried = {guess.message.target_uri}
    for origin_cause, other_scheme, other_authority, origin_advice in origins:
        for place_cause, place, place_advice in places:
            uri = f"{other_scheme}://{other_authority}{place}"
            if uri not in tried:
                tried.add(uri)
                advice = " and ".join(filter(None, (origin_advice, place_advice)))
                yield _targeting(guess, origin_cause or place_cause, uri, advice)
    for _, place, place_advice in places:
        advice = f"{_AS_SENT}, with its scheme and host" + (f"; {place_advice}" if place_advice else "")
        yield _targeting(guess, "path_only", place, advice)
        yield _targeting(guess, "host_without_scheme", authority + place, advice)


def _targeting(guess: Guess, cause: str, uri: str, advice: str) -> Variation:
    message = varied(guess.message, target_uri=uri)
    return Variation("target", cause, f"the target is {uri}", advice, varied(guess, message=message))


def _origins(capture: Capture, scheme: str, authority: str) -> Iterator[tuple[str, str, str, str]]:
    """(cause, scheme, authority, advice) of the other origins at which the client may believe the server to be."""
    other_scheme = "http" if scheme == "https" else "https"
    told = (
        "base_url must be the origin that clients call, also behind a proxy: correct it in the server's settings"
        " (--base-url here), or let the client call the right one"
    )
    yield "other_scheme", other_scheme, authority, told
    for found in _authorities(capture, authority):
        for tried in (scheme, other_scheme):
            yield "other_host", tried, found, told
            without = found.removesuffix(_DEFAULT_PORT[tried])
            for spelled in {without, without + _DEFAULT_PORT[tried]} - {found}:
                yield "other_port", tried, spelled, told


def _authorities(capture: Capture, authority: str) -> list[str]:
    """The server's own, what the request itself names as its host, and the other names of this machine."""
    fields = header_fields([(name.lower().encode("ascii"), value) for name, value in capture.headers])
    found = [authority, *(value for name in ("host", "x-forwarded-host") for value in _listed(fields, name))]
    found += re.findall(r'host="?([^";,\s]+)', ",".join(_listed(fields, "forwarded")), re.IGNORECASE)
    whole = _URI.match(capture.target)
    found += [whole[2]] if whole else []
    bare = [_PORT.sub("", name) for name in found]
    ports = {port for name in found for port in _PORT.findall(name)}
    found += [name + port for name in bare for port in ("", *sorted(ports))]
    if any(name in _LOOPBACK for name in bare):
        found += [name + port for name in _LOOPBACK for port in ("", *sorted(ports))]
    found += [name.lower() for name in found]
    return list(dict.fromkeys(name for name in found if name))[:24]


def _listed(fields: Fields, name: str) -> list[str]:
    value = field_value(fields.get(name.encode("ascii"), ())).decode("latin-1")
    return [part.strip() for part in value.split(",") if part.strip()][:4]


def _places(path: str, query: str) -> Iterator[tuple[str, str, str]]:
    """(cause, path with query, advice) of the other spellings of what follows the origin."""
    slash = "trailing_slash"
    if path.endswith("/"):
        yield slash, path.rstrip("/") + query, f"{_AS_SENT}: with the slash at its end"
    else:
        yield slash, f"{path}/{query}", f"{_AS_SENT}: without a slash at its end"
    yield "trailing_slash", f"/{path}{query}", f"{_AS_SENT}: with one slash before the path"
    if not query:
        yield "query", f"{path}?", f"{_AS_SENT}: without a question mark when there is no query"
        yield "query", f"{path}#", f"{_AS_SENT}: without a fragment"
    else:
        yield "query", path, f"{_AS_SENT}: with its query"
        yield "query", f"{path.rstrip('/')}/{query}", f"{_AS_SENT}: slash and query included"
    for spelled in _spellings(path, query):
        yield "encoding", spelled, f"{_AS_SENT}: percent-encode it once, before it is signed"


def _spellings(path: str, query: str) -> Iterator[str]:
    whole = path + query
    yield unquote(whole)
    yield path + unquote(query)
    yield unquote(path) + query
    yield whole.replace("%20", "+")
    yield whole.replace("+", "%20")
    yield _ENCODED.sub(lambda match: match[0].lower(), whole)
    yield _ENCODED.sub(lambda match: match[0].upper(), whole)
    pairs = parse_qsl(query[1:], keep_blank_values=True, max_num_fields=100) if query.count("&") < 100 else []
    if pairs:
        yield f"{path}?{urlencode(pairs)}"
        yield f"{path}?{urlencode(pairs, quote_via=quote, safe='')}"
        yield f"{path}?{urlencode(pairs, quote_via=quote, safe=':/')}"
        yield f"{path}?{urlencode(sorted(pairs))}"
