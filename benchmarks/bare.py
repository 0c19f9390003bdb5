"""The yardstick: a bare Starlette application with the least that a signed request to a durable store must cost.

Each request is one Ed25519 verification, by libsodium as in payres, and one SQLite operation: a GET is a read by
primary key, a POST one insert, durable before the answer. Both run on threads of payres' own Database, so the
comparison is about what payres does beyond them: signature base, digest, token, grant, access, rules, and answers in
Open Payments' shapes.

A packet is three HMACs, two AES-GCM operations and one insert instead: what is left out is the codecs of two packets
each way, the peer, the ledger, and what is kept for a repeated request.

It is also the endpoint of a webhook, which takes every event and keeps none.
"""

import hmac
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import uvicorn
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl.bindings import crypto_sign, crypto_sign_keypair, crypto_sign_open
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from payres.core.store.database import Database
from payres.core.store.work import Transaction

# As many bytes as the signature base of a signed GET, and as an incoming payment.
MESSAGE = b"signed " * 60
TEXT = "incoming payment " * 32

SECRET = os.urandom(32)
IV = os.urandom(12)

_public_key, _private_key = crypto_sign_keypair()
_signed = crypto_sign(MESSAGE, _private_key)
_secret = hmac.digest(SECRET, b"token" * 12, "sha256")
SEALED = AESGCM(hmac.digest(_secret, b"encryption", "sha256")).encrypt(IV, b"stream packet " * 3, None)


async def serve_one(request: Request) -> Response:
    """One body, one verification, one operation, one answer."""
    body = await request.body()
    crypto_sign_open(_signed, _public_key)
    database: Database = request.app.state.database
    if request.method == "GET":
        return JSONResponse(await database.read(_read))
    return JSONResponse(await database.write(partial(_insert, body=body)), 201)


async def take_packet(request: Request) -> Response:
    """One body, three HMACs, a text opened and sealed anew, one insert, one answer."""
    body = await request.body()
    secret = hmac.digest(SECRET, b"token" * 12, "sha256")
    cipher = AESGCM(hmac.digest(secret, b"encryption", "sha256"))
    fulfillment = hmac.digest(secret, body[-64:], "sha256")
    reply = fulfillment + cipher.encrypt(os.urandom(12), cipher.decrypt(IV, SEALED, None), None)
    await request.app.state.database.write(partial(_insert, body=reply))
    return Response(reply, media_type="application/octet-stream")


async def take_event(request: Request) -> Response:
    """One body, one answer."""
    await request.body()
    return Response()


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.database = await Database.open(os.environ["PAYRES_DATABASE"])
    await app.state.database.write(_prepare)
    yield
    await app.state.database.close()


def _prepare(tx: Transaction) -> None:
    tx.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, text TEXT NOT NULL, body BLOB) STRICT")
    tx.execute("INSERT INTO bare (text) VALUES (?)", (TEXT,))


def _read(tx: Transaction) -> dict[str, object]:
    payment_id, text = tx.execute("SELECT id, text FROM bare WHERE id = 1").fetchone()
    return {"id": payment_id, "text": text}


def _insert(tx: Transaction, body: bytes) -> dict[str, object]:
    cursor = tx.execute("INSERT INTO bare (text, body) VALUES ('incoming payment', ?)", (body,))
    return {"id": cursor.lastrowid, "text": TEXT}


if __name__ == "__main__":  # serves until SIGTERM, with the flags of `payres serve`
    routes = [
        Route("/ilp", take_packet, methods=["POST"]),
        Route("/webhook", take_event, methods=["POST"]),
        Route("/{path:path}", serve_one, methods=["GET", "POST"]),
    ]
    flags: dict[str, Any] = {"loop": "auto", "http": "httptools", "ws": "none", "lifespan": "on", "backlog": 2048}
    flags |= {"log_config": None, "access_log": False, "server_header": False, "date_header": True}
    uvicorn.run(Starlette(routes=routes, lifespan=lifespan), port=int(os.environ["PAYRES_PORT"]), **flags)
