"""Who may do what: every reason for which a signed request is refused before its body is looked at."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from queue import Queue

import httpx2
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.core.grants.tokens import revoke_grant, revoke_token
from payres.core.http import authorize, wallet_addresses
from payres.core.protocol.limits import BURST_SECONDS, KEY_REFETCH_RATE
from payres.core.remote.http import GuardedClient
from payres.core.remote.wallet_addresses import KeySet, fetch_keys
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from payres.core.store.work import Transaction, Work
from payres.operator import keys, wallets
from payres.testing.clock import MovableClock
from tests.conftest import Refused
from tests.helpers import TIMEOUT, Json, sign_by_hand, usd
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance
from tests.signing_client import Client

Visit = Callable[[str, Instance], Client]

SECOND = 1_000_000
FRESH = count()


READ = {"type": "quote", "actions": ["read"]}


def signed(
    instance: Instance, token: str, nonce: str, key: Ed25519PrivateKey, keyid: str = "key-1", age: int = 0
) -> dict[str, str]:
    """The headers of GET /quotes/none, signed so many seconds ago: 404 says that it was let in."""
    authorization = f"GNAP {token}"
    values = {"@method": "GET", "@target-uri": f"{instance.base_url}/quotes/none", "authorization": authorization}
    parameters = f';created={instance.clock.now() // SECOND - age};keyid="{keyid}";nonce="{nonce}"'
    return {"authorization": authorization, **sign_by_hand(key, values, parameters)}


def send(instance: Instance, http: httpx2.Client, headers: dict[str, str]) -> httpx2.Response:
    return http.get(f"{instance.base_url}/quotes/none", headers=headers)


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("careless", partial(keys.revoke_key, wallet="careless", kid="key-1")),
        ("departed", partial(wallets.deactivate, wallet="departed")),
    ],
)
def test_key_ends_when_it_is_revoked_and_with_its_wallet_address(
    shared: Instance, refused: Refused, path: str, end: Callable[[Work], object]
) -> None:
    client, item = shared.new_client(path), READ
    token = client.grant(item)
    shared.write(end)
    refused(client.get("/quotes/none", token), 401, "invalid_client", reason="unknown_key")
    refused(client.request_grant(item), 400, "invalid_client", reason="unknown_key")


def test_key_may_be_any_in_force_of_the_client(shared: Instance) -> None:
    client = shared.new_client("rotating")
    token = client.grant(READ)
    client.private_key = generate_private_key()
    client.jwk = jwk_from_public_bytes("key-2", client.private_key.public_key().public_bytes_raw())
    shared.write(lambda tx: keys.add_key(tx, "rotating", client.jwk))
    assert client.get("/quotes/none", token).status_code == 404


@pytest.mark.parametrize("foreign", ["proxy-key", "key-1", "key-2"])
@pytest.mark.parametrize("is_first", [True, False])
def test_each_of_several_signatures_is_examined(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, foreign: str, is_first: bool
) -> None:
    """A proxy signs too, with a key that is not the client's, or that only has the name of one."""
    client = shared.new_client(f"proxied-{next(FRESH)}")
    second = generate_private_key()
    keys_of_client = jwk_from_public_bytes("key-2", second.public_key().public_bytes_raw())
    shared.write(partial(keys.add_key, wallet=client.wallet_address.rpartition("/")[2], jwk=keys_of_client))
    token = client.grant(READ)

    def both(*signatures: dict[str, str]) -> httpx2.Response:
        headers = dict(signatures[0])
        for name in ("signature-input", "signature"):
            labelled = [f"sig{number}{one[name].removeprefix('sig1')}" for number, one in enumerate(signatures)]
            headers[name] = ", ".join(labelled)
        return send(shared, anonymous, headers)

    proxys = signed(shared, token, "proxys", generate_private_key(), foreign)
    own = signed(shared, token, "own", client.private_key)
    pair = [proxys, own] if is_first else [own, proxys]
    assert both(*pair).status_code == 404
    refused(both(*pair), 401, "invalid_client", reason="nonce_reused")
    other = signed(shared, token, "more", generate_private_key(), foreign)
    reason = "unknown_key" if foreign == "proxy-key" else "signature_mismatch"
    refused(both(proxys, other), 401, "invalid_client", reason=reason)


