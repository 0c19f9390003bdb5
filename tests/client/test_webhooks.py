"""Webhooks, as payres signs and sends them, and as others forge them."""

import hmac
import json
from datetime import UTC, datetime
from email.message import Message
from typing import Any, Final

import msgspec
import pytest

from payres.client import errors, webhooks
from payres.client.resources import IncomingPayment
from payres.core.protocol import event_types
from payres.core.protocol.clock import SECOND
from payres.core.protocol.event_types import EVENT_TYPES
from payres.testing.clock import MovableClock
from payres.webhooks.sender import _signature, signed_headers
from tests.helpers import Json, usd

NOW: Final = 1_790_000_000
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD: Final = "whsec_" + "QUFB" * 8
BILL: Final[Json] = {
    "id": "https://pay.example/incoming-payments/1",
    "walletAddress": "https://pay.example/alice",
    "completed": True,
    "receivedAmount": usd(500),
    "createdAt": "2026-09-21T14:13:20.125Z",
    "metadata": {"externalRef": "order-42"},
}
EVENT: Final[Json] = {"id": "evt_1", "type": "incoming_payment.completed", "sequence": 5, "data": BILL}
EVENT["timestamp"] = "2026-09-21T14:13:20.125Z"
BODY: Final = json.dumps(EVENT).encode()


def headers(body: bytes = BODY, secrets: tuple[str, ...] = (SECRET,), seconds: int = NOW) -> dict[str, str]:
    return dict(signed_headers("evt_1", seconds, body, secrets))


def verify(body: Any, given: Any, secret: Any = SECRET, **options: Any) -> webhooks.AnyEvent:
    return webhooks.verify(body, given, secret, clock=MovableClock(NOW * SECOND, frozen=True), **options)


def bill_of(url: str) -> IncomingPayment:
    return msgspec.convert(BILL | {"id": url}, IncomingPayment)


def test_event_is_typed() -> None:
    event = verify(BODY, headers())
    assert (event.id, event.type, event.sequence) == ("evt_1", "incoming_payment.completed", 5)
    assert event.timestamp == datetime(2026, 9, 21, 14, 13, 20, 125000, tzinfo=UTC)
    assert isinstance(event.data, IncomingPayment)
    assert event.data.metadata == {"externalRef": "order-42"}
    assert event.data.received_amount.value == "500"


@pytest.mark.parametrize("change", [str.title, str.upper, str.lower])
def test_names_of_headers_are_of_any_case(change: Any) -> None:
    assert verify(BODY, {change(name): value for name, value in headers().items()})


@pytest.mark.parametrize(
    "given",
    [
        [*headers().items()],
        [(name.encode(), value.encode()) for name, value in headers().items()],
        {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers().items()}
        | {"wsgi.version": (1, 0)},
        Message(),
    ],
    ids=["pairs", "ASGI", "WSGI", "http.server"],
)
def test_headers_are_taken_as_each_framework_has_them(given: Any) -> None:
    if isinstance(given, Message):
        for line in headers().items():
            given.add_header(*line)
    for body in (BODY, bytearray(BODY), memoryview(BODY)):
        assert verify(body, given).id == "evt_1"


def test_secret_that_was_rotated_is_valid_beside_the_new_one() -> None:
    both = headers(secrets=(SECRET, OLD))
    assert verify(BODY, both) == verify(BODY, both, OLD) == verify(BODY, headers(), SECRET.removeprefix("whsec_"))
    with pytest.raises(errors.WebhookRejected):
        verify(BODY, headers(), OLD)


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1a," + headers()["webhook-signature"][3:]},
        {"webhook-signature": headers()["webhook-signature"][3:]},
        {"webhook-signature": headers()["webhook-signature"].swapcase().replace("V1,", "v1,")},
        {"webhook-signature": "v1,☕ \x00 \udc80"},
        {"webhook-id": "evt_2"},
        {"webhook-id": ""},
        {"webhook-timestamp": str(NOW + 1)},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "٥"},
    ],
    ids=str,
)
def test_headers_that_are_not_ours_are_rejected(changed: Json) -> None:
    with pytest.raises(errors.WebhookRejected, match="No signature"):
        verify(BODY, headers() | changed)


