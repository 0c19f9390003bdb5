"""What a commit has ended permits nothing from then on, whatever is cached: with requests in progress, and ended
by the server as well as by another program that has the database open. ENDED_RIGHTS says how often for each kind.

Requests go into the application itself, without sockets, so that thousands take seconds.
"""

import asyncio
import os
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.applications import Starlette

from payres.application import create_app
from payres.core.grants import clients, tokens
from payres.core.http import wallet_addresses
from payres.core.http.context import Context
from payres.core.protocol.clock import SECOND
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.core.signatures.sign import Message, sign
from payres.core.store.clients import Client
from payres.core.store.connections import connect_writer
from payres.core.store.grants import GrantRecord
from payres.core.store.work import Environment, Work
from payres.interledger.node import node_of
from payres.interledger.remote_receivers import RemoteIncomingPayment
from payres.operator import keys, wallets
from payres.operator.clients import freeze
from payres.settings import settings_with
from payres.testing.clock import MovableClock
from payres.testing.set_up import SETTINGS
from tests.conftest import Refused
from tests.helpers import receiver_of, usd
from tests.instance import Instance
from tests.signing_client import Client as SigningClient
from tests.works import issued_grant

BASE = "http://127.0.0.1:8000"
TOGETHER = 50  # so many rights end beside each other in each round
ROUNDS = int(os.environ.get("ENDED_RIGHTS", "200")) // TOGETHER
REFUSED = (400, 401)  # 400 for a wallet address that is not active


class Right(msgspec.Struct):
    """What a client needs to create incoming payments in a wallet of its own."""

    path: str
    private_key: Ed25519PrivateKey
    grant: GrantRecord
    token: str = ""
    token_id: str = ""
    answers: list[int] = []

    def issue(self, work: Work) -> None:
        """Another token, and the last one stays as it is."""
        token = tokens.issue_token(work, self.grant)
        self._use(token.value, token.manage)

    def rotate(self, work: Work) -> None:
        token = tokens.rotate_token(work, self.token_id)
        self._use(token.value, token.manage)

    def add_key(self, work: Work) -> None:
        """Another key under the kid that the last one had."""
        self.private_key = generate_private_key()
        public = self.private_key.public_key().public_bytes_raw()
        keys.add_key(work, self.path, jwk_from_public_bytes("key", public))

    def count(self, work: Work) -> int:
        """How many payments have been created with it."""
        query = "SELECT count(*) FROM incoming_payment p JOIN wallet_address w ON w.id = p.wallet_address_id"
        return int(work.execute(f"{query} WHERE w.path = ?", (self.path,)).fetchone()[0])

    def _use(self, value: str, manage: str) -> None:
        self.token, self.token_id = value, manage.rpartition("/")[2]


def revoke_token(work: Work, right: Right) -> None:
    tokens.revoke_token(work, right.token_id)
    right.issue(work)


def rotate_token(work: Work, right: Right) -> None:
    right.rotate(work)


def replace_key(work: Work, right: Right) -> None:
    keys.revoke_key(work, right.path, "key")
    right.add_key(work)


def deactivate_wallet(work: Work, right: Right) -> None:
    wallets.deactivate(work, right.path)


@pytest.mark.parametrize("end", [revoke_token, rotate_token, replace_key, deactivate_wallet])
async def test_nothing_is_created_with_what_has_ended(tmp_path: Path, end: Callable[[Work, Right], None]) -> None:
    settings = settings_with({"base_url": BASE, "database": str(tmp_path / "p.db"), **SETTINGS})
    clock, chance = MovableClock(), random.Random(1)
    app = create_app(settings, clock)
    async with app.router.lifespan_context(app):
        context: Context = app.state.context
        with closing(connect_writer(settings.database)) as shell:
            shell.execute("PRAGMA busy_timeout = 0")  # waiting would hold up the server, which is on the same thread
            rights = await context.database.write(lambda work: [_open(work, number) for number in range(TOGETHER)])
            for number in range(ROUNDS):
                in_server = partial(_in_server, context) if number % 2 else partial(_in_shell, shell, context)
                await asyncio.gather(*(_end_once(app, right, end, in_server, chance) for right in rights))
                if end is deactivate_wallet:
                    await context.database.write(lambda work: [wallets.activate(work, one.path) for one in rights])
    answers = [answer for right in rights for answer in right.answers]
    assert len(answers) == ROUNDS * TOGETHER
    assert {201} < set(answers) <= {201, *REFUSED}, "some came before the end, and some after it"


