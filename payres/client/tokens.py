"""Access tokens: calls with them, which rotate those of grants that have expired, and their revocation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

import httpx2

from payres.client import checks, errors
from payres.client.grants import Grant
from payres.client.resources import AccessToken, TokenResponse
from payres.client.sending import Call, Core, Http, Options, Part, method

Token = str | Grant


class Tokens(Part[Http]):
    """Rotating and revoking access tokens."""

    @method
    async def rotate(self, url: str, access_token: Token, **options: Unpack[Options]) -> AccessToken:
        """Rotates a token; a Grant is updated."""
        if isinstance(access_token, str):
            return await _rotated(self.core, url, access_token, **options)
        async with _locked(self.core, access_token):
            return await _rotated(self.core, url, access_token, **options)

    @method
    async def revoke(self, url: str, access_token: Token, **options: Unpack[Options]) -> None:
        """Revokes a token."""
        await self.core.exchange(Call("token.revoke", "DELETE", url, 204, token=_value(access_token), **options))


async def send_with_token(core: Core[Any], access_token: Token, call: Call) -> httpx2.Response:
    """The response to a call with a token. The token of a Grant is rotated once if it has expired."""
    used = _value(access_token)
    try:
        return await core.exchange(call._replace(token=used))
    except errors.TokenError as expired:
        if isinstance(access_token, str):
            raise
        try:
            async with _locked(core, access_token):
                if access_token.value == used:  # else another thread or task has rotated it
                    await _rotated(core, access_token.manage, access_token)
        except errors.ApiError as error:
            if error.status >= 500 or error.status == 429:
                raise
            raise expired from error  # the token was revoked, or rotated by another process
    return await core.exchange(call._replace(token=access_token.value))


async def _rotated(core: Core[Any], url: str, access_token: Token, **options: Unpack[Options]) -> AccessToken:
    """The new token, which is also put into a Grant."""
    call = Call("token.rotate", "POST", url, token=_value(access_token), repeat="never", **options)
    answer = await core.exchange(call)
    token = checks.decoded(answer, TokenResponse).access_token
    checks.notice(core, answer, checks.members(answer)["access_token"], AccessToken)
    if isinstance(access_token, Grant):
        access_token.take(token)
        if core.on_rotate is not None:
            await core.ask(core.on_rotate, access_token)
    return token


def _value(access_token: Token) -> str:
    return access_token.value if isinstance(access_token, Grant) else access_token


@asynccontextmanager
async def _locked(core: Core[Any], grant: Grant) -> AsyncIterator[None]:
    while not grant.lock.acquire(blocking=False):  # the holder may be a task of this loop, which must not block
        await core.sleep(0.005)
    try:
        yield
    finally:
        grant.lock.release()