def test_nonce_is_good_once_for_a_key(payres: Instance, anonymous: httpx2.Client, refused: Refused) -> None:
    token, key = payres.client.grant(READ), payres.client.private_key
    send_with = partial(send, payres, anonymous)
    forged = send_with(signed(payres, token, "single", generate_private_key()))
    refused(forged, 401, "invalid_client", reason="signature_mismatch")  # and does not use it up
    assert send_with(signed(payres, token, "single", key)).status_code == 404
    for age in (0, 5):
        refused(send_with(signed(payres, token, "single", key, age=age)), 401, "invalid_client", reason="nonce_reused")
    assert send_with(signed(payres, token, "another", key)).status_code == 404
    payres.clock.advance(payres.context.settings.signature_max_age + 1)
    assert send_with(signed(payres, token, "single", key)).status_code == 404


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """Another server, where clients of the first keep their keys."""
    with run_instance(tmp_path_factory.mktemp("elsewhere") / "payres.db") as instance:
        yield instance


@pytest.fixture
def visit(elsewhere: Instance) -> Iterator[Visit]:
    """Makes a client with a wallet address on another server that sends its requests to an instance."""
    visitors: list[Client] = []

    def make(path: str, host: Instance) -> Client:
        resident = elsewhere.new_client(path, name="A Visitor")
        about = (resident.wallet_address, resident.private_key, resident.jwk)
        visitors.append(Client(*about, host.base_url, host.clock, host.approve))
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.close()


def test_client_of_another_server_is_known_by_the_keys_there(shared: Instance, visit: Visit, refused: Refused) -> None:
    visitor = visit("visitor", shared)
    payment = visitor.create_incoming_payment(shared.wallet("bob"))
    token = visitor.grant({"type": "incoming-payment", "actions": ["read"]})
    assert visitor.get(payment["id"], token).json() == payment
    visitor.private_key = generate_private_key()
    refused(visitor.get(payment["id"], token), 401, "invalid_client", reason="signature_mismatch")


class SlowFetches:
    """Holds the fetching of keys until the test lets one after another go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held: Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Queue()
        monkeypatch.setattr(authorize, "fetch_keys", self._fetch)

    def wait_for(self, count: int) -> list[Callable[[], object]]:
        """What lets each of so many fetches go on, once they have all begun."""
        held = [self._held.get(timeout=TIMEOUT) for _ in range(count)]
        return [partial(loop.call_soon_threadsafe, gate.set) for loop, gate in held]

    async def _fetch(self, http: GuardedClient, wallet_address: str) -> KeySet:
        gate = asyncio.Event()
        self._held.put((asyncio.get_running_loop(), gate))
        await gate.wait()
        return await fetch_keys(http, wallet_address)


def test_nonce_is_good_once_however_long_the_key_is_fetched(
    tmp_path: Path, visit: Visit, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies come while they are fresh. Their keys come when they are not, and others use nonces meanwhile."""
    running = run_instance(tmp_path / "payres.db", access_token_lifetime=3600)
    with running as host, ThreadPoolExecutor() as threads, httpx2.Client(timeout=TIMEOUT, verify=False) as http:
        visitor = visit("slow", host)
        token = visitor.grant(READ)
        host.clock.advance(301)  # the key is to be fetched anew
        copy = signed(host, token, "copied", visitor.private_key)
        fetches = SlowFetches(monkeypatch)
        sent = [threads.submit(send, host, http, copy) for _ in range(2)]
        first, second = fetches.wait_for(2)
        host.clock.advance(host.context.settings.signature_max_age + 1)
        first()
        done, waiting = wait(sent, timeout=TIMEOUT, return_when=FIRST_COMPLETED)
        assert [one.result().status_code for one in done] == [404]
        other = signed(host, host.client.grant(READ), "another", host.client.private_key)
        assert send(host, http, other).status_code == 404
        second()
        [late] = waiting
        refused(late.result(timeout=TIMEOUT), 401, "invalid_client", reason="nonce_reused")


