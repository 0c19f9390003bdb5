"""What answers must satisfy: what the official JavaScript client checks, and that they are about what was asked for.

Members that are not in the standard, where that client refuses them, are logged once: a new one must not stop
payments. A strict client refuses them too.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import httpx2
import msgspec
from msgspec import UNSET, Struct

from payres.amounts import parse_value
from payres.client.core import Core
from payres.client.errors import InvalidAnswer
from payres.gnap import AccessToken
from payres.urls import canonical
from payres.wire import (
    Amount,
    IncomingPayment,
    IncomingPaymentRequest,
    OutgoingPayment,
    OutgoingPaymentRequest,
    Page,
    Pagination,
    Quote,
    QuoteRequest,
)

log = logging.getLogger("payres.client")
T = TypeVar("T")
P = TypeVar("P", IncomingPayment, OutgoingPayment)
Asked = IncomingPaymentRequest | QuoteRequest | OutgoingPaymentRequest
# A member of the answer, as the attribute of what was asked for and as that of the answer.
FIXED: Final = (
    ("walletAddress", "wallet_address", "wallet_address"),
    ("receiver", "receiver", "receiver"),
    ("receiver", "incoming_payment", "receiver"),
    ("incomingAmount", "incoming_amount", "incoming_amount"),
    ("debitAmount", "debit_amount", "debit_amount"),
    ("receiveAmount", "receive_amount", "receive_amount"),
)
CREATED_ONLY: Final = ("grantSpentDebitAmount", "grantSpentReceiveAmount")


def decoded(answer: httpx2.Response, kind: type[T]) -> T:
    """The struct in an answer. Raises InvalidAnswer."""
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(answer.status_code, [str(error)]) from None


def created_incoming(answer: httpx2.Response, asked: Asked) -> IncomingPayment:
    """What was created: nothing has been received, and it is what was asked for."""
    payment = read_incoming(answer)
    problems = [*_differences(payment, asked)]
    if payment.completed:
        problems.append("completed is true")
    if payment.received_amount.value.strip("0"):
        problems.append("receivedAmount is not zero")
    _require(answer, problems)
    return payment


def read_incoming(answer: httpx2.Response) -> IncomingPayment:
    """What was read, with its methods."""
    payment = decoded(answer, IncomingPayment)
    _require(answer, _incoming(payment, has_methods=True))
    return payment


def completed_incoming(core: Core, answer: httpx2.Response) -> IncomingPayment:
    """What was completed."""
    payment = decoded(answer, IncomingPayment)
    _notice(core, answer, answer.json(), IncomingPayment)
    problems = [*_incoming(payment, has_methods=False)]
    _require(answer, problems if payment.completed else [*problems, "completed is false"])
    return payment


def quote(core: Core, answer: httpx2.Response, asked: QuoteRequest | None = None) -> Quote:
    """A quote, and if it was just asked for, whether it is that."""
    found = decoded(answer, Quote)
    _notice(core, answer, answer.json(), Quote)
    problems = [*_amounts(found.debit_amount, found.receive_amount), *(_differences(found, asked) if asked else ())]
    _require(answer, problems if found.method == "ilp" else [*problems, "method is not ilp"])
    return found


def created_outgoing(answer: httpx2.Response, asked: Asked) -> OutgoingPayment:
    """A payment that was just made as asked for."""
    payment = decoded(answer, OutgoingPayment)
    _require(answer, [*_outgoing(payment), *_differences(payment, asked)])
    return payment


def read_outgoing(core: Core, answer: httpx2.Response) -> OutgoingPayment:
    """A payment that was read."""
    payment = decoded(answer, OutgoingPayment)
    _notice(core, answer, answer.json(), OutgoingPayment, CREATED_ONLY)
    _require(answer, _outgoing(payment))
    return payment


def page(core: Core, answer: httpx2.Response, kind: type[P]) -> Page[P]:
    """A page of a list, whose items have no methods."""
    found = decoded(answer, Page[kind])  # type: ignore[valid-type]
    raw = answer.json()
    _notice(core, answer, raw["pagination"], Pagination)
    for item, payment in zip(raw["result"], found.result, strict=True):
        _notice(core, answer, item, kind, CREATED_ONLY)
        is_incoming = isinstance(payment, IncomingPayment)
        _require(answer, _incoming(payment, has_methods=False) if is_incoming else _outgoing(payment))
    return found


def notice_token(core: Core, answer: httpx2.Response) -> None:
    """Looks for what an access token should not have."""
    token = answer.json().get("access_token")
    if isinstance(token, dict):
        _notice(core, answer, token, AccessToken)


def notice_members(core: Core, answer: httpx2.Response, kind: type[Struct]) -> None:
    """Looks for what an answer should not have."""
    _notice(core, answer, answer.json(), kind)


def _differences(found: IncomingPayment | Quote | OutgoingPayment, asked: Asked) -> Iterator[str]:
    """What of an answer is not what was asked for. Servers may write the URLs of wallet addresses in lower case."""
    for member, asked_as, found_as in FIXED:
        wanted, given = getattr(asked, asked_as, UNSET), getattr(found, found_as, UNSET)
        if wanted is not UNSET and not _is_same(wanted, given, ignore_case=member == "walletAddress"):
            yield f"{member} is not the one asked for"


def _is_same(wanted: Any, given: Any, *, ignore_case: bool) -> bool:
    if not isinstance(wanted, str):
        return bool(wanted == given)
    one, other = canonical(wanted), canonical(given)
    return one == other or (ignore_case and one.lower() == other.lower())


def _incoming(payment: IncomingPayment, *, has_methods: bool) -> Iterator[str]:
    asked = payment.incoming_amount or payment.received_amount
    yield from _amounts(payment.received_amount, asked)
    if asked.asset != payment.received_amount.asset:
        yield "incomingAmount and receivedAmount differ in asset"
    if (payment.methods is not UNSET) != has_methods:
        yield f"methods are {'missing' if has_methods else 'there'}"


def _outgoing(payment: OutgoingPayment) -> Iterator[str]:
    sent, debit = payment.sent_amount, payment.debit_amount
    problems = [*_amounts(sent, debit, payment.receive_amount)]
    yield from problems
    if sent.asset != debit.asset:
        yield "sentAmount and debitAmount differ in asset"
    elif not problems and int(sent.value) > int(debit.value):
        yield "sentAmount is more than debitAmount"
    elif payment.failed and sent == debit:
        yield "it failed and all was sent"


def _amounts(*amounts: Amount) -> Iterator[str]:
    for amount in amounts:
        try:
            parse_value(amount.value)
        except ValueError:
            yield f"{amount.value[:30]!r} is no value of an amount"


def _require(answer: httpx2.Response, problems: Iterable[str]) -> None:
    found = [*problems]
    if found:
        raise InvalidAnswer(answer.status_code, found)


def _notice(
    core: Core, answer: httpx2.Response, raw: Mapping[str, Any], kind: type[Struct], never: Iterable[str] = ()
) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    members = sorted(raw.keys() - known.difference(never))
    if core.strict:
        _require(answer, [f"{member} is not in the standard" for member in members])
    for member in members:
        if member not in core.noticed and len(core.noticed) < 100:
            core.noticed.add(member)
            log.warning("Answers of %s have %.40r, which is not in the standard", answer.request.url.host, member)
