from collections.abc import Iterator

import pytest

from tests.testing.sandboxes import Sandbox, started


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox with a peer, for all tests."""
    with started(tmp_path_factory.mktemp("sandbox"), "--peers", "2") as (_, line), Sandbox(line) as found:
        yield found


@pytest.fixture
def sandbox(one: Sandbox) -> Sandbox:
    one.ask("POST", "/reset", {})
    return one
