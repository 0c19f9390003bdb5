"""Load on a server by many clients at once, each with a key and a journal of its own, and what must hold afterwards.

Alice, whose wallet is in dollars, pays bob's euros and carol's dollars, and wallets of another server where there is
one. Each client asks for grants that soon have nothing left, rotates its tokens, and completes incoming payments.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests.crash.server import CommandFailed, Server
from tests.helpers import TIMEOUT, Json, amount, usd
from tests.signing_client import FINISH_URI, Client

CLIENTS = 16
PAYERS = 4
UNLIMITED = {
    "PAYRES_ACCESS_TOKEN_LIFETIME": "86400",
    "PAYRES_RATE_LIMIT_PER_CLIENT": "0",
    "PAYRES_RATE_LIMIT_CREATIONS": "0",
    "PAYRES_RATE_LIMIT_PER_ADDRESS": "0",
    "PAYRES_RATE_LIMIT_UNAUTHENTICATED": "0",
    "PAYRES_RATE_LIMIT_PER_PEER": "0",
}
DEPOSIT = 10_000_000  # dollars
RETRY_SECONDS = 0.05
LOST = 0.2  # of the answers to rotations and continuations
LIMIT = 15_00  # cents that a grant may spend
FEE = 10  # cents
PAYEES = {"bob": "EUR", "carol": "USD"}
WORK = {"pay": 8, "pay_elsewhere": 2, "complete": 2, "rotate": 2, "renew": 1}  # how often which comes
TABLES = {"/incoming-payments": "incoming_payment", "/outgoing-payments": "outgoing_payment"}
Request = tuple[str, Json | None, str]  # URL, body and token
UNPAYABLE = {"invalid_receiver", "unavailable"}  # what a receiver may be whose server is killed too


def prepare(server: Server, clients: int = CLIENTS) -> None:
    """Wallets, money, a rate, a fee and clients, on a server that has not been started."""
    server.open_wallet("alice", "USD", DEPOSIT)
    for name, asset in PAYEES.items():
        server.open_wallet(name, asset)
    server.command("liquidity", "deposit", "EUR", "2", f"{DEPOSIT}.00")
    server.command("rate", "set", "USD", "EUR", "0.5")
    server.command("fee", "set", "USD", "2", "--fixed", f"0.{FEE}")
    for number in range(clients):
        server.open_client(f"shop{number}")


def open_server(folder: Path) -> Server:
    """A running server on which a few clients may pay."""
    server = Server(folder)
    prepare(server, PAYERS)
    server.start()
    return server


def payers_of(server: Server) -> "Load":
    """Clients that have the tokens for all that they will do, which is to pay; `close` it."""
    payers = Load(server, Random(1), [], PAYERS, work={"pay": 1}, limit=DEPOSIT * 100)
    for shopper in payers.shoppers:
        shopper.have_tokens()
    return payers


@contextmanager
def drawn_by(variable: str) -> Iterator[Random]:
    """Chance that draws the same again with the seed in a variable of the environment, which a failure names."""
    seed = int(os.environ.get(variable, "1"))
    try:
        yield Random(seed)
    except BaseException as error:
        error.add_note(f"{variable}={seed} draws the same again")
        raise


@dataclass
class Asked:
    """A request that creates something, and its answer unless the server died first; with the moments of both."""

    path: str
    body: Json
    receiver: str | None  # of a payment: what it pays, if that is here
    asked_at: float = field(default_factory=monotonic)
    answer: Json | None = None
    answered_at: float | None = None

    @property
    def number(self) -> int:
        """Of a payment: what its metadata has to tell it from all others."""
        return int(self.body["metadata"]["number"])


@dataclass
class Journal:
    """What a client asked for since the last check, and what was acknowledged."""

    asked: list[Asked] = field(default_factory=list)
    completed: set[str] = field(default_factory=set)
    completing: str | None = None
    continuing: tuple[Json, str] | None = None
    rotating: Json | None = None
    rotated: list[str] = field(default_factory=list)  # tokens that must be worth nothing any more


@dataclass(frozen=True)
class Acknowledged:
    """What a client knows to exist: what it made, in that order, and its access tokens."""

    made: list[Asked]
    tokens: list[str]


class Unavailable(Exception):
    """A request got 503. So it has changed nothing."""


class Load:
    """The clients, from one kill to the next.

    Unless they are `tolerant`, a 503 fails the test. `faulty` is set while the storage is, and holds back what needs
    the command line. Each grant may spend `limit` cents.
    """

    def __init__(
        self,
        server: Server,
        chance: Random,
        receivers_elsewhere: list[str],
        clients: int = CLIENTS,
        tolerant: bool = False,
        work: Mapping[str, int] = WORK,
        limit: int = LIMIT,
    ) -> None:
        self.server = server
        self.tolerant = tolerant
        self.work = work
        self.limit = limit
        self.faulty = threading.Event()
        self.unavailable = threading.Semaphore(0)
        self.receivers_elsewhere = receivers_elsewhere
        self.numbers = count()
        self.figures: Counter[str] = Counter()  # of answers
        self.cut_off: Counter[str] = Counter()
        self.stopped = threading.Event()
        self._asked: dict[str, set[int]] = {path: set() for path in TABLES}
        self._answers = threading.Semaphore(0)
        self._stack = ExitStack()
        self.shoppers = [
            Shopper(self, self._stack.enter_context(closing(server.client(f"shop{number}"))), number, chance)
            for number in range(clients)
        ]

    def close(self) -> None:
        """Closes the clients' connections."""
        self._stack.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """All clients at work, until the block has ended the server, or ends."""
        self.stopped.clear()
        with ThreadPoolExecutor(len(self.shoppers)) as threads:
            running = [threads.submit(shopper.shop) for shopper in self.shoppers]
            try:
                yield
            finally:
                self.stopped.set()
        for one in running:
            one.result()

    def wait_for_answers(self, number: int) -> None:
        """Returns when so many more requests have been acknowledged."""
        while self._answers.acquire(blocking=False):
            pass  # what was acknowledged before does not count
        for _ in range(number):
            assert self._answers.acquire(timeout=TIMEOUT), "the server does not answer"

    def answered(self, kind: str) -> None:
        """Something was acknowledged."""
        self.figures[kind] += 1
        self._answers.release()

    def acknowledged(self) -> list["Acknowledged"]:
        """What each client knows to exist at this moment."""
        return [shopper.acknowledged() for shopper in self.shoppers]

    def check(self) -> None:
        """After a restart: all that was acknowledged is as it was, and nothing is there by half."""
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(Shopper.ask_again, self.shoppers))
            list(threads.map(Shopper.check, self.shoppers))
        self._check_numbers()
        self._check_grants()
        self._check_limits()
        self._check_money()
        for shopper in self.shoppers:
            shopper.journal = Journal()

    def payments(self) -> list[Asked]:
        """All incoming and outgoing payments that were asked for since the last check, and not refused."""
        return [one for shopper in self.shoppers for one in list(shopper.journal.asked) if one.path in TABLES]

    def stored(self, path: str, database: Path | None = None) -> set[int]:
        """The numbers of the payments in the database or a copy of it, `path` being that of their collection."""
        query = f"SELECT json_extract(metadata, '$.number') FROM {TABLES[path]}"
        rows = [number for (number,) in self.server.select(query, database=database)]
        assert len(set(rows)) == len(rows), f"{path} has something twice"
        return set(rows)

    def _check_numbers(self) -> None:
        """What is stored was asked for and not refused, once each; payments, asked for again, are all stored."""
        for one in self.payments():
            self._asked[one.path].add(one.number)
        for path, asked in self._asked.items():
            stored = self.stored(path)
            assert stored <= asked, f"{path} has what nobody asked for, or what was refused"
            assert path == "/incoming-payments" or stored == asked

    def _check_grants(self) -> None:
        """A grant has a valid token once it is issued and never before, and what is undecided can be decided."""
        one_token = (
            'SELECT g.id, g.state, count(t.id) FROM "grant" g LEFT JOIN access_token t ON t.grant_id = g.id AND'
            " t.revoked_at IS NULL GROUP BY g.id HAVING count(t.id) <> (g.state = 'issued')"
        )
        undecidable = (
            'SELECT g.id, g.state FROM "grant" g LEFT JOIN interaction i ON i.grant_id = g.id WHERE'
            " g.state = 'pending' AND (i.id IS NULL OR i.decided_at IS NOT NULL OR i.reference IS NOT NULL)"
            " OR g.state = 'approved' AND i.reference IS NULL"
        )
        assert self.server.select(one_token) == []
        assert self.server.select(undecidable) == []

    def _check_limits(self) -> None:
        """No grant has spent more than it may, counted from the payments themselves."""
        spent = self.server.select(
            "SELECT grant_id, sum(CASE state WHEN 'sending' THEN debit ELSE sent END) FROM outgoing_payment GROUP BY 1"
        )
        assert all(debit <= self.limit for _, debit in spent)
        counted = self.server.select("SELECT grant_id, sum(debit) FROM grant_spending GROUP BY 1")
        assert {row for row in counted if row[1]} == {row for row in spent if row[1]}

    def _check_money(self) -> None:
        """Each payment here was sent in full and arrived; the wallets hold the sums; the ledger balances."""
        payments = self.server.select(
            "SELECT DISTINCT p.state, p.debit - p.sent, p.receive - p.delivered, cast(i.incoming_value AS integer)"
            " - i.received, i.completed_at IS NULL FROM outgoing_payment p"
            " JOIN incoming_payment i ON i.id = p.incoming_payment_id"
        )
        assert set(payments) <= {("completed", 0, 0, 0, 0)}
        under_way = self.server.select("SELECT count(*) FROM outgoing_payment WHERE state = 'sending'") != [(0,)]
        ((sent,),) = self.server.select("SELECT coalesce(sum(sent), 0) FROM outgoing_payment")
        balance, reserved = self.server.balance("alice")
        assert under_way or (balance, reserved) == (DEPOSIT * 100 - sent, 0)
        for name, asset in PAYEES.items():
            ((arrived,),) = self.server.select(
                "SELECT coalesce(sum(delivered), 0) FROM outgoing_payment WHERE receive_code = ?"
                " AND incoming_payment_id IS NOT NULL",
                asset,
            )
            assert self.server.balance(name) == (arrived, 0)
        assert self.server.command("ledger", "check")["ok"]


