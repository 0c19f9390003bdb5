"""What all tests with servers in processes of their own share."""

from collections.abc import Iterator

import pytest

from tests.crash.server import STARTED
from tests.events.endpoint import Endpoint


@pytest.fixture(autouse=True)
def none_left_running() -> Iterator[None]:
    """Kills the servers that a test has started, also when it fails while it starts them."""
    yield
    while STARTED:
        STARTED.pop().kill()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A webhook's, which takes everything."""
    with Endpoint().running() as running:
        yield running
