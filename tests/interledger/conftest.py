"""The vectors, made by the implementations in JavaScript that Interledger nodes run, and mangled packets.

A test that takes one of the arguments below runs once for each vector of that table.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

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

Mangle = Callable[[int, int, Sequence[bytes]], Iterator[bytes]]


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


@pytest.fixture(scope="session")
def mangle() -> Mangle:
    """`mangle(seed, count, samples)` gives bytes that are nearly one of the samples, and now and then pure noise."""

    def mangled(seed: int, count: int, samples: Sequence[bytes]) -> Iterator[bytes]:
        random = Random(seed)
        for _ in range(count):
            if random.random() < 0.1:
                yield random.randbytes(random.randrange(120))
                continue
            data = random.choice(samples)
            for _ in range(random.choice((1, 1, 1, 2, 5))):
                data = random.choice(CHANGES)(random, data)
            yield data

    return mangled


# Bytes that mean something at the front of a length, a number or a packet.
TELLING = bytes((0x00, 0x01, 0x0C, 0x0D, 0x0E, 0x7F, 0x80, 0x81, 0x82, 0x84, 0x88, 0xFF))


def _changed(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) or 1)
    return data[:at] + random.randbytes(1) + data[at + 1 :]


def _telling(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) or 1)
    return data[:at] + bytes((random.choice(TELLING),)) + data[at + 1 :]


def _nudged(random: Random, data: bytes) -> bytes:
    """One byte is one more or one less, as lengths and counts go wrong."""
    at = random.randrange(len(data) or 1)
    return data[:at] + bytes((byte + random.choice((1, -1))) % 256 for byte in data[at : at + 1]) + data[at + 1 :]


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _removed(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at + random.randrange(9) :]


def _inserted(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(random.randrange(9)) + data[at:]


def _repeated(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    end = start + random.randrange(40)
    return data[:end] + data[start:end] + data[end:]


CHANGES = (_changed, _telling, _nudged, _cut, _removed, _inserted, _repeated)
