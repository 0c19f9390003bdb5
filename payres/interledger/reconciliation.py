"""Reconciliation: finds the outcome of a payment's unanswered packets from what the receiver has received.

When the packets have expired, they can no longer be fulfilled. Then the receiver's incoming payment is read again:
packets that its received amount explains are posted, the others are voided and sent again. An amount that cannot be
explained, because others pay into the same incoming payment, says nothing, and so it is when another payment of ours to
the same receiver overlaps: the payer gets the money back, the payment ends, and an operator resolves its packets.

A receiver that lies harms no payer, because the amount only decides whether the payer gets money back or the peer is
paid. A receiver that denies what arrived is sent it again, and its peer, which showed no fulfillment in time, is not
paid for the first packet. A receiver that claims what did not arrive has acknowledged it to the payer.
"""

import logging
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Final

import msgspec

from payres.amounts import format_decimal
from payres.clock import HOUR, MINUTE, SECOND, Clock
from payres.federation.connection import FetchFailed
from payres.federation.incoming_payments import RemoteReceivers
from payres.interledger import balances
from payres.payments.settlement import end_remote, has_arrived
from payres.store import packets, payments, peers
from payres.store.database import Database
from payres.store.packets import PacketRecord
from payres.store.payments import OUTGOING, OutgoingRecord
from payres.store.wallets import WALLETS
from payres.store.work import Work

# After the expiry: clocks on the way may be behind, and what was fulfilled must show at the receiver.
MARGIN: Final = 5 * SECOND
GIVE_UP_AFTER: Final = HOUR
FIRST_WAIT: Final = SECOND
LONGEST_WAIT: Final = 5 * MINUTE
MAX_SUMS: Final = 4096  # different sums of packets; packets of one payment have few sizes, so there are few sums
UNPROVED: Final = (
    "packets were left unanswered, and what the receiver has received does not say what became of them; what is not"
    " known to have arrived was given back"
)

log = logging.getLogger("payres.interledger")


class Unresolved(msgspec.Struct, frozen=True):
    """A packet in flight. If it arrived, it has delivered at least `least` and at most `most`."""

    packet: PacketRecord
    least: int
    most: int


class Standing(msgspec.Struct, frozen=True):
    """A payment and its packets in flight.

    `before` is what the receiver had received before the payment; None when that is unknown, or when others of our
    payments to it overlap, so that its figure proves nothing.
    """

    payment: OutgoingRecord
    before: int | None
    unresolved: Sequence[Unresolved]

    @property
    def expired_at(self) -> int:
        """When all of the packets have expired."""
        return max(one.packet.expires_at for one in self.unresolved)


async def reconcile(database: Database, clock: Clock, receivers: RemoteReceivers, payment_id: str) -> int | None:
    """Looks once: None when each packet of the payment has its outcome, or the payment has ended without; else the time
    to look again.

    Packets get their outcome soon after they have expired, or are given up after an hour when the receiver cannot be
    read.
    """
    standing = await database.read(partial(find_standing, payment_id=payment_id))
    if standing is None:
        return None
    if clock.now() < (due := standing.expired_at + MARGIN):
        return due
    received = await _received(receivers, standing)
    message = await database.write(partial(_conclude, before=standing, received=received))
    if message is not None:
        log.warning("%s", message)
        return None
    return next_look(clock.now(), standing.expired_at)


def next_look(now: int, expired_at: int) -> int:
    """After as much time as has passed since the packet expired, within bounds."""
    return now + min(max(now - expired_at, FIRST_WAIT), LONGEST_WAIT)


def find_standing(work: Work, payment_id: str) -> Standing | None:
    """None when the payment has ended, or has no packet in flight."""
    payment = OUTGOING.get(work, payment_id)
    found = packets.packets_of_payment(work, payment_id, "prepared")
    if payment is None or payment.state != "sending" or not found:
        return None
    others = payments.remote_payments_since(work, payment.terms.receiver, payment.created_at)
    # Payments that have not begun to send do not count.
    is_alone = not any(one.received_before is not None or one.sent for one in others if one.id != payment.id)
    unresolved = [Unresolved(packet, *_delivers(payment, packet.source_amount)) for packet in found]
    return Standing(payment, payment.received_before if is_alone else None, unresolved)


