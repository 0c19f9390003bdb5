"""What the rows say about a payment with packets of unknown outcome, and what the receiver's received amount says about
these packets.

Everybody's payments add to that amount. So our payments to the same receiver that overlap in time are looked at
together. What the receiver has received since the first of them began, less what they are known to have delivered, is
what their packets of unknown outcome have delivered, unless others pay in too.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod
from typing import Final

import msgspec

from payres.store import outgoing, packets
from payres.store.outgoing import OUTGOING, OutgoingRecord
from payres.store.packets import PacketRecord
from payres.store.work import Work

# Of packets that may explain an amount; beyond it only all of them or none of them are tried.
MAX_COMBINATIONS: Final = 4096


class Unresolved(msgspec.Struct, frozen=True):
    """A packet of unknown outcome. If it arrived, it has delivered at least `least` and at most `most`."""

    packet: PacketRecord
    least: int
    most: int


class Standing(msgspec.Struct, frozen=True):
    """A payment, and our payments to the same receiver that overlap with it, directly or through others.

    `before` is what the receiver had received before the first of them, None when unknown; `delivered` is what all are
    known to have delivered since. `own` are the payment's packets of unknown outcome, `others` those of the other
    payments.
    """

    payment: OutgoingRecord
    before: int | None
    delivered: int
    own: Sequence[Unresolved]
    others: Sequence[Unresolved]

    @property
    def own_expired_at(self) -> int:
        """When all packets of the payment have expired."""
        return max(one.packet.expires_at for one in self.own)

    @property
    def expired_at(self) -> int:
        """When the packets of the other payments have expired too."""
        return max(one.packet.expires_at for one in (*self.own, *self.others))

    def increase(self, received: int) -> int | None:
        """How much of what was received the packets of unknown outcome must explain; None when that is not known."""
        return None if self.before is None else received - self.before - self.delivered


def find_standing(work: Work, payment_id: str) -> Standing | None:
    """None when the payment has ended, or has no packet of unknown outcome."""
    payment = OUTGOING.get(work, payment_id)
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
    """Which of the payment's packets have arrived if they explain this increase; None when it cannot be said.

    If exchange rates allow several answers, it is the one that costs the payer least. If the packets of another payment
    explain the increase too, there is no answer.
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
    """The payment, and those to the same receiver that were in progress at the same time as it or as one of these.

    Payments that have not begun to send are left out.
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
    """What the receiver had received before the first of these payments: the lowest figure, because it only rises."""
    figures = [one.received_before for one in overlapping if one.received_before is not None]
    return min(figures) if len(figures) == len(overlapping) else None


def _unresolved(work: Work, payment: OutgoingRecord, state: packets.State) -> Sequence[Unresolved]:
    found = packets.packets_of_payment(work, payment.id, state)
    return [Unresolved(packet, *_delivers(payment, packet.source_amount)) for packet in found]


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


def _combinations(unresolved: Sequence[Unresolved]) -> Iterator[Sequence[Unresolved]]:
    """The combinations of packets that may have arrived. Equal packets of one payment count as one choice."""
    alike: dict[tuple[str | None, int], list[Unresolved]] = {}
    for one in unresolved:
        alike.setdefault((one.packet.outgoing_payment_id, one.packet.source_amount), []).append(one)
    if prod(len(some) + 1 for some in alike.values()) > MAX_COMBINATIONS:
        yield unresolved
        return
    for chosen in product(*(range(len(some) + 1) for some in alike.values())):
        yield [one for some, count in zip(alike.values(), chosen, strict=True) for one in some[:count]]
