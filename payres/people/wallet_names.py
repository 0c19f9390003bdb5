"""The public name of a wallet, which payers see: its owner gives it another one, or an operator."""

from payres.accounts.notices import notify
from payres.core.protocol.errors import WrongState
from payres.core.store import audit
from payres.core.store.wallets import WALLETS, WalletRecord, name_wallet, read_like
from payres.core.store.work import Work


def rename(work: Work, wallet: WalletRecord, name: str | None) -> None:
    """Gives a wallet another name, or none, and tells its owner. Raises WrongState as check_told_apart does."""
    if name != wallet.public_name:
        check_told_apart(work, name, wallet.owner_id)
    name_wallet(work, wallet.id, wallet.path, name)
    audit.record(work, "wallet.rename", wallet.path, publicName=name or "")
    if name != wallet.public_name:
        notify(work, wallet.owner_id, "wallet_renamed", wallet=wallet.path, name=WALLETS.by_id(work, wallet.id).name)


def check_told_apart(work: Work, name: str | None, owner_id: int) -> None:
    """Raises WrongState if payers can take the name that an owner's wallet is to get for one of another owner."""
    other = read_like(work, name, owner_id) if name else None
    if other is not None:
        sentence = f"The name {name} is read like that of the wallet {other}, which another owner has"
        raise WrongState(f"{sentence}; choose another name", field="publicName", wallet=other)