ENDS: dict[str, Callable[[Instance, str, str], object]] = {
    "token revoked": lambda host, token, _: host.write(partial(revoke_token, token_id=token)),
    "grant revoked": lambda host, _, grant: host.write(partial(revoke_grant, grant_id=grant)),
    "token expired": lambda host, _token, _grant: host.clock.advance(301),
}
EVERYTHING = (
    {"type": "incoming-payment", "actions": ["create", "complete", "read", "list"]},
    {"type": "quote", "actions": ["create", "read"]},
)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("request_line", "body"),
    [
        ("POST /incoming-payments", {"walletAddress": "{bob}"}),
        ("POST /incoming-payments/{id}/complete", None),
        ("POST /quotes", {"walletAddress": "{alice}", "receiver": "{payment}", "method": "ilp"}),
        (
            "POST /outgoing-payments",
            {"walletAddress": "{alice}", "incomingPayment": "{payment}", "debitAmount": usd(1)},
        ),
        ("GET /incoming-payments/{id}", None),
        ("GET /incoming-payments?wallet-address={bob}", None),
        ("GET /outgoing-payment-grant", None),
    ],
)
def test_token_that_ends_while_the_key_is_fetched_does_nothing_any_more(
    payres: Instance,
    visit: Visit,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    request_line: str,
    body: Json | None,
    end: str,
) -> None:
    """What creates something looks at the token once more, in the unit that does."""
    visitor = visit(f"ending-{next(FRESH)}", payres)
    payment = payres.client.create_incoming_payment(payres.wallet("bob"), usd(1))["id"]
    places = {name: payres.wallet(name) for name in ("alice", "bob")}
    places |= {"payment": payment, "id": payment.rpartition("/")[2]}
    spending = {"type": "outgoing-payment", "actions": ["create"], "identifier": places["alice"]}
    sent = {k: v.format(**places) if isinstance(v, str) else v for k, v in body.items()} if body else None
    method, path = request_line.format(**places).split()
    for looks_at_once in (True, False) if method == "POST" else (True,):
        if not looks_at_once:
            monkeypatch.setattr(authorize, "check_valid", lambda *_, **__: None)
        granted = visitor.obtain_grant(*EVERYTHING, spending)
        token = granted["access_token"]["manage"].rpartition("/")[2]
        grant = granted["continue"]["uri"].rpartition("/")[2]
        payres.clock.advance(301)  # the key is to be fetched anew
        with monkeypatch.context() as patch, ThreadPoolExecutor() as threads:
            fetches = SlowFetches(patch)
            answer = threads.submit(visitor.request, method, path, sent, granted["access_token"]["value"])
            [go_on] = fetches.wait_for(1)
            ENDS[end](payres, token, grant)
            go_on()
            if end == "grant revoked" and path == "/outgoing-payments":
                refused(answer.result(timeout=TIMEOUT), 403, "limit_exceeded", reason="revoked_grant")
                continue
            reason = "expired_token" if end == "token expired" else "revoked_token"
            refused(answer.result(timeout=TIMEOUT), 401, "invalid_token", reason=reason)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


FINAL = (401, "invalid_client", "unknown_key")
LATER = (503, "unavailable", None)
# What a server answers that is asked for a client's keys; None for one that is down.
OF_KEY_SERVERS: dict[str, tuple[Callable[[BaseHTTPRequestHandler], None] | None, tuple[int, str, str | None]]] = {
    "is down": (None, LATER),
    "hangs up": (hang_up, LATER),
    "500": (partial(reply, status=500), LATER),
    "503": (partial(reply, status=503), LATER),
    "429": (partial(reply, status=429), LATER),
    "404": (partial(reply, status=404), FINAL),
    "410": (partial(reply, status=410), FINAL),
    "301": (partial(reply, status=301, Location="/"), FINAL),
    "no JSON": (partial(reply, status=200, body=b"<html>"), FINAL),
    "no key set": (partial(reply, status=200, body=b"{}"), FINAL),
    "another key": (partial(reply, status=200, body=b'{"keys":[]}'), FINAL),
}


