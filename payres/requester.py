"""For whom a request takes slots that all share, so that nobody takes those of others.

A client that is known counts by itself, wherever it asks from. One that is not known yet counts with all others at its
address; so does one that is known by its key alone, because anyone can make any number of keys.
"""

from contextvars import ContextVar

# The identity of a known client, or an address as requests are counted by ("" where there is none to count by), with
# the identity of the client there that is known by its key alone.
Requester = tuple[str] | tuple[str, str]

# Whose request is served; None outside of requests, for what the server does of its own accord.
requested_by: ContextVar[Requester | None] = ContextVar("requested_by", default=None)


def count_for_client(identity: str, is_key: bool) -> None:
    """The request is this client's: `is_key` for one that is known by its key alone."""
    requester = requested_by.get()
    if requester is not None:
        requested_by.set((requester[0], identity) if is_key else (identity,))
