"""Wallet addresses as the operator sets them up: opening, money in and out, password, closing."""

from payres import ledger, representations
from payres.errors import InvalidRequest, NotFound, WrongState
from payres.event_types import WalletEvent
from payres.grants.passwords import hash_password
from payres.operator import movements
from payres.operator.assets import open_asset
from payres.store import accounts, assets, sessions, wallets
from payres.store.wallets import WalletRecord
from payres.store.work import Work
from payres.urls import new_wallet_path, require_wallet_path

MAX_NAME_LENGTH = 200


def create_wallet(
    work: Work,
    path: str,
    asset_code: str,
    scale: int,
    public_name: str | None,
    password: str | None,
) -> WalletRecord:
    """Opens a wallet with an empty account; `path` is what follows the base URL, such as `alice`.

    Raises InvalidRequest, WrongState when the path is taken.
    """
    clean = new_wallet_path(path)
    if public_name is not None:
        check_name(public_name, "public")
    if wallets.find_wallet(work, clean) is not None:
        raise WrongState(f"There is a wallet {clean} already; choose another path", path=clean)
    asset = open_asset(work, asset_code, scale)
    account_id = ledger.open_account(work, "wallet", asset.id)
    password_hash = None if password is None else hash_password(password)
    wallets.insert_wallet(work, clean, public_name, asset.id, account_id, password_hash, work.now)
    return require_wallet(work, clean)


def require_wallet(work: Work, path: str) -> WalletRecord:
    """The wallet at a path, active or not. Raises NotFound, InvalidRequest when it is no path."""
    clean = require_wallet_path(path)
    wallet = wallets.find_wallet(work, clean)
    if wallet is None:
        raise NotFound(f"There is no wallet {clean}; `payres wallet list` shows all")
    return wallet


def deposit(work: Work, path: str, text: str) -> WalletRecord:
    """Moves an amount such as "100.00" from outside into the wallet.

    Raises NotFound, InvalidAmount, WrongState when the wallet is inactive.
    """
    wallet = require_wallet(work, path)
    if not wallet.active:
        raise WrongState(f"The wallet {wallet.path} is inactive and takes no money in", path=wallet.path)
    amount = movements.pay_in(work, wallet.account_id, assets.asset_by_id(work, wallet.asset_id), text)
    _emit(work, "deposited", wallet, amount)
    return wallet


def withdraw(work: Work, path: str, text: str) -> WalletRecord:
    """Moves an amount such as "100.00" out of the wallet; an inactive one can still be emptied.

    Raises NotFound, InvalidAmount, InsufficientFunds naming the free balance.
    """
    wallet = require_wallet(work, path)
    asset = assets.asset_by_id(work, wallet.asset_id)
    amount = movements.pay_out(work, wallet.account_id, asset, text, f"The wallet {wallet.path}", "wallet")
    _emit(work, "withdrawn", wallet, amount)
    return wallet


def rename(work: Work, path: str, public_name: str | None) -> WalletRecord:
    """Gives the wallet another public name, or none. Raises NotFound, InvalidRequest."""
    wallet = require_wallet(work, path)
    if public_name is not None:
        check_name(public_name, "public")
    wallets.set_public_name(work, wallet.id, public_name)
    return require_wallet(work, path)


def deactivate(work: Work, path: str) -> WalletRecord:
    """Takes the wallet address off the net; money and history stay. Raises NotFound."""
    return _change_state(work, path, "inactive")


def activate(work: Work, path: str) -> WalletRecord:
    """Puts a deactivated wallet address back. Raises NotFound."""
    return _change_state(work, path, "active")


def set_password(work: Work, path: str, password: str, forget_browsers: bool = False) -> WalletRecord:
    """Gives the owner a new password and ends every browser session that the old one opened.

    Wrong passwords so far count no more. Browsers stay known unless `forget_browsers`, for when somebody else had the
    password. Raises NotFound, InvalidRequest.
    """
    wallet = require_wallet(work, path)
    wallets.set_password_hash(work, wallet.id, hash_password(password))
    sessions.delete_sessions_of_wallet(work, wallet.id)
    if forget_browsers:
        sessions.delete_browsers_of_wallet(work, wallet.id)
    return unlock(work, path)


def unlock(work: Work, path: str) -> WalletRecord:
    """Clears the counts of wrong passwords, so that the owner can sign in at once. Raises NotFound."""
    wallets.set_unlocked_at(work, require_wallet(work, path).id, work.now)
    return require_wallet(work, path)


def check_name(name: str, kind: str) -> None:
    """Raises InvalidRequest for what is no name of this kind."""
    if not 1 <= len(name.strip()) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"A {kind} name has 1 to {MAX_NAME_LENGTH} printable characters", field="name")


def _emit(work: Work, kind: str, wallet: WalletRecord, amount: int) -> None:
    balance = accounts.account_by_id(work, wallet.account_id).balance
    moved, left = (representations.amount(value, wallet.asset) for value in (amount, balance))
    data = WalletEvent(wallet_address=work.urls.wallet(wallet.path), amount=moved, balance=left)
    work.emit(f"wallet.{kind}", None, data)


def _change_state(work: Work, path: str, state: str) -> WalletRecord:
    wallet = require_wallet(work, path)
    wallets.set_state(work, wallet.id, state)
    return require_wallet(work, path)
