"""Known mistakes of clients: what they sign, or take the digest of, in place of what they send."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, permutations
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from payres.signatures.base import DEFAULT_PORTS, Message, signature_base
from payres.signatures.fields import SignatureInput
from payres.signatures.jwk import JWK
from payres.signatures.reasons import SignatureError
from payres.signatures.verify import is_signature, respelled

_TARGET_URI = re.compile(r"(https?)://([^/?]*)([^?]*)(.*)", re.IGNORECASE | re.DOTALL)
_PORT = re.compile(r":[0-9]+\Z")
_FORWARDED_HOST = re.compile(r'host="?([^";,\s]+)', re.IGNORECASE)
_PERCENT_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")

_AS_SENT: Final = "sign the URL exactly as it is sent"
_WHOLE: Final = f"{_AS_SENT}, with its scheme and host"
_BASE_URL: Final = (
    "base_url must be the origin that clients call, also behind a proxy: correct it in the server's settings"
    " (--base-url here), or let the client call the right one"
)

# As the JSON libraries of several languages write by default.
_JSON_STYLES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "compact JSON": {"separators": (",", ":"), "ensure_ascii": False},
        "compact JSON with escapes for what is not ASCII": {"separators": (",", ":")},
        "JSON with a space after commas and colons": {"ensure_ascii": False},
        "JSON with a space after commas and colons, and escapes for what is not ASCII": {},
        "JSON indented by 2 spaces": {"indent": 2, "ensure_ascii": False},
    }
)


class Signed(msgspec.Struct, frozen=True):
    """What a client may have signed: the base has a line for each of `components` and ends with the text of `entry`."""

    message: Message
    components: tuple[str, ...]
    entry: SignatureInput

    def has_signature(self, signature: bytes, key: JWK) -> bool:
        """Whether the verifier accepts the signature over this; it allows for one other spelling of the target."""
        for message in filter(None, (self.message, respelled(self.message))):
            try:
                base = signature_base(message, self.components, self.entry.text)
            except SignatureError:
                continue
            if is_signature(signature, base, key):
                return True
        return False


class Variation(msgspec.Struct, frozen=True):
    """What may have been signed instead; the clauses complete "The signature verifies when ..., so ..."."""

    cause: str
    when: str
    advice: str
    signed: Signed


def variations(signed: Signed) -> Iterator[Variation]:
    """The things that a client may have signed instead, the most likely first."""
    return chain(
        _targets(signed), _methods(signed), _header_values(signed), _component_lines(signed), _last_lines(signed)
    )


def other_bodies(body: bytes) -> Iterator[tuple[str, str, bytes]]:
    """(cause, description, content) of other spellings of the body that clients and proxies make."""
    yield "body_newline", "sent without the line end after it", body.rstrip(b"\r\n")
    yield "body_newline", "sent with a line feed after it", body + b"\n"
    lines = body.replace(b"\r\n", b"\n")
    yield "body_line_ends", "sent with LF for CRLF", lines
    yield "body_line_ends", "sent with CRLF for LF", lines.replace(b"\n", b"\r\n")
    yield "body_empty", "empty", b""
    try:
        value = json.loads(body)
        for form, style in _JSON_STYLES.items():
            yield "body_rewritten", form, json.dumps(value, **style).encode()
    except (ValueError, RecursionError):
        return  # no JSON


def _targets(signed: Signed) -> Iterator[Variation]:
    """Another origin, another spelling of path and query, or both."""
    match = _TARGET_URI.fullmatch(signed.message.target_uri)
    assert match is not None, "it begins with the base URL"
    scheme, authority, path, query = match.groups()
    places = [("", path + query, ""), *_places(path, query)]
    for origin_cause, origin, origin_advice in (
        ("", f"{scheme}://{authority}", ""),
        *_origins(signed.message, scheme, authority),
    ):
        for place_cause, place, place_advice in places:
            uri, advice = origin + place, " and ".join(filter(None, (origin_advice, place_advice)))
            changed = replace(signed, message=replace(signed.message, target_uri=uri))
            yield Variation(origin_cause or place_cause, f"the target is {uri}", advice, changed)


def _origins(message: Message, scheme: str, authority: str) -> Iterator[tuple[str, str, str]]:
    """(cause, origin, advice) of other origins that the request names."""
    yield "other_scheme", f"{'http' if scheme == 'https' else 'https'}://{authority}", _BASE_URL
    listed = f"{authority},{message.header('host')},{message.header('x-forwarded-host')}".split(",")
    listed += _FORWARDED_HOST.findall(message.header("forwarded"))
    for host in dict.fromkeys(name.strip() for name in listed[:8] if name.strip()):
        cause = "other_port" if _PORT.sub("", host) == _PORT.sub("", authority) else "other_host"
        for tried, port in DEFAULT_PORTS.items():
            bare = host.removesuffix(port)
            yield cause, f"{tried}://{bare}", _BASE_URL
            yield cause, f"{tried}://{bare}{port}", _BASE_URL
    yield "path_only", "", _WHOLE
    yield "host_without_scheme", authority, _WHOLE


def _places(path: str, query: str) -> Iterator[tuple[str, str, str]]:
    """(cause, path with query, advice) of other spellings of what follows the origin."""
    if path.endswith("/"):
        yield "trailing_slash", path.rstrip("/") + query, f"{_AS_SENT}: with the slash at its end"
    else:
        yield "trailing_slash", f"{path}/{query}", f"{_AS_SENT}: without a slash at its end"
    yield "trailing_slash", f"/{path}{query}", f"{_AS_SENT}: with one slash before the path"
    yield "query", path, f"{_AS_SENT}: with its query"
    encoded = f"{_AS_SENT}: percent-encode it once, before it is signed"
    yield "encoding", unquote(path + query), encoded
    yield "encoding", _PERCENT_ENCODED.sub(lambda match: match[0].lower(), path + query), encoded


def _methods(signed: Signed) -> Iterator[Variation]:
    method = signed.message.method
    for other in (method.lower(), "GET", "POST", "DELETE"):
        cause = "method_case" if other == method.lower() else "other_method"
        advice = f"sign the method as it is sent, {method}: letters' case counts, and a redirect may have changed it"
        changed = replace(signed, message=replace(signed.message, method=other))
        yield Variation(cause, f"the method is {other}", advice, changed)


def _header_values(signed: Signed) -> Iterator[Variation]:
    """Other values of covered headers, also of headers that did not arrive."""
    message = signed.message
    token = message.header("authorization").rpartition(" ")[2]
    lengths = {len(message.body), len(message.body.decode("utf-8", "replace"))}
    json_types = ("application/json", "application/json; charset=utf-8", "application/json;charset=utf-8")
    for name, cause, values in (
        ("authorization", "authorization_scheme", [scheme + token for scheme in ("GNAP ", "Bearer ", "bearer ", "")]),
        ("content-type", "content_type", json_types),
        ("content-length", "content_length", map(str, lengths)),
    ):
        if name in signed.components:
            for value in values:
                others = [line for line in message.headers if line[0] != name.encode("ascii")]
                headers = [*others, (name.encode("ascii"), value.encode("latin-1"))]
                advice = f"sign the value of {name} that is really sent; an HTTP library may have changed it"
                changed = replace(signed, message=replace(message, headers=headers))
                yield Variation(cause, f"{name} is {value!r}", advice, changed)


def _component_lines(signed: Signed) -> Iterator[Variation]:
    """Other cases of the names, one line less, or another order of the lines."""
    names, message = signed.components, signed.message
    advice = "write component names in lower case, in Signature-Input and in the base; the header itself may differ"
    lower = tuple(name.lower() for name in names)
    yield Variation(
        "component_case", "the names in the base are in lower case", advice, replace(signed, components=lower)
    )
    capitals = set(names) - set(lower)
    lines = [(name.encode("ascii"), message.header(name.lower()).encode("latin-1")) for name in capitals]
    as_written = replace(signed, message=replace(message, headers=[*message.headers, *lines]))
    yield Variation("component_case", "the base has the names as written", advice, as_written)
    for left, name in enumerate(names):
        advice = f"give {name} its line in the base, or leave it out of Signature-Input where it need not be"
        changed = replace(signed, components=names[:left] + names[left + 1 :])
        yield Variation("component_left_out", f"the base has no line for {name}", advice, changed)
    advice = "give the base its lines in the order in which Signature-Input lists the components"
    for order in permutations(names) if len(names) <= 5 else ():
        when = f"the lines of the base come as {', '.join(order)}"
        yield Variation("component_order", when, advice, replace(signed, components=order))


def _last_lines(signed: Signed) -> Iterator[Variation]:
    """Other last lines of the base, which must repeat the member of Signature-Input as it was sent."""
    label, listed, parameters = signed.entry.label, signed.entry.components, signed.entry.parameters
    pieces = [piece.strip() for piece in parameters.split(";") if piece.strip()]
    unspaced, spaced = "".join(f";{piece}" for piece in pieces), "".join(f"; {piece}" for piece in pieces)
    lines = [
        ("has the label " + label, f"{label}={listed}", parameters),
        ("has no parameters", listed, ""),
        ("has no quotes in its list", listed.replace('"', ""), parameters),
        ("has no blanks after semicolons", listed, unspaced),
        ("has blanks after semicolons", listed, spaced),
    ]
    for left in pieces:
        lines.append((f"lacks {left.partition('=')[0]}", listed, unspaced.replace(f";{left}", "", 1)))
    for order in permutations(pieces) if len(pieces) <= 4 else ():
        lines.append((f"comes with {';'.join(order)}", listed, "".join(f";{piece}" for piece in order)))
    advice = "end the base with the member of Signature-Input exactly as it is sent, after its label"
    for when, components, written in lines:
        changed = replace(signed, entry=SignatureInput(label, components, written))
        yield Variation("parameters_line", f"the last line of the base {when}", advice, changed)
