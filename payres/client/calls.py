"""Calls by resource; and connections for threads, which end each attempt in time: httpx times only the pauses of an
answer."""

import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from datetime import datetime
from math import inf
from ssl import SSLContext
from threading import Thread
from time import monotonic
from typing import Any, Final, Generic, TypeVar, Unpack
from urllib.parse import urlencode
from uuid import uuid4

import httpcore2
import httpx2
import msgspec
from msgspec import UNSET, Raw, UnsetType

from payres.client import checks
from payres.client.attempts import UNENCODABLE, Call, Repeat, encoded, seconds
from payres.client.checks import given
from payres.client.errors import PASSING, ConfigurationError, InvalidAnswer, OpenPaymentsError, WaitTimeout
from payres.client.grants import AuthServer, Token, send_with_token
from payres.client.methods import Http, Options, ResourceCalls, iteration, method
from payres.client.resources import IncomingPayment, OutgoingPayment, Quote
from payres.core.protocol.urls import pointed
from payres.core.protocol.wire import (
    Amount,
    GrantSpending,
    IncomingPaymentRequest,
    OutgoingPaymentRequest,
    Page,
    PublicIncomingPayment,
    QuoteRequest,
    WalletAddress,
    WalletResource,
)
from payres.core.signatures.jwk import JWK

WAIT_SECONDS: Final = 20
LONGEST_PAUSE: Final = 15
PIECE: Final = 16 * 1024  # bytes that are written at a time
_deadline: ContextVar[float] = ContextVar("deadline", default=inf)  # of the attempt that this thread makes

Resource = TypeVar("Resource", bound=WalletResource)
Payment = TypeVar("Payment", bound=IncomingPayment | OutgoingPayment)
AnyAmount = Amount | Mapping[str, object]  # such as {"value": "500", "assetCode": "USD", "assetScale": 2}


class TimedTransport(httpx2.HTTPTransport):
    """Gives an attempt the timeout for connecting, and again until its answer has been read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pool._network_backend = _Backend()  # httpx takes none as an argument

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends the request; the body of the answer is read before this thread sends another."""
        _deadline.set(monotonic() + 2 * request.extensions["timeout"]["read"])
        return super().handle_request(request)


