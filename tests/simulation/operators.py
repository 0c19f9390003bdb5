"""The operators of the servers, who work with the operator's API over the network, some on its pages too, and oracles.

What they move has references, so that they can ask again after a lost answer, and be asked afterwards.
"""

import asyncio
import re
from contextlib import suppress
from decimal import Decimal
from html import unescape
from typing import Any, Final

import httpx2
import msgspec

from payres.accounts.sessions import Browser, open_session
from payres.core.protocol.amounts import Asset, format_decimal, parse_decimal
from payres.core.protocol.urls import ADMIN_API
from payres.core.store.work import Work
from payres.operator import movements
from payres.operator.api_keys import SCOPES, create_api_key
from payres.operator.operators import make_link, require_operator
from payres.operator.store.operators import OF_OPERATORS
from tests.simulation.currencies import STEPS, minor, rate_of
from tests.simulation.resident import Caller
from tests.simulation.server import OPERATORS, REFUSED, Server
from tests.simulation.town import Setting, Town, decimal
from tests.simulation.world import Violation

TRIES: Final = 3
STRAYING: Final = 60_000_000  # microseconds that a copy of a request may be under way
MOVED: Final = 2000  # cents at most in one movement
FEES: Final = ((0, 0), (0, 50), (1, 0), (3, 200))
OPEN: Final = (0.0, 0.5, 3.0)  # seconds for which a wallet is looked at before it is renamed
HIDDEN: Final = re.compile(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">')


class Asked(msgspec.Struct):
    """What an operator asked for. `is_made` is None if its answer was lost."""

    server: Server
    reference: str
    asked_at: int
    is_made: bool | None = None


class Movement(Asked, kw_only=True):
    """A deposit or withdrawal; `account` is its path in the API."""

    account: str
    asset: Asset
    kind: str
    amount: int
    id: str = ""
    may_be_undone: bool = False

    @property
    def value(self) -> int:
        return self.amount if self.kind == "deposit" else -self.amount


class Refund(Asked, kw_only=True):
    """A refund of a payment that had received what was `seen`."""

    payment: str
    amount: int | None
    seen: int
    goes_elsewhere: bool


class Operator(Caller):
    """The operator of a server, at a machine of its own."""

    pause, refusals = 8.0, (*REFUSED, httpx2.HTTPError)

    def __init__(self, town: Town, server: Server) -> None:
        name, address = f"operator-{server.name}", f"{OPERATORS}{town.servers.index(server) + 1}"
        super().__init__(town, f"operator {server.name}", name, address, 10.0)
        self.server, self._number = server, 0
        self._changed: dict[str, Any] = {}  # for a while, by its path, with what puts it back
        self.seen: dict[str, str] = {}  # the name before, by each that was sent for a wallet
        self.named = set[str]()  # those that were acknowledged

    async def prepare(self) -> None:
        def begin(work: Work) -> tuple[str, str]:
            make_link(work, "ann")
            session = open_session(work, OF_OPERATORS, require_operator(work, "ann"), Browser()).session
            return create_api_key(work, "operator", sorted(SCOPES)).key, session

        key, session = await self.server.write(begin)
        self.http.base_url = f"{self.server.base_url}{ADMIN_API}"
        self.http.headers["Authorization"] = f"Bearer {key}"
        self.http.cookies.set("payres_admin", session, f"{self.server.name}.test")
        self.node.boot()

    async def act(self) -> None:
        duties = {self._move: 3, self._refund: 3, self._set: 3, self._change: 2}
        duties |= {self._undo: 1, self._replace_peer: 1, self._rename: 2}
        await self.draws.choices([*duties], [*duties.values()])[0]()

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any, bool]:
        """The status and the body, and whether it is the answer to the only copy of the request; status 0 if all
        answers were lost."""
        repeated = self.world.counts["repeated"]
        for attempt in range(TRIES):
            with suppress(httpx2.HTTPError):
                answer = await self.http.request(method, path, json=body)
                if answer.status_code < 500 and answer.status_code != 429:
                    self.world.counts[f"operators: {method} {answer.status_code}"] += 1
                    is_only = not attempt and self.world.counts["repeated"] == repeated
                    return answer.status_code, answer.json(), is_only
            await asyncio.sleep(1)
        return 0, None, False

    async def _asked(self, about: Asked, path: str, body: Any) -> Any:
        """Asks for what has a reference, and notes what became of it. A refusal counts if no other copy is under way,
        which might still be granted."""
        status, answer, is_only = await self.ask("POST", path, body)
        about.is_made = True if status == 201 else None if not status or not is_only else False
        return answer if about.is_made else None

    def _about(self) -> tuple[Server, str, int]:
        self._number += 1
        return self.server, f"{self.server.name}-{self._number}", self.world.microseconds

    async def _move(self) -> None:
        wallets = [(f"/wallets/{one.path}", one.asset) for one in self.town.wallets if one.server is self.server]
        asset = self.draws.choice(self.town.assets)
        choices = [*wallets, (f"/assets/{asset.code}/{asset.scale}/liquidity", asset)]
        await self.move_at(*self.draws.choice(choices), self.draws.choice(("deposit", "withdrawal")))

    async def move_at(self, account: str, asset: Asset, kind: str, amount: int = 0) -> bool:
        amount = amount or minor(self.draws.randint(1, MOVED), asset)
        moved = Movement(*self._about(), account=account, asset=asset, kind=kind, amount=amount)
        self.town.movements.append(moved)
        body = {"amount": format_decimal(amount, asset), "reference": moved.reference}
        answer = await self._asked(moved, f"{account}/{kind}s", body)
        moved.id = answer["id"] if answer else ""
        return bool(moved.is_made)

    async def _undo(self) -> None:
        made = [one for one in self.town.movements if one.server is self.server and one.id and not one.may_be_undone]
        if made:
            made[-1].may_be_undone = True
            await self.server.write(lambda work: movements.undo(work, made[-1].id))

    async def _refund(self) -> None:
        """Sends back some of what a payment has received, to where the operator believes that it came from."""
        status, answer, _ = await self.ask("GET", "/payments?direction=incoming&used=true&first=4")
        found = [one for one in answer["result"] if one["moved"] != one["refunded"]] if status == 200 else []
        if not found:
            return
        payment = self.draws.choice(found)
        asset = Asset(payment["assetCode"], payment["assetScale"])
        amount = self.draws.choice((None, minor(self.draws.randint(1, 300), asset)))
        own = f"{self.server.base_url}/{payment['wallet']}"
        elsewhere = self.draws.choice([one.url for one in self.town.wallets if one.url != own])
        about = payment["id"], asset, parse_decimal(payment["moved"], asset), amount
        if not await self._send_back(*about, None):
            copies = self.draws.choice((1, 2, 2, 3))  # one operator does not know of the other
            await asyncio.gather(*(self._send_back(*about, elsewhere) for _ in range(copies)))

    async def _send_back(self, payment: str, asset: Asset, seen: int, amount: int | None, to: str | None) -> bool:
        about: dict[str, Any] = {"amount": amount, "seen": seen, "goes_elsewhere": to is not None}
        refund = Refund(*self._about(), payment=payment, **about)
        self.town.refunds.append(refund)
        body = {"reference": refund.reference} | ({} if to is None else {"to": to})
        body |= {} if amount is None else {"amount": format_decimal(amount, asset)}
        await self._asked(refund, f"/payments/{payment}/refunds", body)
        return refund.is_made is not False

    async def _set(self) -> None:
        """Sets the fee or a rate, and notes since when it may be so: a copy of a request may come after its answer."""
        town, draws, body = self.town, self.draws, dict[str, Any]()
        if draws.random() < 0.6:
            (cents, points), asset = draws.choice(FEES), town.assets[0]
            body = {"fixed": decimal(cents, asset), "basisPoints": points}
            what, path = ["fee", asset.code], f"/assets/{asset.code}/{asset.scale}/fee"
        else:
            base, counter = draws.choice(town.pairs)
            body = {"rate": rate_of(base, counter, draws.choice(STEPS))}
            what, path = ["rate", base, counter], f"/rates/{base}/{counter}"
        value = tuple(body.values()) if len(body) > 1 else body["rate"]
        asked = Setting(value, self.world.microseconds, self.world.microseconds + STRAYING, is_made=False)
        town.settings[self.server.name, *what].append(asked)
        status, _, is_only = await self.ask("PUT", path, body)
        asked.is_made, asked.done_at = status == 200, self.world.microseconds + (0 if is_only else STRAYING)

    async def _change(self) -> None:
        """Closes a wallet for a while, or lowers what a peer may owe to so little that payments are refused."""
        draws = self.draws
        if draws.random() < 0.5:
            path = f"/wallets/{draws.choice([one.path for one in self.town.wallets if one.server is self.server])}"
            body, back = {"state": "inactive"}, {"state": "active"}
        else:
            peer, asset = await self._any_peer()
            if not peer:
                return
            path, back = f"/peers/{peer['name']}", {"creditLimit": decimal(self.town.credit, asset)}
            owes = max(-_minor(peer["balance"], asset), 0) + _minor(peer["reserved"], asset)
            body = {"creditLimit": format_decimal(owes + minor(draws.randint(0, 200), asset), asset)}
        self._changed[path] = back
        status, answer, is_only = await self.ask("PATCH", path, body)
        if status == 200 and is_only and not body.items() <= answer.items():
            raise Violation(f"{path} of {self.server.name} was set to {body}, and answers {answer}")
        await asyncio.sleep(draws.uniform(0.2, 6))
        await self.ask("PATCH", path, back)

    async def _any_peer(self) -> tuple[Any, Asset]:
        """A peer as the server shows it, None if it does not, and its currency."""
        one = self.draws.choice(self.server.neighbours)
        status, answer, _ = await self.ask("GET", f"/peers/test.{one.name}")
        return answer if status == 200 else None, self.town.currency_of(self.server, one)

    async def _replace_peer(self) -> None:
        """Settles with a peer, removes it if nothing is under way, and adds it again."""
        if self.server.keeps_backups:
            return  # a restore would end the earlier peer for good
        peer, asset = await self._any_peer()
        if not peer:
            return
        path, balance = f"/peers/{peer['name']}", _minor(peer["balance"], asset)
        kind = "withdrawal" if balance > 0 else "deposit"
        if balance and not await self.move_at(path, asset, kind, abs(balance)):
            return
        self._changed[path] = {"creditLimit": decimal(self.town.credit, asset)}
        status, _, _ = await self.ask("DELETE", path)
        if status == 200:
            self.world.counts["peers replaced"] += 1
            await asyncio.sleep(self.draws.uniform(0.1, 3))
        await self._add_peer(peer["name"])

    async def _add_peer(self, name: str) -> None:
        terms = self.town.terms[self.server.name, name]
        camel = {re.sub("_(.)", lambda found: found[1].upper(), key): value for key, value in terms.items()}
        await self.ask("POST", "/peers", msgspec.to_builtins(camel))

    async def _rename(self) -> None:
        """Two at once look at a wallet before they rename it: one by the API with If-Match, one on its page."""
        await asyncio.gather(self._rename_by_api(), self._rename_on_page())

    async def _rename_by_api(self) -> None:
        read = await self.http.get("/wallets/owner0")
        name = await self._think(read.raise_for_status().json()["publicName"])
        head = {"If-Match": read.headers["etag"]}
        self._note_name(name, 200, await self.http.patch("/wallets/owner0", json={"publicName": name}, headers=head))

    async def _rename_on_page(self) -> None:
        url = f"{self.server.base_url}/admin/wallets/owner0/rename"
        page = (await self.http.get(url)).raise_for_status()
        shown = {name: unescape(value) for name, value in HIDDEN.findall(page.text)}
        name = await self._think(shown.get("was.public_name"))
        saved = await self.http.post(url, data={**shown, "public_name": name, "choice": "rename"})
        self._note_name(name, 303, saved)

    async def _think(self, saw: str | None) -> str:
        """A new name, after a while."""
        await asyncio.sleep(self.draws.choice(OPEN))
        name = f"Name {len(self.seen)}"
        self.seen[name] = saw or ""
        return name

    def _note_name(self, name: str, wanted: int, saved: httpx2.Response) -> None:
        self.world.counts[f"renamed: {saved.request.method} {saved.status_code}"] += 1
        if saved.status_code == wanted:
            self.named.add(name)

    async def tidy(self) -> None:
        """Puts back what a request may have changed that came late or whose answer was lost."""
        for path, back in self._changed.items():
            status, _, _ = await self.ask("PATCH", path, back)
            if status == 404:
                await self._add_peer(path.rpartition("/")[2])
        self._changed.clear()


