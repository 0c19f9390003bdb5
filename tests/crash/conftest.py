"""What all tests with servers in processes of their own share."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.crash.load import Load, open_server, payers_of
from tests.crash.server import STARTED, Server
from tests.helpers import TIMEOUT
from tests.instance import Instance

Compile = Callable[[str], Path]


@pytest.fixture(autouse=True)
def none_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kills the servers that a test has started, also when it fails while it starts them.

    They and their commands find no settings where they run.
    """
    monkeypatch.chdir(tmp_path)
    yield
    while STARTED:
        STARTED.pop().kill()


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return open_server(tmp_path)


@pytest.fixture
def payers(server: Server) -> Iterator[Load]:
    """Clients that do nothing but pay, and need no consent for it any more."""
    with closing(payers_of(server)) as payers:
        yield payers


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Makes a library of a source beside this file, to be preloaded into a process whose calls it shall change."""

    def compile_one(name: str) -> Path:
        if shutil.which("gcc") is None:
            pytest.skip(f"there is no gcc to compile {name} with")
        library = tmp_path_factory.mktemp("compiled") / Path(name).with_suffix(".so")
        source = Path(__file__).with_name(name)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
        return library

    return compile_one


def check_ready(instance: Instance) -> None:
    """The server lives, and says that it takes payments."""
    for path in ("/healthz", "/readyz"):
        answer = httpx2.get(instance.base_url + path, timeout=TIMEOUT, verify=False)
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
