"""How an interaction finishes: the hash and the redirect by which the client learns that its user has decided."""

import base64
import hashlib
from urllib.parse import quote, urlencode


def interaction_hash(client_nonce: str, server_nonce: str, reference: str, grant_endpoint: str) -> str:
    """RFC 9635 section 4.2.3, in standard base64 with padding as every existing client computes it."""
    text = "\n".join((client_nonce, server_nonce, reference, grant_endpoint))
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def finish_url(uri: str, parameters: dict[str, str]) -> str:
    """The client's finish URI with parameters added; all that it has of its own stays as it is, byte for byte."""
    before, fragment_mark, fragment = uri.partition("#")
    added = urlencode(parameters, quote_via=quote, safe="")
    _, question_mark, query = before.partition("?")
    joint = "&" if query and not query.endswith("&") else "" if question_mark else "?"
    return f"{before}{joint}{added}{fragment_mark}{fragment}"