class Shopper:
    """A client that does one thing after the other, recording each request and its answer."""

    def __init__(self, load: Load, client: Client, number: int, chance: Random) -> None:
        self.journal = Journal()
        self._load = load
        self._client = client
        self._chance = Random(chance.getrandbits(64))
        self._payee = list(PAYEES)[number % len(PAYEES)]
        self._alice = load.server.wallet("alice")
        self._receiving: Json | None = None
        self._spending: Json | None = None

    def shop(self) -> None:
        """Goes on until the server is gone, or the load is stopped."""
        work: dict[str, Callable[[], None]] = {name: getattr(self, f"_{name}") for name in self._load.work}
        with suppress(httpx2.TransportError):
            while not self._load.stopped.is_set():
                (name,) = self._chance.choices(list(work), list(self._load.work.values()))
                try:
                    self.have_tokens()
                    work[name]()
                except (Unavailable, CommandFailed):
                    if not self._load.tolerant:
                        raise
                    self._load.stopped.wait(RETRY_SECONDS)

    def acknowledged(self) -> Acknowledged:
        """What the client knows to exist at this moment."""
        tokens = [token["value"] for token in (self._receiving, self._spending) if token is not None]
        return Acknowledged([one for one in list(self.journal.asked) if one.answer], tokens)

    def ask_again(self) -> None:
        """What was cut off was done, or can be done as if it had never been asked for."""
        self._continue_again()
        self._rotate_again()
        self.have_tokens()
        if self.journal.completing is not None:
            answer = self._client.post(f"{self.journal.completing}/complete", token=self.token("/incoming-payments"))
            assert answer.status_code == 200, answer.text
            self.journal.completed.add(self.journal.completing)
        for asked in self.journal.asked:
            if asked.path == "/outgoing-payments" and asked.answer is None:
                self._pay_again(asked)

    def check(self) -> None:
        """Everything that was acknowledged is as it was, but for what the journal says happened to it since."""
        paid = {one.receiver for one in self.journal.asked if one.path == "/outgoing-payments"}
        for asked in self.journal.asked:
            if asked.answer is not None:
                found = self._client.get(asked.answer["id"], self.token(asked.path))
                assert found.status_code == 200, found.text
                self._compare(asked, asked.answer, found.json(), paid)
        for token in self.journal.rotated:
            refused = self._client.get("/outgoing-payment-grant", token)
            assert refused.status_code == 401, refused.text
            assert reason(refused) in {"revoked_token", "unknown_token"}  # of a grant's many, the oldest are deleted
        spent = self._client.get("/outgoing-payment-grant", self.token("/outgoing-payments")).json()
        assert int((spent["spentDebitAmount"] or {"value": "0"})["value"]) <= self._load.limit

    def _compare(self, asked: Asked, answer: Json, found: Json, paid: set[str | None]) -> None:
        if asked.path == "/outgoing-payments":
            answer = {name: value for name, value in answer.items() if not name.startswith("grantSpent")}
            if asked.receiver is None:  # elsewhere: it may still be in progress, and may fail in part
                for shown in (answer, found):
                    shown.pop("sentAmount"), shown.pop("failed", None)
        elif answer["id"] in paid:
            answer = answer | {"completed": True, "receivedAmount": answer["incomingAmount"], "methods": []}
        elif answer["id"] in self.journal.completed:
            answer = answer | {"completed": True, "methods": []}
        assert found == answer

    def bill(self, value: int) -> str:
        """A new incoming payment of so many cents; its URL."""
        wanted = amount(value, PAYEES[self._payee])
        wallet = self._load.server.wallet(self._payee)
        receiver = self._create("/incoming-payments", walletAddress=wallet, incomingAmount=wanted)
        assert receiver is not None
        return str(receiver["id"])

    def quote(self, value: int) -> tuple[str, str]:
        """The URL of a quote for a new incoming payment of so many cents, and that of the latter."""
        receiver = self.bill(value)
        quote = self._create("/quotes", walletAddress=self._alice, receiver=receiver, method="ilp")
        assert quote is not None
        return str(quote["id"]), receiver

    def pay(self, quote: str, here: str | None) -> None:
        """Pays for a quote, whose receiver is `here` if it is on this server."""
        self._create("/outgoing-payments", here, walletAddress=self._alice, quoteId=quote)

    def buy(self, value: int) -> None:
        """A new incoming payment, paid in full."""
        self.pay(*self.quote(value))

    def _pay(self) -> None:
        self.buy(self._chance.randint(1, 300))

    def _pay_elsewhere(self) -> None:
        if self._load.receivers_elsewhere:
            wanted = {"receiver": self._chance.choice(self._load.receivers_elsewhere), "method": "ilp"}
            debit = usd(self._chance.randint(20, 100))
            quote = self._create("/quotes", walletAddress=self._alice, debitAmount=debit, **wanted)
            if quote is not None:
                self.pay(quote["id"], None)

    def _complete(self) -> None:
        payment = self._create("/incoming-payments", walletAddress=self._load.server.wallet(self._payee))
        assert payment is not None
        self.journal.completing = payment["id"]
        answer = self._post(f"{payment['id']}/complete", None, self.token("/incoming-payments"))
        assert (answer.status_code, answer.json()["completed"]) == (200, True), answer.text
        self.journal.completing = None
        self.journal.completed.add(payment["id"])
        self._load.answered("completions")

    def _rotate(self) -> None:
        assert self._spending is not None
        self.journal.rotating = self._spending
        request = self._spending["manage"], None, self._spending["value"]
        self._rotated(self._heard(request, self._post(*request)))
        self._load.answered("rotations")

    def _rotated(self, answer: Json) -> None:
        assert self.journal.rotating is not None
        self.journal.rotated.append(self.journal.rotating["value"])
        self._spending, self.journal.rotating = answer["access_token"], None

    def _heard(self, request: Request, answer: httpx2.Response) -> Json:
        """The answer to a rotation or continuation; now and then it is lost, and the request sent again."""
        assert answer.status_code == 200, answer.text
        if self._chance.random() < LOST:
            again = self._sent_again(request)
            assert again.json() == answer.json() or (again.status_code == 503 and self._load.tolerant)
        heard: Json = answer.json()
        return heard

    def _sent_again(self, request: Request) -> httpx2.Response:
        """The answer to a request that was sent before. It may need another second in its signature."""
        while (answer := self._client.post(*request)).status_code == 401 and reason(answer) == "signature_reused":
            sleep(RETRY_SECONDS)
        return answer

    def _renew(self) -> None:
        self._spending = None
        self.have_tokens()

    def _create(self, path: str, here: str | None = None, **body: Any) -> Json | None:
        """What was created, or None when the limit of the grant is reached or the receiver's server is away."""
        if path in TABLES:
            body["metadata"] = {"number": next(self._load.numbers)}
        asked = Asked(path, body, here)
        self.journal.asked.append(asked)
        response = self._post(path, body, self.token(path))
        if response.status_code == 201:
            answer: Json = response.json()
            asked.answer, asked.answered_at = answer, monotonic()
            self._load.answered(path.strip("/"))
            return answer
        self.journal.asked.remove(asked)
        self._check_refused(response)
        return None

    def _post(self, url: str, body: Json | None, token: str) -> httpx2.Response:
        """The answer; one with 503 says that there is nothing to be written down."""
        answer = self._client.post(url, body, token)
        if answer.status_code == 503 and answer.json()["error"]["code"] == "unavailable":
            self._forget()
            raise Unavailable(answer.text)
        return answer

    def _forget(self) -> None:
        """What was just asked for was refused by a fault and must not have been done."""
        journal = self.journal
        journal.completing = journal.rotating = journal.continuing = None
        if journal.asked and journal.asked[-1].answer is None:
            journal.asked.pop()
        self._load.figures["answers 503"] += 1
        self._load.unavailable.release()

    def _check_refused(self, response: httpx2.Response) -> None:
        code = response.json()["error"]["code"]
        if code == "limit_exceeded":
            self._spending = None
            self._load.answered("payments past a limit refused")
        else:
            assert self._load.receivers_elsewhere, response.text
            assert code in UNPAYABLE, response.text
            self._load.answered("receivers away")

    def have_tokens(self) -> None:
        """Gets the grants that are missing."""
        payee = self._load.server.wallet(self._payee)
        if self._receiving is None:
            item = {"type": "incoming-payment", "actions": ["create", "read", "complete"], "identifier": payee}
            self._receiving = self._granted(item)
        if self._spending is None:
            limits = {"debitAmount": usd(self._load.limit)}
            actions = {"actions": ["create", "read"], "identifier": self._alice}
            quote = {"type": "quote"} | actions
            self._spending = self._granted(quote, {"type": "outgoing-payment", "limits": limits} | actions)

    def _granted(self, *access: Json) -> Json | None:
        """The token of a new grant."""
        answer = self._client.request_grant(*access)
        if answer.status_code == 503:
            self._forget()
            raise Unavailable(answer.text)
        assert answer.status_code == 200, answer.text
        grant: Json = answer.json()
        self._load.answered("grants")
        if "interact" in grant:
            if self._load.faulty.is_set():
                raise Unavailable("the command line is not to be used")
            finished = self._client._approve(grant["interact"]["redirect"])
            assert finished is not None
            assert finished.startswith(FINISH_URI)
            self.journal.continuing = grant["continue"], parse_qs(urlsplit(finished).query)["interact_ref"][0]
            request = self._continuing()
            grant = self._heard(request, self._post(*request))
            self.journal.continuing = None
            self._load.answered("continuations")
        token: Json = grant["access_token"]
        return token

    def _continuing(self) -> Request:
        assert self.journal.continuing is not None
        follow_up, reference = self.journal.continuing
        return follow_up["uri"], {"interact_ref": reference}, follow_up["access_token"]["value"]

    def _continue_again(self) -> None:
        """Whether or not it was done, the answer is the same."""
        if self.journal.continuing is not None:
            request = self._continuing()
            self._spending = self._heard(request, self._sent_again(request))["access_token"]
            self.journal.continuing = None

    def _rotate_again(self) -> None:
        rotating = self.journal.rotating
        if rotating is not None:
            request = rotating["manage"], None, rotating["value"]
            self._rotated(self._heard(request, self._sent_again(request)))

    def _pay_again(self, asked: Asked) -> None:
        made = asked.number in self._load.stored(asked.path)
        response = self._client.post(asked.path, asked.body, self.token(asked.path))
        if response.status_code == 403 and not made:
            assert response.json()["error"]["code"] == "limit_exceeded", response.text
            self._spending = None
            self.have_tokens()
            response = self._client.post(asked.path, asked.body, self.token(asked.path))
        assert response.status_code == (409 if made else 201), response.text
        asked.answer = None if made else response.json()
        self._load.cut_off["made" if made else "not made"] += 1

    def token(self, path: str) -> str:
        """The access token for what is created at this path."""
        token = self._receiving if path == "/incoming-payments" else self._spending
        assert token is not None
        return str(token["value"])


def reason(refused: httpx2.Response) -> str:
    """The stable word for why a request was refused."""
    return str(refused.json()["error"]["details"]["reason"])
