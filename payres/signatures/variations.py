"""Known mistakes of clients: what they sign, or take the digest of, in place of what they send. One is tried at a
time."""

import json
import re
from collections.abc import Iterator, Mapping
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

_AS_SENT: Final = "sign the URL exactly as it is sent"
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
    message = signed.message
    for cause, uri, advice in _targets(message):
        changed = replace(signed, message=replace(message, target_uri=uri))
        yield Variation(cause, f"the target is {uri}", advice, changed)
    method = message.method.lower()
    advice = f"sign the method as it is sent, {message.method}: letters' case counts"
    changed = replace(signed, message=replace(message, method=method))
    yield Variation("method_case", f"the method is {method}", advice, changed)
    for cause, name, value in _header_values(message):
        if name in signed.components:
            line = name.encode("ascii"), value.encode("latin-1")
            headers = [*(other for other in message.headers if other[0] != line[0]), line]
            advice = f"sign the value of {name} that is really sent; an HTTP library may have changed it"
            changed = replace(signed, message=replace(message, headers=headers))
            yield Variation(cause, f"{name} is {value!r}", advice, changed)
    advice = "end the base with the member of Signature-Input exactly as it is sent, after its label"
    for when, entry in _last_lines(signed.entry):
        yield Variation("parameters_line", f"the last line of the base {when}", advice, replace(signed, entry=entry))


def other_bodies(body: bytes) -> Iterator[tuple[str, str, bytes]]:
    """(cause, description, content) of other spellings of the body that clients and proxies make."""
    yield "body_newline", "sent without the line end after it", body.rstrip(b"\r\n")
    yield "body_newline", "sent with a line feed after it", body + b"\n"
    try:
        value = json.loads(body)
        for form, style in _JSON_STYLES.items():
            yield "body_rewritten", form, json.dumps(value, **style).encode()
    except (ValueError, RecursionError):
        return  # no JSON


def _targets(message: Message) -> Iterator[tuple[str, str, str]]:
    """(cause, target URI, advice) of other origins that the request names, and other spellings of path and query."""
    match = _TARGET_URI.fullmatch(message.target_uri)
    if match is None:
        return
    scheme, authority, path, query = match.groups()
    origin = f"{scheme}://{authority}"
    yield "other_scheme", f"{'http' if scheme == 'https' else 'https'}://{authority}{path}{query}", _BASE_URL
    listed = f"{authority},{message.header('host')},{message.header('x-forwarded-host')}".split(",")
    listed += _FORWARDED_HOST.findall(message.header("forwarded"))
    for host in dict.fromkeys(name.strip() for name in listed[:8] if name.strip()):
        cause = "other_port" if _PORT.sub("", host) == _PORT.sub("", authority) else "other_host"
        for tried, port in DEFAULT_PORTS.items():
            bare = host.removesuffix(port)
            yield cause, f"{tried}://{bare}{path}{query}", _BASE_URL
            yield cause, f"{tried}://{bare}{port}{path}{query}", _BASE_URL
    if path.endswith("/"):
        yield "trailing_slash", f"{origin}{path.rstrip('/')}{query}", f"{_AS_SENT}: with the slash at its end"
    else:
        yield "trailing_slash", f"{origin}{path}/{query}", f"{_AS_SENT}: without a slash at its end"
    yield "trailing_slash", f"{origin}/{path}{query}", f"{_AS_SENT}: with one slash before the path"
    yield "query", f"{origin}{path}", f"{_AS_SENT}: with its query"
    yield "encoding", origin + unquote(path + query), f"{_AS_SENT}: percent-encode it once, before it is signed"


def _header_values(message: Message) -> Iterator[tuple[str, str, str]]:
    """(cause, header, value) of other values of headers, also of headers that did not arrive."""
    token = message.header("authorization").rpartition(" ")[2]
    for scheme in ("GNAP ", "Bearer ", ""):
        yield "authorization_scheme", "authorization", scheme + token
    for media_type in ("application/json", "application/json; charset=utf-8"):
        yield "content_type", "content-type", media_type
    for length in {len(message.body), len(message.body.decode("utf-8", "replace"))}:
        yield "content_length", "content-length", str(length)


def _last_lines(entry: SignatureInput) -> Iterator[tuple[str, SignatureInput]]:
    """Other last lines of the base, which must repeat the member of Signature-Input as it was sent."""
    listed, parameters = entry.components, entry.parameters
    pieces = [piece.strip() for piece in parameters.split(";") if piece.strip()]
    unspaced, spaced = "".join(f";{piece}" for piece in pieces), "".join(f"; {piece}" for piece in pieces)
    yield f"has the label {entry.label}", replace(entry, components=f"{entry.label}={listed}")
    yield "has no quotes in its list", replace(entry, components=listed.replace('"', ""))
    yield "has no blanks after semicolons", replace(entry, parameters=unspaced)
    yield "has blanks after semicolons", replace(entry, parameters=spaced)
    for left in pieces:
        yield f"lacks {left.partition('=')[0]}", replace(entry, parameters=unspaced.replace(f";{left}", "", 1))