def _minor(text: str, asset: Asset) -> int:
    return int(Decimal(text).scaleb(asset.scale))


async def tidied(town: Town) -> None:
    """Operators put back what they changed for a while, before anybody waits for a peer that they have removed."""
    for operator in town.operators:
        await operator.node.run(operator.tidy())


MADE: Final = (
    "SELECT t.amount, (d.kind = 'external'), (SELECT count(*) FROM movement u WHERE u.undoes = m.id) FROM movement m"
    " JOIN transfer t ON t.id = m.transfer_id JOIN account d ON d.id = t.debit_account_id WHERE m.reference = ?"
)


async def moved(town: Town) -> None:
    """4. Each deposit and withdrawal is there exactly once if it was acknowledged; if its answer was lost, once or not
    at all. What came from outside is counted by that."""
    town.given = town.endowed.copy()
    for one in town.movements:
        found = await one.server.rows(MADE, one.reference)
        wanted = {True: (1,), False: (0,), None: (0, 1)}[one.is_made]
        if one.account.startswith("/peers/"):
            found = found[:1]  # each time that a peer is added its account is another one, with references of its own
        if len(found) not in wanted and not (not found and one.server.has_lost(one.asked_at)):
            raise Violation(f"{one.kind} {one.reference} of {one.server.name}: {len(found)} times, {one.is_made}")
        for amount, is_deposit, undone in found:
            if (amount, bool(is_deposit)) != (one.amount, one.kind == "deposit") or undone > one.may_be_undone:
                raise Violation(f"{one.kind} {one.reference} of {one.server.name} is {found}")
            if not one.account.startswith("/peers/"):  # those are what is owed no more
                town.given[one.asset] += one.value * (1 - undone)


