"""Packets on their way, by what each server has stored of the same packet: when they expire, at which rates they are
exchanged, and what arrives."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, SECOND
from tests.simulation.currencies import GRAINS
from tests.simulation.server import Server
from tests.simulation.town import Town, exchanged, moment_of
from tests.simulation.world import Violation

ABROAD: Final = "test.foreign"  # of which `foreign_oracles` knows
HOP: Final = 1_000_000  # microseconds by which a packet has to expire earlier at the next server
LONGEST: Final = 30 * SECOND  # that a packet is under way
RECENT: Final = 7 * DAY  # in which no answer to a packet is purged
FULFILL: Final = "0D"  # the first byte of the answer
# Of packets to peers: who pays them, and in which assets. Of packets from peers: the answers, and what they paid.
SENT: Final = (
    "SELECT k.id, k.outgoing_payment_id, f.ilp_address, k.from_request_id, p.ilp_address, s.code, s.scale, t.code,"
    " t.scale, k.source_amount, k.amount, k.expires_at, k.state FROM packet k JOIN peer p ON p.id = k.to_peer_id"
    " JOIN account b ON b.id = p.account_id JOIN asset t ON t.id = b.asset_id LEFT JOIN peer f ON f.id = k.from_peer_id"
    " LEFT JOIN outgoing_payment o ON o.id = k.outgoing_payment_id LEFT JOIN wallet_address w"
    " ON w.id = o.wallet_address_id JOIN account a ON a.id = coalesce(f.account_id, w.account_id)"
    " JOIN asset s ON s.id = a.asset_id"
)
FULFILLED: Final = (
    "SELECT p.ilp_address, r.request_id, r.answered_at FROM answered_request r JOIN peer p ON p.id = r.peer_id"
    f" WHERE hex(substr(r.reply, 1, 1)) = '{FULFILL}'"
)
TAKEN: Final = (
    "SELECT p.ilp_address, t.created_at, t.incoming_payment_id, t.amount, coalesce(u.amount, t.amount), s.code,"
    " s.scale, d.code, d.scale FROM transfer t JOIN peer p ON p.account_id = t.debit_account_id"
    " LEFT JOIN transfer u ON u.id = t.id + 1 AND t.kind = 'exchange'"
    " JOIN account a ON a.id = p.account_id JOIN asset s ON s.id = a.asset_id"
    " JOIN account c ON c.id = coalesce(u.credit_account_id, t.credit_account_id) JOIN asset d ON d.id = c.asset_id"
    " WHERE t.incoming_payment_id NOTNULL"
)
PAYMENTS: Final = (
    "SELECT o.id, o.receiver, o.state, o.debit, o.receive, o.receive_code, o.delivered,"
    " iif(o.ended_at - o.created_at < 3000000, 0,"
    " (SELECT count(*) FROM packet k WHERE k.outgoing_payment_id = o.id AND k.state = 'fulfilled')),"
    " coalesce(json_extract(o.path, '$.sends_all'), 1), o.incoming_payment_id NOTNULL,"
    " (SELECT coalesce(sum(t.amount), 0) FROM transfer t WHERE t.outgoing_payment_id = o.id"
    " AND t.incoming_payment_id = o.incoming_payment_id AND t.credit_account_id = w.account_id) FROM outgoing_payment o"
    " LEFT JOIN incoming_payment i ON i.id = o.incoming_payment_id"
    " LEFT JOIN wallet_address w ON w.id = i.wallet_address_id"
)
ROUNDED: Final = 2  # cents by which a packet may deliver something else than the rate says
MORE: Final = 100  # of a fixed delivery one part in so many may arrive beyond it, since rates change


class Payment(NamedTuple):
    """What a payment is to deliver, and has delivered by its payer's book, and to a receiver here by that. The answers
    of `late` packets may have come late."""

    id: str
    receiver: str
    state: str
    debit: int
    receive: int
    code: str
    delivered: int
    late: int
    sends_all: int
    is_here: int
    got: int


class Packet(NamedTuple):
    """A packet to a peer, as its sender has it, which a payment or another peer pays."""

    id: str
    payment: str | None
    payer: str | None
    request: str | None
    peer: str
    source: Asset
    target: Asset
    came: int
    left: int
    expires_at: int
    state: str


class Book(NamedTuple):
    """What a server has stored of packets: those to peers by their ids, those that it passed on and when it answered
    with a success by peer and request, and what it took for bills, by what identifies it but for equal ones."""

    server: Server
    packets: Mapping[str, Packet]
    onward: Mapping[tuple[str | None, str | None], Packet]
    answered: Mapping[tuple[str, str], int]
    taken: Mapping[tuple[str, int, str, int], list[tuple[int, Asset, Asset]]]


Books = Mapping[str, Book]  # by the server's ILP address


async def carried(town: Town) -> None:
    """A packet expires earlier at each server on its way, and its receiver takes it before it has expired; what it is
    worth at the next one is what the operator had set, rounded down.

    Each payment has delivered what its payer was charged for, and told when it is completed; one of a fixed delivery
    little more, since it asks what became of its packets before it goes on.
    """
    books, told = await _books(town), {one.id: one for one in town.sent}
    for address, book in books.items():
        for packet in book.packets.values():
            about, moment = (book.server, books[packet.peer].server), moment_of(packet.id)
            if not any(server.was_wrong(moment) for server in about):  # what is stored is shortened then
                _check_hop(books[packet.peer], (address, packet.id), packet)
            if town.world.microseconds - moment < RECENT:
                _check_rate(town, book.server, packet)
        for payment in (Payment(*row) for row in await book.server.rows(PAYMENTS)):
            sent = told.get(payment.id)
            if sent and sent.terms != (payment.debit, payment.receive):
                raise Violation(f"{sent} is {payment} at {book.server.name}")
            is_recent = town.world.microseconds - moment_of(payment.id) <= RECENT
            if is_recent and not town.is_disturbed(payment.id) and not town.is_abroad(payment.receiver):
                _check_payment(town, books, address, payment)


def _check_hop(receiver: Book, key: tuple[str, str], packet: Packet) -> None:
    onward, at = receiver.onward.get(key), receiver.answered.get(key, 0)
    if onward and onward.expires_at > packet.expires_at - HOP:
        raise Violation(f"packet {packet} expires no earlier at {receiver.server.name}: {onward}")
    if not onward and at >= packet.expires_at:
        raise Violation(f"packet {packet} had expired, and was taken by {receiver.server.name} at {at}")


def _check_rate(town: Town, server: Server, packet: Packet) -> None:
    moment = moment_of(packet.id)
    rates = town.rates(server, packet.source, packet.target, moment, moment)
    if packet.left not in [exchanged(packet.came, rate) for rate in rates]:
        raise Violation(f"packet {packet} at {server.name} was exchanged at another rate than its operator's {rates}")


def _check_payment(town: Town, books: Books, address: str, payment: Payment) -> None:
    """By the book of the receiver alone. What a packet delivered is a guess if its answer came late, and a currency
    changed."""
    own = [one for one in books[address].packets.values() if one.payment == payment.id]
    arrivals = {one.id: _arrived(town, books, address, one, payment.receiver) for one in own}
    arrived = payment.got if payment.is_here else sum(arrivals.values())
    counted = arrived - sum(amount for id, amount in arrivals.items() if id in town.resolved)
    town.world.counts[f"payments {'here' if payment.is_here else 'elsewhere'} {payment.state}"] += 1
    grain = GRAINS[payment.code]
    slack = payment.late * ROUNDED * grain
    if abs(counted - payment.delivered) > slack:
        raise Violation(f"{payment} has delivered {counted}")
    is_short = payment.state == "completed" and arrived < payment.receive
    if is_short or (arrived > payment.receive + max(payment.receive // MORE, 2 * grain) and not payment.sends_all):
        raise Violation(f"of {payment} arrived {arrived}")


def _arrived(town: Town, books: Books, sender: str, packet: Packet, receiver: str) -> int:
    """What a packet has delivered to a bill, by the book of the last server on its way."""
    while onward := books[packet.peer].onward.get((sender, packet.id)):
        sender, packet = packet.peer, onward
    book = books[packet.peer]
    at = book.answered.get((sender, packet.id), -1)
    found = book.taken.get((sender, at, receiver.rpartition("/")[2], packet.left))
    if not found:
        return 0
    arrived, source, target = found.pop()
    moment = moment_of(packet.id)
    rates = town.rates(book.server, source, target, moment, moment + LONGEST)
    if arrived not in [exchanged(packet.left, rate) for rate in rates]:
        raise Violation(f"{packet} delivered {arrived} at {book.server.name}, whose operator's rates were {rates}")
    return arrived


async def _books(town: Town) -> Books:
    return {f"test.{server.name}": await _book(server) for server in town.servers}


async def _book(server: Server) -> Book:
    rows = await server.rows(SENT)
    packets = [Packet(*(*row[:5], Asset(*row[5:7]), Asset(*row[7:9]), *row[9:])) for row in rows if row[4] != ABROAD]
    taken: dict[tuple[str, int, str, int], list[tuple[int, Asset, Asset]]] = {}
    for peer, at, bill, amount, arrived, *assets in await server.rows(TAKEN):
        taken.setdefault((peer, at, bill, amount), []).append((arrived, Asset(*assets[:2]), Asset(*assets[2:])))
    return Book(
        server,
        {one.id: one for one in packets},
        {(one.payer, one.request): one for one in packets if one.request},
        {(peer, id): at for peer, id, at in await server.rows(FULFILLED)},
        taken,
    )
