"""Delivery: the money of a packet goes from the peer that it came from into a wallet here, as one decision.

How much may arrive beyond what an incoming payment wants, for the sender's rounding, is decided here too.
"""

import msgspec

from payres import ledger
from payres.amounts import Asset
from payres.errors import InvalidAmount
from payres.interledger.conversion import converted
from payres.interledger.credentials import wallet_of
from payres.interledger.declined import Declined
from payres.interledger.packets import Code
from payres.ledger import NotEnough, operator_account
from payres.payments import incoming as incoming_rules
from payres.store import incoming, peers, wallets
from payres.store.database import Transaction
from payres.store.incoming import IncomingRecord
from payres.store.peers import PeerRecord
from payres.store.wallets import WalletRecord


class TakesNoMore(Exception):
    """The amount does not fit into what the incoming payment still wants."""


class Arrival(msgspec.Struct, frozen=True):
    """A packet with money for an address of ours: `sent` in the peer's asset is `arrived` in the address's."""

    peer: PeerRecord
    tag: str | None
    asset: Asset
    sent: int
    arrived: int
    expires_at: int


def deliver(tx: Transaction, arrival: Arrival, now: int) -> None:
    """Moves the money. Raises Declined or TakesNoMore, after which nothing of the unit may stay."""
    if now >= arrival.expires_at:
        raise Declined(Code.TRANSFER_TIMED_OUT, "The packet has expired")
    if peers.peer_by_id(tx, arrival.peer.id) is None:  # removed a moment ago, and nothing was owed then
        raise Declined(Code.UNREACHABLE, "The link that the packet came over has been closed")
    wallet, payment = _payee(tx, arrival, now)
    if payment is not None and not _fits(payment, arrival.arrived):
        raise TakesNoMore
    try:
        _move(tx, arrival, wallet, payment.id if payment else None, now)
        if payment is not None:
            incoming_rules.credit(tx, payment, arrival.arrived, now)
    except NotEnough as lack:
        whose = "The peer's credit" if lack.account.kind == "peer" else "The liquidity in the receiver's asset"
        raise Declined(Code.INSUFFICIENT_LIQUIDITY, f"{whose} does not suffice") from lack
    except InvalidAmount as error:  # a total that one figure does not hold
        raise Declined(Code.INSUFFICIENT_LIQUIDITY, str(error)) from error


def _payee(tx: Transaction, arrival: Arrival, now: int) -> tuple[WalletRecord, IncomingRecord | None]:
    """The wallet to credit, and the incoming payment to count it for. Raises Declined."""
    wallet_id = wallet_of(arrival.tag or "")
    payment = None
    if wallet_id is None:
        payment = incoming.find_incoming(tx, arrival.tag or "")
        if payment is None or not payment.open_at(now):
            raise Declined(Code.UNREACHABLE, "The incoming payment takes no more money")
        wallet_id = payment.wallet_address_id
    wallet = wallets.wallet_by_id(tx, wallet_id)
    if not wallet.active or Asset(wallet.asset_code, wallet.asset_scale) != arrival.asset:
        raise Declined(Code.UNREACHABLE, "The wallet address takes no money")
    return wallet, payment


def _fits(payment: IncomingRecord, amount: int) -> bool:
    """Whether the total stays within what is wanted, or passes it by no more than senders' rounding can explain."""
    if payment.incoming_value is None:
        return True
    wanted = int(payment.incoming_value)
    return payment.received + amount <= wanted + max(1, wanted * 5 // 1000)


def _move(tx: Transaction, arrival: Arrival, wallet: WalletRecord, payment_id: str | None, now: int) -> None:
    """Peer to wallet, through the liquidity accounts when the assets differ.

    Raises NotEnough, InvalidAmount, Declined.
    """
    peer, target = arrival.peer, wallet.account_id
    if peer.asset_id == wallet.asset_id:
        ledger.transfer(tx, peer.account_id, target, arrival.sent, "payment", now, incoming_payment_id=payment_id)
        return
    source_asset = Asset(peer.asset_code, peer.asset_scale)
    if converted(tx, arrival.sent, source_asset, arrival.asset, now) != arrival.arrived:
        raise Declined(Code.INTERNAL_ERROR, "The exchange rate has just changed")
    taken = operator_account(tx, peer.asset_id, "liquidity")
    given = operator_account(tx, wallet.asset_id, "liquidity")
    ledger.transfer(tx, peer.account_id, taken, arrival.sent, "exchange", now, incoming_payment_id=payment_id)
    ledger.transfer(tx, given, target, arrival.arrived, "payment", now, incoming_payment_id=payment_id)
