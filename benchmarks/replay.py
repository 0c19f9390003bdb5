"""wrk, replaying a file of signed requests against a server."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from benchmarks import CannotMeasure

SCRIPT = Path(__file__).with_name("replay.lua")
CONNECTIONS = 32
TIMEOUT = "30s"  # an answer that comes late is late, and not broken


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


def write_requests(file: Path, requests: Iterable[bytes]) -> None:
    """Writes requests in the form that replay.lua reads."""
    file.write_bytes(b"".join(b"%d\n%b" % (len(request), request) for request in requests))


def replay(port: int, requests: Path, seconds: int, connections: int = CONNECTIONS) -> Replay:
    """Replays the file for whole seconds. Raises CannotMeasure unless every answer was 2xx."""
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        TIMEOUT,
        "-s",
        str(SCRIPT),
        f"http://127.0.0.1:{port}",
    ]
    finished = subprocess.run([*command, "--", str(requests)], capture_output=True, text=True, check=False)
    last = finished.stdout.strip().rpartition("\n")[2]
    if finished.returncode != 0 or not last.startswith("{"):
        raise CannotMeasure(f"wrk failed on {requests.name}: {finished.stdout}{finished.stderr}")
    counted = msgspec.json.decode(last, type=Replay)
    if counted.requests == 0 or counted.refused or counted.broken:
        raise CannotMeasure(f"{requests.name} was not answered as it should be: {last}")
    return counted
