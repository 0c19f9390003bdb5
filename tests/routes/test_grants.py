"""Grant requests and their continuation over HTTP. What may be asked for is in tests/grants/test_requests.py."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from payres.errors import DomainError
from payres.grants.gnap import interaction_hash
from payres.grants.tokens import revoke_grant
from payres.limits import APPROVAL_SECONDS
from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.store.work import Transaction
from payres.testing.client import FINISH_URI, Client
from payres.testing.instance import Instance, run_instance
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


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance whose clients must wait before they continue."""
    with run_instance(tmp_path_factory.mktemp("waiting") / "payres.db", continue_wait=WAIT) as instance:
        yield instance


@pytest.mark.parametrize(
    "access",
    [
        [INCOMING],
        [QUOTE],
        [INCOMING, QUOTE],
        [{"type": "incoming-payment", "actions": ["create", "complete", "read", "read-all", "list"]}],
        [{"type": "quote", "actions": ["create", "read", "read-all"]}],
    ],
)
@pytest.mark.parametrize("interact", [None, POLLED])
def test_access_that_spends_nothing_is_granted_at_once(shared: Instance, access: list[Json], interact: Json) -> None:
    answer = shared.client.request_grant(*access, interact=interact)
    assert answer.status_code == 200
    body = answer.json()
    assert body.keys() == {"access_token", "continue"}
    token, follow_up = body["access_token"], body["continue"]
    assert token == {
        "value": token["value"],
        "manage": token["manage"],
        "expires_in": shared.context.settings.access_token_lifetime,
        "access": access,
    }
    assert token["manage"].startswith(f"{shared.base_url}/token/")
    assert token["value"] not in token["manage"]
    assert follow_up.keys() == {"access_token", "uri"}
    assert follow_up["access_token"].keys() == {"value"}
    assert follow_up["uri"].startswith(f"{shared.base_url}/continue/")
    secrets = {token["value"], token["manage"].rpartition("/")[2], follow_up["access_token"]["value"]}
    assert len(secrets) == 3
    assert all(len(secret) == 43 and secret.isascii() for secret in secrets)  # 32 random bytes each


@pytest.mark.parametrize(
    "access",
    [
        [{"type": "outgoing-payment", "actions": ["create"]}],
        [{"type": "outgoing-payment", "actions": ["read"]}],
        [{"type": "incoming-payment", "actions": ["list-all"]}],
        [QUOTE, {"type": "outgoing-payment", "actions": ["read"]}],
    ],
)
def test_access_that_spends_or_sees_all_waits_for_consent(shared: Instance, access: list[Json]) -> None:
    items = [item | {"identifier": shared.wallet("alice")} for item in access]
    answer = shared.client.request_grant(*items)
    assert answer.status_code == 200
    body = answer.json()
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


def test_limits_are_echoed_as_they_were_asked_for(shared: Instance) -> None:
    limits = {
        "receiver": shared.client.create_incoming_payment(shared.wallet("bob"))["id"],
        "debitAmount": {"value": "500", "assetCode": "USD", "assetScale": 2},
        "interval": "R11/2096-01-01T00:00:00Z/P1M",
    }
    granted = shared.client.obtain_grant(spending(shared, limits=limits))
    assert granted["access_token"]["access"] == [spending(shared, limits=limits)]


def test_subject_is_told_after_consent(shared: Instance) -> None:
    subject = {"sub_ids": [{"id": shared.wallet("alice"), "format": "uri"}]}
    asked = shared.client.request_grant(access_token=None, subject=subject).json()
    assert asked.keys() == {"interact", "continue"}
    granted = follow(shared.client, asked, reference_in(shared.approve(asked["interact"]["redirect"]))).json()
    assert granted.keys() == {"subject", "continue"}
    assert granted["subject"] == subject
    both = shared.client.obtain_grant(QUOTE, subject=subject)
    assert both.keys() == {"access_token", "subject", "continue"}


