"""Incoming payments of other servers: another payres, and servers with arbitrary answers."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, SECOND, format_time, parse_time
from payres.core.protocol.wire import Amount
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import GuardedClient
from payres.interledger import remote_receivers as incoming_payments
from payres.interledger.identity import OwnIdentity
from payres.interledger.node import node_of
from payres.interledger.remote_receivers import RemoteIncomingPayment, RemoteReceivers
from payres.interledger.sending.connection import Destination
from payres.testing.clock import MovableClock
from tests.core.remote.conftest import Answer, OpenSite, Site
from tests.helpers import receiver_of, usd
from tests.instance import Instance, run_instance

PATH = "/incoming-payments/1"
SECRET = bytes(range(224, 256))  # its base64 has both characters that base64url writes otherwise
SECRET_TEXT = base64.urlsafe_b64encode(SECRET).decode().rstrip("=")
AMOUNT = {"value": "5", "assetCode": "EUR", "assetScale": 9}
ILP: dict[str, object] = {"type": "ilp", "ilpAddress": "test.bank", "sharedSecret": SECRET_TEXT}
TOKEN = Answer({"access_token": {"value": "T1", "manage": "https://a.example/token/1", "access": []}, "continue": {}})
NOW = 1_700_000_000 * SECOND
Failure = tuple[str, bool]  # its reason, and whether it may be otherwise later


class Pair:
    """Two servers: one of them reads what there is to pay at the other."""

    def __init__(self, asking: Instance, asked: Instance, http: GuardedClient) -> None:
        self.clocks = asking.clock, asked.clock
        self.asked = asked
        self.http = http
        self.receivers = RemoteReceivers(http, node_of(asking.context).identity, asking.clock)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, Instance]]:
    folder: Path = tmp_path_factory.mktemp("pair")
    with run_instance(folder / "asking.db") as asking, run_instance(folder / "asked.db") as asked:
        yield asking, asked


@pytest.fixture
async def pair(servers: tuple[Instance, Instance]) -> AsyncIterator[Pair]:
    async with GuardedClient(allow_private_hosts=True) as http:
        yield Pair(*servers, http)


async def failure(receivers: RemoteReceivers, url: str, reason: str, retryable: bool) -> FetchFailed:
    """The failure to fetch an open payment, which must be this one."""
    with pytest.raises(FetchFailed) as raised:
        await receivers.fetch_open(url)
    assert (raised.value.reason, raised.value.retryable) == (reason, retryable), raised.value.sentence
    assert raised.value.sentence == str(raised.value)
    return raised.value


async def test_payment_of_another_payres_is_read_as_it_goes_on(pair: Pair) -> None:
    client, alice, bob = pair.asked.client, pair.asked.wallet("alice"), pair.asked.wallet("bob")
    created = client.create_incoming_payment(bob, usd(1000))
    (method,) = created["methods"]
    payment = await pair.receivers.fetch_open(created["id"])
    assert payment == RemoteIncomingPayment(
        url=created["id"],
        wallet_address=bob,
        asset=Asset("USD", 2),
        incoming_value=1000,
        received=0,
        expires_at=parse_time(created["expiresAt"]),
        completed=False,
        method=Destination(
            method["ilpAddress"], base64.urlsafe_b64decode(method["sharedSecret"] + "="), Asset("USD", 2)
        ),
    )
    client.pay(alice, created["id"], debitAmount=usd(300))
    payment = await pair.receivers.fetch_open(created["id"])
    assert (payment.received, payment.remaining) == (300, 700)
    client.pay(alice, created["id"])
    payment = await pair.receivers.fetch(created["id"])
    assert (payment.completed, payment.received, payment.remaining, payment.method) == (True, 1000, 0, None)
    await failure(pair.receivers, created["id"], "completed", retryable=False)


async def test_nobody_takes_the_asking_server_for_another(pair: Pair, servers: tuple[Instance, Instance]) -> None:
    url = receiver_of(pair.asked)
    impostor = OwnIdentity(node_of(servers[0].context).identity.wallet_address, bytes(32), pair.clocks[0])
    receivers = RemoteReceivers(pair.http, impostor, pair.clocks[0])
    await failure(receivers, url, "refused", retryable=True)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(NOW, frozen=True)


@pytest.fixture
async def receivers(clock: MovableClock) -> AsyncIterator[RemoteReceivers]:
    async with GuardedClient(allow_private_hosts=True) as http:
        yield make_receivers(http, clock)


def make_receivers(http: GuardedClient, clock: MovableClock) -> RemoteReceivers:
    return RemoteReceivers(http, OwnIdentity("https://pay.example/.well-known/pay", bytes(32), clock), clock)


def document(site: Site, **changes: object) -> dict[str, Any]:
    """A payment as a server of another kind may write it. A member that is `...` is left out."""
    members = {
        "id": site.base + PATH,
        "walletAddress": "https://wallet.example/alice",
        "completed": False,
        "receivedAmount": AMOUNT,
        "createdAt": "2023-01-01T00:00:00.000Z",
        "methods": [ILP],
        **changes,
    }
    return {name: value for name, value in members.items() if value is not ...}


def publish(site: Site, payment: object, token: Answer | list[Answer] = TOKEN) -> str:
    """Puts a payment on a site, also what leads to it; its URL."""
    private = payment if isinstance(payment, Answer) else Answer(payment)
    public = Answer({"receivedAmount": {}, "authServer": f"{site.base}/auth"})
    site.pages["POST /auth"] = token
    site.pages[f"GET {PATH}"] = lambda request: private if "authorization" in request.headers else public
    return site.base + PATH


async def fetched(receivers: RemoteReceivers, site: Site, **changes: object) -> RemoteIncomingPayment:
    return await receivers.fetch(publish(site, document(site, **changes)))


async def test_requests_are_those_of_a_client(receivers: RemoteReceivers, site: Site) -> None:
    await fetched(receivers, site)
    public, grant, private = site.requests
    assert public.headers.keys().isdisjoint({"authorization", "signature", "signature-input"})
    assert msgspec.json.decode(grant.body) == {
        "client": "https://pay.example/.well-known/pay",
        "access_token": {"access": [{"type": "incoming-payment", "actions": ["read-all"]}]},
    }
    assert (grant.method, grant.target, grant.headers["content-type"]) == ("POST", "/auth", "application/json")
    assert "content-digest" in grant.headers["signature-input"]
    assert (private.method, private.headers["authorization"]) == ("GET", "GNAP T1")
    assert '"authorization"' in private.headers["signature-input"]


async def test_shared_secret_may_be_in_either_base64(receivers: RemoteReceivers, site: Site) -> None:
    for padded in (base64.b64encode(SECRET).decode(), base64.urlsafe_b64encode(SECRET).decode()):
        for secret in (padded, padded.rstrip("=")):
            payment = await fetched(receivers, site, methods=[ILP | {"sharedSecret": secret}])
            assert payment.method == Destination("test.bank", SECRET, Asset("EUR", 9))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expiresAt": None, "incomingAmount": None}, {"expires_at": None, "incoming_value": None}),
        ({"expiresAt": "2033-01-01T01:00:00+01:00"}, {"expires_at": 1988150400 * SECOND}),
        ({"receivedAmount": {"value": str(2**64 - 1), "assetCode": "x", "assetScale": 255, "more": 1}}, {
            "received": 2**64 - 1, "asset": Asset("x", 255)}),
        ({"incomingAmount": AMOUNT | {"value": "3"}}, {"remaining": 0}),
        ({"methods": [ILP | {"ilpAddress": "test.bank.a~b_c-D"}]}, {
            "method": Destination("test.bank.a~b_c-D", SECRET, Asset("EUR", 9))}),
        ({"metadata": {"a": 1e300, "b": 10**400}, "other": None}, {"received": 5}),
        ({"methods": [{"type": "card", "number": "4"}, {"no": "type"}]}, {"method": None}),
        ({"methods": ...}, {"method": None}),
        ({"completed": True, "methods": []}, {"completed": True}),
    ],
)  # fmt: skip
async def test_other_spellings_are_understood(
    receivers: RemoteReceivers, site: Site, changes: dict[str, object], expected: dict[str, object]
) -> None:
    payment = await fetched(receivers, site, **changes)
    assert {name: getattr(payment, name) for name in expected} == expected


async def test_id_may_be_another_spelling_of_the_url(receivers: RemoteReceivers, site: Site) -> None:
    url = publish(site, document(site, id=f"{site.base.upper()}{PATH}/".replace("HTTP", "http")))
    assert (await receivers.fetch(url)).url == url


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"methods": []}, "no_ilp_method"),
        ({"methods": [{"type": "card"}]}, "no_ilp_method"),
        ({"expiresAt": format_time(NOW)}, "expired"),
        ({"incomingAmount": AMOUNT}, "completed"),
        ({"completed": True}, "completed"),
    ],
)
async def test_payment_that_takes_no_money_is_not_open(
    receivers: RemoteReceivers, site: Site, changes: dict[str, object], reason: str
) -> None:
    await fetched(receivers, site, **changes)
    await failure(receivers, site.base + PATH, reason, retryable=False)


SPOILT: dict[str, list[object]] = {
    "id": [..., 1, "/incoming-payments/1", "https://other.example/incoming-payments/1"],
    "walletAddress": [..., "alice", "https://a.example/" + "a" * 2048],
    "completed": [..., "false"],
    "receivedAmount": [
        ...,
        *(AMOUNT | {"value": value} for value in (5, "-5", "5.0", "18446744073709551616")),
        *(AMOUNT | {"assetScale": scale} for scale in (256, -1, 2.5)),
        *(AMOUNT | {"assetCode": code} for code in ("", "E\u202eUR", "E" * 33)),
    ],
    "incomingAmount": ["5", AMOUNT | {"assetScale": 2}, AMOUNT | {"assetCode": "USD"}, AMOUNT | {"value": "x"}],
    "expiresAt": ["tomorrow", "2033-01-01", 1],
    "methods": [
        {},
        ["ilp"],
        [{"type": "ilp"}],
        *(
            [ILP | {"ilpAddress": at}]
            for at in ("bank.alice", "test", "test.a b", "test.a\n", "test." + "a" * 1019, None)
        ),
        *([ILP | {"sharedSecret": SECRET_TEXT[:-1] + end}] for end in ("", "8AA", "!")),
        [{"type": "ilp", "ilpAddress": "test.bank", "sharedSecret": [1] * 32}],
    ],
}


@pytest.mark.parametrize("member", SPOILT)
async def test_what_is_no_incoming_payment_is_bad_content(receivers: RemoteReceivers, site: Site, member: str) -> None:
    for value in SPOILT[member]:
        await failure(receivers, publish(site, document(site, **{member: value})), "bad_content", retryable=False)


RUBBISH = [b"", b"{", b"<html>", b"null", b"[]", b"\xff", b"1", b'{"a":' * 10_000, b"[" * 30_000, b"9" * 60_000]


@pytest.mark.parametrize("rubbish", RUBBISH, ids=range(len(RUBBISH)))
async def test_rubbish_is_bad_content_wherever_it_comes(receivers: RemoteReceivers, site: Site, rubbish: bytes) -> None:
    url = publish(site, document(site), Answer(rubbish))
    await failure(receivers, url, "bad_content", retryable=False)
    publish(site, Answer(rubbish))
    await failure(receivers, url, "bad_content", retryable=False)
    site.pages[f"GET {PATH}"] = Answer(rubbish)
    await failure(receivers, url, "bad_content", retryable=False)


async def test_auth_server_must_be_a_web_address_that_may_be_asked(receivers: RemoteReceivers, site: Site) -> None:
    for auth_server, reason in (
        *((bad, "bad_content") for bad in (None, 1, "", "auth", "ftp://a.example", "https://a:b@a.example/", "//a.b")),
        ("http://169.254.169.254/latest", "unreachable"),
    ):
        site.pages[f"GET {PATH}"] = Answer({"authServer": auth_server})
        await failure(receivers, site.base + PATH, reason, retryable=False)
    assert {request.target for request in site.requests} == {PATH}


@pytest.mark.parametrize(
    ("status", "public", "grant", "private"),
    [
        (302, ("bad_content", False), ("bad_content", False), ("bad_content", False)),
        (400, ("bad_content", False), ("refused", True), ("bad_content", False)),
        (401, ("not_found", False), ("refused", True), ("refused", True)),
        (403, ("refused", False), ("refused", False), ("refused", False)),
        (404, ("not_found", False), ("refused", True), ("not_found", False)),
        (429, ("unreachable", True), ("unreachable", True), ("unreachable", True)),
        (500, ("unreachable", True), ("unreachable", True), ("unreachable", True)),
        (204, ("bad_content", False), ("bad_content", False), ("bad_content", False)),
    ],
)
async def test_status_decides(
    receivers: RemoteReceivers, site: Site, status: int, public: Failure, grant: Failure, private: Failure
) -> None:
    headers = {"Location": f"{site.base}/elsewhere"}
    answer = Answer(b"" if status == 204 else {"error": {"description": "no"}}, status, headers)
    site.pages["GET /elsewhere"] = Answer(document(site))
    url = publish(site, document(site), answer)
    await failure(receivers, url, *grant)
    publish(site, answer)
    await failure(receivers, url, *private)
    site.pages[f"GET {PATH}"] = answer
    await failure(receivers, url, *public)
    assert "/elsewhere" not in {request.target for request in site.requests}


async def test_grant_must_give_a_token_at_once(receivers: RemoteReceivers, site: Site) -> None:
    values = (1, "", "T\r\nHost: b", "T T", "T\u00e4", "T" * 4097)
    for content, reason in (
        ({"interact": {"redirect": "https://a.example/consent", "finish": "f"}, "continue": {}}, "refused"),
        ({"continue": {}}, "bad_content"),
        *(({"access_token": token}, "bad_content") for token in (None, [{"value": "T"}])),
        *(({"access_token": {"value": value}}, "bad_content") for value in values),
        *(({"access_token": {"value": "T", "expires_in": value}}, "bad_content") for value in (-1, "600")),
    ):
        site.requests.clear()
        await failure(receivers, publish(site, document(site), Answer(content)), reason, retryable=False)
        assert len(site.requests) == 2, content


def publish_wallet(site: Site, created: Answer, token: Answer = TOKEN) -> str:
    """Puts a wallet address on a site, and what its server makes of a new incoming payment; its URL."""
    wallet = {"id": f"{site.base}/bob", "assetCode": "EUR", "assetScale": 2}
    servers = {"authServer": f"{site.base}/auth", "resourceServer": f"{site.base}/op/"}
    site.pages |= {"GET /bob": Answer(wallet | servers), "POST /auth": token}
    site.pages["POST /op/incoming-payments"] = created
    return f"{site.base}/bob"


async def test_incoming_payment_is_created_as_clients_do(receivers: RemoteReceivers, site: Site) -> None:
    url = f"{site.base}/op/incoming-payments/1"
    wallet = await receivers.find_wallet(publish_wallet(site, Answer({"id": url, "methods": []}, 201)))
    assert await receivers.create(wallet, "Lunch") == url
    _, grant, creation = site.requests
    access = msgspec.json.decode(grant.body)["access_token"]["access"]
    assert access == [{"type": "incoming-payment", "actions": ["create"]}]
    body = {"walletAddress": f"{site.base}/bob", "metadata": {"description": "Lunch"}}
    assert (creation.headers["authorization"], msgspec.json.decode(creation.body)) == ("GNAP T1", body)
    assert {'"authorization"', '"content-digest"'} <= set(creation.headers["signature-input"].replace("(", " ").split())


async def test_server_that_takes_no_expiry_is_asked_without(receivers: RemoteReceivers, site: Site) -> None:
    url = f"{site.base}/op/incoming-payments/1"
    wallet = await receivers.find_wallet(publish_wallet(site, TOKEN))
    site.pages["POST /op/incoming-payments"] = [Answer({}, 400), Answer({"id": url}, 201)]
    assert await receivers.create(wallet, receive=Amount(value="5", asset_code="EUR", asset_scale=2), until=NOW) == url
    first, second = (msgspec.json.decode(request.body) for request in site.requests[-2:])
    assert second == {"walletAddress": wallet.id, "incomingAmount": AMOUNT | {"assetScale": 2}}
    assert first == second | {"expiresAt": format_time(NOW)}


@pytest.mark.parametrize(
    ("created", "token", "reason", "retryable"),
    [
        (Answer({}, 201), TOKEN, "bad_content", False),
        (Answer({"id": "https://a.example/1"}, 200), TOKEN, "bad_content", False),
        (Answer({"id": "https://a.example/1"}, 201), TOKEN, "bad_content", False),
        (Answer({"id": "1"}, 201), TOKEN, "bad_content", False),
        (Answer({}, 403), TOKEN, "refused", False),
        (Answer({}, 503), TOKEN, "unreachable", True),
        (Answer({}, 201), Answer({"interact": {"redirect": "https://a.example/"}}), "refused", False),
        (Answer({}, 201), Answer({}, 401), "refused", True),
    ],
    ids=["no id", "not 201", "of another server", "no URL", "denied", "broken", "consent", "no grant"],
)
async def test_incoming_payment_that_is_not_created_says_why(
    created: Answer, token: Answer, reason: str, retryable: bool, receivers: RemoteReceivers, site: Site
) -> None:
    with pytest.raises(FetchFailed) as failed:
        await receivers.create(await receivers.find_wallet(publish_wallet(site, created, token)))
    assert (failed.value.reason, failed.value.retryable) == (reason, retryable)


async def test_steps_together_have_a_time(site: Site, clock: MovableClock) -> None:
    url = publish(site, document(site), Answer(pause=asyncio.Event().wait))
    async with GuardedClient(allow_private_hosts=True) as http:
        receivers = RemoteReceivers(http, OwnIdentity("https://pay.example", bytes(32), clock), clock, seconds=0.05)
        error = await failure(receivers, url, "unreachable", retryable=True)
    assert error.sentence == f"{url} could not be read within 0.05 seconds: {urlsplit(url).netloc} did not answer"


async def test_what_may_not_be_asked_fails_at_once(site: Site, clock: MovableClock) -> None:
    urls = ("", "alice", "ftp://a.example/incoming-payments/1", "https://a:b@a.example/1", "http://[")
    async with GuardedClient(allow_private_hosts=False) as http:
        for url in (publish(site, document(site)), *urls):
            await failure(make_receivers(http, clock), url, "unreachable", retryable=False)
    assert site.requests == []


@pytest.mark.parametrize("status", [401, 403])
async def test_kept_token_is_renewed_once(receivers: RemoteReceivers, site: Site, status: int) -> None:
    url = publish(site, document(site))
    await receivers.fetch(url)
    await receivers.fetch(url)
    assert [request.method for request in site.requests] == ["GET", "POST", "GET", "GET"]
    assert site.requests[-1].headers["authorization"] == "GNAP T1", "the other server knows who asks"
    publish(site, Answer(b"{}", status))
    await failure(receivers, url, "refused", retryable=status == 401)
    assert [request.method for request in site.requests[4:]] == ["GET", "GET", "POST", "GET"]


@pytest.mark.parametrize(
    ("lifetime", "seconds", "grants"),
    [(0, 0, 2), (5, 0, 2), (6, 0, 1), (2**62, 3594, 1), (DAY, 3595, 2), (None, 3594, 1), (None, 3595, 2)],
)
async def test_token_is_kept_while_it_is_good_and_for_an_hour_at_most(
    receivers: RemoteReceivers, site: Site, clock: MovableClock, lifetime: int | None, seconds: int, grants: int
) -> None:
    url = publish(site, document(site), Answer({"access_token": {"value": "T", "expires_in": lifetime}}))
    await receivers.fetch(url)
    clock.advance(seconds)
    await receivers.fetch(url)
    assert len(site.asked("POST")) == grants


async def test_token_is_shown_to_nobody_but_the_server_it_was_asked_for(
    receivers: RemoteReceivers, site: Site, open_site: OpenSite
) -> None:
    tokens = [Answer({"access_token": {"value": value}}) for value in ("T1", "T2")]
    await receivers.fetch(publish(site, document(site), tokens))
    other = await open_site()
    public, private = Answer({"authServer": f"{site.base}/auth"}), Answer(document(other))
    other.pages[f"GET {PATH}"] = lambda request: private if "authorization" in request.headers else public
    await receivers.fetch(other.base + PATH)
    assert other.requests[-1].headers["authorization"] == "GNAP T2"
    await receivers.fetch(site.base + PATH)
    assert site.requests[-1].headers["authorization"] == "GNAP T1"


async def test_few_tokens_are_kept(clock: MovableClock, open_site: OpenSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_payments, "MAX_TOKENS", 2)
    sites = [await open_site() for _ in range(3)]
    async with GuardedClient(allow_private_hosts=True) as http:
        receivers = make_receivers(http, clock)
        for number, grants in ((0, 1), (1, 1), (2, 1), (1, 1), (0, 2), (1, 2)):
            site = sites[number]
            await receivers.fetch(publish(site, document(site)))
            assert len(site.asked("POST")) == grants, number
