"""The structs sent over HTTP, in the shapes of the Open Payments documents 1.3.0.

Optional members are `UNSET`, never `null`: clients reject `null` for an absent member. The bodies of GNAP are in
`gnap`, with the access items.
"""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from payres.core.protocol.amounts import MAX_LEDGER, Asset, describe_amount, parse_decimal, parse_value
from payres.core.protocol.errors import InvalidAmount, InvalidRequest
from payres.core.protocol.limits import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, MAX_URL_LENGTH

T = TypeVar("T")
MAX_ASSET_CODE_LENGTH: Final = 32
AssetCode = Annotated[str, Meta(min_length=1, max_length=MAX_ASSET_CODE_LENGTH)]
Scale = Annotated[int, Meta(ge=0, le=255)]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_URL_LENGTH)]
# The formats are for the OpenAPI documents alone; `openapi.documents` knows those of most members by their names.
URI = Meta(extra_json_schema={"format": "uri"})
Url = Annotated[str, URI]
UrlText = Annotated[Text, URI]
Metadata = Annotated[Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
Uint64 = Annotated[str, Meta(extra_json_schema={"format": "uint64", "pattern": "^[0-9]{1,20}$"})]

# An escaped half of a UTF-16 pair without its other half, after any other escapes.
UNPAIRED_SURROGATE = re.compile(
    rb"(?:[^\\]|\\[^u]|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|\\u(?![Dd][89A-Fa-f]))*+"
    rb"\\u[Dd][89A-Fa-f]",
    re.DOTALL,
)
# Whole strings, and brackets of objects and arrays between them.
BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)
# How msgspec names a member that is not in the path of its message.
BOUND = re.compile(r"Expected `(\w+)` (?:of length )?(<=|>=) (\d+)")
UNITS = {"str": " characters", "array": " of them"}  # of lengths; a number has none
MEMBER = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`", re.DOTALL)


class Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """Base of the Open Payments bodies, with members in camel case."""


class Body(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies of the resource server, which reject unknown members."""


class Amount(Resource, frozen=True, kw_only=True):
    """An amount (Specification 2.1). value is an unsigned 64-bit number as a decimal text."""

    value: Uint64
    asset_code: AssetCode
    asset_scale: Scale

    @property
    def asset(self) -> Asset:
        return Asset(self.asset_code, self.asset_scale)


# Requests of the resource server (Specification 4.3, 4.4, 4.7)


class IncomingPaymentRequest(Body, frozen=True, kw_only=True):
    wallet_address: Text | UnsetType = UNSET
    incoming_amount: Amount | UnsetType = UNSET
    expires_at: Text | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class QuoteRequest(Body, frozen=True, kw_only=True):
    wallet_address: Text
    receiver: UrlText
    method: Literal["ilp"]
    debit_amount: Amount | UnsetType = UNSET
    receive_amount: Amount | UnsetType = UNSET


class OutgoingPaymentRequest(Body, frozen=True, kw_only=True):
    wallet_address: Text
    quote_id: Text | UnsetType = UNSET
    incoming_payment: UrlText | UnsetType = UNSET
    debit_amount: Amount | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class CompletionRequest(msgspec.Struct, frozen=True):
    """Its members are ignored."""


# Resources (Specification 2). payres omits fewer optional members than other servers.


class PaymentMethod(Resource, frozen=True, kw_only=True):
    type: str
    ilp_address: str
    shared_secret: str


class WalletResource(Resource, frozen=True, kw_only=True):
    """A resource of a wallet address."""

    id: Url
    wallet_address: str


class IncomingPayment(WalletResource, frozen=True, kw_only=True):
    """`methods` is present in the answers to create and read, absent in lists and the answer to complete."""

    completed: bool
    incoming_amount: Amount | UnsetType = UNSET
    received_amount: Amount
    expires_at: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    created_at: str
    methods: list[PaymentMethod] | UnsetType = UNSET


class PublicIncomingPayment(Resource, frozen=True, kw_only=True):
    received_amount: Amount | UnsetType = UNSET
    auth_server: str


class Quote(WalletResource, frozen=True, kw_only=True):
    receiver: Url
    receive_amount: Amount
    debit_amount: Amount
    method: str = "ilp"
    expires_at: str | UnsetType = UNSET
    created_at: str


class OutgoingPayment(WalletResource, frozen=True, kw_only=True):
    """Only the answer to the creation includes the grant's spending."""

    quote_id: str | UnsetType = UNSET
    failed: bool | UnsetType = UNSET
    receiver: Url
    receive_amount: Amount
    debit_amount: Amount
    sent_amount: Amount
    grant_spent_debit_amount: Amount | UnsetType = UNSET
    grant_spent_receive_amount: Amount | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    created_at: str


class GrantSpending(Resource, frozen=True, kw_only=True):
    """Both members are always present; null means that nothing was spent or no window is open."""

    spent_debit_amount: Amount | None
    spent_receive_amount: Amount | None


class Pagination(Resource, frozen=True, kw_only=True):
    start_cursor: str | UnsetType = UNSET
    end_cursor: str | UnsetType = UNSET
    has_next_page: bool
    has_previous_page: bool


class Page(Resource, Generic[T], frozen=True, kw_only=True):
    """A page of a list, newest first, with cursors to the next and previous pages."""

    pagination: Pagination
    result: Sequence[T]


class List(Resource, Generic[T], frozen=True, kw_only=True):
    """A complete list, for resources that are never many."""

    result: Sequence[T]


class WalletAddress(Resource, frozen=True, kw_only=True):
    id: Url
    public_name: str | UnsetType = UNSET
    asset_code: str
    asset_scale: Scale
    auth_server: str
    resource_server: str


encode = msgspec.json.Encoder().encode


def decode(decoder: msgspec.json.Decoder[T], body: bytes, *, has_defaults: bool = False) -> T:
    """The struct in a body. `has_defaults` if an omitted member may become something other than UNSET.

    Raises InvalidRequest, with the field, for malformed JSON, and for wrong or repeated members.
    """
    if not body:
        raise InvalidRequest("There is no body: send a JSON object, {} if it has no members", field="body")
    try:
        asked = decoder.decode(body)
        # Without escapes and defaults there is a colon for each member: if the numbers agree, none is repeated.
        if has_defaults or b"\\" in body or body.count(b":") != encode(asked).count(b":"):
            member = repeated_member(body)
            if member is not None:  # ambiguous (RFC 7493 section 2.3)
                raise InvalidRequest(f"The body has {member} twice: send each member once", field=member)
    except msgspec.ValidationError as error:
        raise broken_rule(error, "body") from error
    except RecursionError as error:
        raise InvalidRequest("The body has too many objects and arrays inside each other", field="body") from error
    except ValueError as error:
        if UNPAIRED_SURROGATE.match(body):  # near the end, the decoder reports a truncated body
            says = "The body has an unpaired surrogate such as \\ud800, which stands for no character"
            raise InvalidRequest(f"{says}: send whole characters (RFC 7493 section 2.1)", field="body") from error
        raise InvalidRequest(f"The body is not valid JSON: {error}", field="body") from error
    return asked


def broken_rule(error: msgspec.ValidationError, name: str) -> InvalidRequest:
    """What is wrong with the value of this name, or with a member of it such as `incomingAmount.assetScale`, which
    `field` names."""
    sentence, _, path = str(error).partition(" - at `$")
    named, bound = MEMBER.fullmatch(sentence), BOUND.fullmatch(sentence)
    inside = ".".join(filter(None, (path.strip("`."), named[1] if named else "")))
    field = inside or name
    if bound is not None:
        unit = UNITS.get(bound[1], "")
        extent = f"{'at most' if bound[2] == '<=' else 'at least'} {bound[3]}{unit}"
        must = "not be empty" if extent.startswith("at least 1 ") else f"{'have' if unit else 'be'} {extent}"
        sentence = f"{field} must {must}"
    elif not inside:
        sentence = f"{name}: {sentence}"
    return InvalidRequest(f"The {name} breaks a rule: {sentence}" if inside else sentence, field=field)


