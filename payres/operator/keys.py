"""Public keys of wallet addresses here, which verify the signatures of their clients."""

import os
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec.structs import asdict

from payres.core.protocol.errors import InvalidRequest, WrongState, require
from payres.core.protocol.wire import Resource
from payres.core.signatures.jwk import (
    JWK,
    generate_private_key,
    jwk_from_pem,
    jwk_from_public_bytes,
    jwk_json,
    parse_jwk,
    private_pem,
)
from payres.core.store import wallets
from payres.core.store.wallets import WALLETS, KeyRecord, require_wallet
from payres.core.store.work import Work
from payres.operator.declared.declarations import FOR_GOOD, CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import Name, check_name, said
from payres.operator.declared.shapes import Column, Shape, Time, fact, represent
from payres.operator.wallets import WALLET, WalletName
from payres.people import keys as rules

KeyName = Annotated[
    Name | None, said("What you call the key, such as the app that has it; only you see it.", metavar="TEXT")
]
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


def _read_jwk(_: object, text: str | JWK) -> object:
    if isinstance(text, JWK):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"This is not a JWK: {error}", field="jwk") from error


def _inline_jwk(text: str) -> bytes:
    encoded = os.fsencode(text)
    if not jwk_json(encoded).lstrip().startswith(b"{"):
        raise ValueError("a JWK: give a file, - for standard input, or the JWK itself in JSON or base64")
    return encoded


JwkFile = Annotated[
    bytes | None, said("A public JWK, - for stdin; or its JSON or base64.", file=True, inline=_inline_jwk)
]
PemFile = Annotated[
    bytes | None, said("A public or private Ed25519 key in PEM. Only the public key is stored.", file=True)
]
PemKid = Annotated[str | None, said("The key id, for --pem; a JWK names its own.", metavar="KID")]


def read_key(jwk: JwkFile = None, pem: PemFile = None, kid: PemKid = None) -> JWK:
    """The public key in one of the two files; that of a PEM gets its `kid`. Raises InvalidRequest, ValueError for
    arguments that do not go together."""
    if (jwk is None) == (pem is None):
        raise ValueError("Give the key with either --jwk FILE, or --pem FILE and --kid KID")
    if jwk is not None and kid is not None:
        raise ValueError("The JWK names its own kid; leave --kid out, or change the JWK")
    if pem is not None and kid is None:
        raise ValueError("A PEM names no kid; give one with --kid, the same that the client signs with")
    try:
        return parse_jwk(jwk_json(jwk)) if jwk is not None else jwk_from_pem(kid or "", pem or b"")
    except ValueError as error:
        wanted = '{"kty": "OKP", "crv": "Ed25519", "kid": "...", "x": "..."}'
        hint = "" if jwk is None else f". A public JWK is {wanted}, in JSON or in base64"
        raise InvalidRequest(f"The key cannot be used: {error}{hint}") from error


@operation(
    "POST /wallets/{wallet}/keys wallets:write",
    KEY,
    command=CommandLine(
        "key add PATH",
        'alice --jwk public.jwk\nalice --jwk eyJraWQiOiIuLi4 --name "My browser"\nalice --pem public.pem --kid my-app',
    ),
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
    jwk: Annotated[JWK, said("The public key as a JWK (RFC 8037).", typed=_read_jwk, is_long=True, given_by=read_key)],
    name: KeyName = None,
) -> KeyRecord:
    """Store a client's public key with its wallet. Signatures with it are accepted from now on.

    If the key exists, only its name changes, if one is given.
    """
    if name is not None:
        check_name(name, "key's")
    return rules.store_key(work, require_wallet(work, wallet), jwk, name)


class GeneratedKey(WalletKey, frozen=True, kw_only=True):
    """`private_key` is the file that has it."""

    private_key: str


@operation(
    shows=Shape(None, *KEY.columns, fact("Private key", "private_key", "code")),
    command=CommandLine("key generate PATH", "alice --out private.pem --kid my-app"),
    audits="key.add",
)
def generate_key(
    work: Work,
    wallet: WalletName,
    out: Annotated[str, said("Where the private key goes; never an existing file.", metavar="FILE")],
    kid: Annotated[str | None, said("The key id; generated by default.", metavar="KID")] = None,
    name: KeyName = None,
) -> GeneratedKey:
    """Make a key pair and store the public key.

    The private key is written as PEM, readable only by its owner (mode 0600).
    """
    private = generate_private_key()
    try:
        public = jwk_from_public_bytes(kid or work.new_id(), private.public_key().public_bytes_raw())
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    added = wallet_key(work, add_key(work, wallet, public, name))
    _write_private(out, private_pem(private))  # before the commit: no public key is stored without its private key
    return GeneratedKey(**asdict(added), private_key=out)


def _write_private(path: str, pem: bytes) -> None:
    try:
        # O_EXCL: never overwrites an existing private key, and follows no symbolic link.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise WrongState(f"{path} exists already, and a key is never replaced; choose another name") from error
    try:
        with open(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise


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
