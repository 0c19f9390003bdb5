"""Both clients, with their calls by resource, and the forms of private keys."""

import asyncio
import ssl
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres.client import errors
from payres.client.attempts import Core, Signer, seconds, url_of
from payres.client.calls import IncomingPayments, OutgoingPayments, Quotes, TimedTransport, WalletAddresses
from payres.client.checks import bound, bound_async
from payres.client.grants import Grant, Grants, Tokens
from payres.client.methods import Http, checked
from payres.core.protocol.clock import Clock, SystemClock
from payres.core.protocol.identifiers import base64url_decoded
from payres.core.protocol.urls import pointed

Key = str | bytes | Path | Mapping[str, Any] | Ed25519PrivateKey | Signer
Transport = TypeVar("Transport")
CLOSING_SECONDS: Final = 2
SYSTEM_CLOCK: Final = SystemClock()
NO_COOKIES: Final = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # a server could send any number


class _Client(Generic[Http, Transport]):
    _open: Callable[..., Http]
    _connect: Callable[..., Transport]

    @checked
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
        proxy: str | None = None,
        ca: str | Path | ssl.SSLContext | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Opens nothing yet.

        - `wallet_address`: the client's own, a URL or a payment pointer; other servers read its keys there.
        - `private_key`, `kid`: the Ed25519 key (PEM, 32 raw bytes, a JWK, a Path of a PEM file, or a function that
          signs bytes), and the id that it is published under. Without them only public resources can be read.
        - `use_http`: asks all servers with plain http, for tests. Otherwise http needs a wallet address of http.
        - `timeout`: seconds for connecting, and again until the whole answer has come, of each attempt.
        - `max_retries`: how often a call is repeated, if it can have no second effect.
        - `strict`: refuses answers with members that are not in the standard, which are otherwise logged once.
        - `on_rotate`: is called with each Grant that has a new token, before the token is used; store it then.
        - `proxy`: an HTTP proxy for all requests, such as http://user:password@proxy.example:3128.
        - `ca`: a PEM file with the certificates to trust instead of the system's, or an SSLContext. The variables
          SSL_CERT_FILE and SSL_CERT_DIR are respected too; no others of the environment are.
        - `transport`: of httpx, in place of `proxy` and `ca`, for example one that guards addresses. A Client for
          threads leaves it to this one to end in time; `payres.client.calls.TimedTransport` does.
        - `clock`: for tests.
        """
        if isinstance(private_key, Mapping):
            kid = kid or private_key.get("kid")
        if transport is None:
            transport = self._connect(verify=trusted(ca), proxy=_proxy(proxy))
        elif proxy is not None or ca is not None:
            raise errors.ConfigurationError("Give a transport, or proxy and ca")
        self._http = self._open(transport=transport, trust_env=False)
        self._core = core = Core(
            wallet_address=pointed(wallet_address),
            signer=None if private_key is None else signer_of(private_key),
            kid=kid,
            use_http=use_http,
            timeout=seconds(timeout),
            max_retries=max_retries,
            strict=strict,
            on_rotate=on_rotate,
            clock=clock,
            http=self._http,
        )
        self.wallet_address, self.grant = WalletAddresses[Http](core), Grants[Http](core)
        self.incoming_payment, self.outgoing_payment = IncomingPayments[Http](core), OutgoingPayments[Http](core)
        self.quote, self.token = Quotes[Http](core), Tokens[Http](core)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.wallet_address} ...{(self._core.kid or '')[-4:]}>"

    def __del__(self) -> None:
        if hasattr(self, "_core") and not self._http.is_closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)


class Client(_Client[httpx2.Client, httpx2.BaseTransport]):
    """A thread-safe Open Payments client; not for use across `fork`. Close it, or use it with `with`."""

    _open = staticmethod(partial(httpx2.Client, cookies=NO_COOKIES, event_hooks={"response": [bound]}))
    _connect = TimedTransport

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _AsyncHttp(httpx2.AsyncClient):
    """Ends each attempt in time, also if a head comes byte by byte or after endless 1xx answers, of which httpx times
    only the pauses."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        self._loop = self._loop or asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise errors.ConfigurationError("An AsyncClient is for one event loop: open one in each asyncio.run")
        try:
            async with asyncio.timeout(2 * request.extensions["timeout"]["read"]):  # to connect, and to be answered
                return await super().send(request, **options)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("The answer did not end in time") from error

    async def aclose(self) -> None:
        if self._loop not in (None, asyncio.get_running_loop()) and not self._loop.is_closed():
            raise errors.ConfigurationError("Close an AsyncClient in the event loop that it was used in")
        try:
            await super().aclose()
        except RuntimeError:
            if self._loop is asyncio.get_running_loop():
                raise  # else its connections have ended with their loop


