"""The receiving end of STREAM (RFC 29): answers Prepares for our addresses, and moves their money from the peer to a
wallet in the same unit.

`payres.payments.incoming.fits_with_tolerance` says how much more than the incoming amount may arrive because senders
round.
"""

import os
from collections.abc import Callable
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
    CloseCode,
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionNewAddress,
    Frame,
    PacketType,
    StreamPacket,
)
from payres.interledger.oer import CodecError
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, Rejected, Reply, encode, fulfills
from payres.interledger.responses import NoReply, Request
from payres.interledger.routing import converted
from payres.interledger.stream import IV_BYTES
from payres.ledger import NotEnough, operator_account
from payres.payments.incoming import credit, fits_with_tolerance
from payres.store import peers, wallets
from payres.store.database import Database
from payres.store.incoming import INCOMING, IncomingRecord
from payres.store.peers import InboundPeer
from payres.store.wallets import WalletRecord
from payres.store.work import Work

CLOSE: Final = ConnectionClose(CloseCode.NO_ERROR, "")


class Receiver:
    """Receives for the incoming payments and wallets of this node."""

    def __init__(self, database: Database, ilp_address: str) -> None:
        self._database = database
        self._ilp_address = ilp_address

    async def receive(
        self, peer: InboundPeer, prepare: Prepare, opened: Opened, request: Request
    ) -> Reply | bytes | NoReply:
        """The reply to a packet for one of our addresses, after its money has moved. Raises Rejected, Unavailable."""
        source = peer.asset
        target = opened.asset or source
        arrived = prepare.amount
        if arrived and source != target:
            arrived = await self._database.read(partial(converted, amount=arrived, source=source, target=target))
        answer = judge(prepare, arrived, opened, self._ilp_address)
        if not isinstance(answer, Payable):
            return answer
        arrival = Arrival(peer, opened.tag, target, prepare.amount, arrived, prepare.expires_at)
        return await self._database.write(partial(self._deliver, arrival=arrival, request=request, payable=answer))

    def _deliver(self, work: Work, arrival: "Arrival", request: Request, payable: "Payable") -> bytes | NoReply:
        """One unit: checks that the request is new, moves the money, and caches the reply. Raises Rejected."""
        found = responses.find(work, request)
        if found is not None:
            return found
        if not deliver(work, arrival):
            return encode(payable.decline())
        reply = encode(payable.fulfill)
        responses.store(work, request, reply)
        return reply


class Payable(msgspec.Struct, frozen=True):
    """Money that may be delivered: `fulfill` is the reply if it is, `decline` if it never will be."""

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
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Payable | Fulfill | Reject:
    """What to do about a packet that brings `arrived`, in the asset that its address names.

    `ilp_address` is this node's; `random_bytes` gives the IV of the answer.
    """
    try:
        asked = opened.shared_secret.decrypt_packet(prepare.data)
    except CodecError:
        return Reject(Code.UNEXPECTED_PAYMENT, ilp_address)
    if asked.packet_type != PacketType.PREPARE:
        return Reject(Code.BAD_REQUEST, ilp_address)
    reply = _Reply(ilp_address, opened, asked.sequence, arrived, random_bytes)
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
    return Payable(fulfill, reply) if arrived else fulfill


class _Reply(msgspec.Struct, frozen=True):
    """Encrypts answers to one packet. Each says how much arrived, also when it is not accepted."""

    ilp_address: str
    opened: Opened
    sequence: int
    arrived: int
    random_bytes: Callable[[int], bytes]

    def fulfill(self, fulfillment: bytes, *frames: Frame) -> Fulfill:
        return Fulfill(fulfillment, self._encrypted(PacketType.FULFILL, frames))

    def reject(self, *frames: Frame) -> Reject:
        return Reject(Code.APPLICATION_ERROR, self.ilp_address, data=self._encrypted(PacketType.REJECT, frames))

    def _encrypted(self, kind: PacketType, frames: tuple[Frame, ...]) -> bytes:
        packet = StreamPacket(self.sequence, kind, self.arrived, frames)
        return self.opened.shared_secret.encrypt_packet(packet, self.random_bytes(IV_BYTES))


class Arrival(msgspec.Struct, frozen=True):
    """A packet with money for an address of ours: `sent` in the peer's asset is `arrived` in the address's."""

    peer: InboundPeer
    tag: str | None
    asset: Asset
    sent: int
    arrived: int
    expires_at: int


def deliver(work: Work, arrival: Arrival) -> bool:
    """Moves the money and counts the packet; False, and nothing changes, when it is more than the incoming payment
    takes. Raises Rejected."""
    if work.now >= arrival.expires_at:
        raise Rejected(Code.TRANSFER_TIMED_OUT, "The packet has expired")
    wallet, payment = _payee(work, arrival)
    if payment is not None and not fits_with_tolerance(payment, arrival.arrived):
        return False
    try:
        _move(work, arrival, wallet, payment.id if payment else None)
        if payment is not None:
            credit(work, wallet, payment, arrival.arrived)
    except NotEnough as lack:
        raise insufficient(lack, "the receiver's asset") from lack
    except InvalidAmount as error:  # a total that one figure does not hold
        raise Rejected(Code.INSUFFICIENT_LIQUIDITY, str(error)) from error
    # Checked last, since it is rare: a peer that was removed after its token was checked.
    if not peers.count_received(work, arrival.peer.id):
        raise Rejected(Code.UNREACHABLE, "The link that the packet came over has been closed")
    return True


def _payee(work: Work, arrival: Arrival) -> tuple[WalletRecord, IncomingRecord | None]:
    """The wallet to credit, and the incoming payment to count it for. Raises Rejected."""
    wallet_id = wallet_of(arrival.tag or "")
    if wallet_id is None:
        payment, wallet = wallets.find_with_wallet(work, INCOMING, arrival.tag or "") or (None, None)
        if payment is None or wallet is None or not payment.open_at(work.now):
            raise Rejected(Code.UNREACHABLE, "The incoming payment takes no more money")
    else:
        payment, wallet = None, wallets.wallet_by_id(work, wallet_id)
    if not wallet.active or wallet.asset != arrival.asset:
        raise Rejected(Code.UNREACHABLE, "The wallet address takes no money")
    return wallet, payment


def _move(work: Work, arrival: Arrival, wallet: WalletRecord, payment_id: str | None) -> None:
    """Peer to wallet, through the liquidity accounts when the assets differ.

    Raises NotEnough, InvalidAmount, Rejected.
    """
    peer, target = arrival.peer, wallet.account_id
    if peer.asset_id == wallet.asset_id:
        ledger.transfer(work, peer.account_id, target, arrival.sent, "payment", incoming_payment_id=payment_id)
        return
    source_asset = peer.asset
    if converted(work, arrival.sent, source_asset, arrival.asset) != arrival.arrived:
        raise Rejected(Code.INTERNAL_ERROR, "The exchange rate has just changed")
    taken = operator_account(work, peer.asset_id, "liquidity")
    given = operator_account(work, wallet.asset_id, "liquidity")
    ledger.transfer(work, peer.account_id, taken, arrival.sent, "exchange", incoming_payment_id=payment_id)
    ledger.transfer(work, given, target, arrival.arrived, "payment", incoming_payment_id=payment_id)
