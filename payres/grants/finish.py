"""How an interaction finishes: the hash and the redirect by which the client learns that its user has decided."""

import base64
import hashlib
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit


def interaction_hash(client_nonce: str, server_nonce: str, reference: str, grant_endpoint: str) -> str:
    """RFC 9635 section 4.2.3, in standard base64 with padding as every existing client computes it."""
    text = "\n".join((client_nonce, server_nonce, reference, grant_endpoint))
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def finish_url(uri: str, parameters: dict[str, str]) -> str:
    """The client's finish URI with parameters set on it; its own query stays, members of the same name are replaced."""
    parts = urlsplit(uri)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in parameters]
    query = urlencode([*kept, *parameters.items()], quote_via=quote, safe="")
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, parts.fragment))
