"""Apps: clients that ask for bills, quotes and payments over HTTP, under grants of the owners, and keep a journal."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import httpx2
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.client import Grant, access, errors
from payres.client.clients import AsyncClient
from payres.client.errors import OpenPaymentsError
from payres.client.grants import PendingGrant
from payres.client.resources import IncomingPayment, Quote
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.wire import Amount, WalletAddress
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.operator.keys import add_key
from payres.testing.request_rules import CONSENT_PAGE
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
    *(("", 1, None), ("", 1, None), ("P1D", 86_400, None), ("P1M", 40 * 86_400, None), ("PT1H", 3600, None)),
    *(("PT15S", 15, None), ("PT20S", 10, 1)),
)
MOST: Final = 600  # cents of a payment
# Of an answer, what the event of a creation does not say, or in another form.
UNTOLD: Final = ("createdAt", "expiresAt", "methods", "grantSpentDebitAmount", "grantSpentReceiveAmount")
Kind = Literal["incoming", "quote", "outgoing"]


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

    def as_asked(self) -> dict[str, Any]:
        """As a grant request has it."""
        count = "" if self.repeated is None else self.repeated
        start = datetime.fromtimestamp(self.start // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        interval = f"R{count}/{start}/{self.duration}" if self.duration else None
        amount = {f"{self.of}_amount": amount_of(self.value, self.asset)}
        return {**amount, "interval": interval, "receiver": self.receiver or None}


class Allowance(msgspec.Struct):
    """What an owner allowed to pay, with its grant when that has come; `target` is where the browser went, None if the
    app polls. It `is_over` for the app when its token was ended, or may have been."""

    wallet: Wallet
    limit: Limit | None
    pending: PendingGrant
    target: str | None
    given: int  # in microseconds of the world
    grant: Grant = msgspec.field(default_factory=Grant)
    is_over: bool = False
    cancelled: tuple[int, ...] = (0,)  # how often, which a lost answer leaves open

    @property
    def id(self) -> str:
        return self.pending.continue_uri.rpartition("/")[2]


class Asked(msgspec.Struct):
    """Something that an app asked a server to create. `state` is "made", "refused" or "unknown": of all copies.

    What is made `is_once` may be asked for again, as its key or its quote says; `values` are what was acknowledged.
    """

    kind: Kind
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
        self.consents: list[Allowance] = []  # whose grant has not come yet
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

    async def _begin(self) -> None:
        for wallet in self.town.wallets:
            self.addresses[wallet] = await self.client.wallet_address.get(wallet.url)
        for server in self.town.servers:
            await self._grant_at(server)
        await self.try_to(self._allowance())  # its owner may deny it

    async def spend(self, seconds: float) -> None:
        """Begins with a token of the day before, as it is."""
        old = [one for one in self.allowances if not one.is_over and self.world.microseconds - one.given > OLD]
        if old:
            await self.try_to(self.is_refused(old[0].wallet, old[0].grant.value))
        await super().spend(seconds)

    async def act(self) -> None:
        habits = {self._pay_some: 6, self._race: 1, self._look_after: 1, self._rotate: 2, self._end: 1}
        await self.draws.choices([*habits], [*habits.values()])[0]()

    async def _grant_at(self, server: Server) -> Grant:
        """The grant for bills and quotes of all wallets of a server."""
        if server not in self._grants:
            incoming = access.incoming_payment("create", "read", "list", "complete")
            self._grants[server] = await self.client.grant.obtain(server.base_url, incoming, access.quote("create"))
        return self._grants[server]

    async def _allowance(self) -> Allowance:
        usable, draws = [one for one in self.allowances if not one.is_over], self.draws
        if usable and (len(usable) > 2 or draws.random() < 0.6):
            return draws.choice(usable)
        if self.consents and draws.random() < 0.7:
            return await self.take(draws.choice(self.consents))
        wallet = draws.choice(self.town.wallets)
        return await self._ask_owner(wallet, self._draw_limit(wallet) if draws.random() < 0.85 else None)

    def _draw_limit(self, wallet: Wallet) -> Limit:
        draws = self.draws
        of: Literal["debit", "receive"] = "debit" if draws.random() < 0.6 else "receive"
        payee, receiver = draws.choice(self.town.wallets), ""
        if self._open and draws.random() < 0.3:
            payee, receiver = self._open[-1][0], self._open[-1][1].id
        asset = wallet.asset if of == "debit" else payee.asset
        duration, ago, repeated = draws.choice(INTERVALS)
        start = (self.node.now() // SECOND - draws.randrange(ago)) * SECOND
        return Limit(of, minor(draws.randint(1, 3 * MOST), asset), asset, start, duration, repeated, receiver)

    async def _ask_owner(self, wallet: Wallet, limit: Limit | None) -> Allowance:
        limits = limit.as_asked() if limit else {}
        asked = access.outgoing_payment("create", "read", "list", identifier=wallet.url, **limits)
        finish = self.draws.choice((None, "http://app.test/done"))
        pending = await self.client.grant.start(self.addresses[wallet], asked, finish=finish)
        found = CONSENT_PAGE.search(pending.redirect)
        assert found is not None, pending.redirect
        approves, given = self.draws.random() < 0.9, self.world.microseconds
        target = await decided(wallet, found[1], found[2], approves)
        consent = Allowance(wallet, limit, pending, target, given)
        if approves:
            self.consents.append(consent)
            return await self.take(consent)
        self._tell(consent, "grant.denied")
        await self._given(consent)
        raise Violation(f"{self.name} got a grant at {wallet.url} that its owner denied")

    async def take(self, consent: Allowance) -> Allowance:
        """Gets the grant that an owner allowed, whatever became of it so far."""
        consent.grant = await self._given(consent)
        self.consents.remove(consent)
        self.allowances.append(consent)
        self._tell(consent, "grant.issued")
        self.world.counts["apps: grants of owners"] += 1
        return consent

    async def _given(self, consent: Allowance) -> Grant:
        if consent.target is None:
            return await self.client.grant.wait(consent.pending, 10)
        return await self.client.grant.finish(consent.pending, consent.target)

    def _tell(self, consent: Allowance, event: str) -> None:
        facts = {"id": consent.id, "walletAddress": consent.wallet.url}
        self.town.told.append(Told(consent.wallet.server, consent.given, event, consent.id, facts=facts))

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
        is_keyed, grant = self.draws.random() < 0.6, await self._grant_at(wallet.server)
        asked = self._new("incoming", wallet, is_once=is_keyed)
        about: dict[str, Any] = {"incoming_amount": None if value is None else amount_of(value, wallet.asset)}
        about |= {"metadata": {"mark": asked.mark}, "idempotency_key": asked.mark if is_keyed else ""}
        copies = 2 if is_keyed and self.draws.random() < 0.2 else 1  # at once
        answers = await asyncio.gather(*(self._create(asked, grant, **about) for _ in range(copies)))
        if is_keyed and self.draws.random() < 0.4:
            answers.append(await self._create(asked, grant, **about))
        made: IncomingPayment | None = next(filter(None, answers), None)
        if made is not None:
            assert made.expires_at
            asked.values = (value,)
            expires_at = round(made.expires_at.timestamp()) * SECOND
            self.town.bills.append(Bill(wallet, asked.id, value, expires_at, DAY // SECOND))
            self._open.append((wallet, made))
        return made

    async def quote(self, wallet: Wallet, bill: str, **fixed: Any) -> Quote | None:
        """A quote for a bill; None if it was refused or nobody knows."""
        grant, asked = await self._grant_at(wallet.server), self._new("quote", wallet, is_once=True)
        made: Quote | None = await self._create(asked, grant, receiver=bill, idempotency_key=asked.mark, **fixed)
        asked.values = _values(made) if made else ()
        return made

    async def pay(self, allowance: Allowance, *, quote: Quote | None = None, **wanted: Any) -> Asked:
        """Pays a quote, or an amount with a key. It asks again now and then if nobody knows."""
        asked = self._new("outgoing", allowance.wallet, is_once=True)
        about = wanted if quote is None else {"quote_id": quote.id}
        about |= {"metadata": {"mark": asked.mark}}
        about["idempotency_key"] = asked.mark if quote is None or self.draws.random() < 0.5 else ""
        made = await self._create(asked, allowance.grant, **about)
        if asked.state == "unknown" and self.draws.random() < 0.7:
            made = await self._create(asked, allowance.grant, **about)
        if quote and made and _values(made) != _values(quote):
            raise Violation(f"{asked} was quoted as {quote}")
        if made is not None:
            asked.values = (*_values(made), made.receiver, allowance.id)
            self.town.sent.append(Sent(allowance.wallet, asked.id, made.receiver, asked.values[:2]))
        return asked

    def _new(self, kind: Kind, wallet: Wallet, *, is_once: bool) -> Asked:
        mark = f"{self.name}-{len(self.asked) + 1}"
        asked = Asked(kind, wallet, mark, self.world.microseconds, self.world.now, is_once)
        self.asked.append(asked)
        return asked

    async def _create(self, asked: Asked, grant: Grant, **about: Any) -> Any:
        """The result of one more try, which is noted; None if there is none."""
        made, calls = None, getattr(self.client, asked.kind if asked.kind == "quote" else f"{asked.kind}_payment")
        try:
            made = await calls.create(self.addresses[asked.wallet], grant, **about)
            asked.id, state = made.id.rpartition("/")[2], "made"
        except errors.InvalidAnswer as wrong:
            raise Violation(f"{asked}: {wrong}") from wrong
        except errors.OpenPaymentsError as failure:
            state = self._state_after(asked, failure)
        finally:
            asked.ended = self.world.now
        if made is not None and asked.kind != "quote":
            facts = {key: one for key, one in msgspec.to_builtins(made).items() if key not in UNTOLD}
            event = f"{asked.kind}_payment.created"
            self.town.told.append(Told(asked.wallet.server, asked.asked_at, event, asked.id, facts=facts))
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
        has_copies = self.retries and (asked.kind != "outgoing" or was_lost)
        is_open = status in (0, 504) and not isinstance(last, errors.NotSent)
        return "unknown" if has_copies or is_open else "refused"

    async def _race(self) -> None:
        allowance = await self._allowance()
        await asyncio.gather(*(self.try_to(self._pay_some(allowance)) for _ in range(2)))

    async def _pay_some(self, allowance: Allowance | None = None) -> None:
        """Pays a bill of the foreign server, the one that the limit is for, or a new one; by a quote or without."""
        draws, allowance = self.draws, allowance or await self._allowance()
        wallet, cents, fixed = allowance.wallet, draws.randint(1, MOST), dict[str, Any]()
        if self.town.abroad and draws.random() < 0.3:
            payee = draws.choice(self.town.abroad)
            bill = payee.server.ask_for(payee, minor(cents, payee.asset)).shown["id"]
        else:
            found = await self._bill_for(allowance, cents)
            if found is None:
                return
            at, made = found
            bill = made.id
            if not made.incoming_amount:
                of, asset = draws.choice((("debit_amount", wallet.asset), ("receive_amount", at.asset)))
                fixed = {of: amount_of(minor(cents, asset), asset)}
        if "debit_amount" in fixed and draws.random() < 0.5:
            await self.pay(allowance, incoming_payment=bill, **fixed)
        elif quote := await self.quote(wallet, bill, **fixed):
            await asyncio.gather(*(self.pay(allowance, quote=quote) for _ in range(draws.choice((1, 1, 1, 2)))))

    async def _bill_for(self, allowance: Allowance, cents: int) -> tuple[Wallet, IncomingPayment] | None:
        """The bill that the limit is for, or another one, which may be refused."""
        named = [one for one in self._open if allowance.limit and one[1].id == allowance.limit.receiver]
        if named and self.draws.random() < 0.5:
            return named[0]
        payee = self.draws.choice([one for one in self.town.wallets if one is not allowance.wallet])
        made = await self.ask_for(payee, self.draws.choice((None, minor(cents, payee.asset))))
        return (payee, made) if made else None

    async def _look_after(self) -> None:
        if not self._open:
            return
        wallet, bill = self.draws.choice(self._open)
        grant, calls = await self._grant_at(wallet.server), self.client.incoming_payment
        read = await calls.get(bill.id, grant)
        if any(getattr(read, name) != getattr(bill, name) for name in ("incoming_amount", "metadata", "created_at")):
            raise Violation(f"{self.name}: {bill} became {read}")
        await calls.list(self.addresses[wallet], grant, first=5)
        if self.draws.random() < 0.4:
            done = await calls.complete(bill.id, grant)
            known = next(one for one in self.town.bills if one.url == bill.id)
            self.town.completed[known] = int(done.received_amount.value)


def amount_of(value: int, asset: Asset) -> Amount:
    return Amount(value=str(value), asset_code=asset.code, asset_scale=asset.scale)


def _values(made: Any) -> tuple[int, int]:
    """Of a quote or a payment."""
    return int(made.debit_amount.value), int(made.receive_amount.value)
