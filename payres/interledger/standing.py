"""What the rows say of a payment with packets of unknown outcome, and what its receiver's figure says about these.

The figure counts what all have paid in. So payments of ours to the same receiver that overlap in time are looked at
together: what the receiver has received since the first of them began, less what they are known to have delivered, is
what their packets of unknown outcome have delivered, unless others pay in too.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod
from typing import Final

import msgspec

from payres.store import outgoing, packets
from payres.store.outgoing import OutgoingRecord
from payres.store.packets import PacketRecord
from payres.store.work import Work

MAX_COMBINATIONS: Final = 4096  # of packets that may explain a figure; beyond it only all of them or none do


class Unresolved(msgspec.Struct, frozen=True):
    """A packet of unknown outcome; if it arrived it has delivered at least `least` and at most `most`."""

    packet: PacketRecord
    least: int
    most: int


class Standing(msgspec.Struct, frozen=True):
    """A payment, and those of ours to the same receiver that overlap with it, directly or through others.

    `before` is what the receiver had received before the first of them, None when that is not known; `delivered` what
    all are known to have delivered since. `own` are the payment's packets of unknown outcome, `others` those of others.
    """

    payment: OutgoingRecord
    before: int | None
    delivered: int
    own: Sequence[Unresolved]
    others: Sequence[Unresolved]

    @property
    def own_expired_at(self) -> int:
        """When none of the payment's own packets can be taken any more."""
        return max(one.packet.expires_at for one in self.own)

    @property
    def expired_at(self) -> int:
        """When none of the others' can be taken any more either."""
        return max(one.packet.expires_at for one in (*self.own, *self.others))

    def increase(self, received: int) -> int | None:
        """What of the receiver's figure the packets of unknown outcome must explain; None when nobody can tell."""
        return None if self.before is None else received - self.before - self.delivered


def find_standing(work: Work, payment_id: str) -> Standing | None:
    """None when the payment has ended, or has no packet of unknown outcome."""
    payment = outgoing.find_outgoing(work, payment_id)
    if payment is None or payment.state != "sending":
        return None
    own = _unresolved(work, payment, "prepared")
    if not own:
        return None
    overlapping = _overlapping(work, payment)
    others = [one for one in overlapping if one.id != payment.id]
    return Standing(
        payment=payment,
        before=_received_before(overlapping),
        delivered=sum(one.delivered for one in overlapping),
        own=own,
        others=[
            found for one in others for state in ("prepared", "doubtful") for found in _unresolved(work, one, state)
        ],
    )


def arrived(standing: Standing, increase: int) -> Sequence[Unresolved] | None:
    """Which of the payment's packets have arrived when so much is to be explained; None when that says nothing.

    Where exchange rates leave several answers, it is the one that costs the payer least. Where the packets of another
    payment explain it as well, there is none.
    """
    if increase == 0:
        return ()
    unresolved = [*standing.own, *standing.others]
    found = [
        [one for one in combination if one in standing.own]
        for combination in _combinations(unresolved)
        if sum(one.least for one in combination) <= increase <= sum(one.most for one in combination)
    ]
    if standing.others and len({cost(some) for some in found}) > 1:
        return None
    return min(found, key=cost, default=None)


def cost(some: Sequence[Unresolved]) -> int:
    """What packets take from their payer."""
    return sum(one.packet.source_amount for one in some)


def _overlapping(work: Work, payment: OutgoingRecord) -> Sequence[OutgoingRecord]:
    """The payment, and those to the same receiver that were in progress at some time with it or with one of these.

    Those that have not begun to send are left out.
    """
    since = payment.created_at
    while True:
        found = outgoing.remote_payments_since(work, payment.terms.receiver, since)
        begun = [one for one in found if one.received_before is not None or one.sent or one.id == payment.id]
        earliest = min(one.created_at for one in begun)
        if earliest >= since:
            return begun
        since = earliest


def _received_before(overlapping: Sequence[OutgoingRecord]) -> int | None:
    """The receiver's figure before the first of these payments, which is the lowest, since it only rises."""
    figures = [one.received_before for one in overlapping if one.received_before is not None]
    return min(figures) if len(figures) == len(overlapping) else None


def _unresolved(work: Work, payment: OutgoingRecord, state: str) -> Sequence[Unresolved]:
    found = packets.packets_of_payment(work, payment.id, state)
    return [Unresolved(packet, *_delivers(payment, packet.source_amount)) for packet in found]


def _delivers(payment: OutgoingRecord, amount: int) -> tuple[int, int]:
    """The least and the most that a packet delivers, by the probed rate, or by the payment's own if that has moved."""
    path = payment.terms.path
    assert path is not None, "payments with packets have one"
    least, most = path.least(amount), path.most(amount)
    if payment.sent and payment.delivered:
        seen = Fraction(payment.delivered, payment.sent)
        least = min(least, floor(amount * seen))
        most = most if seen < path.high else ceil(amount * seen)
    return least, most


def _combinations(unresolved: Sequence[Unresolved]) -> Iterator[Sequence[Unresolved]]:
    """Which may have arrived: of packets of one payment that are alike, so many, no matter which."""
    alike: dict[tuple[str | None, int], list[Unresolved]] = {}
    for one in unresolved:
        alike.setdefault((one.packet.outgoing_payment_id, one.packet.source_amount), []).append(one)
    if prod(len(some) + 1 for some in alike.values()) > MAX_COMBINATIONS:
        yield unresolved
        return
    for chosen in product(*(range(len(some) + 1) for some in alike.values())):
        yield [one for some, count in zip(alike.values(), chosen, strict=True) for one in some[:count]]
