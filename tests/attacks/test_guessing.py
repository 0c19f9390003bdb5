"""Guessing: tokens, cursors and identifiers, and what an answer or its work tells of those that exist."""

import secrets
from collections.abc import Callable
from urllib.parse import quote
from uuid import UUID

import httpx2
import pytest

from payres.core.store.work import Transaction
from tests.attacks.conftest import Metered
from tests.conftest import Refused
from tests.helpers import usd
from tests.instance import Instance
from tests.signing_client import Client

READ = {"type": "incoming-payment", "actions": ["create", "read", "list"]}


@pytest.fixture(scope="module")
def thief(shared: Instance) -> Client:
    return shared.new_client(f"thief-{secrets.token_hex(4)}")


def test_token_guessing(shared: Instance, refused: Refused) -> None:
    """A guess that is nearly right, or is the hash that the database has, is as wrong as any other."""
    token = shared.client.grant(READ)
    stored = {
        value for (value,) in shared.read(lambda tx: tx.execute("SELECT value_hash FROM access_token").fetchall())
    }
    guesses = [
        token[:-1],
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token.swapcase(),
        token + "A",
        token[::-1],
        *(value.hex() for value in list(stored)[:3]),
        *(secrets.token_urlsafe() for _ in range(20)),
        "%",
        "*",
    ]
    bodies = set()
    for guess in guesses:
        answer = shared.client.get("/incoming-payments/1", guess)
        refused(answer, 401, "invalid_token", reason="unknown_token")
        bodies.add(answer.text)
    assert len(bodies) == 1
    assert all(len(value) == 32 and token.encode() not in value for value in stored)


def test_tokens_have_256_random_bits(shared: Instance) -> None:
    """No two have anything in common but the length, whoever asks and whenever."""
    tokens = [shared.client.grant(READ) for _ in range(30)]
    assert len(set(tokens)) == len({token[:8] for token in tokens}) == len({token[-8:] for token in tokens}) == 30
    assert {len(token) for token in tokens} == {43}  # 32 bytes in base64url


def listed(client: Client, wallet: str, token: str, query: str) -> httpx2.Response:
    return client.get(f"/incoming-payments?wallet-address={quote(wallet, safe='')}{query}", token)


def test_cursor_tampering(shared: Instance, thief: Client) -> None:
    """A cursor is a position and opens nothing: another wallet's or client's, or one made up, gives one's own page."""
    wallet, other = (shared.create_wallet(f"{name}-{secrets.token_hex(4)}") for name in ("cursor", "other"))
    token = shared.client.grant(READ)
    mine = [shared.client.post("/incoming-payments", {"walletAddress": wallet}, token).json()["id"] for _ in range(3)]
    theirs = thief.post("/incoming-payments", {"walletAddress": wallet}, thief.grant(READ)).json()["id"]
    elsewhere = shared.client.post("/incoming-payments", {"walletAddress": other}, token).json()["id"]
    made_up = [str(UUID(int=0)), str(UUID(int=2**128 - 1)), theirs.rpartition("/")[2], elsewhere.rpartition("/")[2]]
    for cursor in made_up:
        for query in (f"&cursor={cursor}", f"&cursor={cursor}&first=100", f"&cursor={cursor}&last=100"):
            answer = listed(shared.client, wallet, token, query)
            assert answer.status_code == 200
            assert {item["id"] for item in answer.json()["result"]} <= set(mine)
            assert theirs not in answer.text


Ask = Callable[[], httpx2.Response]


def oracles(shared: Instance, thief: Client) -> dict[str, tuple[Ask, Ask]]:
    """Pairs of questions about what exists and what does not, which neither the answer nor its work distinguishes."""
    token, stolen = thief.grant(READ), shared.client.grant(READ)
    hidden = shared.client.post("/incoming-payments", {"walletAddress": shared.wallet("bob")}, stolen).json()["id"]
    quoted = shared.client.create_quote(shared.wallet("alice"), hidden, debitAmount=usd(100))["id"]
    prices = thief.grant({"type": "quote", "actions": ["read"]})
    asked = shared.client.request_grant(
        {"type": "outgoing-payment", "actions": ["create"], "identifier": shared.wallet("alice")}
    ).json()["continue"]
    page = f"{shared.base_url}/interact"
    known = shared.read(lambda tx: first(tx, "SELECT id FROM interaction"))
    return {
        "payment": (lambda: thief.get(hidden, token), lambda: thief.get(absent(hidden), token)),
        "quote": (lambda: thief.get(quoted, prices), lambda: thief.get(absent(quoted), prices)),
        "grant": (
            lambda: thief.post(asked["uri"], None, "x" * 43),
            lambda: thief.post(absent(asked["uri"]), None, "x" * 43),
        ),
        "interaction": (
            lambda: thief.get(f"{page}/{known}/{'x' * 43}"),
            lambda: thief.get(f"{page}/{absent(known)}/{'x' * 43}"),
        ),
    }


def first(tx: Transaction, query: str) -> str:
    return str(tx.execute(query).fetchone()[0])


def absent(identifier: str) -> str:
    """An identifier of the same form that nobody has."""
    return f"{identifier[:-12]}{'0' * 12}"


@pytest.mark.parametrize("kind", ["payment", "quote", "grant", "interaction"])
def test_existence_oracle_by_the_answer_and_by_its_work(metered: Metered, kind: str) -> None:
    """What exists and is not shown costs as much as what does not, but for reading a row: so it takes as long."""
    instance, meter = metered
    exists, does_not = oracles(instance, instance.new_client(f"thief-{kind}"))[kind]
    one, other = exists(), does_not()
    assert (one.status_code, one.content, one.headers.keys()) == (404, other.content, other.headers.keys())
    assert other.status_code == 404
    of_one, of_other = meter.work(instance, exists), meter.work(instance, does_not)
    assert of_one.calls > 100
    assert abs(of_one.calls - of_other.calls) < 15
    assert abs(of_one.steps - of_other.steps) < 50
