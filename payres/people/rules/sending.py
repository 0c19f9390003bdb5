"""Sending by the owner, without a grant: the owner's input gets a quote, and a confirmed quote is paid."""

import re
from functools import partial
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import asdict, replace

from payres.core.grants.clients import own_client
from payres.core.payments import ledger
from payres.core.payments import quotes as quote_rules
from payres.core.payments.incoming import add, complete, is_remote, open_receiver, unpaid, unpayable
from payres.core.payments.outgoing import check_funds, check_movable, pay_quote
from payres.core.protocol.amounts import Asset, Offer, describe_amount
from payres.core.protocol.errors import DomainError, nothing_here
from payres.core.protocol.urls import ROOT_WALLET_PATH, Urls, canonical, canonical_url, is_loopback
from payres.core.protocol.visible import described, visible_name, visible_text, visible_url
from payres.core.protocol.wire import Amount
from payres.core.remote.wallet_addresses import RemoteWallet
from payres.core.store import clients, payments, server, wallets
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.payments import INCOMING, QUOTES, QuoteRecord
from payres.core.store.representations import amount
from payres.core.store.wallets import WALLETS, WalletRecord, active_wallet
from payres.core.store.work import Units, Work
from payres.interledger.quoting import SLIPPAGE, RemoteQuotes

