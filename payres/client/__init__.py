"""An Open Payments client, for threads and for asyncio.

It depends on nothing in payres but HTTP messages and their signatures, so that it can be published separately.
"""

from payres.client import access, errors
from payres.client.clients import AsyncClient, Client
from payres.client.errors import OpenPaymentsError
from payres.client.grants import Grant, PendingGrant
from payres.client.money import decimal, money

__all__ = [
    "AsyncClient",
    "Client",
    "Grant",
    "OpenPaymentsError",
    "PendingGrant",
    "access",
    "decimal",
    "errors",
    "money",
]
