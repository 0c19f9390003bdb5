"""`payres wallet`: opening a wallet, and its password, which is prompted for or read from a file."""

import warnings
from getpass import GetPassWarning

import click

from payres.accounts import owners
from payres.accounts.passwords import hash_password
from payres.cli.commands import Group
from payres.cli.options import WholeNumber, secret_option
from payres.cli.session import Session, with_session
from payres.core.store.work import Work
from payres.operator import wallets
from payres.operator.assets import MAX_SCALE
from payres.operator.wallets import WALLET, Wallet, named_wallet


@click.group(cls=Group)
def wallet() -> None:
    """PATH follows the base URL in the wallet address: `alice` in http://127.0.0.1:8080/alice. The whole wallet address
    works too."""


@wallet.command(example="payres wallet create alice --asset USD --scale 2 --name Alice")
@click.argument("path")
@click.option("--asset", required=True, metavar="CODE", help="The currency, such as USD.")
@click.option("--scale", required=True, type=WholeNumber(0, MAX_SCALE), help="Its number of decimals: 2 for cents.")
@click.option(
    "--name", metavar="TEXT", help="The name that others see, and that an app shows when it asks for consent."
)
@secret_option(
    "password",
    "TEXT",
    "What the owner signs in with. Here others can see it in ps; `payres wallet password` asks for it.",
)
@click.option("--owner", metavar="WALLET", help="A wallet of the owner, who then signs in to both with one password.")
@click.option("--create", "is_new", is_flag=True, help="Create the database first when there is none.")
@with_session
def create(
    session: Session,
    path: str,
    asset: str,
    scale: int,
    name: str | None,
    password: str | None,
    owner: str | None,
    is_new: bool,
) -> None:
    """Open a wallet and print its wallet address."""
    if owner is not None and password is not None:
        raise click.UsageError("The owner of another wallet has a password: leave out --owner, or --password")
    hashed = None if password is None else hash_password(password)  # a server waits while the unit writes

    def unit(work: Work) -> Wallet:
        of = None if owner is None else named_wallet(work, owner)
        opened = wallets.create_wallet(work, named_wallet(work, path), asset, scale, name, hashed, of)
        return wallets.wallet(work, opened)

    if is_new:
        session.create_database(unit)
    else:
        session.database("add --create, or name another with --database PATH")
    opened = session.write(unit)
    session.show(opened, opened.wallet_address)


@wallet.command(example="payres wallet password alice")
@click.argument("path")
@secret_option(
    "password", None, file_help="A file whose first line is the new password, - for stdin; prompted for by default."
)
@click.option(
    "--forget-browsers", is_flag=True, help="Somebody else had the password: no browser counts as the owner's any more."
)
@with_session
def password(session: Session, path: str, password: str | None, forget_browsers: bool) -> None:
    """Give a wallet's owner a new password. Browsers that are signed in must sign in again."""
    hashed = hash_password(_ask_for_password() if password is None else password)

    def unit(work: Work) -> Wallet:
        changed = owners.store_password(work, named_wallet(work, path), hashed, forget_browsers)
        return wallets.wallet(work, changed)

    found = session.write(unit)
    session.show(found, WALLET.text(found))


def _ask_for_password() -> str:
    """A password from the terminal, without echo."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)  # of a password that would be echoed
        try:
            # The prompt goes to standard error: standard output is for the resource.
            return str(click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))
        except GetPassWarning as error:
            sentence = "There is no terminal to ask for the password on: give it with --password-file FILE, - for stdin"
            raise click.ClickException(sentence) from error
