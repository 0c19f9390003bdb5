"""Servers, started and weighed; and load: wrk replays a file of requests, payers wait for what they have asked for."""

import http.client
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from time import monotonic, perf_counter, sleep
from urllib.parse import urlsplit

import msgspec

from benchmarks import CannotMeasure
from benchmarks.population import Population, populate, reading, unit
from benchmarks.raw_requests import ASSET, CREDIT_LIMIT, payment, quote
from payres.operator.peers import add_peer
from payres.settings import ALL_SETTINGS, settings_with
from payres.testing.peering import peers_of

BASE_URL = "http://wallet.example"  # what requests are signed for; the servers' ports differ
START_SECONDS = 60.0
# The arguments of Python for each program; both read the settings in the environment.
PAYRES = ("-m", "payres", "serve")
BARE = (str(Path(__file__).with_name("bare.py")),)
SETTINGS = {"config": os.devnull, "signature_max_age": "86400"}  # requests are signed once, before everything
# No limits: all is from one.
SETTINGS |= {name: "0" for name in ALL_SETTINGS if name.startswith("rate_limit_")}
SCRIPT = Path(__file__).with_name("replay.lua")
CONNECTIONS = 32
TIMEOUT = "30s"  # an answer that comes late is late, and not broken
# One server reads from another at four places at a time, with a short queue: more payers than that would be told so.
PAYERS = 8
POLL_SECONDS = 0.005


class Server(msgspec.Struct, frozen=True):
    """A running server. `start_seconds` is from the start of the program to its first answer."""

    process_id: int
    port: int
    start_seconds: float

    def processor_seconds(self) -> float:
        """What all its threads have used so far, user and system together."""
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Megabytes (10^6 bytes) of memory: its own, and its proportional share of what other processes use too."""
        lines = Path(f"/proc/{self.process_id}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:"))


@contextmanager
def running(program: Sequence[str], database: Path, base_url: str = BASE_URL, **settings: str) -> Iterator[Server]:
    """Runs a server for the block, in the database's directory, at the URL's port or any. Raises CannotMeasure."""
    port, log = urlsplit(base_url).port or free_port(), database.with_suffix(".log")
    values = SETTINGS | {"database": str(database), "port": str(port), "base_url": base_url} | settings
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAYRES_")}
    environment |= {f"PAYRES_{name.upper()}": value for name, value in values.items()}
    with log.open("wb") as output:
        began = perf_counter()
        command = (sys.executable, *program)
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent, env=environment)
        try:
            while not _answers(port):
                if process.poll() is not None or perf_counter() - began > START_SECONDS:
                    raise CannotMeasure(f"{' '.join(command)} did not start: {log.read_text()}")
                sleep(0.002)
            yield Server(process.pid, port, perf_counter() - began)
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: benchmark\r\nconnection: close\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


class Replay(msgspec.Struct, frozen=True):
    """What wrk counted. Times are microseconds; `median` and `slowest_hundredth` are of the answers' latency."""

    requests: int
    microseconds: int
    refused: int
    broken: int
    median: int
    slowest_hundredth: int

    @property
    def per_second(self) -> float:
        return self.requests / self.microseconds * 1e6


def require_wrk() -> None:
    """Raises CannotMeasure, saying how to install it, when there is no wrk."""
    if shutil.which("wrk") is None:
        raise CannotMeasure("wrk is not installed. On Debian and Ubuntu: sudo apt install wrk")


def write_requests(file: Path, requests: Iterable[bytes]) -> Path:
    """Writes requests in the form that replay.lua reads."""
    file.write_bytes(b"".join(b"%d\n%b" % (len(request), request) for request in requests))
    return file


def replay(port: int, requests: Path, seconds: int, connections: int = CONNECTIONS) -> Replay:
    """Replays the file for whole seconds. Raises CannotMeasure unless every answer was 2xx."""
    options = ("-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", TIMEOUT, "-s", str(SCRIPT))
    command = ("wrk", *options, f"http://127.0.0.1:{port}", "--", str(requests))
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    last = finished.stdout.strip().rpartition("\n")[2]
    if finished.returncode != 0 or not last.startswith("{"):
        raise CannotMeasure(f"wrk failed on {requests.name}: {finished.stdout}{finished.stderr}")
    counted = msgspec.json.decode(last, type=Replay)
    if counted.requests == 0 or counted.refused or counted.broken:
        raise CannotMeasure(f"{requests.name} was not answered as it should be: {last}")
    return counted


