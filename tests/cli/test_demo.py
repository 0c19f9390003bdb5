"""The narrated payment of `payres demo`."""

import re
import subprocess
import sys


def test_demo_tells_every_step_with_its_amounts_also_where_pytest_is_missing() -> None:
    program = "import sys; sys.modules['pytest'] = None; from payres.cli import main; main(['demo'])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout
    assert told.startswith("One payment over Open Payments")
    assert [int(number) for number in re.findall(r"^(\d+)\. ", told, re.M)] == list(range(1, 9))
    assert re.findall(r"-> ((?:GET|POST) /[\w-]*)", told) == [
        *("POST /", "POST /incoming-payments", "POST /quotes", "POST /", "POST /continue"),
        *("POST /outgoing-payments", "GET /outgoing-payments", "GET /incoming-payments"),
    ]
    # 25.00 and the fee: 0.10 and 0.5 % of 25.00, which is 0.125 and rounds up.
    assert "debitAmount     USD 25.23" in told
    assert "sentAmount      USD 25.23, failed: no" in told
    assert "receivedAmount  USD 25.00, completed: yes" in told
    assert "alice has USD 974.77, bob has USD 1025.00." in told
