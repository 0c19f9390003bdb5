"""payres.pyz, packed of what is installed here: reproducible, sufficient by itself, plain about what it cannot run on.

`make pyz` packs the wheels that requirements.lock names, which it downloads; the rest of its way is tested here.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from deploy.pyz import BUILT_FOR, PYTHON, pack, unpack
from payres.core.protocol.clock import SystemClock
from payres.core.signatures.jwk import jwk_from_pem
from payres.core.store.migrations import migrations
from tests.helpers import ROOT, TIMEOUT, announced, child, free_of_settings, usd
from tests.signing_client import Client

# The interpreter under the virtual environment, without site-packages of its own and blind to PYTHONPATH.
BARE = (getattr(sys, "_base_executable", sys.executable), "-I", "-S")


def installed(folder: Path) -> None:
    """Puts into a folder what is locked, as it is installed here, and the package of this checkout."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name, marker in re.findall(r"^([\w.-]+)==\S+ (;.*)?\\$", lock, re.M):
        try:
            found = distribution(name)
        except PackageNotFoundError:
            assert marker, f"{name} is locked for every machine and not installed on this one"
            continue
        for file in found.files or []:
            if ".." not in file.parts and file.suffix != ".pyc":
                copy(Path(str(file.locate())), folder / file)
    for path in (ROOT / "payres").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy(path, folder / path.relative_to(ROOT))
    copy(ROOT / "schema.sql", folder / "payres" / "schema.sql")


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    installed(folder)
    return folder


