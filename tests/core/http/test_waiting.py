"""`Prefer: wait`: requests for a payment that are answered when it changes."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.core.grants.tokens import revoke_grant
from payres.core.http import context, resources
from payres.core.http.waiting import preferred_wait
from payres.core.protocol.clock import format_time
from payres.core.protocol.limits import MAX_WAIT_SECONDS, MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS_OF_CLIENT
from payres.core.store.database import Database
from payres.core.store.work import Work
from payres.operator import keys, wallets
from payres.testing.peering import peer
from tests.helpers import TIMEOUT, Json, last_segment, read_to_end, usd, wait_until
from tests.instance import Instance, run_instance
from tests.interledger.network import network
from tests.signing_client import Client

CROWD = 1000


@pytest.fixture
def wait() -> Iterator[Callable[..., "Future[httpx2.Response]"]]:
    """Sends a request that prefers to wait, and returns once it does."""
    with ThreadPoolExecutor() as pool:

        def begin(
            instance: Instance, url: str, token: str | None, seconds: int = 30, client: Client | None = None
        ) -> "Future[httpx2.Response]":
            before = waiting(instance, url)
            headers = {"prefer": f"wait={seconds}"}
            if token is None:
                answer = pool.submit(httpx2.get, url, headers=headers, timeout=TIMEOUT)
            else:
                answer = pool.submit((client or instance.client).request, "GET", url, None, token, headers)
            wait_until(lambda: waiting(instance, url) > before or answer.done())
            return answer

        yield begin


def waiting(instance: Instance, url: str) -> int:
    """How many requests wait for a change of the payment."""
    return len(instance.context.changes._watchers.get(last_segment(url), ()))


def bill(instance: Instance, **members: Any) -> tuple[str, str]:
    """A new incoming payment, and a token that reads it."""
    item = {"type": "incoming-payment", "actions": ["create", "read"], "identifier": instance.wallet("bob")}
    token = instance.client.grant(item)
    made = instance.client.post("/incoming-payments", {"walletAddress": instance.wallet("bob")} | members, token)
    return made.json()["id"], token


def pay(instance: Instance, url: str) -> None:
    instance.client.pay(instance.wallet("alice"), url, debitAmount=usd(100))


def applied(answer: httpx2.Response) -> str | None:
    return answer.headers.get("preference-applied")


def test_answer_comes_when_the_payment_changes(shared: Instance, wait: Any) -> None:
    url, token = bill(shared)
    own, public = wait(shared, url, token), wait(shared, url, None, 500)
    assert not own.done()
    pay(shared, url)
    assert own.result().json()["receivedAmount"] == public.result().json()["receivedAmount"] == usd(100)
    assert (applied(own.result()), applied(public.result())) == ("wait=30", f"wait={MAX_WAIT_SECONDS}")
    assert waiting(shared, url) == 0


def test_change_of_another_payment_wakes_nobody(shared: Instance, wait: Any) -> None:
    url, token = bill(shared)
    other, _ = bill(shared)
    answer = wait(shared, url, token)
    pay(shared, other)
    assert not answer.done()
    pay(shared, url)
    assert answer.result().json()["receivedAmount"] == usd(100)


def test_expiry_is_a_change(payres: Instance, wait: Any) -> None:
    url, token = bill(payres, expiresAt=format_time(payres.clock.now() + 60_000_000))
    answer = wait(payres, url, token)
    payres.clock.advance(61)
    assert answer.result().json()["methods"] == []


def test_what_cannot_change_is_answered_at_once(shared: Instance) -> None:
    url, token = bill(shared, incomingAmount=usd(100))
    pay(shared, url)
    answer = shared.client.request("GET", url, None, token, {"Prefer": "respond-async, wait=20"})
    assert answer.json()["completed"]
    assert applied(answer) == "wait=20"


def test_answer_is_as_it_stands_when_the_time_is_over(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    url, token = bill(shared)
    assert applied(shared.client.get(url, token)) is None
    monkeypatch.setattr(resources, "preferred_wait", lambda _: 0.01)
    before = shared.client.get(url, token)
    assert before.json()["receivedAmount"] == usd(0)
    assert applied(before) == "wait=0.01"


ENDS: dict[str, tuple[Callable[[Work, str, str], object], str, str]] = {
    "grant": (lambda work, grant, _: revoke_grant(work, grant), "invalid_token", "revoked_token"),
    "key": (lambda work, _, path: keys.revoke_key(work, path, "key-1"), "invalid_client", "unknown_key"),
    "wallet": (lambda work, _, path: wallets.deactivate(work, path), "invalid_client", "unknown_key"),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_has_ended_meanwhile_shows_nothing(shared: Instance, wait: Any, refused: Any, end: str) -> None:
    client = shared.new_client(f"ending-{end}")
    item = {"type": "incoming-payment", "actions": ["create", "read"], "identifier": shared.wallet("bob")}
    granted = client.obtain_grant(item)
    token, grant_id = granted["access_token"]["value"], last_segment(granted["continue"]["uri"])
    made = client.post("/incoming-payments", {"walletAddress": shared.wallet("bob")}, token).json()
    answer = wait(shared, made["id"], token, client=client)
    make, code, reason = ENDS[end]
    shared.write(lambda work: make(work, grant_id, f"ending-{end}"))
    pay(shared, made["id"])
    refused(answer.result(), 401, code, reason=reason)


def test_signature_is_checked_before_anything_waits(shared: Instance, anonymous: httpx2.Client, refused: Any) -> None:
    url, token = bill(shared)
    headers = {"authorization": f"GNAP {token}", "prefer": "wait=30"}
    refused(anonymous.get(url, headers=headers), 401, "invalid_client")
    refused(shared.client.request("GET", url, None, "unknown", {"prefer": "wait=30"}), 401, "invalid_token")
    missing = f"{shared.base_url}/incoming-payments/01900000-0000-7000-8000-000000000000"
    refused(anonymous.get(missing, headers={"prefer": "wait=30"}), 404, "not_found")


def test_payment_to_another_server_shows_its_progress(tmp_path: Path) -> None:
    with network(tmp_path, "a", "b") as (a, b):
        peer(a, b)
        made = b.client.create_incoming_payment(b.wallet("bob"))
        token = a.client.grant(
            {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": a.wallet("alice")}
        )
        quote = a.client.create_quote(a.wallet("alice"), made["id"], debitAmount=usd(500))
        body = {"walletAddress": a.wallet("alice"), "quoteId": quote["id"]}
        url = a.client.post("/outgoing-payments", body, token).json()["id"]
        seen: list[Json] = []
        while not seen or seen[-1]["sentAmount"] != usd(500):
            seen.append(a.client.request("GET", url, None, token, {"prefer": "wait=30"}).json())
        assert not seen[-1]["failed"]
        assert len(seen) <= 3


@contextmanager
def connections(instance: Instance, url: str, number: int) -> Iterator[Sequence[socket.socket]]:
    """Connections on which the public form of the payment was asked for, with the wish to wait."""
    port = int(instance.base_url.rpartition(":")[2])
    path = url.removeprefix(instance.base_url)
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nprefer: wait=30\r\n\r\n".encode()
    with ExitStack() as stack:
        opened = []
        for _ in range(number):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT))
            connection.sendall(request)
            opened.append(connection)
        wait_until(lambda: waiting(instance, url) == number)
        yield opened


def test_client_that_hangs_up_waits_no_longer(shared: Instance) -> None:
    url, _ = bill(shared)
    with connections(shared, url, 2) as [one, _]:
        one.close()
        wait_until(lambda: waiting(shared, url) == 1)
    wait_until(lambda: waiting(shared, url) == 0)


def test_server_that_stops_answers_those_who_wait(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with run_instance(tmp_path / "payres.db") as instance:
            url, _ = bill(instance)
            [connection] = stack.enter_context(connections(instance, url, 1))
        head, _, body = read_to_end(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(body)["receivedAmount"] == usd(0)


def test_thousand_wait_without_threads_and_without_asking_the_database(
    shared: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one address may have requests in progress: those that wait do not count."""
    reads = []
    url, _ = bill(shared)
    threads = threading.active_count()
    with connections(shared, url, CROWD) as opened:
        read = Database.read

        async def counted(database: Database, unit: Any, **how: bool) -> Any:
            reads.append(unit)
            return await read(database, unit, **how)

        monkeypatch.setattr(Database, "read", counted)
        assert threading.active_count() < threads + CROWD / 10  # other servers of this process begin and end some
        of_others, _ = bill(shared)
        pay(shared, of_others)
        asked = len(reads)
        pay(shared, url)
        for connection in opened:
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(4096)
            assert b'"value":"100"' in answer
            assert b"preference-applied: wait=30" in answer
    assert asked < 100
    assert waiting(shared, url) == 0


