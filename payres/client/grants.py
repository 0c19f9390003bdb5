"""Grants and tokens."""

import hmac
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any, ClassVar, Final, Self, Unpack
from urllib.parse import parse_qsl, urlsplit

import httpx2
import msgspec

from payres.client import checks, errors
from payres.client.attempts import UNENCODABLE, Call, Core, is_copy, plain, seconds
from payres.client.methods import Http, Options, ResourceCalls, method
from payres.client.resources import AccessToken, GrantResponse, TokenResponse
from payres.core.protocol.gnap import Access, Limits, interaction_hash
from payres.core.protocol.urls import pointed
from payres.core.protocol.wire import WalletAddress

AuthServer = str | WalletAddress
Item = Access | Mapping[str, object]
LAPSED: Final = ("decision_expired", "approval_expired", "unknown_continuation", "already_issued")


class Kept(msgspec.Struct, kw_only=True, dict=True):
    """State that an app may store as text. The text contains secrets, which `repr` does not show."""

    mark: ClassVar[str]  # a member that the text of no other kind has
    continue_uri: str = ""
    continue_token: str = ""

    def dump(self) -> str:
        """Text for `load`; it contains secrets."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def load(cls, text: str) -> Self:
        """Restores the result of `dump`. Raises ConfigurationError for another text."""
        try:
            members = msgspec.json.decode(text, type=dict[str, Any])
            if cls.mark in members:
                return msgspec.convert(members, cls)
        except (TypeError, ValueError, RecursionError):
            members = {}
        others = [f": it is of a {one.__name__}" for one in Kept.__subclasses__() if one.mark in members]
        raise errors.ConfigurationError(f"This is no text of {cls.__name__}.dump{''.join(others)}")

    def __copy__(self) -> Self:
        return self.load(self.dump())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} ...{self.continue_token[-4:]}>"


class Grant(Kept, kw_only=True):
    """A grant with its access token, which calls rotate when it has expired, also if they are cancelled meanwhile.
    `expires_in` is in seconds."""

    mark: ClassVar[str] = "value"
    value: str = ""
    manage: str = ""
    access: list[dict[str, Any]] = []
    expires_in: int | None = None
    subject: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.lock = Lock()

    def take(self, token: AccessToken) -> None:
        """Replaces the token."""
        self.value, self.manage, self.access = token.value, token.manage, token.access
        self.expires_in = token.expires_in or None


class PendingGrant(Kept, kw_only=True):
    """A grant that needs the consent of the wallet's owner at the URL `redirect`. `wait` is in seconds."""

    instead: ClassVar[str] = ": its owner has yet to consent, so call grant.finish or grant.wait first"
    mark: ClassVar[str] = "redirect"
    redirect: str = ""
    wait: int = 0
    server: str = ""
    client_nonce: str = ""
    server_nonce: str = ""

    def reference_in(self, callback_url: str) -> str:
        """The interaction reference in the URL that the owner's browser returned to; used by `finish`.

        Raises GrantDenied, and HashMismatch if the URL is not from the server.
        """
        try:
            query = dict(parse_qsl(urlsplit(callback_url).query))
        except ValueError as error:
            raise errors.HashMismatch(f"The browser did not return to a URL: {error}") from error
        if "result" in query:
            raise errors.GrantDenied(f"The wallet's owner did not consent: {query['result']}")
        reference, shown = query.get("interact_ref", ""), _standard(query.get("hash", ""))
        hashes = [
            _standard(interaction_hash(self.client_nonce, self.server_nonce, reference, url))
            for url in (self.server, self.server.rstrip("/") + "/")
        ]
        # Both are compared, in constant time.
        matches = [hmac.compare_digest(one, shown) for one in hashes]
        if not self.client_nonce or not reference or not any(matches):
            raise errors.HashMismatch("The hash of the URL does not belong to this grant: nothing was continued")
        return reference


Token = str | Grant


