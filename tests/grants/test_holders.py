"""Holders of tokens are kept in memory until anything changes that they were read from, and no longer."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from payres.clock import DAY, SECOND
from payres.grants import clients
from payres.grants.access import Caller
from payres.grants.gnap import AccessToken, IncomingPaymentAccess
from payres.grants.tokens import Holder, Holders, issue_token, revoke_grant, revoke_token, rotate_token
from payres.operator import keys, wallets
from payres.payments import incoming
from payres.settings import Settings
from payres.signatures.jwk import JWK, encode_jwk, generate_private_key, jwk_from_public_bytes, thumbprint
from payres.store import grants, retention
from payres.store.clients import Client
from payres.store.connections import connect_writer
from payres.store.grants import TOKENS, keep_grant
from payres.store.work import Work
from payres.wire import IncomingPaymentRequest
from tests.works import issued_grant, work_at

START = 1_700_000_000 * SECOND
SETTINGS = Settings(base_url="http://h")
ALICE = Client("http://h/alice", "http://h/alice", None)
REMOTE = Client("https://shop.example", "https://shop.example", None)
CREATE = IncomingPaymentAccess(actions=["create"])
KEY = jwk_from_public_bytes("key", generate_private_key().public_key().public_bytes_raw())
WITHOUT_WALLET = Client(thumbprint(KEY), None, encode_jwk(KEY))


class Granted:
    """A client with a grant to create incoming payments, and one token of it."""

    def __init__(self, work: Work, client: Client, purge_at: int | None = None) -> None:
        self.client_id = clients.remember(work, client).id
        self.grant = issued_grant(work, self.client_id, purge_at)
        self.token: AccessToken = issue_token(work, self.grant)
        self.token_id = self.token.manage.rpartition("/")[2]


@pytest.fixture
def work() -> Iterator[Work]:
    with closing(connect_writer(":memory:")) as connection:
        work = work_at(connection, START, SETTINGS)
        wallets.create_wallet(work, "alice", "USD", 2, None, None)
        keys.add_key(work, "alice", KEY)
        yield work


Change = Callable[[Work, Granted], object]


def find(work: Work, kept: Holders, granted: Granted, *kids: str) -> Holder | None:
    return kept.find(work, granted.token.value, kids or ("key",))


def later(work: Work) -> Work:
    return work_at(work, work.now + SECOND, SETTINGS)


def sql(statement: str) -> Change:
    """What somebody does with a shell of SQLite, where nothing asks whether other rows refer to a row."""

    def change(work: Work, granted: Granted) -> None:
        work.execute("PRAGMA foreign_keys = OFF")
        work.execute(statement)

    return change


def replace_key(work: Work, granted: Granted) -> None:
    keys.revoke_key(work, "alice", "key")
    keys.add_key(work, "alice", jwk_from_public_bytes("key", generate_private_key().public_key().public_bytes_raw()))


def present_key_under_other_kids(work: Work, granted: Granted) -> None:
    """So many that the first kid is no longer known."""
    for number in range(9):
        present_key(work, f"key-{number}")


def present_key(work: Work, kid: str) -> None:
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
    "the key has other kids": (WITHOUT_WALLET, present_key_under_other_kids),
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


def test_what_comes_and_goes_changes_nothing_of_it(work: Work) -> None:
    kept, granted = Holders(), Granted(work, ALICE)
    before = find(work, kept, granted)
    issue_token(work, granted.grant)
    caller = Caller(granted.client_id, granted.grant.id, granted.token_id, "create", (CREATE,))
    caller = caller.about("http://h/alice", work.urls)
    incoming.create(work, caller, IncomingPaymentRequest(wallet_address="http://h/alice"))
    wallets.create_wallet(work, "bob", "USD", 2, None, None)
    for client in (ALICE, REMOTE, WITHOUT_WALLET):
        other = Granted(work, client, purge_at=work.now + SECOND)
        rotate_token(work, other.token_id)
        if client is REMOTE:
            clients.remember_remote_keys(work, REMOTE, [KEY], max_age=None)
            clients.remember_remote_keys(work, REMOTE, [KEY], max_age=None)
        keep_grant(work, other.grant.id)
        purge_at = work_at(work, work.now + DAY, SETTINGS)
        Granted(work, client, purge_at=work.now)
        retention.purge(purge_at, retention.GRANTS, purge_at.now)
    assert find(work, kept, granted) is before is not None


def test_change_that_is_undone_changes_nothing(work: Work) -> None:
    kept, granted = Holders(), Granted(work, ALICE)
    before = find(work, kept, granted)
    work.execute("BEGIN")
    revoke_token(work, granted.token_id)
    work.execute("ROLLBACK")
    assert find(work, kept, granted) is before is not None


def test_revision_never_comes_back(work: Work) -> None:
    """Not even when a change is undone and another one made."""
    granted, seen = Granted(work, ALICE), set()
    for _ in range(20):
        work.execute("BEGIN")
        revoke_token(work, granted.token_id)
        seen.add(grants.authorization_revision(work))
        work.execute("ROLLBACK")
    assert len(seen) == 20


def test_keys_of_other_servers_are_good_for_a_time(work: Work) -> None:
    kept, granted = Holders(), Granted(work, REMOTE)
    clients.remember_remote_keys(work, REMOTE, [KEY], max_age=1)
    fresh, stale = find(work, kept, granted), find(later(work), kept, granted)
    assert fresh is not None
    assert fresh.keys == {"key": KEY}
    assert stale is not None
    assert stale.keys == {}


def test_key_that_was_missing_is_found_once_it_is_there(work: Work) -> None:
    kept, granted = Holders(), Granted(work, ALICE)
    without = find(work, kept, granted, "new")
    keys.add_key(work, "alice", JWK(kid="new", x=generated()))
    found = find(work, kept, granted, "new")
    assert without is not None
    assert found is not None
    assert without.keys.keys() == set()
    assert found.keys.keys() == {"new"}


def test_unknown_token_is_found_once_it_is_there(work: Work) -> None:
    kept, granted = Holders(), Granted(work, ALICE)
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


def generated() -> str:
    return jwk_from_public_bytes("new", generate_private_key().public_key().public_bytes_raw()).x
