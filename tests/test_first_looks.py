"""The first look at a page, the first passkey and the first key hold nobody up."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.helpers import ROOT, TIMEOUT

# Functions of a unit that import something, and why it is loaded by then.
LOADED_BEFORE: Final = {
    "payres/accounts/passkeys.py add_passkey": "load_fido2",
    "payres/accounts/passkeys.py verify": "a read in a thread of its own",
    "payres/people/mail.py _write": "a read in a thread of its own",
}


def test_nothing_is_loaded_on_the_thread_of_the_event_loop(tmp_path: Path) -> None:
    """A module or template that takes milliseconds to load would hold up every payment; see `OnFirstUse`."""
    command = [sys.executable, "-m", "tests.first_looks", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (ran.stdout, ran.returncode) == ("", 0), ran.stderr[-2000:]


def importing_units() -> Iterator[str]:
    """The functions that get a unit of work or its transaction, and import something."""
    for path in sorted((ROOT / "payres").rglob("*.py")):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                takes = {argument.arg for argument in (*one.args.args, *one.args.kwonlyargs)} & {"work", "tx"}
                if takes and any(isinstance(part, ast.Import | ast.ImportFrom) for part in ast.walk(one)):
                    yield f"{path.relative_to(ROOT)} {one.name}"


def test_no_unit_imports_anything_that_was_not_loaded_before() -> None:
    assert {*importing_units()} == LOADED_BEFORE.keys(), "a unit that writes holds up all others: import before it"
