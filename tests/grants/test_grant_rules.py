"""The rules of grants over HTTP: requests, continuation in every state, cancelling, tokens and their time.

Consent with its redirects is in tests/routes/test_consent.py, what may be asked for is in
tests/grants/test_requests.py, and what a grant then permits in tests/routes/test_access_matrix.py.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from itertools import product
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest

from payres.clock import MovableClock
from payres.errors import DomainError
from payres.grants import clients
from payres.grants.gnap import GrantRequest
from payres.grants.requests import cancel_grant, continue_grant, request_grant
from payres.grants.tokens import revoke_grant
from payres.limits import APPROVAL_SECONDS
from payres.operator import grants, keys, wallets
from payres.settings import Settings
from payres.signatures.fields import content_digest
from payres.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.store.connections import connect_writer
from payres.store.work import Transaction, Work
from payres.testing import instance as instances
from payres.testing.client import Client
from payres.testing.instance import Instance, run_instance
from payres.urls import Urls
from tests.helpers import Json, client_with_key
from tests.http_server import reply, serving
from tests.works import work_at

Refused = Callable[..., Json]

SECOND = 1_000_000
INSTANT = 0.000001  # seconds: the smallest step of the clock
WAIT = 5
TOKEN_LIFETIME = 600
TIME_TO_DECIDE = 600
POLLED: Json = {"start": ["redirect"]}
QUOTE: Json = {"type": "quote", "actions": ["create", "read"]}
INCOMING: Json = {"type": "incoming-payment", "actions": ["create", "read"]}


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance whose clock stands still until a test moves it, and whose clients must wait before they continue."""
    settings = {"continue_wait": WAIT, "access_token_lifetime": TOKEN_LIFETIME, "interaction_lifetime": TIME_TO_DECIDE}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instances, "MovableClock", partial(MovableClock, frozen=True))
        with run_instance(tmp_path_factory.mktemp("still") / "payres.db", **settings) as instance:
            yield instance


def spending(instance: Instance, **members: Any) -> Json:
    return {"type": "outgoing-payment", "actions": ["create"], "identifier": instance.wallet("alice")} | members


def subject(instance: Instance, wallet_address: str | None = None) -> Json:
    return {"sub_ids": [{"id": wallet_address or instance.wallet("alice"), "format": "uri"}]}


def ask(instance: Instance, *items: Json, **members: Any) -> Json:
    answer = instance.client.request_grant(*(items or [spending(instance)]), **members)
    assert answer.status_code == 200, answer.text
    asked: Json = answer.json()
    return asked


def follow(
    client: Client, asked: Json, body: Any = None, method: str = "POST", token: str | None = None
) -> httpx2.Response:
    return client.request(method, asked["continue"]["uri"], body, token or asked["continue"]["access_token"]["value"])


def reference_in(finished: str | None) -> str:
    assert finished is not None
    return parse_qs(urlsplit(finished).query)["interact_ref"][0]


def body_of(finished: str | None) -> Json:
    return {"interact_ref": reference_in(finished)}


def grant_id(asked: Json) -> str:
    last: str = asked["continue"]["uri"].rpartition("/")[2]
    return last


def revoke(instance: Instance, asked: Json) -> None:
    """Ends a grant as the operator does."""
    instance.write(partial(revoke_grant, grant_id=grant_id(asked)))


# Continuation and cancelling, in every state


