"""The rules of grants over HTTP: requests, continuation in every state, cancelling, tokens and their time.

Consent with its redirects is in tests/people/test_consent.py, what may be asked for is in
tests/core/grants/test_requests.py, and what a grant then permits in tests/core/http/test_authorize_access.py.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from itertools import product
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest

from payres.core.grants import clients
from payres.core.grants.tokens import revoke_grant
from payres.core.protocol.errors import DomainError
from payres.core.protocol.limits import APPROVAL_SECONDS
from payres.core.protocol.urls import Urls
from payres.core.signatures.fields import content_digest
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.core.store.work import Transaction
from payres.testing.clock import MovableClock
from tests.helpers import Json, client_with_key, last_segment, refusal
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance
from tests.signing_client import Client

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
        patch.setattr(Instance, "clock_type", partial(MovableClock, frozen=True))
        with run_instance(tmp_path_factory.mktemp("still") / "payres.db", **settings) as instance:
            yield instance


def spending(instance: Instance) -> Json:
    return {"type": "outgoing-payment", "actions": ["create"], "identifier": instance.wallet("alice")}


def subject(instance: Instance, wallet_address: str | None = None) -> Json:
    return {"sub_ids": [{"id": wallet_address or instance.wallet("alice"), "format": "uri"}]}


class Asked:
    """A grant that was asked for, and what can happen to it; `reference` is the interact_ref of its approval."""

    def __init__(self, instance: Instance, *items: Json, client: Client | None = None, **members: Any) -> None:
        self.instance, self.client, self.reference = instance, client or instance.client, ""
        answer = self.client.request_grant(*(items or [spending(instance)]), **members)
        assert answer.status_code == 200, answer.text
        self.answer: Json = answer.json()
        self.id = last_segment(self.answer["continue"]["uri"])
        self.token: str = self.answer["continue"]["access_token"]["value"]

    def follow(self, body: Json | None = None, method: str = "POST") -> httpx2.Response:
        """A poll, a continuation or a cancellation."""
        return self.client.request(method, self.answer["continue"]["uri"], body, self.token)

    def resume(self) -> httpx2.Response:
        """A continuation with the interact_ref, or a poll of a client without a redirect."""
        return self.follow({"interact_ref": self.reference} if self.reference else None)

    def take(self, step: str) -> None:
        """Does it, whether or not it is refused."""
        match step:
            case "approve":
                finished = self.instance.approve(self.answer["interact"]["redirect"])
                self.reference = parse_qs(urlsplit(finished).query)["interact_ref"][0] if finished else ""
            case "deny":
                self.instance.deny(self.answer["interact"]["redirect"])
            case "continue":
                self.instance.clock.advance(WAIT)
                self.resume()
            case "guess":
                self.follow({"interact_ref": "guess"})
            case "cancel":
                self.follow(method="DELETE")
            case "revoke":  # as the operator does
                self.instance.write(partial(revoke_grant, grant_id=self.id))
            case "lapse":
                self.instance.clock.advance(APPROVAL_SECONDS)

    def state(self) -> tuple[str, int]:
        """The grant's state, and how many of its tokens are valid."""

        def unit(tx: Transaction) -> tuple[str, int]:
            tokens = "SELECT count(*) FROM access_token WHERE grant_id = g.id AND revoked_at IS NULL"
            state, valid = tx.execute(f'SELECT state, ({tokens}) FROM "grant" g WHERE id = ?', (self.id,)).fetchone()
            return state, valid

        return self.instance.read(unit)


# Continuation and cancelling, in every state

UNKNOWN = "404 invalid_continuation unknown_continuation"
ISSUED = "401 request_denied already_issued"
DENIED = "401 user_denied owner_denied"
LATE = "401 request_denied decision_expired"
REUSED = "401 invalid_client signature_reused"  # the same request again, with the same signature
LAPSED = "401 request_denied approval_expired"
TOO_FAST = "400 too_fast None"

