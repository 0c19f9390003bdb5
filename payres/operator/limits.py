"""Limits of what operators do, and of what their server needs."""

from typing import Final

# Operators.

MAX_EXPORTS: Final = 8  # Concurrent exports of the operator's API and pages; further ones are answered 429.
MAX_EXPORTS_OF_CALLER: Final = 4  # The same per API key or operator.
MIN_FREE_BYTES: Final = 64 * 1024 * 1024  # Free bytes on the database's disk, below which the server is not ready.
