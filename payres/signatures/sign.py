"""Sign a request (RFC 9421 section 3.1) in the one shape that every Open Payments server accepts."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import http_sf
import msgspec

from payres.signatures.base import Message, header_fields, signature_base
from payres.signatures.digest import content_digest
from payres.signatures.reasons import SignatureError

# Existing servers look for exactly this label.
_LABEL: Final = "sig1"


def sign(message: Message, ed25519: Callable[[bytes], bytes], keyid: str, created: int) -> dict[str, str]:
    """Return the headers to add to `message`: Signature-Input and Signature, and with a body Content-Digest and
    Content-Length unless the message has them.

    `ed25519` signs bytes with a private key, of whatever library (RFC 8032). `created` is Unix seconds. A message with
    a body must have a Content-Type. Raises ValueError if it has none, if the keyid is not printable ASCII, or if a
    covered value cannot be signed.
    """
    added = _content_headers(message) if message.body else {}
    lines = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in added.items()]
    complete = msgspec.structs.replace(message, headers=[*message.headers, *lines])
    components = _components(complete)
    quoted = " ".join(f'"{name}"' for name in components)
    # The order of the official JavaScript client; servers find keyid by its position after a semicolon.
    parameters = f"({quoted});keyid={_serialized(keyid)};created={created}"
    try:
        signature = ed25519(signature_base(complete, components, parameters))
    except SignatureError as error:
        raise ValueError(str(error)) from error
    return {**added, "Signature-Input": f"{_LABEL}={parameters}", "Signature": f"{_LABEL}={http_sf.ser(signature)}"}


@lru_cache(maxsize=16)  # a string is checked character by character
def _serialized(keyid: str) -> str:
    return http_sf.ser(keyid)


def _content_headers(message: Message) -> dict[str, str]:
    fields = header_fields(message.headers)
    if b"content-type" not in fields:
        raise ValueError("A message with a body needs a content-type header to be signed")
    headers = {"Content-Digest": content_digest(message.body), "Content-Length": str(len(message.body))}
    return {name: value for name, value in headers.items() if name.lower().encode("ascii") not in fields}


def _components(message: Message) -> list[str]:
    components = ["@method", "@target-uri"]
    if any(name == b"authorization" for name, _ in message.headers):
        components.append("authorization")
    if message.body:
        components += ["content-digest", "content-length", "content-type"]
    return components
