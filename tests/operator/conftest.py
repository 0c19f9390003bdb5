"""What programs of operators have in common; and scripted servers, which are those of the tests of what asks them."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.core.remote.conftest import open_site, site  # noqa: F401
from tests.helpers import TIMEOUT
from tests.instance import Instance
from tests.operator.programs import NewProgram, Program


@pytest.fixture(scope="module")
def http() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=TIMEOUT) as client:
        yield client


@pytest.fixture(scope="module")
def program(payres: Instance, http: httpx2.Client) -> Program:
    """A program with all scopes."""
    return Program(payres, http)


@pytest.fixture(scope="module")
def new_program(payres: Instance, http: httpx2.Client) -> NewProgram:
    """Makes a program with these scopes."""
    return lambda *scopes: Program(payres, http, *scopes)
