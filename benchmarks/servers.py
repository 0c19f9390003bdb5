"""Server processes: started, awaited, weighed and stopped."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from urllib.parse import urlsplit

import msgspec

from benchmarks import CannotMeasure
from payres.core.process.settings import Settings

BASE_URL = "http://wallet.example"  # what requests are signed for; the servers' ports differ
TIMEOUT_SECONDS = 60.0
# The arguments of Python for each program; all read the settings in the environment.
PAYRES = ("-m", "payres", "serve")
BARE = (str(Path(__file__).with_name("bare.py")),)
RECEIVER = (str(Path(__file__).with_name("receiver.py")),)
SETTINGS = {"config": os.devnull, "signature_max_age": "86400"}  # requests are signed once, before everything
SETTINGS |= {
    name: "0" for name in Settings.__struct_fields__ if name.startswith("rate_limit_")
}  # none: all is from one


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
        proportional = next(line.split()[1] for line in lines if line.startswith("Pss:"))
        return int(proportional) * 1024 / 1e6


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
                if process.poll() is not None or perf_counter() - began > TIMEOUT_SECONDS:
                    raise CannotMeasure(f"{' '.join(command)} did not start: {log.read_text()}")
                sleep(0.002)
            yield Server(process.pid, port, perf_counter() - began)
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: benchmark\r\nconnection: close\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False
