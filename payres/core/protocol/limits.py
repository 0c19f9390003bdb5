"""The limits of the core that clients and other servers can reach; each part has its own. docs/reference/limits.md has
them all.

Limits that are settings have their default here. Times are seconds, sizes are bytes.
"""

from typing import Final

# Connections and requests, as `payres serve` takes them.

# Open connections; further ones are answered 503. Fewer if the process may not open so many files.
MAX_CONNECTIONS: Final = 12_000
# Open connections of one address, at most half of all; further ones are answered 429. Proxies are not counted.
MAX_CONNECTIONS_PER_ADDRESS: Final = 1000
# Requests in progress from one address; further ones are answered 429.
MAX_REQUESTS_PER_ADDRESS: Final = 512
# Bytes of unread answers and pipelined requests of all connections; beyond it, those that buffer longest are cut.
MAX_BUFFERED_BYTES: Final = 64 * 1024 * 1024
SPARE_FILES: Final = 200  # Files reserved for the database, the log and connections to other servers.
BACKLOG: Final = 2048  # Connections that the system queues until they are accepted.
# Seconds from the first byte of a request to its last, and until an unused new connection is closed.
REQUEST_SECONDS: Final = 30
UNREAD_SECONDS: Final = 30  # Seconds in which a client must read pending answers.
# Seconds that a connection stays open between requests; proxies must close theirs earlier.
KEEP_ALIVE_SECONDS: Final = 75
# Seconds that a request for a payment may wait for a change (`Prefer: wait`). Most proxies time out after 60.
MAX_WAIT_SECONDS: Final = 30
# Concurrent waiting requests; further ones are answered at once. They do not count for MAX_REQUESTS_PER_ADDRESS.
MAX_WAITING_REQUESTS: Final = 8000
MAX_WAITING_REQUESTS_OF_CLIENT: Final = 2000  # The same per client, or per address without an access token.
MAX_STREAMS_OF_KEY: Final = 50  # Event streams of one API key; further ones are answered 429.
GRACE_SECONDS: Final = 10  # Seconds to wait for requests in progress when the server stops.
# Bytes of the request line and headers together. A signed request has about 1 KiB.
MAX_HEADER_BYTES: Final = 32 * 1024
DEFAULT_BODY_BYTES: Final = 65536  # Bytes of a body; the default of `max_body_bytes`.

# Contents of requests.

MAX_URL_LENGTH: Final = 2048  # Characters of a URL.
MAX_HOST_LENGTH: Final = 253  # Characters of the host in a URL: the maximum of a DNS name (RFC 1035 2.3.4).
MAX_WALLET_PATH_LENGTH: Final = 200  # Characters of a wallet's path under the base URL.
# Bytes of all Accept lines together; longer ones are ignored, which RFC 9110 section 12.5.1 allows.
MAX_ACCEPT_BYTES: Final = 2048
MAX_QUERY_BYTES: Final = 4096  # Bytes of a list's query. Its longest part is a wallet address.
DEFAULT_PAGE: Final = 20  # Items of a page by default.
MAX_PAGE: Final = 100  # Items of a page.
MAX_ACCESS_ITEMS: Final = 3  # Access items of a grant request: one of each type.
# Interaction start modes in a grant request, of which only redirect counts, and members of one that is an object.
MAX_START_MODES: Final = 16
MAX_START_MODE_LENGTH: Final = 256  # Characters of the name of a start mode.
# Nesting depth of metadata, itself included. Programs that read it have limits too (RFC 8259 section 9).
MAX_METADATA_DEPTH: Final = 128
# Bytes of metadata as written. It is stored with its payment, and a page shows a hundred of them.
MAX_METADATA_BYTES: Final = 4096
MAX_INTERVAL_LENGTH: Final = 256  # Characters of an interval in the limits of a grant.
MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255  # Characters of an Idempotency-Key, without its quotes.

# Incoming payments.

# Days after its expiry for which an incoming payment without an incomingAmount that received nothing can be read.
EMPTY_PAYMENT_DAYS: Final = 7

# Grants.

# Seconds in which a client must continue an approved grant; then the approval has lapsed.
APPROVAL_SECONDS: Final = 3600
MAX_ENDED_TOKENS: Final = 8  # Rotated or revoked tokens of a grant that are kept, the newest ones.

