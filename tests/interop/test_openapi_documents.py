"""What generators, linters and a validator make of our three OpenAPI documents, as a sandbox serves them."""

import json
import shutil
import subprocess
import sys
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


def loose(value: Json, path: str) -> Iterator[str]:
    """Where a document says of a value nothing, or only that it is an object."""
    items = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for name, member in items:
        yield from loose(member, f"{path}/{name}")
    if (
        value == {}
        and path.rpartition("/")[2] not in {"properties", "additionalProperties"}
        and "/security/" not in path
    ):
        yield path
    if isinstance(value, dict) and value.get("type") == "object":
        yield from () if value.keys() & {"properties", "additionalProperties"} else (path,)


def test_documents_are_valid_and_say_what_everything_is(documents: Path) -> None:
    from openapi_spec_validator import validate  # a second, which each worker would take when it collects

    for name in PATHS:
        document = json.loads((documents / f"{name}.json").read_bytes())
        validate(document)
        assert list(loose(document, name)) == []


PROGRAM = """
import json, sys
from control_api import AuthenticatedClient
from control_api.api.journal import list_events
from control_api.api.wallets import set_wallet
from control_api.models import WalletDepositedEvent, WalletState
from public_api.models import IncomingPaymentRequest

line = json.loads(sys.argv[1])
client = AuthenticatedClient(line["base_url"], line["control_token"])
wallet = set_wallet.sync("shop", client=client, body=WalletState(balance="7.00"))
[event] = list_events.sync(client=client, wallet="shop").events
assert isinstance(event, WalletDepositedEvent)
bill = IncomingPaymentRequest.from_dict({"metadata": {"order": "42"}})
print(wallet.balance, event.data.amount.value, bill.metadata["order"])
"""


def test_generated_python_client_uses_a_running_server(documents: Path, line: Json) -> None:
    (documents / "hooks.yaml").write_text("post_hooks: []")
    for name in PATHS:
        options = ("--path", f"{name}.json", "--output-path", f"{name}_api", "--meta", "none", "--config", "hooks.yaml")
        run(documents, sys.executable, "-m", "openapi_python_client", "generate", *options, "--fail-on-warning")
    assert run(documents, sys.executable, "-c", PROGRAM, json.dumps(line)) == "7.00 700 42\n"


def test_generated_types_fit_a_running_server(documents: Path, line: Json) -> None:
    apis = {name: {"root": f"{name}.json", "x-openapi-ts": {"output": f"{name}.d.ts"}} for name in PATHS}
    (documents / "redocly.yaml").write_text(json.dumps({"apis": apis}))
    run(documents, "node_modules/.bin/openapi-typescript")
    shutil.copy(HERE / "scenarios/typed.mts", documents)
    options = ("--strict", "--noUncheckedIndexedAccess", "--module", "nodenext", "--target", "es2022", "--skipLibCheck")
    run(documents, "node_modules/.bin/tsc", *options, "--rewriteRelativeImportExtensions", "typed.mts")
    assert run(documents, "node", "typed.mjs", json.dumps(line)) == "500 42 7.00 99300 USD quote ilp\n"
