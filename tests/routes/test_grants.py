"""Grant requests and their continuation over HTTP. What may be asked for is in tests/grants/test_requests.py."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from payres.errors import DomainError
from payres.grants.gnap import interaction_hash
from payres.limits import APPROVAL_SECONDS
from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.store.work import Transaction
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json

Refused = Callable[..., Json]

INCOMING = {"type": "incoming-payment", "actions": ["create", "read"]}
QUOTE = {"type": "quote", "actions": ["create"]}
POLLED = {"start": ["redirect"]}
WAIT = 5


def spending(instance: Instance, **members: Any) -> Json:
    return {"type": "outgoing-payment", "actions": ["create"], "identifier": instance.wallet("alice")} | members


def ask(instance: Instance, **members: Any) -> Json:
    """The answer to a request for access that needs consent."""
    answer = instance.client.request_grant(spending(instance), **members)
    assert answer.status_code == 200, answer.text
    asked: Json = answer.json()
    return asked


def follow(client: Client, asked: Json, body: Any = None, token: str | None = None) -> Any:
    """The answer to a continuation request."""
    return client.post(asked["continue"]["uri"], body, token or asked["continue"]["access_token"]["value"])


def reference_in(finished: str | None) -> Json:
    assert finished is not None
    return {"interact_ref": parse_qs(urlsplit(finished).query)["interact_ref"][0]}


@pytest.fixture
def key_clients(shared: Instance) -> Iterator[list[Client]]:
    """Two clients without wallet addresses."""
    clients = []
    for _ in range(2):
        private_key = generate_private_key()
        jwk = jwk_from_public_bytes("key-1", private_key.public_key().public_bytes_raw())
        clients.append(Client("", private_key, jwk, shared.base_url, shared.clock, shared.approve))
    yield clients
    for client in clients:
        client.close()


@pytest.mark.parametrize("interact", [None, POLLED])
def test_access_that_spends_nothing_is_granted_at_once(shared: Instance, interact: Json | None) -> None:
    answer = shared.client.request_grant(INCOMING, QUOTE, interact=interact)
    assert answer.status_code == 200
    body = answer.json()
    assert body.keys() == {"access_token", "continue"}
    token, follow_up = body["access_token"], body["continue"]
    assert token == {
        "value": token["value"],
        "manage": token["manage"],
        "expires_in": shared.context.settings.access_token_lifetime,
        "access": [INCOMING, QUOTE],
    }
    assert token["manage"].startswith(f"{shared.base_url}/token/")
    assert token["value"] not in token["manage"]
    assert follow_up.keys() == {"access_token", "uri"}
    assert follow_up["access_token"].keys() == {"value"}
    assert follow_up["uri"].startswith(f"{shared.base_url}/continue/")
    secrets = {token["value"], token["manage"].rpartition("/")[2], follow_up["access_token"]["value"]}
    assert len(secrets) == 3
    assert all(len(secret) == 43 and secret.isascii() for secret in secrets)  # 32 random bytes each


def test_access_that_spends_waits_for_consent(shared: Instance) -> None:
    alice = {"identifier": shared.wallet("alice")}
    limits = {
        "receiver": shared.client.create_incoming_payment(shared.wallet("bob"))["id"],
        "debitAmount": {"value": "500", "assetCode": "USD", "assetScale": 2},
        "interval": "R11/2096-01-01T00:00:00Z/P1M",
    }
    items = [QUOTE | alice, spending(shared, limits=limits)]
    body = shared.client.request_grant(*items).json()
    assert body.keys() == {"interact", "continue"}
    assert body["interact"].keys() == {"redirect", "finish"}
    assert body["interact"]["redirect"].startswith(f"{shared.base_url}/interact/")
    assert body["continue"].keys() == {"access_token", "uri", "wait"}
    assert body["continue"]["wait"] == shared.context.settings.continue_wait
    granted = follow(shared.client, body, reference_in(shared.approve(body["interact"]["redirect"]))).json()
    assert granted.keys() == {"access_token", "continue"}
    assert granted["access_token"].keys() == {"value", "manage", "expires_in", "access"}
    assert granted["access_token"]["access"] == items
    assert granted["continue"] == {name: value for name, value in body["continue"].items() if name != "wait"}


def test_client_that_is_a_key_keeps_its_last_names(
    shared: Instance, key_clients: list[Client], refused: Refused
) -> None:
    client = key_clients[0]

    def ask(kid: str) -> Json:
        client.jwk = msgspec.structs.replace(client.jwk, kid=kid)
        return client.obtain_grant(INCOMING, client={"jwk": msgspec.to_builtins(client.jwk)})

    first = ask("name-0")
    for number in range(1, 8):
        ask(f"name-{number}")
    client.jwk = msgspec.structs.replace(client.jwk, kid="name-0")
    body = {"walletAddress": shared.wallet("bob")}
    assert client.post("/incoming-payments", body, first["access_token"]["value"]).status_code == 201
    rotated = client.post(first["access_token"]["manage"]).json()["access_token"]
    ask("name-8")
    client.jwk = msgspec.structs.replace(client.jwk, kid="name-0")
    answer = client.post("/incoming-payments", body, rotated["value"])
    refused(answer, 401, "invalid_client", reason="unknown_key")
    ask("name-0")
    assert client.post("/incoming-payments", body, rotated["value"]).status_code == 201
    client.jwk = msgspec.structs.replace(client.jwk, kid="name-9")  # never presented
    refused(client.get("/quotes/1", rotated["value"]), 401, "invalid_client", reason="unknown_key")


def test_two_spellings_of_a_wallet_address_are_one_item(shared: Instance) -> None:
    plain = {"type": "incoming-payment", "actions": ["create"], "identifier": shared.wallet("bob")}
    spelt = [plain | {"identifier": shared.wallet(path)} for path in ("BOB", "%62ob/", "bob?x#y")]
    granted = shared.client.obtain_grant(*spelt)["access_token"]
    assert granted["access"] == [plain]
    assert shared.client.post("/incoming-payments", {}, granted["value"]).json()["walletAddress"] == plain["identifier"]
    reading = plain | {"actions": ["create", "read"], "identifier": f"{shared.wallet('bob')}/"}
    granted = shared.client.obtain_grant(plain, reading)["access_token"]
    assert granted["access"] == [plain, plain | {"actions": ["create", "read"]}]
    assert shared.client.post("/incoming-payments", {}, granted["value"]).status_code == 201


def test_redirect_after_consent_carries_the_hash_and_the_reference(shared: Instance) -> None:
    finish = {"method": "redirect", "uri": "https://shop.example/done?order=1&state=%7e+%ff&flag#top", "nonce": "n-1"}
    asked = ask(shared, interact={"start": ["redirect"], "finish": finish})
    finished = shared.approve(asked["interact"]["redirect"])
    assert finished is not None
    parts = urlsplit(finished)
    assert (parts.scheme, parts.netloc, parts.path, parts.fragment) == ("https", "shop.example", "/done", "top")
    assert parts.query.startswith("order=1&state=%7e+%ff&flag&hash=")
    query = parse_qs(parts.query.partition("&flag&")[2], strict_parsing=True)
    assert query.keys() == {"hash", "interact_ref"}
    [reference] = query["interact_ref"]
    grant_endpoint = f"{shared.base_url}/"
    assert query["hash"] == [interaction_hash("n-1", asked["interact"]["finish"], reference, grant_endpoint)]
    assert follow(shared.client, asked, {"interact_ref": reference}).status_code == 200


@pytest.mark.parametrize("wrong", [{"interact_ref": "wrong"}, {"interact_ref": 1}, [], {}, None])
def test_wrong_reference_leaves_the_grant_as_it_was(shared: Instance, wrong: Any) -> None:
    asked, other = ask(shared), ask(shared)
    good, others = (reference_in(shared.approve(one["interact"]["redirect"])) for one in (asked, other))
    assert follow(shared.client, asked, wrong).status_code in {400, 401, 404}
    assert follow(shared.client, asked, others).status_code == 404
    granted = follow(shared.client, asked, good | {"client": shared.client.wallet_address})
    assert "access_token" in granted.json()
    assert follow(shared.client, other, others).status_code == 200


def test_continuation_is_for_the_client_that_asked(shared: Instance, refused: Refused) -> None:
    other = shared.new_client("continuing")
    asked, mine = ask(shared), other.request_grant(spending(shared)).json()
    reference = reference_in(shared.approve(asked["interact"]["redirect"]))
    stolen = asked["continue"]["access_token"]["value"]
    refused(follow(other, asked, reference), 401, "invalid_client", reason="signature_mismatch")
    refused(other.delete(asked["continue"]["uri"], stolen), 401, "invalid_client", reason="signature_mismatch")
    own = mine["continue"]["access_token"]["value"]
    refused(follow(other, asked, reference, own), 404, "invalid_continuation")
    refused(follow(shared.client, asked, reference, own), 404, "invalid_continuation")
    assert follow(shared.client, asked, reference).status_code == 200


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_continuation_needs_its_token(shared: Instance, refused: Refused, method: str) -> None:
    asked = ask(shared)
    uri = asked["continue"]["uri"]
    refused(shared.client.request(method, uri), 401, "invalid_client", reason="missing_token")
    refused(shared.client.request(method, uri, None, "wrong"), 404, "invalid_continuation")
    access_token = shared.client.grant(QUOTE)
    refused(shared.client.request(method, uri, None, access_token), 404, "invalid_continuation")
    token = asked["continue"]["access_token"]["value"]
    refused(shared.client.request(method, "/continue/none", None, token), 404, "invalid_continuation")
    for value in ("GNAP", f"Bearer {token}", token):
        answer = shared.client.request(method, uri, headers={"authorization": value})
        refused(answer, 401, "invalid_client", reason="missing_token")


@pytest.mark.parametrize("interact", [POLLED, None])
def test_approval_lapses_when_it_is_not_continued_within_an_hour(
    shared: Instance, refused: Refused, interact: Json | None
) -> None:
    asked, in_time = (ask(shared, **({"interact": interact} if interact else {})) for _ in range(2))
    late, good = (shared.approve(one["interact"]["redirect"]) for one in (asked, in_time))
    shared.clock.advance(APPROVAL_SECONDS - 60)
    assert follow(shared.client, in_time, reference_in(good) if good else None).status_code == 200
    shared.clock.advance(60)
    for _ in range(2):
        answer = follow(shared.client, asked, reference_in(late) if late else None)
        refused(answer, 401, "request_denied", reason="approval_expired")
    with pytest.raises(DomainError) as refusal:
        shared.approve(asked["interact"]["redirect"])
    assert refusal.value.code == "wrong_state"
    assert shared.client.delete(asked["continue"]["uri"], asked["continue"]["access_token"]["value"]).status_code == 204


@pytest.mark.parametrize("nonce", ["none", "é", ""])
def test_decision_needs_the_nonce_of_the_redirect(shared: Instance, nonce: str) -> None:
    redirect = ask(shared)["interact"]["redirect"]
    with pytest.raises(DomainError) as refusal:
        shared.approve(f"{redirect.rpartition('/')[0]}/{nonce}x")
    assert (refusal.value.status, refusal.value.code) == (404, "unknown_interaction")


def test_tokens_are_stored_as_hashes_only(shared: Instance) -> None:
    granted = shared.client.obtain_grant(spending(shared))
    token, continuation = granted["access_token"]["value"], granted["continue"]["access_token"]["value"]

    def unit(tx: Transaction) -> str:
        return "".join(
            str(row) for table in ("access_token", '"grant"') for row in tx.execute(f"SELECT * FROM {table}")
        )

    stored = shared.read(unit)
    assert token not in stored
    assert continuation not in stored