def require_amount(text: str, asset: Asset, least: int = 1) -> int:
    """A decimal text such as "10.00" in the asset's minor unit.

    Raises InvalidAmount if it is not a number, below `least` or too large for the ledger.
    """
    try:
        amount = parse_decimal(text, asset, most=None)
    except ValueError as error:
        raise InvalidAmount(f"{text!r} is not an amount of {asset.code}: {error}") from error
    if not least <= amount <= MAX_LEDGER:
        low, high = (describe_amount(bound, asset) for bound in (least, MAX_LEDGER))
        raise InvalidAmount(f"{asset.code} {text} cannot be used: an amount lies from {low} to {high}")
    return amount


def value_in(amount: Amount, asset: Asset, field: str) -> int:
    """The value of a client's amount, which must be positive and in `asset`. Raises InvalidAmount."""
    try:
        value = parse_value(amount.value)
    except ValueError as error:
        raise InvalidAmount(f"{field}.value: {error}", field=f"{field}.value") from error
    if amount.asset != asset:
        raise InvalidAmount(
            f"{field} must be in {asset.code} with assetScale {asset.scale}",
            field=field,
            assetCode=asset.code,
            assetScale=asset.scale,
        )
    if value == 0:
        raise InvalidAmount(f"{field}.value must be above zero", field=f"{field}.value")
    return value


