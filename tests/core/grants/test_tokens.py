"""Holders of tokens are kept in memory until anything changes that they were read from, and no longer.

That what has ended permits nothing over HTTP, with requests in progress, is in test_authorize_ended_rights.py.
"""

from collections.abc import Callable

import pytest

from payres.core.grants import clients
from payres.core.grants.access import Holder
from payres.core.grants.tokens import Holders, issue_token, revoke_grant, revoke_token, rotate_token
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SECOND
from payres.core.signatures.jwk import JWK, encode_jwk, thumbprint
from payres.core.store.clients import Client
from payres.core.store.grants import TOKENS
from payres.core.store.work import Work
from payres.operator import keys, wallets
from tests.helpers import last_segment, new_jwk
from tests.works import issued_grant, work_at

SETTINGS = Settings(base_url="http://h")
ALICE = Client("http://h/alice", "http://h/alice", None)
REMOTE = Client("https://shop.example", "https://shop.example", None)
KEY = new_jwk("key")
WITHOUT_WALLET = Client(thumbprint(KEY), None, encode_jwk(KEY))


class Granted:
    """A client with a grant to create incoming payments, and one token of it."""

    def __init__(self, work: Work, client: Client, purge_at: int | None = None) -> None:
        self.client_id = clients.remember(work, client).id
        self.grant = issued_grant(work, self.client_id, purge_at)
        token = issue_token(work, self.grant)
        self.token, self.token_id = token.value, last_segment(token.manage)


@pytest.fixture
def work(tx: Work) -> Work:
    work = work_at(tx, tx.now, SETTINGS)
    wallets.create_wallet(work, "alice", "USD", 2, None, None)
    keys.add_key(work, "alice", KEY)
    return work


def find(work: Work, kept: Holders, granted: Granted, kid: str = "key") -> Holder | None:
    return kept.find(work, granted.token, (kid,))


Change = Callable[[Work, Granted], object]


def sql(statement: str) -> Change:
    """What somebody does with a shell of SQLite, where nothing asks whether other rows refer to a row."""

    def change(work: Work, granted: Granted) -> None:
        work.execute("PRAGMA foreign_keys = OFF")
        work.execute(statement)

    return change


def replace_key(work: Work, granted: Granted) -> None:
    keys.revoke_key(work, "alice", "key")
    keys.add_key(work, "alice", new_jwk("key"))


def present_key(work: Work, *kids: str) -> None:
    for kid in kids:
        clients.remember(work, Client(WITHOUT_WALLET.identity, None, encode_jwk(JWK(kid=kid, x=KEY.x))))


CHANGES: dict[str, tuple[Client, Change]] = {
    "the token is revoked": (ALICE, lambda work, granted: revoke_token(work, granted.token_id)),
    "the token is rotated": (ALICE, lambda work, granted: rotate_token(work, granted.token_id)),
    "the token is ended by hand": (ALICE, sql("UPDATE access_token SET revoked_at = 1")),
    "the token is shortened by hand": (ALICE, sql("UPDATE access_token SET expires_at = 1")),
    "the token is deleted by hand": (ALICE, sql("DELETE FROM access_token")),
    "the grant is revoked": (ALICE, lambda work, granted: revoke_grant(work, granted.grant.id)),
    "the grant is narrowed by hand": (ALICE, sql("UPDATE \"grant\" SET access = '[]'")),
    "the grant is to be purged by hand": (ALICE, sql('UPDATE "grant" SET purge_at = 1')),
    "the grant is deleted by hand": (ALICE, sql('DELETE FROM "grant"')),
    "the client is deleted by hand": (ALICE, sql("DELETE FROM client")),
    "the key is revoked": (ALICE, lambda work, granted: keys.revoke_key(work, "alice", "key")),
    "the key is replaced": (ALICE, replace_key),
    "the key is deleted by hand": (ALICE, sql("DELETE FROM wallet_key")),
    "the wallet is deactivated": (ALICE, lambda work, granted: wallets.deactivate(work, "alice")),
    "the wallet is deleted by hand": (ALICE, sql("DELETE FROM wallet_address")),
    "the key has another kid": (WITHOUT_WALLET, lambda work, granted: present_key(work, "newest")),
    "the key has so many other kids that the first is forgotten": (
        WITHOUT_WALLET,
        lambda work, granted: present_key(work, *map(str, range(9))),
    ),
    "a kid is changed by hand": (WITHOUT_WALLET, sql("UPDATE client_key SET kid = 'other' WHERE kid = 'key'")),
    "a kid is deleted by hand": (WITHOUT_WALLET, sql("DELETE FROM client_key WHERE kid = 'key'")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_read_again(work: Work, change: str) -> None:
    client, make = CHANGES[change]
    kept, granted = Holders(), Granted(work, client)
    if client is WITHOUT_WALLET:  # it uses another kid now, and the first one is still good
        present_key(work, "newer")
    before = find(work, kept, granted)
    assert find(work, kept, granted) is before is not None
    make(work, granted)
    after = find(work, kept, granted)
    assert after != before
    assert after == find(work, Holders(), granted)


def test_keys_of_other_servers_are_good_for_a_time(work: Work) -> None:
    kept, granted = Holders(), Granted(work, REMOTE)
    clients.remember_remote_keys(work, REMOTE, [KEY], max_age=1)
    for now, found in ((work.now, {"key": KEY}), (work.now + SECOND, {})):
        holder = find(work_at(work, now, SETTINGS), kept, granted)
        assert holder is not None
        assert holder.keys == found


def test_what_was_missing_is_found_once_it_is_there(work: Work) -> None:
    kept, granted = Holders(), Granted(work, ALICE)
    without = find(work, kept, granted, "new")
    assert without is not None
    assert not without.keys
    keys.add_key(work, "alice", new_jwk("new"))
    found = find(work, kept, granted, "new")
    assert found is not None
    assert found.keys.keys() == {"new"}
    token = TOKENS.by_id(work, granted.token_id)
    work.execute("DELETE FROM access_token")
    assert find(work, kept, granted) is None
    TOKENS.insert(work, token)
    assert find(work, kept, granted) is not None


def test_standby_keeps_nothing(work: Work) -> None:
    """What is read while Litestream puts pages in their place may be of two states."""
    kept, granted = Holders(), Granted(work, ALICE)
    standby = work_at(work, work.now, Settings(base_url="http://h", read_only=True))
    assert find(standby, kept, granted) is not find(standby, kept, granted)