# For the steps that lead to each state, with `finish` and without: the answer to a poll at once, to a poll after the
# wait, to the interact_ref of the redirect, to another one, and to a cancellation at once.
STATES = [
    ("", True, [TOO_FAST, "401 request_denied undecided", "", UNKNOWN, "204"]),
    ("", False, [TOO_FAST, "200 wait", "", UNKNOWN, "204"]),
    ("lapse", True, [LATE, LATE, "", UNKNOWN, "204"]),
    ("lapse", False, [LATE, LATE, "", UNKNOWN, "204"]),
    ("approve", True, ["401 request_denied missing_interact_ref"] * 2 + ["200 token", UNKNOWN, "204"]),
    ("approve", False, [TOO_FAST, "200 token", "", UNKNOWN, "204"]),
    ("approve lapse", True, [LAPSED, LAPSED, LAPSED, LAPSED, "204"]),
    ("approve lapse", False, [LAPSED, LAPSED, "", LAPSED, "204"]),
    ("approve continue", True, [ISSUED, ISSUED, "200 token", UNKNOWN, "204"]),
    ("approve continue", False, [REUSED, "200 token", "", UNKNOWN, "204"]),
    ("given at once", True, [ISSUED, ISSUED, "", UNKNOWN, "204"]),
    ("given at once", False, [ISSUED, ISSUED, "", UNKNOWN, "204"]),
    ("deny", True, [DENIED, DENIED, "", DENIED, "204"]),
    ("deny", False, [DENIED, DENIED, "", DENIED, "204"]),
    ("approve cancel", True, [UNKNOWN] * 5),
    ("approve cancel", False, [UNKNOWN, UNKNOWN, "", UNKNOWN, UNKNOWN]),
    ("approve continue revoke", True, [UNKNOWN] * 5),
    ("approve continue revoke", False, [UNKNOWN, UNKNOWN, "", UNKNOWN, UNKNOWN]),
]


def told(answer: httpx2.Response) -> str:
    """An answer in short: status, code and reason, or status and what it brought."""
    if answer.status_code == 204:
        return "204"
    body = answer.json()
    if answer.status_code == 200:
        return "200 token" if "access_token" in body else "200 wait"
    error = refusal(answer, answer.status_code, body["error"]["code"])
    return f"{answer.status_code} {error['code']} {error['details'].get('reason')}"


@pytest.mark.parametrize(("steps", "finishes", "expected"), STATES)
def test_continuation_in_every_state(still: Instance, steps: str, finishes: bool, expected: list[str]) -> None:
    """Each answer comes from a grant of its own, and its grant is asked for with the redirect or to be polled."""
    interact: Json = {} if finishes else {"interact": POLLED}
    found: list[str] = []
    for request in ("at once", "after the wait", "right", "wrong", "cancel"):
        asked = Asked(still, *([QUOTE] if steps == "given at once" else []), **interact)
        for step in steps.split():
            asked.take(step)
        still.clock.advance(0 if request in {"at once", "cancel"} else WAIT)
        match request:
            case "right":
                found.append(told(asked.resume()) if asked.reference else "")
            case "wrong":
                found.append(told(asked.follow({"interact_ref": "guess"})))
            case "cancel":
                found.append(told(asked.follow(method="DELETE")))
            case _:
                found.append(told(asked.follow()))
    assert found == expected


def next_state(state: str, step: str, is_late: bool) -> str:
    """What the step makes of a grant, by the book."""
    match state, step:
        case ("pending", "approve") if not is_late:
            return "approved"
        case ("pending", "deny") if not is_late:
            return "denied"
        case ("approved", "continue") if not is_late:
            return "issued"
        case ("pending" | "approved" | "issued", "cancel" | "revoke"):
            return "revoked"
    return state


@pytest.mark.parametrize("interact", [{}, {"interact": POLLED}], ids=str)
def test_states_move_one_way_whatever_happens(still: Instance, interact: Json) -> None:
    """Every sequence of two steps, repeated, so that what ended is tried again."""
    for steps in product(("approve", "deny", "continue", "guess", "cancel", "revoke", "lapse"), repeat=2):
        asked, expected, is_late = Asked(still, **interact), "pending", False
        for step in steps * 2:
            with suppress(DomainError):
                asked.take(step)
            is_late = is_late or step == "lapse"
            expected = next_state(expected, step, is_late)
            assert asked.state() == (expected, 1 if expected == "issued" else 0), steps


def test_wait_is_over_at_the_second_and_no_poll_lengthens_it(still: Instance) -> None:
    asked = Asked(still, interact=POLLED)
    for wait in (WAIT, WAIT - 1, WAIT - 2):
        refusal(asked.follow(), 400, "too_fast", wait=wait)
        still.clock.advance(1)
    still.clock.advance(WAIT - 3 - INSTANT)
    refusal(asked.follow(), 400, "too_fast", wait=1)
    still.clock.advance(INSTANT)
    assert asked.follow().json() == {"continue": asked.answer["continue"]}
    refusal(asked.follow(), 400, "too_fast", wait=WAIT)


