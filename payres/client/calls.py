"""Calls to resource servers and wallet addresses, for both clients."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import msgspec
from msgspec import UNSET, Raw, UnsetType

from payres.client import checks
from payres.client.core import Call, Core, Sleep, Steps
from payres.client.errors import ConfigurationError, InvalidAnswer, WaitTimeout
from payres.client.grants import Server, Token, exchange
from payres.signatures.jwk import JWK
from payres.wire import (
    Amount,
    GrantSpending,
    IncomingPayment,
    IncomingPaymentRequest,
    OutgoingPayment,
    OutgoingPaymentRequest,
    Page,
    PublicIncomingPayment,
    Quote,
    QuoteRequest,
    WalletAddress,
    WalletResource,
)

T = TypeVar("T", bound=WalletResource)
WAIT_SECONDS: Final = 20
LONGEST_PAUSE: Final = 15


class KeySet(msgspec.Struct):
    """The JWK set of a wallet address."""

    keys: list[JWK]


class Kind(NamedTuple, Generic[T]):
    """The calls that a kind of resource has in common: create, read, list and wait."""

    name: str
    type: type[T]
    has_ended: Callable[[T], bool]

    def get(
        self, core: Core, url: str, access_token: Token, *, wait: int | None = None, timeout: float | None = None
    ) -> Steps[T]:
        """The resource; with `wait`, after it has changed or after so many seconds."""
        call = Call(f"{self.name}.get", "GET", url, wait=wait, timeout=timeout)
        return checks.resource(core, (yield from exchange(core, access_token, call)), self.type)

    def list(
        self,
        core: Core,
        server: Server,
        access_token: Token,
        *,
        wallet_address: str | None = None,
        first: int | None = None,
        last: int | None = None,
        cursor: str | None = None,
        wait: int | None = None,
        timeout: float | None = None,
    ) -> Steps[Page[T]]:
        """A page of payments, newest first."""
        query = {"first": first, "last": last, "cursor": cursor, "wallet-address": _wallet(server, wallet_address)}
        # application/x-www-form-urlencoded as in browsers (WHATWG URL).
        text = urlencode({name: value for name, value in query.items() if value}, safe="*").replace("~", "%7E")
        call = Call(f"{self.name}.list", "GET", f"{self._urls(server)}?{text}", wait=wait, timeout=timeout)
        return checks.page(core, (yield from exchange(core, access_token, call)), self.type)

    def page(
        self,
        core: Core,
        cursor: str | None,
        server: Server,
        access_token: Token,
        *,
        wallet_address: str | None = None,
    ) -> Steps[Page[T]]:
        """The page after a cursor, of all payments, newest first."""
        return self.list(core, server, access_token, wallet_address=wallet_address, first=100, cursor=cursor)

    def wait(
        self,
        core: Core,
        url: str,
        access_token: Token,
        until: Callable[[T], bool] | None = None,
        timeout: float = 600,
    ) -> Steps[T]:
        """Polls the payment until `until` is true: by default, until it is completed, sent or failed.

        An outgoing payment with a fixed receive amount may end below its `debitAmount`; read the incoming payment
        then. Raises WaitTimeout.
        """
        deadline, pause = time.monotonic() + timeout, 1.0
        while True:
            begun = time.monotonic()
            seconds = max(0, min(WAIT_SECONDS, int(deadline - begun)))
            call = Call(f"{self.name}.wait", "GET", url, wait=seconds)
            answer = yield from exchange(core, access_token, call)
            found = checks.resource(core, answer, self.type)
            if (until or self.has_ended)(found):
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{call.name}: it is not as wanted after {timeout:g} seconds")
            if "preference-applied" not in answer.headers or time.monotonic() - begun < 1:
                yield Sleep(min(pause, left))
                pause = min(pause * 2, LONGEST_PAUSE)

    def created(
        self,
        core: Core,
        server: Server,
        access_token: Token,
        asked: checks.Asked,
        key: str | None,
        timeout: float | None,
        repeat: Literal["always", "quoted", "keyed"] = "always",
    ) -> Steps[T]:
        """Creates a resource, with an Idempotency-Key unless `key` is empty; None generates one."""
        key = str(uuid4()) if key is None else key
        if key and not (key.isascii() and key.isprintable() and not set(key) & {'"', "\\"}):
            raise ConfigurationError("An idempotency_key is printable ASCII without quotes and backslashes")
        url = self._urls(server)
        call = Call(f"{self.name}.create", "POST", url, 201, asked, key=key, timeout=timeout, repeat=repeat)
        return checks.resource(core, (yield from exchange(core, access_token, call)), self.type, asked)

    def _urls(self, server: Server) -> str:
        return f"{_base(server)}/{self.name.replace('_', '-')}s"


INCOMING: Final = Kind("incoming_payment", IncomingPayment, lambda payment: payment.completed)
QUOTES: Final = Kind("quote", Quote, lambda _: True)
OUTGOING: Final = Kind("outgoing_payment", OutgoingPayment, lambda payment: bool(payment.failed) or _is_sent(payment))


def wallet_address(core: Core, url: str, *, timeout: float | None = None) -> Steps[WalletAddress]:
    """The wallet address, with its asset and servers."""
    answer = yield from core.exchange(Call("wallet_address.get", "GET", url, timeout=timeout))
    return checks.decoded(answer, WalletAddress)


def keys(core: Core, url: str, *, timeout: float | None = None) -> Steps[list[JWK]]:
    """The public keys of the wallet address."""
    call = Call("wallet_address.get_keys", "GET", f"{url.rstrip('/')}/jwks.json", timeout=timeout)
    answer = yield from core.exchange(call)
    found = checks.decoded(answer, KeySet)
    checks.notice(core, answer, checks.members(answer), KeySet)
    return found.keys


def did_document(core: Core, url: str, *, timeout: float | None = None) -> Steps[dict[str, Any]]:
    """The DID document of the wallet address."""
    call = Call("wallet_address.get_did_document", "GET", f"{url.rstrip('/')}/did.json", timeout=timeout)
    return checks.decoded((yield from core.exchange(call)), dict[str, Any])


def create_incoming(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    wallet_address: str | None = None,
    incoming_amount: Amount | None = None,
    expires_at: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    timeout: float | None = None,
) -> Steps[IncomingPayment]:
    """Creates an incoming payment. Retried if the response is lost, because no money moves."""
    asked = IncomingPaymentRequest(
        wallet_address=_wallet(server, wallet_address),
        incoming_amount=incoming_amount or UNSET,
        expires_at=expires_at or UNSET,
        metadata=_json(metadata),
    )
    return (yield from INCOMING.created(core, server, access_token, asked, idempotency_key, timeout))


def get_public(
    core: Core, url: str, *, wait: int | None = None, timeout: float | None = None
) -> Steps[PublicIncomingPayment]:
    """The public part of an incoming payment; `wait` as in `get`."""
    call = Call("incoming_payment.get_public", "GET", url, wait=wait, timeout=timeout)
    return checks.decoded((yield from core.exchange(call)), PublicIncomingPayment)


def complete(core: Core, url: str, access_token: Token, *, timeout: float | None = None) -> Steps[IncomingPayment]:
    """Completes the incoming payment, which then accepts no more money."""
    call = Call("incoming_payment.complete", "POST", f"{url}/complete", timeout=timeout)
    answer = yield from exchange(core, access_token, call)
    payment = checks.resource(core, answer, IncomingPayment, has_methods=False)
    if not payment.completed:
        raise InvalidAnswer(answer.status_code, ["completed is false"])
    return payment


def create_quote(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    receiver: str,
    wallet_address: str | None = None,
    debit_amount: Amount | None = None,
    receive_amount: Amount | None = None,
    idempotency_key: str | None = None,
    timeout: float | None = None,
) -> Steps[Quote]:
    """Creates a quote for paying `receiver`. Retried if the response is lost, because no money moves."""
    if debit_amount and receive_amount:
        raise ConfigurationError("Fix debit_amount or receive_amount, not both")
    asked = QuoteRequest(
        wallet_address=_wallet(server, wallet_address),
        receiver=receiver,
        method="ilp",
        debit_amount=debit_amount or UNSET,
        receive_amount=receive_amount or UNSET,
    )
    return (yield from QUOTES.created(core, server, access_token, asked, idempotency_key, timeout))


def create_outgoing(
    core: Core,
    server: Server,
    access_token: Token,
    *,
    wallet_address: str | None = None,
    quote_id: str | None = None,
    incoming_payment: str | None = None,
    debit_amount: Amount | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    timeout: float | None = None,
) -> Steps[OutgoingPayment]:
    """Creates an outgoing payment, of a quote or of an amount to an incoming payment.

    Raises AnswerLost if it may have been created, and a retry could pay twice.
    """
    by_amount = incoming_payment is not None, debit_amount is not None
    if by_amount != ((False, False) if quote_id else (True, True)):
        raise ConfigurationError("Pay a quote_id, or a debit_amount to an incoming_payment")
    asked = OutgoingPaymentRequest(
        wallet_address=_wallet(server, wallet_address),
        quote_id=quote_id or UNSET,
        incoming_payment=incoming_payment or UNSET,
        debit_amount=debit_amount or UNSET,
        metadata=_json(metadata),
    )
    made = OUTGOING.created(
        core, server, access_token, asked, idempotency_key, timeout, "quoted" if quote_id else "keyed"
    )
    return (yield from made)


def spent_amounts(
    core: Core, server: Server, access_token: Token, *, timeout: float | None = None
) -> Steps[GrantSpending]:
    """The amounts spent under a grant."""
    url = f"{_base(server)}/outgoing-payment-grant"
    call = Call("outgoing_payment.get_grant_spent_amounts", "GET", url, timeout=timeout)
    return checks.decoded((yield from exchange(core, access_token, call)), GrantSpending)


def _is_sent(payment: OutgoingPayment) -> bool:
    return int(payment.sent_amount.value) >= int(payment.debit_amount.value)


def _json(metadata: Mapping[str, Any] | None) -> Raw | UnsetType:
    return UNSET if metadata is None else Raw(msgspec.json.encode(metadata))


def _base(server: Server) -> str:
    return (server.resource_server if isinstance(server, WalletAddress) else server).rstrip("/")


def _wallet(server: Server, named: str | None) -> str:
    if named is not None:
        return named
    if not isinstance(server, WalletAddress):
        raise ConfigurationError("Name the wallet_address, or give a WalletAddress as the server")
    return server.id