class _Backend(httpcore2.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connects to the first address that accepts; each gets a share of the time, and all of it together."""
        end = monotonic() + (timeout or 0)
        addresses = _look_up(host, port, timeout)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for number, address in enumerate(addresses):
            share = max(end - monotonic(), 0.001) / min(len(addresses) - number, 4)
            try:
                return _Stream(super().connect_tcp(address, port, share, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure


class _Stream(httpcore2.NetworkStream):
    """A stream whose reads and writes end at the deadline of the attempt."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, min(timeout or inf, _left(httpcore2.ReadTimeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            piece = buffer[start : start + PIECE]
            self._stream.write(piece, min(timeout or inf, _left(httpcore2.WriteTimeout)))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = min(timeout or inf, _left(httpcore2.ConnectTimeout))
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(kind: type[Exception]) -> float:
    """The seconds until the deadline; an error of this kind if it is over."""
    left = _deadline.get() - monotonic()
    if left <= 0:
        raise kind("The answer did not end in time")
    return left


def _look_up(host: str, port: int, seconds: float | None) -> list[str]:
    """The addresses of a host. The system's resolver knows no timeout, so a thread of its own waits for it."""
    found: Future[list[Any]] = Future()

    def look_up() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:
            found.set_exception(error)

    Thread(target=look_up, name="payres.client.look_up", daemon=True).start()
    try:
        return list(dict.fromkeys(info[4][0] for info in found.result(seconds)))
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(f"The lookup of {host} did not end in time") from error
    except OSError as error:
        raise httpcore2.ConnectError(str(error)) from error


class Reading(Options, total=False):
    """`wait` is how many seconds the server may wait for a change. `timeout` is in seconds, for connecting, and again
    until the whole answer has come; by default the client's."""

    wait: int | None


class Creating(Options, total=False):
    """`idempotency_key` is generated if none is given, and not sent if it is empty. `timeout` is in seconds, for
    connecting, and again until the whole answer has come; by default the client's."""

    idempotency_key: str | None


class KeySet(msgspec.Struct):
    """The JWK set of a wallet address."""

    keys: list[JWK]


class WalletAddresses(ResourceCalls[Http]):
    """Wallet addresses with their keys."""

    @method
    async def get(self, url: str, **options: Unpack[Options]) -> WalletAddress:
        """The wallet address at a URL or payment pointer, with its asset and servers."""
        answer = await self.core.exchange(Call("wallet_address.get", "GET", pointed(url), **options))
        return checks.decoded(answer, WalletAddress)

    @method
    async def get_keys(self, url: str, **options: Unpack[Options]) -> list[JWK]:
        """The public keys of the wallet address."""
        call = Call("wallet_address.get_keys", "GET", f"{pointed(url).rstrip('/')}/jwks.json", **options)
        answer = await self.core.exchange(call)
        found = checks.decoded(answer, KeySet)
        checks.notice(self.core, answer, checks.members(answer), KeySet)
        return found.keys

    @method
    async def get_did_document(self, url: str, **options: Unpack[Options]) -> dict[str, Any]:
        """The DID document of the wallet address."""
        call = Call("wallet_address.get_did_document", "GET", f"{pointed(url).rstrip('/')}/did.json", **options)
        return checks.members(await self.core.exchange(call))


class Resources(ResourceCalls[Http], Generic[Resource, Http]):
    """The calls that all kinds of resources have."""

    name: str
    kind: type[Resource]

    @method
    async def get(self, url: str, access_token: Token, **options: Unpack[Reading]) -> Resource:
        """The resource; with `wait`, after it has changed or after so many seconds."""
        answer = await send_with_token(self.core, access_token, Call(f"{self.name}.get", "GET", url, **options))
        return checks.resource(self.core, answer, self.kind)

    async def _create(
        self,
        server: AuthServer,
        access_token: Token,
        asked: checks.Creation,
        repeat: Repeat = "always",
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of an attempt
    ) -> Resource:
        key = str(uuid4()) if idempotency_key is None else idempotency_key
        if key and not (key.isascii() and key.isprintable() and not set(key) & {'"', "\\"}):
            raise ConfigurationError("An idempotency_key is printable ASCII without quotes and backslashes")
        asked = checks.valid(asked, type(asked))
        url, name = self._url(server), f"{self.name}.create"
        call = Call(name, "POST", url, 201, asked, key=key, timeout=timeout, repeat=repeat)
        return checks.resource(self.core, await send_with_token(self.core, access_token, call), self.kind, asked)

    def _url(self, server: AuthServer) -> str:
        return f"{_base(server)}/{self.name.replace('_', '-')}s"


class Payments(Resources[Payment, Http]):
    """The calls that both kinds of payments have."""

    @method
    async def list(
        self,
        server: AuthServer,
        access_token: Token,
        *,
        wallet_address: str | None = None,
        first: int | None = None,
        last: int | None = None,
        cursor: str | None = None,
        **options: Unpack[Reading],
    ) -> Page[Payment]:
        """A page of payments, newest first."""
        query = {"first": first, "last": last, "cursor": cursor, "wallet-address": _wallet(server, wallet_address)}
        # application/x-www-form-urlencoded as in browsers (WHATWG URL).
        text = urlencode({name: value for name, value in query.items() if value}, safe="*").replace("~", "%7E")
        call = Call(f"{self.name}.list", "GET", f"{self._url(server)}?{text}", **options)
        return checks.page(self.core, await send_with_token(self.core, access_token, call), self.kind)

    @iteration
    async def iterate(
        self, server: AuthServer, access_token: Token, *, wallet_address: str | None = None
    ) -> AsyncGenerator[Payment, None]:
        """All payments, newest first, in pages that are requested as needed. They end with an empty one or a repeated
        cursor."""
        cursor, seen = None, set[str | None]([None])
        while True:
            page = await Payments.list(
                self, server, access_token, wallet_address=wallet_address, first=100, cursor=cursor
            )
            for payment in page.result:
                yield payment
            cursor = (page.pagination.end_cursor or None) if page.pagination.has_next_page else None
            if cursor in seen or not page.result:
                return
            seen.add(cursor)

    async def _wait(
        self,
        url: str,
        access_token: Token,
        has_ended: Callable[[Payment], Awaitable[bool]],
        timeout: float,  # noqa: ASYNC109 - of all attempts
    ) -> Payment:
        """What passes, such as a lost answer, ends only the last attempt."""
        deadline, pause = time.monotonic() + seconds(timeout), 1.0
        while True:
            begun = time.monotonic()
            call = Call(f"{self.name}.wait", "GET", url, wait=max(0, min(WAIT_SECONDS, int(deadline - begun))))
            answer: httpx2.Response | None
            try:
                answer = await send_with_token(self.core, access_token, call)
                found = checks.resource(self.core, answer, self.kind)
                if await has_ended(found):
                    return found
            except PASSING as error:
                if time.monotonic() >= deadline:
                    raise
                answer, pause = None, max(pause, getattr(error, "retry_after", None) or 0)
            left = deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{call.name}: it is not as wanted after {timeout:g} seconds")
            if answer is None or "preference-applied" not in answer.headers or time.monotonic() - begun < 1:
                await self.core.sleep(min(pause, left))
                pause = min(pause * 2, LONGEST_PAUSE)


class IncomingPayments(Payments[IncomingPayment, Http]):
    """Incoming payments, at the receiver's server."""

    name, kind = "incoming_payment", IncomingPayment

    @method
    async def create(
        self,
        server: AuthServer,
        access_token: Token,
        *,
        wallet_address: str | None = None,
        incoming_amount: AnyAmount | None = None,
        expires_at: datetime | str | None = None,
        metadata: Mapping[str, object] | None = None,
        **options: Unpack[Creating],
    ) -> IncomingPayment:
        """Creates an incoming payment. Retried if the response is lost, because no money moves."""
        asked = IncomingPaymentRequest(
            wallet_address=_wallet(server, wallet_address),
            incoming_amount=given(incoming_amount),
            expires_at=given(expires_at),
            metadata=_json(metadata),
        )
        return await self._create(server, access_token, asked, **options)

    @method
    async def get_public(self, url: str, **options: Unpack[Reading]) -> PublicIncomingPayment:
        """The public part of an incoming payment; `wait` as in `get`."""
        call = Call("incoming_payment.get_public", "GET", url, **options)
        return checks.decoded(await self.core.exchange(call), PublicIncomingPayment)

    @method
    async def complete(self, url: str, access_token: Token, **options: Unpack[Options]) -> IncomingPayment:
        """Completes the incoming payment, which then accepts no more money."""
        call = Call("incoming_payment.complete", "POST", f"{url}/complete", **options)
        answer = await send_with_token(self.core, access_token, call)
        payment = checks.resource(self.core, answer, IncomingPayment, has_methods=False)
        if not payment.completed:
            raise InvalidAnswer(answer.status_code, ["completed is false"])
        return payment

    @method
    async def wait(
        self,
        url: str,
        access_token: Token,
        until: Callable[[IncomingPayment], bool] | None = None,
        timeout: float = 600,  # noqa: ASYNC109 - of all attempts
    ) -> IncomingPayment:
        """Polls the payment until `until` is true: by default, until it is completed. Raises WaitTimeout after
        `timeout` seconds."""

        async def has_ended(payment: IncomingPayment) -> bool:
            return payment.completed if until is None else until(payment)

        return await self._wait(url, access_token, has_ended, timeout)


class Quotes(Resources[Quote, Http]):
    """Quotes, at the payer's server."""

    name, kind = "quote", Quote

    @method
    async def create(
        self,
        server: AuthServer,
        access_token: Token,
        *,
        receiver: str,
        wallet_address: str | None = None,
        debit_amount: AnyAmount | None = None,
        receive_amount: AnyAmount | None = None,
        **options: Unpack[Creating],
    ) -> Quote:
        """Creates a quote for paying `receiver`, the URL of an incoming payment. Retried if the response is lost,
        because no money moves."""
        if debit_amount and receive_amount:
            raise ConfigurationError("Fix debit_amount or receive_amount, not both")
        asked = QuoteRequest(
            wallet_address=_wallet(server, wallet_address),
            receiver=receiver,
            method="ilp",
            debit_amount=given(debit_amount),
            receive_amount=given(receive_amount),
        )
        return await self._create(server, access_token, asked, **options)


class OutgoingPayments(Payments[OutgoingPayment, Http]):
    """Outgoing payments, at the payer's server."""

    name, kind = "outgoing_payment", OutgoingPayment

    @method
    async def create(
        self,
        server: AuthServer,
        access_token: Token,
        *,
        wallet_address: str | None = None,
        quote_id: str | None = None,
        incoming_payment: str | None = None,
        debit_amount: AnyAmount | None = None,
        metadata: Mapping[str, object] | None = None,
        **options: Unpack[Creating],
    ) -> OutgoingPayment:
        """Creates an outgoing payment, of a quote or of an amount to an incoming payment.

        Raises AnswerLost if it may have been created, and a retry could pay twice.
        """
        by_amount = incoming_payment is not None, debit_amount is not None
        if by_amount != ((False, False) if quote_id else (True, True)):
            raise ConfigurationError("Pay a quote_id, or a debit_amount to an incoming_payment")
        asked = OutgoingPaymentRequest(
            wallet_address=_wallet(server, wallet_address),
            quote_id=quote_id or UNSET,
            incoming_payment=given(incoming_payment),
            debit_amount=given(debit_amount),
            metadata=_json(metadata),
        )
        return await self._create(server, access_token, asked, "quoted" if quote_id else "keyed", **options)

    @method
    async def get_grant_spent_amounts(
        self, server: AuthServer, access_token: Token, **options: Unpack[Options]
    ) -> GrantSpending:
        """The amounts spent under a grant."""
        url = f"{_base(server)}/outgoing-payment-grant"
        call = Call("outgoing_payment.get_grant_spent_amounts", "GET", url, **options)
        return checks.decoded(await send_with_token(self.core, access_token, call), GrantSpending)

    @method
    async def wait(
        self,
        url: str,
        access_token: Token,
        until: Callable[[OutgoingPayment], bool] | None = None,
        timeout: float = 600,  # noqa: ASYNC109 - of all attempts
        *,
        received_before: AnyAmount | None = None,
    ) -> OutgoingPayment:
        """Polls the payment until `until` is true: by default, until it has failed, all of it was sent, or the receiver
        has got its `receive_amount` and no more is sent: a payer may send less than `debit_amount`.

        If the receiver had received something before, give its `received_amount` of that time as `received_before`.
        Raises WaitTimeout after `timeout` seconds.
        """
        earlier = 0 if not received_before else int(checks.valid(received_before, Amount).value)

        async def has_ended(payment: OutgoingPayment) -> bool:
            if until is not None:
                return until(payment)
            if payment.failed or payment.sent_amount == payment.debit_amount:
                return True
            if not int(payment.sent_amount.value) or not await self._has_arrived(payment, earlier):
                return False
            await self.core.sleep(1)
            return (await OutgoingPayments.get(self, url, access_token)).sent_amount == payment.sent_amount

        return await self._wait(url, access_token, has_ended, timeout)

    async def _has_arrived(self, payment: OutgoingPayment, earlier: int) -> bool:
        """Whether the receiver says that it has received the payment, apart from what it had `earlier`."""
        try:
            received = (await IncomingPayments.get_public(self, payment.receiver)).received_amount
        except OpenPaymentsError:
            return False
        wanted = payment.receive_amount
        if received is UNSET or received.asset != wanted.asset:
            return False
        return int(received.value) - earlier >= int(wanted.value)


def _json(metadata: Mapping[str, object] | None) -> Raw | UnsetType:
    try:
        return UNSET if metadata is None else Raw(encoded(metadata))
    except UNENCODABLE as error:
        raise ConfigurationError(f"metadata cannot be sent as JSON: {error}") from error


def _base(server: AuthServer) -> str:
    return (server.resource_server if isinstance(server, WalletAddress) else server).rstrip("/")


def _wallet(server: AuthServer, named: str | None) -> str:
    if named is not None:
        return pointed(named)
    if not isinstance(server, WalletAddress):
        raise ConfigurationError("Name the wallet_address, or give a WalletAddress as the server")
    return server.id
