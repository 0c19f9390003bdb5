"""The requests that are measured, sent to servers as they are measured, and sampled while they are answered."""

import http.client
import os
import signal
import socket
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from benchmarks.load import BARE, BASE_URL, Server, free_port, payment_milliseconds, running
from benchmarks.population import SAMPLE, Population, attempted, populate, subscribe
from benchmarks.profiler import SAMPLER
from benchmarks.raw_requests import PacketSource, creations, lists, payments, quotes, reads
from tests.helpers import TIMEOUT, wait_until

EACH = 3


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    return populate(tmp_path_factory.mktemp("benchmarks") / "payres.db", BASE_URL, SAMPLE)


@pytest.fixture(scope="module")
def packets(population: Population) -> PacketSource:
    return PacketSource(population)


def statuses(server: Server, requests: Iterable[bytes]) -> set[int]:
    """The statuses of the answers to a few requests over one connection."""
    found: set[int] = set()
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as connection:
        for request in islice(requests, EACH * 2):
            connection.sendall(request)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            answer.read()
            found.add(answer.status)
    return found


def test_payres_does_what_is_asked_and_is_sampled(
    population: Population, packets: PacketSource, tmp_path: Path
) -> None:
    endpoint, file = f"http://127.0.0.1:{free_port()}", tmp_path / "samples"
    subscribe(population, f"{endpoint}/webhook", undelivered=EACH)
    sent = attempted(population.path)
    with (
        running(BARE, tmp_path / "receiver.db", endpoint),
        running((SAMPLER, str(file), "serve"), population.path) as server,
    ):
        os.kill(server.process_id, signal.SIGUSR1)
        began = server.processor_seconds()
        assert statuses(server, reads(population)) == {200}
        assert statuses(server, lists(population)) == {200}
        assert statuses(server, creations(population)) == {201}
        assert statuses(server, quotes(population)) == {201}
        assert len(list(payments(population, most=EACH))) == EACH * 2
        assert statuses(server, payments(population, most=EACH)) == {201}
        assert payment_milliseconds(population, server.port, seconds=0.01)
        assert statuses(server, packets.requests(EACH)) == {200}
        assert packets.fulfilled() == EACH
        wait_until(lambda: attempted(population.path) > sent + EACH, "the webhook gets no events")
        while server.processor_seconds() - began < 0.1:
            statuses(server, reads(population))
        assert server.memory() > 1
    samples = msgspec.json.decode(file.read_bytes(), type=list[tuple[float, list[str]]])
    assert {stack[-1].partition(":")[0] for _, stack in samples} == {SAMPLER}


def test_bare_application_answers_the_same_requests(
    population: Population, packets: PacketSource, tmp_path: Path
) -> None:
    with running(BARE, tmp_path / "bare.db") as server:
        assert statuses(server, reads(population)) == {200}
        assert statuses(server, creations(population)) == {201}
        assert statuses(server, packets.requests(EACH)) == {200}
