"""Validation of requests; and of responses: their size, the checks of the official JavaScript client, and that they
match the request.

Non-standard members that the JavaScript client refuses are logged once, because new ones must not stop payments. A
strict client refuses them too.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import httpx2
import msgspec
from msgspec import UNSET, Struct

from payres.client.attempts import UNENCODABLE, Core, encoded
from payres.client.errors import ConfigurationError, InvalidAnswer
from payres.client.methods import AN_AMOUNT
from payres.client.resources import IncomingPayment, OutgoingPayment, Quote, decode
from payres.core.protocol import wire
from payres.core.protocol.amounts import Asset, parse_value
from payres.core.protocol.gnap import ACTIONS
from payres.core.protocol.urls import canonical

log = logging.getLogger("payres.client")
T = TypeVar("T")
S = TypeVar("S", bound=Struct)
R = TypeVar("R", bound=wire.WalletResource)
Creation = wire.IncomingPaymentRequest | wire.QuoteRequest | wire.OutgoingPaymentRequest
MOST_BYTES: Final = 8 * 1024 * 1024
CREATED_ONLY: Final = ("grantSpentDebitAmount", "grantSpentReceiveAmount")


def valid(asked: S | Mapping[str, object], kind: type[S]) -> S:
    """What is asked, with structs where the caller gave dicts. Raises ConfigurationError."""
    try:
        found = msgspec.json.decode(encoded(asked), type=kind)
        _check_amounts(found)
    except UNENCODABLE as error:
        about = AN_AMOUNT if kind is wire.Amount or "amount" in str(error).lower() else ""
        raise ConfigurationError(f"Nothing was sent: {error}{about}") from None
    return found


def check_actions(kind: str, actions: Iterable[object]) -> None:
    """Raises ConfigurationError for actions that access of this kind does not have, if the kind is known."""
    known = ACTIONS.get(kind, ())
    unknown = [repr(one) for one in actions if known and one not in known]
    if unknown:
        raise ConfigurationError(f"There is no action {unknown[0]} of {kind}, but: {', '.join(known)}")


def given(value: object) -> Any:
    """An optional argument as a member: only None is absent, because an empty text may be a mistake."""
    return UNSET if value is None else value


def bound(answer: httpx2.Response) -> None:
    """Makes reading the body of a response fail when it is too long or takes longer than the timeout."""
    parts, check = answer.iter_bytes(), _bounds(answer)
    answer.iter_bytes = lambda: map(check, parts)  # type: ignore[assignment, method-assign, misc]


async def bound_async(answer: httpx2.Response) -> None:
    """Does the same for an asynchronous client."""
    parts, check = answer.aiter_bytes(), _bounds(answer)
    answer.aiter_bytes = lambda: (check(part) async for part in parts)  # type: ignore[assignment, method-assign, misc]


def _bounds(answer: httpx2.Response) -> Callable[[bytes], bytes]:
    """A function that lets the parts of a body pass, decompressed. Raises InvalidAnswer, ReadTimeout."""
    read, deadline = 0, time.monotonic() + answer.request.extensions["timeout"]["read"]

    def check(part: bytes) -> bytes:
        nonlocal read
        read += len(part)
        if read > MOST_BYTES:
            raise InvalidAnswer(answer.status_code, [f"it is longer than {MOST_BYTES} bytes"])
        if time.monotonic() > deadline:
            raise httpx2.ReadTimeout("The answer did not end in time")
        return part

    return check


def decoded(answer: httpx2.Response, kind: type[T]) -> T:
    """Decodes the body of a response. Raises InvalidAnswer."""
    try:
        found = decode(answer.content, kind)
        if isinstance(found, Struct):
            _check_amounts(found)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(answer.status_code, [str(error)]) from None
    return found


def resource(
    core: Core, answer: httpx2.Response, kind: type[R], asked: Creation | None = None, *, has_methods: bool = True
) -> R:
    """A resource that was read or created. A completed incoming payment has no methods."""
    found = decoded(answer, kind)
    # The JavaScript client accepts further members in incoming payments with methods and in new outgoing payments.
    if kind is Quote or (asked is None and (kind is OutgoingPayment or not has_methods)):
        notice(core, answer, members(answer), kind)
    _require(answer, _problems(found, has_methods=has_methods))
    _require(answer, [] if asked is None else _differences(found, asked))
    return found


def members(answer: httpx2.Response) -> dict[str, Any]:
    """All members of a response, including unknown ones. Raises InvalidAnswer."""
    return decoded(answer, dict[str, Any])


def page(core: Core, answer: httpx2.Response, kind: type[R]) -> wire.Page[R]:
    """A page of a list; its items have no methods."""
    found = decoded(answer, wire.Page[kind])  # type: ignore[valid-type]
    raw = members(answer)
    notice(core, answer, raw["pagination"], wire.Pagination)
    for item, payment in zip(raw["result"], found.result, strict=True):
        notice(core, answer, item, kind)
        _require(answer, _problems(payment, has_methods=False))
    return found


def notice(core: Core, answer: httpx2.Response, raw: Mapping[str, object], kind: type[Struct]) -> None:
    """Logs non-standard members of a response or a part of it; a strict client raises InvalidAnswer."""
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    members = sorted(raw.keys() - known.difference(CREATED_ONLY))
    if core.strict:
        _require(answer, [f"{member} is not in the standard" for member in members])
    for member in members:
        if member not in core.noticed and len(core.noticed) < 100:
            core.noticed.add(member)
            log.warning("Answers of %s have %.40r, which is not in the standard", answer.request.url.host, member)


def _require(answer: httpx2.Response, problems: Iterable[str]) -> None:
    try:
        found = [*problems]
    except ValueError as error:
        found = [str(error)]
    if found:
        raise InvalidAnswer(answer.status_code, found)


def _problems(found: wire.WalletResource, *, has_methods: bool = True) -> Iterator[str]:
    """What no resource may be. Raises ValueError for an amount without a value."""
    _check_amounts(found)
    match found:
        case IncomingPayment():
            if found.incoming_amount and found.incoming_amount.asset != found.received_amount.asset:
                yield "incomingAmount and receivedAmount differ in asset"
            if (found.methods is not UNSET) != has_methods:
                yield f"methods are {'missing' if has_methods else 'there'}"
        case Quote() if found.method != "ilp":
            yield "method is not ilp"
        case OutgoingPayment():
            sent, debit = found.sent_amount, found.debit_amount
            if sent.asset != debit.asset:
                yield "sentAmount and debitAmount differ in asset"
            elif int(sent.value) > int(debit.value):
                yield "sentAmount is more than debitAmount"
            elif found.failed and sent == debit:
                yield "it failed and all was sent"


def _check_amounts(found: Struct) -> None:
    """Raises ValueError for an amount without a value."""
    for name in found.__struct_fields__:
        if isinstance(amount := getattr(found, name), wire.Amount):
            parse_value(amount.value)


def _differences(found: wire.WalletResource, asked: Creation) -> Iterator[str]:
    """The differences between a created resource and its request."""
    if isinstance(found, IncomingPayment):
        if found.completed:
            yield "completed is true"
        if found.received_amount.value.strip("0"):
            yield "receivedAmount is not zero"
    # Servers may return wallet addresses in lower case.
    wallets = canonical(asked.wallet_address or ""), canonical(found.wallet_address)
    if wallets[0].lower() != wallets[1].lower():
        yield "walletAddress is not the one asked for"
    receiver = getattr(asked, "receiver", getattr(asked, "incoming_payment", UNSET))
    if receiver and canonical(receiver) != canonical(getattr(found, "receiver", "")):
        yield "receiver is not the one asked for"
    quotes = getattr(asked, "quote_id", UNSET), getattr(found, "quote_id", UNSET)
    if all(quotes) and canonical(str(quotes[0])) != canonical(str(quotes[1])):
        yield "quoteId is not the one asked for"
    for name in ("incoming_amount", "debit_amount", "receive_amount"):
        amount, given_back = getattr(asked, name, UNSET), getattr(found, name, UNSET)
        # Servers may drop leading zeros.
        if amount and not (given_back and _units(amount) == _units(given_back)):
            yield f"{name} is not the one asked for"


def _units(amount: wire.Amount) -> tuple[Asset, int]:
    return amount.asset, parse_value(amount.value)
