"""Payments in both directions as operators see them, and the search for them."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Final

from msgspec import UNSET, Raw, UnsetType

from payres.core.protocol.errors import InvalidRequest, require
from payres.core.protocol.urls import pointed
from payres.core.protocol.visible import visible_name
from payres.core.protocol.wire import Metadata, Resource, Text, require_amount
from payres.core.store.accounts import ASSETS, AssetRecord
from payres.core.store.clients import CLIENTS
from payres.core.store.incoming_payments import payment_at
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.wallets import WALLETS, WalletRecord, find_wallet, require_wallet
from payres.core.store.work import Work
from payres.operator.declared.declarations import CommandLine, Listing, operation
from payres.operator.declared.inputs import DecimalText, Name, TimeText, naming, require_time, said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, decimals, represent
from payres.operator.store import all_payments
from payres.operator.store.all_payments import PAYMENTS, PaymentRecord, PaymentState, payee_of
from payres.operator.wallets import named_wallet
from payres.people.store import refunds
from payres.people.store.refunds import Direction
from payres.people.store.remote_bills import called

PaymentName = Annotated[str, said(typed=lambda work, text: text.rpartition("/")[2])]


class Payment(Resource, frozen=True, kw_only=True):
    """`amount` is what an incoming payment requests, null for any, or the most that an outgoing one may debit; `moved`
    is what was received or sent. `receiverWallet` is the path of the receiver's wallet, if that is here;
    `receiverName` and `receiverAddress` are as the server of the receiver gave them, where they are known. `refunded`
    was sent back or is held for that, or came back. `refundOf` is the id of the incoming payment that an outgoing one
    refunds to a wallet address; `grant` is an id too."""

    id: str
    direction: Direction
    state: PaymentState
    wallet: str
    wallet_name: str | None
    wallet_address: str
    client: str
    amount: str | None
    moved: str
    refunded: str
    asset_code: str
    asset_scale: int
    receiver: str | None
    receiver_wallet: str | None
    receiver_name: str | None
    receiver_address: str | None
    grant: str | None
    refund_of: str | None
    failure: str | None
    metadata: Metadata | None
    created_at: Time
    ended_at: Time | None
    expires_at: Time | None


def payment(work: Work, record: PaymentRecord) -> Payment:
    wallet = WALLETS.by_id(work, record.wallet_address_id)
    refunded = (refunds.sent_back if record.direction == "incoming" else refunds.came_back)(work, record.id)
    amount = None if record.amount is None else int(record.amount)
    _, here = (record.receiver and payment_at(work, record.receiver)) or (None, None)
    name, address = _payee(work, record, here)
    return represent(
        Payment,
        record,
        wallet,
        state=record.state_at(work.now),
        wallet=wallet.path,
        wallet_name=wallet.public_name,
        wallet_address=work.urls.wallet(wallet.path),
        client=CLIENTS.by_id(work, record.client_id).identity,
        **decimals(wallet.asset, amount=amount, moved=record.moved, refunded=refunded),
        receiver_wallet=here.path if here else None,
        receiver_name=name,
        receiver_address=address,
        refund_of=_refund_of(work, record),
        metadata=None if record.metadata is None else Raw(record.metadata.encode()),
    )


def require_payment(work: Work, id: str) -> PaymentRecord:
    """Raises NotFound."""
    return require(PAYMENTS.get(work, id), f"There is no payment {id}", "`payres payment list` shows all")


def _moved_of_all(one: Payment) -> Cell:
    """What was received or sent, and the full amount if that is more; the rest of a completed debit never left the
    wallet."""
    moved, wanted, back = (Cell(text or "0", "number").shown for text in (one.moved, one.amount, one.refunded))
    is_outgoing = one.direction == "outgoing"
    is_done = one.amount is None or (is_outgoing and one.state == "completed")
    is_all = is_done or Decimal(one.moved) >= Decimal(one.amount or 0)
    parts = moved if is_all else f"{moved} of {'at most ' if is_outgoing else ''}{wanted}"
    return Cell(f"{one.asset_code} {parts}{f', {back} refunded' if one.refunded.strip('0.') else ''}", "number")


def _what(one: Payment) -> str:
    """Who pays whom: `Alice pays Bob`, `Alice pays pay.example/frank`, or `Bob is paid`."""
    own = one.wallet_name or one.wallet
    if one.receiver is None:
        return f"{own} {'is paid' if one.moved.strip('0.') else 'asks to be paid'}"
    there = called(None, one.receiver_address or one.receiver)
    return f"{own} pays {one.receiver_name or one.receiver_wallet or there}"


def _with_amount(one: Payment) -> str:
    """The same with the amount that has moved, or is to move: `Alice pays Bob USD 7.50`."""
    amount = one.moved if one.moved.strip("0.") else one.amount
    return f"{_what(one)} {one.asset_code} {Cell(amount, 'number').shown}" if amount else _what(one)


PAYMENT: Final = Shape(
    payment,
    Column("Created (UTC)", "created_at", "time"),
    Column("Payment", "id", "code", section="payments"),
    Column("What", _what, listed="on pages", titles=True),
    Column("Direction", "direction", listed="in files"),
    Column("Wallet", "wallet", "long", section="wallets", listed="in files"),
    Column("Amount", _moved_of_all, "number", listed="on pages"),
    Column("Amount", "amount", "number", listed="in files"),
    Column("Moved", "moved", "number", listed="in files"),
    Column("Refunded", lambda one: one.refunded if one.refunded.strip("0.") else None, "number", listed="in files"),
    Column("Asset", "asset_code", listed="in files"),
    Column("State", "state", "state"),
    Column("Receiver", "receiver", "long", listed="in files"),
    Column("Failure", "failure", "long"),
    read=require_payment,
    page="/payments/{id}",
    name=_with_amount,
)


@operation(
    "GET /payments payments:read",
    PAYMENT,
    command=CommandLine("payment list", "--wallet alice --direction incoming --state completed"),
    listing=Listing(
        *("payments", "There are no such payments", "Payments"),
        about="5.00 of 20.00: so much has arrived or left so far.",
        narrowed="used",
        none_yet="No payment yet",
        menu="Payments",
    ),
)
def list_payments(
    work: Work,
    page: PageQuery,
    wallet: Annotated[Name | UnsetType, said("Only this wallet.", metavar="PATH", typed=named_wallet)] = UNSET,
    direction: Annotated[Direction | UnsetType, said("Only incoming, or outgoing.")] = UNSET,
    state: Annotated[PaymentState | UnsetType, said("Only in this state.")] = UNSET,
    from_: Annotated[TimeText | UnsetType, said("From this day, or this day and time (UTC), on.")] = UNSET,
    to: Annotated[TimeText | UnsetType, said("Before this day, or this day and time (UTC).")] = UNSET,
    counterpart: Annotated[
        Text | UnsetType, said("Payer or receiver: a name here, or an address elsewhere.", metavar="WHO")
    ] = UNSET,
    min_: Annotated[DecimalText | UnsetType, said("Received or sent at least this; name a wallet too.")] = UNSET,
    max_: Annotated[DecimalText | UnsetType, said("Received or sent at most this; name a wallet too.")] = UNSET,
    reason: Annotated[Name | UnsetType, said("Failed with this text in the reason.")] = UNSET,
    grant: Annotated[Name | UnsetType, said("Only those that this grant paid.", metavar="ID")] = UNSET,
    used: Annotated[bool, said("None without an amount that received nothing: a price that was looked at.")] = False,
) -> tuple[Sequence[PaymentRecord], PageBounds]:
    """List payments, newest first.

    `counterpart` is a wallet here, by path or address, or the beginning of the address of one elsewhere, or of the URL
    of its bill; `reason` is a part of the failure. `min` and `max` bound what was received or sent; they are in the
    asset of the wallet, which they need.
    """
    owner = require_wallet(work, wallet) if wallet else None
    asset = None if owner is None else ASSETS.by_id(work, owner.asset_id)
    return all_payments.page_of_payments(
        work,
        page,
        work.now,
        wallet_id=None if owner is None else owner.id,
        direction=direction or None,
        state=state or None,
        since=require_time(from_, "from") if from_ else None,
        until=require_time(to, "to") if to else None,
        counterpart=_counterpart(work, counterpart) if counterpart else None,
        least=_amount(min_, asset, "min"),
        most=_amount(max_, asset, "max"),
        failure=reason or None,
        grant_id=grant or None,
        used=used or None,
    )


def _payee(work: Work, record: PaymentRecord, here: WalletRecord | None) -> tuple[str | None, str | None]:
    """The name and the wallet address of the receiver of an outgoing payment, where they are known."""
    if here is not None:
        return here.public_name, work.urls.wallet(here.path)
    name, address, _ = (record.receiver and payee_of(work, record)) or ("", "", "")
    return visible_name(name, address), address or None


def _refund_of(work: Work, record: PaymentRecord) -> str | None:
    """Payments of clients have a grant, so only the server's own are looked up."""
    if record.direction == "incoming" or record.grant_id is not None:
        return None
    found = refunds.REFUNDS.find(work, return_payment_id=record.id)
    return None if found is None else found.incoming_payment_id


def _amount(text: str | UnsetType, asset: AssetRecord | None, field: str) -> int | None:
    if not text:
        return None
    if asset is None:
        raise InvalidRequest("Name a wallet too: amounts are in its currency", field=field)
    with naming(field):
        return require_amount(text, asset.asset, least=0)


def _counterpart(work: Work, text: str) -> int | str:
    text = str(pointed(text))
    if "://" not in text and "." in text.partition("/")[0] and find_wallet(work, text) is None:
        text = f"https://{text}"
    path = work.urls.wallet_path(text) if "://" in text else text
    with naming("counterpart"):
        return text if path is None else require_wallet(work, path).id
