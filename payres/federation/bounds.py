"""The limits of an HTTP client for other servers."""

import msgspec

from payres.limits import MAX_EXCHANGES, MAX_FETCHED_BYTES


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one exchange: seconds from the lookup to the last byte, seconds of waiting before, body bytes.

    `per_host` and `in_all` bound the concurrent exchanges, `idle` the connections kept open. `untrusted_hosts` says
    that clients' requests name the hosts: these share the exchanges and the lookups fairly, and payments have as many
    exchanges of their own.
    """

    seconds: float = 4.0
    queue_seconds: float = 2.0
    max_body_bytes: int = MAX_FETCHED_BYTES
    per_host: int = 4
    in_all: int = MAX_EXCHANGES
    idle: int = 16
    untrusted_hosts: bool = True
