"""A pytest plugin: the fixture `payres` is a running instance of its own for each test.

It is installed with the package, so `def test_checkout(payres): ...` is enough; docs/testing.md describes it. The heavy
parts load when a test first uses them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from payres.testing.instance import Instance


@pytest.fixture
def payres(tmp_path: Path) -> "Iterator[Instance]":
    """A payres on loopback with its own database file, wallets alice and bob with 1000.00 USD each, a client with a
    registered key whose grants are consented to at once, and a clock that the test moves."""
    from payres.testing.instance import run_instance

    with run_instance(tmp_path / "payres.db") as instance:
        yield instance
