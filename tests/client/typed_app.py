"""A shop as an app would write it, which type checkers read (test_types.py) and nobody runs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from payres.client import (
    AsyncClient,
    Client,
    Grant,
    IncomingPayment,
    OutgoingPayment,
    Page,
    PendingGrant,
    Quote,
    WalletAddress,
    access,
    decimal,
    errors,
    money,
    webhooks,
)

SHOP = "https://pay.example/shop"


def bill(client: Client, order: str) -> IncomingPayment:
    shop: WalletAddress = client.wallet_address.get(SHOP)
    grant = client.grant.obtain(shop, access.incoming_payment("create", "read", identifier=shop.id))
    return client.incoming_payment.create(
        shop, grant, incoming_amount=money("25.00", shop), metadata={"order": order}, idempotency_key=order
    )


def ask(client: Client, payer: WalletAddress, receiver: IncomingPayment, back: str) -> tuple[Quote, PendingGrant]:
    quoting: Grant = client.grant.obtain(payer, access.quote("create", identifier=payer.id))
    quote = client.quote.create(payer, quoting, receiver=receiver.id)
    spending = access.outgoing_payment("create", identifier=payer.id, debit_amount=quote.debit_amount)
    return quote, client.grant.start(payer, spending, finish=back)


def pay(client: Client, payer: WalletAddress, quote: Quote, pending: PendingGrant, url: str) -> OutgoingPayment | None:
    try:
        grant = client.grant.finish(pending, url)
    except errors.GrantDenied:
        return None
    return client.outgoing_payment.create(payer, grant, quote_id=quote.id)


def paid(body: bytes, headers: Mapping[str, str], secret: str) -> str:
    event = webhooks.verify(body, headers, secret)
    if event.type == "incoming_payment.completed":
        return f"{event.data.id} has {decimal(event.data.received_amount)} {event.data.created_at:%d %B}"
    if event.type == "outgoing_payment.failed":
        return str(event.data.failure)
    if event.type == "wallet.deposited":
        deposit: webhooks.WalletEvent = event.data
        return deposit.amount.value
    return event.id


async def bills(client: AsyncClient, shop: WalletAddress, grant: Grant) -> AsyncIterator[str]:
    page: Page[IncomingPayment] = await client.incoming_payment.list(shop, grant, first=10, timeout=5)
    async for one in client.incoming_payment.iterate(shop, grant):
        yield f"{one.id} of {len(page.result)}"


async def main() -> None:
    async with AsyncClient(SHOP, Path("private.pem"), "key-1") as client:
        shop = await client.wallet_address.get(SHOP)
        grant = await client.grant.obtain(shop, access.incoming_payment("read-all", identifier=shop.id))
        assert [one async for one in bills(client, shop, grant)]


if __name__ == "__main__":
    asyncio.run(main())
