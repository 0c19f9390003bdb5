"""Finding the wallet address that a request names."""

from payres.errors import InvalidRequest
from payres.store import wallets
from payres.store.database import Transaction
from payres.store.wallets import WalletRecord
from payres.urls import Urls


def active_wallet(tx: Transaction, urls: Urls, url: str, field: str = "walletAddress") -> WalletRecord:
    """The active wallet address that `url` names. Refuses with 400 when this server has none such."""
    path = urls.wallet_path(url)
    wallet = wallets.find_wallet(tx, path) if path is not None else None
    if wallet is None or not wallet.active:
        raise InvalidRequest(f"{field} is not an active wallet address of this server", field=field)
    return wallet
