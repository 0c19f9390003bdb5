"""Several servers on loopback that are Interledger peers, payments between them, and the check of their ledgers."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from payres.core.payments import ledger
from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import SECOND, Clock
from payres.core.store.accounts import ACCOUNTS, AccountRecord
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger import quoting, unanswered
from payres.interledger.node import node_of
from payres.interledger.sending import payment, probe
from payres.interledger.sending.timing import monotonic as monotonic_now
from payres.interledger.settings import InterledgerSettings
from payres.interledger.store import packets, peers
from payres.interledger.store.peers import PeerRecord
from payres.interledger.unanswered import UnansweredPackets, seconds_until
from payres.operator import assets
from payres.operator.assets import require_asset
from payres.operator.peers import change_peer, require_peer
from tests.helpers import TIMEOUT, last_segment, wait_until
from tests.instance import Instance, run_instance

Json = dict[str, Any]
USD = Asset("USD", 2)
EUR = Asset("EUR", 2)
JPY = Asset("JPY", 0)
NANO_USD = Asset("USD", 9)
RICH = "1000000.00"
SLOWLY = {"interval": SECOND // 50}  # between packets: a test interferes in the middle of a payment
FEW_PACKETS = {"idle_timeout": 5 * SECOND, "first_pause": SECOND}  # five, before a payment gives up that no peer takes


class Paid(msgspec.Struct, frozen=True):
    """A payment from its quote (none for a payment without) to its end, as the wire and as the rows have it."""

    quote: Json | None
    created: Json
    ended: Json
    record: OutgoingRecord


@contextmanager
def network(folder: Path, *names: str) -> Iterator[Sequence[Instance]]:
    """Servers with the ILP addresses `test.NAME`, peers of nobody yet, which are patient."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(run_instance(folder / f"{name}.db", ilp_address=f"test.{name}")) for name in names
        ]
        yield [hurried(server, idle_timeout=30 * SECOND, probe_timeout=30 * SECOND) for server in servers]


def hurried(instance: Instance, **timing: int) -> Instance:
    """The same server with other times (microseconds) for its own packets."""
    outbound = node_of(instance.context).payments.outbound
    outbound.timing = msgspec.structs.replace(outbound.timing, **timing)
    return instance


def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves the time of payments and probes ahead where they would wait with no packet on its way."""
    skipped = 0

    async def pause(microseconds: int) -> None:
        nonlocal skipped
        skipped += microseconds

    for module in (payment, probe, quoting):
        monkeypatch.setattr(module, "monotonic", lambda: monotonic_now() + skipped)
    for module in (payment, probe):
        monkeypatch.setattr(module, "pause", pause)


def amount(value: int, asset: Asset = USD) -> Json:
    """An amount as the wire has it."""
    return {"value": str(value), "assetCode": asset.code, "assetScale": asset.scale}


def bill(instance: Instance, wallet: str, wanted: int | None = None, asset: Asset = USD) -> str:
    """The URL of a new incoming payment."""
    payment = instance.client.create_incoming_payment(wallet, None if wanted is None else amount(wanted, asset))
    return str(payment["id"])


def pay(instance: Instance, wallet: str, receiver: str, limits: Json | None = None, **amounts: Json) -> Paid:
    """Quotes, pays, and waits for the end."""
    quoted = instance.client.create_quote(wallet, receiver, **amounts)
    created = instance.client.create_outgoing_payment(wallet, quoted["id"], limits)
    return ended(instance, created, quoted)


def quote(instance: Instance, receiver: str, path: str = "alice", **amounts: Json) -> Any:
    """The answer to a request for a quote from a wallet."""
    wallet = instance.wallet(path)
    token = instance.client.grant({"type": "quote", "actions": ["create"], "identifier": wallet})
    body = {"walletAddress": wallet, "receiver": receiver, "method": "ilp", **amounts}
    return instance.client.post("/quotes", body, token)


def ended(instance: Instance, created: Json, quote: Json | None = None) -> Paid:
    """The payment at its end."""
    shown = instance.wait_for(created, TIMEOUT)
    return Paid(quote, created, shown, sent(instance, created))


class Waits:
    """Knows which payments only wait for their clock, so that a test moves it then and never while packets are on their
    way, however slow the machine is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._until: dict[Clock, int | None] = {}  # what the servers wait for that have nothing to do
        self._settling: set[str] = set()  # payments that send nothing, but wait for the outcome of packets
        settled = UnansweredPackets.settled

        async def noted_settled(packets: UnansweredPackets, payment_id: str) -> None:
            self._settling.add(payment_id)
            try:
                await settled(packets, payment_id)
            finally:
                self._settling.discard(payment_id)

        def noted_seconds(clock: Clock, due: int | None) -> float:
            self._until[clock] = due
            return seconds_until(clock, due)

        monkeypatch.setattr(UnansweredPackets, "settled", noted_settled)
        monkeypatch.setattr(unanswered, "TICK_SECONDS", 0.01)
        monkeypatch.setattr(unanswered, "seconds_until", noted_seconds)

    def has(self, instance: Instance, created: Json) -> bool:
        """Whether the payment waits, and with it all that the server sends."""
        sending = set(node_of(instance.context).payments._sending.copy())
        until = self._until.get(instance.clock)
        is_settling = last_segment(created["id"]) in sending <= self._settling
        return is_settling and until is not None and until > instance.clock.now()

    def end(self, servers: Sequence[Instance], created: Json, seconds: int = 10) -> Paid:
        """A payment of the first server at its end. So many seconds pass on all servers whenever it only waits."""
        instance = servers[0]
        while True:
            wait_until(lambda: sent(instance, created).state != "sending" or self.has(instance, created))
            if sent(instance, created).state != "sending":
                return ended(instance, created)
            let_time_pass(servers, seconds)


