"""`payres serve` in a process of its own: killed, stopped, started again, and worked beside by commands.

Payments stay within the server here; `test_remote_kill.py` kills in the middle of one that goes to another, and
`test_load.py` at moments drawn by chance, as many as CRASH_KILLS says. Here a moment is certain, or follows an answer.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import httpx2
import pytest

from payres.clock import SystemClock
from payres.signatures.sign import Message, sign
from payres.store.migrations import migrations
from payres.testing.client import Client
from tests.crash.load import reason
from tests.crash.server import SERVE as SERVE
from tests.crash.server import Server
from tests.crash.server import free_port as free_port
from tests.helpers import ROOT, TIMEOUT, Json, amount, check_log_of_a_clean_end, is_refused, usd, wait_until

PAYERS = 4
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEPOSIT = 1_000_000_00  # cents
TABLES = {"/incoming-payments": "incoming_payment", "/outgoing-payments": "outgoing_payment"}


class Deployment(Server):
    """A database made by commands, the server on it, and a shop that may pay bob's euros from alice's dollars."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port=port)
        self.alice, self.bob = self.wallet("alice"), self.wallet("bob")

    def prepare(self) -> None:
        """Wallets, money, a fee, a rate and the shop's key. Each payment then moves money in both currencies."""
        self.open_wallet("alice", "USD", DEPOSIT // 100)
        self.open_wallet("bob", "EUR")
        self.open_client("shop")
        self.command("liquidity", "deposit", "EUR", "2", "1000000.00")
        self.command("rate", "set", "USD", "EUR", "0.5")
        self.command("fee", "set", "USD", "2", "--fixed", "0.10")


@dataclass
class Creation:
    """A request that creates something, and its answer unless the server died first; with the moments of both."""

    path: str
    body: Json
    asked_at: float
    answer: Json | None = None
    answered_at: float | None = None


class Journal:
    """All that the shop asked for and all that was acknowledged, to be held against a server that was ended."""

    def __init__(self, deployment: Deployment, client: Client) -> None:
        self.creations: list[Creation] = []
        self.token = client.grant(
            {"type": "incoming-payment", "actions": ["create", "read"], "identifier": deployment.bob},
            {"type": "quote", "actions": ["create", "read"], "identifier": deployment.alice},
            {
                "type": "outgoing-payment",
                "actions": ["create", "read"],
                "identifier": deployment.alice,
                "limits": {"debitAmount": usd(DEPOSIT)},
            },
        )
        self._deployment = deployment
        self._client = client
        self._numbers = count()
        self._answers = threading.Semaphore(0)

    def quote(self, value: int) -> str:
        """Quotes a new incoming payment of `value` euro cents; the quote's URL."""
        wanted = amount(value, "EUR")
        receiver = self._create("/incoming-payments", walletAddress=self._deployment.bob, incomingAmount=wanted)["id"]
        quote = self._create("/quotes", walletAddress=self._deployment.alice, receiver=receiver, method="ilp")
        return str(quote["id"])

    def pay(self, quote: str) -> None:
        """An outgoing payment for a quote."""
        self._create("/outgoing-payments", walletAddress=self._deployment.alice, quoteId=quote)

    def pay_until_cut_off(self, chance: Random) -> None:
        """Creates one thing after the other until the server is gone."""
        with suppress(httpx2.TransportError):
            while True:
                self.pay(self.quote(chance.randint(1, 500)))

    def wait_for_answers(self, number: int) -> None:
        """Returns when so many more creations have been acknowledged."""
        while self._answers.acquire(blocking=False):
            pass  # what was acknowledged before does not count
        for _ in range(number):
            assert self._answers.acquire(timeout=TIMEOUT), "the server does not answer"

    def check(self) -> None:
        """After a restart: all that was acknowledged is there and paid, and nothing is there by half."""
        self._ask_again()
        paid = self._paid_receivers()
        for creation in self.creations:
            if creation.answer is not None:
                found = self._client.get(creation.answer["id"], self.token)
                assert (found.status_code, found.json()) == (200, expected(creation.path, creation.answer, paid))
        self._check_numbers()
        self._check_money()

    def stored(self, path: str, database: Path | None = None) -> Counter[int]:
        """The numbers of the payments in the database or a copy of it, `path` being that of their collection."""
        rows = self._deployment.select(
            f"SELECT json_extract(metadata, '$.number') FROM {TABLES[path]}", database=database
        )
        return Counter(number for (number,) in rows)

    def acknowledged(self, path: str) -> Counter[int]:
        """The numbers of the payments that the shop knows to exist."""
        return Counter(one.body["metadata"]["number"] for one in self.creations if one.path == path and one.answer)

    def _create(self, path: str, **body: Any) -> Json:
        if path in TABLES:
            body["metadata"] = {"number": next(self._numbers)}
        creation = Creation(path, body, monotonic())
        self.creations.append(creation)
        response = self._client.post(path, body, self.token)
        assert response.status_code == 201, response.text
        answer: Json = response.json()
        creation.answer, creation.answered_at = answer, monotonic()
        self._answers.release()
        return answer

    def _ask_again(self) -> None:
        """An outgoing payment that was cut off has been made, or can be made as if it had never been asked for."""
        stored = self.stored("/outgoing-payments")
        for creation in self.creations:
            if creation.path == "/outgoing-payments" and creation.answer is None:
                response = self._client.post(creation.path, creation.body, self.token)
                is_made = creation.body["metadata"]["number"] in stored
                assert response.status_code == (409 if is_made else 201), response.text
                creation.answer = None if is_made else response.json()

    def wait_until_all_ended(self) -> None:
        """Returns when no outgoing payment is under way."""
        query = "SELECT 1 FROM outgoing_payment WHERE state = 'sending' LIMIT 1"
        wait_until(lambda: not self._deployment.select(query), self._deployment.log.read_text)
        assert self._client.get("/healthz").status_code == 200

    def _paid_receivers(self) -> set[str]:
        quoted = {
            one.answer["id"]: one.body["receiver"] for one in self.creations if one.path == "/quotes" and one.answer
        }
        return {quoted[one.body["quoteId"]] for one in self.creations if one.path == "/outgoing-payments"}

    def _check_numbers(self) -> None:
        """What is stored was asked for, once each; all outgoing payments were, since those cut off were asked again."""
        for path in TABLES:
            asked = Counter(one.body["metadata"]["number"] for one in self.creations if one.path == path)
            assert self.acknowledged(path) <= self.stored(path) <= asked
            assert path == "/incoming-payments" or self.stored(path) == asked

    def _check_money(self) -> None:
        """Every payment was sent in full, its receiver has it, and both wallets and the grant hold the sums."""
        payments = self._deployment.select(
            "SELECT p.state, p.debit - p.sent, p.receive - p.delivered, cast(i.incoming_value AS integer) - i.received,"
            " i.completed_at IS NULL FROM outgoing_payment p JOIN incoming_payment i ON i.id = p.incoming_payment_id"
        )
        assert set(payments) == {("completed", 0, 0, 0, 0)}
        ((debit, receive),) = self._deployment.select("SELECT sum(debit), sum(receive) FROM outgoing_payment")
        assert self._deployment.balance("alice") == (DEPOSIT - debit, 0)
        assert self._deployment.balance("bob") == (receive, 0)
        spent = self._client.get("/outgoing-payment-grant", self.token).json()
        assert spent["spentDebitAmount"]["value"] == str(debit)
        assert self._deployment.command("ledger", "check")["ok"]


def expected(path: str, answer: Json, paid: set[str]) -> Json:
    """What an acknowledged resource looks like when it is read; `paid` are the receivers of payments."""
    if path == "/outgoing-payments":
        return {name: value for name, value in answer.items() if not name.startswith("grantSpent")}
    if path == "/incoming-payments" and answer["id"] in paid:
        return answer | {"completed": True, "receivedAmount": answer["incomingAmount"], "methods": []}
    return answer


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """A running server. It and the commands get their settings from the environment, as in an operator's shell."""
    for name in [name for name in os.environ if name.startswith("PAYRES_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    deployment = Deployment(tmp_path, free_port())
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PAYRES_DATABASE", str(deployment.database))
    monkeypatch.setenv("PAYRES_PORT", str(deployment.port))
    deployment.prepare()
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.kill()


@pytest.fixture
def shop(deployment: Deployment) -> Iterator[Client]:
    """The client that pays."""
    with closing(deployment.client()) as client:
        yield client


@pytest.fixture
def journal(deployment: Deployment, shop: Client) -> Journal:
    """An empty journal, and a token for all that it records."""
    return Journal(deployment, shop)


@contextmanager
def paying(journal: Journal, chance: Random) -> Iterator[None]:
    """Threads that create payments side by side; the block must end the server, which ends them."""
    with ThreadPoolExecutor(PAYERS) as threads:
        payers = [threads.submit(journal.pay_until_cut_off, Random(chance.getrandbits(32))) for _ in range(PAYERS)]
        yield
    for payer in payers:
        payer.result()


def test_kill_after_the_answer_finds_the_money_where_it_belongs(deployment: Deployment, journal: Journal) -> None:
    """What is acknowledged has arrived, and needs no restart for it."""
    for value in (1, 20, 300):
        journal.pay(journal.quote(value))
    deployment.kill()
    states = deployment.select("SELECT state, debit - sent, receive - delivered FROM outgoing_payment")
    assert states == [("completed", 0, 0)] * 3
    assert deployment.balance("alice") == (DEPOSIT - (2 + 40 + 600 + 3 * 10), 0)
    assert deployment.balance("bob") == (1 + 20 + 300, 0)
    assert deployment.command("ledger", "check")["ok"]
    deployment.start()
    journal.check()


def test_kill_at_the_first_answer_leaves_each_payment_whole_or_absent(deployment: Deployment, journal: Journal) -> None:
    quotes = [journal.quote(value) for value in range(100, 116)]
    with ThreadPoolExecutor(len(quotes)) as threads:
        payments = [threads.submit(journal.pay, quote) for quote in quotes]
        done, _ = wait(payments, TIMEOUT, FIRST_COMPLETED)
        deployment.kill()
    assert done
    assert {type(payment.exception()) for payment in done} == {type(None)}
    assert all(isinstance(payment.exception(), httpx2.TransportError | None) for payment in payments)
    deployment.start()
    journal.check()


def test_repeated_after_a_kill_each_request_with_a_key_has_been_done_once(
    deployment: Deployment, journal: Journal, shop: Client
) -> None:
    """Whether its answer was read, was lost, or never came to be."""
    numbers = range(1000, 1008)  # beyond those of the journal
    requests: list[tuple[str, Json]] = [("/incoming-payments", {"walletAddress": deployment.bob}) for _ in numbers]
    for _ in numbers:
        requests.append(("/outgoing-payments", {"walletAddress": deployment.alice, "quoteId": journal.quote(100)}))
    for number, (_, body) in zip([*numbers, *numbers], requests, strict=True):
        body["metadata"] = {"number": number}

    def send(number: int) -> httpx2.Response:
        path, body = requests[number]
        return shop.request("POST", path, body, journal.token, {"idempotency-key": f"request-{number}"})

    with ThreadPoolExecutor(len(requests)) as threads:
        sent = [threads.submit(send, number) for number in range(len(requests))]
        done, _ = wait(sent, TIMEOUT, FIRST_COMPLETED)
        deployment.kill()
    assert done
    deployment.start()
    for number, before in enumerate(sent):
        answers = [send(number) for _ in range(2)] + ([] if before.exception() else [before.result()])
        assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    for path in TABLES:
        stored = journal.stored(path)
        assert [stored[number] for number in numbers] == [1] * len(numbers)
    assert deployment.command("ledger", "check")["ok"]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_stop_answers_the_request_under_way(
    number: signal.Signals, deployment: Deployment, journal: Journal, shop: Client
) -> None:
    body = json.dumps({"walletAddress": deployment.bob}).encode()
    with request_under_way(shop, journal.token, body) as connection:
        deployment.signal(number)
        wait_until(lambda: is_refused(deployment.port), "the server still takes connections")
        connection.sendall(body)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 201
        created = json.load(response)
    assert deployment.wait() == 0
    assert deployment.side_files == []
    check_log_of_a_clean_end(deployment.log.read_text())
    deployment.start()
    assert shop.get(created["id"], journal.token).json() == created


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_stop_under_load_has_done_what_was_answered_and_no_more(
    number: signal.Signals, deployment: Deployment, journal: Journal
) -> None:
    with paying(journal, Random(1)):
        try:
            journal.wait_for_answers(20)
            deployment.signal(number)
            assert deployment.wait() == 0
        finally:
            deployment.kill()
    assert deployment.side_files == []
    check_log_of_a_clean_end(deployment.log.read_text())
    for path in TABLES:
        assert journal.stored(path) == journal.acknowledged(path)
    deployment.start()
    journal.check()


def test_second_server_on_the_port_is_refused_in_a_sentence(deployment: Deployment, shop: Client) -> None:
    refused = subprocess.run(SERVE, capture_output=True, text=True, timeout=TIMEOUT)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"Error: Port {deployment.port} of 127.0.0.1 is in use; choose another with --port or PAYRES_PORT\n"
    )
    assert shop.get("/healthz").status_code == 200


def test_newer_database_is_refused_in_a_sentence_and_left_as_it_is(deployment: Deployment) -> None:
    deployment.signal(signal.SIGTERM)
    assert deployment.wait() == 0
    known = max(migrations())
    deployment.execute(f"PRAGMA user_version = {known + 1}")
    before = deployment.database.read_bytes()
    refused = subprocess.run(SERVE, capture_output=True, text=True, timeout=TIMEOUT)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        f"Error: The database has version {known + 1}, this payres knows versions up to {known}: "
    )
    assert len(refused.stderr.splitlines()) == 1
    assert deployment.database.read_bytes() == before
    assert deployment.side_files == []


def test_key_revoked_by_command_is_refused_at_the_next_request(
    deployment: Deployment, journal: Journal, shop: Client
) -> None:
    journal.pay(journal.quote(100))
    deployment.command("key", "revoke", "shop", "key-1")
    refused = shop.get("/outgoing-payment-grant", journal.token)
    assert (refused.status_code, reason(refused)) == (401, "unknown_key")


def test_grant_revoked_by_command_is_refused_at_the_next_request(
    deployment: Deployment, journal: Journal, shop: Client
) -> None:
    journal.pay(journal.quote(100))
    (grant,) = deployment.command("grant", "list")["grants"]
    deployment.command("grant", "revoke", grant["id"])
    refused = shop.get("/outgoing-payment-grant", journal.token)
    assert (refused.status_code, reason(refused)) == (401, "revoked_token")


def test_wallet_deactivated_by_command_is_gone_at_the_next_request(deployment: Deployment, shop: Client) -> None:
    assert shop.get("/bob").status_code == 200
    deployment.command("wallet", "deactivate", "bob")
    assert shop.get("/bob").status_code == 404
    deployment.command("wallet", "activate", "bob")
    assert shop.get("/bob").status_code == 200


def test_deposit_by_command_can_be_spent_by_the_next_request(
    deployment: Deployment, journal: Journal, shop: Client
) -> None:
    deployment.command("wallet", "withdraw", "alice", f"{DEPOSIT // 100}.00")
    payment = {"walletAddress": deployment.alice, "quoteId": journal.quote(100)}
    refused = shop.post("/outgoing-payments", payment, journal.token)
    assert (refused.status_code, reason(refused)) == (403, "wallet")
    deployment.command("wallet", "deposit", "alice", "2.10")
    assert shop.post("/outgoing-payments", payment, journal.token).status_code == 201


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
