"""The table of all endpoints.

The routes, the paths that no wallet may have, CORS, what `payres explain` expects of a request, and the list in
docs/integrating.md follow from it.
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


ADMIN_PATH: Final = "/admin/v1"


def _admin(
    method: str, path: str, scope: str, handler: str, *, shows_secret: bool = False, streams: tuple[str, ...] = ()
) -> Endpoint:
    takes_json = method in {"POST", "PUT", "PATCH"}
    path = ADMIN_PATH + path
    return Endpoint(
        method, path, handler, Kind.ADMIN, takes_json, scope=scope, shows_secret=shows_secret, streams=streams
    )


_EVENTS: Final = ("text/event-stream",)
_FILES: Final = ("text/csv", "application/jsonl")


# The operator's API. A POST creates and is answered 201; an Idempotency-Key makes it safe to repeat.
ADMIN_ENDPOINTS: Final = (
    _admin("GET", "/wallets", "wallets:read", "wallets.list_page"),
    _admin("POST", "/wallets", "wallets:write", "wallets.create"),
    _admin("GET", "/wallets/{wallet}", "wallets:read", "wallets.show"),
    _admin("PATCH", "/wallets/{wallet}", "wallets:write", "wallets.change"),
    _admin("PUT", "/wallets/{wallet}/password", "wallets:write", "wallets.set_password"),
    _admin("DELETE", "/wallets/{wallet}/lockout", "wallets:write", "wallets.unlock"),
    _admin("GET", "/wallets/{wallet}/movements", "wallets:read", "wallets.list_movements"),
    _admin("POST", "/wallets/{wallet}/deposits", "wallets:fund", "wallets.deposit"),
    _admin("POST", "/wallets/{wallet}/withdrawals", "wallets:fund", "wallets.withdraw"),
    _admin("GET", "/wallets/{wallet}/keys", "wallets:read", "wallets.list_wallet_keys"),
    _admin("POST", "/wallets/{wallet}/keys", "wallets:write", "wallets.add_key"),
    _admin("DELETE", "/wallets/{wallet}/keys/{kid}", "wallets:write", "wallets.revoke_key"),
    _admin("GET", "/grants", "grants:read", "grants.list_page"),
    _admin("GET", "/grants/{id}", "grants:read", "grants.show"),
    _admin("PUT", "/grants/{id}/decision", "grants:write", "grants.decide"),
    _admin("DELETE", "/grants/{id}", "grants:write", "grants.revoke"),
    _admin("GET", "/assets", "assets:read", "assets.list_all"),
    _admin("PUT", "/assets/{code}/{scale}/fee", "assets:write", "assets.set_fee"),
    _admin("POST", "/assets/{code}/{scale}/fees/withdrawals", "liquidity:write", "assets.withdraw_fees"),
    _admin("GET", "/assets/{code}/{scale}/liquidity/movements", "liquidity:read", "assets.list_liquidity"),
    _admin("POST", "/assets/{code}/{scale}/liquidity/deposits", "liquidity:write", "assets.deposit_liquidity"),
    _admin("POST", "/assets/{code}/{scale}/liquidity/withdrawals", "liquidity:write", "assets.withdraw_liquidity"),
    _admin("GET", "/rates", "assets:read", "assets.list_rates"),
    _admin("PUT", "/rates/{base}/{counter}", "assets:write", "assets.set_rate"),
    _admin("DELETE", "/rates/{base}/{counter}", "assets:write", "assets.remove_rate"),
    _admin("GET", "/peers", "peers:read", "peers.list_all"),
    _admin("POST", "/peers", "peers:write", "peers.add"),
    _admin("GET", "/peers/{name}", "peers:read", "peers.show"),
    _admin("PATCH", "/peers/{name}", "peers:write", "peers.change"),
    _admin("DELETE", "/peers/{name}", "peers:write", "peers.remove"),
    _admin("GET", "/peers/{name}/movements", "peers:read", "peers.list_settlements"),
    _admin("POST", "/peers/{name}/deposits", "peers:write", "peers.deposit"),
    _admin("POST", "/peers/{name}/withdrawals", "peers:write", "peers.withdraw"),
    _admin("GET", "/peers/{name}/unresolved-packets", "peers:read", "peers.list_unresolved"),
    _admin("PUT", "/packets/{id}/outcome", "peers:write", "peers.resolve"),
    _admin("GET", "/payments", "payments:read", "payments.list_page"),
    _admin("GET", "/payments/{id}", "payments:read", "payments.show"),
    _admin("POST", "/payments/{id}/refunds", "payments:refund", "payments.send_back"),
    _admin("GET", "/exports/payments", "payments:read", "exports.payments", streams=_FILES),
    _admin("GET", "/exports/ledger", "ledger:read", "exports.ledger", streams=_FILES),
    _admin("GET", "/wallets/{wallet}/statement", "ledger:read", "exports.statement", streams=_FILES),
    _admin("GET", "/events", "events:read", "events.read", streams=_EVENTS),
    _admin("GET", "/webhooks", "webhooks:read", "webhooks.list_all"),
    _admin("POST", "/webhooks", "webhooks:write", "webhooks.add", shows_secret=True),
    _admin("GET", "/webhooks/{id}", "webhooks:read", "webhooks.show"),
    _admin("DELETE", "/webhooks/{id}", "webhooks:write", "webhooks.remove"),
    _admin("POST", "/webhooks/{id}/secrets", "webhooks:write", "webhooks.rotate", shows_secret=True),
    _admin("POST", "/webhooks/{id}/tests", "webhooks:write", "webhooks.test"),
    _admin("GET", "/deliveries", "webhooks:read", "webhooks.list_page"),
    _admin("POST", "/replays", "webhooks:write", "webhooks.replay"),
    _admin("GET", "/status", "status:read", "status.show"),
    _admin("GET", "/ledger/entries", "ledger:read", "ledger.list_page"),
    _admin("GET", "/ledger/check", "ledger:read", "ledger.check"),
    _admin("POST", "/backups", "backup:write", "backups.make"),
    _admin("GET", "/openapi.json", "", "openapi.read"),
    _admin("GET", "/api-keys", "keys:read", "api_keys.list_page"),
    _admin("POST", "/api-keys", "keys:write", "api_keys.create", shows_secret=True),
    _admin("DELETE", "/api-keys/{id}", "keys:write", "api_keys.revoke"),
    _admin("GET", "/audit-log", "audit:read", "audit.list_page"),
)


def _admin_page(path: str, handler: str) -> Endpoint:
    return Endpoint("GET", f"/admin{path}", handler, Kind.ADMIN_PAGE)


# The operator's pages. A form is sent to its own page.
ADMIN_PAGES: Final = (
    _admin_page("", "overview.page"),
    _admin_page("/link/{secret}", "sign_in.follow_link"),
    _admin_page("/wallets", "lists.WALLETS"),
    _admin_page("/wallets/{wallet}", "details.wallet_page"),
    _admin_page("/wallets/{wallet}/movements", "lists.MOVEMENTS"),
    _admin_page("/wallets/{wallet}/keys/{kid}", "changes.WALLET_KEY"),
    _admin_page("/wallets/{wallet}/deposit", "changes.DEPOSIT"),
    _admin_page("/wallets/{wallet}/withdraw", "changes.WITHDRAWAL"),
    _admin_page("/wallets/{wallet}/deactivate", "changes.DEACTIVATION"),
    _admin_page("/wallets/{wallet}/activate", "changes.ACTIVATION"),
    _admin_page("/wallets/{wallet}/statement", "exports.STATEMENT"),
    _admin_page("/exports", "exports.page"),
    _admin_page("/exports/payments", "exports.PAYMENTS"),
    _admin_page("/exports/ledger", "exports.LEDGER"),
    _admin_page("/payments", "lists.PAYMENTS"),
    _admin_page("/payments/{id}", "details.payment_page"),
    _admin_page("/payments/{id}/refund", "changes.REFUND"),
    _admin_page("/grants", "lists.GRANTS"),
    _admin_page("/grants/{id}", "details.grant_page"),
    _admin_page("/grants/{id}/revoke", "changes.GRANT"),
    _admin_page("/peers", "lists.PEERS"),
    _admin_page("/peers/{name}", "details.peer_page"),
    _admin_page("/packets/{id}", "changes.PACKET"),
    _admin_page("/webhooks", "lists.WEBHOOKS"),
    _admin_page("/webhooks/deliveries", "lists.DELIVERIES"),
    _admin_page("/webhooks/{id}", "changes.WEBHOOK"),
    _admin_page("/api-keys", "lists.API_KEYS"),
    _admin_page("/api-keys/{id}", "changes.API_KEY"),
    _admin_page("/audit-log", "lists.AUDIT_LOG"),
    _admin_page("/settings", "settings.page"),
)

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
    *ADMIN_ENDPOINTS,
    *ADMIN_PAGES,
)

# Paths for future endpoints, and paths that programs request at the root of any site.
RESERVED_FOR_LATER: Final = frozenset(
    {
        *("account", "discovery", "grant", "pay", "settings", "static"),
        *(".well-known", "did.json", "favicon.ico", "jwks.json"),
    }
)


# Prefixes of paths with a secret after the second segment, which must not be logged.
SECRET_PATHS: Final = tuple(
    dict.fromkeys(one.path.partition("{")[0] for one in ENDPOINTS if one.path.endswith(("/{nonce}", "/{secret}")))
)


def first_segments(*kinds: Kind) -> frozenset[str]:
    """The first path segments of all endpoints of these kinds."""
    return frozenset(one.path.split("/")[1] for one in ENDPOINTS if one.kind in kinds and one.path != "/")


# Prefixes of the paths of pages, where errors are pages too.
PAGES: Final = tuple(f"/{segment}/" for segment in sorted(first_segments(Kind.PAGE)))

# First path segments that no wallet may have.
RESERVED_SEGMENTS: Final = RESERVED_FOR_LATER | first_segments(*set(Kind) - {Kind.WALLET})


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
