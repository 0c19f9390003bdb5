"""The connector: one peer's packet in, one reply out; either delivered here, or passed on to the next peer."""

import logging
from functools import partial
from typing import Final

from payres.amounts import MAX_LEDGER, Asset
from payres.clock import Clock
from payres.errors import Unavailable
from payres.interledger import ildcp
from payres.interledger.addresses import covers
from payres.interledger.answers import Answers, NoAnswerYet, Request, RequestIdReused
from payres.interledger.conversion import converted
from payres.interledger.credentials import CredentialSource, Opened
from payres.interledger.declined import Declined
from payres.interledger.delivery import Arrival, TakesNoMore, deliver
from payres.interledger.forwarding import Forwarder
from payres.interledger.oer import CodecError
from payres.interledger.packets import Code, Prepare, Reject, Reply, decode_prepare, encode, too_large_data
from payres.interledger.receiver import Payable, Receiver
from payres.interledger.routing import next_peer
from payres.interledger.traffic import Traffic
from payres.store.database import Database, Transaction
from payres.store.peers import PeerRecord

NEIGHBOURS: Final = "peer"  # addresses under it are for the two ends of a link alone (RFC 15)

log = logging.getLogger("payres.interledger")


class Connector:
    """Answers the packets of peers. An answer that moved money is given only once that is durable."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ilp_address: str,
        credentials: CredentialSource,
        answers: Answers,
        forwarder: Forwarder,
        traffic: Traffic,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ilp_address = ilp_address
        self._credentials = credentials
        self._answers = answers
        self._forwarder = forwarder
        self._traffic = traffic
        self._receiver = Receiver(ilp_address)

    async def handle(self, peer: PeerRecord, body: bytes, request_id: str | None) -> bytes:
        """The reply to what a peer sent, a Prepare if all is well.

        Raises NoAnswerYet when the peer should ask again, RequestIdReused when it numbered two packets alike.
        """
        try:
            prepare = decode_prepare(body)
        except CodecError as error:
            return encode(Reject(Code.INVALID_PACKET, self._ilp_address, str(error)))
        request = Request(peer.id, request_id, prepare.condition)
        answer = await self._answer(peer, prepare, request)
        if isinstance(answer, Reject) and prepare.amount and request_id is not None:
            answer = await self._confirmed(request) or answer
        return answer if isinstance(answer, bytes) else encode(answer)

    async def _answer(self, peer: PeerRecord, prepare: Prepare, request: Request) -> Reply | bytes:
        try:
            with self._traffic.packet(peer.id):
                return await self._process(peer, prepare, request)
        except Declined as declined:
            return declined.reject(self._ilp_address)
        except Unavailable as error:  # storage did not take the work
            return Reject(Code.INTERNAL_ERROR, self._ilp_address, str(error))
        except (NoAnswerYet, RequestIdReused):
            raise
        except Exception:
            log.exception("a packet from peer %s failed", peer.name)
            return Reject(Code.INTERNAL_ERROR, self._ilp_address)

    async def _process(self, peer: PeerRecord, prepare: Prepare, request: Request) -> Reply | bytes:
        self._check(peer, prepare)
        if ildcp.is_request(prepare):
            return _configuration(peer, prepare)
        if not covers(self._ilp_address, prepare.destination):
            return await self._forwarder.forward(peer, prepare, request)
        opened = self._credentials.open(prepare.destination)
        if opened is not None:
            return await self._receive(peer, prepare, opened, request)
        if await self._leads_below_us(peer, prepare):
            return await self._forwarder.forward(peer, prepare, request)
        known = prepare.destination == self._ilp_address
        raise Declined(Code.UNREACHABLE if known else Code.UNEXPECTED_PAYMENT)

    def _check(self, peer: PeerRecord, prepare: Prepare) -> None:
        """What is asked of every packet. Raises Declined."""
        if self._clock.now() >= prepare.expires_at:
            raise Declined(Code.TRANSFER_TIMED_OUT, "The packet has expired")
        most = peer.max_packet or MAX_LEDGER
        if prepare.amount > most:
            raise Declined(Code.AMOUNT_TOO_LARGE, data=too_large_data(prepare.amount, most))
        if prepare.destination.partition(".")[0] == NEIGHBOURS and not ildcp.is_request(prepare):
            raise Declined(Code.UNREACHABLE)

    async def _leads_below_us(self, peer: PeerRecord, prepare: Prepare) -> bool:
        """Whether a peer has an address below ours, and the destination lies below that."""
        found = await self._database.read(
            lambda tx: next_peer(tx, prepare.destination, self._ilp_address, peer.asset_id, peer.id)
        )
        return found is not None

    async def _receive(self, peer: PeerRecord, prepare: Prepare, opened: Opened, request: Request) -> Reply | bytes:
        asset = Asset(peer.asset_code, peer.asset_scale)
        target = opened.asset or asset
        arrived = prepare.amount
        if arrived and asset != target:
            now = self._clock.now()
            arrived = await self._database.read(
                partial(converted, amount=arrived, source=asset, target=target, now=now)
            )
        result = self._receiver.receive(prepare, arrived, opened)
        if not isinstance(result, Payable):
            return result
        arrival = Arrival(peer, opened.tag, target, prepare.amount, arrived, prepare.expires_at)
        reply = encode(result.fulfill)
        try:
            return await self._database.write(partial(self._deliver, arrival=arrival, request=request, reply=reply))
        except TakesNoMore:
            return result.decline()

    def _deliver(self, tx: Transaction, arrival: Arrival, request: Request, reply: bytes) -> bytes:
        """One unit: the request is new, and the money is where it should be. Raises Declined, TakesNoMore."""
        kept = self._answers.find(tx, request)
        if kept is not None:
            return kept
        now = self._clock.now()
        deliver(tx, arrival, now)
        self._answers.keep(tx, request, reply, now)
        return reply

    async def _confirmed(self, request: Request) -> bytes | None:
        """The answer that fulfilled a request which would now be rejected, if it was fulfilled before.

        The writer is asked, behind whatever it has yet to do: a peer that repeats a request takes a Reject as proof
        that its packet was never fulfilled. Raises NoAnswerYet, RequestIdReused.
        """
        try:
            return await self._database.write(partial(self._answers.find, request=request))
        except Unavailable as error:
            raise NoAnswerYet from error


def _configuration(peer: PeerRecord, prepare: Prepare) -> Reply:
    """The address and asset of the peer, which it asks for as a child (RFC 31). Raises Declined."""
    if prepare.amount or prepare.condition != ildcp.CONDITION:
        raise Declined(Code.BAD_REQUEST, "A question for the configuration carries no money")
    return ildcp.answer(peer.ilp_address, Asset(peer.asset_code, peer.asset_scale))
