"""What the tests of the official client run against: a real server, its command line, Node, and a wallet's owner."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CONTINUE_WAIT = "1"  # seconds; the default of 5 would only make the tests slow
SHUTDOWN_SECONDS = 20

Json = dict[str, Any]
Command = Callable[..., Json]
Decide = Callable[[str], object]
Story = Callable[..., dict[str, Json]]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the server and of its commands, with a database of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PAYRES_")}
    database = tmp_path_factory.mktemp("server") / "payres.db"
    return {**inherited, "PAYRES_DATABASE": str(database), "PAYRES_CONTINUE_WAIT": CONTINUE_WAIT}


@pytest.fixture(scope="session")
def base_url(environment: dict[str, str]) -> Iterator[str]:
    """The base URL of a running `payres serve`, one a test process. It must end cleanly and without a fault logged."""
    directory = Path(environment["PAYRES_DATABASE"]).parent
    log = directory / "server.log"
    command = [sys.executable, "-m", "payres", "serve", "--port", "0", "--json"]
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            assert process.stdout is not None
            announced = b"".join(iter(process.stdout.readline, b"}\n")) + b"}" if process.poll() is None else b""
            base_url: str = json.loads(announced)["baseUrl"]
            environment["PAYRES_BASE_URL"] = base_url
            yield base_url
            process.send_signal(signal.SIGTERM)
            assert process.wait(SHUTDOWN_SECONDS) == 0
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="session")
def payres(base_url: str, environment: Mapping[str, str]) -> Command:
    """Runs a `payres` command beside the server and returns the JSON object that it prints."""

    def run(*arguments: str) -> Json:
        command = [sys.executable, "-m", "payres", *arguments, "--json"]
        directory = Path(environment["PAYRES_DATABASE"]).parent
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        resource: Json = json.loads(done.stdout)
        return resource

    return run


@pytest.fixture(scope="session")
def run_node() -> Callable[[str, Json, Decide | None], list[Json]]:
    """Runs a story in Node with settings on its standard input; returns the JSON lines that it prints.

    A line with `decide` is a URL for the wallet's owner, who decides before the next line comes.
    """
    if not (HERE / "node_modules").is_dir():
        pytest.fail("tests/interop/node_modules is missing: run `make test`, which installs the official client")
    node = shutil.which("node")
    if node is None:
        pytest.fail("Node 20 or later is needed for the official client, and there is no `node` on the PATH")

    def run(story: str, settings: Json, decide: Decide | None = None) -> list[Json]:
        command = [node, str(HERE / "stories" / f"{story}.mjs")]
        lines: list[Json] = []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(settings))
                process.stdin.close()
                for line in process.stdout:
                    lines.append(json.loads(line))
                    if "decide" in lines[-1]:
                        assert decide is not None, f"{story} asks for consent and nobody is there to decide"
                        decide(lines[-1]["decide"])
                assert process.wait(SHUTDOWN_SECONDS) == 0, f"{story} failed after {[one.get('step') for one in lines]}"
            finally:
                process.kill()
        return lines

    return run


@pytest.fixture(scope="session")
def run_story(run_node: Callable[[str, Json, Decide | None], list[Json]]) -> Story:
    """Runs a story and returns its steps by name."""

    def run(story: str, settings: Json, decide: Decide | None = None) -> dict[str, Json]:
        return {line.pop("step"): line for line in run_node(story, settings, decide)}

    return run
