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
# Files that are reserved for the database, the log and links to other servers.
SPARE_FILES: Final = 200
# Connections that the system keeps until they are accepted.
BACKLOG: Final = 2048
# Seconds until a request is complete, from its first byte; a new connection on which nothing comes is closed as soon.
REQUEST_SECONDS: Final = 30
# Seconds in which a client must read the answers that wait for it.
UNREAD_SECONDS: Final = 30
# Seconds that a connection stays open between requests; proxies must close theirs earlier.
KEEP_ALIVE_SECONDS: Final = 75
# Seconds that a request for a payment may wait for a change (`Prefer: wait`). Proxies give up after 60, mostly.
MAX_WAIT_SECONDS: Final = 30
# Requests that wait at a time; the next is answered at once. MAX_REQUESTS_PER_ADDRESS does not count them.
MAX_WAITING_REQUESTS: Final = 8000
# The same for one client, or one address without an access token.
MAX_WAITING_REQUESTS_OF_CLIENT: Final = 2000
# Exports that are read at a time over the operator's API and pages; the next is answered 429.
MAX_EXPORTS: Final = 8
# The same for one API key or operator.
MAX_EXPORTS_OF_CALLER: Final = 4
# Seconds in which an export is read to its end; then it is cut short.
EXPORT_SECONDS: Final = 3600
# Seconds to wait for requests in progress when the server stops.
GRACE_SECONDS: Final = 10
# Bytes of the request line and the headers together. A signed request has about 1 KiB of them.
MAX_HEADER_BYTES: Final = 32 * 1024
# Bytes of a body; the default of `max_body_bytes`.
DEFAULT_BODY_BYTES: Final = 65536
# Bytes of a form of the pages.
MAX_FORM_BYTES: Final = 16 * 1024
# Fields of a form of the pages.
MAX_FORM_FIELDS: Final = 8

# Contents of requests.

# Characters of a URL, wherever one is named.
MAX_URL_LENGTH: Final = 2048
# Characters of the host in a URL: those that a name in the DNS can have (RFC 1035 section 2.3.4).
MAX_HOST_LENGTH: Final = 253
# Characters of a wallet's path under the base URL.
MAX_WALLET_PATH_LENGTH: Final = 200
# Bytes of Accept, all its lines together; a longer one counts as absent, which RFC 9110 section 12.5.1 allows.
MAX_ACCEPT_BYTES: Final = 2048
# Bytes of the query of a list. A wallet address is the longest thing in it.
MAX_QUERY_BYTES: Final = 4096
# Items of a page when the client names no number.
DEFAULT_PAGE: Final = 20
# Items of a page.
MAX_PAGE: Final = 100
# Access items of a grant request: one of each type.
MAX_ACCESS_ITEMS: Final = 3
# Objects and arrays inside each other in metadata, itself among them. Programs that read it have limits too (RFC 8259
# section 9).
MAX_METADATA_DEPTH: Final = 128
# Bytes of metadata as written. It is stored as long as its payment, and a page shows that of a hundred payments.
MAX_METADATA_BYTES: Final = 4096
# Characters of an interval in the limits of a grant.
MAX_INTERVAL_LENGTH: Final = 256
# Characters of an Idempotency-Key, its quotes not counted.
MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255
# Characters that a password has at least; a shorter one of an earlier version still signs in.
MIN_PASSWORD_LENGTH: Final = 8
# Characters of a password.
MAX_PASSWORD_LENGTH: Final = 1024

# Grants.

# Seconds in which a client continues a grant once its owner has approved it; after that the approval has lapsed.
APPROVAL_SECONDS: Final = 3600

# Signatures and keys.

# Signatures of one request that are examined.
MAX_SIGNATURES: Final = 4
# Bytes of each of the headers Signature, Signature-Input and Content-Digest.
MAX_SIGNATURE_HEADER_BYTES: Final = 8192
# Characters of a signature's nonce, of a `finish` nonce and of an `interact_ref`.
MAX_NONCE_LENGTH: Final = 256
# Characters of a keyid.
MAX_KEYID_LENGTH: Final = 256
# Keys that are taken from a client's key set on another server.
MAX_JWKS_KEYS: Final = 32
# Fetches a second, and a burst, of a client's keys that are still fresh, because a signature does not fit them.
KEY_REFETCH_RATE: Final = 1
# Keys that are stored of a client known by its key alone; beyond it the oldest is deleted.
MAX_PRESENTED_KIDS: Final = 8
# Bytes of an answer of another server: a key set, a wallet address, an incoming payment, rates.
MAX_FETCHED_BYTES: Final = 65536

# Work.

# Units of work that wait for the database; the next one is answered with 503.
MAX_WAITING_UNITS: Final = 2048
# Units that share one commit.
MAX_UNITS_PER_COMMIT: Final = 256
# Access tokens whose holders are kept in memory; beyond it the oldest is read from the database again.
MAX_TOKEN_HOLDERS: Final = 1024
# Bytes free on the disk of the database, below which the server is not ready.
MIN_FREE_BYTES: Final = 64 * 1024 * 1024

