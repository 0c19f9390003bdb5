"""What all tests with servers in processes of their own share."""

from collections.abc import Iterator

import pytest

from tests.crash.server import STARTED


@pytest.fixture(autouse=True)
def none_left_running() -> Iterator[None]:
    """Kills the servers that a test has started, also when it fails while it starts them."""
    yield
    while STARTED:
        STARTED.pop().kill()
