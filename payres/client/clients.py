"""Both clients, with their calls by resource."""

import warnings
from collections.abc import Callable, Mapping
from typing import Final, Generic, Self, TypeVar

import httpx2

from payres.client import calls, grants
from payres.client.core import Core, Key, signer_of
from payres.client.drivers import Http, Iteration, Method, Part
from payres.client.grants import Grant
from payres.clock import Clock, SystemClock

Transport = TypeVar("Transport")
SYSTEM_CLOCK: Final = SystemClock()


class WalletAddresses(Part[Http]):
    get, get_keys = Method(calls.wallet_address), Method(calls.keys)
    get_did_document = Method(calls.did_document)


class Grants(Part[Http]):
    request, continue_, cancel = Method(grants.request), Method(grants.continue_), Method(grants.cancel)
    obtain, start = Method(grants.obtain), Method(grants.start)
    finish, wait = Method(grants.finish), Method(grants.wait)


class IncomingPayments(Part[Http]):
    create, get = Method(calls.create_incoming), Method(calls.INCOMING.get)
    get_public, complete = Method(calls.get_public), Method(calls.complete)
    list, iterate = Method(calls.INCOMING.list), Iteration(calls.INCOMING.page)
    wait = Method(calls.INCOMING.wait)


class Quotes(Part[Http]):
    create, get = Method(calls.create_quote), Method(calls.QUOTES.get)


class OutgoingPayments(Part[Http]):
    create, get = Method(calls.create_outgoing), Method(calls.OUTGOING.get)
    list, iterate = Method(calls.OUTGOING.list), Iteration(calls.OUTGOING.page)
    wait, get_grant_spent_amounts = Method(calls.OUTGOING.wait), Method(calls.spent_amounts)


class Tokens(Part[Http]):
    rotate, revoke = Method(grants.rotate), Method(grants.revoke)


class _Client(Generic[Http, Transport]):
    _open: Callable[..., Http]

    def __init__(
        self,
        wallet_address: str | None = None,
        private_key: Key | None = None,
        kid: str | None = None,
        *,
        use_http: bool = False,
        timeout: float = 15,
        max_retries: int = 2,
        strict: bool = False,
        on_rotate: Callable[[Grant], object] | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if isinstance(private_key, Mapping):
            kid = kid or private_key.get("kid")
        self._core = core = Core(
            wallet_address=wallet_address,
            signer=None if private_key is None else signer_of(private_key),
            kid=kid,
            use_http=use_http,
            timeout=timeout,
            max_retries=max_retries,
            strict=strict,
            on_rotate=on_rotate,
            clock=clock,
        )
        self._http = http = self._open(transport=transport, trust_env=False)
        self.wallet_address, self.grant = WalletAddresses(core, http), Grants(core, http)
        self.incoming_payment, self.quote = IncomingPayments(core, http), Quotes(core, http)
        self.outgoing_payment, self.token = OutgoingPayments(core, http), Tokens(core, http)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.wallet_address} ...{(self._core.kid or '')[-4:]}>"

    def __del__(self) -> None:
        if hasattr(self, "_http") and not self._http.is_closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)


class Client(_Client[httpx2.Client, httpx2.BaseTransport]):
    """A thread-safe Open Payments client; not for use across `fork`. Close it, or use it with `with`."""

    _open = httpx2.Client

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Client[httpx2.AsyncClient, httpx2.AsyncBaseTransport]):
    """An Open Payments client for all tasks of one loop. Close it, or use it with `async with`."""

    _open = httpx2.AsyncClient

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
