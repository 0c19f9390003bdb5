"""`payres serve` in a process of its own: killed, stopped, started again, and worked beside by commands.

Payments stay within the server here; `test_remote_kill.py` kills in the middle of one that goes to another, and
`test_load.py` at moments drawn by chance, as many as CRASH_KILLS says. Here a moment is certain, or follows an answer.
"""

import http.client
import json
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from typing import Any

import httpx2
import pytest

from payres.core.protocol.clock import SystemClock
from payres.core.signatures.sign import Message, sign
from payres.core.store.copies import side_file
from payres.testing.clock import MovableClock
from tests.crash.load import DEPOSIT, TABLES, Load
from tests.crash.server import Server
from tests.helpers import TIMEOUT, Json, check_log_of_a_clean_end, is_refused, usd, wait_until
from tests.signing_client import Client

STOP_SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


def test_run_that_did_not_end_in_order_is_remembered(server: Server) -> None:
    runs = "SELECT killed_after IS NOT NULL FROM server_run ORDER BY id"
    assert server.select(runs) == [(0,)]
    server.stop()
    assert server.select(runs) == []
    server.start()
    server.kill()
    server.start()
    assert server.select(runs) == [(1,), (0,)]


def test_kill_and_the_log_removed(server: Server, payers: Load) -> None:
    """The start is refused until an operator has put the log back, or goes on without it."""
    payers.shoppers[0].buy(1)
    server.kill()
    kept = server.folder / "kept"
    side_file(server.database, "-wal").rename(kept)
    for command in (["serve"], ["wallet", "deposit", "alice", "1.00"], ["serve"]):
        refused = server.run(*command)
        assert refused.returncode == (3 if command == ["serve"] else 1), "systemd does not try again"
        assert (refused.stdout, len(refused.stderr.splitlines())) == ("", 1), refused.stderr
        assert re.search(r"that was killed \(events: [1-9]\d*, transfers: [1-9]\d*\b.*\), because", refused.stderr)
    assert server.run("wallet", "list").stderr.count("lacks commits") == 1
    shutil.copyfile(kept, side_file(server.database, "-wal"))
    server.start()
    payers.check()
    payers.shoppers[0].buy(1)
    server.kill()
    side_file(server.database, "-wal").unlink()
    restored = server.run("restore", "payres.db")
    assert restored.returncode == 0, restored.stderr
    server.start()


@pytest.mark.parametrize("command", ["ledger check", "wallet deposit alice 1.00"])
def test_what_a_command_writes_after_a_kill_is_no_sign_of_life(server: Server, payers: Load, command: str) -> None:
    payers.shoppers[0].buy(1)
    server.kill()
    killed_at = SystemClock().now()
    server.command(*command.split())
    server.start()
    [[noted]] = server.select("SELECT min(killed_after) FROM server_run")
    assert 0 < noted <= killed_at


@pytest.fixture
def shop(server: Server) -> Iterator[Client]:
    """A client of no payer's load."""
    with closing(server.client("shop0")) as client:
        yield client


@pytest.fixture
def token(server: Server, shop: Client) -> str:
    """The shop's, for all that it does."""
    actions = {"actions": ["create", "read"], "identifier": server.wallet("alice")}
    return shop.grant(
        {"type": "incoming-payment", "actions": ["create", "read"], "identifier": server.wallet("bob")},
        {"type": "quote"} | actions,
        {"type": "outgoing-payment", "limits": {"debitAmount": usd(DEPOSIT)}} | actions,
    )


def test_kill_after_the_answer_finds_the_money_where_it_belongs(server: Server, payers: Load) -> None:
    """What is acknowledged has arrived, and needs no restart for it."""
    for value in (1, 20, 300):
        payers.shoppers[0].buy(value)
    server.kill()
    states = server.select("SELECT state, debit - sent, receive - delivered FROM outgoing_payment")
    assert states == [("completed", 0, 0)] * 3
    assert server.balance("alice") == (DEPOSIT * 100 - (2 + 40 + 600 + 3 * 10), 0)
    assert server.balance("bob") == (1 + 20 + 300, 0)
    assert server.command("ledger", "check")["ok"]
    server.start()
    payers.check()


def kill_at_the_first_answer(server: Server, sent: "list[Future[Any]]") -> None:
    done, _ = wait(sent, TIMEOUT, FIRST_COMPLETED)
    server.kill()
    assert done
    assert {type(one.exception()) for one in done} == {type(None)}
    assert all(isinstance(one.exception(), httpx2.TransportError | None) for one in sent)
    server.start()


