"""All limits that clients, peers and other servers can reach; docs/reference/limits.md is tested against it.

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
MAX_EXPORTS: Final = 8  # Concurrent exports of the operator's API and pages; further ones are answered 429.
MAX_EXPORTS_OF_CALLER: Final = 4  # The same per API key or operator.
MAX_EXPORTS_OF_OWNERS: Final = 16  # Concurrent statements of owners, besides those.
MAX_EXPORTS_OF_OWNER: Final = 2  # The same per owner.
OWNER_EXPORT_SECONDS: Final = 300  # Seconds in which an owner's statement must be read.
EXPORT_SECONDS: Final = 3600  # Seconds in which an export must be read; then it is cut short.
GRACE_SECONDS: Final = 10  # Seconds to wait for requests in progress when the server stops.
# Bytes of the request line and headers together. A signed request has about 1 KiB.
MAX_HEADER_BYTES: Final = 32 * 1024
DEFAULT_BODY_BYTES: Final = 65536  # Bytes of a body; the default of `max_body_bytes`.
MAX_FORM_BYTES: Final = 16 * 1024  # Bytes of a form on a page.
# Mails of a kind to an owner in an hour: all but the last at once, and what follows together in that, after an hour.
MAX_NOTICES_OF_KIND: Final = 4
# Forms that an owner sends in an hour, half of them at once; further ones are answered 429, except those that only take
# access away or pause something.
MAX_FORMS_OF_OWNER: Final = 240
MAX_FORM_FIELDS: Final = 64  # Fields of a form on a page.

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
# Minimum characters of a new password; older, shorter ones remain valid.
MIN_PASSWORD_LENGTH: Final = 8
MAX_PASSWORD_LENGTH: Final = 1024  # Characters of a password.

# Incoming payments.

# Days after its expiry for which an incoming payment without an incomingAmount that received nothing can be read.
EMPTY_PAYMENT_DAYS: Final = 7
# Payments from wallets on other servers whose next step is taken at once; others wait for one of them.
MAX_CHECKOUTS: Final = 32
MAX_CHECKOUTS_OF_SERVER: Final = 4  # The same to one server: payers of a slow one do not delay those of others.

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
MIN_FREE_BYTES: Final = 64 * 1024 * 1024  # Free bytes on the database's disk, below which the server is not ready.

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

# Webhooks.

MAX_WEBHOOKS: Final = 16  # Registered endpoints.
MAX_WEBHOOKS_OF_WALLET: Final = 5  # The same of one wallet, which its owner adds.
MAX_DELIVERIES_OF_WEBHOOK: Final = 4  # Events in flight to one endpoint; endpoints never wait for each other.
# Events that wait for one endpoint by turns of their wallets; further ones wait until there are fewer.
MAX_EVENTS_IN_TURNS: Final = 100_000
DELIVERY_SECONDS: Final = 15  # Seconds in which an endpoint must answer.
MAX_KEPT_ATTEMPTS: Final = 20  # Attempts to send events to an endpoint that are kept, the latest ones.
MAX_KEPT_ANSWER_BYTES: Final = 500  # The beginning of the endpoint's answer, which is kept with an attempt.
MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600  # Seconds by which an endpoint's `Retry-After` can delay the next attempt.
ROTATION_HOURS: Final = 24  # Hours for which the previous secret also signs after a rotation.

# Interledger.

MAX_PACKET_BODY_BYTES: Final = 65536  # Bytes of a body at /ilp; the longest Prepare has 34 kB.
MAX_PACKETS_IN_FLIGHT: Final = 256  # Packets of one peer in flight; further ones are rejected with T03.
# Forwarded packets in flight to one peer, besides our own; further ones wait for 2 s and are rejected with T03.
MAX_PASSED_ON: Final = 64
MAX_PASSED_ON_OF_PEER: Final = 32  # The same from one peer: half, which is more than a payres lets one wallet send.
# Payments that send packets to receivers on other servers at once; others wait for one of them.
MAX_SENDING_PAYMENTS: Final = 64
MAX_SENDING_PAYMENTS_OF_WALLET: Final = 16  # The same from one wallet: slow receivers do not delay other wallets.
MAX_SENT: Final = 64  # Own packets of payments in flight to one peer; others wait.
MAX_SENT_OF_WALLET: Final = 24  # The same from one wallet: twenty for a payment, and room for another.
# Packets without money in flight to one peer, for quotes and for closing connections; others wait. A quote sends one at
# a time.
MAX_PROBES: Final = 96
MAX_PROBES_OF_CLIENT: Final = 8  # The same per client, or for all unknown clients of one address.
MAX_PROBES_OF_KEY: Final = 4  # The same per client known only by its key.
# Own money packets in flight to a peer that does not repeat answers: its restart leaves these unanswered.
MAX_UNREPEATED: Final = 16
MAX_UNREPEATED_OF_WALLET: Final = 8  # The same from one wallet.
# One part in this many may arrive beyond the incomingAmount (0.5 %), or one unit if that is more.
OVERPAY_TOLERANCE: Final = 200
# Seconds for which a Reject of a packet with a Request-Id is stored, if the packet does not expire earlier.
MAX_REJECT_SECONDS: Final = 600
DRAIN_SECONDS: Final = 5  # Seconds to wait for answers to packets in flight when the server stops.

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
# Payments with wallets on other servers that one address starts on payment pages.
CHECKOUT_RATE: Final = 1
# Packets of one peer; further ones are rejected with T05; the default of `rate_limit_per_peer`.
DEFAULT_RATE_PER_PEER: Final = 10_000
# Clients, addresses or peers with counted rates; beyond it the least recently used is dropped.
MAX_COUNTED: Final = 16384

# Passwords, in any 15 minutes.

# Wrong passwords for a wallet or an operator from one address, or from a known browser.
MAX_WRONG_PASSWORDS: Final = 5
# Wrong passwords for a wallet or an operator from all addresses, except from known browsers.
MAX_WRONG_PASSWORDS_PER_WALLET: Final = 20
# Wrong passwords from one address for all wallets, and separately for all operators.
MAX_WRONG_PASSWORDS_PER_ADDRESS: Final = 20
MAX_SESSIONS: Final = 32  # Sessions of a wallet's owner or an operator; beyond it that unused for longest ends.
KNOWN_BROWSER_DAYS: Final = 365  # Days for which a browser stays known after a sign-in.
# Known browsers of a wallet or an operator; beyond it the least recently used is dropped.
MAX_KNOWN_BROWSERS: Final = 32
# Passwords checked or set at once, and one more of an operator who signs in: each takes 64 MiB, and a core for tens of
# milliseconds.
PASSWORDS_AT_ONCE: Final = 2
# Waiting passwords from known browsers, as many from others, and as many new ones; half of that of one wallet,
# operator or API key. Further ones are answered 503.
PASSWORDS_WAITING: Final = 32

# What a wallet, an owner or an operator has.

MAX_PASSKEYS: Final = 20  # Passkeys of an owner or an operator.
RECOVERY_CODES: Final = 10  # Recovery codes of an owner or an operator, who gets them all at once.
# Sign-ins of an owner or an operator that are kept, and as many that failed, the latest ones.
MAX_KEPT_SIGN_INS: Final = 20
MAX_MAILS_ASKED_FOR: Final = 5  # Mails of a kind, codes or tests, that an owner asks for within an hour.
MAX_ORDERS_OF_WALLET: Final = 50  # Standing orders of a wallet that go on.