REFUNDED: Final = "SELECT sum(amount), count(*) FROM refund WHERE incoming_payment_id = ? AND reference = ?"
LIMITS: Final = "SELECT p.name, -a.floor FROM peer p JOIN account a ON a.id = p.account_id WHERE p.removed_at IS NULL"
SENT_BACK: Final = "SELECT coalesce(sum(amount), 0) FROM refund WHERE incoming_payment_id = ?"


async def credited(town: Town) -> None:
    """Each peer may owe what its server's operator allows, which the ledger's invariants hold it to."""
    for server in town.servers:
        limits = dict(await server.rows(LIMITS))
        peers = server.neighbours
        wanted = {f"test.{one.name}": minor(town.credit, town.currency_of(server, one)) for one in peers}
        limits.pop("test.payer", None)  # whose own it is
        if town.foreign:
            wanted[town.foreign.ilp] = town.foreign.links[server.name].credit
        if limits != wanted:
            raise Violation(f"peers of {server.name} may owe {limits}, and should {wanted}")


async def refunded(town: Town) -> None:
    """Refunds: each is there once if it was acknowledged, with its amount or all that was left."""
    for one in town.refunds:
        [(amount, count)] = await one.server.rows(REFUNDED, one.payment, one.reference)
        is_wrong = bool(count) if one.is_made is False else bool(one.is_made and not count)
        if count and one.amount is not None:
            is_wrong |= amount != one.amount
        elif count and one.is_made and not one.goes_elsewhere:  # then all that was left went back
            is_wrong |= (await one.server.rows(SENT_BACK, one.payment))[0][0] < one.seen
        town.world.counts[f"refunds {'elsewhere' if one.goes_elsewhere else 'here'}"] += bool(count)
        if is_wrong and not one.server.has_lost(one.asked_at):
            raise Violation(f"refund {one.reference} of {one.server.name}: {one}, found {count} with {amount}")


async def overwritten(town: Town) -> None:
    """Two operators: each name that was acknowledged is there, or was seen by whoever replaced it."""
    for operator in town.operators:
        server, seen = operator.server, operator.seen
        [(found,)] = await server.rows("SELECT coalesce(public_name, '') FROM wallet_address WHERE path = 'owner0'")
        chain, name = list[str](), found
        while name in seen and name not in chain:
            chain.append(name)
            name = seen[name]
        lost = operator.named.difference(chain)
        if lost and not server.archive.losses:
            raise Violation(f"{sorted(lost)} overwritten unseen: {server.name} has {found}, after {seen}")
