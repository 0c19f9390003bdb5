"""Paths that mean something before a route is found: to admission, to CORS, to the log, and to whoever opens a wallet.

The routes are in `payres.routes.routing`; tests compare what is said here with them.
"""

from typing import Final

# Where Interledger peers post packets: they have limits of their own.
ILP: Final = "/ilp"
# The operator's pages are under the one, the operator's API under the other.
ADMIN_ROOT: Final = "/admin"
ADMIN_API: Final = f"{ADMIN_ROOT}/v1"
# Where an operator sets a password; the secret of the link follows.
LINK_PATH: Final = f"{ADMIN_ROOT}/link/"
# Prefixes of the paths of pages, where errors are pages too.
PAGES: Final = ("/interact/",)
# Prefixes of paths with a secret after the second segment, which must not be logged.
SECRET_PATHS: Final = (*PAGES, LINK_PATH)
# Prefixes of paths that are closed to scripts of other origins.
CLOSED: Final = (f"{ADMIN_ROOT}/", *PAGES, "/metrics/")

# First segments of the paths that clients sign requests for, besides the root.
SIGNED_SEGMENTS: Final = frozenset(
    {"incoming-payments", "outgoing-payments", "outgoing-payment-grant", "quotes", "continue", "token"}
)
# First segments that no wallet may have: those of endpoints, those for future endpoints, and paths that programs
# request at the root of any site.
RESERVED_SEGMENTS: Final = SIGNED_SEGMENTS | {
    *("ilp", "interact", "admin", "healthz", "readyz", "metrics", "openapi.json"),
    *("account", "discovery", "grant", "pay", "settings", "static"),
    *(".well-known", "did.json", "favicon.ico", "jwks.json"),
}
