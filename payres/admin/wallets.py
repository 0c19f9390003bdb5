"""Wallets, the money in them, and the public keys of their clients."""

import asyncio
from functools import partial

from msgspec import UnsetType

from payres.admin import representations
from payres.admin.call import Call
from payres.admin.requests import KeyQuery, NewMovement, NewPassword, NewWallet, NewWalletKey, WalletChange
from payres.admin.wire import Wallet, WalletKey
from payres.grants.sign_in import hash_password
from payres.operator import keys, wallets
from payres.operator.movements import Movement, movement
from payres.operator.operations import List
from payres.representations import page_of
from payres.store.entries import page_of_movements
from payres.store.rows import PageQuery, select_page
from payres.store.wallets import WALLETS, KeyRecord, list_keys
from payres.store.work import Work
from payres.wire import Page


def list_page(work: Work, page: PageQuery) -> Page[Wallet]:
    """List wallets with their balances."""
    return page_of(select_page(work, WALLETS, page), partial(representations.wallet, work))


def create(work: Work, body: NewWallet) -> Wallet:
    """Open a wallet."""
    name = body.public_name
    opened = wallets.create_wallet(work, body.path, body.asset_code, body.asset_scale, name, None)
    return representations.wallet(work, opened)


def show(work: Work, wallet: str) -> Wallet:
    """Read a wallet: its address, its balance, its state."""
    return representations.wallet(work, wallets.require_wallet(work, wallet))


def change(work: Work, wallet: str, body: WalletChange) -> Wallet:
    """Rename, deactivate or activate a wallet."""
    found = wallets.require_wallet(work, wallet)
    if not isinstance(body.public_name, UnsetType):
        found = wallets.rename(work, wallet, body.public_name)
    if body.state:
        found = (wallets.activate if body.state == "active" else wallets.deactivate)(work, wallet)
    return representations.wallet(work, found)


async def set_password(call: Call, wallet: str, body: NewPassword) -> Wallet:
    """Give a wallet's owner a new password. Browsers that are signed in must sign in again."""
    hashed = await asyncio.to_thread(hash_password, body.password)

    def unit(work: Work) -> Wallet:
        return representations.wallet(work, wallets.set_password(work, wallet, hashed, body.forget_browsers))

    return await call.write(unit)


def unlock(work: Work, wallet: str) -> Wallet:
    """Clear the counts of wrong passwords of a wallet, so that its owner can sign in at once."""
    return representations.wallet(work, wallets.unlock(work, wallet))


def deposit(work: Work, wallet: str, body: NewMovement) -> Movement:
    """Move money from the world outside into a wallet."""
    return movement(work, wallets.deposit(work, wallet, body.amount, body.reference))


def withdraw(work: Work, wallet: str, body: NewMovement) -> Movement:
    """Move money out of a wallet."""
    return movement(work, wallets.withdraw(work, wallet, body.amount, body.reference))


def list_movements(work: Work, wallet: str, page: PageQuery) -> Page[Movement]:
    """List the deposits and withdrawals of a wallet."""
    found = wallets.require_wallet(work, wallet)
    records = page_of_movements(work, found.account_id, page)
    return page_of(records, partial(movement, work))


def list_wallet_keys(work: Work, wallet: str, query: KeyQuery) -> List[WalletKey]:
    """List the public keys of a wallet."""
    found = wallets.require_wallet(work, wallet)
    records = list_keys(work, found.id, query.revoked)
    return List(result=[representations.wallet_key(work, found, record) for record in records])


def add_key(work: Work, wallet: str, body: NewWalletKey) -> WalletKey:
    """Store a client's public key with its wallet."""
    return _key(work, wallet, keys.add_key(work, wallet, body.jwk, body.name))


def revoke_key(work: Work, wallet: str, kid: str) -> WalletKey:
    """End a key at once."""
    return _key(work, wallet, keys.revoke_key(work, wallet, kid))


def _key(work: Work, wallet: str, record: KeyRecord) -> WalletKey:
    return representations.wallet_key(work, wallets.require_wallet(work, wallet), record)
