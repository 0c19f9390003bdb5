"""docs/events.md against the program: the pauses, and how to verify a signature."""

import re
from typing import Any

from payres.clock import HOUR, MINUTE, SECOND
from payres.events.deliveries import RETRY_PAUSES
from payres.events.sender import signed_headers
from tests.events.endpoint import Received
from tests.helpers import ROOT

TEXT = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
UNITS = {"seconds": SECOND, "minutes": MINUTE, "hours": HOUR}


def test_pauses_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) (\w+) \|$", TEXT, re.M)
    assert [int(number) for number, _, _ in rows] == list(range(2, len(RETRY_PAUSES) + 2))
    assert [int(count) * UNITS[unit] for _, count, unit in rows] == list(RETRY_PAUSES)


def test_shown_receiver_verifies_and_acts() -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    [body] = re.findall(r"^```json\n(\{\n  \"id\": \"evt_.*?)^```$", TEXT, re.M | re.S)
    sent = body.replace('"completed": true', '"metadata": {"externalRef": "INV-4711"}').encode()
    secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    shipped: list[str] = []
    headers = signed_headers("evt_1", 1_800_000_000, sent, [secret])
    names: dict[str, Any] = {"SECRET": secret, "ship": shipped.append}
    exec(code, names)
    with Received("/", headers, sent).at_its_time():
        names["receive"](sent, dict(headers))
    assert shipped == ["INV-4711"]
