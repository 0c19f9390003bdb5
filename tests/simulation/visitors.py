"""People who pay bills from another server, through the bills' pages, with a browser; and what must become of that."""

import asyncio
import re
from contextlib import suppress
from typing import Final

import httpx2
import msgspec

from payres.core.protocol.clock import DAY
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.incoming_payments import INCOMING
from payres.people.store.checkouts import CHECKOUTS, CheckoutRecord
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
    """A bill that a visitor pays. The payer consents on a `page`, and comes `back` to another; `is_back` says that this
    was seen."""

    bill: Bill
    payer: Wallet | Abroad
    at: int  # microseconds of the world
    page: str = ""
    consents: bool = False
    back: str = ""
    is_back: bool = False
    is_examined: bool = False


class Visitor(Caller):
    """Pays bills from wallets on other servers than theirs, with a browser on a machine of its own."""

    def __init__(self, town: Town, number: int) -> None:
        super().__init__(town, f"visitor {number}", f"visitor{number}", f"10.0.6.{number + 1}", 12.0)
        self._begun: Visit | None = None
        self._left: list[Visit] = []  # whose last page was not opened yet

    async def prepare(self) -> None:
        """Switches the machine on, and begins a visit, which a storm would seldom let come so far."""
        self.node.boot()
        self._begun = await self.node.run(self._begin())

    async def spend(self, seconds: float) -> None:
        """Opens what was left for this day, and goes on with a visit."""
        while self._left:
            await self._return(self._left.pop())
        await asyncio.sleep(self.draws.uniform(0, seconds / 2))
        await self.try_to(self._go_on())

    async def _go_on(self) -> None:
        visit, self._begun = self._begun or await self._begin(), None
        if visit.page:
            await self._consent(visit)

    async def _begin(self) -> Visit:
        town, draws = self.town, self.draws
        is_abroad = town.foreign is not None and draws.random() < 0.5
        payer: Wallet | Abroad = draws.choice(town.abroad) if is_abroad else draws.choice(town.wallets)
        payee = draws.choice([one for one in town.wallets if one.server is not payer.server])
        visit = Visit(await ask_for(town, payee, draws.randint(1, MOST)), payer, self.world.microseconds)
        town.visits.append(visit)
        visit.page = await self._choose_wallet(visit)
        return visit

    async def _choose_wallet(self, visit: Visit) -> str:
        """The page of the payer's server to which the bill's page leads; empty if none was reached."""
        page = f"{visit.bill.wallet.server.base_url}/pay/{visit.bill.id}"
        for _ in range(TRIES):
            with suppress(httpx2.HTTPError):
                fields = dict(FIELD.findall((await self.http.get(page)).text))
                answer = await self.http.post(page, data={**fields, "payer": visit.payer.url})
                self.world.counts[f"payment pages: {answer.status_code}"] += 1
                if answer.is_redirect:
                    url = answer.headers["location"]
                    return url if url.startswith(visit.payer.server.base_url) else ""
            await asyncio.sleep(self.draws.uniform(0.5, 3))
        return ""

    async def _consent(self, visit: Visit) -> None:
        id, nonce = visit.page.rstrip("/").split("/")[-2:]
        visit.consents = self.draws.random() >= SAYS_NO
        if isinstance(visit.payer, Abroad):
            visit.back = visit.payer.server.decide(id, nonce, consents=visit.consents)
        else:
            visit.back = await decided(visit.payer, id, nonce, visit.consents) or ""
        how = self.draws.choice(RETURNS)
        self.world.counts[f"payment pages: return {how}"] += 1
        if how == "late":
            self._left.append(visit)
        await asyncio.gather(*(self._return(visit) for _ in range({"once": 1, "twice": 2}.get(how, 0))))

    async def _return(self, visit: Visit) -> None:
        """Opens the page to which the payer's wallet leads, and goes where it leads."""
        url = visit.back
        for _ in range(TRIES):
            with suppress(httpx2.HTTPError):
                page = await self.http.get(url)
                if page.status_code == 200:
                    return
                if page.is_redirect:
                    visit.is_back, url = True, f"{visit.bill.wallet.server.base_url}{page.headers['location']}"
            await asyncio.sleep(self.draws.uniform(0.2, 2))


async def paid_pages(town: Town) -> None:
    """Payment pages: what the payer consented to and came back from ends; each bill is paid once at most, by those who
    consented, and as its page says."""
    for visit in [one for one in town.visits if not one.is_examined]:
        await _examine(town, visit)


async def _examine(town: Town, visit: Visit) -> None:
    key, server = hash_secret(visit.back.partition("?")[0].rpartition("/")[2]), visit.bill.wallet.server
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
    is_over = record.state not in {"returned", "made"}
    return is_over and (got < record.amount if record.failure == "part" else not got)
