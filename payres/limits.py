"""All limits that clients, peers and other servers can reach; docs/reference/limits.md is tested against it.

Limits that are settings have their default here. Times are seconds, sizes are bytes.
"""

from typing import Final

# Connections and requests, as `payres serve` takes them.

# Open connections; the next is answered 503. Fewer if the process may not open so many files.
MAX_CONNECTIONS: Final = 12_000
# Open connections of one address, but never more than half of all; the next is answered 429. Proxies are not counted.
MAX_CONNECTIONS_PER_ADDRESS: Final = 1000
# Requests from one address that are in progress at a time; the next is answered 429.
MAX_REQUESTS_PER_ADDRESS: Final = 512
# Bytes of unread answers, and of requests sent ahead of answers, in all connections; beyond it the oldest are cut.
MAX_BUFFERED_BYTES: Final = 64 * 1024 * 1024
SPARE_FILES: Final = 200  # Files that are reserved for the database, the log and links to other servers.
BACKLOG: Final = 2048  # Connections that the system keeps until they are accepted.
# Seconds until a request is complete, from its first byte; a new connection on which nothing comes is closed as soon.
REQUEST_SECONDS: Final = 30
UNREAD_SECONDS: Final = 30  # Seconds in which a client must read the answers that wait for it.
# Seconds that a connection stays open between requests; proxies must close theirs earlier.
KEEP_ALIVE_SECONDS: Final = 75
# Seconds that a request for a payment may wait for a change (`Prefer: wait`). Proxies give up after 60, mostly.
MAX_WAIT_SECONDS: Final = 30
# Requests that wait at a time; the next is answered at once. MAX_REQUESTS_PER_ADDRESS does not count them.
MAX_WAITING_REQUESTS: Final = 8000
MAX_WAITING_REQUESTS_OF_CLIENT: Final = 2000  # The same for one client, or one address without an access token.
MAX_STREAMS_OF_KEY: Final = 50  # Streams of events of one API key; the next is answered 429.
MAX_EXPORTS: Final = 8  # Exports that are read at a time over the operator's API and pages; the next is answered 429.
MAX_EXPORTS_OF_CALLER: Final = 4  # The same for one API key or operator.
EXPORT_SECONDS: Final = 3600  # Seconds in which an export is read to its end; then it is cut short.
GRACE_SECONDS: Final = 10  # Seconds to wait for requests in progress when the server stops.
# Bytes of the request line and the headers together. A signed request has about 1 KiB of them.
MAX_HEADER_BYTES: Final = 32 * 1024
DEFAULT_BODY_BYTES: Final = 65536  # Bytes of a body; the default of `max_body_bytes`.
MAX_FORM_BYTES: Final = 16 * 1024  # Bytes of a form of the pages.
MAX_FORM_FIELDS: Final = 8  # Fields of a form of the pages.

# Contents of requests.

MAX_URL_LENGTH: Final = 2048  # Characters of a URL, wherever one is named.
MAX_HOST_LENGTH: Final = 253  # Characters of the host in a URL: as many as a name in the DNS can have (RFC 1035 2.3.4).
MAX_WALLET_PATH_LENGTH: Final = 200  # Characters of a wallet's path under the base URL.
# Bytes of Accept, all its lines together; a longer one counts as absent, which RFC 9110 section 12.5.1 allows.
MAX_ACCEPT_BYTES: Final = 2048
MAX_QUERY_BYTES: Final = 4096  # Bytes of the query of a list. A wallet address is the longest thing in it.
DEFAULT_PAGE: Final = 20  # Items of a page when the client names no number.
MAX_PAGE: Final = 100  # Items of a page.
MAX_ACCESS_ITEMS: Final = 3  # Access items of a grant request: one of each type.
# Objects and arrays inside each other in metadata, itself among them. Programs that read it have limits too (RFC 8259
# section 9).
MAX_METADATA_DEPTH: Final = 128
# Bytes of metadata as written. It is stored as long as its payment, and a page shows that of a hundred payments.
MAX_METADATA_BYTES: Final = 4096
MAX_INTERVAL_LENGTH: Final = 256  # Characters of an interval in the limits of a grant.
MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255  # Characters of an Idempotency-Key, its quotes not counted.
# Characters that a password has at least; a shorter one of an earlier version still signs in.
MIN_PASSWORD_LENGTH: Final = 8
MAX_PASSWORD_LENGTH: Final = 1024  # Characters of a password.

# Grants.

# Seconds in which a client continues a grant that was approved; then the approval has lapsed.
APPROVAL_SECONDS: Final = 3600

# Signatures and keys.

MAX_SIGNATURES: Final = 4  # Signatures of one request that are examined.
MAX_SIGNATURE_HEADER_BYTES: Final = 8192  # Bytes of each of the headers Signature, Signature-Input and Content-Digest.
MAX_NONCE_LENGTH: Final = 256  # Characters of a signature's nonce, of a `finish` nonce and of an `interact_ref`.
MAX_KEYID_LENGTH: Final = 256  # Characters of a keyid.
MAX_JWKS_KEYS: Final = 32  # Keys that are taken from a client's key set on another server.
KEY_REFETCH_RATE: Final = 1  # Fetches a second, and a burst, of a client's fresh keys that a signature does not fit.
MAX_PRESENTED_KIDS: Final = 8  # Keys stored of a client known by its key alone; beyond it the oldest is deleted.
# Bytes of an answer of another server: keys, a wallet address, an incoming payment, rates.
MAX_FETCHED_BYTES: Final = 65536

# Work.

