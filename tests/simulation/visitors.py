"""People who pay bills from another server, through the bills' pages, with a browser; and what must become of that."""

import asyncio
import re
from contextlib import suppress
from typing import Any, Final

import httpx2
import msgspec

from payres.core.protocol.clock import DAY
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.payments import INCOMING
from payres.interledger.store.checkouts import CHECKOUTS, CheckoutRecord
from tests.simulation.bills import ask_for, decided
from tests.simulation.foreign import Abroad
from tests.simulation.resident import Caller
from tests.simulation.town import Bill, Town, Wallet
from tests.simulation.world import Violation

TRIES: Final = 3
MOST: Final = 400  # minor units of a bill
SAYS_NO: Final = 0.1
RETURNS: Final = ("once", "once", "once", "twice", "twice", "late", "never")
DELIVERED: Final = "SELECT delivered FROM outgoing_payment WHERE receiver = ?"
FIELD: Final = re.compile(r'<input type="hidden" name="(csrf|shown)" value="([^"]*)">')


class Visit(msgspec.Struct):
    """A bill that a visitor pays. `secret` is that of the checkout that the payer consented to; `is_back` says that its
    page was seen after that."""

    bill: Bill
    payer: Wallet | Abroad
    at: int  # microseconds of the world
    consents: bool = False
    secret: str = ""
    is_back: bool = False
    is_examined: bool = False


class Visitor(Caller):
    """Pays bills from wallets on other servers than theirs, with a browser on a machine of its own."""

    def __init__(self, town: Town, number: int) -> None:
        super().__init__(town, f"visitor {number}", f"visitor{number}", f"10.0.6.{number + 1}", 12.0)
        self._begun: tuple[Visit, str] | None = None  # with the page where the payer consents
        self._left: list[tuple[Visit, str]] = []  # with the page to return to, which was not opened yet

    async def prepare(self) -> None:
        """Switches the machine on, and begins a visit, which a storm would seldom let come so far."""
        self.node.boot()
        self._begun = await self.node.run(self._begin())

    async def spend(self, seconds: float) -> None:
        """Opens what was left for this day, and goes on with a visit."""
        while self._left:
            await self._return(*self._left.pop())
        await asyncio.sleep(self.draws.uniform(0, seconds / 2))
        await self.try_to(self._go_on())

    async def _go_on(self) -> None:
        begun, self._begun = self._begun or await self._begin(), None
        if begun:
            await self._consent(*begun)

    async def _begin(self) -> tuple[Visit, str] | None:
        town, draws = self.town, self.draws
        is_abroad = town.foreign is not None and draws.random() < 0.5
        payer: Wallet | Abroad = draws.choice(town.abroad) if is_abroad else draws.choice(town.wallets)
        payee = draws.choice([one for one in town.wallets if one.server is not payer.server])
        bill = await ask_for(town, payee, draws.randint(1, MOST))
        visit = Visit(bill, payer, self.world.microseconds)
        town.visits.append(visit)
        page = await self._choose_wallet(visit)
        return (visit, page) if page else None

    async def _consent(self, visit: Visit, page: str) -> None:
        id, nonce = page.rstrip("/").split("/")[-2:]
        visit.consents = consents = self.draws.random() >= SAYS_NO
        if isinstance(visit.payer, Abroad):
            back = visit.payer.server.decide(id, nonce, consents=consents)
        else:
            back = await decided(visit.payer, id, nonce, consents) or ""
        visit.secret = back.partition("?")[0].rpartition("/")[2]
        how = self.draws.choice(RETURNS)
        self.world.counts[f"payment pages: return {how}"] += 1
        if how == "late":
            self._left.append((visit, back))
        elif how == "twice":
            await asyncio.gather(self._return(visit, back), self._return(visit, back))
        elif how == "once":
            await self._return(visit, back)

    async def _choose_wallet(self, visit: Visit) -> str:
        """The page of the payer's server to which the bill's page leads; empty if none was reached."""
        page = f"{visit.bill.wallet.server.base_url}/pay/{visit.bill.id}"
        for _ in range(TRIES):
            form = await self._ask("GET", page)
            if form is not None and form.status_code == 200:
                fields = dict(FIELD.findall(form.text))
                answer = await self._ask("POST", page, data={**fields, "payer": visit.payer.url})
                self.world.counts[f"payment pages: {answer and answer.status_code}"] += 1
                if answer is not None and answer.status_code in {302, 303}:
                    url: str = answer.headers["location"]
                    return url if url.startswith(visit.payer.server.base_url) else ""
            await asyncio.sleep(self.draws.uniform(0.5, 3))
        return ""

    async def _return(self, visit: Visit, back: str) -> None:
        """Opens the page to which the payer's wallet leads, and goes where it leads."""
        for _ in range(TRIES):
            page = await self._ask("GET", back)
            if page is not None and page.status_code in {302, 303}:
                visit.is_back = True
                back = f"{visit.bill.wallet.server.base_url}{page.headers['location']}"
            elif page is not None and page.status_code == 200:
                return
            await asyncio.sleep(self.draws.uniform(0.2, 2))

    async def _ask(self, method: str, url: str, **body: Any) -> Any:
        """The answer, or None if it was lost."""
        with suppress(httpx2.HTTPError):
            return await self.http.request(method, url, **body)
        return None


async def paid_pages(town: Town) -> None:
    """Payment pages: what the payer consented to and came back from ends; each bill is paid once at most, by those who
    consented, and as its page says."""
    for visit in [one for one in town.visits if not one.is_examined]:
        await _examine(town, visit)


async def _examine(town: Town, visit: Visit) -> None:
    key, server = hash_secret(visit.secret), visit.bill.wallet.server
    record = await server.read(lambda work: CHECKOUTS.find(work, "WHERE id_hash = ?", key))
    if isinstance(visit.payer, Abroad):
        paid = visit.payer.server.payer.paid_to(visit.bill.url)
    else:
        paid = [delivered for (delivered,) in await visit.payer.server.rows(DELIVERED, visit.bill.url)]
    what = f"{visit.bill.url} from {visit.payer.url}: {record}, payments {paid}"
    if len(paid) > 1 or (paid and not visit.consents):
        raise Violation(f"payment page paid {len(paid)} times: {what}")
    if town.is_disturbed(visit.bill.id) or any(one.was_restored_after(visit.at) for one in town.servers):
        return
    is_purged = town.world.microseconds >= visit.at + DAY or server.may_have_purged(visit.at)
    if visit.is_back and record is None and not is_purged:
        raise Violation(f"payment page is gone: {what}")
    got = await server.read(lambda work: INCOMING.by_id(work, visit.bill.id).received)
    if record is not None and not _is_true(record, got):
        raise Violation(f"payment page is wrong, the bill got {got}: {what}")
    town.world.counts[f"payment pages: {record.state if record else 'none'} {record and record.failure}"] += 1
    visit.is_examined = visit.is_back  # a page that was not opened may be opened on another day


def _is_true(record: CheckoutRecord, got: int) -> bool:
    """Whether the state is right if the bill got so much, from this payer alone."""
    if record.state == "paid":
        return got >= record.amount
    if record.state in {"returned", "made"}:
        return False
    return got < record.amount if record.failure == "part" else not got
