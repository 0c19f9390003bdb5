"""An Open Payments client, for threads and for asyncio.

It depends on nothing in payres but HTTP messages, their signatures and the structs of events, so that it can be
published separately.
"""

from payres.client import access, errors, webhooks
from payres.client.clients import AsyncClient, Client
from payres.client.errors import OpenPaymentsError
from payres.client.grants import Grant, PendingGrant
from payres.client.resources import AccessToken, IncomingPayment, OutgoingPayment, Quote, decimal, money
from payres.core.protocol.wire import Amount, GrantSpending, Page, PublicIncomingPayment, WalletAddress
from payres.core.signatures.jwk import JWK

__all__ = [
    "JWK",
    "AccessToken",
    "Amount",
    "AsyncClient",
    "Client",
    "Grant",
    "GrantSpending",
    "IncomingPayment",
    "OpenPaymentsError",
    "OutgoingPayment",
    "Page",
    "PendingGrant",
    "PublicIncomingPayment",
    "Quote",
    "WalletAddress",
    "access",
    "decimal",
    "errors",
    "money",
    "webhooks",
]
