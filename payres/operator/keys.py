"""Public keys of wallet addresses here, which verify the signatures of their clients."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from payres.core.protocol.errors import InvalidRequest, require
from payres.core.protocol.wire import Resource
from payres.core.signatures.jwk import JWK
from payres.core.store import wallets
from payres.core.store.wallets import WALLETS, KeyRecord, require_wallet
from payres.core.store.work import Work
from payres.operator.declared.declarations import FOR_GOOD, CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import Name, check_name, said
from payres.operator.declared.shapes import Column, Shape, Time, fact, represent
from payres.operator.wallets import WALLET, WalletName
from payres.people import keys as rules

Revoked = Annotated[bool, said("Revoked keys too.")]


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
    created_at: Time
    revoked_at: Time | None


def wallet_key(work: Work, record: KeyRecord) -> WalletKey:
    wallet = WALLETS.by_id(work, record.wallet_address_id)
    return represent(
        WalletKey, record, wallet_address=work.urls.wallet(wallet.path), jwk=PublicKey(kid=record.kid, x=record.x)
    )


def require_key(work: Work, wallet: str, kid: str) -> KeyRecord:
    """A key, which may be revoked; the last one if several have this kid. Raises NotFound."""
    owner = require_wallet(work, wallet)
    found = [one for one in wallets.list_keys(work, owner.id, True) if one.kid == kid]
    return require(found[-1] if found else None, f"The wallet {owner.path} has no key {kid}")


KEY: Final = Shape(
    wallet_key,
    Column("Key id", "kid", "code"),
    Column("Name", "name", "long", titles=True),
    Column("State", lambda one: "revoked" if one.revoked_at else "valid", "state"),
    fact("Wallet address", "wallet_address", "code"),
    fact("Public key", lambda one: msgspec.json.encode(one.jwk).decode(), "code"),
    Column("Added (UTC)", "created_at", "time"),
    Column("Revoked (UTC)", "revoked_at", "time"),
    read=require_key,
    page="/wallets/{wallet}/keys/{kid}",
)


@operation(
    "GET /wallets/{wallet}/keys wallets:read",
    KEY,
    command=CommandLine("key list PATH"),
    listing=Listing("keys", "The wallet has no keys", advice="`payres key generate` makes one"),
)
def list_keys(work: Work, wallet: WalletName, revoked: Revoked = False) -> Sequence[KeyRecord]:
    """List the public keys of a wallet."""
    return wallets.list_keys(work, require_wallet(work, wallet).id, revoked)


def _read_jwk(_: object, text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"This is not a JWK: {error}", field="jwk") from error


@operation(
    "POST /wallets/{wallet}/keys wallets:write",
    KEY,
    form=OperationForm(
        "Add the key",
        WALLET,
        done="The key {kid} is added",
        title="Add a key",
        path="/wallets/{wallet}/new-key",
        back="/wallets/{wallet}",
    ),
    audits="key.add key.rename",
)
def add_key(
    work: Work,
    wallet: WalletName,
    jwk: Annotated[JWK, said("The public key as a JWK (RFC 8037).", typed=_read_jwk, is_long=True)],
    name: Name | None = None,
) -> KeyRecord:
    """Store a client's public key with its wallet; signatures with it are accepted from now on.

    If the key exists, only its name changes, if one is given. The name is for the operator only. Raises WrongState if
    the wallet has another valid key with this kid.
    """
    if name is not None:
        check_name(name, "key's")
    return rules.store_key(work, require_wallet(work, wallet), jwk, name)


@operation(
    "DELETE /wallets/{wallet}/keys/{kid} wallets:write",
    KEY,
    command=CommandLine("key revoke PATH KID", "alice my-app"),
    form=OperationForm(
        "Revoke the key",
        KEY,
        done="The key {kid} is revoked",
        back="/wallets/{wallet}",
        is_over=lambda key: key.revoked_at,
        because=FOR_GOOD,
        ends=True,
    ),
)
def revoke_key(work: Work, wallet: WalletName, kid: str) -> KeyRecord:
    """Revoke a key. Requests that are signed with it are refused from now on, and jwks.json does not have it."""
    return rules.revoke_key(work, require_wallet(work, wallet), kid)
