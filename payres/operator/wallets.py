"""The operator's rules of wallets: opening, deposits and withdrawals, password, deactivating."""

from payres import ledger
from payres.errors import WrongState, require
from payres.grants.sign_in import hash_password
from payres.operator import movements
from payres.operator.assets import open_asset
from payres.operator.inputs import check_name
from payres.operator.movements import NamedAccount
from payres.store import audit, sessions, wallets
from payres.store.assets import ASSETS
from payres.store.entries import MovementRecord
from payres.store.wallets import WALLETS, WalletRecord
from payres.store.work import Work
from payres.urls import new_wallet_path, require_wallet_path


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
    WALLETS.create(
        work,
        path=clean,
        public_name=public_name,
        asset_id=asset.id,
        account_id=account_id,
        password_hash=password_hash,
        created_at=work.now,
    )
    audit.record(work, "wallet.create", clean, assetCode=asset_code, assetScale=scale, publicName=public_name)
    return require_wallet(work, clean)


def require_wallet(work: Work, path: str) -> WalletRecord:
    """The wallet at a path, active or not. Raises NotFound, InvalidRequest when it is no path."""
    clean = require_wallet_path(path)
    return require(wallets.find_wallet(work, clean), f"There is no wallet {clean}; `payres wallet list` shows all")


def deposit(work: Work, path: str, text: str, reference: str | None = None) -> MovementRecord:
    """Moves an amount such as "100.00" from outside into the wallet.

    Raises NotFound, InvalidAmount, WrongState when the wallet is inactive or another movement has the reference.
    """
    wallet = require_wallet(work, path)
    if not wallet.active:
        raise WrongState(
            f"The wallet {wallet.path} is inactive and takes no money in; activate it first", path=wallet.path
        )
    return movements.move(work, _account(work, wallet), "deposit", text, reference)


def withdraw(work: Work, path: str, text: str, reference: str | None = None) -> MovementRecord:
    """Moves an amount such as "100.00" out of the wallet; an inactive one can still be emptied.

    Raises NotFound, InvalidAmount, InsufficientFunds naming the free balance, WrongState as `deposit` does.
    """
    return movements.move(work, _account(work, require_wallet(work, path)), "withdrawal", text, reference)


def rename(work: Work, path: str, public_name: str | None) -> WalletRecord:
    """Gives the wallet another public name, or none. Raises NotFound, InvalidRequest."""
    wallet = require_wallet(work, path)
    if public_name is not None:
        check_name(public_name, "public")
    WALLETS.update(work, wallet.id, public_name=public_name)
    audit.record(work, "wallet.rename", wallet.path, publicName=public_name)
    return require_wallet(work, path)


def deactivate(work: Work, path: str) -> WalletRecord:
    """Deactivates the wallet address; money and history stay. Raises NotFound."""
    return _change(work, path, "wallet.deactivate", state="inactive")


def activate(work: Work, path: str) -> WalletRecord:
    """Activates the wallet address again. Raises NotFound."""
    return _change(work, path, "wallet.activate", state="active")


def set_password(work: Work, path: str, password_hash: str, forget_browsers: bool = False) -> WalletRecord:
    """Gives the owner a new password (see hash_password) and ends every browser session that the old one opened.

    The counts of wrong passwords are cleared. Browsers stay known unless `forget_browsers`, for when somebody else had
    the password. Raises NotFound.
    """
    wallet = require_wallet(work, path)
    WALLETS.update(work, wallet.id, password_hash=password_hash, unlocked_at=work.now)
    sessions.delete_sessions_of_wallet(work, wallet.id)
    if forget_browsers:
        sessions.delete_browsers_of_wallet(work, wallet.id)
    audit.record(work, "wallet.set_password", wallet.path, forgetBrowsers=forget_browsers)
    return require_wallet(work, path)


def unlock(work: Work, path: str) -> WalletRecord:
    """Clears the counts of wrong passwords, so that the owner can sign in at once. Raises NotFound."""
    return _change(work, path, "wallet.unlock", unlocked_at=work.now)


def _account(work: Work, wallet: WalletRecord) -> NamedAccount:
    asset = ASSETS.by_id(work, wallet.asset_id)
    return NamedAccount(wallet.account_id, asset, "wallet", wallet.path, f"The wallet {wallet.path}")


def _change(work: Work, path: str, action: str, **columns: str | int) -> WalletRecord:
    wallet = require_wallet(work, path)
    WALLETS.update(work, wallet.id, **columns)
    audit.record(work, action, wallet.path)
    return require_wallet(work, path)
