"""The core alone is a server: it imports no part, and pays."""

import subprocess
import sys
from pathlib import Path

from tests.helpers import ROOT, TIMEOUT

STEPS = """
wallet 200 200
grant 200
grant 200
grant 200
continue 200
bill 201
quote 201
elsewhere 400
invalid receiver
pay 201
read 200
received 500
list 200
bill 201
complete 200
rotate 200
revoke 204
revoked 401
old events False
parts loaded:
"""


def test_core_pays_without_any_part(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.core_alone", str(tmp_path / "payres.db")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert ran.stdout == STEPS.lstrip()
