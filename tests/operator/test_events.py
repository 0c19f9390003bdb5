"""Events over the operator's API: existing and future ones, and webhooks."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.limits import MAX_STREAMS_OF_KEY
from payres.core.store.work import EVENTS, Work
from payres.operator import events as endpoints
from payres.operator import wallets
from payres.operator.api_keys import revoke_api_key
from payres.webhooks import deliveries
from payres.webhooks.sender import EventView
from tests.helpers import TIMEOUT, Json, usd, wait_until
from tests.instance import Instance
from tests.operator.declared.test_api import error_of
from tests.operator.programs import BASE, NewProgram, Program
from tests.webhooks.endpoint import Endpoint, answering


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "LOOK_SECONDS", 0.02)


def deposit(payres: Instance) -> None:
    payres.write(lambda work: wallets.deposit(work, "alice", "1.00"))


def latest(program: Program) -> int:
    """The sequence of the last event."""
    after = 0
    while found := program.get("/events", after=after)["result"]:
        after = found[-1]["sequence"]
    return after


def watchers(payres: Instance) -> int:
    """How many tasks wait for events, those of webhooks among them."""
    return len(payres.context.changes._watchers.get(EVENTS, ()))


def test_events_after_a_sequence_are_read_in_their_order(payres: Instance, program: Program) -> None:
    after = latest(program)
    assert program.get("/events", after=after)["result"] == []
    for _ in range(2):
        deposit(payres)
    found = program.get("/events", after=after)["result"]
    assert [(one["sequence"], one["type"]) for one in found] == [
        (after + 1, "wallet.deposited"),
        (after + 2, "wallet.deposited"),
    ]
    assert found[0]["data"]["amount"] == usd(100)
    assert program.get("/events", after=after + 1)["result"] == found[1:]
    assert len(program.get("/events")["result"]) <= 100


def deposit_by_command(payres: Instance) -> None:
    command = ["--database", payres.context.settings.database, "wallet", "deposit", "alice", "1.03"]
    assert CliRunner().invoke(main, command).exit_code == 0


@pytest.mark.parametrize("happens", [deposit, deposit_by_command])
def test_request_that_waits_is_answered_by_the_next_event(
    payres: Instance, program: Program, happens: Callable[[Instance], None]
) -> None:
    after, before = latest(program), watchers(payres)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(program.get, "/events", after=after, wait=30)
        wait_until(lambda: watchers(payres) > before)
        happens(payres)
        assert [one["sequence"] for one in answer.result()["result"]] == [after + 1]
    assert program.get("/events", after=after, wait=30)["result"], "what is there is not waited for"


@pytest.mark.parametrize("query", [{"wait": 31}, {"wait": -1}, {"after": -1}, {"after": "x"}, {"since": 1}])
def test_query_that_makes_no_sense_is_refused(program: Program, query: Json) -> None:
    assert program.ask("GET", "/events", **query).status_code == 400


def test_stream_from_nowhere_is_refused(payres: Instance, program: Program) -> None:
    headers = {"Authorization": f"Bearer {program.key}", "Accept": "text/event-stream", "Last-Event-ID": "xyz"}
    answer = httpx2.get(f"{payres.base_url}{BASE}/events", headers=headers)
    assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, "Last-Event-ID")


class Stream:
    """A stream of server-sent events, read in its own thread."""

    def __init__(self, program: Program, after: int, last: str | None = None) -> None:
        self.events: list[Json] = []
        self.ids: list[str] = []
        self._headers = {"Authorization": f"Bearer {program.key}", "Accept": "text/event-stream"}
        if last is not None:
            self._headers["Last-Event-ID"] = last
        self._url = f"{program.instance.base_url}{BASE}/events?after={after}"
        self.content_type: str | None = None
        self.has_begun, self._stops = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        assert self.has_begun.wait(60)

    def _read(self) -> None:
        with httpx2.stream("GET", self._url, headers=self._headers, timeout=60) as answer:
            self.content_type = answer.headers["content-type"]
            for line in answer.iter_lines():
                self.has_begun.set()
                name, _, value = line.partition(": ")
                if name == "id":
                    self.ids.append(value)
                if name == "data":
                    self.events.append(json.loads(value))
                if self._stops.is_set():
                    return

    def hang_up(self, payres: Instance) -> None:
        """Ends with the next event."""
        self._stops.set()
        deposit(payres)
        self.thread.join(60)


def test_stream_gives_what_there_is_and_then_what_comes(payres: Instance, program: Program) -> None:
    after = latest(program)
    deposit(payres)
    stream = Stream(program, after)
    wait_until(lambda: len(stream.events) == 1)
    deposit(payres)
    wait_until(lambda: len(stream.events) == 2)
    assert stream.events == program.get("/events", after=after)["result"]
    assert stream.ids == [str(after + 1), str(after + 2)]
    assert str(stream.content_type).startswith("text/event-stream")
    again = Stream(program, 0, last=str(after + 1))
    wait_until(lambda: len(again.events) == 1)
    assert again.events == stream.events[1:]
    before = watchers(payres)
    stream.hang_up(payres)
    wait_until(lambda: watchers(payres) < before)
    again.hang_up(payres)


def test_streams_of_a_key_share_what_they_read_and_are_so_many(
    payres: Instance, new_program: NewProgram, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, find = new_program("events:read"), endpoints._after
    reads: list[int] = []

    def count(work: Work, sequence: int) -> Sequence[EventView]:
        reads.append(sequence)
        return find(work, sequence)

    monkeypatch.setattr(endpoints, "_after", count)
    headers = {"Authorization": f"Bearer {reader.key}", "Accept": "text/event-stream"}
    url = f"{payres.base_url}{BASE}/events?after={latest(program)}"
    with ExitStack() as stack, httpx2.Client(timeout=TIMEOUT, limits=httpx2.Limits(max_connections=None)) as http:
        streams = [stack.enter_context(http.stream("GET", url, headers=headers)) for _ in range(MAX_STREAMS_OF_KEY)]
        lines = [stream.iter_lines() for stream in streams]
        with http.stream("GET", url, headers=headers) as refused:
            assert refused.status_code == 429
            refused.read()
        assert error_of(refused, 429, "too_many_requests")["hint"].startswith("At most 50 streams")
        assert refused.headers["retry-after"] == "1"
        reads.clear()
        for _ in range(3):
            deposit(payres)
            assert len({next(line for line in one if line.startswith("id: ")) for one in lines}) == 1
        assert len(reads) <= 12, "one a change, and one where the search for events of commands finds it again"
        before = watchers(payres)
        streams[0].close()
        wait_until(lambda: watchers(payres) < before)
        with http.stream("GET", url, headers=headers) as again:
            assert again.status_code == 200


def test_stream_ends_with_its_key(payres: Instance, new_program: NewProgram, program: Program) -> None:
    reader = new_program("events:read")
    stream = Stream(reader, latest(program))
    payres.write(lambda work: revoke_api_key(work, reader.id))
    deposit(payres)
    stream.thread.join(60)
    assert not stream.thread.is_alive()
    assert stream.events == []


def test_stream_is_cut_when_the_database_cannot_be_read(
    payres: Instance, program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Unavailable("The disk has failed")

    headers = {"Authorization": f"Bearer {program.key}", "Accept": "text/event-stream"}
    url = f"{payres.base_url}{BASE}/events?after={latest(program)}"
    with httpx2.stream("GET", url, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        monkeypatch.setattr(endpoints, "_after", fail)
        deposit(payres)
        with pytest.raises(httpx2.RemoteProtocolError):
            list(lines)
    assert [one.message for one in caplog.records if one.name != "payres.agenda"] == [], "it is no fault"


def test_webhook_from_its_beginning_to_its_end(payres: Instance, program: Program, endpoint: Endpoint) -> None:
    body = {"url": endpoint.url, "events": ["wallet.*"], "private": True}
    made = program.post("/webhooks", body)
    secret, path = made.pop("secret"), f"/webhooks/{made['id']}"
    assert program.get(path) == made
    assert made in program.get("/webhooks")["result"]
    deposit(payres)
    assert endpoint.wait_for(1)[0].verified(secret)["type"] == "wallet.deposited"
    tested = program.post(f"{path}/tests", {})
    assert (tested["status"], tested["error"]) == (200, None)
    assert endpoint.wait_for(2)[1].event["id"] == tested["event"]
    assert [(one["type"], one["status"], one["answer"]) for one in program.get(f"{path}/attempts")["result"]] == [
        ("webhook.test", 200, ""),
        ("wallet.deposited", 200, ""),
    ]
    assert program.post(f"{path}/pause", {})["state"] == "paused"
    assert program.change("DELETE", f"{path}/pause")["state"] == "active"
    assert program.change("PATCH", path, {"name": "Books"})["name"] == "Books"
    other = program.post(f"{path}/secrets", {})["secret"]
    assert other != secret
    program.post("/replays", {"event": endpoint.received[0].event["id"]})
    assert endpoint.wait_for(3)[2].verified(other) == endpoint.received[2].verified(secret)
    endpoint.answer = answering(410)
    deposit(payres)
    wait_until(lambda: program.get(path)["state"] == "disabled")
    [failed] = program.get("/deliveries", webhook=made["id"], state="failed")["result"]
    assert (failed["type"], failed["lastStatus"], failed["attempts"]) == ("wallet.deposited", 410, 1)
    endpoint.answer = answering(200)
    assert program.post(f"{path}/tests", {})["status"] == 200
    assert program.post("/replays", {"failed": True, "since": "2020-01-01T00:00:00Z"}) == {"deliveries": 1}
    endpoint.wait_for(6)
    assert program.change("DELETE", path)["id"] == made["id"]
    assert program.ask("GET", path).status_code == 404
    audited = [action for _, action, _, _ in program.audited()]
    assert [one for one in audited if one.startswith("webhook.")][:3] == [
        "webhook.remove",
        "webhook.replay",
        "webhook.test",
    ]


@pytest.mark.parametrize(
    ("path", "body", "lacks"),
    [
        ("/webhooks", {"url": "https://shop.example/"}, "events:read"),
        ("/webhooks", {"url": "https://127.0.0.1:22/", "private": True}, "webhooks:private"),
        ("/replays", {"failed": True}, "events:read"),
    ],
)
def test_key_that_only_changes_webhooks_reads_no_events_and_reaches_no_ports_here(
    new_program: NewProgram, path: str, body: Json, lacks: str
) -> None:
    scopes = {"webhooks:write", "events:read"} - {lacks}
    details = error_of(new_program(*scopes).ask("POST", path, body), 403, "insufficient_access")
    assert (details["reason"], details["scope"]) == ("scope", lacks)
    new_program(*scopes, lacks).post(path, body)


@pytest.mark.parametrize(
    "body",
    [{}, {"event": "evt_1", "failed": True}, {"since": "2020-01-01T00:00:00Z"}, {"failed": True, "since": "now"}],
)
def test_replay_of_nothing_in_particular_is_refused(program: Program, body: Any) -> None:
    assert program.ask("POST", "/replays", body).status_code == 400


def test_stream_needs_no_json_in_accept_and_others_do(program: Program) -> None:
    headers = {"Authorization": f"Bearer {program.key}", "Accept": "text/event-stream"}
    answer = program.http.get(f"{program.instance.base_url}{BASE}/webhooks", headers=headers)
    assert answer.status_code == 406
