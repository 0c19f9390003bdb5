"""The examples in docs/examples, as whoever copies them runs them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT, TIMEOUT, free_of_settings

EXAMPLES = ROOT / "docs/examples"


@pytest.mark.parametrize(
    ("program", "command", "expected"),
    [
        ("node", "node --test shop.test.mjs", "# pass 2\n"),
        ("jq", "bash with-sandbox.sh sh -c 'curl -fsS \"$CAROL\"'", '"assetCode":"EUR"'),
        ("jq", "bash with-sandbox.sh true", "Alice has 1000.00.\n"),
        ("python", "python -m pytest -q -p no:cacheprovider test_shop.py", "2 passed"),
        ("node", "node bill.mjs", "Bill: 500\n"),
        ("php", "php grant.php", "Granted: incoming-payment\n"),
        ("go", "go run grant.go", "Granted: 200 OK\n"),
        ("java", "java Grant.java", "Granted: 200\n"),
        ("kotlinc", "kotlinc -Werror grant.kt -d grant.jar && kotlin -cp grant.jar GrantKt", "Granted: 200\n"),
        ("rustfmt", "rustfmt --edition 2021 --quiet < grant.rs", "use "),
    ],
)
def test_example(tmp_path: Path, program: str, command: str, expected: str) -> None:
    environment = free_of_settings()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    if shutil.which(program, path=environment["PATH"]) is None:
        pytest.skip(f"{program} is not on this machine")
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "node_modules").symlink_to(ROOT / "tests/interop/node_modules")
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout
