"""Every endpoint of the server, once.

From this table follow the routes, the paths that no wallet may have, what scripts of other origins may ask for, what
`payres explain` expects of a request, and the list in docs/integrating.md.
"""

import re
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple


class Kind(Enum):
    """Who asks, and what is therefore the same for all endpoints of a kind."""

    API = auto()  # clients: the answer is JSON, and a request that does not accept that is answered 406
    PEERS = auto()  # Interledger peers, which have limits of their own
    PAGE = auto()  # people: the answer to every method is a page; closed to scripts of other origins
    HEALTH = auto()  # monitoring
    WALLET = auto()  # anyone: a wallet address, which has every path that is left


class Endpoint(NamedTuple):
    """What one method does at one path, where `{id}` stands for a segment.

    `handler` names a function and its module in `payres.routes`.
    """

    method: str
    path: str
    handler: str
    kind: Kind = Kind.API
    takes_json: bool = False
    needs_token: bool = False  # an access or continuation token, as `Authorization: GNAP <token>`
    is_public: bool = False  # in part: for a request without an Authorization header


# Routes are tried in this order, so what is asked for most comes first, and wallet addresses last.
ENDPOINTS: Final = (
    Endpoint("POST", "/ilp", "ilp.receive", Kind.PEERS),
    Endpoint("GET", "/incoming-payments/{id}", "incoming_payments.read", needs_token=True, is_public=True),
    Endpoint("POST", "/incoming-payments", "incoming_payments.create", takes_json=True, needs_token=True),
    Endpoint("GET", "/incoming-payments", "incoming_payments.list_page", needs_token=True),
    Endpoint("POST", "/incoming-payments/{id}/complete", "incoming_payments.complete", needs_token=True),
    # The official .NET client completes with two slashes; what it signed cannot be redirected.
    Endpoint("POST", "/incoming-payments/{id}//complete", "incoming_payments.complete", needs_token=True),
    Endpoint("POST", "/quotes", "quotes.create", takes_json=True, needs_token=True),
    Endpoint("GET", "/quotes/{id}", "quotes.read", needs_token=True),
    Endpoint("POST", "/outgoing-payments", "outgoing_payments.create", takes_json=True, needs_token=True),
    Endpoint("GET", "/outgoing-payments", "outgoing_payments.list_page", needs_token=True),
    Endpoint("GET", "/outgoing-payments/{id}", "outgoing_payments.read", needs_token=True),
    Endpoint("GET", "/outgoing-payment-grant", "outgoing_payments.read_grant_spending", needs_token=True),
    Endpoint("POST", "/", "grants.request", takes_json=True),
    Endpoint("POST", "/continue/{id}", "grants.continue_request", takes_json=True, needs_token=True),
    Endpoint("DELETE", "/continue/{id}", "grants.cancel", needs_token=True),
    Endpoint("POST", "/token/{id}", "tokens.rotate"),
    Endpoint("DELETE", "/token/{id}", "tokens.revoke"),
    Endpoint("OPTIONS", "/", "grants.discover"),
    Endpoint("GET", "/interact/{id}/{nonce}", "consent.serve", Kind.PAGE),
    Endpoint("POST", "/interact/{id}/{nonce}", "consent.serve", Kind.PAGE),
    Endpoint("GET", "/healthz", "health.healthz", Kind.HEALTH),
    Endpoint("GET", "/readyz", "health.readyz", Kind.HEALTH),
    Endpoint("GET", "/{path:wallet}/jwks.json", "wallet_addresses.read_keys", Kind.WALLET),
    Endpoint("GET", "/{path:wallet}/did.json", "wallet_addresses.read_did", Kind.WALLET),
    Endpoint("GET", "/{path:wallet}", "wallet_addresses.read", Kind.WALLET),
)

# What the server may have one day, and what others look for at the root of a site.
RESERVED_FOR_LATER: Final = frozenset(
    {
        *("account", "admin", "discovery", "grant", "metrics", "openapi.json", "pay", "settings", "static"),
        *(".well-known", "did.json", "favicon.ico", "jwks.json"),
    }
)


def first_segments(*kinds: Kind) -> frozenset[str]:
    """The first path segments of all endpoints of these kinds but for the root's."""
    return frozenset(one.path.split("/")[1] for one in ENDPOINTS if one.kind in kinds and one.path != "/")


# How the paths of pages begin, where people are answered and not programs.
PAGES: Final = tuple(f"/{segment}/" for segment in sorted(first_segments(Kind.PAGE)))

# First path segments that are the server's own; a wallet may not shadow them (contract: URLs).
RESERVED_SEGMENTS: Final = RESERVED_FOR_LATER | first_segments(*set(Kind) - {Kind.WALLET})


def find_endpoint(method: str, path: str) -> Endpoint | None:
    """The endpoint of the API for a request, None where the API has none; one slash at the end does not count."""
    method = "GET" if method == "HEAD" else method
    path = path.removesuffix("/") or "/"
    found = (
        one for one in ENDPOINTS if one.kind is Kind.API and one.method == method and path_pattern(one.path).match(path)
    )
    return next(found, None)


@lru_cache
def path_pattern(path: str, wallet: str = ".+") -> re.Pattern[str]:
    """What matches a path of the table: `{name}` is one segment, `{name:wallet}` what the pattern `wallet` says."""
    *parts, last = re.split(r"{(\w+)(:wallet)?}", path)
    named = [
        f"{re.escape(text)}(?P<{name}>{wallet if is_wallet else '[^/]+'})"
        for text, name, is_wallet in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]
    return re.compile("".join(named) + re.escape(last) + r"\Z")
