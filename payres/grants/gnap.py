"""The bodies of GNAP (RFC 9635): requests for grants and continuations, and their answers.

As in `payres.wire`, what may be left out is `UNSET` and never `null`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from payres.grants.access import Access
from payres.limits import MAX_ACCESS_ITEMS, MAX_NONCE_LENGTH
from payres.wire import Body, Text

Nonce = Annotated[str, Meta(min_length=1, max_length=MAX_NONCE_LENGTH)]


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


class Interact(msgspec.Struct, frozen=True):
    start: list[Literal["redirect"]]
    finish: Finish | UnsetType = UNSET


class SubjectIdentifier(msgspec.Struct, frozen=True):
    id: Text
    format: Literal["uri"]


class Subject(msgspec.Struct, frozen=True):
    sub_ids: Annotated[list[SubjectIdentifier], Meta(min_length=1, max_length=1)]


class GrantRequest(msgspec.Struct, frozen=True):
    client: str | ClientInstance
    access_token: AccessTokenRequest | UnsetType = UNSET
    interact: Interact | UnsetType = UNSET
    subject: Subject | UnsetType = UNSET


class ContinueRequest(msgspec.Struct, frozen=True):
    interact_ref: Nonce | UnsetType = UNSET


class AccessToken(msgspec.Struct, frozen=True):
    value: str
    manage: str
    expires_in: int
    access: Raw


class ContinueToken(msgspec.Struct, frozen=True):
    value: str


class Continue(msgspec.Struct, frozen=True):
    access_token: ContinueToken
    uri: str
    wait: int | UnsetType = UNSET


class InteractResponse(msgspec.Struct, frozen=True):
    redirect: str
    finish: str


class GrantResponse(msgspec.Struct, frozen=True):
    """An answer of the grant endpoint or a continuation (Specification 2.7); `continue` is always there."""

    continue_: Continue = msgspec.field(name="continue")
    interact: InteractResponse | UnsetType = UNSET
    access_token: AccessToken | UnsetType = UNSET
    subject: Subject | UnsetType = UNSET


class TokenResponse(msgspec.Struct, frozen=True):
    access_token: AccessToken
