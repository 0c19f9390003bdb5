"""What a request says besides its body, as far as no resource is needed for it."""

import tracemalloc
from itertools import product
from string import ascii_letters

from starlette.requests import Request

from payres.core.http.requests import page_query
from payres.core.protocol.limits import DEFAULT_PAGE, MAX_QUERY_BYTES
from payres.core.store.rows import PageQuery

MOST_KEPT = 8_000_000  # bytes


def asked(query: bytes) -> PageQuery:
    return page_query(Request({"type": "http", "query_string": query, "headers": []}))


def test_queries_that_are_kept_take_little_memory() -> None:
    """None has more to keep than one of many short names."""
    names = "&".join(map("".join, product(ascii_letters, repeat=3))).encode()
    tracemalloc.start()
    try:
        for number in range(200):
            assert asked(b"%03d&%b" % (number, names[: MAX_QUERY_BYTES - 4])).count == DEFAULT_PAGE
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MOST_KEPT
