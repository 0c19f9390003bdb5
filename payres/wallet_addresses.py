"""Wallet addresses of this server, as requests name them."""

from payres.errors import InvalidRequest
from payres.store.wallets import WalletRecord, find_wallet
from payres.store.work import Work


def active_wallet(work: Work, url: str, field: str = "walletAddress") -> WalletRecord:
    """The active wallet address at `url`. Raises InvalidRequest, naming `field`, when this server has none such."""
    path = work.urls.wallet_path(url)
    wallet = find_wallet(work, path) if path is not None else None
    if wallet is None or not wallet.active:
        raise InvalidRequest(f"{field} is not an active wallet address of this server", field=field)
    return wallet
