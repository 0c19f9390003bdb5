"""Rate limits over HTTP; the addresses are those named by a proxy on this machine."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest

from payres.core.http.admission import RateLimits
from payres.core.http.observation import OBSERVATION, Observation
from payres.core.process.rate_limiter import RateLimiter
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SECOND
from payres.core.protocol.limits import BURST_SECONDS
from payres.html.limits import MAX_FORM_FIELDS
from payres.testing.clock import MovableClock
from tests.helpers import Json, client_with_key, usd
from tests.instance import Instance, run_instance
from tests.interledger.test_part import add_peer
from tests.signing_client import Client

FROM_A = {"x-forwarded-for": "203.0.113.1"}
FROM_B = {"x-forwarded-for": "203.0.113.2"}
BURST = 2 * BURST_SECONDS
ACCESS = {"type": "incoming-payment", "actions": ["create", "list"]}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("limited")
    with run_instance(folder / "payres.db") as instance:
        yield instance


@pytest.fixture
def still(limited: Instance, monkeypatch: pytest.MonkeyPatch) -> MovableClock:
    """A clock of the limits alone, which stands still."""
    clock = MovableClock(1_800_000_000 * SECOND, frozen=True)
    settings = Settings(rate_limit_per_client=2, rate_limit_per_address=2, rate_limit_unauthenticated=2)
    limits = RateLimits(settings, clock)
    for name, limiter in vars(limits).items():
        monkeypatch.setattr(limited.context.rate_limits, name, limiter)
    return clock


def check_too_many(answer: httpx2.Response) -> None:
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    error = answer.json()["error"]
    assert (error["code"], error.keys()) == ("too_many_requests", {"code", "description", "details"})


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_consent_page_of_an_address_that_asks_too_often_is_a_page(
    limited: Instance, anonymous: httpx2.Client, still: MovableClock, method: str
) -> None:
    page = f"{limited.base_url}/interact/some/nonce"
    for _ in range(BURST):
        assert anonymous.request(method, page, headers=FROM_A).status_code in {404, 415}
    answer = anonymous.request(method, page, headers=FROM_A)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<h1>Too many attempts</h1>" in answer.text
    assert "Wait as Retry-After says" not in answer.text, "people see no headers"
    assert "content-security-policy" in answer.headers


def test_address_may_ask_so_often_and_again_later(
    limited: Instance, anonymous: httpx2.Client, still: MovableClock
) -> None:
    alice = limited.wallet("alice")
    assert [anonymous.get(alice, headers=FROM_A).status_code for _ in range(BURST)] == [200] * BURST
    refusal = anonymous.get(alice, headers=FROM_A | {"origin": "https://app.example"})
    check_too_many(refusal)
    assert refusal.headers["access-control-allow-origin"] == "*"
    assert anonymous.get(alice, headers=FROM_B).status_code == 200
    still.advance(0.5)
    assert anonymous.get(alice, headers=FROM_A).status_code == 200
    check_too_many(anonymous.get(alice, headers=FROM_A))


@pytest.fixture
def counting_guesses(limited: Instance, still: MovableClock) -> None:
    """Only what proves nothing is counted for its address."""
    limited.context.rate_limits.addresses = RateLimiter(0, still)


@pytest.mark.usefixtures("counting_guesses")
@pytest.mark.parametrize(
    ("method", "path", "headers", "form", "status"),
    [
        ("GET", "/nobody", {}, None, 404),
        ("GET", "/interact/1/2", {}, None, 404),
        ("GET", "/incoming-payments?wallet-address=x", {}, None, 401),
        ("POST", "/ilp", {"authorization": "Bearer guess"}, None, 401),
        ("GET", "/incoming-payments", {"accept": "text/html"}, None, 406),
        ("POST", "/interact/1/2", {}, {f"f{number}": "" for number in range(MAX_FORM_FIELDS + 1)}, 400),
    ],
)
def test_address_that_guesses_is_refused_whatever_it_asks(
    limited: Instance, anonymous: httpx2.Client, method: str, path: str, headers: Json, form: Json | None, status: int
) -> None:
    for _ in range(BURST):
        answer = anonymous.request(method, f"{limited.base_url}{path}", data=form, headers=FROM_A | headers)
        assert answer.status_code == status
    check_too_many(anonymous.get(limited.wallet("alice"), headers=FROM_A))
    assert anonymous.get(limited.wallet("alice"), headers=FROM_B).status_code == 200


@pytest.mark.usefixtures("counting_guesses")
@pytest.mark.parametrize(
    "says", ["unknown", "", "127.0.0.1", "::1", "_hidden", "203.0.113.1:x", "203.0.113.1 203.0.113.2"]
)
def test_address_that_cannot_be_read_is_no_way_around_the_limits(
    limited: Instance, anonymous: httpx2.Client, says: str
) -> None:
    nobody = f"{limited.base_url}/nobody"
    for number in range(BURST):
        other = {"x-forwarded-for": f"unknown{number}" if number % 2 else says}
        assert anonymous.get(nobody, headers=other).status_code == 404
    check_too_many(anonymous.get(nobody, headers={"x-forwarded-for": says}))
    assert anonymous.get(nobody, headers=FROM_B).status_code == 404
    assert anonymous.get(nobody).status_code == 404, "the proxy itself is not one of them"


@pytest.mark.parametrize(("is_proven", "refused"), [(True, False), (False, True)])
@pytest.mark.parametrize("status", [400, 401, 404, 406, 431])
def test_request_counts_as_guessing_unless_it_has_proven_who_sent_it(
    limited: Instance, still: MovableClock, is_proven: bool, refused: bool, status: int
) -> None:
    limits = limited.context.rate_limits
    headers = [(b"signature", b"x"), (b"authorization", b"x")]
    scope: dict[str, Any] = {"type": "http", "client": ("203.0.113.1", 1), "headers": headers, "path": "/quotes"}
    scope[OBSERVATION] = Observation()
    if is_proven:
        limits.prove(scope)
    for _ in range(BURST):
        limits.count_failure(scope, status)
    assert (limits.unauthenticated.wait("203.0.113.1") > 0) == refused


@pytest.fixture
def guessed(limited: Instance, still: MovableClock) -> None:
    """So much was guessed from the address that no more is taken from it."""
    limits = limited.context.rate_limits
    limits.clients = limits.addresses = RateLimiter(0, still)
    for _ in range(BURST):
        limits.unauthenticated.take("203.0.113.1")


@pytest.mark.usefixtures("guessed")
def test_signed_request_is_not_refused_for_its_address(limited: Instance, anonymous: httpx2.Client) -> None:
    client, item = limited.client, {"type": "incoming-payment", "actions": ["create", "read"]}
    check_too_many(anonymous.get(limited.wallet("alice"), headers=FROM_A))
    asked = {"client": client.wallet_address, "access_token": {"access": [item]}}
    granted = client.request("POST", "/", asked, headers=FROM_A).json()
    token, manage = granted["access_token"]["value"], granted["access_token"]["manage"]
    body = {"walletAddress": limited.wallet("bob")}
    created = client.request("POST", "/incoming-payments", body, token, FROM_A)
    assert created.status_code == 201
    assert client.request("GET", created.json()["id"], token=token, headers=FROM_A).status_code == 200
    missing = [client.request("GET", "/quotes/1", token=token, headers=FROM_A).status_code for _ in range(2)]
    assert missing == [403] * 2
    rotated = client.request("POST", manage, token=token, headers=FROM_A).json()["access_token"]["value"]
    assert client.request("GET", created.json()["id"], token=token, headers=FROM_A).status_code == 401, "it has ended"
    assert client.request("GET", created.json()["id"], token=rotated, headers=FROM_A).status_code == 200
    follow_up = granted["continue"]
    ended = client.request("DELETE", follow_up["uri"], token=follow_up["access_token"]["value"], headers=FROM_A)
    assert ended.status_code == 204


@pytest.mark.usefixtures("guessed")
def test_request_that_only_looks_signed_is_refused_for_its_address(limited: Instance, anonymous: httpx2.Client) -> None:
    item = {"type": "incoming-payment", "actions": ["create", "read"]}
    token, other = limited.client.grant(item), limited.new_client("other-shop")
    url = limited.client.create_incoming_payment(limited.wallet("bob"))["id"]
    asked = {"client": limited.client.wallet_address, "access_token": {"access": [item]}}
    looks = FROM_A | {"signature": "sig1=:AA==:", "authorization": "GNAP guess"}
    for answer in (
        other.request("GET", url, token=token, headers=FROM_A),
        other.request("POST", "/", asked, headers=FROM_A),
        limited.client.request("GET", url, token="guess", headers=FROM_A),
        limited.client.request("GET", url, headers=FROM_A),
        limited.client.request("GET", "/nothing/here", token=token, headers=FROM_A),
        limited.client.request("GET", limited.wallet("alice"), token=token, headers=FROM_A),
        limited.client.request("OPTIONS", "/", token=token, headers=FROM_A),
        anonymous.get(url, headers=looks),
    ):
        check_too_many(answer)
    assert anonymous.get(f"{limited.base_url}/interact/1/2", headers=looks).status_code == 429
    assert limited.client.request("GET", url, token=token, headers=FROM_A).status_code == 200


@pytest.mark.usefixtures("guessed")
def test_packet_of_a_known_peer_is_not_refused_for_its_address(limited: Instance, anonymous: httpx2.Client) -> None:
    token = add_peer(limited, "known")
    octets = FROM_A | {"content-type": "application/octet-stream"}

    def post(authorization: str) -> httpx2.Response:
        headers = octets | {"authorization": authorization}
        return anonymous.post(f"{limited.base_url}/ilp", content=b"no packet", headers=headers)

    for _ in range(2 * BURST):
        assert post(f"Bearer {token}").status_code in {200, 400}
    check_too_many(post("Bearer guess"))
    check_too_many(post(""))


def test_asking_for_grants_counts_as_guessing(limited: Instance, still: MovableClock) -> None:
    item = {"type": "quote", "actions": ["read"]}
    limited.context.rate_limits.clients = limited.context.rate_limits.addresses  # which counts no client here
    body = {"client": limited.client.wallet_address, "access_token": {"access": [item]}}
    answers = [limited.client.request("POST", "/", body, headers=FROM_A).status_code for _ in range(BURST + 1)]
    assert answers == [200] * BURST + [429]


@pytest.fixture
def strange_client(limited: Instance) -> Iterator[Client]:
    """A client that nobody vouches for: it is known by its key alone."""
    with closing(client_with_key(limited)) as client:
        yield client


def test_what_an_unauthenticated_client_creates_counts_for_its_address(
    limited: Instance, still: MovableClock, strange_client: Client
) -> None:
    limited.context.rate_limits.clients = limited.context.rate_limits.addresses = RateLimiter(0, still)
    body = {"walletAddress": limited.wallet("bob")}

    def create(client: Client, token: str, headers: dict[str, str]) -> int:
        return client.request("POST", "/incoming-payments", body, token, headers).status_code

    known, strange = limited.client.grant(ACCESS), strange_client.grant(ACCESS)
    path = f"/incoming-payments?wallet-address={limited.wallet('bob')}"
    for client, token in ((limited.client, known), (strange_client, strange)):
        listed = {client.request("GET", path, token=token, headers=FROM_A).status_code for _ in range(2 * BURST)}
        assert listed == {200}, "who reads is not counted"
    assert {create(limited.client, known, FROM_A) for _ in range(2 * BURST)} == {201}, "nor who has a wallet address"
    assert [create(strange_client, strange, FROM_A) for _ in range(BURST + 1)] == [201] * BURST + [429]
    assert create(strange_client, strange, FROM_B) == 201
    assert {create(strange_client, strange, {}) for _ in range(2 * BURST)} == {201}, "loopback is nobody's address"
    still.advance(0.5)
    assert [create(strange_client, strange, FROM_A) for _ in range(2)] == [201, 429]


def test_creating_without_consent_has_a_share_of_each_client(
    limited: Instance, monkeypatch: pytest.MonkeyPatch, still: MovableClock
) -> None:
    monkeypatch.setattr(limited.context.rate_limits, "clients", RateLimiter(0, still))
    monkeypatch.setattr(limited.context.rate_limits, "creations", RateLimiter(2, still))
    payer, other, bob = limited.client, limited.new_client("third-shop"), limited.wallet("bob")
    bill = payer.create_incoming_payment(bob, usd(100))["id"]
    spending = {"type": "outgoing-payment", "actions": ["create"], "identifier": limited.wallet("alice")}
    paying = payer.obtain_grant(spending | {"limits": {"debitAmount": usd(100)}})["access_token"]["value"]
    quoting = payer.grant({"type": "quote", "actions": ["create"]})
    token, of_other = payer.grant(ACCESS), other.grant(ACCESS)
    quote = {"walletAddress": limited.wallet("alice"), "receiver": bill, "method": "ilp"}
    answers = [payer.post("/incoming-payments", {"walletAddress": bob}, token) for _ in range(BURST - 1)]
    assert {one.status_code for one in answers} == {201}
    check_too_many(payer.post("/incoming-payments", {"walletAddress": bob}, token))
    check_too_many(payer.post("/quotes", quote, quoting))
    payment = {"walletAddress": limited.wallet("alice"), "incomingPayment": bill, "debitAmount": usd(1)}
    assert payer.post("/outgoing-payments", payment, paying).status_code == 201, "an owner has consented to it"
    assert payer.get(f"/incoming-payments?wallet-address={bob}", token).status_code == 200
    assert other.post("/incoming-payments", {"walletAddress": bob}, of_other).status_code == 201
    still.advance(0.5)
    assert payer.post("/quotes", quote, quoting).status_code == 201


def test_client_is_counted_by_itself_after_it_has_proven_itself(
    limited: Instance, monkeypatch: pytest.MonkeyPatch, still: MovableClock
) -> None:
    first, second = limited.new_client("first-shop"), limited.new_client("second-shop")
    grants = [client.grant({"type": "incoming-payment", "actions": ["read-all"]}) for client in (first, second)]
    limited.context.rate_limits.clients._full_at.clear()
    path = "/incoming-payments/none"
    forged = [second.request("GET", path, token=grants[0]).status_code for _ in range(2 * BURST)]
    assert set(forged) == {401}, "whoever cannot sign for a client uses nothing of its limit up"
    answers = [first.get(path, token=grants[0]) for _ in range(BURST + 1)]
    assert [answer.status_code for answer in answers] == [404] * BURST + [429]
    check_too_many(answers[-1])
    assert second.get(path, token=grants[1]).status_code == 404
    still.advance(0.5)
    assert first.get(path, token=grants[0]).status_code == 404