@pytest.mark.parametrize(("limit", "rest"), [("MAX_WAITING_REQUESTS", 8000), ("MAX_WAITING_REQUESTS_OF_CLIENT", 2000)])
def test_one_too_many_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: Any, limit: str, rest: int
) -> None:
    assert {"MAX_WAITING_REQUESTS": MAX_WAITING_REQUESTS, limit: getattr(context, limit)}[limit] == rest
    assert MAX_WAITING_REQUESTS_OF_CLIENT < MAX_WAITING_REQUESTS
    monkeypatch.setattr(context, limit, 1)
    with run_instance(tmp_path / "payres.db") as instance:
        url, token = bill(instance)
        first = wait(instance, url, token)
        headers = {"prefer": "wait=30"}
        second = instance.client.request("GET", url, None, token, headers)
        assert second.json()["receivedAmount"] == usd(0)
        assert applied(second) is None
        if limit.endswith("CLIENT"):
            other = wait(instance, url, None)
            assert not other.done()
        pay(instance, url)
        assert applied(first.result()) == "wait=30"


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        *(([b"wait=20"], 20), ([b"wait=0"], 0), ([b"Wait = 7"], 7), ([b'wait="9"; soon=no'], 9)),
        *(([b"respond-async, wait=5", b"wait=9"], 5), ([b"return=minimal", b"wait=9, wait=3"], 9)),
        *(([b"wait=" + b"9" * 9], MAX_WAIT_SECONDS), ([b"wait=" + b"9" * 10], None)),
        *(([b"wait"], None), ([b"wait="], None), ([b"wait=-1"], None), ([b"wait=1.5"], None)),
        *(([b"waiting=1"], None), ([b"\xff, ,;wait=1"], None), ([], None)),
    ],
)
def test_preference_is_read_as_rfc_7240_says(lines: list[bytes], seconds: int | None) -> None:
    assert preferred_wait([(b"accept", b"wait=1"), *((b"prefer", line) for line in lines)]) == seconds
