"""The measurements: which server is measured at what, interleaved over several rounds."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

import msgspec

from benchmarks import CannotMeasure, load
from benchmarks.figures import Figures, Series
from benchmarks.load import BARE, BASE_URL, Server, running, write_requests
from benchmarks.population import FEW_PAYMENTS, Population, attempted, populate, subscribe
from benchmarks.raw_requests import PacketSource, creations, lists, payments, quotes, reads

T = TypeVar("T")

MANY_CONNECTIONS = 256
UNDELIVERED_EVENTS = 10_000
REFUSED_URL = "http://127.0.0.1:1/"  # where nothing listens
# More than any of the servers takes.
MOST_PACKETS_PER_SECOND = 8000
MOST_PAYMENTS_PER_SECOND = 2000
REPLAYED = {"read": reads, "create": creations, "list": lists, "quote": quotes}
OF_BARE = ("read", "create")


class Extent(msgspec.Struct, frozen=True):
    """How much is measured. `seconds` is the length of one replay, `payments` the size of the grown database.

    `remote_payments` is how many payments one round makes to another server.
    """

    rounds: int
    seconds: int
    payments: int
    remote_payments: int
    requests_before_weighing: int


FULL = Extent(rounds=5, seconds=3, payments=10_000_000, remote_payments=200, requests_before_weighing=100_000)
QUICK = Extent(rounds=3, seconds=1, payments=100_000, remote_payments=40, requests_before_weighing=1000)


class Subject(msgspec.Struct, frozen=True):
    """A server to measure: what is in its database, and what it is sent: files of requests, and packets."""

    side: str
    database: Path
    population: Population
    requests: Mapping[str, Path]
    packets: PacketSource

    def running(self) -> AbstractContextManager[Server]:
        return running(BARE if self.side == "bare" else load.PAYRES, self.database)


class Measurement(msgspec.Struct, frozen=True):
    """Measures everything, with databases and logs in `directory`; `tell` hears how far it is."""

    directory: Path
    cache: Path
    extent: Extent
    figures: Figures
    tell: Callable[[str], None]

    def run(self) -> None:
        """Adds to the figures. Raises CannotMeasure."""
        few, grown = self._subject("payres"), self._subject("grown")
        # The bare application is sent the very same requests.
        bare = msgspec.structs.replace(few, side="bare", database=self.directory / "bare.db")
        for turn in self._rounds("start-up, cold reads"):
            for subject in _in_turn((few, grown), turn):
                with subject.running() as server:
                    self._add("start", subject, start=server.start_seconds)
            for kind in ("read", "list"):
                self._measure_cold(grown, kind)
        with ExitStack() as stack:
            servers = [(subject, stack.enter_context(subject.running())) for subject in (few, bare, grown)]
            for turn in self._rounds("throughput"):
                self._measure_side_by_side(_in_turn(servers, turn))
                self._measure_beside_readers(*servers[0])
        for subject in (few, grown):
            self.tell(f"memory of {subject.side}")
            self._weigh(subject)
        self._measure_webhooks()
        with load.running_pair(self.directory, FEW_PAYMENTS) as pay:
            for _ in self._rounds("payments to another server"):
                rate, processor = pay(self.extent.remote_payments)
                self._add("remote", few, rate=rate, processor=processor)

    def _rounds(self, title: str) -> Iterator[int]:
        for turn in range(self.extent.rounds):
            self.tell(f"{title}, round {turn + 1} of {self.extent.rounds}")
            yield turn

    def _subject(self, side: str, name: str = "") -> Subject:
        path = self.directory / f"{name or side}.db"
        if side == "grown":
            population = populate(path, BASE_URL, self.extent.payments, self.cache, self.tell)
        else:
            population = populate(path, BASE_URL, FEW_PAYMENTS)
        files = {kind: write_requests(path.with_suffix(f".{kind}"), of(population)) for kind, of in REPLAYED.items()}
        return Subject(side, path, population, files, PacketSource(population))

    def _measure_cold(self, subject: Subject, kind: str) -> None:
        """The first second of a server of whose database nothing is in memory."""
        with subject.database.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with subject.running() as server:
            self._load(subject, server, f"cold {kind}", subject.requests[kind], seconds=1)

    def _measure_side_by_side(self, servers: Sequence[tuple[Subject, Server]]) -> None:
        for kind in REPLAYED:
            for subject, server in servers:
                if subject.side != "bare" or kind in OF_BARE:
                    self._load(subject, server, kind, subject.requests[kind])
                if (subject.side, kind) == ("payres", "read"):
                    self._load(subject, server, "wide", subject.requests["read"], connections=MANY_CONNECTIONS)
        for subject, server in servers:
            self._measure_packets(subject, server)
        for subject, server in servers:
            if subject.side != "bare":
                self._load(subject, server, "pay", self._payments(subject), requests_each=2)
                each = load.payment_milliseconds(subject.population, server.port, self.extent.seconds / 2)
                self._add("pay alone", subject, p50=median(each), p99=quantiles(each, n=100)[-1])

    def _measure_beside_readers(self, subject: Subject, server: Server) -> None:
        payments = self._payments(subject)
        with ThreadPoolExecutor(max_workers=1) as beside:
            readers = beside.submit(load.replay, server.port, subject.requests["read"], self.extent.seconds)
            found = load.replay(server.port, payments, self.extent.seconds)
            readers.result()
        self._add("pay beside", subject, rate=found.per_second / 2)

    def _payments(self, subject: Subject) -> Path:
        made = payments(subject.population, self.extent.seconds * MOST_PAYMENTS_PER_SECOND)
        return write_requests(subject.database.with_suffix(".payments"), made)

    def _measure_packets(self, subject: Subject, server: Server) -> None:
        made = subject.packets.requests(self.extent.seconds * MOST_PACKETS_PER_SECOND)
        file = write_requests(subject.database.with_suffix(".packets"), made)
        before = subject.packets.fulfilled()
        sent = self._load(subject, server, "packet", file)
        fulfilled = subject.packets.fulfilled() - before
        if subject.side != "bare" and fulfilled < sent:
            raise CannotMeasure(f"of {sent} packets only {fulfilled} were new and fulfilled")

    def _weigh(self, subject: Subject) -> None:
        """Memory after so many requests of all kinds, while no other server runs that would share it."""
        with subject.running() as server:
            sent = 0
            while sent < self.extent.requests_before_weighing:
                for file in subject.requests.values():
                    sent += load.replay(server.port, file, self.extent.seconds).requests
            self._add("memory", subject, memory=server.memory())

    def _measure_webhooks(self) -> None:
        """Each server runs alone: one with a webhook has much to deliver when its load has ended."""
        endpoint = f"http://127.0.0.1:{load.free_port()}"
        without = self._subject("payres", name="fresh")
        webhook, undelivered = self._subject("webhook"), self._subject("undelivered")
        subscribe(webhook.population, f"{endpoint}/webhook")
        subscribe(undelivered.population, REFUSED_URL, UNDELIVERED_EVENTS)
        sent = attempted(webhook.database)
        with running(BARE, self.directory / "receiver.db", endpoint):
            for turn in self._rounds("webhooks"):
                for subject in _in_turn((without, webhook, undelivered), turn):
                    with subject.running() as server:
                        # Its quotes are paid next, and all modules are loaded by then.
                        load.replay(server.port, subject.requests["quote"], self.extent.seconds)
                        if subject is not undelivered:
                            self._load(subject, server, "fresh pay", self._payments(subject), requests_each=2)
                        if subject is not webhook:
                            self._load(subject, server, "fresh create", subject.requests["create"])
        if attempted(webhook.database) == sent:
            raise CannotMeasure("the webhook got no event")

    def _load(
        self,
        subject: Subject,
        server: Server,
        measure: str,
        file: Path,
        requests_each: int = 1,
        seconds: int | None = None,
        connections: int = load.CONNECTIONS,
    ) -> int:
        """Replays the file; adds the rate, the processor time and the latencies. Returns how many answers came.

        With two requests for each payment, latencies of the one and the other would be mixed, and are left out.
        """
        before = server.processor_seconds()
        found = load.replay(server.port, file, seconds or self.extent.seconds, connections)
        used = (server.processor_seconds() - before) / found.requests * 1e6
        self._add(measure, subject, rate=found.per_second / requests_each, processor=used * requests_each)
        if requests_each == 1:
            self._add(measure, subject, p50=found.median / 1e3, p99=found.slowest_hundredth / 1e3)
        return found.requests

    def _add(self, measure: str, subject: Subject, **figures: float) -> None:
        for quantity, figure in figures.items():
            self.figures.add(Series(measure, subject.side, quantity), figure)


def _in_turn(items: Sequence[T], turn: int) -> Sequence[T]:
    """The items, every other time from behind: what the machine does meanwhile shall not always hit the same one."""
    return items if turn % 2 == 0 else items[::-1]