def test_kill_at_the_first_answer_leaves_each_payment_whole_or_absent(server: Server, payers: Load) -> None:
    shopper = payers.shoppers[0]
    quotes = [shopper.quote(value) for value in range(100, 116)]
    with ThreadPoolExecutor(len(quotes)) as threads:
        kill_at_the_first_answer(server, [threads.submit(shopper.pay, *quote) for quote in quotes])
    payers.check()


def test_repeated_after_a_kill_each_request_with_a_key_has_been_done_once(
    server: Server, payers: Load, shop: Client, token: str
) -> None:
    """Whether its answer was read, was lost, or never came to be."""
    shopper, numbers = payers.shoppers[0], range(1000, 1008)  # beyond those of the load
    alice, bob = server.wallet("alice"), server.wallet("bob")
    requests: list[tuple[str, Json]] = [("/incoming-payments", {"walletAddress": bob}) for _ in numbers]
    for _ in numbers:
        quote = shop.create_quote(alice, shopper.bill(100))["id"]
        requests.append(("/outgoing-payments", {"walletAddress": alice, "quoteId": quote}))
    for number, (_, body) in zip([*numbers, *numbers], requests, strict=True):
        body["metadata"] = {"number": number}

    def send(number: int) -> httpx2.Response:
        path, body = requests[number]
        return shop.request("POST", path, body, token, {"idempotency-key": f"request-{number}"})

    with ThreadPoolExecutor(len(requests)) as threads:
        sent = [threads.submit(send, number) for number in range(len(requests))]
        kill_at_the_first_answer(server, sent)
    for number, before in enumerate(sent):
        answers = [send(number) for _ in range(2)] + ([] if before.exception() else [before.result()])
        assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    for path in TABLES:
        assert set(numbers) <= payers.stored(path)
    assert server.command("ledger", "check")["ok"]


def test_repeated_after_a_kill_each_rotation_gives_one_token(server: Server, shop: Client) -> None:
    """Whether its answer was read, was lost, or never came to be."""
    shop._clock = clock = MovableClock()
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": server.wallet("alice")}
    tokens = [shop.obtain_grant(item)["access_token"] for _ in range(12)]

    def rotate(token: Json) -> httpx2.Response:
        return shop.post(token["manage"], None, token["value"])

    with ThreadPoolExecutor(len(tokens)) as threads:
        sent = [threads.submit(rotate, token) for token in tokens]
        kill_at_the_first_answer(server, sent)
    for token, before in zip(tokens, sent, strict=True):
        answers = [] if before.exception() else [before.result()]
        for _ in range(2):
            clock.advance(1)  # another second to sign
            answers.append(rotate(token))
        assert {(answer.status_code, answer.content) for answer in answers} == {(200, answers[0].content)}
        assert shop.get("/outgoing-payment-grant", answers[0].json()["access_token"]["value"]).status_code == 200
        clock.advance(1)
        assert rotate(token).status_code == 404


@STOP_SIGNALS
def test_stop_answers_the_request_under_way(number: signal.Signals, server: Server, shop: Client, token: str) -> None:
    body = json.dumps({"walletAddress": server.wallet("bob")}).encode()
    with request_under_way(shop, token, body) as connection:
        server.signal(number)
        wait_until(lambda: is_refused(server.port), "the server still takes connections")
        connection.sendall(body)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 201
        created = json.load(response)
    check_stopped(server)
    server.start()
    assert shop.get(created["id"], token).json() == created


@STOP_SIGNALS
def test_stop_under_load_has_done_what_was_answered_and_no_more(
    number: signal.Signals, server: Server, payers: Load
) -> None:
    with payers.running():
        payers.wait_for_answers(20)
        server.signal(number)
        assert server.wait() == 0
    check_stopped(server)
    for path in TABLES:
        assert payers.stored(path) == {one.number for one in payers.payments() if one.path == path and one.answer}
    server.start()
    payers.check()


def check_stopped(server: Server) -> None:
    assert server.wait() == 0
    assert server.side_files == []
    check_log_of_a_clean_end(server.log.read_text())


@contextmanager
def request_under_way(client: Client, token: str, body: bytes) -> Iterator[socket.socket]:
    """A signed request for an incoming payment whose body the server has begun to wait for."""
    url = f"{client.base_url}/incoming-payments"
    host, port = client.base_url.removeprefix("http://").split(":")
    headers = {"authorization": f"GNAP {token}", "content-type": "application/json"}
    message = Message("POST", url, [(name.encode(), value.encode()) for name, value in headers.items()], body)
    headers |= sign(message, client.private_key.sign, client.jwk.kid, SystemClock().now() // 1_000_000)
    lines = [f"{name}: {value}\r\n" for name, value in (headers | {"expect": "100-continue", "host": host}).items()]
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
        connection.sendall(f"POST /incoming-payments HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
        # Sent when the endpoint first asks for the body (RFC 9110 section 10.1.1).
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield connection
