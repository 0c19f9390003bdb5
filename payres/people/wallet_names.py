"""The public name of a wallet, which payers see: its owner gives it another one, or an operator."""

import re
import unicodedata

from payres.accounts.notices import notify
from payres.core.protocol.errors import WrongState
from payres.core.protocol.visible import as_read, readings
from payres.core.store import audit
from payres.core.store.wallets import WALLETS, WalletRecord, name_wallet, read_like
from payres.core.store.work import Work
from payres.html.settings import PageSettings


def rename(work: Work, wallet: WalletRecord, name: str | None) -> None:
    """Gives a wallet another name, or none, and tells its owner. Raises WrongState as check_told_apart does."""
    if name != wallet.public_name:
        check_told_apart(work, name, wallet.owner_id)
    name_wallet(work, wallet.id, wallet.path, name)
    audit.record(work, "wallet.rename", wallet.path, publicName=name or "")
    if name != wallet.public_name:
        notify(work, wallet.owner_id, "wallet_renamed", wallet=wallet.path, name=WALLETS.by_id(work, wallet.id).name)


def choose(work: Work, wallet: WalletRecord, name: str) -> None:
    """The same by its owner, who may not take the server's own name; an operator may, for a wallet of the provider.
    Raises WrongState as `rename` does."""
    own = as_read(work.settings.of(PageSettings).name)
    if name != wallet.public_name and own in readings(name):
        raise WrongState(f"The name {name} is read like that of this server; choose another name", field="publicName")
    rename(work, wallet, name)


def check_told_apart(work: Work, name: str | None, owner_id: int) -> None:
    """Raises WrongState if payers can take the name that an owner's wallet is to get for one of another owner, or for
    an address of this server."""
    if not name:
        return
    other = read_like(work, name, owner_id)
    if other is not None:
        sentence = f"The name {name} is read like that of the wallet {other}, which another owner has"
        raise WrongState(f"{sentence}; choose another name", field="publicName", wallet=other)
    if _is_address(work, name):
        sentence = f"The name {name} is read like an address of this server"
        raise WrongState(f"{sentence}; choose another name", field="publicName")


def _is_address(work: Work, name: str) -> bool:
    """Whether a name is read like the server's host, or has it in it as a URL or a mail address does."""
    hosts = {as_read(work.urls.host), as_read(work.urls.base.partition("://")[2])}
    pieces = re.split(r"[^\w.-]+", unicodedata.normalize("NFKD", name))
    return any(not hosts.isdisjoint(readings(one)) for one in (name, *(one for one in pieces if "." in one)))
