"""API keys: which programs may use the operator's API, and with which scopes.

A key is `payres_<id>_<secret>`. The id is public. The secret has 256 random bits, and only its SHA-256 is stored.
"""

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Final

from msgspec.structs import asdict

from payres.core.protocol.clock import MINUTE, format_time
from payres.core.protocol.errors import InsufficientAccess, InvalidRequest, TokenInvalid, require
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.wire import Resource
from payres.core.store import audit
from payres.core.store.rows import PageBounds, PageQuery, select_page
from payres.core.store.work import Work
from payres.operator.declared.declarations import FOR_GOOD, CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import Name, TimeText, check_name, require_time, said
from payres.operator.declared.shapes import Column, Shape, Time, fact, represent
from payres.operator.store.api_keys import API_KEYS, ApiKeyRecord

# The scopes of keys; each endpoint needs one of them.
SCOPES: Final[Mapping[str, str]] = {
    "wallets:read": "see wallets, their balances, keys, deposits and withdrawals",
    "wallets:write": "all that wallets:access does; open, rename, deactivate and separate wallets, set passwords, add"
    " and revoke keys of clients",
    "wallets:access": "help owners to sign in: make password links, unlock, sign out; remove the second step on pages",
    "wallets:fund": "deposit into wallets and withdraw from them",
    "payments:read": "see payments with their grants, quotes, transfers, packets, events and deliveries",
    "payments:refund": "send back what incoming payments received",
    "grants:read": "see grants and what they have spent",
    "grants:write": "approve, deny and revoke grants in the owner's name",
    "assets:read": "see assets, fees and exchange rates",
    "assets:write": "set fees and exchange rates",
    "liquidity:read": "see liquidity and collected fees",
    "liquidity:write": "deposit and withdraw liquidity, withdraw collected fees",
    "peers:read": "see peers and unresolved packets",
    "peers:write": "add, change and remove peers, record settlements, resolve packets",
    "webhooks:read": "see webhooks and their deliveries",
    "webhooks:write": "test, pause, rotate, remove webhooks; with events:read, add and change them, replay deliveries",
    "webhooks:private": "add webhooks on this machine or in its network",
    "events:read": "read events",
    "due:retry": "try again what waits",
    "due:write": "all that due:retry does; give up what waits, and send test mails",
    "status:read": "see the state of the server and its money",
    "ledger:read": "read ledger entries and run the invariant checks",
    "backup:write": "make backups in the backup directory, and list them",
    "keys:read": "see API keys",
    "keys:write": "create API keys with no more scopes than one's own that end no later, and revoke any",
    "audit:read": "read the audit log",
}
PREFIX: Final = "payres"
# The use of a key is stored at most this often.
USE_NOTED_EVERY: Final = MINUTE

Scopes = Annotated[
    Sequence[str],
    said(
        "What the key is for, such as payments:read.", option="--scope", metavar="SCOPE", choices=SCOPES, min_length=1
    ),
]
KeyId = Annotated[str, said("The one in the list, or the part of the key between its underscores.")]
Expiry = Annotated[TimeText, said("When it ends, such as 2027-01-31; never by default.", option="--expires")]
KeepMade = Annotated[bool, said("Keep the keys that were created with it.")]
NONE: Final = "There are no API keys yet"


class ApiKey(Resource, frozen=True, kw_only=True):
    id: str
    name: str
    scopes: list[str]
    state: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None
    made_by: str | None


class CreatedApiKey(ApiKey, frozen=True, kw_only=True):
    """`key` is shown this once."""

    key: str


def api_key(work: Work, record: ApiKeyRecord) -> ApiKey:
    is_over = record.expires_at is not None and work.now >= record.expires_at
    state = "revoked" if record.revoked_at is not None else "expired" if is_over else "valid"
    return represent(ApiKey, record, scopes=list(record.scopes), state=state)


def require_api_key(work: Work, id: str) -> ApiKeyRecord:
    """Raises NotFound."""
    return require(API_KEYS.get(work, id), f"There is no API key {id}", "`payres api-key list` shows all")


API_KEY: Final = Shape(
    api_key,
    Column("Key", "id", "code", section="api-keys"),
    Column("Name", "name", "long", titles=True),
    Column("Scopes", "scopes", "code"),
    fact("It may", lambda one: "; ".join(map(SCOPES.__getitem__, one.scopes))),
    Column("State", "state", "state"),
    Column("Created (UTC)", "created_at", "time"),
    Column("Expires (UTC)", "expires_at", "time"),
    Column("Revoked (UTC)", "revoked_at", "time"),
    Column("Last used (UTC)", "last_used_at", "time"),
    Column("Made by", "made_by", "code", section="api-keys"),
    read=require_api_key,
    page="/api-keys/{id}",
    name=lambda one: one.name,
)
CREATED: Final = Shape(None, *API_KEY.columns, fact("Key", "key", "secret"), page=API_KEY.page, name=API_KEY.name)


