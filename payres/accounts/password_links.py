"""Links that sign in once, to set a password; stored as hashes only."""

from collections.abc import Callable

from payres.accounts import second_factors
from payres.accounts.sessions import Browser, HalfSignIn, SignedIn, open_session, wait_for_step
from payres.accounts.store import links
from payres.accounts.store.kinds import Account, Kind
from payres.accounts.store.sign_ins import NOWHERE, Seen
from payres.core.protocol.errors import NotFound
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.work import Work


def make_link(work: Work, kind: Kind, account_id: int) -> tuple[str, int]:
    """A link that sets the account's password once, in place of an earlier one: its secret, and when it expires."""
    secret, expires_at = work.new_secret(), work.now + kind.link_lifetime
    links.replace_link(work, kind, hash_secret(secret), account_id, expires_at)
    return secret, expires_at


def open_link(work: Work, kind: Kind, secret: str) -> Account:
    """The account of a link. Raises NotFound for one that was used, has expired or never existed."""
    account_id = links.account_of_link(work, kind, hash_secret(secret), work.now)
    if account_id is None:
        raise NotFound(f"This link was used or has expired; `{kind.link_command}` makes another")
    return kind.accounts.by_id(work, account_id)


def follow_link(
    work: Work,
    kind: Kind,
    secret: str,
    password_hash: str,
    browser: Browser,
    set_password: Callable[[Work, Account, str], object],
    seen: Seen = NOWHERE,
) -> SignedIn | HalfSignIn:
    """Gives the link's account a new password (see hash_password) and signs in, as far as a password does: it stands in
    for no second factor.

    `set_password` stores it for the account, and ends the link. Raises NotFound as `open_link` does.
    """
    account = open_link(work, kind, secret)
    work.actor = account.actor  # nobody was known before the link was read, and the audit log names its account
    set_password(work, account, password_hash)
    account = kind.accounts.by_id(work, account.id)
    second_factors.remove_if_due(work, kind, account)
    if second_factors.has_factor(work, kind, account.id):
        return wait_for_step(work, kind, account, browser, seen)
    return open_session(work, kind, account, browser, "link", seen=seen)
