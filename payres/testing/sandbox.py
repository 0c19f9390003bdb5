"""A throw-away payres for tests in any language, and the API below `/_sandbox` with which tests control it.

The API belongs to this application alone: that of `payres serve` has no such paths.
"""

import asyncio
import hmac
import logging
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from payres.application import create_app
from payres.clock import MovableClock
from payres.errors import (
    BearerTokenInvalid,
    DomainError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    ServerFailed,
    Unavailable,
    nothing_here,
)
from payres.grants import consent
from payres.http.admin_hosts import AdminHosts
from payres.http.request_head import credentials
from payres.http.responses import json_error, json_response
from payres.identifiers import new_secret
from payres.routes.context import Context
from payres.settings import Settings
from payres.store.clients import CLIENTS
from payres.store.wallets import WALLETS
from payres.store.work import Work
from payres.testing import steps
from payres.testing.instance import CLIENT, DEFAULTS, shorten_timeouts
from payres.testing.instance import WALLETS as FIRST_WALLETS
from payres.wire import decode

T = TypeVar("T")
log = logging.getLogger("payres.testing")
Answer = tuple[int, Any]
Decision = Literal["approve", "deny"]

ROOT: Final = "/_sandbox"
CONSENT_PAGE: Final = re.compile(r"/interact/([^/]+)/([^/]+)/?")
# Tests move the clock, and the app under test signs by its own: so no signature is too old.
NO_AGE: Final = 10 * 365 * 86_400


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """Decides on grants as they come: on the next so many, or on all; those of one wallet, or of one client."""

    decision: Decision
    times: int | None = None
    wallet: str | None = None
    client: str | None = None
    id: str | msgspec.UnsetType = msgspec.UNSET


class _Consent(msgspec.Struct, forbid_unknown_fields=True):
    redirect: str
    decision: Decision = "approve"


