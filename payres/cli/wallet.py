"""`payres wallet`: wallet addresses and the money in them."""

import warnings
from collections.abc import Callable
from functools import partial
from getpass import GetPassWarning

import click

from payres.amounts import format_decimal
from payres.cli.groups import Group
from payres.cli.secret_options import secret_option
from payres.cli.session import Resource, Session, labelled, with_session
from payres.clock import format_time
from payres.operator import wallets
from payres.operator.assets import other_scale_warning
from payres.store import accounts
from payres.store import wallets as wallet_store
from payres.store.wallets import WalletRecord
from payres.store.work import Work


@click.group(cls=Group)
def wallet() -> None:
    """PATH is what follows the base URL in the wallet address: `alice` in http://127.0.0.1:8080/alice. The whole wallet
    address works too.
    """


@wallet.command()
@click.argument("path")
@click.option("--asset", required=True, metavar="CODE", help="The currency, such as USD.")
@click.option("--scale", required=True, type=click.IntRange(0, 255), help="Its number of decimals: 2 for cents.")
@click.option(
    "--name", metavar="TEXT", help="The name that others see, and that an app shows when it asks for consent."
)
@secret_option(
    "password",
    "TEXT",
    "What the owner signs in with. Here others can see it in ps; `payres wallet password` asks for it.",
)
@click.option("--create", "is_new", is_flag=True, help="Create the database first when there is none.")
@with_session
def create(
    session: Session, path: str, asset: str, scale: int, name: str | None, password: str | None, is_new: bool
) -> None:
    """Open a wallet and print its wallet address.

    \b
    Example: payres wallet create alice --asset USD --scale 2 --name Alice
    """

    def unit(work: Work) -> Resource:
        session.warn(other_scale_warning(work, asset, scale))
        opened = wallets.create_wallet(work, session.wallet_path(path), asset, scale, name, password)
        return describe(work, opened)

    if is_new:
        session.create_database(unit)
    else:
        session.database("add --create, or name another with --database PATH")
    resource = session.write(unit)
    session.show(resource, str(resource["walletAddress"]))


@wallet.command("list")
@with_session
def list_all(session: Session) -> None:
    """List all wallets with their balances.

    \b
    Example: payres wallet list
    """
    found = session.read(lambda work: [describe(work, record) for record in wallet_store.list_wallets(work)])
    session.show_list(
        "wallets",
        found,
        lambda wallet: f"{wallet['walletAddress']}  {_balance(wallet)}",
        "There are no wallets yet; `payres wallet create` opens one",
    )


@wallet.command()
@click.argument("path")
@with_session
def show(session: Session, path: str) -> None:
    """Show a wallet: its address, its balance, its state.

    \b
    Example: payres wallet show alice
    """
    found = session.read(lambda work: describe(work, wallets.require_wallet(work, session.wallet_path(path))))
    session.show(found, _text(found))


@wallet.command()
@click.argument("path")
@click.argument("amount")
@with_session
def deposit(session: Session, path: str, amount: str) -> None:
    """Put money into a wallet. AMOUNT is a decimal in units of its currency.

    \b
    Example: payres wallet deposit alice 100.00
    """
    _change(session, path, lambda work, wallet: wallets.deposit(work, wallet, amount))


@wallet.command()
@click.argument("path")
@click.argument("amount")
@with_session
def withdraw(session: Session, path: str, amount: str) -> None:
    """Take money out of a wallet. AMOUNT is a decimal in units of its currency.

    \b
    Example: payres wallet withdraw alice 100.00
    """
    _change(session, path, lambda work, wallet: wallets.withdraw(work, wallet, amount))


@wallet.command()
@click.argument("path")
@with_session
def deactivate(session: Session, path: str) -> None:
    """Take a wallet address off the net. Its money and history stay.

    \b
    Example: payres wallet deactivate alice
    """
    _change(session, path, wallets.deactivate)


@wallet.command()
@click.argument("path")
@with_session
def activate(session: Session, path: str) -> None:
    """Put a deactivated wallet address back.

    \b
    Example: payres wallet activate alice
    """
    _change(session, path, wallets.activate)


@wallet.command()
@click.argument("path")
@click.argument("name")
@with_session
def rename(session: Session, path: str, name: str) -> None:
    """Change the public name of a wallet. An empty NAME takes it away; the wallet address stays.

    \b
    Example: payres wallet rename alice "Alice Smith"
    """
    _change(session, path, partial(wallets.rename, public_name=name or None))


@wallet.command()
@click.argument("path")
@secret_option(
    "password", None, file_help="A file whose first line is the new password, - for stdin; asked for when left out."
)
@click.option(
    "--forget-browsers", is_flag=True, help="Somebody else had the password: no browser counts as the owner's any more."
)
@with_session
def password(session: Session, path: str, password: str | None, forget_browsers: bool) -> None:
    """Give a wallet's owner a new password. Browsers that are signed in must sign in again.

    \b
    Example: payres wallet password alice
    """
    password = _ask_for_password() if password is None else password
    _change(session, path, partial(wallets.set_password, password=password, forget_browsers=forget_browsers))


@wallet.command()
@click.argument("path")
@with_session
def unlock(session: Session, path: str) -> None:
    """Clear the counts of wrong passwords of a wallet. Its owner can then sign in at once.

    \b
    Example: payres wallet unlock alice
    """
    _change(session, path, wallets.unlock)


def _ask_for_password() -> str:
    """A password from the terminal, which does not show it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)  # of a password that would be shown
        try:
            # The prompt goes to standard error: standard output belongs to the resource.
            return str(click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))
        except GetPassWarning as error:
            sentence = "There is no terminal to ask for the password on: give it with --password-file FILE, - for stdin"
            raise click.ClickException(sentence) from error


def _change(session: Session, path: str, unit: Callable[[Work, str], WalletRecord]) -> None:
    """Runs the unit on the wallet at this path or address, and prints it as it is then."""
    resource = session.write(lambda work: describe(work, unit(work, session.wallet_path(path))))
    session.show(resource, _text(resource))


def describe(work: Work, record: WalletRecord) -> Resource:
    """A wallet as it is printed; the amounts are decimals."""
    account = accounts.account_by_id(work, record.account_id)
    asset = record.asset
    return {
        "walletAddress": work.urls.wallet(record.path),
        "path": record.path,
        "publicName": record.public_name,
        "assetCode": record.asset_code,
        "assetScale": record.asset_scale,
        "balance": format_decimal(account.balance, asset),
        "reserved": format_decimal(account.held, asset),
        "state": record.state,
        "canSignIn": record.password_hash is not None,
        "createdAt": format_time(record.created_at),
    }


def _text(wallet: Resource) -> str:
    return labelled(
        ("wallet address", wallet["walletAddress"]),
        ("balance", _balance(wallet)),
        ("public name", wallet["publicName"] or "(none)"),
        ("password", "set" if wallet["canSignIn"] else "(none: set one to give consent in the browser)"),
        ("created", wallet["createdAt"]),
    )


def _balance(wallet: Resource) -> str:
    held = f", {wallet['reserved']} of it reserved" if wallet["reserved"].strip("0.") else ""
    state = ", inactive" if wallet["state"] != "active" else ""
    return f"{wallet['balance']} {wallet['assetCode']}{held}{state}"
