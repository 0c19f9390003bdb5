"""Who is to be paid: a wallet or a bill, here or on another server."""

import re
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from payres.core.payments.incoming import is_remote, open_receiver, unpayable
from payres.core.protocol.amounts import Asset
from payres.core.protocol.errors import DomainError
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import note_of, visible_name
from payres.core.remote.wallet_addresses import RemoteWallet
from payres.core.store import wallets
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Units, Work
from payres.interledger.quoting import RemoteQuotes

# The payment page of another payres server; its incoming payment has the same id.
BILL_PAGE: Final = re.compile(r"(https?://.+)/pay/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class Payee(msgspec.Struct, frozen=True, kw_only=True):
    """The payee. `bill` is the URL of the incoming payment to pay; without one, it is created in the local wallet at
    `address`, or in the remote `wallet`."""

    name: str | None
    address: str
    asset: Asset
    bill: str | None = None
    remaining: int | None = None
    wallet: RemoteWallet | None = None
    is_here: bool = False
    purpose: str = ""


async def find_payee(call: Units, remote: RemoteQuotes, payer: WalletRecord, url: str) -> Payee:
    """The payee at a URL. Raises InvalidReceiver, Unavailable."""
    found = await call.read(partial(_payee_here, payer=payer, url=url))
    if found is not None:
        return found
    bill = BILL_PAGE.sub(r"\1/incoming-payments/\2", url)
    if not is_remote(remote.urls, bill):
        wallet = await remote.find_wallet(url)
        name = visible_name(wallet.public_name, wallet.id)
        return Payee(name=name, address=wallet.id, asset=Asset(wallet.asset_code, wallet.asset_scale), wallet=wallet)
    return await find_remote_bill(remote, bill)


async def find_remote_bill(remote: RemoteQuotes, bill: str) -> Payee:
    """The payee of an incoming payment on another server. Raises InvalidReceiver, Unavailable."""
    payment = await remote.find_bill(bill)
    payee = Payee(
        name=None,
        address=bill,
        asset=payment.asset,
        bill=bill,
        remaining=payment.remaining,
        purpose=payment.description,
    )
    try:
        wallet = await remote.find_wallet(payment.wallet_address)
    except DomainError:
        return payee
    # Any server can claim that its payment goes to any wallet, so the wallet's own server must confirm it.
    if not bill.startswith(f"{canonical(wallet.resource_server)}/"):
        return payee
    return replace(payee, name=visible_name(wallet.public_name, wallet.id), address=wallet.id)


def _payee_here(work: Work, payer: WalletRecord, url: str) -> Payee | None:
    """The local payee at a URL; None for another server's URL. Raises InvalidReceiver."""
    bill, wallet, remaining, purpose = None, None, None, ""
    bill_id = work.urls.resource_id("incoming-payments", url) or work.urls.resource_id("pay", url)
    if bill_id is not None:
        receiver = open_receiver(work, work.urls.resource("incoming-payments", bill_id), "to")
        bill, wallet, remaining = receiver.url, receiver.wallet, receiver.payment.remaining
        purpose = note_of(receiver.payment.metadata)
    elif (path := work.urls.wallet_path(url)) is not None:
        wallet = wallets.find_wallet(work, path)
        if wallet is None or not wallet.active:
            raise unpayable("to", "there is no wallet at this address", "no_wallet")
    if wallet is None:
        return None
    if wallet.id == payer.id:
        raise unpayable("to", "it is the wallet that pays", "own_wallet")
    address = work.urls.wallet(wallet.path)
    name = visible_name(wallet.public_name, address)
    return Payee(
        name=name, address=address, asset=wallet.asset, bill=bill, remaining=remaining, is_here=True, purpose=purpose
    )