def metadata_text(raw: Raw | UnsetType) -> str | None:
    """The metadata object exactly as the client wrote it, or None if omitted.

    Raises InvalidRequest if it is not an object, too long or too deep. Its content is not parsed: JSON numbers have no
    bounds (RFC 8259 section 6).
    """
    if raw is UNSET:
        return None
    data = bytes(raw)
    if len(data) > MAX_METADATA_BYTES:
        sentence = f"metadata may have at most {MAX_METADATA_BYTES} bytes as it is written, and this has {len(data)}"
        raise InvalidRequest(sentence, field="metadata")
    if not _is_shallow(data):
        sentence = f"metadata may have at most {MAX_METADATA_DEPTH} objects and arrays inside each other"
        raise InvalidRequest(sentence, field="metadata")
    try:
        msgspec.json.decode(data, type=dict[str, Raw])
        return data.decode("utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("metadata must be a JSON object", field="metadata") from error


class _Repeated(msgspec.Struct, frozen=True):
    """Represents an object with two members of this name."""

    name: str


def repeated_member(body: bytes) -> str | None:
    """The path of a repeated member, such as `incomingAmount.value`; None if there is none outside `metadata`.

    Raises ValueError for invalid JSON, RecursionError if nested too deeply.
    """
    found: list[_Repeated] = []

    def members(pairs: Sequence[tuple[str, object]]) -> object:
        named = dict(pairs)
        if len(named) == len(pairs):
            return named
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                found.append(_Repeated(name))
                break
            seen.add(name)
        return found[-1]

    # Numbers stay texts, because those in metadata have no bounds.
    decoder = json.JSONDecoder(object_pairs_hook=members, parse_int=str, parse_float=str)
    whole = decoder.decode(body.decode("utf-8", "replace"))
    if not found:
        return None
    if isinstance(whole, dict):
        whole.pop("metadata", None)  # returned byte for byte, and read only by clients
    return _find(whole, "")


def _find(value: object, path: str) -> str | None:
    """The path of the first repeated member in a decoded value, which is itself at `path`."""
    if isinstance(value, _Repeated):
        return f"{path}.{value.name}".lstrip(".")
    if isinstance(value, dict):
        inner = (_find(member, f"{path}.{name}".lstrip(".")) for name, member in value.items())
    elif isinstance(value, list):
        inner = (_find(item, f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return None
    return next((found for found in inner if found is not None), None)


def _is_shallow(data: bytes) -> bool:
    """Whether JSON text is not nested too deeply. Brackets in strings do not count."""
    if data.count(b"{") + data.count(b"[") <= MAX_METADATA_DEPTH:
        return True  # the common case
    depth = 0
    for bracket in BRACKETS.finditer(data):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(bracket[0], 0)
        if depth > MAX_METADATA_DEPTH:
            return False
    return True
