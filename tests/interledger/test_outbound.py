"""Turns and places: what is slow for one wallet, or for those who ask for quotes, keeps nobody else's money waiting."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import pytest

from payres.core.payments import ledger
from payres.core.protocol.clock import SECOND
from payres.core.protocol.identifiers import new_id
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger import unanswered
from payres.interledger.carrier import BOUNDS, NoReply
from payres.interledger.limits import (
    MAX_PACKETS_IN_FLIGHT,
    MAX_PASSED_ON,
    MAX_PROBES,
    MAX_SENDING_PAYMENTS_OF_WALLET,
    MAX_SENT,
    MAX_SENT_OF_WALLET,
)
from payres.interledger.node import node_of
from payres.interledger.oer import decode_prepare
from payres.interledger.outbound import SILENT
from payres.interledger.store import packets
from payres.interledger.store.peers import PeerRecord
from tests.helpers import last_segment, refusal, wait_until
from tests.instance import Instance
from tests.interledger.network import amount, bill, change, hurried, pay, peer_of, quote, received

VALUE = 100
MORE_THAN_A_TURN = MAX_SENDING_PAYMENTS_OF_WALLET + 2
Pair = Sequence[Instance]
Shut = Callable[..., "Gate"]


class Gate:
    """Keeps packets for some incoming payments of a server, or those of them without money, waiting until it opens."""

    def __init__(self, server: Instance, receivers: Collection[str], *, money: bool = True) -> None:
        self.held = 0
        self._money = money
        self._server = server
        self._handle = node_of(server.context).connector.handle
        self._shut_for = {last_segment(url) for url in receivers}
        self._opened = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def handle(self, sender: PeerRecord, body: bytes, request_id: str | None) -> bytes | NoReply:
        prepare = decode_prepare(body)
        opened = node_of(self._server.context).credentials.open(prepare.destination)
        concerned = opened is not None and opened.tag in self._shut_for and (self._money or not prepare.amount)
        if concerned and not self._opened.is_set():
            self._loop = asyncio.get_running_loop()
            self.held += 1
            await self._opened.wait()
        return await self._handle(sender, body, request_id)

    def open(self) -> None:
        assert self._loop is not None, "nothing has come"
        self._loop.call_soon_threadsafe(self._opened.set)


@pytest.fixture
def pair(pair: Pair) -> Pair:
    """The first of the two peers waits long for answers."""
    hurried(pair[0], idle_timeout=60 * SECOND, probe_timeout=60 * SECOND)
    return pair


@pytest.fixture
def shut(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Shut:
    """Shuts a gate at the second server."""

    def make(*receivers: str, money: bool = True) -> Gate:
        gate = Gate(pair[1], receivers, money=money)
        monkeypatch.setattr(node_of(pair[1].context).connector, "handle", gate.handle)
        return gate

    return make


def test_wallet_whose_receivers_take_no_packets_keeps_no_other_waiting(pair: Pair, shut: Shut) -> None:
    a, b = pair
    slow, quick = bill(b, b.wallet("bob")), bill(b, b.wallet("bob"))
    made = example(pair)
    gate = shut(slow)
    stuck = begin(a, made, "alice", slow, MORE_THAN_A_TURN)
    wait_until(lambda: gate.held == MAX_SENDING_PAYMENTS_OF_WALLET)
    wait_until_completed(a, begin(a, made, "bob", quick, 2))
    assert received(b, quick).received == 2 * VALUE
    assert sorted(one.attempts for one in records(a, stuck)) == [0, 0] + [1] * MAX_SENDING_PAYMENTS_OF_WALLET
    assert gate.held == MAX_SENDING_PAYMENTS_OF_WALLET
    gate.open()
    wait_until_completed(a, stuck)
    assert received(b, slow).received == MORE_THAN_A_TURN * VALUE


def test_wallet_whose_receivers_hold_packets_leaves_others_places_on_the_link(pair: Pair, shut: Shut) -> None:
    """Each payment has twenty packets, all under way at once; four payments have more than the link has places."""
    a, b = pair
    hurried(a, first_round=node_of(a.context).payments.outbound.timing.largest_round)
    change(b, "a", max_packet=VALUE // 20)
    slow, quick = bill(b, b.wallet("bob")), bill(b, b.wallet("bob"))
    made = example(pair)
    gate = shut(slow)
    stuck = begin(a, made, "alice", slow)
    wait_until(lambda: gate.held == 20)
    stuck += begin(a, made, "alice", slow, 3)
    wait_until(lambda: gate.held == MAX_SENT_OF_WALLET)
    wait_until_completed(a, begin(a, made, "bob", quick))
    assert received(b, quick).received == VALUE
    recorded = a.read(lambda tx: packets.prepared_packets(tx, 1000))
    assert len(recorded) == gate.held == MAX_SENT_OF_WALLET  # the others wait before they are recorded
    gate.open()
    wait_until_completed(a, stuck)
    assert received(b, slow).received == 4 * VALUE


def test_packets_of_every_kind_fit_into_what_a_peer_takes() -> None:
    money = MAX_SENT + MAX_PASSED_ON + unanswered.ASKED_AT_ONCE
    assert money <= BOUNDS.per_host
    assert money + MAX_PROBES <= MAX_PACKETS_IN_FLIGHT


def test_peer_that_leaves_the_packets_of_quotes_unanswered_has_that_as_its_last_error(pair: Pair, shut: Shut) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"))
    assert quote(a, receiver, debitAmount=amount(VALUE)).status_code == 201
    assert peer_of(a, "b").last_error is None
    hurried(a, probe_timeout=SECOND)
    gate = shut(receiver)
    error = refusal(quote(a, receiver, debitAmount=amount(VALUE)), 400, "invalid_receiver", reason="no_path")
    assert error["details"]["hint"].endswith("within 1 seconds. No answer came from test.b.")
    assert peer_of(a, "b").last_error == SILENT
    gate.open()


def example(pair: Pair) -> OutgoingRecord:
    """A payment that has ended, whose like is then begun many times at once."""
    a, b = pair
    return pay(a, a.wallet("alice"), bill(b, b.wallet("bob")), debitAmount=amount(VALUE)).record


def begin(instance: Instance, like: OutgoingRecord, path: str, receiver: str, count: int = 1) -> list[str]:
    """So many payments from the wallet at `path`, made at once; their ids."""
    now = instance.clock.now()
    anew: dict[str, Any] = {"quote_id": None, "grant_id": None, "sent": 0, "delivered": 0, "attempts": 0}
    anew |= {
        "state": "sending",
        "created_at": now,
        "ended_at": None,
        "terms": msgspec.structs.replace(like.terms, receiver=receiver),
    }

    def unit(tx: Work) -> list[str]:
        wallet, made = require_wallet(tx, path), []
        for _ in range(count):
            payment_id = new_id()
            payment = msgspec.structs.replace(like, id=payment_id, wallet_address_id=wallet.id, **anew)
            OUTGOING.insert(tx, payment)
            ledger.hold(tx, wallet.account_id, payment.terms.debit, outgoing_payment_id=payment_id)
            made.append(payment_id)
        return made

    ids = instance.write(unit)
    node_of(instance.context).payments.wake()
    return ids


def records(instance: Instance, ids: Collection[str]) -> list[OutgoingRecord]:
    found = instance.read(lambda tx: [OUTGOING.get(tx, payment_id) for payment_id in ids])
    return [record for record in found if record is not None]


def wait_until_completed(instance: Instance, ids: Collection[str]) -> None:
    wait_until(lambda: all(one.state != "sending" for one in records(instance, ids)))
    assert {(one.state, one.delivered) for one in records(instance, ids)} == {("completed", VALUE)}
