"""The journal of a sandbox server: its requests and responses, with the verdicts on their signatures; and the search in
it and in the events."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from time import perf_counter
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.types import Message, Receive, Scope, Send

from payres.core.grants.clients import find_keys
from payres.core.http.authorize import read_signature
from payres.core.http.observation import OBSERVATION, Observation
from payres.core.http.request_head import header
from payres.core.protocol.clock import Clock, format_time
from payres.core.protocol.errors import MEANINGS, ClientUnproven, DomainError, InvalidClient, InvalidRequest, Rejected
from payres.core.protocol.event_types import EVENT_TYPES
from payres.core.protocol.limits import MAX_WAIT_SECONDS
from payres.core.signatures.sign import Message as Signed
from payres.core.signatures.sign import field_value, header_fields
from payres.core.signatures.verify import Unverified, Verified, describe_signature, verify
from payres.core.store import events
from payres.core.store.events import Changes
from payres.core.store.work import Units, Work
from payres.testing.asked import Asked, find_asked
from payres.testing.names import wallet_named
from payres.testing.set_up import Given
from payres.webhooks.patterns import OF_WALLETS, matches
from payres.webhooks.sender import EventView, event_view

FILTERS: Final = ("operation", "client", "wallet", "status", "fault")
MOST_EVENTS: Final = 10_000  # read for one response
WaitSeconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)]
M = TypeVar("M")
Matches = tuple[Sequence[M], int]  # the matches, and the number of the last entry read
Verdict = Literal["valid", "refused", "unsigned"]

KEPT: Final = 1000
ADDED: Final = "requests"  # the key of change notifications
SHOWN: Final = 6  # characters shown of a secret
COOKIE: Final = re.compile(rb"(=[^;]{%d})[^;]+" % SHOWN)
# Secrets in JSON and in forms.
SECRET: Final = re.compile(
    rf'((?:token|secret|password|csrf)"?\s*[:=]\s*"?[\w.~+/=-]{{{SHOWN}}})[\w.~+/=-]+', re.IGNORECASE
)


class Verifier(msgspec.Struct, kw_only=True):
    """The verdict on the first signature: the server's, or the one it would have given if the request was refused
    earlier. An unneeded signature of an unknown client counts as `unsigned`."""

    verdict: Verdict = "unsigned"
    reason: str | None = None
    kid: str | None = None
    created: int | None = None
    components: Sequence[str] | None = None
    signature_base: str | None = None


class Entry(msgspec.Struct, kw_only=True):
    """A request. `code` and `reason` are those of the error response."""

    seq: int
    at: str
    method: str
    url: str
    operation: str | None
    client: str | None
    wallet: str | None
    status: int | None
    code: str | None
    reason: str | None
    milliseconds: float
    headers: Mapping[str, str]
    body: str | None
    verifier: Verifier
    fault: str | None
    replayed: bool


class RequestList(msgspec.Struct):
    requests: Sequence[Entry]
    cursor: str


class EventList(msgspec.Struct):
    events: Sequence[EventView]
    cursor: str
    timed_out: bool


class Journal:
    """The last thousand requests of the server at a base URL. `changes` is notified of each new one."""

    def __init__(self, base_url: str, clock: Clock, units: Units) -> None:
        self.base_url, self.clock, self.units = base_url, clock, units
        self.entries: deque[Entry] = deque(maxlen=KEPT)
        self._payments: dict[str, Entry] = {}
        self._faults: dict[str, str] = {}  # by the payment that met it
        self.changes = Changes()
        self.last = 0

    def add(self, entry: Entry, payment: str | None) -> None:
        self.last = entry.seq = self.last + 1
        if payment is not None:
            self._payments[payment] = entry
            entry.fault = entry.fault or self._faults.get(payment)
        self.entries.append(entry)
        self.changes.notify((ADDED,))

    def note_fault(self, payment: str, fault: str) -> None:
        """Records the fault for the request that created the payment, before or after that is added."""
        self._faults[payment] = fault
        if payment in self._payments:
            self._payments[payment].fault = fault

    def clear(self) -> None:
        for kept in (self.entries, self._payments, self._faults):
            kept.clear()


class Recording:
    """Records a request and its response, which pass through `receive` and `send`. The entry is added before the end of
    the response is sent, so that a client that has the response finds it."""

    def __init__(self, journal: Journal, scope: Scope, receive: Receive, send: Send) -> None:
        self._journal, self._scope, self._receive, self._send = journal, scope, receive, send
        self._headers = scope["headers"]  # before a fault alters them
        self._at, self._begun = format_time(journal.clock.now()), perf_counter()
        self._body = self._error = b""
        self._status: int | None = None
        self._is_noted = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._body += message.get("body", b"")
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif self._status is not None and self._status >= HTTPStatus.BAD_REQUEST:
            self._error += message.get("body", b"")
        try:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await self.end()
        finally:
            await self._send(message)

    async def end(self) -> None:
        if self._is_noted:
            return
        self._is_noted, asked, verifier = True, Asked(), Verifier()
        milliseconds = round((perf_counter() - self._begun) * 1000, 1)
        with suppress(DomainError):  # during a reset
            asked, verifier = await self._journal.units.read(self._look)
        self._journal.add(self._entry(asked, verifier, milliseconds), self._seen.payment)

    @property
    def _seen(self) -> Observation:
        return self._scope.get(OBSERVATION) or Observation()

    def _look(self, work: Work) -> tuple[Asked, Verifier]:
        asked = find_asked(work, self._scope, self._body)
        verdict, reason = self._judge(work, asked)
        return asked, Verifier(verdict=verdict, reason=reason)

    def _judge(self, work: Work, asked: Asked) -> tuple[Verdict, str | None]:
        """The server's verdict, or else the one that it would have given, and the reason of a refusal."""
        fields, seen = header_fields(self._headers), self._seen
        is_signed = b"signature" in fields or b"signature-input" in fields
        if isinstance(seen.error, ClientUnproven | InvalidClient) and seen.error.details.get("reason") in MEANINGS:
            return "refused" if is_signed else "unsigned", seen.error.details["reason"]
        if not is_signed or seen.is_proven:
            return "valid" if is_signed else "unsigned", None
        scope = {**self._scope, "headers": self._headers}
        max_age = work.settings.signature_max_age
        found: Unverified | Verified | Rejected = read_signature(
            work.urls.base, max_age, self._journal.clock, scope, self._body
        )
        if isinstance(found, Unverified) and asked.client is not None:
            found = verify(found, find_keys(work, asked.client, found.keyids))
        if isinstance(found, Rejected):
            return "refused", found.reason
        return "valid" if isinstance(found, Verified) else "refused" if self._error else "unsigned", None

    def _entry(self, asked: Asked, verifier: Verifier, milliseconds: float) -> Entry:
        scope, seen = self._scope, self._seen
        target: bytes = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        url = self._journal.base_url + target.decode("utf-8", "replace")
        signed = Signed(scope["method"], url, self._headers, self._body)
        read = describe_signature(signed)
        verifier.kid, verifier.created, verifier.components = read.keyid, read.created, read.components
        verifier.signature_base = None if read.base is None else _shortened(signed, read.base)
        code, reason = _code_and_reason(self._error)
        creates = (asked.operation or "").startswith("create-") and self._status == HTTPStatus.CREATED
        has_key = header(self._headers, b"idempotency-key") is not None
        return Entry(
            seq=0,
            at=self._at,
            method=signed.method,
            url=url,
            operation=asked.operation,
            client=asked.client.identity if asked.client else None,
            wallet=asked.wallet,
            status=self._status,
            code=code,
            reason=reason,
            milliseconds=milliseconds,
            headers=_headers(signed),
            body=_text(self._body),
            verifier=verifier,
            fault=scope.get("state", {}).get("sandbox_fault"),
            replayed=has_key and creates and seen.payment is None,  # only new payments are noted
        )


