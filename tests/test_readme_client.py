"""The script in the README, run as it stands there by Node with the official client, up to the payment."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from payres.signatures.jwk import private_pem
from tests.helpers import ROOT, TIMEOUT, child
from tests.instance import Instance

MODULES = ROOT / "tests" / "interop" / "node_modules"


@pytest.fixture
def script(payres: Instance, tmp_path: Path) -> Path:
    """The script beside the key and the official client, with the URL of this test's server."""
    if not MODULES.is_dir():
        pytest.fail("tests/interop/node_modules is missing: run `make test`, which installs the official client")
    [shown] = re.findall(r"^```js\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "node_modules").symlink_to(MODULES)
    written = tmp_path / "pay.mjs"
    written.write_text(shown.replace("http://127.0.0.1:8080", payres.base_url), encoding="utf-8")
    client = payres.new_client("my-app", name="My App", kid="my-key")
    (tmp_path / "private.pem").write_bytes(private_pem(client.private_key))
    return written


def test_script_of_the_readme_pays_after_consent(payres: Instance, script: Path) -> None:
    node = shutil.which("node")
    assert node is not None, "Node 20 or later is needed for the official client"
    with child([node, script.name], cwd=script.parent, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        asked = process.stdout.readline().split()[-1]
        assert payres.approve(asked) is None
        paid = process.stdout.read()
        assert process.wait(TIMEOUT) == 0
    assert paid.startswith(f"Paying 500 cents to {payres.base_url}/incoming-payments/")
    assert (payres.balance("alice"), payres.balance("bob")) == ("995.00", "1005.00")
    payres.check_ledger()
