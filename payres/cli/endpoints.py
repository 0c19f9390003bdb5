"""What the server's endpoints ask of a request before they look at its signature, for `payres explain`."""

from payres.endpoints import find_endpoint
from payres.http.accept import accepts
from payres.http.responses import JSON
from payres.signatures.base import Message
from payres.signatures.explain import MISSING_TOKEN, Verdict


def endpoint_errors(message: Message) -> list[Verdict]:
    """Return the errors for which the server refuses the request whatever its signature, the first one first."""
    path = "/" + message.target_uri.partition("://")[2].partition("/")[2].partition("?")[0]
    endpoint = find_endpoint(message.method, path)
    if endpoint is None:
        return []
    errors = []
    if not accepts(message.header("accept")):
        says = f"Accept rules out {JSON}, which is all that the server answers with."
        errors.append(Verdict("not_acceptable", says))
    media_type = message.header("content-type").partition(";")[0].strip().lower()
    if message.body and endpoint.takes_json and media_type != JSON:
        errors.append(Verdict("unsupported_media_type", f"Send the body as Content-Type: {JSON}."))
    is_public = endpoint.is_public and all(name != b"authorization" for name, _ in message.headers)
    if endpoint.needs_token and not is_public and not _has_token(message):
        errors.append(Verdict(MISSING_TOKEN, "Send the access token as Authorization: GNAP <token>."))
    return errors


def _has_token(message: Message) -> bool:
    scheme, _, token = message.header("authorization").partition(" ")
    return scheme.lower() == "gnap" and bool(token.strip())
