import asyncio
import json
import logging
import os
import select
import unicodedata
from collections.abc import Iterator
from contextlib import suppress

import pytest

from payres.core.process.logs import LogFormat, LogLevel, OutputHandler, RequestLog, configure
from payres.testing.clock import MovableClock

Line = tuple[str, str, int, str | None, float, dict[str, str]]
LINE: Line = ("POST", "/quotes", 401, "invalid_token", 0.0009, {})


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The end that is read, and the end that is written."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def written(log: RequestLog, *lines: Line) -> None:
    """Writes lines that come at one time."""

    async def write() -> None:
        for line in lines:
            log.write(*line)
        log.flush()

    asyncio.run(write())


def logged(log_format: LogFormat, *lines: Line) -> str:
    """What was written of these lines."""
    read, write = os.pipe()
    with open(read, "rb") as reader:
        with open(write, "wb"):
            written(RequestLog(log_format, write), *lines)
        return reader.read().decode()


def test_request_is_one_line_of_text() -> None:
    hint = "Send an access\ntoken"
    first, second = logged("text", (*LINE[:5], {"hint": hint}), (*LINE[:5], {"grant": "019a-b"})).splitlines()
    assert first.partition(" ")[2] == (
        'INFO payres.requests: POST /quotes 401 invalid_token 0.9 ms hint="Send an access\\ntoken"'
    )
    assert second.endswith(" 0.9 ms grant=019a-b")


def test_request_is_one_object_of_json_without_what_is_not_known() -> None:
    found = json.loads(logged("json", LINE))
    assert found.pop("time").endswith("Z")
    known = {"method": "POST", "path": "/quotes", "status": 401, "code": "invalid_token", "ms": 0.9}
    assert found == {"level": "INFO", "logger": "payres.requests", **known}


def test_log_waits_for_nobody_and_says_how_many_lines_it_dropped(pipe: tuple[int, int]) -> None:
    read, write = pipe
    log = RequestLog("text", write)
    sent = 3000  # more than a pipe holds
    written(log, *[LINE] * sent)
    shown = os.read(read, 2**20).splitlines()
    assert 0 < len(shown) < sent
    assert all(line.endswith(b" 0.9 ms") for line in shown)
    written(log, LINE)
    dropped, last = os.read(read, 2**20).splitlines()
    assert dropped.endswith(b" dropped=%d" % (sent - len(shown)))
    assert last.endswith(b" 0.9 ms")


def test_log_that_nobody_reads_stops_nobody(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.close(read)
    written(RequestLog("text", write), LINE)
    os.close(write)
    written(RequestLog("text", write), LINE)


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    exc_info = error and (type(error), error, error.__traceback__)
    made = logging.LogRecord("payres.store", logging.ERROR, "f", 1, message, (), exc_info)  # type: ignore[arg-type]
    made.created = 1_764_000_000.0625
    return made


def test_other_lines_wait_for_nobody_either(pipe: tuple[int, int]) -> None:
    read, write = pipe
    handler = OutputHandler("text", write)
    for number in range(3000):  # more than a pipe holds
        handler.emit(record(f"{number:099}"))
    assert {line[-99:-4] for line in os.read(read, 2**20).splitlines()} == {b"0" * 95}
    handler.emit(record("y" * 3 * select.PIPE_BUF))
    assert os.read(read, 2**20).endswith(b" " + b"y" * 3 * select.PIPE_BUF + b"\n")
    os.close(read)
    handler.emit(record("z"))


def test_lines_have_times_in_utc_with_milliseconds_and_tracebacks(pipe: tuple[int, int]) -> None:
    read, write = pipe
    fault = record("the disk failed", OSError("full"))
    OutputHandler("text", write).emit(fault)
    assert os.read(read, 2**20) == b"2025-11-24T16:00:00.062Z ERROR payres.store: the disk failed\n  OSError: full\n"
    OutputHandler("json", write).emit(fault)
    assert json.loads(os.read(read, 2**20)) == {
        "time": "2025-11-24T16:00:00.062Z",
        "level": "ERROR",
        "logger": "payres.store",
        "message": "the disk failed",
        "exception": "OSError: full",
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_text_of_others_is_a_line_of_its_own_or_moves_the_terminal(
    pipe: tuple[int, int], log_format: LogFormat
) -> None:
    read, write = pipe
    said = "no\x1b[31m \x9b1m\u202e\r\n2026-01-01T00:00:00.000Z INFO payres.store: all is well\x85\x00"
    OutputHandler(log_format, write).emit(record(f"it said {said}", ValueError(said)))
    found = os.read(read, 2**20).decode()
    assert "\n2026" not in found
    shown = found if log_format == "text" else "".join(json.loads(found).values())
    assert not {one for one in shown if unicodedata.category(one) in {"Cc", "Cf"}} - {"\n"}


@pytest.mark.parametrize(("level", "is_told"), [("info", False), ("debug", True)])
def test_level_is_that_of_our_own_loggers(level: LogLevel, is_told: bool) -> None:
    own, libraries = logging.getLogger("payres"), logging.getLogger("aiosqlite")
    before = own.level
    try:
        configure("text", level)
        assert logging.getLogger("payres.interledger").isEnabledFor(logging.DEBUG) is is_told
        assert not libraries.isEnabledFor(logging.INFO)
    finally:
        own.setLevel(before)


def fault(number: int) -> logging.LogRecord:
    """What is logged of an unexpected exception, with a traceback."""
    try:
        raise KeyError
    except KeyError as error:
        return record(f"request {number} failed", error)


def test_what_others_repeat_is_bounded_in_rate_and_counted(pipe: tuple[int, int]) -> None:
    read, write = pipe
    clock = MovableClock(frozen=True)
    handler = OutputHandler("text", write, clock)
    for number in range(1000):
        handler.emit(fault(number))
        handler.emit(record("no exchange rates"))
        handler.emit(record("the disk failed", OSError("full")))  # another cause
    shown = os.read(read, 2**20).decode()
    assert shown.count("request ") == shown.count("Traceback") == shown.count("OSError") == 5
    assert shown.count("no exchange rates") == 5
    clock.advance(2)
    handler.emit(fault(1000))
    handler.emit(fault(1001))
    handler.emit(fault(1002))
    first, *lines = os.read(read, 2**20).decode().splitlines()
    assert first.endswith(" WARNING payres.logs: repeated=2985")
    assert [line.split()[-2] for line in lines if "request" in line] == ["1000", "1001"]
    handler.emit(record("another"))
    assert " repeated=1\n" in os.read(read, 2**20).decode()


def test_repetitions_are_a_member_of_json_and_what_was_asked_for_is_never_left_out(pipe: tuple[int, int]) -> None:
    read, write = pipe
    handler = OutputHandler("json", write, MovableClock(frozen=True))
    for _ in range(7):
        handler.emit(record("the disk failed"))
    for level in (logging.DEBUG, logging.INFO):
        asked = record("probed")
        asked.levelno = level
        for _ in range(9):
            handler.emit(asked)
    lines = [json.loads(line) for line in os.read(read, 2**20).splitlines()]
    assert [line.get("message", line.get("repeated")) for line in lines] == ["the disk failed"] * 5 + [2] + [
        "probed"
    ] * 18
