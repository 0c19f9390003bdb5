"""Apps: clients that ask for bills, quotes and payments over HTTP, under grants of the owners, and keep a journal."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import httpx2
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.client import AsyncClient, Grant, OpenPaymentsError, PendingGrant, access, errors
from payres.client.resources import IncomingPayment, OutgoingPayment, Quote
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.wire import Amount, WalletAddress
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.operator.keys import add_key
from payres.testing.rules import CONSENT_PAGE
from tests.simulation.bills import decided
from tests.simulation.currencies import minor
from tests.simulation.resident import Caller
from tests.simulation.server import REFUSED, Server
from tests.simulation.town import Bill, Sent, Told, Town, Wallet
from tests.simulation.world import Violation

APPS: Final = 2
PATIENCE: Final = 4.0  # seconds to connect, and again until the answer, of each attempt
OLD: Final = HOUR  # after which a token has expired
# Of a limit: its interval's duration, how many seconds ago it may have begun, and how often it is repeated.
INTERVALS: Final = (
    *(None, None, ("P1D", 86_400, None), ("P1M", 40 * 86_400, None), ("PT1H", 3600, None)),
    *(("PT15S", 15, None), ("PT20S", 10, 1)),
)
MOST: Final = 600  # cents of a payment
# What an answer says that the event of a creation says too.
ANSWERED: Final = (
    *("id", "walletAddress", "receiver", "completed", "failed", "incomingAmount", "receivedAmount", "debitAmount"),
    *("receiveAmount", "sentAmount", "metadata", "quoteId"),
)


class Limit(NamedTuple):
    """At most `value` of what payments debit or of what arrives, in each window. Without `duration` there is only
    one; `repeated` is how often it comes again, None for ever. It is for the bill `receiver` alone, unless empty."""

    of: Literal["debit", "receive"]
    value: int
    asset: Asset
    start: int
    duration: str = ""
    repeated: int | None = None
    receiver: str = ""

    def interval(self) -> str | None:
        """As a grant request has it."""
        count = "" if self.repeated is None else self.repeated
        start = datetime.fromtimestamp(self.start // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"R{count}/{start}/{self.duration}" if self.duration else None


class Allowance(msgspec.Struct):
    """A grant for outgoing payments. It `is_over` for the app when its token was ended, or may have been."""

    wallet: Wallet
    grant: Grant
    limit: Limit | None
    given: int  # in microseconds of the world
    is_over: bool = False
    cancelled: tuple[int, ...] = (0,)  # how often, which a lost answer leaves open

    @property
    def id(self) -> str:
        return self.grant.continue_uri.rpartition("/")[2]


class Consent(NamedTuple):
    """What an owner allowed; `target` is where the browser goes, None if the app polls."""

    wallet: Wallet
    limit: Limit | None
    pending: PendingGrant
    target: str | None
    given: int  # in microseconds of the world


class Asked(msgspec.Struct):
    """Something that an app asked a server to create. `state` is "made", "refused" or "unknown": of all copies.

    What is made `is_once` may be asked for again, as its key or its quote says; `values` are what was acknowledged.
    """

    kind: Literal["incoming", "quote", "outgoing"]
    wallet: Wallet
    mark: str  # in the metadata
    asked_at: int
    began: float
    is_once: bool
    state: str = ""
    id: str = ""
    values: tuple[Any, ...] = ()
    ended: float = 0.0
    answers: list[str] = []

    def __str__(self) -> str:
        return f"{self.kind} {self.mark} {self.id} at {self.wallet.url}, {self.state}: {self.values} {self.answers}"


class App(Caller):
    """Two of them are in a town, each on a device of its own."""

    pause, refusals = 8.0, (*REFUSED, OpenPaymentsError)

    def __init__(self, town: Town, number: int) -> None:
        self.name = f"app{number}"
        super().__init__(town, self.name, self.name, f"10.0.2.{number + 1}", PATIENCE)
        self.asked, self.allowances = list[Asked](), list[Allowance]()
        self.consents: list[Consent] = []  # whose grant has not come yet
        self.ended: list[tuple[Wallet, str]] = []  # tokens that were revoked or rotated, which was acknowledged
        self._home = self.draws.choice(town.wallets)
        self.retries = self.draws.choice((0, 0, 2))  # of the client; with some, a refusal says little
        self.client: AsyncClient
        self.addresses: dict[Wallet, WalletAddress] = {}
        self._grants: dict[Server, Grant] = {}  # for bills and quotes, which need no consent
        self._open: list[tuple[Wallet, IncomingPayment]] = []

    async def prepare(self) -> None:
        """Publishes its key at a wallet address, and looks up the others."""
        key = Ed25519PrivateKey.from_private_bytes(self.draws.randbytes(32))
        jwk = jwk_from_public_bytes(self.name, key.public_key().public_bytes_raw())
        await self._home.server.write(lambda work: add_key(work, self._home.path, jwk))
        self.node.boot()
        http: dict[str, Any] = {"transport": httpx2.AsyncHTTPTransport(verify=False), "timeout": PATIENCE}
        about = self._home.url, key, self.name
        self.client = AsyncClient(*about, max_retries=self.retries, clock=self.node, **http)
        await self.node.run(self._begin())

    async def spend(self, seconds: float) -> None:
        """Begins with an old token."""
        await self.try_to(self._use_expired())
        await super().spend(seconds)

    async def act(self) -> None:
        habits: list[Callable[[], Awaitable[object]]] = [
            *(self._pay_some, self._pay_some, self._pay_some, self._race, self._pay_twice),
            *(self._ask_for_some, self._look_after, self._rotate, self._rotate, self._end),
            *([self._pay_abroad, self._pay_abroad] if self.town.foreign else []),
        ]
        await self.draws.choice(habits)()

    async def _begin(self) -> None:
        for wallet in self.town.wallets:
            self.addresses[wallet] = await self.client.wallet_address.get(wallet.url)
        for server in self.town.servers:
            await self.grant_at(server)
        await self.try_to(self._allowance())  # its owner may deny it

    async def grant_at(self, server: Server) -> Grant:
        """The grant for bills and quotes of all wallets of a server."""
        if server not in self._grants:
            incoming = access.incoming_payment("create", "read", "list", "complete")
            self._grants[server] = await self.client.grant.obtain(server.base_url, incoming, access.quote("create"))
        return self._grants[server]

    async def _allowance(self) -> Allowance:
        usable = [one for one in self.allowances if not one.is_over]
        if usable and (len(usable) > 2 or self.draws.random() < 0.6):
            return self.draws.choice(usable)
        wallet = self.draws.choice(self.town.wallets)
        if self.consents and self.draws.random() < 0.7:
            return await self.take(self.draws.choice(self.consents))
        limit = self._draw_limit(wallet)
        if limit is not None and self._open and self.draws.random() < 0.2:
            payee, bill = self._open[-1]
            limit = limit._replace(receiver=bill.id, asset=wallet.asset if limit.of == "debit" else payee.asset)
        return await self._granted(wallet, limit)

    async def take(self, consent: Consent) -> Allowance:
        """The grant that an owner allowed, whatever became of it so far."""
        pending, limit, server = consent.pending, consent.limit, consent.wallet.server
        if consent.target is None:
            given = await self.client.grant.wait(pending, 10)
        else:
            given = await self.client.grant.finish(pending, consent.target)
        self.consents.remove(consent)
        allowance = Allowance(consent.wallet, given, limit, consent.given)
        self.allowances.append(allowance)
        facts = {"id": allowance.id, "walletAddress": consent.wallet.url}
        self.town.told.append(Told(server, consent.given, "grant.issued", allowance.id, facts=facts))
        self.world.counts["apps: grants of owners"] += 1
        return allowance

    def _draw_limit(self, wallet: Wallet) -> Limit | None:
        draws = self.draws
        if draws.random() < 0.15:
            return None
        of: Literal["debit", "receive"] = "debit" if draws.random() < 0.6 else "receive"
        asset = wallet.asset if of == "debit" else draws.choice(self.town.wallets).asset
        interval, value = draws.choice(INTERVALS), minor(draws.randint(1, 3 * MOST), asset)
        if interval is None:
            return Limit(of, value, asset, 0)
        duration, ago, repeated = interval
        start = (self.node.now() // SECOND - draws.randrange(ago)) * SECOND
        return Limit(of, value, asset, start, duration, repeated)

    async def _granted(self, wallet: Wallet, limit: Limit | None) -> Allowance:
        draws, limits = self.draws, dict[str, Any]()
        if limit is not None:
            limits = {f"{limit.of}_amount": amount_of(limit.value, limit.asset), "interval": limit.interval()}
            limits["receiver"] = limit.receiver or None
        asked = access.outgoing_payment("create", "read", "list", identifier=wallet.url, **limits)
        finish = draws.choice((None, "http://app.test/done"))
        pending = await self.client.grant.start(self.addresses[wallet], asked, finish=finish)
        found = CONSENT_PAGE.search(pending.redirect)
        assert found is not None, pending.redirect
        approves, about = draws.random() < 0.9, (wallet.server, self.world.microseconds)
        named = pending.continue_uri.rpartition("/")[2]
        target = await decided(wallet, found[1], found[2], approves)
        if not approves:
            self.town.told.append(Told(*about, "grant.denied", named, facts={"id": named, "walletAddress": wallet.url}))
            self.town.told.append(Told(*about, "grant.issued", named, (0,)))
        self.consents.append(Consent(wallet, limit, pending, target, about[1]))
        try:
            allowance = await self.take(self.consents[-1])
        finally:
            if not approves:
                del self.consents[-1]
        if not approves:
            raise Violation(f"{self.name} got a grant at {wallet.url} that its owner denied")
        return allowance

    async def _rotate(self) -> None:
        allowance = await self._allowance()
        token = allowance.grant.value
        await self.client.token.rotate(allowance.grant.manage, allowance.grant)  # if its answer is lost, again
        await self._has_ended(allowance, token)

    async def _end(self) -> None:
        """Revokes a token, or cancels its grant. If the answer is lost, nobody knows."""
        revokes, allowance = self.draws.random() < 0.5, await self._allowance()
        grant, token, allowance.is_over = allowance.grant, allowance.grant.value, True
        if revokes:
            await self.client.token.revoke(grant.manage, grant)
        else:
            allowance.cancelled = (0, 1)
            await self.client.grant.cancel(grant.continue_uri, grant.continue_token)
            allowance.cancelled = (1,)
        await self._has_ended(allowance, token)

    async def _has_ended(self, allowance: Allowance, token: str) -> None:
        self.ended.append((allowance.wallet, token))
        self.world.counts["apps: tokens rotated or revoked"] += 1
        await self.is_refused(allowance.wallet, token)

    async def _use_expired(self) -> None:
        """Tries a token of the day before, as it is."""
        old = [one for one in self.allowances if not one.is_over and self.world.microseconds - one.given > OLD]
        if old:
            await self.is_refused(old[0].wallet, old[0].grant.value)

    async def is_refused(self, wallet: Wallet, token: str) -> None:
        """Raises Violation if a token that was ended is taken."""
        try:
            await self.client.outgoing_payment.list(self.addresses[wallet], token)
        except errors.ApiError as refused:
            if refused.status in (401, 403, 503):
                return
            raise
        if not wallet.server.archive.losses:  # after a restore tokens are valid again, as docs/how-to/backup.md says
            raise Violation(f"{self.name} used a token at {wallet.url} that had ended")

    async def ask_for(self, wallet: Wallet, value: int | None) -> IncomingPayment | None:
        """An incoming payment, with a key or without; None if it was refused or nobody knows."""
        is_keyed, grant = self.draws.random() < 0.6, await self.grant_at(wallet.server)
        asked = self._new("incoming", wallet, is_once=is_keyed)
        about: dict[str, Any] = {"metadata": {"mark": asked.mark}, "idempotency_key": asked.mark if is_keyed else ""}
        about["incoming_amount"] = None if value is None else amount_of(value, wallet.asset)

        def create() -> Coroutine[Any, Any, IncomingPayment]:
            return self.client.incoming_payment.create(self.addresses[wallet], grant, **about)

        def values(made: IncomingPayment) -> tuple[Any, ...]:
            return (_value(made.incoming_amount),)

        copies = 2 if is_keyed and self.draws.random() < 0.2 else 1  # at once
        answers = await asyncio.gather(*(self._ordered(asked, create, values) for _ in range(copies)))
        if is_keyed and self.draws.random() < 0.4:
            answers.append(await self._ordered(asked, create, values))
        made: IncomingPayment | None = next(filter(None, answers), None)
        if made is not None:
            assert made.expires_at
            expires_at = round(made.expires_at.timestamp()) * SECOND
            self.town.bills.append(Bill(wallet, asked.id, value, expires_at, DAY // SECOND))
            self._open.append((wallet, made))
        return made

    async def quote(self, wallet: Wallet, bill: IncomingPayment | str, **fixed: Any) -> Quote | None:
        """A quote for a bill; None if it was refused or nobody knows."""
        grant, address = await self.grant_at(wallet.server), self.addresses[wallet]
        asked, url = self._new("quote", wallet, is_once=True), bill if isinstance(bill, str) else bill.id

        def create() -> Coroutine[Any, Any, Quote]:
            return self.client.quote.create(address, grant, receiver=url, idempotency_key=asked.mark, **fixed)

        made: Quote | None = await self._ordered(asked, create, _values)
        return made

    async def pay(self, allowance: Allowance, *, quote: Quote | None = None, **wanted: Any) -> Asked:
        """Pays a quote, or an amount with a key. It asks again now and then if nobody knows."""
        asked = self._new("outgoing", allowance.wallet, is_once=True)
        address, wanted = self.addresses[allowance.wallet], {"quote_id": quote.id} if quote else wanted
        wanted["idempotency_key"] = asked.mark if quote is None or self.draws.random() < 0.5 else ""

        def create() -> Coroutine[Any, Any, OutgoingPayment]:
            about = {"metadata": {"mark": asked.mark}, **wanted}
            return self.client.outgoing_payment.create(address, allowance.grant, **about)

        def values(made: OutgoingPayment) -> tuple[Any, ...]:
            return *_values(made), made.receiver, allowance.id

        made = await self._ordered(asked, create, values)
        if asked.state == "unknown" and self.draws.random() < 0.7:
            made = await self._ordered(asked, create, values)
        if quote and made and _values(made) != _values(quote):
            raise Violation(f"{asked} was quoted as {quote}")
        if made is not None:
            self.town.sent.append(Sent(allowance.wallet, asked.id, made.receiver, asked.values[:2]))
        return asked

    def _new(self, kind: Literal["incoming", "quote", "outgoing"], wallet: Wallet, *, is_once: bool) -> Asked:
        mark = f"{self.name}-{len(self.asked) + 1}"
        asked = Asked(kind, wallet, mark, self.world.microseconds, self.world.now, is_once)
        self.asked.append(asked)
        return asked

    async def _ordered(
        self, asked: Asked, create: Callable[[], Coroutine[Any, Any, Any]], values: Callable[[Any], tuple[Any, ...]]
    ) -> Any:
        """The result of one more try, which is noted; None if there is none."""
        made = None
        try:
            made = await create()
        except errors.InvalidAnswer as wrong:
            raise Violation(f"{asked}: {wrong}") from wrong
        except errors.OpenPaymentsError as failure:
            state = self._state_after(asked, failure)
        finally:
            asked.ended = self.world.now
        if made is not None:
            id = made.id.rpartition("/")[2]
            if asked.id and asked.id != id and not asked.wallet.server.has_lost(asked.asked_at):
                raise Violation(f"{asked} was made twice, the second time as {id}")
            state, asked.id, asked.values = "made", id, values(made)
            if asked.kind != "quote":
                facts = {key: one for key, one in msgspec.to_builtins(made).items() if key in ANSWERED}
                about = asked.wallet.server, asked.asked_at, f"{asked.kind}_payment.created", id
                self.town.told.append(Told(*about, facts=facts))
        if state == "made" or asked.state in ("", "refused"):
            asked.state = state
        self.world.counts[f"apps: {asked.kind} {state}"] += 1
        return made

    def _state_after(self, asked: Asked, failure: errors.OpenPaymentsError) -> str:
        """What a failure says of it: "refused", or "unknown" if a copy of the request may have been granted."""
        was_lost = isinstance(failure, errors.AnswerLost)
        last = failure.__cause__ if was_lost else failure  # what became of the last copy
        status = last.status if isinstance(last, errors.ApiError) else 0
        if status >= 500 and status not in (503, 504):
            raise Violation(f"{asked}: {failure}") from failure
        asked.answers.append(getattr(last, "code", "") or type(last).__name__)
        if isinstance(last, errors.TokenError) and asked.kind != "outgoing":
            self._grants.pop(asked.wallet.server, None)
        if self.retries and (asked.kind != "outgoing" or was_lost):
            return "unknown"  # there were other copies
        if isinstance(last, errors.NotSent):
            return "refused"
        return "unknown" if status in (0, 504) else "refused"

    async def _ask_for_some(self) -> IncomingPayment | None:
        cents, wallet = self.draws.choice((None, self.draws.randint(1, MOST))), self.draws.choice(self.town.wallets)
        return await self.ask_for(wallet, cents and minor(cents, wallet.asset))

    async def _pay_some(self, allowance: Allowance | None = None) -> None:
        draws, allowance = self.draws, allowance or await self._allowance()
        wallet, value = allowance.wallet, draws.randint(1, MOST)
        payee = draws.choice([one for one in self.town.wallets if one is not wallet])
        bill = next((one for _, one in self._open if allowance.limit and one.id == allowance.limit.receiver), None)
        if bill is None or draws.random() < 0.3:  # another one may be refused
            bill = await self.ask_for(payee, draws.choice((None, minor(value, payee.asset))))
        if bill is None:
            return
        if not bill.incoming_amount and draws.random() < 0.3:
            await self.pay(allowance, incoming_payment=bill.id, debit_amount=_amount(value, wallet.asset))
            return
        fixed = dict[str, Any]()
        if not bill.incoming_amount:
            of, asset = draws.choice((("debit_amount", wallet.asset), ("receive_amount", payee.asset)))
            fixed = {of: _amount(value, asset)}
        await self._quote_and_pay(allowance, bill, **fixed)

    async def _quote_and_pay(self, allowance: Allowance, bill: IncomingPayment | str, **fixed: Any) -> None:
        quote = await self.quote(allowance.wallet, bill, **fixed)
        if quote is not None:
            await self.pay(allowance, quote=quote)

    async def _race(self) -> None:
        allowance = await self._allowance()
        await asyncio.gather(*(self.try_to(self._pay_some(allowance)) for _ in range(2)))

    async def _pay_twice(self) -> None:
        allowance = await self._allowance()
        payee = self.draws.choice(self.town.wallets)
        bill = await self.ask_for(payee, minor(self.draws.randint(1, MOST), payee.asset))
        quote = bill and await self.quote(allowance.wallet, bill)
        if quote:
            await asyncio.gather(*(self.pay(allowance, quote=quote) for _ in range(2)))

    async def _pay_abroad(self) -> None:
        allowance, payee = await self._allowance(), self.draws.choice(self.town.abroad)
        bill = payee.server.ask_for(payee, minor(self.draws.randint(1, MOST), payee.asset))
        await self._quote_and_pay(allowance, bill.shown["id"])

    async def _look_after(self) -> None:
        if not self._open:
            return
        wallet, bill = self.draws.choice(self._open)
        grant = await self.grant_at(wallet.server)
        read = await self.client.incoming_payment.get(bill.id, grant)
        if any(getattr(read, name) != getattr(bill, name) for name in ("incoming_amount", "metadata", "created_at")):
            raise Violation(f"{self.name}: {bill} became {read}")
        await self.client.incoming_payment.list(self.addresses[wallet], grant, first=5)
        if self.draws.random() < 0.4:
            done = await self.client.incoming_payment.complete(bill.id, grant)
            known = next(one for one in self.town.bills if one.url == bill.id)
            self.town.completed[known] = int(done.received_amount.value)


def amount_of(value: int, asset: Asset) -> Amount:
    return Amount(value=str(value), asset_code=asset.code, asset_scale=asset.scale)


def _amount(cents: int, asset: Asset) -> Amount:
    return amount_of(minor(cents, asset), asset)


def _value(amount: Any) -> int | None:
    return int(amount.value) if amount else None


def _values(made: Quote | OutgoingPayment) -> tuple[int | None, int | None]:
    return _value(made.debit_amount), _value(made.receive_amount)