def arrived(unresolved: Sequence[Unresolved], increase: int) -> Sequence[Unresolved] | None:
    """The packets that explain what the receiver has received more; None when none do.

    If exchange rates allow several answers, it is the one that costs the payer least.
    """
    alike: dict[int, list[Unresolved]] = {}
    for one in unresolved:
        alike.setdefault(one.packet.source_amount, []).append(one)
    # By the bounds of what they deliver, the least cost, and how many packets of each amount.
    sums: dict[tuple[int, int], tuple[int, ...]] = {(0, 0): (0,)}
    for amount, packets_alike in alike.items():
        one, grown = packets_alike[0], dict[tuple[int, int], tuple[int, ...]]()
        for (least, most), (spent, *counts) in sums.items():
            for count in range(len(packets_alike) + 1):
                bounds = least + count * one.least, most + count * one.most
                if bounds[0] > increase:
                    break
                found = spent + count * amount, *counts, count
                grown[bounds] = min(found, grown.get(bounds, found))
            if len(grown) > MAX_SUMS:
                return None
        sums = grown
    fitting = [found for (least, most), found in sums.items() if least <= increase <= most]
    if not fitting:
        return None
    cheapest = min(fitting)
    return [one for some, count in zip(alike.values(), cheapest[1:], strict=True) for one in some[:count]]


def cost(some: Sequence[Unresolved]) -> int:
    """What packets take from their payer."""
    return sum(one.packet.source_amount for one in some)


def _delivers(payment: OutgoingRecord, amount: int) -> tuple[int, int]:
    """The least and the most that a packet delivers, by the probed rate, or by the rate of the payment if that has
    moved."""
    path = payment.terms.path
    assert path is not None, "payments with packets have one"
    least, most = path.least(amount), path.most(amount)
    if payment.sent and payment.delivered:
        seen = Fraction(payment.delivered, payment.sent)
        least = min(least, floor(amount * seen))
        most = most if seen < path.high else ceil(amount * seen)
    return least, most


async def _received(receivers: RemoteReceivers, standing: Standing) -> int | None:
    """What the receiver has received; None when that cannot be read or would prove nothing."""
    if standing.before is None:
        return None
    terms = standing.payment.terms
    try:
        receiver = await receivers.fetch(terms.receiver)
    except FetchFailed as error:
        log.info("payment %s waits for what its receiver has received: %s", standing.payment.id, error.sentence)
        return None
    return receiver.received if receiver.asset == terms.asset else None


def _conclude(work: Work, before: Standing, received: int | None) -> str | None:
    """Gives the packets their outcome, or gives them up, and describes it for the log; None while more may be learned.

    `received` is what the receiver had received while the rows were as in `before`.
    """
    standing = find_standing(work, before.payment.id)
    if standing is None:
        return None
    if received is not None and standing.before is not None and standing == before:
        increase = received - standing.before - standing.payment.delivered
        found = arrived(standing.unresolved, increase)
        if found is not None:
            return _account_for(work, standing, found, increase)
        if increase > 0:  # what others have paid in never goes away
            return _give_up(work, standing)
    if standing.before is None or work.now >= standing.expired_at + GIVE_UP_AFTER:
        return _give_up(work, standing)
    return None


def _account_for(work: Work, standing: Standing, found: Sequence[Unresolved], increase: int) -> str:
    """Posts the packets that have arrived, and voids the others."""
    spare = increase - sum(one.least for one in found)
    for one in found:
        more = min(spare, one.most - one.least)
        spare -= more
        balances.fulfil(work, one.packet.id, one.least + more)
    for one in standing.unresolved:
        balances.reject(work, one.packet.id)  # no effect on those that were just posted
    wallet = WALLETS.by_id(work, standing.payment.wallet_address_id)
    proved = format_decimal(cost(found), wallet.asset)
    return f"{_described(work, standing)}; by what the receiver has received, {proved} {wallet.asset_code} arrived"


def _give_up(work: Work, standing: Standing) -> str:
    """Ends the payment with what is known to have arrived; its other packets stay unresolved."""
    message = _described(work, standing)
    for one in standing.unresolved:
        balances.leave_unresolved(work, one.packet)
        note = f"Packet {one.packet.id} over {one.packet.amount} is unresolved"
        peers.note_error(work, one.packet.to_peer_id, note, work.now)
    payment = OUTGOING.get(work, standing.payment.id)
    assert payment is not None, "it was found before"
    end_remote(work, payment, None if has_arrived(payment) else UNPROVED)
    return (
        f"{message}; nothing proves what arrived, the payer has it back, and `payres peer unresolved` lists the packets"
    )


def _described(work: Work, standing: Standing) -> str:
    """The payment, its wallet, and the amount in question."""
    wallet = WALLETS.by_id(work, standing.payment.wallet_address_id)
    amount = f"{format_decimal(cost(standing.unresolved), wallet.asset)} {wallet.asset_code}"
    count = f"{len(standing.unresolved)} packets with {amount} were left unanswered"
    return f"payment {standing.payment.id} from wallet {wallet.path}: {count}"