@operation(
    "GET /api-keys keys:read",
    API_KEY,
    command=CommandLine("api-key list", sorts=""),
    listing=Listing(
        *("apiKeys", "There are no API keys yet", "API keys"),
        menu="Programs",
        advice="`payres api-key create` makes one",
    ),
)
def page_of_api_keys(work: Work, page: PageQuery) -> tuple[Sequence[ApiKeyRecord], PageBounds]:
    """List API keys, newest first.

    With their scopes and their last use.
    """
    return select_page(work, API_KEYS, page)


@operation(
    "POST /api-keys keys:write",
    CREATED,
    command=CommandLine("api-key create NAME", '"Order book" --scope payments:read --scope wallets:read', text="{key}"),
    form=OperationForm(
        "Make the key",
        title="New API key",
        lists="/api-keys",
        will="The key is shown once. Let it do no more than its program needs.",
    ),
    shows_secret=True,
)
def create_api_key(work: Work, name: Name, scopes: Scopes, expires_at: Expiry | None = None) -> CreatedApiKey:
    """Create an API key, which is shown only here.

    One that a program creates has no more scopes than the program's own key, and expires no later. It ends when that is
    revoked, unless the keys that were made with it are kept.
    """
    maker = key_of_actor(work)
    check_name(name, "key's")
    unknown = sorted(set(scopes) - SCOPES.keys())
    if unknown:
        raise InvalidRequest(f"There is no scope {unknown[0]!r}; the scopes are: {', '.join(SCOPES)}", field="scopes")
    lacking = sorted(set(scopes) - set(maker.scopes)) if maker else []
    if lacking:
        sentence = f"A key cannot give the scope {lacking[0]}, which it does not have itself"
        raise InsufficientAccess(sentence, reason="scope", scope=lacking[0])
    last = maker.expires_at if maker else None
    ends_at = last if expires_at is None else require_time(expires_at, "expiresAt")
    if ends_at is not None and ends_at <= work.now:
        raise InvalidRequest("The time at which a key expires must be in the future", field="expiresAt")
    if last is not None and ends_at is not None and ends_at > last:
        sentence = f"The creating key expires at {format_time(last)}, and the new one cannot expire later"
        raise InvalidRequest(sentence, field="expiresAt")
    secret, ordered = work.new_secret(), [scope for scope in SCOPES if scope in scopes]
    made_by = maker.id if maker else None
    key = ApiKeyRecord(work.new_id(), name, hash_secret(secret), ordered, work.now, ends_at, made_by=made_by)
    API_KEYS.insert(work, key)
    audit.record(work, "api_key.create", key.id, name=name, scopes=ordered)
    return CreatedApiKey(**asdict(api_key(work, key)), key=f"{PREFIX}_{key.id}_{secret}")


@operation(
    "DELETE /api-keys/{id} keys:write",
    API_KEY,
    command=CommandLine("api-key revoke ID"),
    form=OperationForm(
        "Revoke the key",
        API_KEY,
        done="The key {name} is revoked",
        is_over=lambda key: key.revoked_at,
        because=FOR_GOOD,
        ends=True,
    ),
)
def revoke_api_key(work: Work, id: KeyId, keep_made: KeepMade = False) -> ApiKeyRecord:
    """Revoke a key, and the keys that programs created with it. Requests with them are refused from now on."""
    keys = [require_api_key(work, id)]
    for key in keys:
        if key.revoked_at is None:
            API_KEYS.update(work, key.id, revoked_at=work.now)
            audit.record(work, "api_key.revoke", key.id)
        if not keep_made:
            keys += API_KEYS.list(work, made_by=key.id)  # the loop reaches them too
    return require_api_key(work, id)


def authenticate(work: Work, text: str) -> ApiKeyRecord:
    """The key with this text. Raises TokenInvalid."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    key = API_KEYS.get(work, key_id) if prefix == PREFIX else None
    if key is None or not hmac.compare_digest(key.secret_hash, hash_secret(secret)):
        raise TokenInvalid("The API key is unknown; create one", reason="unknown_token")
    if key.revoked_at is not None:
        raise TokenInvalid("The API key was revoked; create another", reason="revoked_token")
    if key.expires_at is not None and work.now >= key.expires_at:
        raise TokenInvalid("The API key has expired; create another", reason="expired_token")
    return key


def key_of_actor(work: Work) -> ApiKeyRecord | None:
    """The key of the program that acts; None for an operator."""
    kind, _, id = work.actor.partition(":")
    return API_KEYS.get(work, id) if kind == "api" else None


def first_lacking(needed: Iterable[str], held: Collection[str]) -> str | None:
    """The first of the needed scopes, or of the sets of which one is needed, that is not among those held."""
    return next((one for one in needed if not {*one.split("|")} & {*held}), None)


def require_scopes(key: ApiKeyRecord, scopes: Iterable[str]) -> None:
    """Raises InsufficientAccess, naming the first missing scope, or those of which the key has none."""
    lacking = first_lacking(scopes, key.scopes)
    if lacking is not None:
        sentence = f"The API key lacks the scope {lacking.replace('|', ' or ')}; create one that has it"
        raise InsufficientAccess(sentence, reason="scope", scope=lacking)


def is_use_due(key: ApiKeyRecord, now: int) -> bool:
    return key.last_used_at is None or abs(now - key.last_used_at) >= USE_NOTED_EVERY