@pytest.mark.parametrize("form", ["text", "object", "trailing slash"])
def test_client_is_named_by_its_wallet_address(shared: Instance, form: str) -> None:
    address = shared.client.wallet_address
    forms: Json = {"text": address, "object": {"walletAddress": address}, "trailing slash": f"{address}/"}
    token = shared.client.grant(INCOMING, client=forms[form])
    body = {"walletAddress": shared.wallet("bob")}
    created = shared.client.post("/incoming-payments", body, token).json()
    assert shared.client.get(created["id"], shared.client.grant(INCOMING)).status_code == 200  # one client all along


def test_client_may_be_its_key_alone(shared: Instance, key_clients: list[Client], refused: Refused) -> None:
    client, other = key_clients
    as_itself = {"client": {"jwk": msgspec.to_builtins(client.jwk)}}
    token = client.grant(INCOMING, QUOTE, **as_itself)
    created = client.post("/incoming-payments", {"walletAddress": shared.wallet("bob")}, token).json()
    assert client.get(created["id"], token).status_code == 200
    others = other.grant(INCOMING, client={"jwk": msgspec.to_builtins(other.jwk)})
    refused(other.get(created["id"], others), 404, "not_found")
    refused(other.get(created["id"], token), 401, "invalid_client", reason="signature_mismatch")
    forged = other.request_grant(INCOMING, **as_itself)
    refused(forged, 401, "invalid_client", reason="signature_mismatch")
    consent_needed = client.request_grant(spending(shared), **as_itself)
    refused(consent_needed, 400, "invalid_client")


def test_client_that_is_a_key_may_call_it_by_another_name(shared: Instance, key_clients: list[Client]) -> None:
    client = key_clients[0]
    for kid in ("first", "second"):
        client.jwk = msgspec.structs.replace(client.jwk, kid=kid)
        token = client.grant(INCOMING, client={"jwk": msgspec.to_builtins(client.jwk)})
        answer = client.post("/incoming-payments", {"walletAddress": shared.wallet("bob")}, token)
        assert answer.status_code == 201, answer.text


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


@pytest.mark.parametrize(
    "client",
    [
        "",
        "shop",
        "ftp://h/shop",
        {},
        {"walletAddress": "{shop}", "jwk": {"kid": "k"}},
        {"jwk": {}},
        {"jwk": None},
        {"jwk": {"kid": "k", "x": "A" * 43, "alg": "EdDSA", "kty": "OKP", "crv": "X25519"}},
        {"jwk": {"kid": "k", "x": "A" * 43, "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519", "d": "A" * 43}},
    ],
    ids=str,
)
def test_client_that_names_nobody_is_refused(shared: Instance, refused: Refused, client: str | Json) -> None:
    if isinstance(client, dict) and client.get("walletAddress"):
        client["walletAddress"] = shared.client.wallet_address
    refused(shared.client.request_grant(QUOTE, client=client), 400, "invalid_client", field="client")


@pytest.mark.parametrize("client", ["nobody", "alice"])
def test_client_without_such_a_key_is_refused(shared: Instance, refused: Refused, client: str) -> None:
    answer = shared.client.request_grant(QUOTE, client=shared.wallet(client))
    refused(answer, 400, "invalid_client", reason="unknown_key")


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


def test_reference_is_good_once(shared: Instance, refused: Refused) -> None:
    asked = ask(shared)
    body = reference_in(shared.approve(asked["interact"]["redirect"]))
    assert "access_token" in follow(shared.client, asked, body).json()
    refused(follow(shared.client, asked, body), 404, "invalid_continuation", reason="unknown_continuation")
    refused(follow(shared.client, asked), 401, "request_denied", reason="already_issued")


