"""A payment with its full history, also as sentences in the order of time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, Literal, NamedTuple

from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import format_time
from payres.core.protocol.identifiers import moment_of
from payres.core.protocol.urls import ROOT_WALLET_PATH, canonical
from payres.core.protocol.visible import visible_url
from payres.core.protocol.wire import Resource
from payres.core.store import incoming_payments
from payres.core.store.clients import CLIENTS
from payres.core.store.events import EventRecord
from payres.core.store.grants import GRANTS
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.quotes import QUOTES, QuoteRecord
from payres.core.store.rows import PageQuery
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.html.sentences import ended
from payres.interledger.store import packets
from payres.interledger.store.peers import find_peer
from payres.operator import grants, ledger
from payres.operator.declared.declarations import CommandLine, operation
from payres.operator.declared.shapes import Cell, Shape, Time, fact, labelled, path_of, represent
from payres.operator.deliveries import EventDelivery, deliveries_of
from payres.operator.grants import Grant
from payres.operator.ledger import LedgerEntry
from payres.operator.payments import Payment, PaymentName, payment, require_payment
from payres.operator.peers import Peer, peer
from payres.operator.refunds import Refund, shown_refund
from payres.operator.store.all_payments import PaymentRecord
from payres.operator.store.entries import page_of_entries
from payres.operator.store.events import events_of
from payres.people.store.checkouts import Stage, checkouts_of
from payres.people.store.refunds import REFUNDS, RefundRecord, payers_of, refunds_of
from payres.people.store.standing_orders import RUNS
from payres.people.store.transfers import EntryRecord

MAX_SHOWN: Final = 100  # payers, refunds, ledger entries and packets of one payment: there may be many thousands
OUTCOMES: Final = {
    "prepared": "It is in flight.",
    "fulfilled": "It was delivered.",
    "rejected": "It was rejected.",
    "doubtful": "It is unresolved.",
}
APPROVED: Final = {
    "owner": "The owner of the wallet approved it.",
    "operator": "The operator approved it in the owner's name.",
    None: "It was approved.",
}
CHECKOUTS: Final = {
    "returned": "{payer} has consented, and nothing was created there yet. It is tried again.",
    "made": "{payer} pays by {payment}.",
    "unknown": "the server of {payer} was asked to pay, and it is not known whether it has. It is asked again.",
    "paid": "{payer} has paid.",
    "failed": "{payer} has not paid ({failure}).",
}
# Who made a payment without an app, so that no app is named that is none.
Maker = Literal["app", "owner", "payer", "standing order", "refund"]
MAKERS: Final[Mapping[Maker, str]] = {
    "owner": "the owner, on the pages of this server",
    "payer": "this server, for who pays it from here",
    "standing order": "a standing order of the owner",
    "refund": "this server, to refund another payment",
}
BEGAN: Final[Mapping[Maker, str]] = {
    "owner": "The owner sent it on the pages of this server",
    "standing order": "A standing order of the owner was due",
}


class Money(Resource, frozen=True, kw_only=True):
    amount: str
    asset_code: str
    asset_scale: int

    @property
    def text(self) -> str:
        return f"{self.asset_code} {self.amount}"


class PaymentQuote(Resource, frozen=True, kw_only=True):
    id: str
    debit: Money
    fee: Money
    receive: Money
    created_at: Time
    expires_at: Time


class Packet(Resource, frozen=True, kw_only=True):
    """A packet to a peer. `source_amount` is in the smallest unit of the payer, `amount` in that of the link."""

    id: str
    state: str
    peer: str
    source_amount: str
    amount: str
    expires_at: Time


class PaymentEvent(Resource, frozen=True, kw_only=True):
    """An event about a payment or its refunds, which is kept for 30 days."""

    sequence: int
    id: str
    type: str
    timestamp: Time
    deliveries: list[EventDelivery]


class Checkout(Resource, frozen=True, kw_only=True):
    """A payment from a wallet on another server, begun on the payment page, from when the payer has returned.

    In state `returned` that server was not sent the creation of a payment yet, in `made` it was; `payment` is its URL,
    and null as long as it is not known whether it was created. `silent` is the host that did not answer the last
    request."""

    payer: str
    amount: str
    asset_code: str
    state: Stage
    failure: str | None
    payment: str | None
    silent: str | None
    changed_at: Time


class PaymentHistory(Resource, frozen=True, kw_only=True):
    """A payment with what led to it and what followed; of payers, checkouts, refunds, ledger entries and packets, the
    newest hundred.

    `madeBy` is `payer` for an incoming payment that this server made for who pays it from here. `payers` are the
    outgoing payments here that paid an incoming one, `rejecting` the peers that rejected a packet.
    """

    payment: Payment
    made_by: Maker
    delivered: Money | None
    grant: Grant | None
    quote: PaymentQuote | None
    payers: list[str]
    checkouts: list[Checkout]
    entries: list[LedgerEntry]
    has_earlier_entries: bool
    packets: list[Packet]
    rejecting: list[Peer]
    refunds: list[Refund]
    events: list[PaymentEvent]


def history(work: Work, record: PaymentRecord) -> PaymentHistory:
    grant = None if record.grant_id is None else GRANTS.get(work, record.grant_id)
    quote = None if record.quote_id is None else QUOTES.get(work, record.quote_id)
    sent, wanted = OUTGOING.get(work, record.id), INCOMING.get(work, record.id)
    entries, bounds = page_of_entries(work, PageQuery(MAX_SHOWN, None, "older"), payment=record)
    newest = packets.newest_of_payment(work, record.id, MAX_SHOWN) if sent else []
    rejecting = {name for one, name in newest if one.state == "rejected"}
    sent_back = refunds_of(work, record.direction, record.id, MAX_SHOWN)
    return PaymentHistory(
        payment=payment(work, record),
        made_by=_maker(work, record),
        delivered=_money(sent.delivered, sent.terms.asset) if sent else None,
        grant=None if grant is None else grants.grant(work, grant),
        quote=None if quote is None else _quote(work, quote),
        payers=[] if sent else [*reversed(payers_of(work, record.id, MAX_SHOWN))],
        checkouts=_list_checkouts(work, wanted) if wanted else [],
        entries=[ledger.ledger_entry(work, one) for one in reversed(entries)],
        has_earlier_entries=bounds.has_older,
        packets=[
            represent(Packet, one, peer=peer, source_amount=str(one.source_amount), amount=str(one.amount))
            for one, peer in reversed(newest)
        ],
        rejecting=[peer(work, one) for name in sorted(rejecting) if (one := find_peer(work, name))],
        refunds=[shown_refund(work, one) for one in sent_back],
        events=[
            represent(PaymentEvent, one, timestamp=one.created_at, deliveries=deliveries_of(work, one))
            for one in _events(work, record, entries, sent_back)
        ],
    )


def _maker(work: Work, record: PaymentRecord) -> Maker:
    """Who made a payment. An app has a grant for what goes out; what comes in has the client that asked for it."""
    if record.direction == "incoming":
        wallet, client = WALLETS.by_id(work, record.wallet_address_id), CLIENTS.by_id(work, record.client_id).identity
        own: dict[str, Maker] = {wallet.path: "owner", ROOT_WALLET_PATH: "payer"}
        return {canonical(work.urls.wallet(path)): maker for path, maker in own.items()}.get(client, "app")
    if record.grant_id is not None:
        return "app"
    if RUNS.find(work, outgoing_payment_id=record.id) is not None:
        return "standing order"
    return "owner" if REFUNDS.find(work, return_payment_id=record.id) is None else "refund"


def _quote(work: Work, record: QuoteRecord) -> PaymentQuote:
    terms, asset = record.terms, WALLETS.by_id(work, record.wallet_address_id).asset
    debit, fee = _money(terms.debit, asset), _money(terms.fee, asset)
    return represent(PaymentQuote, record, debit=debit, fee=fee, receive=_money(terms.receive, terms.asset))


def _events(
    work: Work, record: PaymentRecord, entries: Sequence[EntryRecord], sent_back: Sequence[RefundRecord]
) -> Sequence[EventRecord]:
    """The events at the times at which the payment began, received something, ended and was refunded."""
    moments = {record.created_at, record.ended_at}
    if record.direction == "incoming":
        moments |= {incoming_payments.expiry_event_at(work, record.id), *(one.created_at for one in entries)}
    found = [*events_of(work, record.id, {moment for moment in moments if moment is not None})]
    for one in sent_back:
        found += [] if one.ended_at is None else events_of(work, one.id, [one.ended_at])
    return sorted(found, key=lambda event: event.sequence)


def _money(amount: int, asset: Asset) -> Money:
    return Money(amount=format_decimal(amount, asset), asset_code=asset.code, asset_scale=asset.scale)


class Moment(NamedTuple):
    """A point in time with a sentence about it; `said` are the parts of the sentence, some with links."""

    at: Cell
    said: Sequence[Cell]


def _sum(direction: str, member: str) -> Callable[[PaymentHistory], str | None]:
    """A member for payments of one direction only; the refunded amount only if there is one."""

    def said(one: PaymentHistory) -> str | None:
        found = getattr(one.payment, member) if one.payment.direction == direction else None
        is_said = found is not None and (member != "refunded" or found.strip("0."))
        return f"{one.payment.asset_code} {found}" if is_said else None

    return said


HISTORY: Final = Shape(
    history,
    fact("Payment", "payment.id", "code"),
    fact("Direction", "payment.direction"),
    fact("State", "payment.state", "state"),
    fact("Wallet", "payment.wallet", "long", section="wallets"),
    fact("Wants", _sum("incoming", "amount"), "number"),
    fact("May debit", _sum("outgoing", "amount"), "number"),
    fact("Received", _sum("incoming", "moved"), "number"),
    fact("Sent", _sum("outgoing", "moved"), "number"),
    fact("Delivered", lambda one: one.delivered and one.delivered.text, "number"),
    fact("Sent back", _sum("incoming", "refunded"), "number"),
    fact("Came back", _sum("outgoing", "refunded"), "number"),
    fact("Client", lambda one: one.payment.client if one.made_by == "app" else None),
    fact("Made by", lambda one: MAKERS.get(one.made_by)),
    fact("Refund of", "payment.refund_of", "code", section="payments"),
    fact("Grant", "payment.grant", "code", section="grants"),
    fact("Receiver", "payment.receiver", "code"),
    fact("Failure", "payment.failure"),
    fact("Created (UTC)", "payment.created_at", "time"),
    fact("Ended (UTC)", "payment.ended_at", "time"),
    fact("Accepts money until (UTC)", "payment.expires_at", "time"),
    fact("Paid by", "payers", "code"),
)


def _text(one: PaymentHistory) -> str:
    facts = [(column.label, column.cell(one).printed) for column in HISTORY.columns]
    moments = [(moment.at.text, "".join(part.printed for part in moment.said)) for moment in story_of(one)]
    sent = [(event.timestamp, _event_line(event)) for event in one.events]
    parts = ([(label, text) for label, text in rows if text] for rows in (facts, moments, sent))
    return "\n\n".join(labelled(*rows) for rows in parts if rows)


def _event_line(event: PaymentEvent) -> str:
    sent = "".join(f", {one.state} to {one.webhook} in attempt {one.attempts}" for one in event.deliveries)
    return f"Event {event.sequence}, {event.type}{sent}."


@operation("GET /payments/{id} payments:read", HISTORY, command=CommandLine("payment show ID", text=_text))
def show_payment(work: Work, id: PaymentName) -> PaymentRecord:
    """Show a payment with its history.

    Its grant and quote, its ledger entries, its packets, refunds and events.
    """
    return require_payment(work, id)


def story_of(history: PaymentHistory) -> Sequence[Moment]:
    """The moments, oldest first; at the same time, causes before their effects."""
    payment = history.payment
    moments = [
        *_agreed(history),
        _begun(history),
        *(_moment(one.changed_at, _sentence_of(one)) for one in history.checkouts),
        *(_packet(payment, one) for one in history.packets),
        *(_error(one) for one in history.rejecting if (one.last_error_at or "") >= payment.created_at),
        *map(_entry, history.entries),
        *_ended(history),
        *(_refund(payment, one) for one in history.refunds),
    ]
    moments.sort(key=lambda one: one.at.text)  # a stable sort, which keeps the order at one time
    return [_folded([*same]) for _, same in groupby(moments, key=lambda one: one.said)]


def _folded(same: Sequence[Moment]) -> Moment:
    """The first of moments with the same sentence, which says how many they were, and when the last was."""
    if len(same) == 1:
        return same[0]
    times = Cell(f" This happened {len(same)} times, last: ")
    return Moment(same[0].at, [*same[0].said, times, same[-1].at, Cell(".")])


def _agreed(history: PaymentHistory) -> Iterator[Moment]:
    grant, quote = history.grant, history.quote
    if grant is not None:
        asked = f"The client {grant.client} asked for "
        yield _moment(grant.created_at, asked, _link("grants", grant.id, "a grant"), ".")
        if grant.interaction is not None and grant.interaction.decided_at is not None:
            yield _moment(grant.interaction.decided_at, APPROVED[grant.interaction.decided_by])
    if quote is not None:
        leaves = f"A quote: {quote.debit.text} leaves the wallet, {quote.fee.text} of it as a fee"
        yield _moment(quote.created_at, f"{leaves}, and {quote.receive.text} arrives.")


def _begun(history: PaymentHistory) -> Moment:
    payment, maker = history.payment, history.made_by
    wallet = _link("wallets", payment.wallet, payment.wallet)
    amount = "any amount" if payment.amount is None else f"{payment.asset_code} {payment.amount}"
    if payment.direction == "incoming":
        asker = f"The client {payment.client}" if maker == "app" else "The owner"
        asked = f"{asker} asked for {amount}, to be paid into "
        if maker == "payer":
            asked = "This server made it, for who pays from here into "
        return _moment(payment.created_at, asked, wallet, ".")
    url = payment.receiver or ""
    here = payment.receiver_wallet
    receiver = _link("payments", url.rpartition("/")[2], here) if here else url
    refunded = payment.refund_of
    why: list[Cell | str] = [] if refunded is None else [", as a refund of ", _link("payments", refunded, "a payment")]
    begun = f"{BEGAN.get(maker, 'The payment began')}: at most {amount} from "
    return _moment(payment.created_at, begun, wallet, " to ", receiver, *why, ".")


def _packet(payment: Payment, packet: Packet) -> Moment:
    amount = format_decimal(int(packet.source_amount), Asset(payment.asset_code, payment.asset_scale))
    peer = _link("peers", packet.peer, packet.peer)
    sent = f"A packet of {payment.asset_code} {amount} went to the peer "
    return _moment(format_time(moment_of(packet.id)), sent, peer, f". {OUTCOMES[packet.state]}")


def _error(peer: Peer) -> Moment:
    """The last error of a peer that rejected packets, and who owes whom now."""
    limit = f"it may owe us {peer.asset_code} {peer.credit_limit}. What is owed is settled on its page."
    said = f": {peer.last_error}. Now {peer.standing}; {limit}"
    return _moment(peer.last_error_at or "", _link("peers", peer.name, f"The peer {peer.name}"), said)


def _entry(entry: LedgerEntry) -> Moment:
    what = {"fee": "as a fee ", "exchange": "to be exchanged "}.get(entry.kind, "")
    moved = f"{entry.asset_code} {entry.amount} moved {what}from "
    return _moment(entry.created_at, moved, _account(entry.debit), " to ", _account(entry.credit), ".")


def _account(name: str) -> Cell | str:
    """An account as named in an entry, with a link to the page of its wallet or peer."""
    kind, _, whose = name.partition(" ")
    return _link(f"{kind}s", whose, f"the {kind} {whose}") if kind in {"wallet", "peer"} else f"the account {name}"


def _ended(history: PaymentHistory) -> Iterator[Moment]:
    payment = history.payment
    moved = f"{payment.asset_code} {payment.moved}"
    if payment.state == "expired" and payment.expires_at is not None:
        yield _moment(payment.expires_at, f"It expired. It had received {moved}.")
    if payment.ended_at is not None and payment.direction == "incoming":
        yield _moment(payment.ended_at, f"It was completed. It had received {moved}.")
    elif payment.ended_at is not None:
        arrived = f"{history.delivered.text} arrived" if history.delivered else "the rest is not known"
        how = ended(f"It failed: {payment.failure}") if payment.failure else "It was completed."
        yield _moment(payment.ended_at, f"{how} {moved} was sent, and {arrived}.")


def _refund(payment: Payment, refund: Refund) -> Moment:
    reference = "." if refund.reference.startswith("page ") else f", under the reference {refund.reference}."
    reference += f" Both owners read: “{refund.why}”" if refund.why else ""
    taken, back = f"{refund.asset_code} {refund.amount}", f"{refund.returned_asset_code} {refund.returned}"
    if refund.return_payment is not None:
        sending = _link("payments", refund.return_payment, "a payment")
        sent = f"{refund.asset_code} {refund.sent} was sent, and {back} arrived."
        state = " It is on its way." if refund.state == "sending" else f" {sent}"
        why = ended(f" {refund.failure}") if refund.failure else ""
        begun = f"{taken} was to be sent back to {refund.to} by "
        return _moment(refund.created_at, begun, sending, f"{reference}{state}{why}")
    is_incoming = payment.direction == "incoming"
    moved = f"{taken} was sent back to " if is_incoming else f"{back} came back from "
    other = (refund.payer or "") if is_incoming else refund.receiver
    return _moment(refund.created_at, moved, _link("wallets", other, other), reference)


def _link(section: str, name: str, text: str) -> Cell:
    return Cell(text, link=path_of(section, name))


def _moment(at: str, *said: Cell | str) -> Moment:
    return Moment(Cell(at, "second"), [Cell(one) if isinstance(one, str) else one for one in said])


def _list_checkouts(work: Work, payment: incoming_payments.IncomingRecord) -> list[Checkout]:
    """The newest of an incoming payment, oldest first."""
    wallet = WALLETS.by_id(work, payment.wallet_address_id)
    return [
        represent(Checkout, one, wallet, amount=format_decimal(one.amount, wallet.asset))
        for one in reversed(checkouts_of(work, payment.id, MAX_SHOWN))
    ]


def _sentence_of(checkout: Checkout) -> str:
    word = "unknown" if checkout.state == "made" and checkout.payment is None else checkout.state
    payer, payment = visible_url(checkout.payer).text, visible_url(checkout.payment or "").text
    said = CHECKOUTS[word].format(payer=payer, failure=checkout.failure, payment=payment)
    silent = f" {checkout.silent} does not answer." if checkout.silent else ""
    return f"On the payment page, for {checkout.asset_code} {checkout.amount}: {said}{silent}"
