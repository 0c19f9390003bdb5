"""Rules of owners' accounts."""

from payres.accounts.notices import mark_of, notify
from payres.accounts.store.owners import OF_OWNERS, OWNERS
from payres.accounts.store.sessions import end_access
from payres.core.store import audit
from payres.core.store.wallets import WalletRecord, require_wallet
from payres.core.store.work import Work


def store_password(work: Work, path: str, password_hash: str, forget_browsers: bool = False) -> WalletRecord:
    """Gives the owner a new password (see hash_password), and ends every browser session under the old one and any link
    that sets a password. The counts of wrong passwords are cleared; second factors stay. Browsers stay known unless
    `forget_browsers`, for when somebody else had the password. Raises NotFound."""
    wallet = require_wallet(work, path)
    mark = mark_of(password_hash)
    notify(work, wallet.owner_id, "password", password=mark)  # while the session is there in which it is done
    OWNERS.update(work, wallet.owner_id, password_hash=password_hash, unlocked_at=work.now, closed_until=None)
    end_access(work, OF_OWNERS, wallet.owner_id, forget_browsers)
    audit.record(work, "wallet.set_password", wallet.path, forgetBrowsers=forget_browsers)
    return require_wallet(work, path)


def close_sign_in(work: Work, owner_id: int) -> None:
    """Ends the password and all that it opened: nobody signs in until a link of an operator sets a new one."""
    OWNERS.update(work, owner_id, password_hash=None, closed_until=work.now)
    end_access(work, OF_OWNERS, owner_id)