def connect(port: int) -> socket.socket:
    """A connection to a server on this machine."""
    return socket.create_connection(("127.0.0.1", port))


def create(connection: socket.socket, request: bytes) -> str:
    """Sends the request; the id of what it made. Raises CannotMeasure unless that is answered 201."""
    connection.sendall(request)
    with http.client.HTTPResponse(connection) as answer:
        answer.begin()
        body = answer.read()
        if answer.status != 201:
            raise CannotMeasure(body.decode())
    return str(msgspec.json.decode(body)["id"])


def payment_milliseconds(population: Population, port: int, seconds: float) -> Sequence[float]:
    """How long payments take that are made one after the other over one connection, with nothing else going on.

    A payment's time is that of its two requests. Signing them is the client's own, and is not counted.
    """
    milliseconds: list[float] = []
    until = monotonic() + seconds
    with connect(port) as connection:
        for payment_id, caller in cycle(population.payments):
            asked = quote(population, caller, population.urls.resource("incoming-payments", payment_id))
            began = perf_counter()
            quote_id = create(connection, asked)
            quoted = perf_counter()
            paid = payment(population, caller, quote_id)
            signed = perf_counter()
            create(connection, paid)
            milliseconds.append((perf_counter() - signed + quoted - began) * 1e3)
            if monotonic() > until:  # after the first, however slow the machine is
                return milliseconds
    return milliseconds


def _pay_until_they_arrive(population: Population, port: int, quote_ids: Iterator[str]) -> None:
    """Makes a payment from one quote after the other, each when the one before has arrived.

    Raises CannotMeasure when one fails.
    """
    query = "SELECT state, failure FROM outgoing_payment WHERE id = ?"
    with connect(port) as connection, reading(population.path) as database:
        for quote_id in quote_ids:
            url = create(connection, payment(population, population.callers[0], quote_id))
            state = "sending"
            while state == "sending":
                sleep(POLL_SECONDS)
                state, failure = database.execute(query, (url.rpartition("/")[2],)).fetchone()
            if state != "completed":
                raise CannotMeasure(f"a payment to the other server failed: {failure}")


@contextmanager
def running_pair(directory: Path, incoming: int) -> Iterator[Callable[[int], tuple[float, float]]]:
    """Runs two servers that are peers for the block, each with so many incoming payments, on this machine's cores.

    Yields what completes so many payments from one to the other, eight at a time, and returns payments per second, and
    microseconds of both servers' processor time for each. Raises CannotMeasure.
    """
    own, other = (
        settings_with({"base_url": f"http://127.0.0.1:{free_port()}", "ilp_address": f"test.{name}"})
        for name in ("payer", "payee")
    )
    payer = populate(directory / "payer.db", own.base_url, incoming)
    payee = populate(directory / "payee.db", other.base_url, incoming)
    peers = zip((payer, payee), (own, other), peers_of(own, other, ASSET, CREDIT_LIMIT), strict=True)
    for side, settings, peer in peers:
        with unit(side.path, settings) as work:
            add_peer(work, **peer)
    flags = {"allow_private_hosts": "true"}
    with (
        running(PAYRES, payer.path, own.base_url, ilp_address="test.payer", **flags) as paying,
        running(PAYRES, payee.path, other.base_url, ilp_address="test.payee", **flags) as paid,
    ):

        def used() -> float:
            return paying.processor_seconds() + paid.processor_seconds()

        def pay(payments: int) -> tuple[float, float]:
            receivers = [payee.urls.resource("incoming-payments", payment_id) for payment_id, _ in payee.payments]
            with connect(paying.port) as connection:  # quotes are made before anything begins to count
                asked = [quote(payer, payer.callers[0], one) for one in islice(cycle(receivers), payments)]
                unpaid = iter([create(connection, request) for request in asked])
            began, before = monotonic(), used()
            with ThreadPoolExecutor(PAYERS) as pool:
                jobs = [pool.submit(_pay_until_they_arrive, payer, paying.port, unpaid) for _ in range(PAYERS)]
            for job in jobs:
                job.result()
            return payments / (monotonic() - began), (used() - before) / payments * 1e6

        pay(1)  # the first one fetches keys and a token, and imports the HTTP client on both sides
        yield pay
