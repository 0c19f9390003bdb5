"""A client of Open Payments, for threads and for asyncio.

It uses no more of payres than the values that cross HTTP and their signatures, so that it can go elsewhere alone.
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
