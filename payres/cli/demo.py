"""`payres demo`, and the wallets of `payres serve --demo`: something to pay with in the first minute."""

from collections.abc import Sequence

import click
import msgspec

from payres.cli.commands import Command
from payres.cli.session import JsonObject
from payres.grants.sign_in import verify_password
from payres.operator import wallets
from payres.store import wallets as wallet_store
from payres.store.work import Work

ASSET, SCALE = "USD", 2
BALANCES = {"alice": "1000.00", "bob": None}


@click.command(cls=Command, example="payres demo")
def demo() -> None:
    """A shop requests money for one wallet, the owner of another consents and pays. No settings and no database are
    read.
    """
    from payres.cli.payment_demo import demonstrate  # loads slowly, with a client and a server

    demonstrate(click.echo)


def open_demo_wallets(work: Work) -> None:
    """Opens alice, who has 1000.00 USD, and bob, if the database has no wallets."""
    if wallet_store.list_wallets(work):
        return
    for path, balance in BALANCES.items():
        wallets.create_wallet(work, path, ASSET, SCALE, path.capitalize(), _password(path))
        if balance is not None:
            wallets.deposit(work, path, balance)


def find_demo_wallets(work: Work) -> Sequence[JsonObject]:
    """The demo wallets that still have their first password, with that password."""
    found = [record for path in BALANCES if (record := wallet_store.find_wallet(work, path))]
    return [
        {**msgspec.to_builtins(wallets.wallet(work, record)), "password": _password(record.path)}
        for record in found
        if verify_password(record, _password(record.path))
    ]


def introduce(found: Sequence[JsonObject]) -> str:
    """Says to a newcomer what the addresses are, how to sign in, and what to try."""
    if not found:
        return "The demo wallets are not here: this database has wallets of its own"
    lines = [
        f"  {one['walletAddress']}  {one['balance']} {one['assetCode']}, password {one['password']}" for one in found
    ]
    return "\n".join(
        [
            "Wallet addresses:",
            *lines,
            "Sign in for consent: open the interact.redirect URL of a grant and give its wallet's password.",
            f"Try next: curl {found[0]['walletAddress']}",
        ]
    )


def _password(path: str) -> str:
    return f"{path}-demo"
