"""What a sample counts for."""

from pathlib import Path

import payres
from benchmarks.profiler import ELSEWHERE, Profile, room
from benchmarks.sampler import Function, Sample

PACKAGE = Path(payres.__file__).parent
LIBRARY = Function("/venv/lib/python3.11/site-packages/nacl/bindings/crypto_sign.py", 90, "crypto_sign_open")
VERIFY = Function(f"{PACKAGE}/signatures/verify.py", 10, "verify")
LEDGER = Function(f"{PACKAGE}/ledger.py", 20, "transfer")
ROUTE = Function(f"{PACKAGE}/routes/quotes.py", 30, "create")
LOOP = Function("/usr/lib/python3.11/asyncio/runners.py", 86, "Runner.run")
SERVER = Function(f"{PACKAGE}/http/server.py", 51, "HttpServer.run")
COMMAND = Function(f"{PACKAGE}/cli/server.py", 60, "serve")


def test_library_counts_for_the_room_that_called_it() -> None:
    assert room([LIBRARY, VERIFY, ROUTE, LOOP, SERVER, COMMAND]) == "signatures"
    assert room([LEDGER, ROUTE, LOOP, SERVER, COMMAND]) == "ledger"
    assert room([LOOP, SERVER, COMMAND]) == ELSEWHERE


def test_profile_shows_rooms_and_own_time_of_each_request() -> None:
    samples = [Sample(0.003, (LIBRARY, VERIFY, ROUTE)), Sample(0.001, (ROUTE,))]
    assert Profile(10, 0.005, samples).text("signed GET", functions=1) == "\n".join(
        [
            "signed GET: 500.0 µs of processor time, 400.0 µs of it the event loop's",
            "",
            "| room       | time     | share |",
            "| ---------- | -------- | ----- |",
            "| signatures | 300.0 µs | 75.0% |",
            "| routes     | 100.0 µs | 25.0% |",
            "",
            "| function                                         | own time | share |",
            "| ------------------------------------------------ | -------- | ----- |",
            "| nacl/bindings/crypto_sign.py:90 crypto_sign_open | 300.0 µs | 75.0% |",
        ]
    )