def let_time_pass(servers: Sequence[Instance], seconds: int) -> None:
    for server in servers:
        server.clock.advance(seconds)


def sent(instance: Instance, created: Json) -> OutgoingRecord:
    """The row of an outgoing payment."""
    found = instance.read(lambda tx: OUTGOING.get(tx, last_segment(created["id"])))
    assert found is not None
    return found


def received(instance: Instance, receiver: str) -> IncomingRecord:
    """The row of an incoming payment."""
    found = instance.read(lambda tx: INCOMING.get(tx, last_segment(receiver)))
    assert found is not None
    return found


def set_rate(base: str, counter: str, rate: str, *instances: Instance) -> None:
    """What one unit of `base` buys from now on."""
    for instance in instances:
        instance.write(lambda tx: assets.set_rate(tx, base, counter, rate))


def set_fee(instance: Instance, fixed: str, basis_points: int) -> None:
    """What sending US dollars costs from now on."""
    instance.write(lambda tx: assets.set_fee(tx, "USD", 2, fixed, basis_points))


def add_liquidity(instance: Instance, asset: Asset, text: str = RICH) -> None:
    """Money of the operator for exchanges."""
    text = text if asset.scale else text.partition(".")[0]
    instance.write(lambda tx: assets.deposit_liquidity(tx, asset.code, asset.scale, text))


def operator_money(instance: Instance, asset: Asset) -> int:
    """What the operator has for exchanges into an asset."""

    def unit(tx: Work) -> int:
        known = require_asset(tx, asset.code, asset.scale)
        return ACCOUNTS.by_id(tx, ledger.operator_account(tx, known.id, "liquidity")).balance

    return instance.write(unit)


def wait_for_packet(instance: Instance, name: str) -> None:
    """Returns once the peer `test.NAME` has fulfilled a packet."""
    wait_until(lambda: peer_of(instance, name).packets_sent, "no packet has arrived", pause=0)


def change(instance: Instance, name: str, **terms: Any) -> None:
    """Changes what was agreed with the peer `test.NAME`; a `credit_limit` is in the smallest unit."""

    def unit(tx: Work) -> None:
        if "credit_limit" in terms:
            asset = require_peer(tx, f"test.{name}").asset
            terms["credit_limit"] = format_decimal(terms["credit_limit"], asset)
        change_peer(tx, f"test.{name}", **terms)

    instance.write(unit)


def peer_of(instance: Instance, name: str) -> PeerRecord:
    """The peer `test.NAME` as the instance has it."""
    return instance.read(lambda tx: require_peer(tx, f"test.{name}"))


def wallet_money(instance: Instance, path: str) -> tuple[int, int]:
    """What a wallet holds, and how much of it is reserved."""

    def unit(tx: Work) -> AccountRecord:
        return ACCOUNTS.by_id(tx, require_wallet(tx, path).account_id)

    account = instance.read(unit)
    return account.balance, account.held


def check_books(*instances: Instance) -> None:
    """All ledgers hold, nothing is under way, and what each owes its peers is what they have it owe them."""
    known = {instance.context.settings.of(InterledgerSettings).ilp_address: instance for instance in instances}
    for address, instance in known.items():
        instance.check_ledger()
        assert not instance.read(lambda tx: packets.prepared_packets(tx, 10))
        for peer in instance.read(peers.list_peers):
            there = known[peer.ilp_address].read(peers.list_peers)
            (mirrored,) = [
                one
                for one in there
                if (one.ilp_address, one.asset_id) == (address, one.asset_id)
                and (one.asset_code, one.asset_scale) == (peer.asset_code, peer.asset_scale)
            ]
            assert peer.balance == -mirrored.balance, f"{address} and {peer.ilp_address} differ"
            assert peer.held == 0
            assert peer.packets_sent == mirrored.packets_received


async def never(*_: object) -> Any:
    """Posts nothing, and never knows."""
    await asyncio.Event().wait()


def forgetting(post: Any) -> Any:
    """Posts, and never hears the answer."""

    async def post_and_forget(*arguments: Any) -> Any:
        await post(*arguments)
        await asyncio.Event().wait()

    return post_and_forget
