"""A server of the core alone, in a process that can import no part of payres, pays over HTTP.

`python -m tests.core_alone DATABASE` prints each step with its status. tests/test_core.py runs it.
"""

import asyncio
import json
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

PARTS: Final = (
    *("payres.accounts", "payres.agenda", "payres.application", "payres.cli", "payres.client", "payres.html"),
    *("payres.interledger", "payres.openapi", "payres.operator", "payres.people", "payres.testing", "payres.webhooks"),
)


class Barrier(MetaPathFinder):
    """Refuses to import a part."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if any(fullname == part or fullname.startswith(f"{part}.") for part in PARTS):
            raise ImportError(f"{fullname} is a part, which the core must not import")
        return None


sys.meta_path.insert(0, Barrier())

import httpx2
import uvicorn

from payres.core.grants.consent import decide, find_pending
from payres.core.http.server import settings_of
from payres.core.http.serving import application
from payres.core.payments import ledger
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SECOND, SystemClock
from payres.core.signatures.jwk import JWK, generate_private_key, jwk_from_public_bytes
from payres.core.signatures.sign import Message, sign
from payres.core.store.accounts import ensure_asset
from payres.core.store.connections import connect_writer
from payres.core.store.events import has_old_events
from payres.core.store.rows import insert_row
from payres.core.store.wallets import KEYS, WALLETS
from payres.core.store.work import INSERT_EVENT, Work

KEY: Final = generate_private_key()
JWK_OF_KEY: Final = jwk_from_public_bytes("key-1", KEY.public_key().public_bytes_raw())


def open_wallet(work: Work, path: str, balance: int, jwk: JWK | None = None) -> None:
    """A wallet with money from outside, and a key of its client."""
    asset = ensure_asset(work, "USD", 2)
    account = ledger.open_account(work, "wallet", asset.id)
    owner = insert_row(work, "owner", created_at=work.now)
    columns = {"asset_id": asset.id, "account_id": account, "owner_id": owner}
    WALLETS.create(work, path=path, **columns, created_at=work.now, tag=work.new_id())
    if balance:
        outside = ledger.operator_account(work, asset.id, "external")
        ledger.transfer(work, outside, account, balance, "deposit")
    if jwk is not None:
        found = WALLETS.find(work, "WHERE path = ?", path)
        assert found is not None
        KEYS.create(work, wallet_address_id=found.id, kid=jwk.kid, x=jwk.x, created_at=work.now)


def consent(work: Work, url: str) -> None:
    """The owner's, as a page would give it."""
    interaction, nonce = url.rsplit("/", 2)[1:]
    decide(work, find_pending(work, interaction, nonce), True, "owner")


class Client:
    """Signs requests as the wallet `shop`, and prints each with its status."""

    def __init__(self, base: str, http: httpx2.AsyncClient) -> None:
        self._base = base
        self._http = http

    async def __call__(self, step: str, method: str, url: str, body: Any = None, token: str = "") -> Any:
        url = url if url.startswith("http") else f"{self._base}{url}"
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | ({"authorization": f"GNAP {token}"} if token else {})
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        signed = sign(Message(method, url, lines, content), KEY.sign, JWK_OF_KEY.kid, SystemClock().now() // SECOND)
        answer = await self._http.request(method, url, content=content or None, headers=headers | signed)
        print(step, answer.status_code, flush=True)
        return answer.json() if answer.content else None


async def pay(base: str, database: Any, http: httpx2.AsyncClient) -> None:
    """A payment from alice to bob, from the grants to the end of all rights."""
    ask, me = Client(base, http), f"{base}/shop"
    alice, bob = f"{base}/alice", f"{base}/bob"
    print("wallet", (await http.get(alice)).status_code, (await http.get(f"{me}/jwks.json")).status_code)

    async def grant(step: str, access: dict[str, Any], **more: Any) -> Any:
        return await ask(step, "POST", "/", {"access_token": {"access": [access]}, "client": me, **more})

    takes = {"type": "incoming-payment", "actions": ["create", "read", "list", "complete"]}
    receiving = (await grant("grant", takes))["access_token"]["value"]
    quoting = (await grant("grant", {"type": "quote", "actions": ["create", "read"]}))["access_token"]["value"]
    spends = {"type": "outgoing-payment", "actions": ["create", "read", "list"], "identifier": alice}
    asked = await grant("grant", spends, interact={"start": ["redirect"]})
    await database.write(partial(consent, url=asked["interact"]["redirect"]))
    go_on = asked["continue"]
    given = (await ask("continue", "POST", go_on["uri"], {}, go_on["access_token"]["value"]))["access_token"]

    price = {"value": "500", "assetCode": "USD", "assetScale": 2}
    bill = await ask("bill", "POST", "/incoming-payments", {"walletAddress": bob, "incomingAmount": price}, receiving)
    quoted = {"walletAddress": alice, "receiver": bill["id"], "method": "ilp"}
    quote = await ask("quote", "POST", "/quotes", quoted, quoting)
    away = {**quoted, "receiver": "https://elsewhere.example/incoming-payments/1"}
    print((await ask("elsewhere", "POST", "/quotes", away, quoting))["error"]["description"])
    paying = {"walletAddress": alice, "quoteId": quote["id"]}
    payment = await ask("pay", "POST", "/outgoing-payments", paying, given["value"])
    print("received", (await ask("read", "GET", bill["id"], None, receiving))["receivedAmount"]["value"])
    listed = await ask("list", "GET", f"/outgoing-payments?wallet-address={alice}", None, given["value"])
    assert [one["id"] for one in listed["result"]] == [payment["id"]]
    other = await ask("bill", "POST", "/incoming-payments", {"walletAddress": bob}, receiving)
    await ask("complete", "POST", f"{other['id']}/complete", {}, receiving)
    rotated = (await ask("rotate", "POST", given["manage"], {}, given["value"]))["access_token"]
    await ask("revoke", "DELETE", rotated["manage"], None, rotated["value"])
    await ask("revoked", "GET", payment["id"], None, rotated["value"])


async def main(path: str) -> None:
    """Serves until the payment is made. The database has an event of long ago."""
    with closing(connect_writer(path)) as connection:
        connection.execute(INSERT_EVENT, ("incoming_payment.created", None, b"{}", 0, None))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = application([], Settings(database=path, base_url=base, continue_wait=0), is_disposable=True)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="on", **settings_of()))
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        database = app.state.context.database
        for wallet in (partial(open_wallet, path="alice", balance=1000), partial(open_wallet, path="bob", balance=0)):
            await database.write(wallet)
        await database.write(partial(open_wallet, path="shop", balance=0, jwk=JWK_OF_KEY))
        async with httpx2.AsyncClient(timeout=60, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as http:
            await pay(base, database, http)
        print("old events", await database.read(lambda work: has_old_events(work, work.now)))
        server.should_exit = True
        await serving


def _parts_loaded() -> Iterator[str]:
    return (name for name in sys.modules if name.startswith(tuple(f"{part}." for part in PARTS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print("parts loaded:", *_parts_loaded())
