"""Refunds to other servers: gets an incoming payment from the wallet address, and the offer for it. No money moves.

The unit that then makes the refund holds the money, in an outgoing payment that is sent like every other.
"""

from functools import partial

from payres import representations
from payres.errors import WrongState
from payres.federation.failures import RemoteReceiverFailed
from payres.federation.incoming_payments import RemoteReceivers
from payres.interledger.quoting import RemoteQuotes, not_payable
from payres.operator.refunds import Plan, Wanted, find_made, plan
from payres.payments.outgoing import check_funds
from payres.payments.receivers import is_remote, unpayable
from payres.store.database import Database
from payres.store.work import Work
from payres.terms import Offer
from payres.urls import Urls


class RemoteRefunds:
    """Makes offers for refunds, as the client that this server is to others."""

    def __init__(self, database: Database, urls: Urls, receivers: RemoteReceivers, quotes: RemoteQuotes) -> None:
        self._database = database
        self._urls = urls
        self._receivers = receivers
        self._quotes = quotes

    async def find_offer(self, wanted: Wanted) -> Offer | None:
        """The offer for a refund to a wallet address on another server; None for any other, and for one that was made.

        Raises what `operator.refunds.refund` raises, before another server is asked; InvalidReceiver, Unavailable.
        """
        if wanted.to is None or self._urls.is_ours(wanted.to):
            return None
        found = await self._database.read(partial(_plan, wanted=wanted))
        if found is None:
            return None
        try:
            receiver = await self._receivers.create(wanted.to)
        except RemoteReceiverFailed as error:
            raise not_payable("to", error) from error
        if not is_remote(self._urls, receiver):
            raise unpayable("to", "what its server created is no incoming payment of another server", "bad_content")
        wallet = self._urls.wallet(found.receiver.path)
        debit = representations.amount(found.amount, found.receiver.asset)
        return await self._quotes.offer_for_refund(wallet, receiver, debit)


def _plan(work: Work, wanted: Wanted) -> Plan | None:
    if find_made(work, wanted):
        return None
    found = plan(work, wanted)
    if not found.receiver.active:
        path = found.receiver.path
        raise WrongState(f"The wallet {path} is inactive and pays no other server; activate it first", path=path)
    check_funds(work, found.receiver, found.amount)
    return found
