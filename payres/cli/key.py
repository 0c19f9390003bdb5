"""`payres key`: the public keys that clients' signatures are verified with."""

import io
import os
from typing import IO, Any

import click
import msgspec

from payres.cli.commands import Group
from payres.cli.options import InputFile
from payres.cli.session import Session, with_session
from payres.errors import InvalidRequest
from payres.identifiers import new_id
from payres.operator import keys
from payres.operator.keys import KEY, WalletKey
from payres.operator.shapes import labelled
from payres.operator.wallets import named_wallet
from payres.signatures.jwk import (
    JWK,
    generate_private_key,
    jwk_from_pem,
    jwk_from_public_bytes,
    jwk_json,
    parse_jwk,
    private_pem,
)
from payres.store.work import Work


class KeyInput(InputFile):
    """A file with a key, - for standard input, or the key itself."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not os.path.exists(value):
            text = os.fsencode(value)
            if jwk_json(text).lstrip().startswith(b"{"):
                return io.BytesIO(text)
            if value != "-":
                sentence = "give a file, - for standard input, or the JWK itself in JSON or base64"
                self.fail(f"{value!r} is neither a file nor a JWK: {sentence}", param, ctx)
        return super().convert(value, param, ctx)


NAME_HELP = "What you call the key, such as the app that has it; only you see it."


@click.group(cls=Group)
def key() -> None:
    """A client is known by a wallet address and signs its requests with a private key. The server accepts a signature
    when the public half is stored with that wallet address, under the key id (kid) that the signature names.
    """


@key.command(
    example=(
        "payres key add alice --jwk public.jwk\n"
        'payres key add alice --jwk eyJraWQiOiIuLi4 --name "My browser"\n'
        "payres key add alice --pem public.pem --kid my-app"
    )
)
@click.argument("path")
@click.option("--jwk", type=KeyInput(), metavar="FILE", help="A public JWK, - for stdin; or its JSON or base64.")
@click.option("--pem", type=InputFile(), metavar="FILE", help="A public or private Ed25519 key in PEM.")
@click.option("--kid", metavar="KID", help="The key id, for --pem; a JWK names its own.")
@click.option("--name", metavar="TEXT", help=NAME_HELP)
@with_session
def add(
    session: Session, path: str, jwk: IO[bytes] | None, pem: IO[bytes] | None, kid: str | None, name: str | None
) -> None:
    """Store a client's public key with its wallet.

    Of a private key in PEM only the public half is stored. If the key exists, only its name changes, if one is given.
    """
    public = read_key(jwk, pem, kid)
    added = session.write(lambda work: _add(work, path, public, name))
    session.show(added, KEY.text(added))


@key.command(example="payres key generate alice --out private.pem --kid my-app")
@click.argument("path")
@click.option("--out", required=True, metavar="FILE", help="Where the private key goes; never an existing file.")
@click.option("--kid", metavar="KID", help="The key id; one is made up when left out.")
@click.option("--name", metavar="TEXT", help=NAME_HELP)
@with_session
def generate(session: Session, path: str, out: str, kid: str | None, name: str | None) -> None:
    """Make a key pair and store the public half.

    The private half is written as PEM, for its owner's eyes only (mode 0600).
    """
    private = generate_private_key()
    kid = kid or new_id()
    try:
        public = jwk_from_public_bytes(kid, private.public_key().public_bytes_raw())
    except ValueError as error:
        raise InvalidRequest(str(error)) from error

    def unit(work: Work) -> WalletKey:
        added = _add(work, path, public, name)
        _write_private(out, private_pem(private))  # before the commit: no key is stored whose other half was lost
        return added

    added = session.write(unit)
    text = f"{KEY.text(added)}\n{labelled(('Private key', out))}"
    session.show({**msgspec.to_builtins(added), "privateKey": out}, text)


def _add(work: Work, path: str, public: JWK, name: str | None) -> WalletKey:
    return keys.wallet_key(work, keys.add_key(work, named_wallet(work, path), public, name))


def read_key(jwk: IO[bytes] | None, pem: IO[bytes] | None, kid: str | None) -> JWK:
    """The public key in one of the two files; a PEM takes its `kid` from the command line."""
    if (jwk is None) == (pem is None):
        raise click.UsageError("Give the key with either --jwk FILE, or --pem FILE and --kid KID")
    if jwk is not None and kid is not None:
        raise click.UsageError("The JWK names its own kid; leave --kid out, or change the JWK")
    try:
        if jwk is not None:
            return parse_jwk(jwk_json(jwk.read()))
        if pem is not None and kid is not None:
            return jwk_from_pem(kid, pem.read())
    except ValueError as error:
        wanted = '{"kty": "OKP", "crv": "Ed25519", "kid": "...", "x": "..."}'
        hint = "" if jwk is None else f". A public JWK is {wanted}, in JSON or in base64"
        raise InvalidRequest(f"The key cannot be used: {error}{hint}") from error
    raise click.UsageError("A PEM names no kid; give one with --kid, the same that the client signs with")


def _write_private(path: str, pem: bytes) -> None:
    try:
        # O_EXCL: never overwrites an existing private key, and follows no link.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise click.ClickException(
            f"{path} exists already, and a key is never replaced; choose another name"
        ) from error
    try:
        with open(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise
