"""Two operators at once, who look at a wallet for long before they rename it: one by the API with If-Match, one on its
page; and the oracle that nobody overwrites unseen."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from html import unescape
from typing import Any, Final, NamedTuple

import httpx2

from payres.core.protocol.urls import ADMIN_API
from payres.core.store.work import Work
from payres.html.sign_in import Browser, open_session
from payres.operator.api_keys import create_api_key
from payres.operator.operators import make_link, require_operator
from payres.operator.store.operators import OF_OPERATORS
from payres.operator.wallets import require_wallet
from tests.simulation.server import OPERATORS, REFUSED
from tests.simulation.town import Town
from tests.simulation.world import Node, Violation, moments

HAVE_ONE: Final = 0.15  # of the towns
PAUSE: Final = 6.0  # seconds between two renamings of each, on average
OPEN: Final = (0.0, 0.5, 3.0, 12.0)  # seconds for which it is looked at
HIDDEN: Final = re.compile(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">')


class Renaming(NamedTuple):
    """A name that was acknowledged, and the one that its author saw before."""

    saw: str
    name: str


class Colleagues:
    """They work at one server, on one wallet."""

    def __init__(self, town: Town) -> None:
        self.world, self.server = town.world, town.servers[0]
        self.node: Final = Node(town.world, "colleagues", f"{OPERATORS}99")
        self.made: list[Renaming] = []
        self._tried: dict[str, str] = {}  # what was seen, by the name that was sent
        self._draws = town.world.dice("colleagues")
        self._http = httpx2.AsyncClient(base_url=self.server.base_url, timeout=8.0, verify=False, trust_env=False)
        self._key = ""

    async def prepare(self) -> None:
        """One gets a key of the API, one signs in."""

        def begin(work: Work) -> str:
            make_link(work, "ann")
            self._key = create_api_key(work, "colleague", ["wallets:read", "wallets:write"]).key
            return open_session(work, OF_OPERATORS, require_operator(work, "ann"), Browser()).session

        self._http.cookies.set("payres_admin", await self.server.write(begin), f"{self.server.name}.test")
        self.node.boot()

    async def live(self, seconds: float) -> None:
        """Both rename the wallet now and then."""

        async def work(rename: Callable[[], Awaitable[None]]) -> None:
            async for _ in moments(self.world, self._draws, PAUSE, seconds):
                with suppress(*REFUSED, httpx2.HTTPError):
                    await rename()

        await self.node.run(_both(work(self._by_api), work(self._on_page)))

    async def _by_api(self) -> None:
        url, head = f"{ADMIN_API}/wallets/owner0", {"Authorization": f"Bearer {self._key}"}
        read = await self._http.get(url, headers=head)
        if read.status_code == 200:
            name = await self._think(read.json()["publicName"])
            head["If-Match"] = read.headers["etag"]
            saved = await self._http.patch(url, json={"publicName": name}, headers=head)
            self._note(name, saved.status_code == 200, "API", saved)

    async def _on_page(self) -> None:
        url = "/admin/wallets/owner0/rename"
        page = await self._http.get(url)
        if page.status_code == 200:
            shown = {name: unescape(value) for name, value in HIDDEN.findall(page.text)}
            name = await self._think(shown.get("was.public_name", ""))
            saved = await self._http.post(url, data={**shown, "public_name": name, "choice": "rename"})
            self._note(name, saved.status_code == 303, "page", saved)

    async def _think(self, saw: str | None) -> str:
        await asyncio.sleep(self._draws.choice(OPEN))
        name = f"Name {len(self._tried)}"
        self._tried[name] = saw or ""
        return name

    def _note(self, name: str, is_made: bool, way: str, answer: Any) -> None:
        self.world.counts[f"colleagues: {way} {answer.status_code}"] += 1
        if is_made:
            self.made.append(Renaming(self._tried[name], name))

    async def seen(self) -> None:
        """Each name that was acknowledged is there, or was seen by whoever replaced it. Raises Violation."""
        found = await self.server.read(lambda work: require_wallet(work, "owner0").public_name)
        if self.server.archive.losses:
            return
        chain, name = list[str](), found or ""
        while name in self._tried and name not in chain:
            chain.append(name)
            name = self._tried[name]
        if lost := [one for one in self.made if one.name not in chain]:
            raise Violation(f"{lost[0]} was overwritten unseen: {self.server.name} has {found}, after {chain}")


async def _both(*doings: Awaitable[None]) -> None:
    await asyncio.gather(*doings)


async def overwritten(town: Town) -> None:
    """Two operators: nobody overwrites unseen what another has saved."""
    if town.colleagues is not None:
        await town.colleagues.seen()
