"""The table of endpoints, except the operator's: the rules of `payres.operator` declare the operator's API, and
`payres.pages.endpoints` has the pages.

The routes, the paths that no wallet may have, CORS, and the list in docs/integrating.md follow from it.
"""

import re
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple


class Kind(Enum):
    """Who sends the requests to an endpoint. Endpoints of a kind share limits, error forms and access rules."""

    API = auto()  # clients: the answer is JSON, or 406 if the request does not accept that
    PEERS = auto()  # Interledger peers, which have limits of their own
    PAGE = auto()  # people: the answer to every method is a page; closed to scripts of other origins
    HEALTH = auto()  # monitoring
    ADMIN = auto()  # programs of the operator, with an API key; only for hosts in `admin_hosts`
    ADMIN_PAGE = auto()  # people who operate the server, signed in; for the same hosts
    METRICS = auto()  # monitoring, for the operator only
    WALLET = auto()  # anyone: wallet addresses, on all other paths


class Endpoint(NamedTuple):
    """A method at a path, where `{id}` stands for a segment.

    `handler` names a module and a function in it: in `payres.routes`, for ADMIN in `payres.admin`, and for ADMIN_PAGE
    in `payres.pages`.
    """

    method: str
    path: str
    handler: str
    kind: Kind = Kind.API
    takes_json: bool = False
    needs_token: bool = False  # an access or continuation token, as `Authorization: GNAP <token>`
    is_public: bool = False  # without an Authorization header it answers too, maybe with a public form
    scope: str = ""  # the scope that the API key must have; empty for none
    shows_secret: bool = False  # once, so the answer is not stored under an Idempotency-Key
    streams: tuple[str, ...] = ()  # media types of answers other than JSON, of no known length


# The operator's pages are under the one, the operator's API under the other.
ADMIN_ROOT: Final = "/admin"
ADMIN_API: Final = f"{ADMIN_ROOT}/v1"
# Where an operator sets a password; the secret of the link follows.
LINK_PATH: Final = f"{ADMIN_ROOT}/link/"

# Routes are tried in this order: the most frequent first, wallet addresses last.
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
    Endpoint("GET", "/openapi.json", "openapi.read", is_public=True),
    Endpoint("GET", "/interact/{id}/{nonce}", "consent.serve", Kind.PAGE),
    Endpoint("POST", "/interact/{id}/{nonce}", "consent.serve", Kind.PAGE),
    Endpoint("GET", "/healthz", "health.healthz", Kind.HEALTH),
    Endpoint("GET", "/readyz", "health.readyz", Kind.HEALTH),
    Endpoint("GET", "/metrics", "metrics.read", Kind.METRICS),
    Endpoint("GET", "/{path:wallet}/jwks.json", "wallet_addresses.read_keys", Kind.WALLET),
    Endpoint("GET", "/{path:wallet}/did.json", "wallet_addresses.read_did", Kind.WALLET),
    Endpoint("GET", "/{path:wallet}", "wallet_addresses.read", Kind.WALLET),
)

# Paths for future endpoints, and paths that programs request at the root of any site.
RESERVED_FOR_LATER: Final = frozenset(
    {
        *("account", "discovery", "grant", "pay", "settings", "static"),
        *(".well-known", "did.json", "favicon.ico", "jwks.json"),
    }
)

# Prefixes of paths with a secret after the second segment, which must not be logged.
SECRET_PATHS: Final = ("/interact/", LINK_PATH)


def first_segments(*kinds: Kind) -> frozenset[str]:
    """The first path segments of all endpoints of these kinds."""
    return frozenset(one.path.split("/")[1] for one in ENDPOINTS if one.kind in kinds and one.path != "/")


# Prefixes of the paths of pages, where errors are pages too.
PAGES: Final = tuple(f"/{segment}/" for segment in sorted(first_segments(Kind.PAGE)))

# First path segments that no wallet may have.
RESERVED_SEGMENTS: Final = RESERVED_FOR_LATER | {ADMIN_ROOT[1:]} | first_segments(*set(Kind) - {Kind.WALLET})


def find_endpoint(method: str, path: str) -> Endpoint | None:
    """The API endpoint for a request, or None. A trailing slash is ignored."""
    method = "GET" if method == "HEAD" else method
    path = path.removesuffix("/") or "/"
    found = (
        one for one in ENDPOINTS if one.kind is Kind.API and one.method == method and path_pattern(one.path).match(path)
    )
    return next(found, None)


@lru_cache
def path_pattern(path: str, wallet: str = ".+") -> re.Pattern[str]:
    """The pattern of a path of the table: `{name}` is one segment, `{name:wallet}` matches the pattern `wallet`."""
    *parts, last = re.split(r"{(\w+)(:wallet)?}", path)
    named = [
        f"{re.escape(text)}(?P<{name}>{wallet if is_wallet else '[^/]+'})"
        for text, name, is_wallet in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]
    return re.compile("".join(named) + re.escape(last) + r"\Z")