def test_time_to_decide_is_over_at_the_second(still: Instance) -> None:
    in_time, late = Asked(still), Asked(still)
    still.clock.advance(TIME_TO_DECIDE - INSTANT)
    in_time.take("approve")
    assert told(late.follow()) == "401 request_denied undecided"
    still.clock.advance(INSTANT)
    for decision in ("approve", "deny"):
        with pytest.raises(DomainError) as caught:
            late.take(decision)
        assert (caught.value.status, caught.value.code) == (400, "invalid_interaction")
    assert told(late.follow()) == LATE
    assert told(in_time.resume()) == "200 token"


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
    still: Instance, anonymous: httpx2.Client, key_client: Callable[[str], Client], endpoint: str
) -> None:
    asked = Asked(still)
    asked.take("approve")
    token = still.client.obtain_grant(QUOTE)["access_token"]
    continuation = (asked.answer["continue"]["uri"], {"interact_ref": asked.reference}, asked.token)
    body = {"client": still.client.wallet_address, "access_token": {"access": [QUOTE]}}
    method, url, sent, value = {
        "request": ("POST", f"{still.base_url}/", body, None),
        "continue": ("POST", *continuation),
        "cancel": ("DELETE", *continuation),
        "rotate": ("POST", token["manage"], {"why": "routine"}, token["value"]),
        "revoke": ("DELETE", token["manage"], {"why": "routine"}, token["value"]),
    }[endpoint]
    unsigned = anonymous.request(method, url, json=sent, headers={"authorization": f"GNAP {value}"} if value else {})
    refusal(unsigned, 401, "invalid_client", reason="missing_signature")
    forged = key_client("key-1").request(method, url, sent, value)
    refusal(forged, 401, "invalid_client", reason="signature_mismatch")
    unlisted = key_client("key-2").request(method, url, sent, value)
    refusal(unlisted, 400 if endpoint == "request" else 401, "invalid_client", reason="unknown_key")
    digest = {"content-digest": content_digest(b"another body")}
    changed = still.client.request(method, url, sent, value, headers=digest)
    refusal(changed, 401, "invalid_client", reason="digest_mismatch")
    answer = still.client.request(method, url, sent, value)
    assert answer.status_code == (204 if method == "DELETE" else 200), answer.text


def test_remote_clients_are_told_apart_by_case() -> None:
    """Another server's paths may tell upper from lower case, and then these are two clients."""
    urls = Urls("http://127.0.0.1:8080")
    small, large = (clients.identify(urls, f"https://pay.example/{name}") for name in ("shop", "SHOP"))
    assert small.identity != large.identity


@pytest.mark.parametrize(("kid", "reason"), [("key-1", "signature_mismatch"), ("key-2", "unknown_key")])
def test_grant_of_a_key_is_for_that_key_alone(
    still: Instance, key_client: Callable[[str], Client], kid: str, reason: str
) -> None:
    owner, thief = key_client("key-1"), key_client(kid)
    granted = owner.obtain_grant(QUOTE)
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
            refusal(other.request(method, url, None, value), 401, "invalid_client", reason=reason)
    refusal(owner.get("/quotes/none", token["value"]), 404, "not_found")
    assert owner.delete(granted["continue"]["uri"], continuation).status_code == 204


def test_client_that_is_a_key_keeps_its_last_names(still: Instance, key_client: Callable[[str], Client]) -> None:
    client = key_client("name-0")

    def ask(kid: str) -> Json:
        client.jwk = msgspec.structs.replace(client.jwk, kid=kid)
        return client.obtain_grant(INCOMING)

    first = ask("name-0")
    for number in range(1, 8):
        ask(f"name-{number}")
    client.jwk = msgspec.structs.replace(client.jwk, kid="name-0")
    body = {"walletAddress": still.wallet("bob")}
    assert client.post("/incoming-payments", body, first["access_token"]["value"]).status_code == 201
    rotated = client.post(first["access_token"]["manage"]).json()["access_token"]
    ask("name-8")
    for kid in ("name-0", "name-9"):  # one that was forgotten, and one that was never presented
        client.jwk = msgspec.structs.replace(client.jwk, kid=kid)
        answer = client.post("/incoming-payments", body, rotated["value"])
        refusal(answer, 401, "invalid_client", reason="unknown_key")
    ask("name-0")
    assert client.post("/incoming-payments", body, rotated["value"]).status_code == 201


@pytest.mark.parametrize(
    ("items", "members"),
    [
        ([{"type": "outgoing-payment", "actions": ["create"]}], {}),
        ([{"type": "incoming-payment", "actions": ["list-all"]}], {}),
        ([], {"access_token": None}),
        ([QUOTE], {}),
    ],
)
def test_key_cannot_ask_for_consent(
    still: Instance, key_client: Callable[[str], Client], items: list[Json], members: Json
) -> None:
    client = key_client("key-1")
    if items in ([], [QUOTE]):
        members = members | {"subject": subject(still)}
    else:
        items = [item | {"identifier": still.wallet("alice")} for item in items]
    refusal(client.request_grant(*items, **members), 400, "invalid_client")


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
def test_client_that_names_nobody_is_refused(still: Instance, named: Any, sentence: str) -> None:
    error = refusal(still.client.request_grant(QUOTE, client=named), 400, "invalid_client", field="client")
    assert sentence in error["details"]["hint"]