# What ends while a request waits, of client `alice` with its key `key-1`; and the reason of what is answered then.
WHILE_WAITING: dict[str, tuple[Callable[[Work, str, str], object], int, str, str]] = {
    "token": (lambda work, token, _: tokens.revoke_token(work, token), 401, "invalid_token", "revoked_token"),
    "grant": (lambda work, _, grant: tokens.revoke_grant(work, grant), 401, "invalid_token", "revoked_token"),
    "key": (lambda work, *_: keys.revoke_key(work, "buyer", "key-1"), 401, "invalid_client", "unknown_key"),
    "wallet": (lambda work, *_: wallets.deactivate(work, "buyer"), 401, "invalid_client", "unknown_key"),
    "client": (lambda work, *_: freeze(work, work.urls.wallet("buyer")), 403, "insufficient_access", "frozen_client"),
    "nothing": (lambda *_: None, 201, "", ""),
}


@pytest.mark.parametrize("ending", WHILE_WAITING)
@pytest.mark.parametrize("kind", ["quote", "outgoing-payment"])
def test_nothing_is_created_once_another_server_has_answered_too_late(
    pair: Sequence[Instance], refused: Refused, monkeypatch: pytest.MonkeyPatch, kind: str, ending: str
) -> None:
    """The receiver's server decides how long it takes, and may be a thief's."""
    a, b = pair
    end, status, code, reason = WHILE_WAITING[ending]
    buyer = a.new_client("buyer")
    granted = buyer.obtain_grant({"type": kind, "actions": ["create"], "identifier": a.wallet("alice")})
    ids = granted["access_token"]["manage"].rpartition("/")[2], granted["continue"]["uri"].rpartition("/")[2]
    receivers = node_of(a.context).receivers
    fetch_open = receivers.fetch_open

    async def fetch_late(*asked: Any, **options: Any) -> RemoteIncomingPayment:
        found = await fetch_open(*asked, **options)
        await a.context.database.write(lambda work: end(work, *ids))
        return found

    monkeypatch.setattr(receivers, "fetch_open", fetch_late)
    body = {"walletAddress": a.wallet("alice"), "debitAmount": usd(100)}
    receiver = receiver_of(b)
    body |= {"receiver": receiver, "method": "ilp"} if kind == "quote" else {"incomingPayment": receiver}
    before = a.read(_rows)
    answer = buyer.post(f"/{kind}s", body, granted["access_token"]["value"])
    if ending == "nothing":
        assert answer.status_code == status, answer.text
        if kind == "outgoing-payment":
            a.wait_for(answer.json())
    else:
        if ending == "grant" and kind == "outgoing-payment":
            status, code, reason = 403, "limit_exceeded", "revoked_grant"
        refused(answer, status, code, reason=reason)
        assert a.read(_rows) == before


