"""The bodies of GNAP (RFC 9635): grant requests with their access items, continuations, and their answers.

As in `payres.core.protocol.wire`, optional members are `UNSET`, never `null`. The client uses these structs too.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from payres.core.protocol.limits import (
    MAX_ACCESS_ITEMS,
    MAX_INTERVAL_LENGTH,
    MAX_NONCE_LENGTH,
    MAX_START_MODE_LENGTH,
    MAX_START_MODES,
)
from payres.core.protocol.wire import Amount, Body, Resource, Text, Url, UrlText

Nonce = Annotated[str, Meta(min_length=1, max_length=MAX_NONCE_LENGTH)]
AccessType = Literal["incoming-payment", "outgoing-payment", "quote"]
# The actions of each type of access item (Specification 2.7). A new one is also an Action of `grants.access`, or
# the -all form of one, and needs its words in `visible`; tests compare them.
INCOMING_ACTIONS = Literal["create", "complete", "read", "read-all", "list", "list-all"]
OUTGOING_ACTIONS = Literal["create", "read", "read-all", "list", "list-all"]
QUOTE_ACTIONS = Literal["create", "read", "read-all"]
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "incoming-payment": get_args(INCOMING_ACTIONS),
    "outgoing-payment": get_args(OUTGOING_ACTIONS),
    "quote": get_args(QUOTE_ACTIONS),
}


class Limits(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much an outgoing-payment grant may spend, to whom and in which windows. Specification 2.7.

    An unknown limit is an error: ignoring it would grant more than was requested.
    """

    receiver: UrlText | UnsetType = UNSET
    debit_amount: Amount | UnsetType = UNSET
    receive_amount: Amount | UnsetType = UNSET
    interval: Annotated[str, Meta(min_length=1, max_length=MAX_INTERVAL_LENGTH)] | UnsetType = UNSET


class IncomingPaymentAccess(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="incoming-payment"):
    actions: Annotated[list[INCOMING_ACTIONS], Meta(min_length=1, max_length=len(get_args(INCOMING_ACTIONS)))]
    identifier: Text | UnsetType = UNSET


class OutgoingPaymentAccess(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="outgoing-payment", forbid_unknown_fields=True
):
    """Unknown members are errors: a misspelt `limits` would otherwise request access without limits."""

    actions: Annotated[list[OUTGOING_ACTIONS], Meta(min_length=1, max_length=len(get_args(OUTGOING_ACTIONS)))]
    identifier: Text
    limits: Limits | UnsetType = UNSET


class QuoteAccess(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="quote"):
    actions: Annotated[list[QUOTE_ACTIONS], Meta(min_length=1, max_length=len(get_args(QUOTE_ACTIONS)))]
    identifier: Text | UnsetType = UNSET


Access = IncomingPaymentAccess | OutgoingPaymentAccess | QuoteAccess


class AccessTokenRequest(msgspec.Struct, frozen=True):
    access: Annotated[list[Access], Meta(min_length=1, max_length=MAX_ACCESS_ITEMS)]


class ClientInstance(Body, frozen=True, kw_only=True):
    """The object form of `client`: exactly one member."""

    wallet_address: Text | UnsetType = UNSET
    jwk: Any = UNSET


class Finish(msgspec.Struct, frozen=True):
    """How the client learns of the decision (RFC 9635 section 2.5.2); sha-256 is also the default of hash_method."""

    method: Literal["redirect"]
    uri: Text
    nonce: Nonce
    hash_method: Literal["sha-256"] | UnsetType = UNSET


# Those other than "redirect" are ignored: the list says what the client can do (RFC 9635 section 2.5.1).
StartMode = (
    Annotated[str, Meta(max_length=MAX_START_MODE_LENGTH)] | Annotated[dict[str, Raw], Meta(max_length=MAX_START_MODES)]
)


class Interact(msgspec.Struct, frozen=True):
    start: Annotated[list[StartMode], Meta(max_length=MAX_START_MODES)]
    finish: Finish | UnsetType = UNSET


class SubjectIdentifier(msgspec.Struct, frozen=True):
    id: UrlText
    format: Literal["uri"]


class Subject(msgspec.Struct, frozen=True):
    sub_ids: Annotated[list[SubjectIdentifier], Meta(min_length=1, max_length=1)]


class GrantRequest(msgspec.Struct, frozen=True):
    client: Url | ClientInstance
    access_token: AccessTokenRequest | UnsetType = UNSET
    interact: Interact | UnsetType = UNSET
    subject: Subject | UnsetType = UNSET


class ContinueRequest(msgspec.Struct, frozen=True):
    interact_ref: Nonce | UnsetType = UNSET


# Tokens as they are read from any server: what fits into a header. Without the end, `$` would allow a line feed.
Token = Annotated[str, Meta(pattern=r"^[!-~]{1,4096}$(?!\n)")]


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    value: Token
    manage: str
    expires_in: int | UnsetType = UNSET
    access: Raw

    def __repr__(self) -> str:
        return f"<AccessToken ...{self.value[-4:]}>"


class ContinueToken(msgspec.Struct, frozen=True):
    value: Token


class Continue(msgspec.Struct, frozen=True):
    access_token: ContinueToken
    uri: str
    wait: int | UnsetType = UNSET


class InteractResponse(msgspec.Struct, frozen=True):
    redirect: str
    finish: str


class GrantResponse(msgspec.Struct, frozen=True):
    """An answer of the grant endpoint or to a continuation (Specification 2.7); `continue` is always present."""

    continue_: Continue = msgspec.field(name="continue")
    interact: InteractResponse | UnsetType = UNSET
    access_token: AccessToken | UnsetType = UNSET
    subject: Subject | UnsetType = UNSET


class TokenResponse(msgspec.Struct, frozen=True):
    access_token: AccessToken


def interaction_hash(client_nonce: str, server_nonce: str, reference: str, grant_endpoint: str) -> str:
    """The hash of RFC 9635 section 4.2.3, in standard base64 with padding, as all existing clients compute it."""
    text = "\n".join((client_nonce, server_nonce, reference, grant_endpoint))
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