class EventsWanted(Given, frozen=True):
    """Events after a cursor, or else after the baseline; `type` may end with a *."""

    after: str | None = None
    type: str | None = None
    wallet: str | None = None
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    wait: WaitSeconds = 10


class RequestsWanted(Given, frozen=True):
    """Requests after a cursor, or else all in the journal."""

    after: str | None = None
    operation: str | None = None
    client: str | None = None
    wallet: str | None = None
    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    fault: str | None = None
    wait: WaitSeconds = 0


def check(wanted: EventsWanted) -> None:
    """Raises InvalidRequest for a type that no event has, or none of a wallet."""
    types = [*EVENT_TYPES] if wanted.wallet is None else [*filter(_is_of_wallet, EVENT_TYPES)]
    if wanted.type is not None and not any(matches(wanted.type, name) for name in types):
        of_wallets = "" if wanted.wallet is None else " of wallets"
        raise InvalidRequest(f"There are no such events{of_wallets}, but: {', '.join(types)}", field="type")


def _is_of_wallet(name: str) -> bool:
    return name == "peer.packet_unresolved" or any(matches(pattern, name) for pattern in OF_WALLETS)


async def find_requests(journal: Journal, wanted: RequestsWanted, after: int) -> Matches[Entry]:
    def fits(one: Entry) -> bool:
        return one.seq > after and all(getattr(wanted, name) in {None, getattr(one, name)} for name in FILTERS)

    return [one for one in journal.entries if fits(one)], journal.last


def find_events(work: Work, wanted: EventsWanted, after: int) -> Matches[EventView]:
    found, last = list[EventView](), after
    wallet = None if wanted.wallet is None else wallet_named(work, wanted.wallet).id
    for event in events.events_after(work, after, MOST_EVENTS):
        last = event.sequence
        if matches(wanted.type or "*", event.type) and wallet in {None, event.wallet_address_id}:
            found.append(event_view(event))
    return found, last


async def wait_for(
    changes: Changes, key: str, seconds: float, look: Callable[[], Awaitable[Matches[M]]], count: int
) -> Matches[M]:
    """Calls `look` after each change until it finds `count` matches, or until `seconds` have passed."""
    with changes.watch(key) as change, suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while len((found := await look())[0]) < count:
                await change.wait()
                change.clear()
            return found
    return await look()


def _code_and_reason(error: bytes) -> tuple[str | None, str | None]:
    try:
        found = msgspec.json.decode(error)["error"]
        return found["code"], found["details"].get("reason")
    except (ValueError, TypeError, KeyError):  # no body, a truncated one, or HTML
        return None, None


def _headers(signed: Signed) -> Mapping[str, str]:
    found = {name.decode("latin-1"): field_value(values) for name, values in header_fields(signed.headers).items()}
    if "cookie" in found:
        found["cookie"] = COOKIE.sub(rb"\1...", found["cookie"])
    return {name: _shortened(signed, value) for name, value in found.items()}


def _shortened(signed: Signed, value: bytes) -> str:
    """The text, with the request's token shortened."""
    token = (header(signed.headers, b"authorization") or b"").partition(b" ")[2].strip()
    return (value.replace(token, token[:SHOWN] + b"...") if len(token) > SHOWN else value).decode("utf-8", "replace")


def _text(body: bytes) -> str | None:
    """The body with secrets shortened; None if it is empty or binary, such as a packet."""
    try:
        return SECRET.sub(r"\1...", body.decode()) or None
    except UnicodeDecodeError:
        return None
