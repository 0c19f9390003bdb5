"""`payres wallet`: wallet addresses and the money in them."""

import warnings
from collections.abc import Sequence
from getpass import GetPassWarning

import click

from payres.admin import representations
from payres.admin import wallets as endpoints
from payres.admin.requests import WalletChange
from payres.admin.wire import Wallet
from payres.cli.commands import Group
from payres.cli.options import WholeNumber, limit_option, movement_options, secret_option
from payres.cli.session import Session, labelled, lists, reads, wallet_path, with_session, writes
from payres.grants.sign_in import hash_password
from payres.operator import wallets
from payres.operator.assets import MAX_SCALE
from payres.operator.movements import Movement
from payres.store.rows import PageQuery
from payres.store.wallets import list_wallets
from payres.store.work import Work


@click.group(cls=Group)
def wallet() -> None:
    """PATH is what follows the base URL in the wallet address: `alice` in http://127.0.0.1:8080/alice. The whole wallet
    address works too.
    """


def _text(wallet: Wallet) -> str:
    return labelled(
        ("wallet address", wallet.wallet_address),
        ("balance", _balance(wallet)),
        ("public name", wallet.public_name or "(none)"),
        ("password", "set" if wallet.can_sign_in else "(none: set one to give consent in the browser)"),
        ("created", wallet.created_at),
    )


def _balance(wallet: Wallet) -> str:
    held = f", {wallet.reserved} of it reserved" if wallet.reserved.strip("0.") else ""
    state = ", inactive" if wallet.state != "active" else ""
    return f"{wallet.balance} {wallet.asset_code}{held}{state}"


def _movement_line(movement: Movement) -> str:
    reference = f", {movement.reference}" if movement.reference else ""
    return f"{movement.created_at}  {movement.kind:10}  {movement.amount} {movement.asset_code}{reference}"


def _shown(work: Work, path: str) -> Wallet:
    return endpoints.show(work, wallet_path(work.urls, path))


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
@click.option("--create", "is_new", is_flag=True, help="Create the database first when there is none.")
@with_session
def create(
    session: Session, path: str, asset: str, scale: int, name: str | None, password: str | None, is_new: bool
) -> None:
    """Open a wallet and print its wallet address."""

    def unit(work: Work) -> Wallet:
        opened = wallets.create_wallet(work, wallet_path(work.urls, path), asset, scale, name, password)
        return representations.wallet(work, opened)

    if is_new:
        session.create_database(unit)
    else:
        session.database("add --create, or name another with --database PATH")
    opened = session.write(unit)
    session.show(opened, opened.wallet_address)


@wallet.command("list", example="payres wallet list")
@lists(
    "wallets",
    lambda wallet: f"{wallet.wallet_address}  {_balance(wallet)}",
    "There are no wallets yet; `payres wallet create` opens one",
)
def list_all(work: Work) -> Sequence[Wallet]:
    """List all wallets with their balances."""
    return [representations.wallet(work, record) for record in list_wallets(work)]


@wallet.command(example="payres wallet show alice")
@click.argument("path")
@reads(_text)
def show(work: Work, path: str) -> Wallet:
    """Show a wallet: its address, its balance, its state."""
    return _shown(work, path)


@wallet.command(example="payres wallet deposit alice 100.00 --reference invoice-17")
@click.argument("path")
@movement_options
@writes(_text)
def deposit(work: Work, path: str, amount: str, reference: str | None) -> Wallet:
    """Put money into a wallet. AMOUNT is a decimal in units of its currency."""
    wallets.deposit(work, wallet_path(work.urls, path), amount, reference)
    return _shown(work, path)


@wallet.command(example="payres wallet withdraw alice 100.00 --reference invoice-17")
@click.argument("path")
@movement_options
@writes(_text)
def withdraw(work: Work, path: str, amount: str, reference: str | None) -> Wallet:
    """Take money out of a wallet. AMOUNT is a decimal in units of its currency."""
    wallets.withdraw(work, wallet_path(work.urls, path), amount, reference)
    return _shown(work, path)


@wallet.command(example="payres wallet movements alice")
@click.argument("path")
@limit_option
@lists("movements", _movement_line, "Nothing was deposited or withdrawn yet")
def movements(work: Work, path: str, limit: int) -> Sequence[Movement]:
    """List deposits and withdrawals of a wallet, newest first."""
    return endpoints.list_movements(work, wallet_path(work.urls, path), PageQuery(limit)).result


@wallet.command(example="payres wallet deactivate alice")
@click.argument("path")
@writes(_text)
def deactivate(work: Work, path: str) -> Wallet:
    """Deactivate a wallet address. Its money and history stay."""
    return endpoints.change(work, wallet_path(work.urls, path), WalletChange(state="inactive"))


@wallet.command(example="payres wallet activate alice")
@click.argument("path")
@writes(_text)
def activate(work: Work, path: str) -> Wallet:
    """Activate a wallet address again."""
    return endpoints.change(work, wallet_path(work.urls, path), WalletChange(state="active"))


@wallet.command(example='payres wallet rename alice "Alice Smith"')
@click.argument("path")
@click.argument("name")
@writes(_text)
def rename(work: Work, path: str, name: str) -> Wallet:
    """Change the public name of a wallet. An empty NAME takes it away; the wallet address stays."""
    return endpoints.change(work, wallet_path(work.urls, path), WalletChange(public_name=name or None))


@wallet.command(example="payres wallet password alice")
@click.argument("path")
@secret_option(
    "password", None, file_help="A file whose first line is the new password, - for stdin; asked for when left out."
)
@click.option(
    "--forget-browsers", is_flag=True, help="Somebody else had the password: no browser counts as the owner's any more."
)
@with_session
def password(session: Session, path: str, password: str | None, forget_browsers: bool) -> None:
    """Give a wallet's owner a new password. Browsers that are signed in must sign in again."""
    hashed = hash_password(_ask_for_password() if password is None else password)

    def unit(work: Work) -> Wallet:
        changed = wallets.set_password(work, wallet_path(work.urls, path), hashed, forget_browsers)
        return representations.wallet(work, changed)

    found = session.write(unit)
    session.show(found, _text(found))


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


@wallet.command(example="payres wallet unlock alice")
@click.argument("path")
@writes(_text)
def unlock(work: Work, path: str) -> Wallet:
    """Clear the counts of wrong passwords of a wallet. Its owner can then sign in at once."""
    return endpoints.unlock(work, wallet_path(work.urls, path))
