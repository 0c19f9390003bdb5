"""The receiving end of STREAM (RFC 29): answers Prepares for our addresses, and moves their money from the peer to a
wallet in the same unit.

`payres.interledger.overpayment.fits_with_tolerance` limits how much more than the incoming amount may arrive.
"""

import logging
from functools import partial

from payres.core.payments import ledger
from payres.core.payments.incoming import credit
from payres.core.payments.ledger import NotEnough, Side
from payres.core.protocol.amounts import Asset
from payres.core.protocol.errors import InvalidAmount
from payres.core.store import wallets
from payres.core.store.database import Database
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Work
from payres.interledger import stream
from payres.interledger.carrier import Request, require_new, store_response
from payres.interledger.clearing import insufficient, warn_of_low
from payres.interledger.credentials import Opened, wallet_of
from payres.interledger.oer import CodecError
from payres.interledger.overpayment import fits_with_tolerance
from payres.interledger.packets import Code, Fulfill, PacketRejected, Prepare, Reject, Reply
from payres.interledger.routing import converted
from payres.interledger.store import peers
from payres.interledger.store.peers import InboundPeer

log = logging.getLogger("payres.interledger")


async def receive(
    database: Database, ilp_address: str, peer: InboundPeer, prepare: Prepare, opened: Opened, request: Request
) -> Reply:
    """The reply to a packet for one of our addresses, after its money has moved. Raises PacketRejected, Unavailable."""
    arrived = prepare.amount
    if arrived and peer.asset != opened.asset:
        arrived = await database.read(partial(converted, amount=arrived, source=peer.asset, target=opened.asset))
    arrival = Arrival(prepare, arrived, opened, ilp_address)
    reply = arrival.reply()
    if isinstance(reply, Reject) or not arrived:
        return reply

    def unit(work: Work) -> Reply:
        """Checks that the request is new, moves the money, and caches the reply. Raises PacketRejected."""
        require_new(work, request)
        if not _deliver(work, peer, prepare, opened, arrived, arrival.asked.prepare_amount):
            return arrival.reject(stream.ConnectionClose())  # tells the sender to stop
        store_response(work, request, reply)
        return reply

    return await database.write(unit)


class Arrival:
    """A packet that delivers `arrived`, in the asset of its address. Its answers are encrypted and report that amount.

    `ilp_address` is this node's. Raises PacketRejected if the packet has no message from the sender.
    """

    def __init__(self, prepare: Prepare, arrived: int, opened: Opened, ilp_address: str) -> None:
        try:
            self.asked = opened.shared_secret.decrypt_packet(prepare.data)
        except CodecError as error:
            raise PacketRejected(Code.UNEXPECTED_PAYMENT) from error
        if self.asked.packet_type != stream.PacketType.PREPARE:
            raise PacketRejected(Code.BAD_REQUEST)
        self._prepare = prepare
        self._arrived = arrived
        self._opened = opened
        self._ilp_address = ilp_address

    def reply(self) -> Reply:
        """The Fulfill, if the packet can be fulfilled and enough arrived."""
        details: tuple[stream.Frame, ...] = ()
        for frame in self.asked.frames:
            if isinstance(frame, stream.ConnectionClose):
                return self.reject(stream.ConnectionClose())
            # A sender that gives its address asks for the receiver's asset.
            if isinstance(frame, stream.ConnectionNewAddress):
                details = (stream.ConnectionAssetDetails(self._opened.asset.code, self._opened.asset.scale),)
        fulfillment = self._opened.shared_secret.fulfillment(self._prepare.data)
        # One code for every packet that is understood and not fulfilled: some senders give up at any other.
        if self._arrived < self.asked.prepare_amount or not Fulfill(fulfillment).fits(self._prepare.condition):
            return self.reject(*details)
        return Fulfill(fulfillment, self._encrypted(stream.PacketType.FULFILL, details))

    def reject(self, *frames: stream.Frame) -> Reject:
        """A Reject that reports the arrived amount."""
        return Reject(Code.APPLICATION_ERROR, self._ilp_address, data=self._encrypted(stream.PacketType.REJECT, frames))

    def _encrypted(self, kind: stream.PacketType, frames: tuple[stream.Frame, ...]) -> bytes:
        packet = stream.StreamPacket(self.asked.sequence, kind, self._arrived, frames)
        log.debug("a packet of %d says: %s; its answer: %s", self._prepare.amount, self.asked, packet)
        return self._opened.shared_secret.encrypt_packet(packet)


def _deliver(work: Work, peer: InboundPeer, prepare: Prepare, opened: Opened, arrived: int, minimum: int) -> bool:
    """Moves the money and counts the packet. False, with nothing changed, if the incoming payment does not accept so
    much.

    `arrived` is in the asset of the address. Raises PacketRejected.
    """
    if work.now >= prepare.expires_at:
        raise PacketRejected(Code.TRANSFER_TIMED_OUT, "The packet has expired")
    wallet, payment = _payee(work, opened.tag, opened.asset)
    if payment is not None and not fits_with_tolerance(payment, arrived, minimum):
        return False
    try:
        _move(work, peer, wallet, prepare.amount, arrived, payment.id if payment else None)
        if payment is not None:
            credit(work, wallet, payment, arrived)
    except NotEnough as lack:
        raise insufficient(lack, "the receiver's asset") from lack
    except InvalidAmount as error:  # a total beyond the range of the ledger
        raise PacketRejected(Code.INSUFFICIENT_LIQUIDITY, str(error)) from error
    # Checked last because it is rare: the peer was removed after its token was checked.
    if not peers.count_received(work, peer.id):
        raise PacketRejected(Code.UNREACHABLE, "The peer that sent the packet was removed")
    return True


def _payee(work: Work, tag: str, asset: Asset) -> tuple[WalletRecord, IncomingRecord | None]:
    """The wallet to credit, and its incoming payment, if any. Raises PacketRejected."""
    of_wallet = wallet_of(tag)
    if of_wallet is None:
        payment, wallet = wallets.find_with_wallet(work, INCOMING, tag) or (None, None)
        if payment is None or wallet is None or not payment.open_at(work.now):
            raise PacketRejected(Code.UNREACHABLE, "The incoming payment accepts no more money")
    else:  # the wallet may be lost: opened after the backup that was restored
        payment, wallet = None, WALLETS.find(work, tag=of_wallet)
    if wallet is None or not wallet.active or wallet.asset != asset:
        raise PacketRejected(Code.UNREACHABLE, "The wallet address accepts no money")
    return wallet, payment


def _move(work: Work, peer: InboundPeer, wallet: WalletRecord, sent: int, arrived: int, payment_id: str | None) -> None:
    """From peer to wallet. Raises NotEnough, InvalidAmount, PacketRejected."""
    if peer.asset_id != wallet.asset_id and converted(work, sent, peer.asset, wallet.asset) != arrived:
        raise PacketRejected(Code.INTERNAL_ERROR, "The exchange rate has just changed")
    payer = Side(peer.account_id, peer.asset_id, sent)
    payee = Side(wallet.account_id, wallet.asset_id, arrived)
    warn_of_low(work, ledger.exchange(work, payer, payee, incoming_payment_id=payment_id))
