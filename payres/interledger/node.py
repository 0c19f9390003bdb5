"""The Interledger node: the services for payments to and from other servers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from payres.core.http.admission import RateLimits
from payres.core.http.context import Context
from payres.core.http.serving import Opening
from payres.core.payments.remote import CheckedPayer, LocalOnly
from payres.core.process.rate_limiter import RateLimiter
from payres.core.process.settings import Settings
from payres.core.protocol.amounts import Asset, Offer
from payres.core.protocol.urls import ROOT_WALLET_PATH
from payres.core.protocol.wire import Amount, PaymentMethod
from payres.core.remote.transport import Bounds
from payres.core.signatures.jwk import JWK
from payres.core.store.database import Database
from payres.core.store.events import Changes
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Environment
from payres.interledger.carrier import BOUNDS as LINK_BOUNDS
from payres.interledger.carrier import Carrier, Link, PacketCounts
from payres.interledger.connector import Connector
from payres.interledger.credentials import CredentialSource
from payres.interledger.identity import OwnIdentity
from payres.interledger.outbound import Outbound
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.remote_payments import RemotePayments
from payres.interledger.remote_receivers import RemoteReceivers
from payres.interledger.settings import InterledgerSettings
from payres.interledger.unanswered import UnansweredPackets

# Many payments may go to one server at a time, and waiting is better than retrying. All exchanges for a receiver have
# 10 s together, of which waiting must not use most; those for a quote have 5 s, including its probe.
RECEIVERS_BOUNDS: Final = Bounds(per_host=16, queue_seconds=3.0)


class Node(msgspec.Struct, frozen=True):
    """The services of the node, which fill the port `payments.remote.Remote`."""

    identity: OwnIdentity
    receivers: RemoteReceivers
    credentials: CredentialSource
    quotes: RemoteQuotes
    payments: RemotePayments
    unanswered: UnansweredPackets
    connector: Connector
    packets: PacketCounts

    @property
    def keys(self) -> Sequence[JWK]:
        return (self.identity.jwk,)

    async def offer(
        self, payer: CheckedPayer, receiver: str, field: str, debit: Amount | None, receive: Amount | None = None
    ) -> Offer | None:
        return await self.quotes.offer(payer, receiver, field, debit, receive)

    def send(self, payment_id: str) -> None:
        self.payments.send(payment_id)

    def methods(self, payment_id: str, asset: Asset) -> list[PaymentMethod]:
        return [self.credentials.for_payment(payment_id, asset)]

    def method_of_wallet(self, wallet: WalletRecord) -> PaymentMethod:
        return self.credentials.for_wallet(wallet.tag, wallet.asset)


async def open_node(opening: Opening) -> Node:
    """Opens the node's services."""
    environment, database = opening.environment, opening.database
    clock, settings = environment.clock, environment.settings.of(InterledgerSettings)
    wallet_address = environment.urls.wallet(ROOT_WALLET_PATH)
    identity = OwnIdentity(wallet_address, await opening.secret("client_key"), clock)
    opening.stack.push_async_callback(identity.aclose)
    receivers = RemoteReceivers(opening.client(RECEIVERS_BOUNDS, opening.rate_limits.failed_reads), identity, clock)
    counts = PacketCounts()
    link, probe_link = (Link(opening.client(LINK_BOUNDS), database, counts) for _ in range(2))
    carrier = Carrier(database, link, clock, settings.ilp_address)
    unanswered = UnansweredPackets(carrier, receivers)
    outbound = Outbound(carrier, probe_link)
    credentials = CredentialSource(await opening.secret("stream"), settings.ilp_address)
    packet_limiter = RateLimiter(settings.rate_limit_per_peer, clock)
    return Node(
        identity=identity,
        receivers=receivers,
        credentials=credentials,
        quotes=RemoteQuotes(environment.urls, receivers, outbound),
        payments=RemotePayments(receivers, outbound, unanswered),
        unanswered=unanswered,
        connector=Connector(carrier, credentials, packet_limiter),
        packets=counts,
    )


@asynccontextmanager
async def open_quotes(settings: Settings) -> AsyncIterator[RemoteQuotes]:
    """Quotes of payments to other servers for a command, which only reads the server's database."""
    environment = Environment.of(msgspec.structs.replace(settings, read_only=True))
    async with AsyncExitStack() as stack:
        database = Database.open_standby(settings.database, environment)
        stack.push_async_callback(database.close)
        limits, remote = RateLimits(settings, environment.clock), LocalOnly(environment.urls)
        opening = Opening(environment, database, Changes(), limits, stack, False, remote)
        yield (await open_node(opening)).quotes


def node_of(context: Context) -> Node:
    """The node of a running server."""
    return context.part(Node)
