"""What tests of events share: an instance of their own, and what it has written into its outbox."""

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from payres.core.protocol.wire import Resource
from payres.core.store import events
from tests.helpers import Json
from tests.instance import Instance, run_instance


class Sample(Resource, frozen=True):
    """Some data of an event."""

    number: int


class Told(NamedTuple):
    """An event as it is stored."""

    type: str
    data: Json


class Outbox:
    """The events of an instance from now on."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.last = instance.read(events.last_sequence)

    def take(self) -> list[Told]:
        """What has come since it was last asked."""
        found = self._instance.read(lambda tx: events.events_after(tx, self.last, 1000))
        self.last = max([self.last, *(event.sequence for event in found)])
        return [Told(event.type, json.loads(event.data)) for event in found]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One for each module: what other tests do would be among its events."""
    with run_instance(tmp_path_factory.mktemp("events") / "payres.db") as running:
        yield running


@pytest.fixture
def outbox(instance: Instance) -> Outbox:
    return Outbox(instance)