@pytest.mark.parametrize(
    ("body", "status", "code", "reason"),
    [
        ({"interact_ref": "wrong"}, 404, "invalid_continuation", "unknown_continuation"),
        ({"interact_ref": ""}, 400, "invalid_request", None),
        ({"interact_ref": 1}, 400, "invalid_request", None),
        ({"interact_ref": None}, 400, "invalid_request", None),
        ([], 400, "invalid_request", None),
        ({}, 401, "request_denied", "missing_interact_ref"),
        (None, 401, "request_denied", "missing_interact_ref"),
    ],
)
def test_wrong_reference_leaves_the_grant_as_it_was(
    shared: Instance, refused: Refused, body: Any, status: int, code: str, reason: str | None
) -> None:
    asked = ask(shared)
    good = reference_in(shared.approve(asked["interact"]["redirect"]))
    refused(follow(shared.client, asked, body), status, code, reason=reason)
    granted = follow(shared.client, asked, good | {"client": shared.client.wallet_address})
    assert "access_token" in granted.json()


def test_reference_of_another_grant_is_refused(shared: Instance, refused: Refused) -> None:
    one, other = ask(shared), ask(shared)
    shared.approve(one["interact"]["redirect"])
    reference = reference_in(shared.approve(other["interact"]["redirect"]))
    refused(follow(shared.client, one, reference), 404, "invalid_continuation")
    assert follow(shared.client, other, reference).status_code == 200


def test_continuation_before_the_decision_is_refused_when_a_redirect_will_tell(
    shared: Instance, refused: Refused
) -> None:
    asked = ask(shared)
    refused(follow(shared.client, asked), 401, "request_denied", reason="undecided")
    refused(follow(shared.client, asked, {"interact_ref": "guess"}), 404, "invalid_continuation")
    granted = follow(shared.client, asked, reference_in(shared.approve(asked["interact"]["redirect"])))
    assert granted.status_code == 200


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
    as_bearer = shared.client.request(method, uri, headers={"authorization": f"Bearer {token}"})
    refused(as_bearer, 401, "invalid_client", reason="missing_token")


def test_grant_given_at_once_cannot_be_continued(shared: Instance, refused: Refused) -> None:
    granted = shared.client.obtain_grant(QUOTE)
    refused(follow(shared.client, granted), 401, "request_denied", reason="already_issued")
    refused(follow(shared.client, granted, {"interact_ref": "guess"}), 404, "invalid_continuation")


def test_polling_answers_wait_until_the_owner_decides(shared: Instance, refused: Refused) -> None:
    asked = ask(shared, interact=POLLED)
    for _ in range(2):
        pending = follow(shared.client, asked)
        assert (pending.status_code, pending.json()) == (200, {"continue": asked["continue"]})
    assert shared.approve(asked["interact"]["redirect"]) is None
    granted = follow(shared.client, asked, {})
    assert granted.json().keys() == {"access_token", "continue"}
    refused(follow(shared.client, asked), 401, "request_denied", reason="already_issued")


@pytest.mark.parametrize("interact", [POLLED, None])
def test_denied_grant_says_so(shared: Instance, refused: Refused, interact: Json | None) -> None:
    asked = ask(shared, **({"interact": interact} if interact else {}))
    finished = shared.deny(asked["interact"]["redirect"])
    assert finished == (None if interact else f"{FINISH_URI}?result=grant_rejected")
    for body in (None, {"interact_ref": "guess"}):
        refused(follow(shared.client, asked, body), 401, "user_denied", reason="owner_denied")


def test_decision_is_made_once(shared: Instance) -> None:
    for first, second in ((shared.approve, shared.deny), (shared.deny, shared.approve)):
        redirect = ask(shared)["interact"]["redirect"]
        first(redirect)
        with pytest.raises(DomainError) as refusal:
            second(redirect)
        assert (refusal.value.status, refusal.value.code) == (409, "wrong_state")


