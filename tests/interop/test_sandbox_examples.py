"""The examples in docs/examples, as whoever copies them runs them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT, TIMEOUT, free_of_settings

EXAMPLES = ROOT / "docs/examples"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("node", "--test", "shop.test.mjs"), "# pass 2\n"),
        (("bash", "pay.sh"), "1000.00\n"),
        ((sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"), "2 passed"),
    ],
)
def test_example(tmp_path: Path, command: tuple[str, ...], expected: str) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "node_modules").symlink_to(ROOT / "tests/interop/node_modules")
    environment = free_of_settings(PAYRES=f"{sys.executable} -m payres sandbox")
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout
