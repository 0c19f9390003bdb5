"""Logs on standard error, one line each, as text or JSON."""

import asyncio
import logging
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, Literal

import msgspec

LogFormat = Literal["text", "json"]
REQUESTS: Final = "payres.requests"
STANDARD_ERROR: Final = 2
FLUSH_SECONDS: Final = 0.05  # that a line waits for others
MAX_LINES: Final = 256  # that wait together


def configure(log_format: LogFormat) -> None:
    """From now on, what is logged goes to standard error: our own from INFO, that of libraries from WARNING."""
    handler = OutputHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("payres").setLevel(logging.INFO)


class TextFormatter(logging.Formatter):
    """`<time> <level> <logger>: <message>`, with tracebacks below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - as it is there
        """RFC 3339 in UTC, with milliseconds."""
        return _stamp(int(record.created * 1000))


class JsonFormatter(TextFormatter):
    """The same as one JSON object, whose member `exception` is the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class Output:
    """A descriptor to write to. The server waits for nobody who reads it: what a pipe has no room for is dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, lines: Sequence[bytes]) -> int:
        """Writes the lines as far as there is room; how many were written or begun."""
        written = 0
        while written < len(lines) and self.has_room():
            count = _fitting(lines, written)
            piece = b"".join(lines[written : written + count])
            written += count
            with suppress(OSError):  # the server goes on when nobody reads the log any more
                while piece and self.has_room():  # more than once for a very long line alone
                    os.write(self._descriptor, piece[: select.PIPE_BUF])
                    piece = piece[select.PIPE_BUF :]
        return written

    def has_room(self) -> bool:
        """Whether PIPE_BUF bytes can be written at once."""
        try:
            return bool(select.select([], [self._descriptor], [], 0)[1])
        except (OSError, ValueError):  # it is closed
            return False


class OutputHandler(logging.Handler):
    """Writes records to standard error."""

    def __init__(self, descriptor: int = STANDARD_ERROR) -> None:
        super().__init__()
        self._output = Output(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        self._output.write([f"{self.format(record)}\n".encode(errors="backslashreplace")])


class RequestLog:
    """One line for each request. Those of a moment are written together: to write each at once takes longer than to
    read a resource. Lines for which there is no room are counted."""

    def __init__(self, log_format: LogFormat, descriptor: int = STANDARD_ERROR) -> None:
        self._is_json = log_format == "json"
        self._line = _as_json if self._is_json else _as_text
        self._output = Output(descriptor)
        self._lines: list[bytes] = []
        self._dropped = 0

    def write(
        self, method: str, path: str, status: int, code: str | None, seconds: float, more: Mapping[str, str]
    ) -> None:
        """Writes a line, which ends with what else is known of the request."""
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._lines.append(self._line(method, path, status, code, round(seconds * 1000, 1), more))
        if len(self._lines) == MAX_LINES:
            self.flush()

    def flush(self) -> None:
        """Writes the lines so far."""
        lines, self._lines = self._lines, []
        if self._dropped and self._output.has_room():
            lines.insert(0, _dropped(self._dropped, is_json=self._is_json))
            self._dropped = 0
        self._dropped += len(lines) - self._output.write(lines)


def _fitting(lines: Sequence[bytes], first: int) -> int:
    """How many of the lines from the first on fit into PIPE_BUF bytes; one does at least."""
    size, end = len(lines[first]), first + 1
    while end < len(lines) and size + len(lines[end]) <= select.PIPE_BUF:
        size += len(lines[end])
        end += 1
    return end - first


def _now() -> str:
    return _stamp(int(time.time() * 1000))


def _stamp(milliseconds: int) -> str:
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _as_json(method: str, path: str, status: int, code: str | None, ms: float, more: Mapping[str, str]) -> bytes:
    line: dict[str, object] = {"time": _now(), "level": "INFO", "logger": REQUESTS}
    line |= {"method": method, "path": path, "status": status}
    if code is not None:
        line["code"] = code
    return msgspec.json.encode({**line, "ms": ms, **more}) + b"\n"


def _as_text(method: str, path: str, status: int, code: str | None, ms: float, more: Mapping[str, str]) -> bytes:
    line = f"{_now()} INFO {REQUESTS}: {method} {path} {status}{'' if code is None else f' {code}'} {ms} ms"
    for name, value in more.items():
        line += f" {name}={_quoted(value)}"
    return f"{line}\n".encode()


def _dropped(lines: int, *, is_json: bool) -> bytes:
    if is_json:
        return msgspec.json.encode({"time": _now(), "level": "INFO", "logger": REQUESTS, "dropped": lines}) + b"\n"
    return f"{_now()} INFO {REQUESTS}: dropped={lines}\n".encode()


def _quoted(value: str) -> str:
    """A value as one word of a line, quoted and escaped if necessary, so that nobody can forge a line."""
    return value if value.replace("-", "").isalnum() else msgspec.json.encode(value).decode()