def undecided(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    return ask(instance, **interact or {}), None


def lapsed(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    asked = ask(instance, **interact or {})
    instance.clock.advance(TIME_TO_DECIDE)
    return asked, None


def approved(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    asked = ask(instance, **interact or {})
    finished = instance.approve(asked["interact"]["redirect"])
    return asked, reference_in(finished) if finished else None


def issued(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    asked, reference = approved(instance, interact)
    instance.clock.advance(WAIT)
    answer = follow(instance.client, asked, {"interact_ref": reference} if reference else None)
    assert "access_token" in answer.json()
    return asked, reference


def denied(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    asked = ask(instance, **interact or {})
    instance.deny(asked["interact"]["redirect"])
    return asked, None


def cancelled(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    asked, reference = approved(instance, interact)
    assert follow(instance.client, asked, method="DELETE").status_code == 204
    return asked, reference


def revoked(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    asked, reference = issued(instance, interact)
    revoke(instance, asked)
    return asked, reference


def given_at_once(instance: Instance, interact: Json | None) -> tuple[Json, str | None]:
    return ask(instance, QUOTE, **interact or {}), None


UNKNOWN = "404 invalid_continuation unknown_continuation"
ISSUED = "401 request_denied already_issued"
DENIED = "401 user_denied owner_denied"
LAPSED = "401 request_denied decision_expired"
TOO_FAST = "400 too_fast None"

# For each state, with `finish` and without: the answer to a poll at once, to a poll after the wait, to the interact_ref
# of the redirect, to another one, and to a cancellation at once.
STATES: list[tuple[Callable[[Instance, Json | None], tuple[Json, str | None]], bool, list[str]]] = [
    (undecided, True, [TOO_FAST, "401 request_denied undecided", "", UNKNOWN, "204"]),
    (undecided, False, [TOO_FAST, "200 wait", "", UNKNOWN, "204"]),
    (lapsed, True, [LAPSED, LAPSED, "", UNKNOWN, "204"]),
    (lapsed, False, [LAPSED, LAPSED, "", UNKNOWN, "204"]),
    (approved, True, ["401 request_denied missing_interact_ref"] * 2 + ["200 token", UNKNOWN, "204"]),
    (approved, False, [TOO_FAST, "200 token", "", UNKNOWN, "204"]),
    (issued, True, [ISSUED, ISSUED, UNKNOWN, UNKNOWN, "204"]),
    (issued, False, [ISSUED, ISSUED, "", UNKNOWN, "204"]),
    (given_at_once, True, [ISSUED, ISSUED, "", UNKNOWN, "204"]),
    (given_at_once, False, [ISSUED, ISSUED, "", UNKNOWN, "204"]),
    (denied, True, [DENIED, DENIED, "", DENIED, "204"]),
    (denied, False, [DENIED, DENIED, "", DENIED, "204"]),
    (cancelled, True, [UNKNOWN] * 5),
    (cancelled, False, [UNKNOWN, UNKNOWN, "", UNKNOWN, UNKNOWN]),
    (revoked, True, [UNKNOWN] * 5),
    (revoked, False, [UNKNOWN, UNKNOWN, "", UNKNOWN, UNKNOWN]),
]
REQUESTS = ("at once", "after the wait", "right", "wrong", "cancel")
BODIES = [None, {}, {"client": "https://shop.example"}]  # existing clients send each of them to poll


def told(answer: httpx2.Response, refused: Refused) -> str:
    """An answer in short: status, code and reason, or status and what it brought."""
    if answer.status_code == 204:
        return "204"
    body = answer.json()
    if answer.status_code == 200:
        return "200 token" if "access_token" in body else "200 wait"
    code = body["error"]["code"]
    error = refused(answer, answer.status_code, code)
    return f"{answer.status_code} {code} {error.get('details', {}).get('reason')}"


@pytest.mark.parametrize(
    ("state", "finishes", "expected"), STATES, ids=lambda value: getattr(value, "__name__", None) or str(value)[:5]
)
@pytest.mark.parametrize("body", BODIES, ids=str)
def test_continuation_in_every_state(
    still: Instance,
    refused: Refused,
    state: Callable[[Instance, Json | None], tuple[Json, str | None]],
    finishes: bool,
    body: Json | None,
    expected: list[str],
) -> None:
    """Each answer comes from a grant of its own, and its grant is asked for with the redirect or to be polled."""
    interact = None if finishes else {"interact": POLLED}
    found: list[str] = []
    for request in REQUESTS if body is None else REQUESTS[:2]:
        asked, reference = state(still, interact)
        still.clock.advance(0 if request in {"at once", "cancel"} else WAIT)
        if request == "right" and reference is None:
            found.append("")
        elif request == "cancel":
            found.append(told(follow(still.client, asked, method="DELETE"), refused))
        else:
            sent = {"right": {"interact_ref": reference}, "wrong": {"interact_ref": "guess"}}.get(request, body)
            found.append(told(follow(still.client, asked, sent), refused))
    assert found == expected[: len(found)]


def test_wait_is_over_at_the_second(still: Instance, refused: Refused) -> None:
    asked = ask(still, interact=POLLED)
    still.clock.advance(WAIT - INSTANT)
    refused(follow(still.client, asked), 400, "too_fast", wait=1)
    still.clock.advance(INSTANT)
    assert follow(still.client, asked).json() == {"continue": asked["continue"]}
    refused(follow(still.client, asked), 400, "too_fast", wait=WAIT)


def test_poll_that_came_too_early_does_not_lengthen_the_wait(still: Instance, refused: Refused) -> None:
    asked = ask(still, interact=POLLED)
    for wait in (WAIT, WAIT - 1, WAIT - 2):
        refused(follow(still.client, asked), 400, "too_fast", wait=wait)
        still.clock.advance(1)
    still.clock.advance(WAIT - 3)
    assert follow(still.client, asked).status_code == 200


def test_time_to_decide_is_over_at_the_second(still: Instance, refused: Refused) -> None:
    in_time, late = ask(still), ask(still)
    still.clock.advance(TIME_TO_DECIDE - INSTANT)
    reference = reference_in(still.approve(in_time["interact"]["redirect"]))
    refused(follow(still.client, late), 401, "request_denied", reason="undecided")
    still.clock.advance(INSTANT)
    for decide in (still.approve, still.deny):
        with pytest.raises(DomainError) as refusal:
            decide(late["interact"]["redirect"])
        assert (refusal.value.status, refusal.value.code) == (400, "invalid_interaction")
    refused(follow(still.client, late), 401, "request_denied", reason="decision_expired")
    assert "access_token" in follow(still.client, in_time, {"interact_ref": reference}).json()


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_continuation_needs_its_token(still: Instance, refused: Refused, method: str) -> None:
    asked = ask(still)
    uri = asked["continue"]["uri"]
    refused(still.client.request(method, uri), 401, "invalid_client", reason="missing_token")
    refused(still.client.request(method, uri, None, "wrong"), 404, "invalid_continuation")
    access_token = still.client.grant(QUOTE)
    refused(still.client.request(method, uri, None, access_token), 404, "invalid_continuation")
    token = asked["continue"]["access_token"]["value"]
    refused(still.client.request(method, "/continue/none", None, token), 404, "invalid_continuation")
    for value in ("GNAP", f"Bearer {token}", token):
        answer = still.client.request(method, uri, headers={"authorization": value})
        refused(answer, 401, "invalid_client", reason="missing_token")


@pytest.mark.parametrize("interact", [POLLED, None])
def test_approval_lapses_when_it_is_not_continued_within_an_hour(
    still: Instance, refused: Refused, interact: Json | None
) -> None:
    asked, in_time = (ask(still, **({"interact": interact} if interact else {})) for _ in range(2))
    late, good = (still.approve(one["interact"]["redirect"]) for one in (asked, in_time))
    still.clock.advance(APPROVAL_SECONDS - 60)
    assert follow(still.client, in_time, body_of(good) if good else None).status_code == 200
    still.clock.advance(60)
    for _ in range(2):
        answer = follow(still.client, asked, body_of(late) if late else None)
        refused(answer, 401, "request_denied", reason="approval_expired")
    with pytest.raises(DomainError) as refusal:
        still.approve(asked["interact"]["redirect"])
    assert refusal.value.code == "wrong_state"
    assert still.client.delete(asked["continue"]["uri"], asked["continue"]["access_token"]["value"]).status_code == 204


# Who asks: signatures, keys and directed identity


@pytest.fixture
def key_client(still: Instance) -> Iterator[Callable[[str], Client]]:
    """Makes clients that are known by their key alone."""
    made: list[Client] = []

    def make(kid: str) -> Client:
        made.append(client_with_key(still, kid))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize("endpoint", ["request", "continue", "cancel", "rotate", "revoke"])
def test_authorization_server_takes_signed_requests_only(
    still: Instance, anonymous: httpx2.Client, key_client: Callable[[str], Client], refused: Refused, endpoint: str
) -> None:
    asked, reference = approved(still, None)
    token = still.client.obtain_grant(QUOTE)["access_token"]
    continuation = (asked["continue"]["uri"], {"interact_ref": reference}, asked["continue"]["access_token"]["value"])
    body = {"client": still.client.wallet_address, "access_token": {"access": [QUOTE]}}
    method, url, sent, value = {
        "request": ("POST", f"{still.base_url}/", body, None),
        "continue": ("POST", *continuation),
        "cancel": ("DELETE", *continuation),
        "rotate": ("POST", token["manage"], {"why": "routine"}, token["value"]),
        "revoke": ("DELETE", token["manage"], {"why": "routine"}, token["value"]),
    }[endpoint]
    unsigned = anonymous.request(method, url, json=sent, headers={"authorization": f"GNAP {value}"} if value else {})
    refused(unsigned, 401, "invalid_client", reason="missing_signature")
    forged = key_client("key-1").request(method, url, sent, value)
    refused(forged, 401, "invalid_client", reason="signature_mismatch")
    unlisted = key_client("key-2").request(method, url, sent, value)
    refused(unlisted, 400 if endpoint == "request" else 401, "invalid_client", reason="unknown_key")
    digest = {"content-digest": content_digest(b"another body")}
    changed = still.client.request(method, url, sent, value, headers=digest)
    refused(changed, 401, "invalid_client", reason="digest_mismatch")
    answer = still.client.request(method, url, sent, value)
    assert answer.status_code == (204 if method == "DELETE" else 200), answer.text


def test_any_key_of_the_client_continues_its_grants(still: Instance, refused: Refused) -> None:
    client = still.new_client("many-keys")
    answer = client.request_grant(spending(still)).json()
    reference = {"interact_ref": reference_in(still.approve(answer["interact"]["redirect"]))}
    client.private_key = generate_private_key()
    client.jwk = jwk_from_public_bytes("key-2", client.private_key.public_key().public_bytes_raw())
    refused(follow(client, answer, reference), 401, "invalid_client", reason="unknown_key")
    still.write(lambda tx: keys.add_key(tx, "many-keys", client.jwk))
    still.write(lambda tx: keys.revoke_key(tx, "many-keys", "key-1"))
    token = follow(client, answer, reference).json()["access_token"]
    assert client.post(token["manage"], None, token["value"]).status_code == 200
    still.write(lambda tx: keys.revoke_key(tx, "many-keys", "key-2"))
    refused(follow(client, answer, method="DELETE"), 401, "invalid_client", reason="unknown_key")
    refused(client.request_grant(QUOTE), 400, "invalid_client", reason="unknown_key")


def test_remote_clients_are_told_apart_by_case() -> None:
    """Another server's paths may tell upper from lower case, and then these are two clients."""
    urls = Urls("http://127.0.0.1:8080")
    small, large = (clients.identify(urls, f"https://pay.example/{name}") for name in ("shop", "SHOP"))
    assert small.identity != large.identity


def as_key(client: Client) -> Json:
    return {"client": {"jwk": msgspec.to_builtins(client.jwk)}}


@pytest.mark.parametrize(("kid", "reason"), [("key-1", "signature_mismatch"), ("key-2", "unknown_key")])
def test_grant_of_a_key_is_for_that_key_alone(
    still: Instance, refused: Refused, key_client: Callable[[str], Client], kid: str, reason: str
) -> None:
    owner, thief = key_client("key-1"), key_client(kid)
    granted = owner.obtain_grant(QUOTE, **as_key(owner))
    token, continuation = granted["access_token"], granted["continue"]["access_token"]["value"]
    stolen = [
        ("GET", "/quotes/none", token["value"]),
        ("POST", token["manage"], token["value"]),
        ("DELETE", token["manage"], token["value"]),
        ("POST", granted["continue"]["uri"], continuation),
        ("DELETE", granted["continue"]["uri"], continuation),
    ]
    for method, url, value in stolen:
        for other in (thief, still.client if kid == "key-1" else thief):
            refused(other.request(method, url, None, value), 401, "invalid_client", reason=reason)
    refused(owner.get("/quotes/none", token["value"]), 404, "not_found")
    assert owner.delete(granted["continue"]["uri"], continuation).status_code == 204


def test_client_that_is_a_key_keeps_its_last_names(
    still: Instance, key_client: Callable[[str], Client], refused: Refused
) -> None:
    client = key_client("name-0")

    def ask(kid: str) -> Json:
        client.jwk = msgspec.structs.replace(client.jwk, kid=kid)
        return client.obtain_grant(INCOMING, client={"jwk": msgspec.to_builtins(client.jwk)})

    first = ask("name-0")
    for number in range(1, 8):
        ask(f"name-{number}")
    client.jwk = msgspec.structs.replace(client.jwk, kid="name-0")
    body = {"walletAddress": still.wallet("bob")}
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


@pytest.mark.parametrize("wanted", ["outgoing-payment", "list-all", "subject", "quote and subject"])
def test_key_cannot_ask_for_consent(
    still: Instance, refused: Refused, key_client: Callable[[str], Client], wanted: str
) -> None:
    client, alice = key_client("key-1"), still.wallet("alice")
    items = {
        "outgoing-payment": [spending(still)],
        "list-all": [{"type": "incoming-payment", "actions": ["list-all"], "identifier": alice}],
        "quote and subject": [QUOTE],
    }.get(wanted, [])
    members: Json = {"subject": subject(still)} if "subject" in wanted else {}
    members |= {} if items else {"access_token": None}
    refused(client.request_grant(*items, **as_key(client), **members), 400, "invalid_client")


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("", "client must be a wallet address"),
        ("shop", "absolute http or https URL"),
        ("ftp://h/shop", "absolute http or https URL"),
        ({}, "exactly one of walletAddress and jwk"),
        ({"walletAddress": "http://h/shop", "jwk": {"kid": "k"}}, "exactly one of walletAddress and jwk"),
        ({"jwk": {}}, "client.jwk: "),
        ({"jwk": None}, "client.jwk: "),
        ({"jwk": {"kid": "k", "x": "A" * 43, "crv": "X25519"}}, "crv is 'X25519'"),
        ({"jwk": {"kid": "k", "x": "A" * 43, "use": "enc"}}, "use is 'enc'"),
        ({"jwk": {"kid": "k", "x": "A" * 43, "d": "A" * 43}}, "private member 'd'"),
    ],
    ids=str,
)
def test_client_that_names_nobody_is_refused(still: Instance, refused: Refused, named: Any, sentence: str) -> None:
    error = refused(still.client.request_grant(QUOTE, client=named), 400, "invalid_client", field="client")
    assert sentence in error["details"]["hint"]


@pytest.fixture
def keys_only(still: Instance) -> Iterator[Client]:
    """A client whose server publishes its keys and no wallet address, as another wallet provider's own address may."""
    private_key = generate_private_key()
    jwk = jwk_from_public_bytes("key-1", private_key.public_key().public_bytes_raw())

    def publish(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/.well-known/pay/jwks.json":
            reply(handler, 200, json.dumps({"keys": [msgspec.to_builtins(jwk)]}).encode())
        else:
            reply(handler, 404, b"{}")

    with serving(publish) as port:
        address = f"http://127.0.0.1:{port}/.well-known/pay"
        client = Client(address, private_key, jwk, still.base_url, still.clock, still.approve)
        yield client
        client.close()


def test_client_needs_a_wallet_address_only_when_an_owner_is_asked(
    still: Instance, refused: Refused, keys_only: Client
) -> None:
    """Other wallet providers offer to interact in every request, and have keys but no wallet address of their own."""
    for interact in (POLLED, None):
        answer = keys_only.request_grant(INCOMING | {"actions": ["read-all"]}, interact=interact)
        assert answer.status_code == 200, answer.text
    for asked in (keys_only.request_grant(spending(still)), keys_only.request_grant(QUOTE, subject=subject(still))):
        refused(asked, 401, "invalid_client", reason="unknown_client")


# What is asked for


def test_two_spellings_of_a_wallet_address_are_one_item(still: Instance) -> None:
    plain = {"type": "incoming-payment", "actions": ["create"], "identifier": still.wallet("bob")}
    spelt = [plain | {"identifier": still.wallet(path)} for path in ("BOB", "%62ob/", "bob?x#y")]
    granted = still.client.obtain_grant(*spelt)["access_token"]
    assert granted["access"] == [plain]
    assert still.client.post("/incoming-payments", {}, granted["value"]).json()["walletAddress"] == plain["identifier"]
    reading = plain | {"actions": ["create", "read"], "identifier": f"{still.wallet('bob')}/"}
    granted = still.client.obtain_grant(plain, reading)["access_token"]
    assert granted["access"] == [plain, plain | {"actions": ["create", "read"]}]
    assert still.client.post("/incoming-payments", {}, granted["value"]).status_code == 201


ALL_ACTIONS = ("create", "complete", "read", "read-all", "list", "list-all", "delete", "*", "CREATE", "")
ACTIONS = {
    "incoming-payment": {"create", "complete", "read", "read-all", "list", "list-all"},
    "outgoing-payment": {"create", "read", "read-all", "list", "list-all"},
    "quote": {"create", "read", "read-all"},
}


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("action", ALL_ACTIONS)
def test_each_type_has_its_actions(still: Instance, refused: Refused, kind: str, action: str) -> None:
    item = {"type": kind, "actions": [action], "identifier": still.wallet("alice")}
    answer = still.client.request_grant(item)
    if action not in ACTIONS[kind]:
        refused(answer, 400, "invalid_request", field="access_token.access[0].actions[0]")
        return
    assert answer.status_code == 200
    needs_consent = kind == "outgoing-payment" or action == "list-all"
    assert answer.json().keys() == {"continue", "interact" if needs_consent else "access_token"}


@pytest.mark.parametrize(
    "members",
    [
        {"capabilities": ["x"]},
        {"access_token": {"label": "mine", "flags": ["bearer"], "access": [QUOTE]}},
        {"access_token": {"access": [QUOTE | {"locations": ["https://elsewhere.example"]}]}},
        {"access_token": {"access": [QUOTE | {"limits": {"debitAmount": "free"}}]}},
        {"access_token": {"access": [INCOMING | {"limits": {}}]}},
        {"interact": POLLED | {"hints": {"ui_locales": ["nb"]}}},
        {"interact": {"start": []}},
    ],
    ids=str,
)
def test_members_that_are_not_known_are_passed_over(still: Instance, members: Json) -> None:
    """They are not echoed either: the answer says what was granted."""
    answer = still.client.request_grant(QUOTE, **members)
    assert answer.status_code == 200, answer.text
    [item] = answer.json()["access_token"]["access"]
    assert item in (QUOTE, INCOMING)


# The subject


@pytest.mark.parametrize("spelling", ["{alice}", "{alice}/", "{base}/ALICE"])
@pytest.mark.parametrize("finishes", [True, False])
def test_subject_is_answered_in_its_plain_form(still: Instance, spelling: str, finishes: bool) -> None:
    named = subject(still, spelling.format(alice=still.wallet("alice"), base=still.base_url))
    members = {} if finishes else {"interact": POLLED}
    asked = still.client.request_grant(access_token=None, subject=named, **members).json()
    finished = still.approve(asked["interact"]["redirect"])
    still.clock.advance(WAIT)
    body = {"interact_ref": reference_in(finished)} if finished else None
    assert follow(still.client, asked, body).json() == {
        "subject": subject(still, still.wallet("alice")),
        "continue": {name: value for name, value in asked["continue"].items() if name != "wait"},
    }
    assert still.client.obtain_grant(QUOTE, subject=named).keys() == {"access_token", "subject", "continue"}


@pytest.mark.parametrize("end", ["denied", "cancelled", "undecided"])
def test_subject_is_not_disclosed_without_consent(still: Instance, refused: Refused, end: str) -> None:
    asked = still.client.request_grant(QUOTE, subject=subject(still), interact=POLLED).json()
    assert asked.keys() == {"interact", "continue"}
    if end == "denied":
        still.deny(asked["interact"]["redirect"])
    if end == "cancelled":
        follow(still.client, asked, method="DELETE")
    still.clock.advance(WAIT)
    answer = follow(still.client, asked)
    assert answer.json().keys() <= {"continue", "error"}


# The end of grants and tokens


def tokens_in_force(instance: Instance, asked: Json) -> int:
    def unit(tx: Transaction) -> int:
        query = "SELECT count(*) FROM access_token WHERE grant_id = ? AND revoked_at IS NULL"
        count: int = tx.execute(query, (grant_id(asked),)).fetchone()[0]
        return count

    return instance.read(unit)


@pytest.mark.parametrize("by", ["client", "operator"])
def test_end_of_a_grant_ends_every_token_at_once(still: Instance, refused: Refused, by: str) -> None:
    alice = still.wallet("alice")
    granted = still.client.obtain_grant(INCOMING | {"identifier": alice}, QUOTE, spending(still))
    tokens = [granted["access_token"]]
    for _ in range(2):
        tokens.append(still.client.post(tokens[-1]["manage"], None, tokens[-1]["value"]).json()["access_token"])
    assert tokens_in_force(still, granted) == 1
    assert still.client.get("/outgoing-payment-grant", tokens[-1]["value"]).status_code == 200
    if by == "client":
        assert follow(still.client, granted, method="DELETE").status_code == 204
    else:
        revoke(still, granted)
    assert tokens_in_force(still, granted) == 0
    for token in tokens:
        for url in ("/outgoing-payment-grant", "/quotes/none", "/incoming-payments/none"):
            refused(still.client.get(url, token["value"]), 401, "invalid_token", reason="revoked_token")
        refused(still.client.post(token["manage"], None, token["value"]), 404, "invalid_rotation")
        assert still.client.delete(token["manage"], token["value"]).status_code == 204
    refused(follow(still.client, granted, method="DELETE"), 404, "invalid_continuation")


def test_end_of_a_grant_leaves_the_clients_other_grants(still: Instance, refused: Refused) -> None:
    one, other = still.client.obtain_grant(QUOTE), still.client.obtain_grant(QUOTE)
    follow(still.client, one, method="DELETE")
    refused(still.client.get("/quotes/none", other["access_token"]["value"]), 404, "not_found")


def test_rotated_token_has_its_whole_time_and_the_old_one_none(still: Instance, refused: Refused) -> None:
    old = still.client.obtain_grant(QUOTE)["access_token"]
    still.clock.advance(TOKEN_LIFETIME - 1)
    new = still.client.post(old["manage"], None, old["value"]).json()["access_token"]
    assert new["expires_in"] == TOKEN_LIFETIME
    refused(still.client.get("/quotes/none", old["value"]), 401, "invalid_token", reason="revoked_token")
    still.clock.advance(TOKEN_LIFETIME - INSTANT)
    refused(still.client.get("/quotes/none", new["value"]), 404, "not_found")
    still.clock.advance(INSTANT)
    refused(still.client.get("/quotes/none", new["value"]), 401, "invalid_token", reason="expired_token")


# For each state of a token: the answers to its use, its rotation, its revocation.
TOKENS = [
    ("fresh", ["404 not_found None", "200 token", "204"]),
    ("expired", ["401 invalid_token expired_token", "200 token", "204"]),
    ("rotated", ["401 invalid_token revoked_token", "404 invalid_rotation None", "204"]),
    ("revoked", ["401 invalid_token revoked_token", "404 invalid_rotation None", "204"]),
    ("of a revoked grant", ["401 invalid_token revoked_token", "404 invalid_rotation None", "204"]),
    ("unknown", ["401 invalid_token unknown_token", "404 invalid_rotation None", "404 not_found None"]),
]


@pytest.mark.parametrize(("state", "expected"), TOKENS, ids=[state for state, _ in TOKENS])
def test_token_in_every_state(still: Instance, refused: Refused, state: str, expected: list[str]) -> None:
    found = []
    for request in ("use", "rotate", "revoke"):
        granted = still.client.obtain_grant(QUOTE)
        token = granted["access_token"]
        match state:
            case "expired":
                still.clock.advance(TOKEN_LIFETIME)
            case "rotated":
                still.client.post(token["manage"], None, token["value"])
            case "revoked":
                still.client.delete(token["manage"], token["value"])
            case "of a revoked grant":
                revoke(still, granted)
            case "unknown":
                token = {"manage": f"{still.base_url}/token/none", "value": "none"}
        method, url = {"use": ("GET", "/quotes/none"), "rotate": ("POST", token["manage"])}.get(
            request, ("DELETE", token["manage"])
        )
        found.append(told(still.client.request(method, url, None, token["value"]), refused))
    assert found == expected


# States move one way

STEPS = ("approve", "deny", "continue", "guess", "cancel", "revoke", "lapse")


def next_state(state: str, step: str, is_late: bool) -> str:
    """What the step makes of a grant, by the book."""
    match state, step:
        case ("pending", "approve") if not is_late:
            return "approved"
        case ("pending", "deny") if not is_late:
            return "denied"
        case ("approved", "continue"):
            return "issued"
        case ("pending" | "approved" | "issued", "cancel" | "revoke"):
            return "revoked"
    return state


class Walk:
    """A grant that consent was asked for, and what can happen to it, on a database in memory."""

    def __init__(self, tx: Transaction, finishes: bool) -> None:
        self.tx = tx
        self.now = 1_700_000_000 * SECOND
        self.settings = Settings(base_url="http://h", continue_wait=0)
        finish = {"method": "redirect", "uri": "https://shop.example/done", "nonce": "n"}
        item = {"type": "outgoing-payment", "actions": ["read"], "identifier": "http://h/alice"}
        request = {
            "client": "https://shop.example",
            "access_token": {"access": [item]},
            "interact": {"start": ["redirect"]} | ({"finish": finish} if finishes else {}),
        }
        asked = msgspec.convert(request, GrantRequest)
        work = self.work()
        answer = request_grant(work, asked, clients.identify(work.urls, asked.client), None)
        self.id = answer.continue_.uri.rpartition("/")[2]
        self.token = answer.continue_.access_token.value
        self.finishes = finishes
        self.reference: str | None = None

    def work(self) -> Work:
        return work_at(self.tx, self.now, self.settings)

    def take(self, step: str) -> None:
        """Does it, whether or not it is refused."""
        if step == "lapse":
            self.now += self.settings.interaction_lifetime * SECOND
            return
        try:
            self._take(step)
        except DomainError:
            return

    def _take(self, step: str) -> None:
        match step:
            case "approve" | "deny":
                redirect = grants.decide(self.work(), self.id, approve=step == "approve").redirect
                if redirect and step == "approve":
                    self.reference = reference_in(redirect)
            case "cancel":
                cancel_grant(self.work(), self.id, self.token)
            case "revoke":
                revoke_grant(self.work(), self.id)
            case _:
                reference = "guess" if step == "guess" else self.reference
                continue_grant(self.work(), self.id, self.token, reference)

    def state(self) -> tuple[str, int]:
        """The grant's state and how many of its tokens are valid."""
        [state] = self.tx.execute('SELECT state FROM "grant" WHERE id = ?', (self.id,)).fetchone()
        query = "SELECT count(*) FROM access_token WHERE grant_id = ? AND revoked_at IS NULL"
        return state, self.tx.execute(query, (self.id,)).fetchone()[0]


@pytest.mark.parametrize("finishes", [True, False])
def test_states_move_one_way_whatever_happens(finishes: bool) -> None:
    """Every sequence of three steps, repeated, so that what ended is tried again."""
    tx = connect_writer(":memory:")
    wallets.create_wallet(work_at(tx, 1), "alice", "USD", 2, None, None)
    for steps in product(STEPS, repeat=3):
        walk, expected, is_late = Walk(tx, finishes), "pending", False
        for step in steps * 2:
            walk.take(step)
            is_late = is_late or step == "lapse"
            expected = next_state(expected, step, is_late)
            assert walk.state() == (expected, 1 if expected == "issued" else 0), steps
    tx.close()
