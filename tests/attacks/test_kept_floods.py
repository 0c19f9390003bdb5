"""Floods of stored data: an unauthenticated client with a key of its own makes the largest requests."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from payres.core.protocol.limits import MAX_KEYID_LENGTH, MAX_METADATA_BYTES, MAX_PAGE
from payres.core.signatures.jwk import parse_jwk, thumbprint
from tests.helpers import Json, client_with_key
from tests.instance import Instance
from tests.signing_client import Client

# What a payment of a page has besides its metadata, and an answer besides its payments.
ENVELOPE = 1000


@pytest.fixture
def attacker(shared: Instance) -> Iterator[Client]:
    with closing(client_with_key(shared)) as client:
        yield client


def token_of(attacker: Client, junk: Json | None = None) -> str:
    item = {"type": "incoming-payment", "actions": ["create", "list"]}
    return attacker.grant(item, client={"jwk": msgspec.to_builtins(attacker.jwk) | (junk or {})}, interact=None)


def metadata(size: int) -> Json:
    """Metadata that has so many bytes as `json.dumps` writes it."""
    return {"a": "x" * (size - len(json.dumps({"a": ""})))}


def test_page_of_the_largest_payments_is_short(shared: Instance, attacker: Client) -> None:
    wallet = shared.create_wallet(f"shelf-{uuid4()}")
    token = token_of(attacker)
    for _ in range(MAX_PAGE):
        body = {"walletAddress": wallet, "metadata": metadata(MAX_METADATA_BYTES)}
        assert attacker.post("/incoming-payments", body, token).status_code == 201
    page = attacker.get(f"/incoming-payments?wallet-address={wallet}&first={MAX_PAGE}", token)
    assert len(page.json()["result"]) == MAX_PAGE
    assert len(page.content) < MAX_PAGE * (MAX_METADATA_BYTES + ENVELOPE)


def test_kept_of_a_request_under_a_key_is_what_tells_it_from_others(shared: Instance, attacker: Client) -> None:
    token, key = token_of(attacker), str(uuid4())
    body = {"walletAddress": shared.wallet("bob"), "metadata": metadata(MAX_METADATA_BYTES)}
    raw = json.dumps(body).encode().ljust(60_000)
    answer = attacker.request("POST", "/incoming-payments", token=token, headers={"idempotency-key": key}, raw=raw)
    assert answer.status_code == 201

    def kept(tx: Any) -> list[Any]:
        return list(tx.execute("SELECT * FROM idempotency_key WHERE key = ?", (key,)).fetchone())

    row = shared.read(kept)
    assert answer.content in row
    row.remove(answer.content)
    assert sum(len(value) for value in row if isinstance(value, str | bytes)) < 300
    again = attacker.request("POST", "/incoming-payments", token=token, headers={"idempotency-key": key}, raw=raw)
    assert (again.status_code, again.content) == (201, answer.content)


@pytest.mark.parametrize("kid", ["key", "k" * MAX_KEYID_LENGTH, '"' * MAX_KEYID_LENGTH])
def test_kept_of_a_key_are_its_public_members(shared: Instance, attacker: Client, kid: str) -> None:
    attacker.jwk = msgspec.structs.replace(attacker.jwk, kid=kid)
    for number in range(2):
        assert token_of(attacker, {"x5c": ["y" * 50_000], "use": "sig", f"n{number}": number})
    identity = thumbprint(attacker.jwk)
    (kept,) = shared.read(lambda tx: tx.execute("SELECT jwk FROM client WHERE identity = ?", (identity,)).fetchone())
    assert json.loads(kept) == msgspec.to_builtins(attacker.jwk) | {"use": "sig"}
    assert parse_jwk(kept).kid == kid
    assert len(kept) < 2 * MAX_KEYID_LENGTH + 150
