"""Names whose name servers never answer: each holds a thread of the server's, long after its request has ended."""

import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from payres.core.protocol.limits import MAX_LOOKUPS_OF_CLIENT, MAX_LOOKUPS_OF_REQUESTS
from payres.core.remote import ip_addresses
from payres.core.remote.transport import Bounds
from payres.interledger import part, rates
from payres.interledger.node import node_of
from tests.attacks.test_ssrf import QUOTE, as_payment, as_receiver
from tests.attacks.test_ssrf_by_configuration import TOKEN, asking_rates, forwarded, link
from tests.helpers import TIMEOUT, wait_until
from tests.instance import Instance

INSIDE, SILENT, RATES = "inside.example", "slow.example", "rates.example"
LOOKED_UP = "has no public address"
Refresh = Callable[[], Coroutine[None, None, None]]
BUSY = "is not looked up while so many others are"


class NameServers:
    """Those of `slow.example` say nothing until they are told to; all other names are those of this machine."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.spoken = threading.Event()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked[host.partition(".")[2] if host.endswith(SILENT) else host] += 1
        if host.endswith(SILENT):
            assert self.spoken.wait(TIMEOUT)
        return ["127.0.0.1"]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    made = NameServers()
    monkeypatch.setattr(ip_addresses, "find_addresses", made)
    yield made
    made.spoken.set()


@pytest.fixture
def refresh_rates(monkeypatch: pytest.MonkeyPatch) -> list[Refresh]:
    """What the server does regularly, which it now does when the test tells it to."""
    found: list[Refresh] = []

    async def watch(*given: Any) -> None:
        found.append(partial(rates.refresh_rates, *given))

    monkeypatch.setattr(part, "watch_rates", watch)
    return found


@pytest.fixture
def server(
    servers: NameServers, refresh_rates: list[Refresh], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Instance]:
    """Asks public addresses only, has peers, and a service of rates."""
    with asking_rates(tmp_path, f"https://{RATES}/", ilp_address="test.here") as instance:
        link(instance, "near", "https://near.example/ilp", incoming_token=TOKEN)
        link(instance, "far", "https://far.example/ilp")
        for client in (instance.context.http, node_of(instance.context).receivers._http):
            monkeypatch.setattr(client, "_bounds", Bounds(seconds=0.2))  # so that the requests end soon
        yield instance
        servers.spoken.set()


def test_slow_names_of_clients_stop_no_payment_no_peer_and_no_rates(
    server: Instance, servers: NameServers, refresh_rates: list[Refresh]
) -> None:
    told = at_once(MAX_LOOKUPS_OF_REQUESTS + 8, lambda host: ask_as_client(server, host, address_of(host)))
    assert servers.asked[SILENT] == MAX_LOOKUPS_OF_REQUESTS
    assert sum(BUSY in answer for answer in told) == 8
    assert BUSY in ask_as_client(server, INSIDE)
    for way in (as_receiver, as_payment):
        assert LOOKED_UP in way(server, f"https://{INSIDE}")[1]["details"]["hint"]
    assert LOOKED_UP in forwarded(server, "far")
    server._server.call(refresh_rates[0]())
    assert servers.asked[RATES] == 2  # currencies
    servers.spoken.set()
    wait_until(lambda: LOOKED_UP in ask_as_client(server, INSIDE))


def at_once(count: int, ask: Callable[[str], str]) -> list[str]:
    """What is answered to requests that name a host each, whose name servers are silent."""
    with ThreadPoolExecutor(8) as askers:
        return list(askers.map(ask, [f"h{number}.{SILENT}" for number in range(count)]))


def ask_as_client(server: Instance, host: str, address: str | None = None) -> str:
    """The answer to a client that claims to be at a host, without a signature; the address is what a proxy says."""
    body = {"client": f"https://{host}/x", "access_token": {"access": [QUOTE]}}
    answer = server.client.request("POST", "/", body, headers={"x-forwarded-for": address} if address else None)
    hint = str(answer.json()["error"]["details"]["hint"])
    assert answer.status_code == (401 if LOOKED_UP in hint else 503)
    return hint


def address_of(host: str) -> str:
    """An address for each few names, from which they may all be looked up."""
    number = int(host.partition(".")[0].removeprefix("h"))
    return f"192.0.2.{number // MAX_LOOKUPS_OF_CLIENT}"