class Grants(ResourceCalls[Http]):
    """Requesting, continuing and revoking grants."""

    @method
    async def request(
        self,
        server: AuthServer,
        *access: Item,
        interact: Mapping[str, Any] | None = None,
        subject: Mapping[str, object] | None = None,
        client: str | Mapping[str, object] | None = None,
        **options: Unpack[Options],
    ) -> Grant | PendingGrant:
        """Requests a grant."""
        if not access and not subject:
            raise errors.ConfigurationError("Ask for access, a subject, or both")
        items = [_item(item) for item in access]
        if any({"debitAmount", "receiveAmount"} <= (item.get("limits") or {}).keys() for item in items):
            raise errors.ConfigurationError("Limit debitAmount or receiveAmount, not both")
        given = {
            "access_token": {"access": items} if items else None,
            "subject": subject,
            "interact": interact,
            "client": pointed(client or self.core.wallet_address),
        }
        body = {name: value for name, value in given.items() if value}
        if "client" not in body:
            raise errors.ConfigurationError("A grant is asked for in the name of a wallet address: give the client one")
        url = server.auth_server if isinstance(server, WalletAddress) else server
        found = await _granted(self.core, Call("grant.request", "POST", url, body=body, repeat="never", **options))
        if isinstance(found, PendingGrant):
            found.server = url
            found.client_nonce = ((interact or {}).get("finish") or {}).get("nonce", "")
        return found

    @method
    async def continue_(
        self, url: str, access_token: str, interact_ref: str | None = None, **options: Unpack[Options]
    ) -> Grant | PendingGrant:
        """Continues a grant, with the interaction reference, if there is one. Retried if the response is lost: payres
        gives the same token again."""
        body = {"interact_ref": interact_ref} if interact_ref else None
        call = Call("grant.continue", "POST", url, body=body, token=access_token, repeat="signed", **options)
        return await _granted(self.core, call)

    @method
    async def cancel(self, url: str, access_token: str, **options: Unpack[Options]) -> None:
        """Revokes a grant and its tokens."""
        await self.core.exchange(Call("grant.cancel", "DELETE", url, 204, token=access_token, **options))

    @method
    async def obtain(self, server: AuthServer, *access: Item, **options: Unpack[Options]) -> Grant:
        """Requests a grant that needs no consent. Raises InteractionNeeded."""
        refused: errors.ApiError | None = None
        try:
            found = await Grants.request(self, server, *access, **options)
            if isinstance(found, Grant):
                return found
        except errors.ApiError as error:
            if "interact" not in str(error):
                raise
            refused = error
        raise errors.InteractionNeeded("The wallet's owner must consent: use grant.start") from refused

    @method
    async def start(
        self, server: AuthServer, *access: Item, finish: str | None = None, **options: Unpack[Options]
    ) -> PendingGrant:
        """Requests a grant with the owner's consent at `redirect`; the browser returns to `finish`, a URL, if given."""
        interact: dict[str, Any] = {"start": ["redirect"]}
        if finish is not None:
            interact["finish"] = {"method": "redirect", "uri": finish, "nonce": secrets.token_urlsafe(24)}
        found = await Grants.request(self, server, *access, interact=interact, **options)
        if isinstance(found, Grant):
            raise errors.GrantError("The server asks nobody for consent to this: use grant.obtain")
        return found

    @method
    async def finish(self, pending: PendingGrant, callback_url: str, **options: Unpack[Options]) -> Grant:
        """Continues the grant after the owner's browser has returned to `callback_url`.

        Raises GrantDenied, and HashMismatch if the URL is not from the server; then nothing is continued.
        """
        found = await self._continued(pending, pending.reference_in(callback_url), **options)
        if isinstance(found, PendingGrant):
            raise errors.GrantError("The server has not given the grant yet")
        return found

    @method
    async def wait(self, pending: PendingGrant, timeout: float = 600) -> Grant:  # noqa: ASYNC109 - of all attempts
        """Polls for the grant until the owner has consented, as often as the server permits, and at least once. Raises
        GrantDenied, and WaitTimeout after `timeout` seconds. What passes, such as a lost answer, ends only the last
        attempt."""
        deadline, pause = time.monotonic() + seconds(timeout), pending.wait
        is_first, least = True, pause
        while is_first or least <= deadline - time.monotonic():  # a server may ask for more than a float can have
            await self.core.sleep(max(min(pause, deadline - time.monotonic()), 0))
            is_first = False
            try:
                found = await self._continued(pending)
            except (errors.NoAnswer, errors.ApiError) as error:
                asked = getattr(error, "details", {}).get("wait")
                told = asked if isinstance(asked, int) else getattr(error, "retry_after", None) or pause
                least = pause = max(told, 1)
                passes = isinstance(error, errors.PASSING) and least <= deadline - time.monotonic()
                if not passes and getattr(error, "code", None) != "too_fast":
                    raise
            else:
                if isinstance(found, Grant):
                    return found
                pending.continue_uri, pending.continue_token = found.continue_uri, found.continue_token
                least, pause = found.wait, max(found.wait, 1)
        raise errors.WaitTimeout("The wallet's owner has not decided")

    async def _continued(
        self, pending: PendingGrant, reference: str | None = None, **options: Unpack[Options]
    ) -> Grant | PendingGrant:
        try:
            return await Grants.continue_(self, pending.continue_uri, pending.continue_token, reference, **options)
        except errors.ApiError as error:
            if error.code == "user_denied":
                raise errors.GrantDenied("The wallet's owner said no") from error
            if error.reason in LAPSED or error.code == "invalid_continuation":
                raise errors.GrantLapsed(str(error)) from error
            raise


def _item(item: Item) -> dict[str, Any]:
    """An access item as it is sent. Raises ConfigurationError for limits that a server could read in another way."""
    try:
        found: dict[str, Any] = msgspec.to_builtins(item, enc_hook=plain)
    except UNENCODABLE as error:
        raise errors.ConfigurationError(f"An access item cannot be sent as JSON: {error}") from error
    actions = found.get("actions") or ()
    if not isinstance(actions, list | tuple):
        raise errors.ConfigurationError(f"actions is a list such as ['create'], and not {actions!r}")
    checks.check_actions(str(found.get("type")), actions)
    if found.get("limits") is not None:
        checks.valid(found["limits"], Limits)
    if "identifier" in found:
        found["identifier"] = pointed(found["identifier"])
    return found