# Names of other servers, each looked up in a thread that stays until the system gives up.

# Lookups in progress at a time for each purpose: clients' keys, receivers, peers, probes of peers, rates.
MAX_LOOKUPS: Final = 64
# Lookups that requests cause, of MAX_LOOKUPS; the others are left to payments in progress.
MAX_LOOKUPS_OF_REQUESTS: Final = 48
# The same for one client, or for all unknown clients of one address.
MAX_LOOKUPS_OF_CLIENT: Final = 8
# The same for one client of an address that is known by its key alone.
MAX_LOOKUPS_OF_KEY: Final = 4
# Seconds after which a lookup hangs: no further request waits for it.
SLOW_LOOKUP_SECONDS: Final = 3
# Seconds for which requests do not look up a name again after a failure.
FAILED_LOOKUP_SECONDS: Final = 5
# Names and servers that are remembered as failed; beyond it the oldest is dropped.
MAX_FAILED_NAMES: Final = 4096

# Exchanges with other servers, each of at most 4 s.

# Exchanges that requests need at a time, for keys of clients and again for receivers. Payments have as many besides.
MAX_EXCHANGES: Final = 64
# The same for one client, or for all unknown clients of one address.
MAX_EXCHANGES_OF_CLIENT: Final = 16
# The same for one client of an address that is known by its key alone.
MAX_EXCHANGES_OF_KEY: Final = 8
# Seconds for which requests do not ask a server again that could not be reached, or did not answer the same client.
FAILED_SERVER_SECONDS: Final = 5

# Webhooks.

# Endpoints that events are sent to.
MAX_WEBHOOKS: Final = 16
# Events in flight to one endpoint; endpoints never wait for each other.
MAX_DELIVERIES_OF_WEBHOOK: Final = 4
# Seconds in which an endpoint answers.
DELIVERY_SECONDS: Final = 15
# Seconds that a `Retry-After` of an endpoint can put off the next attempt.
MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600
# Hours for which the secret before a new one signs too.
ROTATION_HOURS: Final = 24

# Interledger.

# Bytes of a body at /ilp; the longest Prepare has 34 kB.
MAX_PACKET_BODY_BYTES: Final = 65536
# Packets of one peer that are in flight at a time; the next is rejected with T03. A payres sends 240 at most.
MAX_PACKETS_IN_FLIGHT: Final = 256
# Packets that are passed on to one peer at a time, besides our own; the next waits for 2 s and is rejected with T03.
MAX_PASSED_ON: Final = 64
# The same from one peer: half, which is more than a payres lets one wallet send.
MAX_PASSED_ON_OF_PEER: Final = 32
# Packets of our own with money in flight to one peer that does not repeat answers: what its restart leaves unanswered.
MAX_UNREPEATED: Final = 16
# The same from one wallet.
MAX_UNREPEATED_OF_WALLET: Final = 8
# One part in so many may arrive beyond what an incoming payment wants, or one unit if that is more: 0.5 %.
OVERPAY_TOLERANCE: Final = 200
# Seconds to wait for answers to packets in flight when the server stops.
DRAIN_SECONDS: Final = 5

# Rates, for each second.

# Seconds' worth of a rate that may come at once.
BURST_SECONDS: Final = 5
# Requests of one client, by its signature; the default of `rate_limit_per_client`.
DEFAULT_RATE_PER_CLIENT: Final = 10_000
# Requests from one address; the default of `rate_limit_per_address`.
DEFAULT_RATE_PER_ADDRESS: Final = 10_000
# Requests from one address that fail without a valid signature or token, or ask for a grant; the default of
# `rate_limit_unauthenticated`.
DEFAULT_RATE_UNAUTHENTICATED: Final = 50
# One in so many of `rate_limit_unauthenticated`: the rate of failed requests to other servers that a client may cause.
FAILED_READS_PART: Final = 10
# Packets of one peer; the next is rejected with T05; the default of `rate_limit_per_peer`.
DEFAULT_RATE_PER_PEER: Final = 10_000
# Clients, addresses or peers whose rates are counted; beyond it the least recently used is dropped.
MAX_COUNTED: Final = 16384

# Passwords, in any 15 minutes.

# Wrong passwords for a wallet or an operator's name from one address, or from a browser that the owner has used before.
MAX_WRONG_PASSWORDS: Final = 5
# Wrong passwords for a wallet or an operator's name from all addresses, except from browsers used before.
MAX_WRONG_PASSWORDS_PER_WALLET: Final = 20
# Wrong passwords from one address for all wallets, and again for all operators.
MAX_WRONG_PASSWORDS_PER_ADDRESS: Final = 20
# Days for which a wallet knows a browser that its owner has signed in with.
KNOWN_BROWSER_DAYS: Final = 365
# Browsers that a wallet knows; beyond it the least recently used is dropped.
MAX_KNOWN_BROWSERS: Final = 32
# Passwords that are checked at a time: each takes 64 MiB and a core for some tens of milliseconds.
PASSWORDS_AT_ONCE: Final = 2
# Passwords from known browsers that wait, and as many from others; the next is answered 503.
PASSWORDS_WAITING: Final = 32