class Sandbox:
    """The ASGI application: a payres, which a reset replaces by a new one on the first one's data.

    `line` is what a test must know to begin; it is there once the application has started.
    """

    def __init__(self, folder: Path, base_url: str, decision: str) -> None:
        self.line: dict[str, Any] = {}
        self._database, self._baseline = folder / "payres.db", folder / "baseline.db"
        options = DEFAULTS | {"base_url": base_url, "database": str(self._database), "signature_max_age": NO_AGE}
        self._settings = msgspec.convert(options, Settings)
        self._decision = decision
        self._token = new_secret()
        self._hosts = AdminHosts("")
        self._stack = AsyncExitStack()
        self._app: Starlette | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._generation, self._made = 0, 0
        self._rules: list[Rule] = []
        self.clock = MovableClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == ROOT or path.startswith(f"{ROOT}/"):
            await (await self._control(scope, receive))(scope, receive, send)
            return
        running = asyncio.create_task(self._serve(scope, receive, send))
        self._running.add(running)
        try:
            await asyncio.wait({running})
        finally:
            self._running.discard(running)
            running.cancel()
        if not running.cancelled() and running.exception() is not None:
            running.result()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Has the server up, with its wallets and its client, until the block ends."""
        await self._open()
        self.line = await self._write(self._furnish)
        await self._begin_again(self._database, self._baseline)
        try:
            yield
        finally:
            await self._close()

    def _furnish(self, work: Work) -> dict[str, Any]:
        for path, name in FIRST_WALLETS.items():
            steps.put_wallet(work, path, steps.WalletState(name=name, balance="1000.00"))
        control = self._settings.base_url + ROOT
        shown = {path: steps.show_wallet(work, path) for path in FIRST_WALLETS}
        client = steps.open_client(work, CLIENT, "Example Shop")
        where = {"base_url": self._settings.base_url, "control_url": control, "control_token": self._token}
        return {**where, "wallets": shown, "client": client}

    async def _open(self) -> None:
        app = create_app(self._settings, self.clock)
        await self._stack.enter_async_context(app.router.lifespan_context(app))
        shorten_timeouts(app.state.context)
        self._app = app

    async def _close(self) -> None:
        self._app = None
        stopped = {task for task in self._running if task.cancel()}
        if stopped:
            await asyncio.wait(stopped)
        await self._stack.aclose()

    async def _begin_again(self, source: Path, target: Path) -> None:
        """Copies the database while nobody has it open."""
        async with self._changing:
            await self._close()
            await asyncio.to_thread(_replace, source, target)
            await self._open()
            self._generation += 1

    @property
    def _context(self) -> Context:
        """Raises Unavailable during a reset."""
        if self._app is None:
            raise Unavailable("The sandbox is being reset; try again")
        context: Context = self._app.state.context
        return context

    async def _write(self, unit: Callable[[Work], T]) -> T:
        return await self._context.database.write(unit)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request to the server itself, on whose grants the rules decide. One that a reset cuts is answered 503."""
        is_begun = False

        async def note(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            page = CONSENT_PAGE.fullmatch(scope["path"]) if scope["method"] == "GET" else None
            target = await self._write(lambda work: self._decide_by_rule(work, *page.groups())) if page else None
            if target is not None:
                await RedirectResponse(target, 302)(scope, receive, note)
            elif self._app is None:
                await json_error(Unavailable("The sandbox is being reset; try again"))(scope, receive, note)
            else:
                is_grant = scope["path"] == "/" and scope["method"] == "POST"
                await self._app(scope, receive, self._deciding(note) if is_grant else note)
        except asyncio.CancelledError:
            if self._app is None and not is_begun:
                await json_error(Unavailable("The sandbox was reset"))(scope, receive, send)
            raise
        except DomainError as error:
            await json_error(error)(scope, receive, note)

    def _deciding(self, send: Send) -> Send:
        """What sends the answer to a grant request, after the decision where no redirect would bring it about."""
        body = b""

        async def decide_first(message: Message) -> None:
            nonlocal body
            if message["type"] == "http.response.body":
                body += message.get("body", b"")
                found = re.search(rb'"redirect":"[^"]*/interact/([^/"]+)/([^/"]+)"', body)
                if found and not message.get("more_body"):
                    named = [part.decode() for part in found.groups()]
                    await self._write(lambda work: self._decide_by_rule(work, *named, without_finish=True))
            await send(message)

        return decide_first

    def _decide_by_rule(self, work: Work, id: str, nonce: str, *, without_finish: bool = False) -> str | None:
        try:
            pending = consent.find_pending(work, id, nonce)
            if pending.grant.state != "pending" or (pending.interaction.finish_uri is None) != without_finish:
                return None
            decision = self._decision_on(work, pending)
            return None if decision == "ask" else consent.decide(work, pending, decision == "approve", "owner")
        except DomainError:
            return None  # the page says why

    def _decision_on(self, work: Work, pending: consent.Pending) -> str:
        """That of the first rule for it: those with `times` as they were given, then the others, newest first."""
        assert pending.grant.wallet_address_id is not None
        wallet = WALLETS.by_id(work, pending.grant.wallet_address_id).path
        client = CLIENTS.by_id(work, pending.grant.client_id).identity
        counted = [rule for rule in self._rules if rule.times is not None]
        for rule in (*counted, *(rule for rule in reversed(self._rules) if rule.times is None)):
            if rule.times != 0 and rule.wallet in {None, wallet} and rule.client in {None, client}:
                if rule.times is not None:
                    rule.times -= 1
                return rule.decision
        return self._decision

    async def _control(self, scope: Scope, receive: Receive) -> Response:
        try:
            self._authorize(scope)
            body = await Request(scope, receive).body()
            path = scope["raw_path"].decode("latin-1").removeprefix(ROOT).rstrip("/")
            status, content = await self._answer(scope["method"], path, body)
        except DomainError as error:
            return json_error(error)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            return json_error(ServerFailed("The sandbox failed; the fault is not yours"))
        return Response(status_code=status) if status == HTTPStatus.NO_CONTENT else json_response(content, status)

    def _authorize(self, scope: Scope) -> None:
        """Raises NotFound for other machines, BearerTokenInvalid without the token."""
        if not self._hosts.let_in(scope):
            raise nothing_here()
        token = credentials(scope["headers"], "bearer")
        if token is None:
            raise BearerTokenInvalid("Send control_token as Authorization: Bearer <token>", "missing_token")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise BearerTokenInvalid("This is not the sandbox's control_token", "unknown_token")

    async def _answer(self, method: str, path: str, body: bytes) -> Answer:
        allowed = []
        for (served, pattern), act in ACTIONS.items():
            found = re.fullmatch(pattern, path)
            if found and served == method:
                named = {name: unquote(text) for name, text in found.groupdict().items()}
                return await act(self, body, **named)
            if found:
                allowed.append(served)
        raise MethodNotAllowed(", ".join(allowed)) if allowed else nothing_here()

    async def state(self, _: bytes) -> Answer:
        now = {"now": steps.show_time(self.clock.now()), "generation": self._generation}
        return 200, {**self.line, **now}

    async def reset(self, body: bytes) -> Answer:
        _read(body, steps.Nothing)
        self._rules.clear()
        self.clock.reset()
        await self._begin_again(self._baseline, self._database)
        return 200, {"generation": self._generation}

    async def read_wallet(self, _: bytes, path: str) -> Answer:
        return 200, await self._context.database.read(lambda work: steps.show_wallet(work, path))

    async def put_wallet(self, body: bytes, path: str) -> Answer:
        wanted = _read(body, steps.WalletState)
        is_new, shown = await self._write(lambda work: steps.put_wallet(work, path, wanted))
        return 201 if is_new else 200, shown

    async def post_wallet(self, body: bytes) -> Answer:
        wanted, path = _read(body, steps.WalletState), f"wallet-{new_secret()[:10].lower()}".replace("_", "-")
        return 201, (await self._write(lambda work: steps.put_wallet(work, path, wanted)))[1]

    async def post_client(self, body: bytes) -> Answer:
        name, path = _read(body, steps.Named).name, f"client-{new_secret()[:10].lower()}".replace("_", "-")
        return 201, await self._write(lambda work: steps.open_client(work, path, name))

    async def put_key(self, body: bytes, path: str, kid: str) -> Answer:
        given = _read(body, steps.GivenKey)
        return 200, await self._write(lambda work: steps.put_key(work, path, kid, given))

    async def delete_key(self, _: bytes, path: str, kid: str) -> Answer:
        await self._write(lambda work: steps.delete_key(work, path, kid))
        return 204, None

    async def decide(self, body: bytes) -> Answer:
        given = _read(body, _Consent)
        found = CONSENT_PAGE.search(given.redirect)
        if found is None:
            raise InvalidRequest("redirect is the interact.redirect of a grant's answer", field="redirect")

        def unit(work: Work) -> dict[str, Any]:
            pending = consent.find_pending(work, *found.groups())
            target = consent.decide(work, pending, given.decision == "approve", "owner")
            return {"grant": pending.grant.id, "redirect": target}

        return 200, await self._write(unit)

    async def post_rule(self, body: bytes) -> Answer:
        rule = _read(body, Rule)
        self._made += 1
        rule.id = f"rule-{self._made}"
        self._rules.append(rule)
        return 201, rule

    async def list_rules(self, _: bytes) -> Answer:
        return 200, {"rules": self._rules}

    async def read_rule(self, _: bytes, id: str) -> Answer:
        found = [rule for rule in self._rules if rule.id == id]
        if not found:
            raise NotFound(f"There is no rule {id}")
        return 200, found[0]

    async def delete_rules(self, _: bytes, id: str | None = None) -> Answer:
        self._rules = [] if id is None else [rule for rule in self._rules if rule.id != id]
        return 204, None

    async def read_clock(self, _: bytes) -> Answer:
        return 200, {"now": steps.show_time(self.clock.now())}

    async def move_clock(self, body: bytes) -> Answer:
        steps.move(self.clock, _read(body, steps.Move))
        return await self.read_clock(b"")

    async def expire(self, body: bytes) -> Answer:
        what = _read(body, steps.Expired)
        await self._write(lambda work: steps.expire(work, what))
        return 204, None


def _replace(source: Path, target: Path) -> None:
    for ending in ("-wal", "-shm"):
        Path(f"{target}{ending}").unlink(missing_ok=True)
    shutil.copyfile(source, target)


def _read(body: bytes, kind: type[T]) -> T:
    """The body. Raises InvalidRequest, also for members that it does not have."""
    return decode(msgspec.json.Decoder(kind), body, has_defaults=True)


_WALLET: Final = "/wallets/(?P<path>[^/]+)"
_RULE: Final = "/consent-rules/(?P<id>[^/]+)"
ACTIONS: Final[Mapping[tuple[str, str], Callable[..., Awaitable[Answer]]]] = {
    ("GET", ""): Sandbox.state,
    ("POST", "/reset"): Sandbox.reset,
    ("POST", "/wallets"): Sandbox.post_wallet,
    ("GET", _WALLET): Sandbox.read_wallet,
    ("PUT", _WALLET): Sandbox.put_wallet,
    ("POST", "/clients"): Sandbox.post_client,
    ("PUT", f"{_WALLET}/keys/(?P<kid>[^/]+)"): Sandbox.put_key,
    ("DELETE", f"{_WALLET}/keys/(?P<kid>[^/]+)"): Sandbox.delete_key,
    ("POST", "/consents"): Sandbox.decide,
    ("POST", "/consent-rules"): Sandbox.post_rule,
    ("GET", "/consent-rules"): Sandbox.list_rules,
    ("DELETE", "/consent-rules"): Sandbox.delete_rules,
    ("GET", _RULE): Sandbox.read_rule,
    ("DELETE", _RULE): Sandbox.delete_rules,
    ("GET", "/clock"): Sandbox.read_clock,
    ("POST", "/clock"): Sandbox.move_clock,
    ("POST", "/expire"): Sandbox.expire,
}
