"""What the server's endpoints ask of a request before they look at its signature, for `payres explain`."""

from typing import Final

from payres.routes.accept import accepts
from payres.routes.messages import JSON
from payres.signatures.base import Message, field_value, header_fields
from payres.signatures.explain import MISSING_TOKEN, Verdict

# By the first segment of the path; the root, where grants are requested, has an empty one.
NEEDS_TOKEN: Final = {"incoming-payments", "outgoing-payments", "outgoing-payment-grant", "quotes", "continue"}
ANSWERS_IN_JSON: Final = {*NEEDS_TOKEN, "", "token"}
# By the first segment and the number of segments.
TAKES_JSON: Final = {("", 1), ("incoming-payments", 1), ("outgoing-payments", 1), ("quotes", 1), ("continue", 2)}


def endpoint_errors(message: Message) -> list[Verdict]:
    """Return the errors for which the server refuses the request whatever its signature, the first one first."""
    path = message.target_uri.partition("://")[2].partition("/")[2].partition("?")[0]
    segments = path.removesuffix("/").split("/")
    errors = []
    if segments[0] in ANSWERS_IN_JSON and not accepts(_header(message, b"accept")):
        says = f"Accept rules out {JSON}, which is all that the server answers with."
        errors.append(Verdict("not_acceptable", says))
    takes_json = message.method == "POST" and (segments[0], len(segments)) in TAKES_JSON
    media_type = _header(message, b"content-type").partition(";")[0].strip().lower()
    if message.body and takes_json and media_type != JSON:
        errors.append(Verdict("unsupported_media_type", f"Send the body as Content-Type: {JSON}."))
    if segments[0] in NEEDS_TOKEN and not _has_token(message) and not _is_public_read(message, segments):
        errors.append(Verdict(MISSING_TOKEN, "Send the access token as Authorization: GNAP <token>."))
    return errors


def _is_public_read(message: Message, segments: list[str]) -> bool:
    """Whether this asks for the public form of an incoming payment, which is read without the header."""
    is_read = message.method in {"GET", "HEAD"} and segments[0] == "incoming-payments" and len(segments) == 2
    return is_read and b"authorization" not in header_fields(message.headers)


def _has_token(message: Message) -> bool:
    scheme, _, token = _header(message, b"authorization").partition(" ")
    return scheme.lower() == "gnap" and bool(token.strip())


def _header(message: Message, name: bytes) -> str:
    return field_value(header_fields(message.headers).get(name, ())).decode("latin-1")
