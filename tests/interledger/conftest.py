"""The vectors, made by the implementations in JavaScript that Interledger nodes run.

A test that takes one of the arguments below runs once for each vector of that table.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.remote.conftest import elapse, nobody, open_site, serve, site  # noqa: F401
from tests.interledger.node import Node, open_node

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
TABLES = {
    "var_uint_vector": VECTORS["oer"]["varUInt"],
    "length_vector": VECTORS["oer"]["varOctetStringLengthPrefix"],
    "uint64_vector": VECTORS["oer"]["uint64"],
    "timestamp_vector": VECTORS["oer"]["timestamps"],
    "invalid_vector": VECTORS["invalidPackets"],
    "frame_vector": VECTORS["frames"],
    "stream_vector": VECTORS["streamPackets"],
    "fulfillment_vector": VECTORS["fulfillments"],
    "fixture_vector": VECTORS["streamFixtures"],
    "credentials_vector": VECTORS["credentials"],
    "receiver_vector": VECTORS["receiver"]["cases"],
    "sender_vector": VECTORS["sender"],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives each test that asks for a table one vector at a time."""
    for argument in TABLES.keys() & set(metafunc.fixturenames):
        ids = [str(vector.get("name", number)) for number, vector in enumerate(TABLES[argument])]
        metafunc.parametrize(argument, TABLES[argument], ids=ids)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a database of its own, whose ledger must balance in the end."""
    async with open_node(tmp_path / "node.db") as opened:
        yield opened
        await opened.check_books()


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    """All vectors: bytes are hexadecimal, large numbers are decimal text."""
    return dict(VECTORS)