# The payment page of another payres server; its incoming payment has the same id.
BILL_PAGE: Final = re.compile(r"(https?://.+)/pay/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
BILL: Final = "/incoming-payments/"  # the path of incoming payments, whose URLs name no payee
AROUND: Final = "<>()[]\"'“”„‘’«».,;"  # characters often pasted along with an address
PAID_BEFORE: Final = 5
ALLOWED_CHANGE: Final = int(SLIPPAGE * 100)  # per cent, the slippage allowed for payments to other servers
LOOKED_AT: Final = 40  # the last payments searched for earlier payees


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's input: the payee, and the amount to debit (`send`) or to deliver (`receive`)."""

    to: str = ""
    amount: str = ""
    fixed: Literal["send", "receive"] = "send"
    note: str = ""


class KeptWish(Wish, frozen=True, kw_only=True):
    """The input as stored with the quote, and the payee that it resolved to: the name that the payee claims, and the
    wallet address. `address` is the URL of the bill if its wallet address cannot be trusted."""

    name: str | None
    address: str
    is_bill: bool

    @property
    def called(self) -> str:
        """The name, or else the address without its scheme, or the host of a bill."""
        url = visible_url(self.address)
        return self.name or (url.host if BILL in url.after else url.host + url.after)


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


class Price(msgspec.Struct, frozen=True):
    """A quote with the owner's input. `payment_id` is the payment made from it; `free` the wallet's free balance."""

    quote: QuoteRecord
    wish: KeptWish
    payment_id: str | None
    free: int


def typed_url(urls: Urls, text: str) -> str:
    """The URL of a typed wallet address, payment pointer, incoming payment or payment page, in any notation.

    Raises InvalidReceiver.
    """
    bare = "".join(visible_text(text).split()).strip(AROUND).removeprefix("$")
    host = bare.partition("/")[0]
    if bare and not set("/.:@") & set(bare):
        bare = urls.wallet(bare.lower())
    elif "://" not in bare:
        own, _, authority = urls.base.partition("://")
        scheme = own if host.lower() == authority or is_loopback(host.partition(":")[0]) else "https"
        bare = f"{scheme}://{bare}"
    url = canonical_url(bare)
    if url is None:
        raise unpayable("to", "it is no wallet address, and no payment pointer", "no_address")
    return url if urlsplit(url).path else f"{url}/{ROOT_WALLET_PATH}"


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
    payment = await remote.find_bill(bill)
    payee = Payee(name=None, address=bill, asset=payment.asset, bill=bill, remaining=payment.remaining)
    try:
        wallet = await remote.find_wallet(payment.wallet_address)
    except DomainError:
        return payee
    # Any server can claim that its payment goes to any wallet, so the wallet's own server must confirm it.
    if not bill.startswith(f"{canonical(wallet.resource_server)}/"):
        return payee
    return replace(payee, name=visible_name(wallet.public_name, wallet.id), address=wallet.id)


async def ask_price(
    call: Units, remote: RemoteQuotes, payer: WalletRecord, payee: Payee, wish: Wish, value: int | None
) -> str:
    """Creates a quote and returns its id; `value` is the amount in minor units, None for the rest of a bill.

    Raises InvalidReceiver, InvalidAmount, InsufficientFunds, Unavailable.
    """
    sends = wish.fixed == "send"
    debit = amount(value, payer.asset) if value is not None and sends else None
    receive = amount(value, payee.asset) if value is not None and not sends else None
    if value is not None and sends:
        await call.read(lambda work: check_funds(work, payer, value))
    offer = None
    if not payee.is_here:
        receiver = payee.bill
        if receiver is None:
            assert payee.wallet is not None, "a remote payee has a bill or a wallet"
            receiver = await remote.create_receiver(payee.wallet, wish.note)
        offer = await remote.offer_for_owner(payer, receiver, debit, receive)
    kept = KeptWish(**asdict(wish), name=payee.name, address=payee.address, is_bill=bool(payee.bill))
    unit = partial(_keep_price, payer=payer, payee=payee, wish=kept, debit=debit, receive=receive, offer=offer)
    return await call.write(unit)


def find_price(work: Work, wallet: WalletRecord, quote_id: str) -> Price:
    """A quote that the wallet's owner asked for. Raises NotFound."""
    quote = QUOTES.get(work, quote_id)
    if quote is None or quote.wallet_address_id != wallet.id or quote.wish is None:
        raise nothing_here()
    return Price(quote, kept_wish(quote.wish), payments.payment_of(work, quote_id), wallet_free_balance(work, wallet))


def wallet_free_balance(work: Work, wallet: WalletRecord) -> int:
    """The wallet's free balance, in minor units."""
    return ledger.free_balance(ACCOUNTS.by_id(work, wallet.account_id))


def confirm(work: Work, wallet: WalletRecord, quote_id: str) -> str:
    """Pays a quote and returns the payment's id; a second call returns the same payment.

    Raises NotFound, InvalidQuote, InvalidReceiver, InvalidAmount, InsufficientFunds.
    """
    price = find_price(work, wallet, quote_id)
    if price.payment_id is not None:
        return price.payment_id
    payer = active_wallet(work, work.urls.wallet(wallet.path))
    payment = pay_quote(work, payer, own_client(work), quote_id, described(price.wish.note))
    if payment.terms.incoming_payment_id is not None and not price.wish.is_bill:
        # It was created for this payment only.
        made = INCOMING.by_id(work, payment.terms.incoming_payment_id)
        complete(work, WALLETS.by_id(work, made.wallet_address_id), made)
    leaves = describe_amount(payment.terms.debit, payer.asset)
    server.record(work, "payment.send", payment.id, amount=leaves, to=price.wish.address)
    return payment.id


def paid_before(work: Work, wallet: WalletRecord) -> list[KeptWish]:
    """The last payees of the owner, without duplicates, latest first."""
    own = clients.find_client(work, canonical(work.urls.wallet(ROOT_WALLET_PATH)))
    wishes = [] if own is None else payments.last_wishes(work, own.id, wallet.id, LOOKED_AT)
    latest: dict[str, KeptWish] = {}
    for wish in map(kept_wish, wishes):
        if BILL not in wish.address:
            latest.setdefault(wish.address, wish)
    return [*latest.values()][:PAID_BEFORE]


def _payee_here(work: Work, payer: WalletRecord, url: str) -> Payee | None:
    """The local payee at a URL; None for another server's URL. Raises InvalidReceiver."""
    bill, wallet, remaining = None, None, None
    bill_id = work.urls.resource_id("incoming-payments", url) or work.urls.resource_id("pay", url)
    if bill_id is not None:
        receiver = open_receiver(work, work.urls.resource("incoming-payments", bill_id), "to")
        bill, wallet, remaining = receiver.url, receiver.wallet, receiver.payment.remaining
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
    return Payee(name=name, address=address, asset=wallet.asset, bill=bill, remaining=remaining, is_here=True)


def _keep_price(
    work: Work,
    payer: WalletRecord,
    payee: Payee,
    wish: KeptWish,
    debit: Amount | None,
    receive: Amount | None,
    offer: Offer | None,
) -> str:
    payer, client_id = active_wallet(work, work.urls.wallet(payer.path)), own_client(work)
    if offer is None and payee.bill is not None:
        offer = quote_rules.local_offer(work, payer, open_receiver(work, payee.bill, "to"), debit, receive)
    elif offer is None:
        wallet, until = active_wallet(work, payee.address, "to"), quote_rules.latest_expiry(work)
        receiver = unpaid(work, wallet, client_id, described(wish.note), until)
        offer = quote_rules.local_offer(work, payer, receiver, debit, receive)
        add(work, wallet, receiver.payment)
    check_movable(offer.terms)
    check_funds(work, payer, offer.terms.debit)
    return quote_rules.insert(work, payer, client_id, offer, msgspec.json.encode(wish).decode()).id


def kept_wish(text: str) -> KeptWish:
    """Decodes the input stored with a quote."""
    return msgspec.json.decode(text, type=KeptWish)
