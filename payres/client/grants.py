"""Grants: asking for them, coming back from the wallet's owner, and what is kept of them."""

import hmac
import json
import secrets
import time
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from msgspec import UNSET

from payres.client import checks
from payres.client.core import Call, Core, Held, Sleep, Steps
from payres.client.errors import (
    ApiError,
    BadRequest,
    ConfigurationError,
    GrantDenied,
    GrantError,
    GrantLapsed,
    HashMismatch,
    InteractionNeeded,
    InvalidAnswer,
    WaitTimeout,
)
from payres.gnap import Access, AccessToken, GrantResponse, TokenResponse, interaction_hash
from payres.wire import WalletAddress

Server = str | WalletAddress
Item = Access | Mapping[str, Any]
LAPSED: Final = ("decision_expired", "approval_expired", "unknown_continuation", "already_issued")


class Grant(Held):
    """A grant with its access token, which calls rotate when it has expired."""

    def __init__(self, token: AccessToken | None, uri: str = "", continue_token: str = "", subject: Any = None) -> None:
        self.value, self.manage = "", ""
        self.access: list[dict[str, Any]] = []
        self.expires_in: int | None = None
        self.continue_uri, self.continue_token, self.subject = uri, continue_token, subject
        self.lock = Lock()
        if token is not None:
            self._keep(token)

    def take(self, content: bytes) -> None:
        """Keeps the token of the answer to a rotation."""
        self._keep(msgspec.json.decode(content, type=TokenResponse).access_token)

    def _keep(self, token: AccessToken) -> None:
        self.value, self.manage, self.expires_in = token.value, token.manage, token.expires_in or None
        self.access = msgspec.json.decode(token.access)

    def dump(self) -> str:
        """Text for `load`; it holds secrets."""
        return json.dumps({name: value for name, value in vars(self).items() if name != "lock"})

    @classmethod
    def load(cls, text: str) -> "Grant":
        """The grant that was dumped."""
        grant = cls(None)
        vars(grant).update(json.loads(text))
        return grant

    def __repr__(self) -> str:
        return f"<Grant ...{self.value[-4:]}>"


class PendingGrant(msgspec.Struct, kw_only=True):
    """A grant for which the wallet's owner is sent to `redirect`."""

    redirect: str
    continue_uri: str
    continue_token: str
    wait: int = 0
    server: str = ""
    client_nonce: str = ""
    server_nonce: str = ""

    def dump(self) -> str:
        """Text for `load`; it holds secrets."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def load(cls, text: str) -> "PendingGrant":
        """The pending grant that was dumped."""
        return msgspec.json.decode(text, type=cls)

    def __repr__(self) -> str:
        return f"<PendingGrant ...{self.continue_token[-4:]}>"


def request(
    core: Core,
    server: Server,
    *access: Item,
    interact: Mapping[str, Any] | None = None,
    subject: Mapping[str, Any] | None = None,
    client: str | Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Steps[Grant | PendingGrant]:
    """Asks for a grant."""
    if not access and not subject:
        raise ConfigurationError("Ask for access, a subject, or both")
    items: list[dict[str, Any]] = [msgspec.to_builtins(item) for item in access]
    for item in items:
        if {"debitAmount", "receiveAmount"} <= (item.get("limits") or {}).keys():
            raise ConfigurationError("Limit debitAmount or receiveAmount, not both")
    body: dict[str, Any] = {"access_token": {"access": items}} if items else {}
    given = {"subject": subject, "interact": interact, "client": client or core.wallet_address}
    body |= {name: value for name, value in given.items() if value}
    if "client" not in body:
        raise ConfigurationError("A grant is asked for in the name of a wallet address: give the client one")
    url = server.auth_server if isinstance(server, WalletAddress) else server
    answer = yield from core.exchange(Call("grant.request", "POST", url, body=body, timeout=timeout, repeat="never"))
    found = _response(core, answer)
    if bool(found.interact) == bool(found.access_token):
        raise InvalidAnswer(answer.status_code, ["it has both or neither of interact and access_token"])
    nonce = ((interact or {}).get("finish") or {}).get("nonce", "")
    return _grant(found, PendingGrant(redirect="", continue_uri="", continue_token="", server=url, client_nonce=nonce))


def continue_(
    core: Core, url: str, access_token: str, interact_ref: str | None = None, *, timeout: float | None = None
) -> Steps[Grant | PendingGrant]:
    """Continues a grant, with the reference that the owner's browser brought, if it brought one."""
    body = {"interact_ref": interact_ref} if interact_ref else None
    call = Call("grant.continue", "POST", url, body=body, token=access_token, timeout=timeout, repeat="never")
    answer = yield from core.exchange(call)
    return _grant(_response(core, answer), PendingGrant(redirect="", continue_uri="", continue_token=""))


def cancel(core: Core, url: str, access_token: str, *, timeout: float | None = None) -> Steps[None]:
    """Ends a grant and its tokens."""
    yield from core.exchange(Call("grant.cancel", "DELETE", url, 204, token=access_token, timeout=timeout))


