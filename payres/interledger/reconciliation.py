"""Reconciliation: finds the outcome of a payment's unanswered packets from what the receiver has received.

When the packets have expired, they can no longer be fulfilled. Then the receiver's incoming payment is read again:
packets that its received amount explains are posted, the others are voided and sent again. An amount that cannot be
explained, as when others pay into the same incoming payment, says nothing: the payer gets the money back, the payment
ends, and an operator resolves its packets.

A receiver that lies harms no payer, because the amount only decides whether the payer gets money back or the peer is
paid. A receiver that denies what arrived is sent it again, and its peer, which showed no fulfillment in time, is not
paid for the first packet. A receiver that claims what did not arrive has acknowledged it to the payer.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from payres.amounts import format_decimal
from payres.clock import MINUTE, SECOND, Clock
from payres.federation.connection import FetchFailed
from payres.federation.incoming_payments import RemoteReceivers
from payres.interledger import balances
from payres.interledger.recovery import FIRST_WAIT, GIVE_UP_AFTER, longer, sleep_until
from payres.interledger.standing import Standing, Unresolved, arrived, cost, find_standing
from payres.payments.settlement import end_remote, has_arrived
from payres.store import peers
from payres.store.database import Database
from payres.store.outgoing import OUTGOING
from payres.store.wallets import WALLETS
from payres.store.work import Work

# After the expiry: clocks on the way may be behind, and what was fulfilled must show at the receiver.
MARGIN: Final = 5 * SECOND
UNEXPLAINED_AFTER: Final = MINUTE  # so long packets of other payments to the same receiver may get their outcome
UNPROVED: Final = (
    "packets were left unanswered, and what the receiver has received does not say what became of them; what is not"
    " known to have arrived was given back"
)

log = logging.getLogger("payres.interledger")


async def reconcile(database: Database, clock: Clock, receivers: RemoteReceivers, payment_id: str) -> None:
    """Returns when each packet of the payment has its outcome, or the payment has ended without.

    That takes until soon after the packets have expired, or an hour when the receiver cannot be read.
    """
    wait = FIRST_WAIT
    while standing := await database.read(partial(find_standing, payment_id=payment_id)):
        if clock.now() < (due := standing.own_expired_at + MARGIN):
            await sleep_until(clock, due)
            continue
        received = await _received(clock, receivers, standing)
        message = await database.write(partial(_conclude, before=standing, received=received))
        if message is not None:
            log.warning("%s", message)
            return
        await sleep_until(clock, clock.now() + wait)
        wait = longer(wait)


async def _received(clock: Clock, receivers: RemoteReceivers, standing: Standing) -> int | None:
    """What the receiver has received; None when that cannot be read, or may change because packets have not expired."""
    if standing.before is None or clock.now() < standing.expired_at + MARGIN:
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
    if received is not None and standing == before:
        increase = standing.increase(received)
        assert increase is not None, "a figure is read to compare it"
        found = arrived(standing, increase)
        if found is not None:
            return _account_for(work, standing, found, increase)
        # What others have paid in never goes away. But packets of other payments may get their outcome from their peer.
        settled = all(one.packet.state == "doubtful" for one in standing.others)
        if increase > 0 and (settled or work.now >= standing.expired_at + UNEXPLAINED_AFTER):
            return _give_up(work, standing)
    if standing.before is None or work.now >= standing.own_expired_at + GIVE_UP_AFTER:
        return _give_up(work, standing)
    return None


def _account_for(work: Work, standing: Standing, found: Sequence[Unresolved], increase: int) -> str:
    """Posts the packets that have arrived, and voids the others."""
    # Other payments may explain the rest of the increase; alone, the packets have delivered all of it.
    spare = 0 if standing.others else increase - sum(one.least for one in found)
    for one in found:
        more = min(spare, one.most - one.least)
        spare -= more
        balances.fulfil(work, one.packet.id, one.least + more)
    for one in standing.own:
        balances.reject(work, one.packet.id)  # no effect on those that were just posted
    wallet = WALLETS.by_id(work, standing.payment.wallet_address_id)
    proved = format_decimal(cost(found), wallet.asset)
    return f"{_described(work, standing)}; by what the receiver has received, {proved} {wallet.asset_code} arrived"


def _give_up(work: Work, standing: Standing) -> str:
    """Ends the payment with what is known to have arrived; its other packets stay unresolved."""
    message = _described(work, standing)
    for one in standing.own:
        balances.leave_unresolved(work, one.packet.id)
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
    amount = f"{format_decimal(cost(standing.own), wallet.asset)} {wallet.asset_code}"
    packets = f"{len(standing.own)} packets with {amount} were left unanswered"
    return f"payment {standing.payment.id} from wallet {wallet.path}: {packets}"
