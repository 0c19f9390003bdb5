"""What answers must satisfy: what the official JavaScript client checks, and that they are about what was asked for.

Members that are not in the standard, where that client refuses them, are logged once: a new one must not stop
payments. A strict client refuses them too.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import httpx2
import msgspec
from msgspec import UNSET

from payres.client.core import Core
from payres.client.errors import InvalidAnswer
from payres.urls import canonical
from payres.wire import Amount, IncomingPayment, OutgoingPayment, Page, Pagination, Quote

log = logging.getLogger("payres.client")
T = TypeVar("T")
P = TypeVar("P", IncomingPayment, OutgoingPayment)
SPENT: Final = ("grantSpentDebitAmount", "grantSpentReceiveAmount")


def decoded(answer: httpx2.Response, kind: type[T]) -> T:
    """The struct in an answer. Raises InvalidAnswer."""
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(answer.status_code, [str(error)]) from None


def created_incoming(core: Core, answer: httpx2.Response, wallet: str | None, amount: Amount | None) -> IncomingPayment:
    """What was created: nothing has been received, and it is for the wallet and the amount asked for."""
    payment = decoded(answer, IncomingPayment)
    _require(
        answer,
        [
            *_incoming(payment, has_methods=True),
            *_unless(_same_wallet(wallet, payment.wallet_address), "walletAddress is not the one asked for"),
            *_unless(amount is None or payment.incoming_amount == amount, "incomingAmount is not the one asked for"),
            *_unless(not payment.completed, "completed is true"),
            *_unless(not payment.received_amount.value.strip("0"), "receivedAmount is not zero"),
        ],
    )
    return payment


def read_incoming(core: Core, answer: httpx2.Response) -> IncomingPayment:
    """What was read, with its methods."""
    payment = decoded(answer, IncomingPayment)
    _require(answer, _incoming(payment, has_methods=True))
    return payment


def completed_incoming(core: Core, answer: httpx2.Response) -> IncomingPayment:
    """What was completed."""
    payment = decoded(answer, IncomingPayment)
    _notice(core, answer, _extra(answer.json(), IncomingPayment))
    _require(answer, [*_incoming(payment, has_methods=False), *_unless(payment.completed, "completed is false")])
    return payment


def quote(core: Core, answer: httpx2.Response, asked: Mapping[str, Any] | None = None) -> Quote:
    """A quote, and if it was just asked for, whether it is that."""
    found = decoded(answer, Quote)
    problems = [
        *_amounts(found.debit_amount, found.receive_amount),
        *_unless(found.method == "ilp", "method is not ilp"),
    ]
    if asked is not None:
        fixed = asked.get("debitAmount", found.debit_amount), asked.get("receiveAmount", found.receive_amount)
        problems += [
            *_unless(_same_wallet(asked["walletAddress"], found.wallet_address), "walletAddress is another"),
            *_unless(canonical(asked["receiver"]) == canonical(found.receiver), "receiver is another"),
            *_unless(fixed == (found.debit_amount, found.receive_amount), "the fixed amount is another"),
        ]
    _notice(core, answer, _extra(answer.json(), Quote))
    _require(answer, problems)
    return found


def created_outgoing(core: Core, answer: httpx2.Response, asked: Mapping[str, Any]) -> OutgoingPayment:
    """A payment that was just made: from the wallet, to the receiver and of the amount that were named."""
    payment = decoded(answer, OutgoingPayment)
    receiver, amount = asked.get("incomingPayment"), asked.get("debitAmount")
    _require(
        answer,
        [
            *_outgoing(payment),
            *_unless(_same_wallet(asked["walletAddress"], payment.wallet_address), "walletAddress is another"),
            *_unless(receiver is None or canonical(receiver) == canonical(payment.receiver), "receiver is another"),
            *_unless(amount is None or amount == payment.debit_amount, "debitAmount is another"),
        ],
    )
    return payment


def read_outgoing(core: Core, answer: httpx2.Response) -> OutgoingPayment:
    """A payment that was read."""
    payment = decoded(answer, OutgoingPayment)
    _notice(core, answer, _extra(answer.json(), OutgoingPayment, SPENT))
    _require(answer, _outgoing(payment))
    return payment


def incoming_page(core: Core, answer: httpx2.Response) -> Page[IncomingPayment]:
    """A page of a list, whose items have no methods."""
    page = decoded(answer, Page[IncomingPayment])
    return _page(core, answer, page, IncomingPayment, lambda payment: _incoming(payment, has_methods=False))


def outgoing_page(core: Core, answer: httpx2.Response) -> Page[OutgoingPayment]:
    """A page of a list."""
    return _page(core, answer, decoded(answer, Page[OutgoingPayment]), OutgoingPayment, _outgoing, SPENT)


def notice_token(core: Core, answer: httpx2.Response, kind: type) -> None:
    """Looks for what an access token should not have."""
    token = answer.json().get("access_token")
    if isinstance(token, dict):
        _notice(core, answer, _extra(token, kind))


def notice_members(core: Core, answer: httpx2.Response, known: Iterable[str]) -> None:
    """Looks for what an answer should not have besides these members."""
    _notice(core, answer, sorted(answer.json().keys() - {*known}))


def _page(
    core: Core,
    answer: httpx2.Response,
    page: Page[P],
    kind: type[P],
    problems: Callable[[P], list[str]],
    never: Iterable[str] = (),
) -> Page[P]:
    raw = answer.json()
    _notice(core, answer, _extra(raw["pagination"], Pagination))
    for item in raw["result"]:
        _notice(core, answer, _extra(item, kind, never))
    _require(answer, [problem for payment in page.result for problem in problems(payment)])
    return page


def _incoming(payment: IncomingPayment, *, has_methods: bool) -> list[str]:
    asked = payment.incoming_amount or payment.received_amount
    return [
        *_amounts(payment.received_amount, asked),
        *_unless(asked.asset == payment.received_amount.asset, "incomingAmount and receivedAmount differ in asset"),
        *_unless((payment.methods is not UNSET) == has_methods, f"methods are {'missing' if has_methods else 'there'}"),
    ]


def _outgoing(payment: OutgoingPayment) -> list[str]:
    sent, debit = payment.sent_amount, payment.debit_amount
    problems = _amounts(sent, debit, payment.receive_amount)
    if problems:
        return problems
    return [
        *_unless(sent.asset == debit.asset, "sentAmount and debitAmount differ in asset"),
        *_unless(int(sent.value) <= int(debit.value), "sentAmount is more than debitAmount"),
        *_unless(not (payment.failed and sent.value == debit.value), "it failed and all was sent"),
    ]


def _amounts(*amounts: Amount) -> list[str]:
    wrong = [amount.value for amount in amounts if not (amount.value.isascii() and amount.value.isdigit())]
    return [f"{value[:30]!r} is no value of an amount" for value in wrong]


def _same_wallet(asked: str | None, found: str) -> bool:
    return asked is None or canonical(asked).lower() == canonical(found).lower()


def _unless(is_good: bool, problem: str) -> list[str]:
    return [] if is_good else [problem]


def _extra(raw: Mapping[str, Any], kind: type, never: Iterable[str] = ()) -> list[str]:
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    return sorted(raw.keys() - known.difference(never))


def _require(answer: httpx2.Response, problems: list[str]) -> None:
    if problems:
        raise InvalidAnswer(answer.status_code, problems)


def _notice(core: Core, answer: httpx2.Response, members: list[str]) -> None:
    if core.strict:
        _require(answer, [f"{member} is not in the standard" for member in members])
    for member in members:
        if member not in core.noticed and len(core.noticed) < 100:
            core.noticed.add(member)
            log.warning("Answers of %s have %.40r, which is not in the standard", answer.request.url.host, member)
