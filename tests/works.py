"""Units of work over a connection of the test's own, and grants, peers and payments for them to work on."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final, TypeVar

import msgspec

from payres.core.grants.access import Caller, Holder
from payres.core.process.settings import Settings
from payres.core.protocol.amounts import MAX_LEDGER, Asset, Offer, ProbedPath, Terms
from payres.core.protocol.gnap import Access, IncomingPaymentAccess
from payres.core.protocol.identifiers import hash_secret, new_id
from payres.core.protocol.wire import encode
from payres.core.store.clients import Client
from payres.core.store.grants import GRANTS, GrantRecord, TokenHolder
from payres.core.store.outgoing_payments import OutgoingRecord
from payres.core.store.rows import number
from payres.core.store.work import Environment, Transaction, Work
from payres.interledger.store.peers import PeerRecord
from payres.operator import refunds
from payres.operator.peers import add_peer
from payres.people.refund_events import emit_return_payment
from payres.people.store.refunds import REFUNDS, RefundRecord
from payres.people.store.standing_orders import OrderRecord
from payres.testing.clock import MovableClock

T = TypeVar("T")
USD: Final = Asset("USD", 2)
NOW: Final = 1_700_000_000_000_000  # the time of the fixture `tx`


def work_at(connection: Transaction, now: int, settings: Settings | None = None) -> Work:
    """The Work of a unit that runs at this moment."""
    environment = Environment.of(settings or Settings(), MovableClock(now, frozen=True))
    return Work(connection, msgspec.structs.replace(environment, emit_ungranted=emit_return_payment))


class Killed(Exception):
    """The process died before a unit of work."""


class InSteps:
    """Runs the units of an operation of several with `run`, such as the `write` of an instance.

    `changed` are the rows that each unit which writes has changed, also by foreign keys and triggers, and `statements`
    how many it ran. Before the one that would follow after `most`, the process dies.
    """

    def __init__(self, run: Callable[[Callable[[Work], Any]], Any], most: int = 1 << 30) -> None:
        self._run = run
        self._most = most
        self.changed: list[int] = []
        self.statements: list[int] = []

    async def read(self, unit: Callable[[Work], T]) -> T:
        found: T = self._run(unit)
        return found

    async def write(self, unit: Callable[[Work], T]) -> T:
        if len(self.changed) >= self._most:
            raise Killed

        def counted(work: Work) -> T:
            before, ran, execute = number(work, "SELECT total_changes()"), list[str](), work.execute

            def execute_counted(sql: str, *values: Any) -> Any:
                ran.append(sql)
                return execute(sql, *values)

            work.execute = execute_counted
            found = unit(work)
            work.execute = execute
            self.statements.append(len(ran))
            self.changed.append(number(work, "SELECT total_changes()") - before)
            return found

        made: T = self._run(counted)
        return made


def in_steps(operation: Callable[..., Coroutine[Any, Any, T]], over: Work | InSteps, *args: Any, **given: Any) -> T:
    """The result of an operation of several units, run over one unit of the test's own, or as is said."""
    units = InSteps(lambda unit: unit(over)) if isinstance(over, Work) else over
    return asyncio.run(operation(units, *args, **given))


def refund(work: Work, wanted: refunds.WantedRefund, offer: Offer | None = None) -> list[RefundRecord]:
    """Makes a refund, all of it in this unit."""
    found = refunds.plan(work, wanted, None if offer is None else offer.terms.debit)
    made = [*found.made]
    for first in range(0, len(found.parts) or int(not made), refunds.PARTS_AT_ONCE):
        made += refunds.make(work, found, first, offer)
    return [REFUNDS.by_id(work, one) for one in made]


@contextmanager
def savepoint(tx: Transaction) -> Iterator[None]:
    """Undoes what the block did, and that alone, when it raises."""
    tx.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        tx.execute("ROLLBACK TO part")
        tx.execute("RELEASE part")
        raise
    tx.execute("RELEASE part")


def issued_grant(work: Work, client_id: int, purge_at: int | None = None) -> GrantRecord:
    """A new grant to create incoming payments in any wallet, without a token."""
    grant = GrantRecord(
        id=work.new_id(),
        client_id=client_id,
        client_name=None,
        state="issued",
        access=encode([IncomingPaymentAccess(actions=["create"])]).decode(),
        subject=None,
        wallet_address_id=None,
        continue_hash=hash_secret(work.new_secret()),
        waits_from=work.now,
        created_at=work.now,
        ended_at=None,
        purge_at=purge_at,
    )
    GRANTS.insert(work, grant)
    return grant


def caller_of(client_id: int, grant_id: str, *items: Access, wallet_address: str = "") -> Caller:
    """Who may create what these items of a grant permit."""
    client = Client("https://shop.example", "https://shop.example", None)
    record = TokenHolder(
        token_id="token",
        expires_at=NOW,
        revoked_at=None,
        grant_id=grant_id,
        grant_state="issued",
        access="[]",
        client_id=client_id,
        client_identity=client.identity,
        client_wallet_address=client.wallet_address,
        client_jwk=client.jwk,
    )
    return Caller(Holder(record, client, (), {}), "create", items, wallet_address)


def add_usd_peer(work: Work, name: str, credit_limit: str = "0", **terms: Any) -> PeerRecord:
    """A peer that settles in US cents, with the tokens `out` and `in`, unless the terms say otherwise."""
    usual: dict[str, Any] = {
        "name": name,
        "ilp_address": f"test.{name}",
        "asset_code": "USD",
        "asset_scale": 2,
        "url": f"https://{name}.example/ilp",
        "outgoing_token": "out",
        "incoming_token": "in",
        "credit_limit": credit_limit,
    }
    return add_peer(work, **(usual | terms))


def standing_order(wallet_id: int, payee: str, **given: Any) -> OrderRecord:
    """A standing order of a dollar every month, which is active; no row is made."""
    usual: dict[str, Any] = {
        "id": new_id(),
        "wallet_address_id": wallet_id,
        "payee": payee,
        "payee_name": "Bob",
        "value": 100,
        "fixed": "send",
        "most": 100,
        "receive_code": USD.code,
        "receive_scale": USD.scale,
        "note": "",
        "interval": "R/2030-01-01T06:00:00Z/P1M",
        "zone": "UTC",
        "state": "active",
        "created_at": NOW,
    }
    return OrderRecord(**(usual | given))


def sending_payment(
    payment_id: str,
    wallet_id: int,
    client_id: int,
    created_at: int,
    terms: Terms,
    grant_id: str | None = None,
    window_start: int = 0,
) -> OutgoingRecord:
    """An outgoing payment in progress, of which nothing has been sent yet; no row is made."""
    return OutgoingRecord(
        id=payment_id,
        wallet_address_id=wallet_id,
        client_id=client_id,
        grant_id=grant_id,
        window_start=window_start,
        quote_id=None,
        sent=0,
        delivered=0,
        state="sending",
        failure=None,
        metadata=None,
        created_at=created_at,
        ended_at=None,
        terms=terms,
    )


def offer_elsewhere(
    debit: int,
    receive: int | None = None,
    fee: int = 0,
    receiver: str = "https://elsewhere.example/incoming-payments/1",
    asset: Asset = USD,
    rate: Fraction = Fraction(1),
) -> Offer:
    """What a receiver on another server gets, over a path that takes anything in one packet."""
    terms = Terms(
        receiver=receiver,
        incoming_payment_id=None,
        debit=debit,
        fee=fee,
        receive=debit if receive is None else receive,
        asset=asset,
        path=ProbedPath(rate, rate, MAX_LEDGER),
        sends_all=True,
    )
    return Offer(terms, None)
