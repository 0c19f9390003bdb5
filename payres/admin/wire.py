"""The structs of the operator's API, which are also what `payres --json` prints.

Amounts are decimal texts in units of their asset, times RFC 3339 in UTC.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from payres.wire import Body, Pagination, Resource

T = TypeVar("T")
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Decimal = Annotated[str, Meta(max_length=50, examples=["100.00"])]
Time = Annotated[str, Meta(max_length=64, examples=["2027-01-31T09:30:00Z"])]


class Page(Resource, Generic[T], frozen=True, kw_only=True):
    """A page of a list, newest first; its cursors lead to the pages beside it."""

    pagination: Pagination
    result: Sequence[T]


class ErrorDetails(Resource, frozen=True, kw_only=True):
    """`hint` says what to do. There may be more members; docs/errors.md has all."""

    hint: str


class Error(Resource, frozen=True, kw_only=True):
    code: str
    description: str
    details: ErrorDetails


class ErrorBody(Resource, frozen=True, kw_only=True):
    error: Error


class NewApiKey(Body, frozen=True, kw_only=True):
    name: Name
    scopes: Annotated[list[str], Meta(min_length=1)]
    expires_at: Time | None = None


class ApiKey(Resource, frozen=True, kw_only=True):
    id: str
    name: str
    scopes: list[str]
    state: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class CreatedApiKey(ApiKey, frozen=True, kw_only=True):
    """`key` is shown this once."""

    key: str


class AuditEntry(Resource, frozen=True, kw_only=True):
    id: str
    created_at: str
    actor: str
    action: str
    object: str
    details: dict[str, Any]


class Wallet(Resource, frozen=True, kw_only=True):
    """`reserved` is the part of the balance that payments in flight hold."""

    wallet_address: str
    path: str
    public_name: str | None
    asset_code: str
    asset_scale: int
    balance: str
    reserved: str
    state: str
    can_sign_in: bool
    created_at: str


class Movement(Resource, frozen=True, kw_only=True):
    """A deposit from the world outside, or a withdrawal to it."""

    id: str
    kind: str
    amount: str
    asset_code: str
    asset_scale: int
    reference: str | None
    created_at: str


class Fee(Resource, frozen=True, kw_only=True):
    """What sending costs: a fixed amount, and ten-thousandths of what is sent."""

    fixed: str
    basis_points: int


class Asset(Resource, frozen=True, kw_only=True):
    """`liquidity` and `fees` are what of the operator's money in the asset is free."""

    asset_code: str
    asset_scale: int
    fee: Fee
    liquidity: str
    fees: str


class Rate(Resource, frozen=True, kw_only=True):
    """One unit of `base` buys `rate` units of `counter`. What the rates service told ends, and is used until then."""

    base: str
    counter: str
    rate: str
    set_at: str
    source: Literal["operator", "service"]
    expires_at: str | UnsetType = UNSET
    expired: bool | UnsetType = UNSET


class RemovedRate(Resource, frozen=True, kw_only=True):
    base: str
    counter: str


class PacketSum(Resource, frozen=True, kw_only=True):
    packets: int
    amount: str


class Peer(Resource, frozen=True, kw_only=True):
    """A peer without its tokens. `balance` is what we owe it, below zero what it owes; `left` is what it can send."""

    name: str
    ilp_address: str
    routes: list[str]
    url: str
    asset_code: str
    asset_scale: int
    balance: str
    standing: str
    credit_limit: str
    left: str
    reserved: str
    in_flight: PacketSum
    in_doubt: PacketSum
    max_packet: int | None
    packets_received: int
    packets_sent: int
    repeats_answers: bool
    last_error: str | None
    last_error_at: str | None
    created_at: str


class UnresolvedPacket(Resource, frozen=True, kw_only=True):
    """A packet of unknown outcome; `amount` is what the peer would be owed."""

    id: str
    peer: str
    payment: str
    wallet: str
    amount: str
    asset_code: str
    asset_scale: int
    expired_at: str


class ResolvedPacket(UnresolvedPacket, frozen=True, kw_only=True):
    outcome: Literal["delivered", "returned"]


class Jwk(msgspec.Struct, frozen=True, kw_only=True):
    kid: str
    x: str
    alg: str = "EdDSA"
    kty: str = "OKP"
    crv: str = "Ed25519"


class WalletKey(Resource, frozen=True, kw_only=True):
    """A public key of a wallet; `name` is the operator's own for it."""

    wallet_address: str
    kid: str
    name: str | None
    jwk: Jwk
    created_at: str
    revoked_at: str | None


class NewMovement(Body, frozen=True, kw_only=True):
    """Under one reference an account has one movement, however often it is asked for."""

    amount: Decimal
    reference: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