@pytest.fixture(scope="module")
def pyz(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("dist") / "payres.pyz"
    pack(packages, file)
    return file


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it unpacks itself, once for all tests."""
    return tmp_path_factory.mktemp("cache")


class Packed:
    """Runs commands of the file in an empty folder, where there is neither the source nor anything installed."""

    def __init__(self, pyz: Path, folder: Path, cache: Path) -> None:
        self.command = [*BARE, str(pyz)]
        self.options: dict[str, Any] = {
            "cwd": folder,
            "env": free_of_settings(SHIV_ROOT=str(cache)),
            "stdout": subprocess.PIPE,
        }

    def run(self, *arguments: str, status: int = 0, **options: Any) -> str:
        done = subprocess.run([*self.command, *arguments], text=True, timeout=TIMEOUT, **self.options, **options)
        assert done.returncode == status
        output: str = done.stdout
        return output


@pytest.fixture
def packed(pyz: Path, tmp_path: Path, cache: Path) -> Packed:
    return Packed(pyz, tmp_path, cache)


def test_same_packages_make_the_same_bytes_in_another_folder(packages: Path, tmp_path: Path) -> None:
    some, others = tmp_path / "some", tmp_path / "others"
    files = [path for name in ("payres", "msgspec") for path in sorted((packages / name).rglob("*")) if path.is_file()]
    for path in files:
        copy(path, some / path.relative_to(packages))
    for path in reversed(files):
        target = others / path.relative_to(packages)
        copy(path, target)
        target.chmod(0o600)
        os.utime(target, (0, 0))
    pack(some, tmp_path / "once.pyz")
    pack(others, tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == (tmp_path / "once.pyz").read_bytes()


@pytest.mark.parametrize(
    ("place", "is_refused"), [("data/share/man/man1/a.1", False), ("data/etc/a.conf", True), ("purelib/a.py", True)]
)
def test_files_of_a_wheel_for_other_places_are_left_out_or_refused(
    tmp_path: Path, place: str, is_refused: bool
) -> None:
    with zipfile.ZipFile(tmp_path / "a-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a/__init__.py", "")
        wheel.writestr(f"a-1.data/{place}", "")
    if is_refused:
        with pytest.raises(SystemExit, match="has files for other places"):
            unpack(tmp_path, tmp_path / "packages")
    else:
        unpack(tmp_path, tmp_path / "packages")
        assert [path.name for path in (tmp_path / "packages").rglob("*")] == ["a", "__init__.py"]


def test_everything_is_loaded_from_the_file(packed: Packed, pyz: Path, cache: Path) -> None:
    program = (
        "import json, sys, sysconfig; from payres.application import create_app; import uvloop, httptools, httpx2\n"
        "files = [getattr(module, '__file__', None) for module in list(sys.modules.values())]\n"
        "print(json.dumps([sysconfig.get_path('stdlib'), [file for file in files if file]]))\n"
    )
    packed.options["env"]["SHIV_INTERPRETER"] = "1"
    library, files = json.loads(packed.run("-c", program))
    assert any(file.startswith(str(cache)) and file.endswith("/payres/application.py") for file in files)
    assert [file for file in files if not file.startswith((library, str(cache), str(pyz)))] == []


def test_serves_asks_for_consent_and_backs_up(packed: Packed, tmp_path: Path) -> None:
    with child([*packed.command, "serve", "--port", "0", "--json", "--demo"], **packed.options) as process:
        base_url = announced(process)["baseUrl"]
        packed.run("wallet", "create", "shop", "--asset", "USD", "--scale", "2", "--name", "A shop")
        packed.run("key", "generate", "shop", "--kid", "key", "--out", "private.pem")
        page = consent_page(base_url, (tmp_path / "private.pem").read_bytes())
        assert packed.run("backup", "copy.db").startswith("copy.db: ")
        packed.run("ledger", "check")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "A shop" in page.text
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (max(migrations()),)


def consent_page(base_url: str, pem: bytes) -> httpx2.Response:
    """What the browser of alice shows when the shop asks for her money."""
    key = load_pem_private_key(pem, None)
    assert isinstance(key, Ed25519PrivateKey)
    client = Client(f"{base_url}/shop", key, jwk_from_pem("key", pem), base_url, SystemClock(), lambda _: None)
    access = {
        "type": "outgoing-payment",
        "actions": ["create"],
        "identifier": f"{base_url}/alice",
        "limits": {"debitAmount": usd(500)},
    }
    try:
        answer = client.request_grant(access, interact={"start": ["redirect"]})
        assert answer.status_code == 200, answer.text
        return httpx2.get(answer.json()["interact"]["redirect"], follow_redirects=True, timeout=TIMEOUT, verify=False)
    finally:
        client.close()


def test_demonstrates(packed: Packed) -> None:
    assert "alice has USD 974.77, bob has USD 1025.00." in packed.run("demo")


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ({"EXTENSION": ".cpython-399-x86_64-linux-gnu.so", "PYTHON": "3.99"}, "CPython 3.99 on Linux "),
        ({"EXTENSION": ".cpython-311-s390x-linux-gnu.so", "MACHINE": "s390x"}, f"CPython {PYTHON} on Linux s390x "),
        ({"GLIBC": (2, 999)}, "with glibc 2.999 or later, "),
    ],
)
def test_wrong_python_or_machine_is_reported_in_one_sentence(
    other: dict[str, object], wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "packages").mkdir()
    pack(tmp_path / "packages", tmp_path / "payres.pyz", BUILT_FOR | other)
    message = failure([*BARE, str(tmp_path / "payres.pyz")], SHIV_ROOT=str(tmp_path / "cache"))
    assert message.startswith("Error: this file needs CPython ")
    assert wanted in message
    assert f", and this is CPython {PYTHON}." in message
    assert message.count("\n") == 1
    assert not (tmp_path / "cache").exists()


def test_folder_that_cannot_be_written_is_reported_in_one_sentence(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = failure([*BARE, str(pyz), "--version"], SHIV_ROOT=str(tmp_path / "file"))
    assert message.startswith(f"Error: payres cannot unpack itself into {tmp_path / 'file'} (")
    assert message.endswith("; name another folder in SHIV_ROOT\n")
    assert message.count("\n") == 1


OTHERS = "could change what is run from it"


@pytest.mark.parametrize(
    ("folder", "mode", "owner", "sentence"),
    [
        ("root", 0o777, 0, f"root may be written by others, who {OTHERS}: chmod go-w "),
        ("root", 0o1777, 0, f"root may be written by others, who {OTHERS}: chmod go-w "),
        ("root", 0o770, 0, f"root may be written by others, who {OTHERS}: chmod go-w "),
        ("root", 0o755, 1, f"root belongs to another user, who {OTHERS}: name a folder in SHIV_ROOT"),
        ("root/unpacked", 0o777, 0, f" may be written by others, who {OTHERS}: chmod go-w "),
        ("root/unpacked", 0o755, 1, f" belongs to another user, who {OTHERS}: name a folder in SHIV_ROOT"),
        (".", 0o777, 0, " may be written by everyone, who could replace "),
    ],
)
def test_nothing_is_run_from_a_folder_that_others_may_write_to(
    pyz: Path, tmp_path: Path, folder: str, mode: int, owner: int, sentence: str
) -> None:
    if owner and os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    with zipfile.ZipFile(pyz) as archive:
        build = json.loads(archive.read("environment.json"))["build_id"]
    unpacked = tmp_path / "root" / f"{pyz.name}_{build}"
    planted = unpacked / "site-packages" / "payres" / "cli" / "__init__.py"
    planted.parent.mkdir(parents=True)
    planted.write_text("print('planted')")
    changed = unpacked if folder == "root/unpacked" else tmp_path / folder
    changed.chmod(mode)
    if owner:
        os.chown(changed, owner, owner)
    try:
        message = failure([*BARE, str(pyz), "--version"], SHIV_ROOT=str(tmp_path / "root"))
    finally:
        changed.chmod(0o700)
    assert message.startswith("Error: /")
    assert sentence in message
    assert message.count("\n") == 1


def test_folder_that_it_makes_is_closed_to_others(pyz: Path, packages: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    command = [*BARE, str(pyz), "--version"]
    subprocess.run(command, env=free_of_settings(SHIV_ROOT=str(root)), check=True, umask=0, timeout=TIMEOUT)
    assert root.stat().st_mode & 0o777 == 0o700


def failure(command: Sequence[str], **variables: str) -> str:
    """What a command that fails says on standard error."""
    done = subprocess.run(command, env=free_of_settings(**variables), capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr
