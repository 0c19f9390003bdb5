from collections.abc import Iterator

import pytest

from tests.instance import Instance
from tests.operator.pages.browser import Browser


@pytest.fixture
def browser(payres: Instance) -> Iterator[Browser]:
    """A browser in which nobody is signed in."""
    with Browser(payres) as opened:
        yield opened


@pytest.fixture(scope="module")
def ann(payres: Instance) -> Iterator[Browser]:
    """The browser of an operator who may change things."""
    with Browser(payres) as opened:
        opened.follow_link("ann")
        yield opened


@pytest.fixture(scope="module")
def reader(payres: Instance) -> Iterator[Browser]:
    """The browser of an operator who may look only."""
    with Browser(payres) as opened:
        opened.follow_link("reader", role="reads")
        yield opened