@pytest.mark.parametrize("state", OF_KEY_SERVERS)
def test_client_whose_server_is_down_for_a_moment_may_come_again(
    payres: Instance, refused: Refused, state: str
) -> None:
    """Clients take a 401 as the end of what they were granted."""
    private_key = generate_private_key()
    jwk = jwk_from_public_bytes("key-1", private_key.public_key().public_bytes_raw())
    well = partial(reply, status=200, body=msgspec.json.encode({"keys": [jwk]}))
    answers: list[Callable[[BaseHTTPRequestHandler], None]] = [well]
    with ExitStack() as stack, ExitStack() as up:
        port = up.enter_context(serving(lambda handler: answers[-1](handler)))
        client = Client(
            f"http://127.0.0.1:{port}/shop", private_key, jwk, payres.base_url, payres.clock, payres.approve
        )
        stack.callback(client.close)
        token = client.grant({"type": "incoming-payment", "actions": ["create"]})
        payres.clock.advance(301)  # the key is to be fetched anew
        answer, (status, code, reason) = OF_KEY_SERVERS[state]
        if answer is None:
            up.close()
        else:
            answers.append(answer)
        body = {"walletAddress": payres.wallet("bob")}
        for refusal in (client.post("/incoming-payments", body, token), client.request_grant(READ)):
            if refusal.status_code == 400:  # a grant request, for a key set without the key
                refused(refusal, 400, "invalid_client", reason="unknown_key")
                assert state == "another key"
                continue
            refused(refusal, status, code, reason=reason)
            assert ("retry-after" in refusal.headers) == (status == 503)
        if state == "503":
            answers.append(well)
            assert client.post("/incoming-payments", body, token).status_code == 201


def test_new_key_of_a_remote_client_is_fetched_when_it_appears(
    shared: Instance, elsewhere: Instance, visit: Visit, refused: Refused
) -> None:
    visitor = visit("renewing", shared)
    token = visitor.grant(READ)
    visitor.private_key = generate_private_key()
    visitor.jwk = jwk_from_public_bytes("key-2", visitor.private_key.public_key().public_bytes_raw())
    refused(visitor.get("/quotes/none", token), 401, "invalid_client", reason="unknown_key")
    unlisted = visitor.request_grant(READ)
    refused(unlisted, 400, "invalid_client", reason="unknown_key")
    elsewhere.write(lambda tx: keys.add_key(tx, "renewing", visitor.jwk))
    assert visitor.get("/quotes/none", token).status_code == 404


