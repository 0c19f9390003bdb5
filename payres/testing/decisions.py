"""Decisions on the grants of a sandbox server: by the rules that tests set, or as it always decides."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

from starlette.types import Message, Send

from payres.core.grants import consent
from payres.core.protocol.errors import DomainError
from payres.core.store.clients import CLIENTS
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Units, Work
from payres.testing.request_rules import ConsentRule, Rules

REDIRECT: Final = re.compile(rb'"redirect":"[^"]*/interact/([^/"]+)/([^/"]+)"')


class Decisions:
    """`always` decides grants that no rule matches; without it, the consent page asks. `begin` starts a task that ends
    with the server's data."""

    def __init__(
        self,
        server: Units,
        begin: Callable[[Coroutine[object, object, str | None]], "asyncio.Task[str | None]"],
        always: ConsentRule | None,
    ) -> None:
        self.rules: Rules[ConsentRule] = Rules("rule")
        self._server = server
        self._begin = begin
        self._always = always

    async def decide(self, id: str, nonce: str, *, has_finish: bool) -> str | None:
        """Decides a pending grant, and returns the redirect of the browser. None if nothing decides it, or the decision
        is delayed in the background."""
        try:
            rule = await self._server.read(lambda work: self._rule_for(work, id, nonce, has_finish=has_finish))
            if rule is None:
                return None
            decided = self._begin(self._after_delay(id, nonce, rule))
            return await decided if has_finish or not rule.delay else None
        except DomainError:
            return None  # the page says why

    def before_answer(self, send: Send) -> Send:
        """A `send` that decides a grant without a finish URI before its response is sent."""
        body = b""

        async def decide_first(message: Message) -> None:
            nonlocal body
            if message["type"] == "http.response.body":
                body += message.get("body", b"")
                found = None if message.get("more_body") else REDIRECT.search(body)
                if found:
                    id, nonce = (part.decode() for part in found.groups())
                    await self.decide(id, nonce, has_finish=False)
            await send(message)

        return decide_first

    def _rule_for(self, work: Work, id: str, nonce: str, *, has_finish: bool) -> ConsentRule | None:
        pending = consent.find_pending(work, id, nonce)
        if pending.grant.state != "pending" or (pending.interaction.finish_uri is not None) != has_finish:
            return None
        assert pending.grant.wallet_address_id is not None
        wallet = WALLETS.by_id(work, pending.grant.wallet_address_id).path
        client = CLIENTS.by_id(work, pending.grant.client_id)
        return self.rules.use(lambda rule: rule.fits(wallet, client)) or self._always

    async def _after_delay(self, id: str, nonce: str, rule: ConsentRule) -> str | None:
        def unit(work: Work) -> str | None:
            return consent.decide(work, consent.find_pending(work, id, nonce), rule.decision == "approve", "owner")

        await asyncio.sleep(rule.delay)
        with suppress(DomainError):  # it was already decided
            return await self._server.write(unit)
        return None