def obtain(core: Core, server: Server, *access: Item, timeout: float | None = None) -> Steps[Grant]:
    """A grant that needs nobody's consent. Raises InteractionNeeded."""
    try:
        found = yield from request(core, server, *access, timeout=timeout)
    except ApiError as error:
        # Rafiki has a code for it, payres says that the request lacks `interact`.
        if "interact" in error.code or (isinstance(error, BadRequest) and "interact" in str(error)):
            raise InteractionNeeded("The wallet's owner must consent: use grant.start") from error
        raise
    if isinstance(found, PendingGrant):
        raise InteractionNeeded("The wallet's owner must consent: use grant.start")
    return found


def start(
    core: Core, server: Server, *access: Item, finish: str | None = None, timeout: float | None = None
) -> Steps[PendingGrant]:
    """A grant for which the owner is sent to `redirect`, and comes back to the URL `finish` if there is one."""
    interact: dict[str, Any] = {"start": ["redirect"]}
    if finish is not None:
        interact["finish"] = {"method": "redirect", "uri": finish, "nonce": secrets.token_urlsafe(24)}
    found = yield from request(core, server, *access, interact=interact, timeout=timeout)
    if isinstance(found, Grant):
        raise GrantError("The server asks nobody for consent to this: use grant.obtain")
    return found


def finish(core: Core, pending: PendingGrant, callback_url: str, *, timeout: float | None = None) -> Steps[Grant]:
    """The grant, once the owner's browser has come back to `callback_url`.

    Raises GrantDenied, and HashMismatch for a URL that the server cannot have made: then nothing is continued.
    """
    query = {name: values[0] for name, values in parse_qs(urlsplit(callback_url).query).items()}
    if "result" in query:
        raise GrantDenied(f"The wallet's owner did not consent: {query['result']}")
    reference, shown = query.get("interact_ref", ""), _standard(query.get("hash", ""))
    slashed = {pending.server, pending.server.rstrip("/"), pending.server.rstrip("/") + "/"}
    hashes = [interaction_hash(pending.client_nonce, pending.server_nonce, reference, url) for url in sorted(slashed)]
    # All are compared, and in constant time.
    matches = [hmac.compare_digest(_standard(one), shown) for one in hashes]
    if not pending.client_nonce or not reference or not any(matches):
        raise HashMismatch("The hash of the URL does not belong to this grant: nothing was continued")
    found = yield from _continued(core, pending, reference, timeout)
    if isinstance(found, PendingGrant):
        raise GrantError("The server has not given the grant yet")
    return found


def wait(core: Core, pending: PendingGrant, timeout: float = 600) -> Steps[Grant]:
    """The grant, once the owner has consented; asks as often as the server lets it. Raises GrantDenied, WaitTimeout."""
    deadline, pause = time.monotonic() + timeout, max(pending.wait, 1)
    while True:
        if time.monotonic() + pause > deadline:
            raise WaitTimeout("The wallet's owner has not decided")
        yield Sleep(pause)
        try:
            found = yield from _continued(core, pending, None, None)
        except BadRequest as error:
            if error.code != "too_fast":
                raise
            pause = max(error.retry_after or pause, 1)
        else:
            if isinstance(found, Grant):
                return found
            pending.continue_uri, pending.continue_token = found.continue_uri, found.continue_token
            pause = max(found.wait, 1)


def rotate(core: Core, url: str, access_token: "str | Grant", *, timeout: float | None = None) -> Steps[AccessToken]:
    """A new token in the place of one."""
    answer = yield from core.rotate(url, access_token, timeout)
    token = checks.decoded(answer, TokenResponse).access_token
    checks.notice_token(core, answer, AccessToken)
    if isinstance(access_token, Grant):
        access_token.take(answer.content)
    return token


def revoke(core: Core, url: str, access_token: "str | Grant", *, timeout: float | None = None) -> Steps[None]:
    """Ends a token."""
    value = access_token.value if isinstance(access_token, Grant) else access_token
    yield from core.exchange(Call("token.revoke", "DELETE", url, 204, token=value, timeout=timeout))


def _continued(
    core: Core, pending: PendingGrant, reference: str | None, timeout: float | None
) -> Steps[Grant | PendingGrant]:
    try:
        return (yield from continue_(core, pending.continue_uri, pending.continue_token, reference, timeout=timeout))
    except ApiError as error:
        if error.code == "user_denied":
            raise GrantDenied("The wallet's owner said no") from error
        if error.reason in LAPSED or error.code == "invalid_continuation":
            raise GrantLapsed(str(error)) from error
        raise


def _response(core: Core, answer: httpx2.Response) -> GrantResponse:
    found = checks.decoded(answer, GrantResponse)
    checks.notice_token(core, answer, AccessToken)
    return found


def _grant(found: GrantResponse, pending: PendingGrant) -> Grant | PendingGrant:
    following = found.continue_
    token = following.access_token.value
    if found.access_token or found.subject:
        subject = msgspec.to_builtins(found.subject) if found.subject else None
        return Grant(found.access_token or None, following.uri, token, subject)
    pending.continue_uri, pending.continue_token, pending.wait = following.uri, token, following.wait or 0
    if found.interact is not UNSET:
        pending.redirect, pending.server_nonce = found.interact.redirect, found.interact.finish
    return pending


def _standard(digest: str) -> bytes:
    """A hash in base64 of either alphabet, with or without padding, as bytes to compare."""
    return digest.replace(" ", "+").replace("-", "+").replace("_", "/").rstrip("=").encode()