def test_revoked_key_of_a_remote_client_ends_when_it_is_fetched_again(
    payres: Instance, elsewhere: Instance, visit: Visit, refused: Refused
) -> None:
    visitor = visit("revoking", payres)
    token = visitor.grant(READ)
    elsewhere.write(lambda tx: keys.revoke_key(tx, "revoking", "key-1"))
    payres.clock.advance(301)
    refused(visitor.get("/quotes/none", token), 401, "invalid_client", reason="unknown_key")


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose keys were fetched."""
    found: list[str] = []

    async def fetch_and_note(http: GuardedClient, wallet_address: str) -> KeySet:
        found.append(wallet_address)
        return await fetch_keys(http, wallet_address)

    monkeypatch.setattr(authorize, "fetch_keys", fetch_and_note)
    return found


@pytest.mark.parametrize(
    ("cache_control", "seconds"),
    [("no-store", 0), ("no-cache", 0), ("max-age=0", 0), ("max-age=10", 10), ("max-age=3600", 60), ("public", 60)],
)
def test_keys_of_a_remote_client_are_kept_as_long_as_its_server_says(
    tmp_path: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch, fetches: list[str], cache_control: str, seconds: int
) -> None:
    monkeypatch.setattr(wallet_addresses, "KEYS_CACHE", {"Cache-Control": cache_control})
    monkeypatch.setattr(Instance, "clock_type", partial(MovableClock, frozen=True))
    with run_instance(tmp_path / "payres.db") as host:
        visitor = visit(f"cached-{next(FRESH)}", host)
        token = visitor.grant(READ)
        before = len(fetches)
        for later in (0, seconds - 1 if seconds else 0):
            host.clock.advance(later)
            assert visitor.get("/quotes/none", token).status_code == 404
        assert len(fetches) - before == (0 if seconds else 2)
        host.clock.advance(1)
        assert visitor.get("/quotes/none", token).status_code == 404
        assert len(fetches) - before == (1 if seconds else 3)


def test_key_of_a_remote_client_that_is_replaced_under_its_kid_is_good_at_once(
    shared: Instance, elsewhere: Instance, visit: Visit, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wallet_addresses, "KEYS_CACHE", {"Cache-Control": "max-age=3600"})
    visitor = visit("replacing", shared)
    old = visitor.private_key
    token = visitor.grant(READ)
    elsewhere.write(lambda tx: keys.revoke_key(tx, "replacing", "key-1"))
    visitor.private_key = generate_private_key()
    visitor.jwk = jwk_from_public_bytes("key-1", visitor.private_key.public_key().public_bytes_raw())
    elsewhere.write(lambda tx: keys.add_key(tx, "replacing", visitor.jwk))
    assert visitor.get("/quotes/none", token).status_code == 404
    visitor.private_key = old
    refused(visitor.get("/quotes/none", token), 401, "invalid_client", reason="signature_mismatch")


def test_keys_that_are_still_good_are_fetched_again_a_few_times_only(
    shared: Instance, visit: Visit, monkeypatch: pytest.MonkeyPatch, fetches: list[str]
) -> None:
    """Anyone can send a signature that does not fit the keys of a client."""
    monkeypatch.setattr(wallet_addresses, "KEYS_CACHE", {"Cache-Control": "max-age=3600"})
    visitor = visit("claimed", shared)
    token = visitor.grant(READ)
    good, before = visitor.private_key, len(fetches)
    visitor.private_key = generate_private_key()
    forged = [visitor.get("/quotes/none", token).status_code for _ in range(20 * BURST_SECONDS * KEY_REFETCH_RATE)]
    assert set(forged) == {401}
    assert BURST_SECONDS * KEY_REFETCH_RATE <= len(fetches) - before < len(forged) // 2
    visitor.private_key = good
    assert visitor.get("/quotes/none", token).status_code == 404


def test_client_at_another_name_of_this_server_is_one_of_its_own(
    shared: Instance, fetches: list[str], refused: Refused
) -> None:
    client = shared.new_client("aliased")
    item = READ
    for host in ("localhost", "LOCALHOST.", "127.1", "[::1]"):
        client.wallet_address = shared.wallet("aliased").replace("127.0.0.1", host)
        token = client.grant(item)
        assert client.get("/quotes/none", token).status_code == 404
    shared.write(lambda tx: keys.revoke_key(tx, "aliased", "key-1"))
    refused(client.request_grant(item), 400, "invalid_client", reason="unknown_key")
    assert not fetches


def test_remote_client_without_a_wallet_there_is_refused(
    shared: Instance, elsewhere: Instance, visit: Visit, refused: Refused
) -> None:
    client = visit("short-lived", shared)
    client.wallet_address = elsewhere.wallet("nobody")
    refused(client.request_grant(READ), 401, "invalid_client", reason="unknown_key")


def test_remote_client_is_named_to_the_owner_as_its_server_names_it(shared: Instance, visit: Visit) -> None:
    visitor = visit("named", shared)
    item = {"type": "outgoing-payment", "actions": ["read"], "identifier": shared.wallet("alice")}
    grant_id = visitor.request_grant(item).json()["continue"]["uri"].rpartition("/")[2]

    def unit(tx: Transaction) -> str:
        name: str = tx.execute('SELECT client_name FROM "grant" WHERE id = ?', (grant_id,)).fetchone()[0]
        return name

    assert shared.read(unit) == "A Visitor"


def test_private_hosts_are_not_asked_unless_the_operator_allows_it(
    tmp_path: Path, visit: Visit, refused: Refused
) -> None:
    with run_instance(tmp_path / "payres.db", allow_private_hosts=False) as instance:
        visitor = visit("private", instance)
        refused(visitor.request_grant(READ), 401, "invalid_client")