def test_decision_has_its_time(shared: Instance, refused: Refused) -> None:
    asked, polled = ask(shared), ask(shared, interact=POLLED)
    shared.clock.advance(shared.context.settings.interaction_lifetime)
    for one in (asked, polled):
        with pytest.raises(DomainError) as refusal:
            shared.approve(one["interact"]["redirect"])
        assert (refusal.value.status, refusal.value.code) == (
            400,
            "invalid_interaction",
        )
        error = refused(follow(shared.client, one), 401, "request_denied", reason="decision_expired")
        assert "over" in error["details"]["hint"]


def test_approved_grant_can_be_continued_when_the_time_to_decide_is_over(shared: Instance) -> None:
    asked = ask(shared)
    reference = reference_in(shared.approve(asked["interact"]["redirect"]))
    shared.clock.advance(shared.context.settings.interaction_lifetime)
    assert follow(shared.client, asked, reference).status_code == 200


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


def test_cancelled_request_cannot_be_decided_or_continued(shared: Instance, refused: Refused) -> None:
    asked = ask(shared)
    token = asked["continue"]["access_token"]["value"]
    answer = shared.client.delete(asked["continue"]["uri"], token)
    assert (answer.status_code, answer.content) == (204, b"")
    with pytest.raises(DomainError, match="cancelled"):
        shared.approve(asked["interact"]["redirect"])
    refused(follow(shared.client, asked), 404, "invalid_continuation")
    refused(shared.client.delete(asked["continue"]["uri"], token), 404, "invalid_continuation")


@pytest.mark.parametrize("item", [QUOTE, {"type": "quote", "actions": ["read"]}])
def test_cancelled_grant_takes_its_tokens_along(shared: Instance, refused: Refused, item: Json) -> None:
    granted = shared.client.obtain_grant(item)
    token = granted["access_token"]
    rotated = shared.client.post(token["manage"], None, token["value"]).json()["access_token"]["value"]
    follow_up = granted["continue"]
    assert shared.client.delete(follow_up["uri"], follow_up["access_token"]["value"]).status_code == 204
    refused(shared.client.get("/quotes/none", rotated), 401, "invalid_token", reason="revoked_token")


def test_grant_revoked_by_the_operator_cannot_be_continued(shared: Instance, refused: Refused) -> None:
    asked = ask(shared)
    reference = reference_in(shared.approve(asked["interact"]["redirect"]))
    grant_id = asked["continue"]["uri"].rpartition("/")[2]
    shared.write(partial(revoke_grant, grant_id=grant_id))
    refused(follow(shared.client, asked, reference), 404, "invalid_continuation")


def test_wait_is_asked_of_those_who_poll(waiting: Instance, refused: Refused) -> None:
    asked = ask(waiting, interact=POLLED)
    assert asked["continue"]["wait"] == WAIT
    refused(follow(waiting.client, asked), 400, "too_fast", wait=WAIT)
    waiting.clock.advance(WAIT - 2)
    assert refused(follow(waiting.client, asked), 400, "too_fast")["details"]["wait"] <= 2
    waiting.clock.advance(2)
    assert follow(waiting.client, asked).json() == {"continue": asked["continue"]}
    refused(follow(waiting.client, asked), 400, "too_fast", wait=WAIT)  # counted from the answer just given
    waiting.approve(asked["interact"]["redirect"])
    refused(follow(waiting.client, asked), 400, "too_fast")
    waiting.clock.advance(WAIT)
    assert "access_token" in follow(waiting.client, asked).json()


def test_wait_is_not_asked_of_those_whom_the_redirect_told(waiting: Instance, refused: Refused) -> None:
    asked = ask(waiting)
    refused(follow(waiting.client, asked, {"interact_ref": "guess"}), 400, "too_fast", wait=WAIT)
    reference = reference_in(waiting.approve(asked["interact"]["redirect"]))
    assert "access_token" in follow(waiting.client, asked, reference).json()


def test_wait_does_not_hold_up_cancelling(waiting: Instance) -> None:
    asked = ask(waiting, interact=POLLED)
    answer = waiting.client.delete(asked["continue"]["uri"], asked["continue"]["access_token"]["value"])
    assert answer.status_code == 204


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