def test_client_needs_a_wallet_address_only_when_an_owner_is_asked(still: Instance) -> None:
    """Other wallet providers offer to interact in every request, and have keys but no wallet address of their own."""
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
        for interact in (POLLED, None):
            answer = client.request_grant(INCOMING | {"actions": ["read-all"]}, interact=interact)
            assert answer.status_code == 200, answer.text
        for asked in (client.request_grant(spending(still)), client.request_grant(QUOTE, subject=subject(still))):
            refusal(asked, 401, "invalid_client", reason="unknown_client")
        client.close()


# The subject


@pytest.mark.parametrize("spelling", ["{alice}", "{alice}/", "{base}/ALICE"])
@pytest.mark.parametrize("interact", [{}, {"interact": POLLED}], ids=str)
def test_subject_is_answered_in_its_plain_form(still: Instance, spelling: str, interact: Json) -> None:
    named = subject(still, spelling.format(alice=still.wallet("alice"), base=still.base_url))
    asked = Asked(still, access_token=None, subject=named, **interact)
    asked.take("approve")
    still.clock.advance(WAIT)
    assert asked.resume().json() == {
        "subject": subject(still, still.wallet("alice")),
        "continue": {name: value for name, value in asked.answer["continue"].items() if name != "wait"},
    }
    assert still.client.obtain_grant(QUOTE, subject=named).keys() == {"access_token", "subject", "continue"}


@pytest.mark.parametrize("end", ["deny", "cancel", ""])
def test_subject_is_not_disclosed_without_consent(still: Instance, end: str) -> None:
    asked = Asked(still, QUOTE, subject=subject(still), interact=POLLED)
    assert asked.answer.keys() == {"interact", "continue"}
    asked.take(end)
    still.clock.advance(WAIT)
    assert asked.follow().json().keys() <= {"continue", "error"}


# The end of grants and tokens


@pytest.mark.parametrize("by", ["cancel", "revoke"])
def test_end_of_a_grant_ends_every_token_at_once_and_no_other_grant(still: Instance, by: str) -> None:
    asked, other = Asked(still, INCOMING, QUOTE, spending(still)), still.client.grant(QUOTE)
    visitor = still.new_client(f"visitor-{by}")
    asked.take("approve")
    tokens = [asked.resume().json()["access_token"]]
    for _ in range(2):
        tokens.append(still.client.post(tokens[-1]["manage"], None, tokens[-1]["value"]).json()["access_token"])
    assert asked.state() == ("issued", 1)
    assert still.client.get("/outgoing-payment-grant", tokens[-1]["value"]).status_code == 200
    asked.take(by)
    assert asked.state() == ("revoked", 0)
    for token in tokens:
        for url in ("/outgoing-payment-grant", "/quotes/none", "/incoming-payments/none"):
            refusal(still.client.get(url, token["value"]), 401, "invalid_token", reason="revoked_token")
        refusal(still.client.post("/quotes", {}, token["value"]), 401, "invalid_token", reason="revoked_token")
        refusal(
            still.client.post("/outgoing-payments", {}, token["value"]), 403, "limit_exceeded", reason="revoked_grant"
        )
        # Who cannot sign learns nothing of the grant.
        refusal(visitor.post("/outgoing-payments", {}, token["value"]), 401, "invalid_client")
        refusal(still.client.post(token["manage"], None, token["value"]), 404, "invalid_rotation")
        assert still.client.delete(token["manage"], token["value"]).status_code == 204
    refusal(still.client.get("/quotes/none", other), 404, "not_found")


def test_rotated_token_has_its_whole_time(still: Instance) -> None:
    old = still.client.obtain_grant(QUOTE)["access_token"]
    still.clock.advance(TOKEN_LIFETIME - 1)
    new = still.client.post(old["manage"], None, old["value"]).json()["access_token"]
    assert new["expires_in"] == TOKEN_LIFETIME
    ended = refusal(still.client.get("/quotes/none", old["value"]), 401, "invalid_token", reason="revoked_token")
    assert "The access token was rotated" in ended["details"]["hint"]
    still.clock.advance(TOKEN_LIFETIME - INSTANT)
    refusal(still.client.get("/quotes/none", new["value"]), 404, "not_found")
    still.clock.advance(INSTANT)
    refusal(still.client.get("/quotes/none", new["value"]), 401, "invalid_token", reason="expired_token")
