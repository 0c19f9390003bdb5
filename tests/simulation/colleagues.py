"""Two operators at once, who look at a wallet for long before they rename it: one by the API with If-Match, one on its
page; and the oracle that nobody overwrites unseen."""

import asyncio
import re
from html import unescape
from typing import Any, Final

import httpx2

from payres.core.protocol.urls import ADMIN_API
from payres.core.store.work import Work
from payres.html.sign_in import Browser, open_session
from payres.operator.api_keys import create_api_key
from payres.operator.operators import make_link, require_operator
from payres.operator.store.operators import OF_OPERATORS
from payres.operator.wallets import require_wallet
from tests.simulation.resident import Caller
from tests.simulation.server import OPERATORS, REFUSED
from tests.simulation.town import Town
from tests.simulation.world import Violation

HAVE_ONE: Final = 0.15  # of the towns
OPEN: Final = (0.0, 0.5, 3.0, 12.0)  # seconds for which it is looked at
HIDDEN: Final = re.compile(r'<input type="hidden" name="([\w.]+)" value="([^"]*)">')


class Colleagues(Caller):
    """They work at one server, on one wallet."""

    pause, refusals = 6.0, (*REFUSED, httpx2.HTTPError)

    def __init__(self, town: Town) -> None:
        super().__init__(town, "colleagues", "colleagues", f"{OPERATORS}99", 8.0)
        self.server, self._key = town.servers[0], ""
        self.tried: dict[str, str] = {}  # what was seen, by the name that was sent
        self.made: list[str] = []  # names that were acknowledged

    async def prepare(self) -> None:
        def begin(work: Work) -> str:
            make_link(work, "ann")
            self._key = create_api_key(work, "colleague", ["wallets:read", "wallets:write"]).key
            return open_session(work, OF_OPERATORS, require_operator(work, "ann"), Browser()).session

        self.http.base_url = self.server.base_url
        self.http.cookies.set("payres_admin", await self.server.write(begin), f"{self.server.name}.test")
        self.node.boot()

    async def spend(self, seconds: float) -> None:
        await asyncio.gather(*(self.repeat(rename, seconds) for rename in (self._by_api, self._on_page)))

    async def _by_api(self) -> None:
        url, head = f"{ADMIN_API}/wallets/owner0", {"Authorization": f"Bearer {self._key}"}
        read = await self.http.get(url, headers=head)
        if read.status_code == 200:
            name = await self._think(read.json()["publicName"])
            head["If-Match"] = read.headers["etag"]
            saved = await self.http.patch(url, json={"publicName": name}, headers=head)
            self._note(name, saved.status_code == 200, "API", saved)

    async def _on_page(self) -> None:
        url = "/admin/wallets/owner0/rename"
        page = await self.http.get(url)
        if page.status_code == 200:
            shown = {name: unescape(value) for name, value in HIDDEN.findall(page.text)}
            name = await self._think(shown.get("was.public_name", ""))
            saved = await self.http.post(url, data={**shown, "public_name": name, "choice": "rename"})
            self._note(name, saved.status_code == 303, "page", saved)

    async def _think(self, saw: str | None) -> str:
        await asyncio.sleep(self.draws.choice(OPEN))
        name = f"Name {len(self.tried)}"
        self.tried[name] = saw or ""
        return name

    def _note(self, name: str, is_made: bool, way: str, answer: Any) -> None:
        self.world.counts[f"colleagues: {way} {answer.status_code}"] += 1
        if is_made:
            self.made.append(name)


async def overwritten(town: Town) -> None:
    """Two operators: each name that was acknowledged is there, or was seen by whoever replaced it."""
    both = town.colleagues
    if both is None or both.server.archive.losses:
        return
    found = await both.server.read(lambda work: require_wallet(work, "owner0").public_name)
    chain, name = list[str](), found or ""
    while name in both.tried and name not in chain:
        chain.append(name)
        name = both.tried[name]
    if lost := set(both.made).difference(chain):
        raise Violation(f"{sorted(lost)} overwritten unseen: {both.server.name} has {found}, after {both.tried}")
