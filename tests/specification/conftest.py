"""The servers that the rows of the specification's table are tried on."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.instance import run_instance
from tests.specification.driver import Driver


@pytest.fixture(scope="session")
def driver(anonymous: httpx2.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("specification")
    with run_instance(folder / "payres.db") as instance, run_instance(folder / "slow.db", continue_wait=5) as patient:
        yield Driver(instance, patient, anonymous)