MAX_WAITING_UNITS: Final = 2048  # Units of work that wait for the database; the next one is answered with 503.
MAX_UNITS_PER_COMMIT: Final = 256  # Units that share one commit.
MAX_TOKEN_HOLDERS: Final = 1024  # Access tokens whose holders are kept in memory; beyond it the oldest is read again.
MIN_FREE_BYTES: Final = 64 * 1024 * 1024  # Bytes free on the disk of the database, below which the server is not ready.

# Names of other servers, each looked up in a thread that stays until the system gives up.

# Lookups in progress at a time for each purpose: clients' keys, receivers, peers, probes of peers, rates.
MAX_LOOKUPS: Final = 64
# Lookups that requests cause, of MAX_LOOKUPS; the others are left to payments in progress.
MAX_LOOKUPS_OF_REQUESTS: Final = 48
MAX_LOOKUPS_OF_CLIENT: Final = 8  # The same for one client, or for all unknown clients of one address.
MAX_LOOKUPS_OF_KEY: Final = 4  # The same for one client of an address that is known by its key alone.
SLOW_LOOKUP_SECONDS: Final = 3  # Seconds after which a lookup hangs: no further request waits for it.
FAILED_LOOKUP_SECONDS: Final = 5  # Seconds for which requests do not look up a name again after a failure.
MAX_FAILED_NAMES: Final = 4096  # Names and servers that are remembered as failed; beyond it the oldest is dropped.

# Exchanges with other servers, each of at most 4 s.

MAX_EXCHANGES: Final = 64  # Exchanges for keys of clients at a time, as many for receivers, and as many for payments.
MAX_EXCHANGES_OF_CLIENT: Final = 16  # The same for one client, or for all unknown clients of one address.
MAX_EXCHANGES_OF_KEY: Final = 8  # The same for one client of an address that is known by its key alone.
# Seconds for which requests do not ask a server again that failed, or did not answer the same client.
FAILED_SERVER_SECONDS: Final = 5

# Webhooks.

MAX_WEBHOOKS: Final = 16  # Endpoints that events are sent to.
MAX_DELIVERIES_OF_WEBHOOK: Final = 4  # Events in flight to one endpoint; endpoints never wait for each other.
DELIVERY_SECONDS: Final = 15  # Seconds in which an endpoint answers.
MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600  # Seconds that a `Retry-After` of an endpoint can put off the next attempt.
ROTATION_HOURS: Final = 24  # Hours for which the secret before a new one signs too.

# Interledger.

MAX_PACKET_BODY_BYTES: Final = 65536  # Bytes of a body at /ilp; the longest Prepare has 34 kB.
MAX_PACKETS_IN_FLIGHT: Final = 256  # Packets of one peer in flight at a time; the next is rejected with T03.
# Packets that are passed on to one peer at a time, besides our own; the next waits for 2 s and is rejected with T03.
MAX_PASSED_ON: Final = 64
MAX_PASSED_ON_OF_PEER: Final = 32  # The same from one peer: half, which is more than a payres lets one wallet send.
# Packets of our own with money in flight to one peer that does not repeat answers: what its restart leaves unanswered.
MAX_UNREPEATED: Final = 16
MAX_UNREPEATED_OF_WALLET: Final = 8  # The same from one wallet.
# One part in so many may arrive beyond what an incoming payment wants, or one unit if that is more: 0.5 %.
OVERPAY_TOLERANCE: Final = 200
DRAIN_SECONDS: Final = 5  # Seconds to wait for answers to packets in flight when the server stops.

# Rates, for each second.

BURST_SECONDS: Final = 5  # Seconds' worth of a rate that may come at once.
# Requests of one client, by its signature; the default of `rate_limit_per_client`.
DEFAULT_RATE_PER_CLIENT: Final = 10_000
DEFAULT_RATE_PER_ADDRESS: Final = 10_000  # Requests from one address; the default of `rate_limit_per_address`.
# Requests from one address that fail without a valid signature or token, or ask for a grant; the default of
# `rate_limit_unauthenticated`.
DEFAULT_RATE_UNAUTHENTICATED: Final = 50
# One in so many of `rate_limit_unauthenticated`: the rate of failed requests to other servers that a client may cause.
FAILED_READS_PART: Final = 10
# Payments with wallets on other servers that one address begins at payment pages.
CHECKOUT_RATE: Final = 1
# Packets of one peer; the next is rejected with T05; the default of `rate_limit_per_peer`.
DEFAULT_RATE_PER_PEER: Final = 10_000
# Clients, addresses or peers whose rates are counted; beyond it the least recently used is dropped.
MAX_COUNTED: Final = 16384

# Passwords, in any 15 minutes.

# Wrong passwords for a wallet or an operator's name from one address, or from a known browser.
MAX_WRONG_PASSWORDS: Final = 5
# Wrong passwords for a wallet or an operator's name from all addresses, except from browsers used before.
MAX_WRONG_PASSWORDS_PER_WALLET: Final = 20
# Wrong passwords from one address for all wallets, and again for all operators.
MAX_WRONG_PASSWORDS_PER_ADDRESS: Final = 20
KNOWN_BROWSER_DAYS: Final = 365  # Days for which a wallet or an operator knows a browser after a sign-in.
MAX_KNOWN_BROWSERS: Final = (
    32  # Browsers that a wallet or an operator knows; beyond it the least recently used is dropped.
)
# Passwords that are checked at a time: each takes 64 MiB and a core for some tens of milliseconds.
PASSWORDS_AT_ONCE: Final = 2
# Passwords from known browsers that wait, and as many from others; the next is answered 503.
PASSWORDS_WAITING: Final = 32