class AsyncClient(_Client[httpx2.AsyncClient, httpx2.AsyncBaseTransport]):
    """An Open Payments client for all tasks of one loop. Close it, or use it with `async with`."""

    _open = staticmethod(partial(_AsyncHttp, cookies=NO_COOKIES, event_hooks={"response": [bound_async]}))
    _connect = httpx2.AsyncHTTPTransport

    async def aclose(self) -> None:
        """Closes its connections, once the rotations have ended whose calls were cancelled: after two seconds at
        most, because a rotation whose answer is lost can be repeated."""
        await self._core.finish(self._closed(self._core.finishing.copy()))  # also if this is cancelled

    async def _closed(self, rotations: set[asyncio.Task[object]]) -> None:
        try:
            if rotations:
                await asyncio.wait(rotations, timeout=CLOSING_SECONDS)
        finally:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def trusted(ca: str | Path | ssl.SSLContext | None = None) -> ssl.SSLContext:
    """What servers' certificates are verified with. Raises ConfigurationError."""
    if isinstance(ca, ssl.SSLContext):
        return ca
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if ca is None:
            return httpx2.create_ssl_context()
        context.load_verify_locations(ca)
    except OSError as error:  # also that of ssl
        named = "SSL_CERT_FILE or SSL_CERT_DIR" if ca is None else repr(str(ca))
        raise errors.ConfigurationError(f"No certificates can be read from {named}: {error}") from error
    return context


def _proxy(url: str | None) -> httpx2.Proxy | None:
    """Raises ConfigurationError."""
    if url is None:
        return None
    with suppress(errors.ConfigurationError):
        if url_of(url).scheme == "http":  # no other kind would keep to the timeout
            return httpx2.Proxy(url)
    raise errors.ConfigurationError("proxy is a URL such as http://user:password@proxy.example:3128")


def signer_of(key: Key) -> Signer:
    """The signing function of a key in any form. Text is never a path. Raises ConfigurationError."""
    if isinstance(key, Path):
        path = key
        try:
            key = path.read_bytes()
        except OSError as error:
            why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
            raise errors.ConfigurationError(f"The private key cannot be read from {path}: {why}") from None
    if isinstance(key, str):
        if not key.lstrip().startswith("-----BEGIN"):
            raise errors.ConfigurationError("A private key of type str is the PEM itself; give a file as a Path")
        key = key.encode()
    try:
        if isinstance(key, Mapping):
            key = base64url_decoded(key["d"])
        found: Any = key
        if isinstance(key, bytes):
            is_raw = len(key) == 32
            found = Ed25519PrivateKey.from_private_bytes(key) if is_raw else load_pem_private_key(key, password=None)
    except (KeyError, ValueError, TypeError) as error:
        forms = "PEM without a password, 32 raw bytes, or a JWK with its d"
        raise errors.ConfigurationError(
            f"The private key cannot be read ({type(error).__name__}): give {forms}"
        ) from None
    if isinstance(found, Ed25519PrivateKey):
        return found.sign
    if not callable(found):
        raise errors.ConfigurationError("The private key is no Ed25519 key")
    signer: Signer = found
    return signer
