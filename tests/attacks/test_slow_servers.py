"""Servers that take connections and never answer: whoever names them takes no place that others need."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import httpx2
import pytest

from payres.core.protocol.clock import SECOND
from payres.core.protocol.limits import (
    MAX_EXCHANGES,
    MAX_EXCHANGES_OF_CLIENT,
    MAX_EXCHANGES_OF_KEY,
    MAX_PROBES_OF_CLIENT,
)
from payres.interledger.carrying import NoReply
from payres.interledger.connector import Connector
from payres.interledger.node import node_of
from payres.interledger.packets import decode_prepare
from payres.interledger.store.peers import PeerRecord
from tests.attacks.conftest import Trap
from tests.attacks.test_ssrf import QUOTE, ask_for_quote
from tests.helpers import TIMEOUT, client_with_key, last_segment, wait_until
from tests.instance import Instance
from tests.interledger.network import amount, bill, ended, hurried
from tests.signing_client import Client

Pair = Sequence[Instance]


@pytest.fixture
def silent() -> Iterator[Trap]:
    with closing(Trap()) as servers:
        yield servers


@pytest.fixture
def attackers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * MAX_EXCHANGES) as threads:
        yield threads


def statuses(answers: Sequence["Future[httpx2.Response]"]) -> Counter[int]:
    """How often each status was answered; every 503 says when to come back."""
    found = [answer.result(TIMEOUT) for answer in answers]
    assert all(int(answer.headers["retry-after"]) > 0 for answer in found if answer.status_code == 503)
    return Counter(answer.status_code for answer in found)


def test_slow_servers_named_in_quotes_fail_no_payment_and_no_quote_of_others(
    pair: Pair, silent: Trap, attackers: ThreadPoolExecutor
) -> None:
    a, b = pair
    first, second = bill(b, b.wallet("bob")), bill(b, b.wallet("bob"))
    quote = a.client.create_quote(a.wallet("alice"), first, debitAmount=amount(100))
    with closing(client_with_key(a)) as attacker:
        token = attacker.grant(QUOTE)

        receivers = [f"{silent.origin(number)}/incoming-payments/1" for number in range(MAX_EXCHANGES + 16)]
        answers = [attackers.submit(ask_for_quote, attacker, token, a.wallet("bob"), one) for one in receivers]
        wait_until(lambda: len(silent.taken) >= MAX_EXCHANGES_OF_KEY)
        paid = ended(a, a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]))
        assert (paid.record.state, paid.record.attempts, paid.record.delivered) == ("completed", 1, 100)
        assert a.client.create_quote(a.wallet("alice"), second, debitAmount=amount(100))["receiver"] == second
        with closing(client_with_key(a)) as other:
            assert ask_for_quote(other, other.grant(QUOTE), a.wallet("alice"), second).status_code == 201
        assert len(silent.taken) == MAX_EXCHANGES_OF_KEY, MAX_PROBES_OF_CLIENT
        silent.close()
        assert statuses(answers).keys() == {400, 503}


def test_slow_servers_named_as_clients_lock_out_no_client(
    pair: Pair, silent: Trap, attackers: ThreadPoolExecutor
) -> None:
    a, b = pair
    known, new = (b.new_client(path) for path in ("known-shop", "new-shop"))
    for client in (known, new):
        client.base_url = a.base_url

    def ask(client: Client, wallet_address: str, address: str) -> httpx2.Response:
        body = {"client": wallet_address, "access_token": {"access": [QUOTE]}}
        return client.request("POST", "/", body, headers={"x-forwarded-for": address})

    assert ask(known, known.wallet_address, "203.0.113.1").status_code == 200
    answers = [
        attackers.submit(ask, known, f"{silent.origin(number)}/x", "203.0.113.1") for number in range(MAX_EXCHANGES)
    ]
    wait_until(lambda: len(silent.taken) == MAX_EXCHANGES_OF_CLIENT)
    assert ask(new, new.wallet_address, "203.0.113.2").status_code == 200
    a.clock.advance(3600)  # so that its key is fetched again
    b.clock.advance(3600)
    assert ask(known, known.wallet_address, "203.0.113.1").status_code == 200
    assert len(silent.taken) == MAX_EXCHANGES_OF_CLIENT
    silent.close()
    assert statuses(answers).keys() <= {401, 503}


def test_slow_servers_behind_quotes_in_other_wallets_names_stop_no_quote_of_others(
    pair: Pair, attackers: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receivers describe themselves and then leave the packets of probes unanswered."""
    a, b = pair
    hurried(a, idle_timeout=60 * SECOND, probe_timeout=60 * SECOND)
    slow, quick = bill(b, b.wallet("bob")), bill(b, b.wallet("bob"))
    wallets = [a.create_wallet(f"victim{number}", deposit="1.00") for number in range(12)]
    held: list[str] = []
    opened = threading.Event()
    handle = Connector.handle

    async def hold(connector: Connector, sender: PeerRecord, body: bytes, number: str | None) -> bytes | NoReply:
        found = node_of(b.context).credentials.open(decode_prepare(body).destination)
        if found is not None and found.tag == last_segment(slow):
            held.append(sender.name)
            await asyncio.to_thread(opened.wait, TIMEOUT)
        return await handle(connector, sender, body, number)

    monkeypatch.setattr(Connector, "handle", hold)
    attacker = a.new_client("attacker")
    token = attacker.grant(QUOTE)

    answers = [attackers.submit(ask_for_quote, attacker, token, wallet, slow) for wallet in wallets]
    wait_until(lambda: len(held) == MAX_PROBES_OF_CLIENT)
    assert ask_for_quote(a.client, a.client.grant(QUOTE), wallets[0], quick).status_code == 201
    assert len(held) == MAX_PROBES_OF_CLIENT
    opened.set()
    assert statuses(answers).keys() <= {201, 503}
