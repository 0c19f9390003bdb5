"""The receiving end of STREAM (RFC 29): answers Prepares for our addresses, and moves their money from the peer to a
wallet in the same unit.

`payres.payments.incoming.fits_with_tolerance` says how much more than the incoming amount may arrive.
"""

from functools import partial
from typing import Final

import msgspec

from payres import ledger
from payres.amounts import Asset
from payres.errors import InvalidAmount
from payres.interledger import responses
from payres.interledger.balances import insufficient
from payres.interledger.credentials import Opened, wallet_of
from payres.interledger.frames import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionNewAddress,
    Frame,
    PacketType,
    StreamPacket,
)
from payres.interledger.oer import CodecError
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, Rejected, Reply, fulfills
from payres.interledger.responses import Request
from payres.interledger.routing import converted
from payres.ledger import NotEnough, Side
from payres.payments.incoming import credit, fits_with_tolerance
from payres.payments.liquidity import warn_of_low
from payres.store import peers, wallets
from payres.store.database import Database
from payres.store.incoming import INCOMING, IncomingRecord
from payres.store.peers import InboundPeer
from payres.store.wallets import WALLETS, WalletRecord
from payres.store.work import Work

CLOSE: Final = ConnectionClose()


async def receive(
    database: Database, ilp_address: str, peer: InboundPeer, prepare: Prepare, opened: Opened, request: Request
) -> Reply:
    """The reply to a packet for one of our addresses, after its money has moved. Raises Rejected, Unavailable."""
    source = peer.asset
    target = opened.asset or source
    arrived = prepare.amount
    if arrived and source != target:
        arrived = await database.read(partial(converted, amount=arrived, source=source, target=target))
    answer = judge(prepare, arrived, opened, ilp_address)
    if not isinstance(answer, Payable):
        return answer

    def unit(work: Work) -> Reply:
        """Checks that the request is new, moves the money, and caches the reply. Raises Rejected."""
        responses.require_new(work, request)
        if not _deliver(work, peer, prepare, opened, arrived, answer.minimum):
            return answer.decline()
        responses.store(work, request, answer.fulfill)
        return answer.fulfill

    return await database.write(unit)


class Payable(msgspec.Struct, frozen=True):
    """Money that may be delivered: `fulfill` is the reply if it is, `decline` if it never will be. At least `minimum`
    had to arrive."""

    minimum: int
    fulfill: Fulfill
    reply: "_Reply"

    def decline(self) -> Reject:
        """Rejects the packet and asks the sender to send no more."""
        return self.reply.reject(CLOSE)


def judge(
    prepare: Prepare,
    arrived: int,
    opened: Opened,
    ilp_address: str,
) -> Payable | Fulfill | Reject:
    """What to do about a packet that brings `arrived`, in the asset that its address names.

    `ilp_address` is this node's.
    """
    try:
        asked = opened.shared_secret.decrypt_packet(prepare.data)
    except CodecError:
        return Reject(Code.UNEXPECTED_PAYMENT, ilp_address)
    if asked.packet_type != PacketType.PREPARE:
        return Reject(Code.BAD_REQUEST, ilp_address)
    reply = _Reply(ilp_address, opened, asked.sequence, arrived)
    details: tuple[Frame, ...] = ()
    for frame in asked.frames:
        if isinstance(frame, ConnectionClose):
            return reply.reject(CLOSE)
        # By giving its address a sender asks for the receiver's asset.
        if isinstance(frame, ConnectionNewAddress) and opened.asset is not None:
            details = (ConnectionAssetDetails(opened.asset.code, opened.asset.scale),)
    fulfillment = opened.shared_secret.fulfillment(prepare.data)
    # One code for everything that is understood and not fulfilled: some senders give up at any other.
    if arrived < asked.prepare_amount or not fulfills(fulfillment, prepare.condition):
        return reply.reject(*details)
    fulfill = reply.fulfill(fulfillment, *details)
    return Payable(asked.prepare_amount, fulfill, reply) if arrived else fulfill


class _Reply(msgspec.Struct, frozen=True):
    """Encrypts answers to one packet. Each says how much arrived, also when it is not accepted."""

    ilp_address: str
    opened: Opened
    sequence: int
    arrived: int

    def fulfill(self, fulfillment: bytes, *frames: Frame) -> Fulfill:
        return Fulfill(fulfillment, self._encrypted(PacketType.FULFILL, frames))

    def reject(self, *frames: Frame) -> Reject:
        return Reject(Code.APPLICATION_ERROR, self.ilp_address, data=self._encrypted(PacketType.REJECT, frames))

    def _encrypted(self, kind: PacketType, frames: tuple[Frame, ...]) -> bytes:
        packet = StreamPacket(self.sequence, kind, self.arrived, frames)
        return self.opened.shared_secret.encrypt_packet(packet)


def _deliver(work: Work, peer: InboundPeer, prepare: Prepare, opened: Opened, arrived: int, minimum: int) -> bool:
    """Moves the money and counts the packet; False, and nothing changes, when it is more than the incoming payment
    takes. `arrived` is in the asset that the address names. Raises Rejected."""
    if work.now >= prepare.expires_at:
        raise Rejected(Code.TRANSFER_TIMED_OUT, "The packet has expired")
    wallet, payment = _payee(work, opened.tag or "", opened.asset or peer.asset)
    if payment is not None and not fits_with_tolerance(payment, arrived, minimum):
        return False
    try:
        _move(work, peer, wallet, prepare.amount, arrived, payment.id if payment else None)
        if payment is not None:
            credit(work, wallet, payment, arrived)
    except NotEnough as lack:
        raise insufficient(lack, "the receiver's asset") from lack
    except InvalidAmount as error:  # a total that one figure does not hold
        raise Rejected(Code.INSUFFICIENT_LIQUIDITY, str(error)) from error
    # Checked last, since it is rare: a peer that was removed after its token was checked.
    if not peers.count_received(work, peer.id):
        raise Rejected(Code.UNREACHABLE, "The link that the packet came over has been closed")
    return True


def _payee(work: Work, tag: str, asset: Asset) -> tuple[WalletRecord, IncomingRecord | None]:
    """The wallet to credit, and the incoming payment to count it for. Raises Rejected."""
    wallet_id = wallet_of(tag)
    if wallet_id is None:
        payment, wallet = wallets.find_with_wallet(work, INCOMING, tag) or (None, None)
        if payment is None or wallet is None or not payment.open_at(work.now):
            raise Rejected(Code.UNREACHABLE, "The incoming payment takes no more money")
    else:
        payment, wallet = None, WALLETS.by_id(work, wallet_id)
    if not wallet.active or wallet.asset != asset:
        raise Rejected(Code.UNREACHABLE, "The wallet address takes no money")
    return wallet, payment


def _move(work: Work, peer: InboundPeer, wallet: WalletRecord, sent: int, arrived: int, payment_id: str | None) -> None:
    """Peer to wallet. Raises NotEnough, InvalidAmount, Rejected."""
    if peer.asset_id != wallet.asset_id and converted(work, sent, peer.asset, wallet.asset) != arrived:
        raise Rejected(Code.INTERNAL_ERROR, "The exchange rate has just changed")
    payer = Side(peer.account_id, peer.asset_id, sent)
    payee = Side(wallet.account_id, wallet.asset_id, arrived)
    warn_of_low(work, ledger.exchange(work, payer, payee, incoming_payment_id=payment_id))
