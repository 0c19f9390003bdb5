"""docs/events.md against the program: every event with an example, the pauses, and how to verify a signature."""

import re
from typing import Any

import msgspec
import pytest

from payres import event_types
from payres.clock import HOUR, MINUTE, SECOND
from payres.event_types import EVENT_TYPES
from payres.events.deliveries import RETRY_PAUSES
from payres.events.sender import signed_headers
from payres.wire import IncomingPayment, encode
from tests.events.endpoint import Received
from tests.helpers import ROOT

TEXT = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
DATA = {
    "incoming_payment": IncomingPayment,
    "outgoing_payment": event_types.OutgoingPaymentEvent,
    "grant": event_types.GrantEvent,
    "refund": event_types.RefundEvent,
    "wallet": event_types.WalletEvent,
    "liquidity": event_types.LiquidityEvent,
    "peer.credit_low": event_types.PeerEvent,
    "peer.packet_unresolved": event_types.PacketEvent,
    "webhook": event_types.WebhookEvent,
}
UNITS = {"seconds": SECOND, "minutes": MINUTE, "hours": HOUR}


def test_every_event_is_documented() -> None:
    assert dict(re.findall(r"^### `(.+)`\n\n(.+?)\.(?: .*)?$", TEXT, re.M)) == EVENT_TYPES


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_example_is_such_an_event(name: str) -> None:
    found = re.search(rf"^### `{re.escape(name)}`$.*?^```json\n(.*?)^```$", TEXT, re.M | re.S)
    assert found is not None
    kind = DATA.get(name) or DATA[name.partition(".")[0]]
    shown = encode(msgspec.json.decode(found[1], type=kind))
    assert msgspec.json.decode(shown) == msgspec.json.decode(found[1])


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
