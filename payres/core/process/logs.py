"""What a server tells of itself: its log, and what /metrics counts."""

import asyncio
import logging
import os
import select
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, Literal

import msgspec

from payres.core.process.rate_limiter import RateLimiter
from payres.core.protocol.clock import Clock, SystemClock
from payres.core.protocol.visible import visible_lines, visible_text

LogFormat = Literal["text", "json"]
LogLevel = Literal["info", "debug"]
REQUESTS: Final = "payres.requests"
STANDARD_ERROR: Final = 2
FLUSH_SECONDS: Final = 0.05  # to collect request lines that are written together
MAX_LINES: Final = 256  # written together
LINES_OF_CAUSE: Final = 1  # per second, with a burst of five: what others cause must not fill the disk
# Upper bounds in seconds, from cached answers to those that wait for another server.
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
UNITS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def configure(log_format: LogFormat, log_level: str) -> None:
    """Logs to standard error: from payres at this level, from libraries at WARNING."""
    logging.basicConfig(level=logging.WARNING, handlers=[OutputHandler(log_format)])
    logging.getLogger("payres").setLevel(log_level.upper())


class OutputHandler(logging.Handler):
    """Writes records to a descriptor without ever blocking: lines that do not fit into a full pipe are dropped.

    Repeated warnings and errors are bounded in rate; a line before the next says how many were left out.
    """

    def __init__(self, log_format: LogFormat, descriptor: int = STANDARD_ERROR, clock: Clock | None = None) -> None:
        super().__init__()
        self._format = log_format
        self._descriptor = descriptor
        self._rate = RateLimiter(LINES_OF_CAUSE, clock or SystemClock())
        self._repeated = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and self._rate.take(_cause(record)):
            self._repeated += 1
            return
        lines, repeated, is_json = [], self._repeated, self._format == "json"
        if repeated:
            count: Mapping[str, object] | str = {"repeated": repeated} if is_json else f"repeated={repeated}"
            lines.append(_line(record.created, "WARNING", "payres.logs", count))
            self._repeated = 0
        # Others' texts are in both: no line of theirs may look like one of the log.
        members = {"message": visible_text(record.getMessage())}
        if record.exc_info:
            members["exception"] = visible_lines(logging.Formatter().formatException(record.exc_info))
        entry = members if is_json else "\n".join(members.values()).replace("\n", "\n  ")
        self.write([*lines, _line(record.created, record.levelname, record.name, entry)])

    def write(self, lines: Sequence[bytes]) -> int:
        """Writes lines while there is room. Returns how many were written or begun."""
        written = 0
        while written < len(lines) and self.has_room():
            piece = lines[written]
            written += 1
            while written < len(lines) and len(piece) + len(lines[written]) <= select.PIPE_BUF:
                piece += lines[written]
                written += 1
            with suppress(OSError):  # the server continues if nobody reads the log
                while piece and self.has_room():  # repeats only for a very long line
                    os.write(self._descriptor, piece[: select.PIPE_BUF])
                    piece = piece[select.PIPE_BUF :]
        return written

    def has_room(self) -> bool:
        """Whether PIPE_BUF bytes can be written at once."""
        try:
            return bool(select.select([], [self._descriptor], [], 0)[1])
        except (OSError, ValueError):  # closed
            return False


class RequestLog:
    """Writes a line per request, in batches: singly, each takes longer than reading a resource. Counts lost lines."""

    def __init__(self, log_format: LogFormat, descriptor: int = STANDARD_ERROR) -> None:
        self._is_json = log_format == "json"
        self._output = OutputHandler(log_format, descriptor)
        self._lines: list[bytes] = []
        self._dropped = 0

    def write(
        self, method: str, path: str, status: int, code: str | None, seconds: float, more: Mapping[str, str]
    ) -> None:
        """Writes a line, which ends with `more`."""
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        ms = round(seconds * 1000, 1)
        entry: Mapping[str, object] | str
        if self._is_json:
            coded = {} if code is None else {"code": code}
            entry = {"method": method, "path": path, "status": status, **coded, "ms": ms, **more}
        else:
            entry = f"{method} {path} {status}{'' if code is None else f' {code}'} {ms} ms"
            entry += "".join(f" {name}={_quoted(value)}" for name, value in more.items())
        self._lines.append(_line(time.time(), "INFO", REQUESTS, entry))
        if len(self._lines) == MAX_LINES:
            self.flush()

    def flush(self) -> None:
        """Writes the collected lines."""
        lines, self._lines = self._lines, []
        if self._dropped and self._output.has_room():
            entry = {"dropped": self._dropped} if self._is_json else f"dropped={self._dropped}"
            lines.insert(0, _line(time.time(), "INFO", REQUESTS, entry))
            self._dropped = 0
        self._dropped += len(lines) - self._output.write(lines)


def _cause(record: logging.LogRecord) -> Hashable:
    """What repetitions of a record have in common: where its exception was raised and logged, or else its text."""
    error = record.exc_info and record.exc_info[1]
    if not error:
        return record.name, record.getMessage()
    raised = error.__traceback__
    while raised is not None and raised.tb_next is not None:
        raised = raised.tb_next
    place = None if raised is None else (raised.tb_frame.f_code.co_filename, raised.tb_lineno)
    return record.pathname, record.lineno, type(error), place


def _line(at: float, level: str, logger: str, entry: Mapping[str, object] | str) -> bytes:
    """A line of JSON with the members of an entry, or of text, with the time in UTC as RFC 3339."""
    seconds, milliseconds = divmod(int(at * 1000), 1000)
    moment = f"{_second(seconds)}.{milliseconds:03d}Z"
    if isinstance(entry, str):
        return f"{moment} {level} {logger}: {entry}\n".encode(errors="backslashreplace")
    return msgspec.json.encode({"time": moment, "level": level, "logger": logger, **entry}) + b"\n"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _quoted(value: str) -> str:
    """A value as one word of a line, quoted and escaped if necessary, so that it cannot forge a line."""
    return value if value.replace("-", "").isalnum() else msgspec.json.encode(value).decode()


class Histogram:
    """Counts of values up to each bound (the last count is of values above all bounds), and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Metrics:
    """The counters of a server; labels are named as in docs/operating.md."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], Histogram] = {}  # seconds by route, method, status
        self.errors: Counter[str] = Counter()  # by code
        self.events: Counter[str] = Counter()  # by type
        self.missing_rates: set[tuple[str, str]] = set()  # the codes of pairs, until they are stored
        self.batch_sizes = Histogram(UNITS)  # units per commit
        self.transaction_seconds = Histogram(SECONDS)  # of writes, COMMIT included

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        found = self.requests.get((route, method, status))
        if found is None:
            found = self.requests[route, method, status] = Histogram(SECONDS)
        found.observe(seconds)
