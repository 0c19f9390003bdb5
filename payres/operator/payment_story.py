"""A payment's story: its facts, and its history in plain sentences in the order of time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from payres.clock import format_time
from payres.identifiers import moment_of
from payres.operator.ledger import LedgerEntry
from payres.operator.operations import command, endpoint
from payres.operator.payment_history import Packet, PaymentEvent, PaymentHistory, Refund, history
from payres.operator.payments import Payment, PaymentName, require_payment
from payres.operator.shapes import Cell, Shape, fact, labelled, path_of
from payres.store.payments import PaymentRecord
from payres.store.work import Work
from payres.urls import Urls

OUTCOMES: Final = {
    "prepared": "It is in flight.",
    "fulfilled": "It was delivered.",
    "rejected": "It was rejected.",
    "doubtful": "It is unresolved.",
}


class Moment(NamedTuple):
    """What happened at a time; `said` are the parts of a sentence, some of which lead somewhere."""

    at: Cell
    said: Sequence[Cell]


def is_above_zero(amount: str) -> bool:
    return bool(amount.strip("0."))


def _money(payment: Payment, amount: str | None) -> str | None:
    return None if amount is None else f"{payment.asset_code} {amount}"


def _when(direction: str, value: Callable[[Payment], str | None]) -> Callable[[PaymentHistory], str | None]:
    """What is said of payments of one direction alone."""
    return lambda one: value(one.payment) if one.payment.direction == direction else None


def _moved(payment: Payment) -> str | None:
    return _money(payment, payment.moved)


def _wanted(payment: Payment) -> str | None:
    return _money(payment, payment.amount)


def _refunded(payment: Payment) -> str | None:
    return _money(payment, payment.refunded if is_above_zero(payment.refunded) else None)


def _delivered(one: PaymentHistory) -> str | None:
    return f"{one.delivered.asset_code} {one.delivered.amount}" if one.delivered else None


HISTORY: Final = Shape(
    history,
    fact("Payment", lambda one: one.payment.id, "code"),
    fact("Direction", lambda one: one.payment.direction),
    fact("State", lambda one: one.payment.state, "state"),
    fact("Wallet", lambda one: one.payment.wallet, "long", section="wallets"),
    fact("Wants", _when("incoming", _wanted)),
    fact("May debit", _when("outgoing", _wanted)),
    fact("Received", _when("incoming", _moved)),
    fact("Sent", _when("outgoing", _moved)),
    fact("Delivered", _delivered),
    fact("Sent back", _when("incoming", _refunded)),
    fact("Came back", _when("outgoing", _refunded)),
    fact("Client", lambda one: one.payment.client),
    fact("Refund of", lambda one: one.payment.refund_of, "code", section="payments"),
    fact("Grant", lambda one: one.payment.grant, "code", section="grants"),
    fact("Receiver", lambda one: one.payment.receiver, "code"),
    fact("Failure", lambda one: one.payment.failure),
    fact("Created (UTC)", lambda one: one.payment.created_at, "time"),
    fact("Ended (UTC)", lambda one: one.payment.ended_at, "time"),
    fact("Takes money until (UTC)", lambda one: one.payment.expires_at, "time"),
    fact("Paid by", "payers", "code"),
)


def _text(one: PaymentHistory) -> str:
    facts = [(column.label, column.cell(one).printed) for column in HISTORY.columns]
    moments = [(moment.at.text, "".join(part.printed for part in moment.said)) for moment in story_of(one)]
    sent = [(event.timestamp, _event(event)) for event in one.events]
    parts = ([(label, text) for label, text in rows if text] for rows in (facts, moments, sent))
    return "\n\n".join(labelled(*rows) for rows in parts if rows)


def _event(event: PaymentEvent) -> str:
    sent = "".join(f", {one.state} to {one.webhook} in attempt {one.attempts}" for one in event.deliveries)
    return f"Event {event.sequence}, {event.type}{sent}."


@endpoint("GET /payments/{id}", "payments:read", HISTORY)
@command("payment show ID", "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", text=_text)
def show_payment(work: Work, id: PaymentName) -> PaymentRecord:
    """Show a payment with its history.

    What it was granted and quoted, what the ledger moved, which packets were sent, what was sent back, and its events.
    """
    return require_payment(work, id)


def story_of(history: PaymentHistory, urls: Urls | None = None) -> Sequence[Moment]:
    """The moments, oldest first; of one time, what causes comes before what follows from it."""
    payment = history.payment
    moments = [
        *_granted(history),
        *_quoted(history),
        _begun(payment, urls),
        *map(_packet, history.packets),
        *map(_entry, history.entries),
        *_ended(history),
        *(_refund(payment, one) for one in history.refunds),
    ]
    return sorted(moments, key=lambda one: one.at.text)  # which keeps the order of what has one time


def _granted(history: PaymentHistory) -> Iterator[Moment]:
    grant = history.grant
    if grant is None:
        return
    yield _moment(grant.created_at, f"The client {grant.client} asked for ", _link("grants", grant.id, "a grant"), ".")
    if grant.interaction is not None and grant.interaction.decided_at is not None:
        yield _moment(grant.interaction.decided_at, "The owner of the wallet approved it.")


def _quoted(history: PaymentHistory) -> Iterator[Moment]:
    quote = history.quote
    if quote is not None:
        debit, fee, receive = (f"{one.asset_code} {one.amount}" for one in (quote.debit, quote.fee, quote.receive))
        yield _moment(
            quote.created_at, f"A quote: {debit} leaves the wallet, {fee} of it as a fee, and {receive} arrives."
        )


def _begun(payment: Payment, urls: Urls | None) -> Moment:
    wallet = _link("wallets", payment.wallet, payment.wallet)
    amount = "any amount" if payment.amount is None else f"{payment.asset_code} {payment.amount}"
    if payment.direction == "incoming":
        said: tuple[Cell | str, ...] = (
            f"The client {payment.client} asked for {amount}, to be paid into ",
            wallet,
            ".",
        )
    else:
        said = (
            f"The payment began: at most {amount} from ",
            wallet,
            " to ",
            _receiver(payment.receiver or "", urls),
            *(
                ()
                if payment.refund_of is None
                else (", as a refund of ", _link("payments", payment.refund_of, "a payment"))
            ),
            ".",
        )
    return _moment(payment.created_at, *said)


def _receiver(url: str, urls: Urls | None) -> Cell:
    """The incoming payment that a URL names; one of this server has a page."""
    own = urls and urls.resource_id("incoming-payments", url)
    return _link("payments", own, url) if own else Cell(url)


def _packet(packet: Packet) -> Moment:
    sent = f"A packet of {packet.source_amount} in the smallest unit went to the peer "
    peer = _link("peers", packet.peer, packet.peer)
    return _moment(format_time(moment_of(packet.id)), sent, peer, f". {OUTCOMES[packet.state]}")


def _entry(entry: LedgerEntry) -> Moment:
    what = "as a fee " if entry.kind == "fee" else "to be exchanged " if entry.kind == "exchange" else ""
    moved = f"{entry.asset_code} {entry.amount} moved {what}from "
    return _moment(entry.created_at, moved, _account(entry.debit), " to ", _account(entry.credit), ".")


def _account(name: str) -> Cell:
    """An account as an entry names it, with the page of its wallet or peer."""
    kind, _, whose = name.partition(" ")
    return (
        _link(f"{kind}s", whose, f"the {kind} {whose}") if kind in {"wallet", "peer"} else Cell(f"the account {name}")
    )


def _ended(history: PaymentHistory) -> Iterator[Moment]:
    payment, delivered = history.payment, history.delivered
    moved = f"{payment.asset_code} {payment.moved}"
    if payment.state == "expired" and payment.expires_at is not None:
        yield _moment(payment.expires_at, f"It expired. It had received {moved}.")
    if payment.ended_at is None:
        return
    if payment.direction == "incoming":
        yield _moment(payment.ended_at, f"It was completed. It had received {moved}.")
        return
    arrived = f"{delivered.asset_code} {delivered.amount} arrived" if delivered else "the rest is not known"
    how = f"It failed: {payment.failure}." if payment.failure else "It was completed."
    yield _moment(payment.ended_at, f"{how} {moved} was sent, and {arrived}.")


def _refund(payment: Payment, refund: Refund) -> Moment:
    reference = f", under the reference {refund.reference}"
    back = f"{refund.returned_asset_code} {refund.returned}"
    if refund.return_payment is not None:
        begun = f"{refund.asset_code} {refund.amount} was to be sent back to {refund.to} by "
        sending = _link("payments", refund.return_payment, "a payment")
        ended = f" {refund.failure}." if refund.failure else ""
        is_sending = refund.state == "sending"
        state = (
            " It is on its way." if is_sending else f" {refund.asset_code} {refund.sent} was sent, and {back} arrived."
        )
        return _moment(refund.created_at, begun, sending, f"{reference}.{state}{ended}")
    if payment.direction == "incoming":
        moved, preposition, other = f"{refund.asset_code} {refund.amount} was sent back", "to", refund.payer or ""
    else:
        moved, preposition, other = f"{back} came back", "from", refund.receiver
    return _moment(refund.created_at, f"{moved} {preposition} ", _link("wallets", other, other), f"{reference}.")


def _link(section: str, name: str, text: str) -> Cell:
    return Cell(text, link=path_of(section, name))


def _moment(at: str, *said: Cell | str) -> Moment:
    return Moment(Cell(at, "time"), [Cell(one) if isinstance(one, str) else one for one in said])
