"""`payres wallet`: wallet addresses and the money in them."""

import click

from payres.amounts import format_decimal
from payres.cli.secret_files import SecretFile, read_secret
from payres.cli.session import Resource, Session, with_session
from payres.clock import format_time
from payres.operator import wallets
from payres.store import accounts
from payres.store import wallets as wallet_store
from payres.store.wallets import WalletRecord
from payres.store.work import Work


@click.group()
def wallet() -> None:
    """Open wallets and move money in and out of them.

    PATH is what follows the base URL in the wallet address: `alice` in http://127.0.0.1:8080/alice. The whole wallet
    address works too.
    """


@wallet.command()
@click.argument("path")
@click.option("--asset", required=True, metavar="CODE", help="The currency, such as USD.")
@click.option("--scale", required=True, type=click.IntRange(0, 255), help="Its number of decimals: 2 for cents.")
@click.option(
    "--name", metavar="TEXT", help="The name that others see, and that an app shows when it asks for consent."
)
@click.option(
    "--password",
    metavar="TEXT",
    help="What the owner signs in with. Here others can see it in ps; `payres wallet password` asks for it.",
)
@click.option("--password-file", type=click.File("rb"), metavar="FILE", help="The same from a file, - for stdin.")
@with_session
def create(
    session: Session,
    path: str,
    asset: str,
    scale: int,
    name: str | None,
    password: str | None,
    password_file: SecretFile,
) -> None:
    """Open a wallet and print its wallet address. The database is made when there is none.

    \b
    Example: payres wallet create alice --asset USD --scale 2 --name Alice
    """
    secret = read_secret("password", password, password_file)

    def unit(work: Work) -> Resource:
        opened = wallets.create_wallet(work, session.wallet_path(path), asset, scale, name, secret)
        return describe(work, opened)

    resource = session.write(unit, create=True)
    session.show(resource, str(resource["walletAddress"]))


@wallet.command("list")
@with_session
def list_all(session: Session) -> None:
    """List all wallets with their balances.

    \b
    Example: payres wallet list
    """
    found = session.read(lambda work: [describe(work, record) for record in wallet_store.list_wallets(work)])
    lines = [f"{one['walletAddress']}  {_money(one)}{_remark(one)}" for one in found]
    session.show({"wallets": found}, "\n".join(lines) or "There are no wallets yet; `payres wallet create` opens one")


@wallet.command()
@click.argument("path")
@with_session
def show(session: Session, path: str) -> None:
    """Show a wallet: its address, its balance, its state.

    \b
    Example: payres wallet show alice
    """
    _show(session, session.read(lambda work: describe(work, wallets.require_wallet(work, session.wallet_path(path)))))


@wallet.command()
@click.argument("path")
@click.argument("amount")
@with_session
def deposit(session: Session, path: str, amount: str) -> None:
    """Put money into a wallet. AMOUNT is a decimal in units of its currency.

    \b
    Example: payres wallet deposit alice 100.00
    """

    def unit(work: Work) -> Resource:
        return describe(work, wallets.deposit(work, session.wallet_path(path), amount))

    _show(session, session.write(unit))


@wallet.command()
@click.argument("path")
@click.argument("amount")
@with_session
def withdraw(session: Session, path: str, amount: str) -> None:
    """Take money out of a wallet. AMOUNT is a decimal in units of its currency.

    \b
    Example: payres wallet withdraw alice 100.00
    """

    def unit(work: Work) -> Resource:
        return describe(work, wallets.withdraw(work, session.wallet_path(path), amount))

    _show(session, session.write(unit))


@wallet.command()
@click.argument("path")
@with_session
def deactivate(session: Session, path: str) -> None:
    """Take a wallet address off the net. Its money and history stay.

    \b
    Example: payres wallet deactivate alice
    """
    _show(session, session.write(lambda work: describe(work, wallets.deactivate(work, session.wallet_path(path)))))


@wallet.command()
@click.argument("path")
@with_session
def activate(session: Session, path: str) -> None:
    """Put a deactivated wallet address back.

    \b
    Example: payres wallet activate alice
    """
    _show(session, session.write(lambda work: describe(work, wallets.activate(work, session.wallet_path(path)))))


@wallet.command()
@click.argument("path")
@click.option(
    "--password-file",
    type=click.File("rb"),
    metavar="FILE",
    help="A file whose first line is the new password, - for stdin; asked for when left out.",
)
@with_session
def password(session: Session, path: str, password_file: SecretFile) -> None:
    """Give a wallet's owner a new password. Browsers that are signed in must sign in again.

    \b
    Example: payres wallet password alice
    """
    given = read_secret("password", None, password_file)
    secret = _ask_password() if given is None else given

    def unit(work: Work) -> Resource:
        return describe(work, wallets.set_password(work, session.wallet_path(path), secret))

    _show(session, session.write(unit))


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


def _ask_password() -> str:
    # The prompt goes to standard error: standard output belongs to the resource.
    return str(click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))


def _show(session: Session, resource: Resource) -> None:
    lines = [
        f"wallet address  {resource['walletAddress']}",
        f"balance         {_money(resource)}{_remark(resource)}",
        f"public name     {resource['publicName'] or '(none)'}",
        f"password        {'set' if resource['canSignIn'] else '(none: set one to give consent in the browser)'}",
        f"created         {resource['createdAt']}",
    ]
    session.show(resource, "\n".join(lines))


def _money(resource: Resource) -> str:
    return f"{resource['balance']} {resource['assetCode']}"


def _remark(resource: Resource) -> str:
    reserved = f", {resource['reserved']} of it reserved" if str(resource["reserved"]).strip("0.") else ""
    return reserved + (", inactive" if resource["state"] != "active" else "")