@pytest.mark.parametrize(("change", "status"), [("good_until = 1", 201), (f"x = '{'A' * 43}'", 401)])
def test_key_of_a_remote_client_is_looked_at_again_while_it_is_fresh(
    pair: Sequence[Instance], monkeypatch: pytest.MonkeyPatch, change: str, status: int
) -> None:
    """While a receiver was read: keys that are no longer fresh are not fetched once more, others have come since."""
    monkeypatch.setattr(wallet_addresses, "KEYS_CACHE", {"Cache-Control": "max-age=60"})
    a, b = pair
    resident = b.new_client("resident")
    about = (resident.wallet_address, resident.private_key, resident.jwk)
    with closing(SigningClient(*about, a.base_url, a.clock, a.approve)) as buyer:
        token = buyer.grant({"type": "quote", "actions": ["create"], "identifier": a.wallet("alice")})
        receivers = node_of(a.context).receivers
        fetch_open = receivers.fetch_open

        async def fetch_late(*asked: Any, **options: Any) -> RemoteIncomingPayment:
            found = await fetch_open(*asked, **options)
            await a.context.database.write(lambda work: work.execute(f"UPDATE client_key SET {change}").fetchall())
            return found

        monkeypatch.setattr(receivers, "fetch_open", fetch_late)
        body = {"walletAddress": a.wallet("alice"), "receiver": receiver_of(b), "method": "ilp"}
        assert buyer.post("/quotes", body | {"debitAmount": usd(100)}, token).status_code == status


def _rows(work: Work) -> tuple[int, ...]:
    """How many quotes and payments there are."""
    found: tuple[int, ...] = work.execute(
        "SELECT (SELECT count(*) FROM quote), (SELECT count(*) FROM outgoing_payment)"
    ).fetchone()
    return found


Run = Callable[[Callable[[Work], Any]], Awaitable[Any]]


async def _end_once(
    app: Starlette, right: Right, end: Callable[[Work, Right], None], run: Run, chance: random.Random
) -> None:
    """Ends the right at some moment of a request with it; from then on a request with it creates nothing."""
    request = _request(right)
    in_progress = asyncio.create_task(_ask(app, *request))
    for _ in range(chance.randrange(8)):
        await asyncio.sleep(0)
    ended = msgspec.structs.replace(right)

    def unit(work: Work) -> int:
        nonlocal ended
        ended = msgspec.structs.replace(right)  # units may run twice
        end(work, ended)
        return right.count(work)

    count = await run(unit)
    assert await _ask(app, *request) in REFUSED
    right.answers.append(await in_progress)
    assert await app.state.context.database.read(right.count) == count
    right.private_key, right.token, right.token_id = ended.private_key, ended.token, ended.token_id


async def _in_server(context: Context, unit: Callable[[Work], int]) -> int:
    return await context.database.write(unit)


async def _in_shell(shell: sqlite3.Connection, context: Context, unit: Callable[[Work], int]) -> int:
    """On a connection of another program, which takes the lock when the server does not have it."""
    while True:
        try:
            shell.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError:  # it is the server's turn
            await asyncio.sleep(0)
    result = unit(Work(shell, Environment.of(context.settings, context.clock)))
    shell.execute("COMMIT")
    return result


def _open(work: Work, number: int) -> Right:
    path = f"client-{number}"
    wallets.create_wallet(work, path, "USD", 2, None, None)
    address = work.urls.wallet(path)
    record = clients.remember(work, Client(address, address, None))
    grant = issued_grant(work, record.id)
    right = Right(path, generate_private_key(), grant, answers=[])
    right.add_key(work)
    right.issue(work)
    return right


def _request(right: Right) -> tuple[Sequence[tuple[bytes, bytes]], bytes]:
    """The headers and the body of a signed request, which may be sent more than once."""
    body = msgspec.json.encode({"walletAddress": f"{BASE}/{right.path}"})
    headers = {"authorization": f"GNAP {right.token}", "content-type": "application/json"}
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    message = Message("POST", f"{BASE}/incoming-payments", lines, body)
    signed = sign(message, right.private_key.sign, "key", MovableClock().now() // SECOND)
    return [*lines, *((name.lower().encode(), value.encode()) for name, value in signed.items())], body


async def _ask(app: Starlette, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> int:
    """The status that the application answers with."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    path = "/incoming-payments"
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
    }
    scope |= {"query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "extensions": {}}
    await app(scope, receive, send)
    return statuses[0]
