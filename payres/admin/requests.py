"""What the operator's API takes: bodies, and the parameters in queries.

Amounts are decimal texts in units of their asset, times RFC 3339. What a rule of `payres.operator` takes whole, such as
NewPeer, is beside the rule.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from payres.admin.wire import DeliveryState
from payres.amounts import MAX_LEDGER
from payres.limits import MAX_PASSWORD_LENGTH, MAX_WAIT_SECONDS, MIN_PASSWORD_LENGTH
from payres.operator.exports import Format
from payres.operator.inputs import Code, DecimalText, Name, Query, Reference, TimeText
from payres.signatures.jwk import JWK
from payres.store.grants import State
from payres.wire import Body, Scale, Text


class NewApiKey(Body, frozen=True, kw_only=True):
    name: Name
    scopes: Annotated[list[str], Meta(min_length=1)]
    expires_at: TimeText | None = None


class GrantQuery(Query, frozen=True, kw_only=True):
    state: State | UnsetType = UNSET


class NewDecision(Body, frozen=True, kw_only=True):
    approve: bool


class NewMovement(Body, frozen=True, kw_only=True):
    """Under one reference an account has one movement, however often it is asked for."""

    amount: DecimalText
    reference: Reference | None = None


class NewWallet(Body, frozen=True, kw_only=True):
    """`path` is what follows the base URL. The owner's password is set by itself."""

    path: Name
    asset_code: Code
    asset_scale: Scale
    public_name: Name | None = None


class WalletChange(Body, frozen=True, kw_only=True):
    """What is left out stays; a public name of null is taken away."""

    public_name: Name | UnsetType | None = UNSET
    state: Literal["active", "inactive"] | UnsetType = UNSET


class NewPassword(Body, frozen=True, kw_only=True):
    password: Annotated[str, Meta(min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)]
    forget_browsers: bool = False

    def __repr__(self) -> str:
        return "NewPassword(...)"


class NewWalletKey(Body, frozen=True, kw_only=True):
    jwk: JWK
    name: Name | None = None


class KeyQuery(Query, frozen=True, kw_only=True):
    revoked: bool = False


class NewOutcome(Body, frozen=True, kw_only=True):
    outcome: Literal["delivered", "returned"]


class LedgerQuery(Query, frozen=True, kw_only=True):
    """`payment` is an id; `account` is as an entry names it: `wallet alice`, `peer second` or `liquidity USD 2`."""

    payment: Name | UnsetType = UNSET
    account: Annotated[str, Meta(max_length=300)] | UnsetType = UNSET


class PeriodQuery(Query, frozen=True, kw_only=True):
    """A period from a day or a time until just before another, and the form of the file."""

    from_: TimeText | UnsetType = msgspec.field(name="from", default=UNSET)
    to: TimeText | UnsetType = UNSET
    format: Format = "csv"


class ExportQuery(PeriodQuery, frozen=True, kw_only=True):
    wallet: Name | UnsetType = UNSET


class Nothing(Body, frozen=True, kw_only=True):
    """There is nothing to say."""


class NewRefund(Body, frozen=True, kw_only=True):
    """All that is left when there is no amount. What wallets here paid goes back to them, a refund for each payment.
    What came from another server goes `to` a wallet address, and is `sending` until it has arrived there. What has the
    reference already is not done again."""

    reference: Reference
    amount: DecimalText | None = None
    to: Text | None = None


class EventQuery(Query, frozen=True, kw_only=True):
    """`after` is the sequence of the last event that is known, `wait` so many seconds."""

    after: Annotated[int, Meta(ge=0, le=MAX_LEDGER)] = 0
    wait: Annotated[int, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0


class NewWebhook(Body, frozen=True, kw_only=True):
    """All events unless some are named, such as `incoming_payment.*`. `private` lets it be in your own network."""

    url: Text
    events: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()
    private: bool = False


class DeliveryQuery(Query, frozen=True, kw_only=True):
    webhook: Name | UnsetType = UNSET
    state: DeliveryState | UnsetType = UNSET


class NewReplay(Body, frozen=True, kw_only=True):
    """An event by its id, or all that has `failed`, of which `since` takes those last tried at that time or later."""

    event: Name | None = None
    webhook: Name | None = None
    failed: bool = False
    since: TimeText | None = None
