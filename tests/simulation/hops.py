"""Packets on their way, by what each server has stored of the same packet: when they expire, at which rates they are
exchanged, and what arrives."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, SECOND
from tests.simulation.currencies import GRAINS
from tests.simulation.server import Server
from tests.simulation.town import Town, exchanged, moment_of
from tests.simulation.unresolved import mistaken
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
# Payments that were made by now, what they are to deliver, and what their receiver here has got.
PAYMENTS: Final = (
    "SELECT o.id, o.receiver, o.state, o.debit, o.receive, o.receive_code,"
    " coalesce(json_extract(o.path, '$.sends_all'), 1), o.incoming_payment_id,"
    " (SELECT coalesce(sum(t.amount), 0) FROM transfer t WHERE t.outgoing_payment_id = o.id"
    " AND t.incoming_payment_id = o.incoming_payment_id AND t.credit_account_id = w.account_id) FROM outgoing_payment o"
    " LEFT JOIN incoming_payment i ON i.id = o.incoming_payment_id"
    " LEFT JOIN wallet_address w ON w.id = i.wallet_address_id"
)
LATEST: Final = 5  # packets that are named
MORE: Final = 100  # of a fixed delivery one part in so many may arrive beyond it, since rates change


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
    worth at the next one is what the operator had set, rounded down."""
    books = await _books(town)
    for address, book in books.items():
        for packet in book.packets.values():
            about, moment = (book.server, books[packet.peer].server), moment_of(packet.id)
            if not any(server.was_wrong(moment) for server in about):  # what is stored is shortened then
                _check_hop(books[packet.peer], (address, packet.id), packet)
            if town.world.microseconds - moment < RECENT:
                _check_rate(town, book.server, packet)


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


async def promised(town: Town) -> None:
    """5. Each payment that is completed has delivered what its payer was told, by its receiver's book alone; one of a
    fixed delivery little more, since it asks what became of its packets before it goes on."""
    books, told, first = await _books(town), {one.id: one for one in town.sent}, town.servers[0]
    wrong = [bill for server in town.servers[1:] for bill in await mistaken(server, first)]
    for address, book in books.items():
        for id, receiver, state, debit, receive, code, sends_all, here, got in await book.server.rows(PAYMENTS):
            if id in told and told[id].terms != (debit, receive):
                raise Violation(f"{told[id]} is {debit} for {receive} at {book.server.name}")
            if town.world.microseconds - moment_of(id) > RECENT or town.is_disturbed(id) or receiver in wrong:
                continue
            if town.is_abroad(receiver):
                continue
            own = [one for one in book.packets.values() if one.payment == id]
            arrived = got if here else sum(_arrived(town, books, address, one, receiver) for one in own)
            town.world.counts[f"payments {'here' if here else 'elsewhere'} {state}, by the receiver's book"] += 1
            is_short = state == "completed" and arrived < receive
            if is_short or (arrived > receive + max(receive // MORE, 2 * GRAINS[code]) and not sends_all):
                raise Violation(f"payment {id} to {receiver} is {state}: {arrived} arrived, promised were {receive}")


def _arrived(town: Town, books: Books, sender: str, packet: Packet, receiver: str) -> int:
    """What a packet has delivered to a bill, by the book of the last server on its way."""
    while onward := books[packet.peer].onward.get((sender, packet.id)):
        sender, packet = packet.peer, onward
    book = books[packet.peer]
    at = 0 if book.server.is_forgetful and packet.state == "fulfilled" else book.answered.get((sender, packet.id), -1)
    found = book.taken.get((sender, at, receiver.rpartition("/")[2], packet.left))
    if not found:
        return 0
    arrived, source, target = found.pop()
    moment = moment_of(packet.id)
    rates = town.rates(book.server, source, target, moment, moment + LONGEST)
    if arrived not in [exchanged(packet.left, rate) for rate in rates]:
        raise Violation(f"{packet} delivered {arrived} at {book.server.name}, whose operator's rates were {rates}")
    return arrived


async def differing(one: Server, other: Server) -> str:
    """The latest packets that one end counts as delivered and the other does not, in words."""
    found = [*await _differing(one, other), *await _differing(other, one)]
    return "; ".join(found[-LATEST:]) or "no packet of which both ends have a record"


async def _differing(sender: Server, receiver: Server) -> list[str]:
    here, there = f"test.{sender.name}", f"test.{receiver.name}"
    sent = {
        one.id: one for one in (await _book(sender)).packets.values() if one.peer == there and one.state != "doubtful"
    }
    taken = {id: at for (peer, id), at in (await _book(receiver)).answered.items() if peer == here}
    known = {id for id, one in sent.items() if (one.state == "fulfilled") != (id in taken)} | taken.keys() - sent
    return [f"{sent.get(id, f'unknown packet {id} from {here}')}, taken at {taken.get(id)}" for id in sorted(known)]


async def _books(town: Town) -> Books:
    return {f"test.{server.name}": await _book(server) for server in town.servers}


async def _book(server: Server) -> Book:
    rows = await server.rows(SENT)
    packets = [Packet(*(*row[:5], Asset(*row[5:7]), Asset(*row[7:9]), *row[9:])) for row in rows if row[4] != ABROAD]
    taken: dict[tuple[str, int, str, int], list[tuple[int, Asset, Asset]]] = {}
    for peer, at, bill, amount, arrived, *assets in await server.rows(TAKEN):
        key = peer, 0 if server.is_forgetful else at, bill, amount
        taken.setdefault(key, []).append((arrived, Asset(*assets[:2]), Asset(*assets[2:])))
    return Book(
        server,
        {one.id: one for one in packets},
        {(one.payer, one.request): one for one in packets if one.request},
        {(peer, id): at for peer, id, at in await server.rows(FULFILLED)},
        taken,
    )
