"""The servers that the rows of the specification's table are tried on."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.instance import Instance, run_instance
from tests.specification.driver import Driver


@pytest.fixture(scope="session")
def driver(shared: Instance, anonymous: httpx2.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    database = tmp_path_factory.mktemp("patient") / "payres.db"
    with run_instance(database, continue_wait=5) as patient:
        yield Driver(shared, patient, anonymous)
