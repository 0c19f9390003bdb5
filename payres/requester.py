"""The requester that a request's slots are counted under, so that nobody uses up the slots of others.

A known client is counted by itself, from any address. New clients are counted together with all others of their
address, and so are clients known by their key alone, because anyone can make any number of keys.
"""

from contextvars import ContextVar

# The identity of a known client, or an address as requests are counted by ("" where there is none to count by), with
# the identity of the client there that is known by its key alone.
Requester = tuple[str] | tuple[str, str]

# The requester of the request that is being served; None outside of requests, for the server's own work.
requested_by: ContextVar[Requester | None] = ContextVar("requested_by", default=None)


def count_for_client(identity: str, is_key: bool) -> None:
    """Counts the request for this client; `is_key` for one that is known by its key alone."""
    requester = requested_by.get()
    if requester is not None:
        requested_by.set((requester[0], identity) if is_key else (identity,))
