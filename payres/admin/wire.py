"""What the operator's API answers, which is also what `payres --json` prints.

Amounts are decimal texts in units of their asset, times RFC 3339 in UTC.
"""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from payres.store.grants import State
from payres.store.payments import Direction, RefundState
from payres.store.payments import State as PaymentState
from payres.wire import Resource

T = TypeVar("T")
DeliveryState = Literal["pending", "failed", "delivered"]


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
    unresolved: PacketSum = msgspec.field(name="inDoubt")  # its name on the wire stays
    max_packet: int | None
    packets_received: int
    packets_sent: int
    repeats_answers: bool
    last_error: str | None
    last_error_at: str | None
    created_at: str


class UnresolvedPacket(Resource, frozen=True, kw_only=True):
    """An unresolved packet; `amount` is what the peer would be owed."""

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


class PublicKey(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON Web Key (RFC 8037)."""

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
    jwk: PublicKey
    created_at: str
    revoked_at: str | None


class Consent(Resource, frozen=True, kw_only=True):
    """`redirect` is where the client sends its user, `finish` where the user goes afterwards."""

    redirect: str
    finish: str | None
    expires_at: str
    decided_at: str | None


class GrantSpending(Resource, frozen=True, kw_only=True):
    """What was spent in the window that is open now, and what the limits leave; null where there is no limit."""

    debit: str
    debit_left: str | None
    debit_asset_code: str
    debit_asset_scale: int
    receive: str | None
    receive_left: str | None
    receive_asset_code: str | None
    receive_asset_scale: int | None


class Grant(Resource, frozen=True, kw_only=True):
    """`access` and `subject` are as granted. `spending` is null for a grant that pays nothing, or not now."""

    id: str
    state: State
    client: str
    client_name: str | None
    wallet_address: str | None
    access: list[dict[str, Any]]
    subject: dict[str, Any] | None
    interaction: Consent | None
    spending: GrantSpending | None
    created_at: str
    ended_at: str | None


class GrantDecision(Resource, frozen=True, kw_only=True):
    """`redirect` is where the owner's browser would go next, which informs the client; null where it gave no URL."""

    grant: Grant
    redirect: str | None


class InvariantCheck(Resource, frozen=True, kw_only=True):
    name: str
    claim: str
    holds: bool
    examined: int
    breaches: list[str]


class LedgerCheck(Resource, frozen=True, kw_only=True):
    """`broken` names the first invariant that does not hold."""

    ok: bool
    broken: str | None
    checks: list[InvariantCheck]


class LedgerEntry(Resource, frozen=True, kw_only=True):
    """A transfer between two accounts of one asset, each a kind such as `wallet` and, of those, whose."""

    id: str
    kind: str
    amount: str
    asset_code: str
    asset_scale: int
    debit: str
    credit: str
    outgoing_payment: str | None
    incoming_payment: str | None
    packet: str | None
    refund: str | None
    created_at: str


class Backup(Resource, frozen=True, kw_only=True):
    database: str
    backup: str
    version: int
    bytes: int


class Payment(Resource, frozen=True, kw_only=True):
    """`amount` is what an incoming payment wants, null for any, or what an outgoing one may debit; `moved` is what was
    received, or sent. `refunded` left the wallet again or is about to, or came back to it. `refundOf` is the incoming
    payment of which an outgoing one sends a refund to a wallet address. Both that and `grant` are ids."""

    id: str
    direction: Direction
    state: PaymentState
    wallet: str
    wallet_address: str
    client: str
    amount: str | None
    moved: str
    refunded: str
    asset_code: str
    asset_scale: int
    receiver: str | None
    grant: str | None
    refund_of: str | None
    failure: str | None
    metadata: Raw | None
    created_at: str
    ended_at: str | None
    expires_at: str | None


class Money(Resource, frozen=True, kw_only=True):
    amount: str
    asset_code: str
    asset_scale: int


class PaymentQuote(Resource, frozen=True, kw_only=True):
    id: str
    debit: Money
    fee: Money
    receive: Money
    created_at: str
    expires_at: str


class Packet(Resource, frozen=True, kw_only=True):
    """A packet to a peer. `source_amount` is in the smallest unit of the payer, `amount` in that of the link."""

    id: str
    state: str
    peer: str
    source_amount: str
    amount: str
    expires_at: str


class Refund(Resource, frozen=True, kw_only=True):
    """`amount` leaves the wallet of the receiver, `returned` has come back, each in its own asset. It is that of
    `outgoingPayment`, whose payer has it back, or is sent by `returnPayment` to the wallet address `to`; `sent` has
    left the receiver's wallet for good, or is held there while the state is `sending`."""

    id: str
    incoming_payment: str
    outgoing_payment: str | None
    return_payment: str | None
    receiver: str
    payer: str | None
    to: str | None
    state: RefundState
    failure: str | None
    amount: str
    sent: str
    asset_code: str
    returned: str
    returned_asset_code: str
    reference: str
    created_at: str


class WebhookView(Resource, frozen=True, kw_only=True):
    """`secret` is only present when it is new. `behind` counts those of the next thousand events that it wants."""

    id: str
    url: str
    events: list[str]
    private: bool
    state: str
    created_at: str
    behind: int
    last_attempt_at: str | None
    last_status: int | None
    last_error: str | None
    secret: str | UnsetType = UNSET


class EventDelivery(Resource, frozen=True, kw_only=True):
    """What became of an event at a webhook. `attempts` counts from the last replay on."""

    webhook: str
    state: str
    attempts: int
    next_attempt_at: str | None
    last_attempt_at: str | None
    last_status: int | None
    last_error: str | None


class DeliveryView(EventDelivery, frozen=True, kw_only=True):
    """A delivery with the event that it is of."""

    event: str
    type: str


class WebhookTest(Resource, frozen=True, kw_only=True):
    """`status` is what the endpoint answered, `error` why that is no success; null where it is one."""

    event: str
    webhook: str
    status: int | None
    error: str | None


class Replayed(Resource, frozen=True, kw_only=True):
    """How many deliveries are due again."""

    deliveries: int
