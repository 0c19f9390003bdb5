"""Resources as the client gives them: those of the wire, with times as datetimes and metadata as plain objects."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from payres.client.methods import checked
from payres.core.protocol import gnap, wire
from payres.core.protocol.amounts import Asset, format_decimal, parse_decimal
from payres.core.protocol.wire import Amount, WalletAddress

T = TypeVar("T")
Time = Annotated[datetime, Meta(tz=True)]


class IncomingPayment(wire.IncomingPayment, frozen=True, kw_only=True):
    """`methods` is present in the answers to create and read, absent in lists and the answer to complete."""

    expires_at: Time | UnsetType = UNSET  # type: ignore[assignment]
    metadata: dict[str, Any] | UnsetType = UNSET  # type: ignore[assignment]
    created_at: Time  # type: ignore[assignment]


class Quote(wire.Quote, frozen=True, kw_only=True):
    """`debit_amount` would leave the payer, `receive_amount` would arrive."""

    expires_at: Time | UnsetType = UNSET  # type: ignore[assignment]
    created_at: Time  # type: ignore[assignment]


class OutgoingPayment(wire.OutgoingPayment, frozen=True, kw_only=True):
    """Only the answer to the creation includes the grant's spending."""

    metadata: dict[str, Any] | UnsetType = UNSET  # type: ignore[assignment]
    created_at: Time  # type: ignore[assignment]


class AccessToken(gnap.AccessToken, frozen=True, kw_only=True):
    """`expires_in` is in seconds."""

    access: list[dict[str, Any]]  # type: ignore[assignment]

    __repr__ = gnap.AccessToken.__repr__


class TokenResponse(gnap.TokenResponse, frozen=True):
    access_token: AccessToken


class GrantResponse(gnap.GrantResponse, frozen=True):
    access_token: AccessToken | UnsetType = UNSET


def decode(body: bytes, kind: type[T]) -> T:
    """The struct in a body. Raises ValueError, RecursionError.

    A number in somebody's metadata may be of any size (RFC 8259 section 6); one that no float can have is infinite.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(json.loads(body, parse_int=_whole), kind)


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 4300 else float(digits)  # Python converts no longer ones


def money(text: str | int | Decimal, wallet: WalletAddress | Asset) -> Amount:
    """An Amount in the wallet's asset: `money("5.00", wallet)`. Raises ValueError, and TypeError for floats."""
    if isinstance(text, bool) or not isinstance(text, str | int | Decimal):
        raise TypeError(f'write the amount as text, such as "5.00": a {type(text).__name__} is not exact')
    if not isinstance(wallet, WalletAddress | Asset):
        raise TypeError(f"give the WalletAddress whose asset it is, not a {type(wallet).__name__}")
    asset = wallet if isinstance(wallet, Asset) else Asset(wallet.asset_code, wallet.asset_scale)
    written = f"{text:f}" if isinstance(text, Decimal) else str(text)
    return Amount(value=str(parse_decimal(written, asset)), asset_code=asset.code, asset_scale=asset.scale)


@checked
def decimal(amount: Amount) -> Decimal:
    """An amount in major units: `Decimal("5.00")`. In minor units it is `int(amount.value)`."""
    return Decimal(format_decimal(int(amount.value), amount.asset))