# Signatures and keys.

MAX_SIGNATURES: Final = 4  # Signatures examined per request.
MAX_SIGNATURE_HEADER_BYTES: Final = 4096  # Bytes of each of the headers Signature, Signature-Input and Content-Digest.
MAX_NONCE_LENGTH: Final = 256  # Characters of a signature's nonce, of a `finish` nonce and of an `interact_ref`.
MAX_KEYID_LENGTH: Final = 256  # Characters of a keyid.
MAX_JWKS_KEYS: Final = 32  # Keys read from a client's key set on another server.
# Refetches per second, and a burst, of a client's fresh keys that do not match a signature.
KEY_REFETCH_RATE: Final = 1
MAX_PRESENTED_KIDS: Final = 8  # Keys stored for a client known only by its key; beyond it the oldest is deleted.
# Bytes of another server's answer: keys, a wallet address, an incoming payment, rates.
MAX_FETCHED_BYTES: Final = 65536

# Work.

MAX_WAITING_UNITS: Final = 2048  # Units of work waiting for the database; further ones are answered 503.
MAX_UNITS_PER_COMMIT: Final = 256  # Units that share one commit.
MAX_TOKEN_HOLDERS: Final = 1024  # Cached access tokens; beyond it the oldest is dropped.
# Noted pairs of currencies without a rate that somebody wanted; beyond it the oldest are dropped, those between this
# server's own last.
MAX_MISSING_RATES: Final = 32

# Names of other servers, each looked up in a thread that stays until the system gives up.

# Concurrent lookups for each purpose: clients' keys, receivers, peers, probes of peers, rates.
MAX_LOOKUPS: Final = 64
# Concurrent lookups caused by requests, of MAX_LOOKUPS; the rest is for payments in progress.
MAX_LOOKUPS_OF_REQUESTS: Final = 48
MAX_LOOKUPS_OF_CLIENT: Final = 8  # The same per client, or for all unknown clients of one address.
MAX_LOOKUPS_OF_KEY: Final = 4  # The same per client known only by its key.
SLOW_LOOKUP_SECONDS: Final = 3  # Seconds after which a lookup hangs: further requests for the name fail at once.
FAILED_LOOKUP_SECONDS: Final = 5  # Seconds for which requests do not look up a failed name again.
MAX_FAILED_NAMES: Final = 4096  # Names and servers remembered as failed; beyond it the oldest is dropped.

# Exchanges with other servers, each of at most 4 s.

MAX_EXCHANGES: Final = 64  # Concurrent exchanges for keys of clients, as many for receivers, and as many for payments.
MAX_EXCHANGES_OF_CLIENT: Final = 16  # The same per client, or for all unknown clients of one address.
MAX_EXCHANGES_OF_KEY: Final = 8  # The same per client known only by its key.
# Seconds for which requests do not contact a server again that failed, or did not answer the same client.
FAILED_SERVER_SECONDS: Final = 5

# Rates, per second.

BURST_SECONDS: Final = 5  # Seconds' worth of a rate that may come at once.
# Requests of one client, by its signature; the default of `rate_limit_per_client`.
DEFAULT_RATE_PER_CLIENT: Final = 10_000
# Incoming payments and quotes that one client creates, which needs nobody's consent; the default of
# `rate_limit_creations`.
DEFAULT_RATE_CREATIONS: Final = 200
DEFAULT_RATE_PER_ADDRESS: Final = 10_000  # Requests from one address; the default of `rate_limit_per_address`.
# Requests from one address that fail without a valid signature or token, or ask for a grant; the default of
# `rate_limit_unauthenticated`.
DEFAULT_RATE_UNAUTHENTICATED: Final = 50
# One part in this many of `rate_limit_unauthenticated`: the rate of failed requests to other servers per client.
FAILED_READS_PART: Final = 10
# Packets of one peer; further ones are rejected with T05; the default of `rate_limit_per_peer`.
DEFAULT_RATE_PER_PEER: Final = 10_000
# Clients, addresses or peers with counted rates; beyond it the least recently used is dropped.
MAX_COUNTED: Final = 16384
