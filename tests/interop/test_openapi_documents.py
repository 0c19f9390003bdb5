"""What generators and linters from npm make of our three OpenAPI documents, as a sandbox serves them."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.helpers import TIMEOUT, Json
from tests.interop.conftest import HERE
from tests.testing.sandboxes import started

PATHS = {"public": "/openapi.json", "operator": "/admin/v1/openapi.json", "control": "/_sandbox/openapi.json"}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    with started(tmp_path_factory.mktemp("sandbox")) as (_, line):
        yield line


@pytest.fixture
def documents(line: Json, tmp_path: Path) -> Path:
    """A folder with the documents, and the packages from npm."""
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    for name, path in PATHS.items():
        answer = httpx2.get(line["base_url"] + path, timeout=TIMEOUT)
        assert answer.json()["servers"] == [{"url": line["base_url"]}]
        (tmp_path / f"{name}.json").write_bytes(answer.content)
    return tmp_path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_linter_finds_nothing(documents: Path) -> None:
    shutil.copy(HERE / "scenarios/lint.mjs", documents)
    assert run(documents, "node", "lint.mjs", *(f"{name}.json" for name in PATHS)) == ""


def test_generated_types_fit_a_running_server(documents: Path, line: Json) -> None:
    apis = {name: {"root": f"{name}.json", "x-openapi-ts": {"output": f"{name}.d.ts"}} for name in PATHS}
    (documents / "redocly.yaml").write_text(json.dumps({"apis": apis}))
    run(documents, "node_modules/.bin/openapi-typescript", "--default-non-nullable", "false")
    shutil.copy(HERE / "scenarios/typed.mts", documents)
    options = ("--strict", "--noUncheckedIndexedAccess", "--module", "nodenext", "--target", "es2022", "--skipLibCheck")
    run(documents, "node_modules/.bin/tsc", *options, "--rewriteRelativeImportExtensions", "typed.mts")
    assert run(documents, "node", "typed.mjs", json.dumps(line)) == "500 7.00 USD quote ilp\n"