@pytest.mark.parametrize("body", [BODY + b" ", BODY.replace(b"500", b"900"), b"", json.dumps(EVENT, indent=1).encode()])
def test_body_that_is_not_ours_is_rejected(body: bytes) -> None:
    with pytest.raises(errors.WebhookRejected, match="No signature"):
        verify(body, headers())


def test_missing_headers_are_rejected() -> None:
    for name in headers():
        with pytest.raises(errors.WebhookRejected, match=f"no header {name}: "):
            verify(BODY, {other: value for other, value in headers().items() if other != name})


@pytest.mark.parametrize(
    ("seconds", "tolerance", "is_taken"),
    [(-300, 300, True), (-301, 300, False), (300, 300, True), (301, 300, False), (-3600, 3600, True), (-1, 0, False)],
)
def test_webhook_cannot_be_repeated_later(seconds: int, tolerance: float, is_taken: bool) -> None:
    given = headers(seconds=NOW + seconds)
    if is_taken:
        assert verify(BODY, given, tolerance=tolerance)
    else:
        with pytest.raises(errors.WebhookRejected, match="was not sent in the last"):
            verify(BODY, given, tolerance=tolerance)


@pytest.mark.parametrize("moment", ["1e9", "-1", "1.5", "9" * 5000, "９"])
def test_moment_that_was_signed_but_is_none_is_rejected(moment: str) -> None:
    given = headers()
    content = f"evt_1.{moment}.".encode() + BODY
    given |= {"webhook-timestamp": moment, "webhook-signature": f"v1,{_signature(SECRET, content)}"}
    with pytest.raises(errors.WebhookRejected, match="was not sent in the last"):
        verify(BODY, given)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "secret ", "whsec_ä"])
def test_secret_that_is_none_is_a_mistake_of_the_app(secret: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="whsec_"):
        verify(BODY, headers(), secret)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"body": BODY.decode()}, "the bytes as they came"),
        ({"body": None}, "body is None"),
        ({"secret": None}, "secret is None, not str"),
        ({"secret": SECRET.encode()}, "secret is of type bytes, not str"),
        ({"given": None}, "headers is None"),
        *(({"given": given}, "headers are a mapping, or pairs") for given in ("x", [1], {"webhook-id": 1}, {1: "x"})),
        *(({"tolerance": tolerance}, "tolerance is") for tolerance in (None, "x", -1, float("nan"))),
    ],
)
def test_mistake_of_the_app_is_named(changed: Json, says: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=says):
        verify(**{"body": BODY, "given": headers(), **changed})


def test_all_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, compare = [], hmac.compare_digest

    def counted(ours: bytes, theirs: bytes) -> bool:
        compared.append(theirs)
        return compare(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    verify(BODY, headers(secrets=(SECRET, OLD, OLD)))
    assert len(compared) == 3


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"x", BODY.replace(b"true", b"1"), b"[" * 100_000])
def test_body_that_is_signed_but_no_event_is_rejected(body: bytes) -> None:
    with pytest.raises(errors.WebhookRejected, match="not an event"):
        verify(body, headers(body))


def test_event_of_a_type_that_is_not_known_yet_is_plain() -> None:
    body = json.dumps(EVENT | {"type": "card.created", "data": {"id": 1}}).encode()
    assert verify(body, headers(body)).data == {"id": 1}


def test_number_in_metadata_stops_no_event() -> None:
    body = BODY.replace(b'"order-42"', b"1e400")
    event = verify(body, headers(body))
    assert event.type == "incoming_payment.completed"
    assert event.data.metadata == {"externalRef": float("inf")}


def test_every_type_of_event_has_its_struct() -> None:
    assert webhooks.DATA.keys() == EVENT_TYPES.keys()


def test_structs_of_the_client_have_the_members_that_the_server_sends() -> None:
    # The documents of events are made from those of the client.
    for name, kind in webhooks.DATA.items():
        sent = event_types.DATA.get(name) or event_types.DATA[name.partition(".")[0]]
        assert members(kind) == members(sent), name


def members(kind: type[msgspec.Struct]) -> set[tuple[str, bool]]:
    return {(one.encode_name, one.required) for one in msgspec.structs.fields(kind)}