async def _granted(core: Core, call: Call) -> Grant | PendingGrant:
    answer = await core.exchange(call)
    found = checks.decoded(answer, GrantResponse)
    if call.name == "grant.request" and bool(found.interact) == bool(found.access_token):
        raise errors.InvalidAnswer(answer.status_code, ["it has both or neither of interact and access_token"])
    uri, token, wait = found.continue_.uri, found.continue_.access_token.value, found.continue_.wait or 0
    if found.access_token or found.subject:
        subject = msgspec.to_builtins(found.subject) if found.subject else None
        grant = Grant(continue_uri=uri, continue_token=token, subject=subject)
        if found.access_token:
            checks.notice(core, answer, checks.members(answer)["access_token"], AccessToken)
            grant.take(found.access_token)
        return grant
    pending = PendingGrant(continue_uri=uri, continue_token=token, wait=wait)
    if found.interact:
        pending.redirect, pending.server_nonce = found.interact.redirect, found.interact.finish
    return pending


def _standard(digest: str) -> bytes:
    """A hash in either base64 alphabet, with or without padding, normalized for comparison."""
    return digest.replace(" ", "+").replace("-", "+").replace("_", "/").rstrip("=").encode()


class Tokens(ResourceCalls[Http]):
    """Rotating and revoking access tokens."""

    @method
    async def rotate(self, url: str, access_token: Token, **options: Unpack[Options]) -> AccessToken:
        """Rotates a token; a Grant is updated. Retried if the response is lost: payres gives the same token again."""
        if isinstance(access_token, str):
            return await _rotated(self.core, url, access_token, **options)
        return await self.core.finish(_renewed(self.core, url, access_token, **options))

    @method
    async def revoke(self, url: str, access_token: Token, **options: Unpack[Options]) -> None:
        """Revokes a token."""
        await self.core.exchange(Call("token.revoke", "DELETE", url, 204, token=_value(access_token), **options))


async def send_with_token(core: Core, access_token: Token, call: Call) -> httpx2.Response:
    """The response to a call with a token. The token of a Grant is rotated once if it has expired."""
    used = _value(access_token)
    try:
        return await core.exchange(call._replace(token=used))
    except errors.TokenError as expired:
        if isinstance(access_token, str):
            raise
        try:
            await core.finish(_renewed_once(core, access_token, used, timeout=call.timeout))
        except (errors.ApiError, errors.GrantLapsed) as error:
            if isinstance(error, errors.ApiError) and (error.status >= 500 or error.status == 429 or is_copy(error)):
                raise
            raise expired from error  # the token was revoked, or rotated by another process
    return await core.exchange(call._replace(token=access_token.value))


async def _renewed(core: Core, url: str, grant: Grant, **options: Unpack[Options]) -> AccessToken:
    async with _locked(core, grant, **options):
        return await _rotated(core, url, grant, **options)


async def _renewed_once(core: Core, grant: Grant, used: str, **options: Unpack[Options]) -> None:
    async with _locked(core, grant, **options):
        if grant.value == used:  # else another thread or task has rotated it
            await _rotated(core, grant.manage, grant, **options)


async def _rotated(core: Core, url: str, access_token: Token, **options: Unpack[Options]) -> AccessToken:
    """The new token, which is also put into a Grant."""
    call = Call("token.rotate", "POST", url, token=_value(access_token), repeat="signed", **options)
    answer = await core.exchange(call)
    token = checks.decoded(answer, TokenResponse).access_token
    checks.notice(core, answer, checks.members(answer)["access_token"], AccessToken)
    if isinstance(access_token, Grant):
        access_token.take(token)
        if core.on_rotate is not None:
            await core.ask(core.on_rotate, access_token)
    return token


def _value(access_token: Token) -> str:
    value = access_token.value if isinstance(access_token, Grant) else access_token
    if not value:
        raise errors.ConfigurationError(
            "There is no access token: this grant is of a subject alone, or the text is empty"
        )
    return value


@asynccontextmanager
async def _locked(core: Core, grant: Grant, timeout: float | None = None) -> AsyncIterator[None]:  # noqa: ASYNC109
    deadline = time.monotonic() + seconds(core.timeout if timeout is None else timeout)
    while not grant.lock.acquire(blocking=False):  # the holder may be a task of this loop, which must not block
        if time.monotonic() >= deadline:
            where = f"token.rotate at {urlsplit(grant.manage).netloc}"
            raise errors.NotSent(
                f"{where} was not sent: another call is rotating this token, and has not ended in time"
            )
        await core.sleep(0.005)
    try:
        yield
    finally:
        grant.lock.release()
