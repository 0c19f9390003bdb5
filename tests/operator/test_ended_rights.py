"""A restore makes valid again what was ended since the backup was made: it is listed, or ended again."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from payres.core.grants import tokens
from payres.core.grants.clients import remember
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import DomainError
from payres.core.store.clients import Client
from payres.core.store.connections import connect_writer
from payres.core.store.copies import side_file
from payres.core.store.grants import GrantRecord
from payres.core.store.work import Work
from payres.html.passkeys import remove_passkey
from payres.html.second_factors import new_recovery_codes
from payres.html.sign_in import Browser, follow_link, open_session
from payres.html.store.passkeys import PASSKEYS, PasskeyRecord
from payres.html.store.second_factors import replace_recovery_codes, use_recovery_code
from payres.html.store.sessions import OF_OWNERS, owner_at, owner_of
from payres.operator import api_keys, ended_rights, grants, keys, operators, peers, wallets, webhooks
from payres.operator.backups import BackupError, Comparison, make_backup, restore_backup
from payres.operator.store.operators import OF_OPERATORS
from payres.people.own_wallets import join
from tests.helpers import new_jwk
from tests.versions import make_newest
from tests.works import NOW, InSteps, add_usd_peer, issued_grant, work_at

T = TypeVar("T")
# What is valid of the rights below, by their kinds.
VALID = {
    "grant": "SELECT count(*) FROM \"grant\" WHERE state = 'issued'",
    "token": "SELECT count(*) FROM access_token WHERE revoked_at IS NULL",
    "key": "SELECT count(*) FROM wallet_key WHERE revoked_at IS NULL",
    "apiKey": "SELECT count(*) FROM api_key WHERE revoked_at IS NULL",
    "password": "SELECT group_concat(password_hash) FROM owner",
    "operator": "SELECT group_concat(password_hash) FROM operator WHERE password_hash NOTNULL",
    "wallet": "SELECT count(*) FROM wallet_address WHERE state = 'active'",
    "peer": "SELECT count(*) FROM peer WHERE removed_at IS NULL",
    "peerTokens": "SELECT hex(incoming_token_hash) FROM peer WHERE name = 'second'",
    "webhook": "SELECT count(*) FROM webhook WHERE state = 'active'",
    "passkey": "SELECT count(*) FROM passkey WHERE suspect_at IS NULL",
    "recoveryCodes": "SELECT count(*) FROM recovery_code WHERE used_at IS NULL",
}


def passkey_of(owner_id: int) -> PasskeyRecord:
    return PasskeyRecord(f"of {owner_id}", b"handle", b"%d" % owner_id, b"", 1, 0, [], "Pixel 9", NOW, owner_id)


class Books:
    """A database, on which time moves on by a second with each unit; and a grant with two tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = NOW
        self.grants: list[GrantRecord] = []

    def write(self, unit: Callable[[Work], T]) -> T:
        self.now += SECOND
        with closing(connect_writer(str(self.path))) as connection:
            connection.execute("BEGIN")
            result = unit(work_at(connection, self.now))
            connection.execute("COMMIT")
        return result

    def rows(self, query: str) -> list[Any]:
        return self.write(lambda work: work.execute(query).fetchall())

    def valid(self) -> dict[str, Any]:
        return {kind: self.rows(query)[0][0] for kind, query in VALID.items()}

    def open(self, work: Work) -> None:
        for name in ("alice", "bob"):
            wallet = wallets.create_wallet(work, name, "USD", 2, None, f"first of {name}")
            open_session(work, OF_OWNERS, owner_of(work, wallet.id), Browser())
            keys.add_key(work, name, new_jwk("key-1"))
            if name == "alice":
                PASSKEYS.insert(work, passkey_of(wallet.owner_id))
            else:
                replace_recovery_codes(work, OF_OWNERS, wallet.owner_id, [b"used", b"unused"], work.now)
            api_keys.create_api_key(work, name, ["wallets:read"], None)
            webhooks.add(work, f"https://{name}.example")
            secret = operators.make_link(work, name).url.rpartition("/")[2]
            follow_link(work, OF_OPERATORS, secret, f"first of {name}", Browser(), operators.set_password)
        client = remember(work, Client("https://shop.example", "https://shop.example", None))
        self.grants = [issued_grant(work, client.id) for _ in range(2)]
        for grant in self.grants:
            for _ in range(2):
                tokens.issue_token(work, grant)
        wallets.make_password_link(work, "bob")
        operators.make_link(work, "carol", read_only=False)
        for name in ("first", "second", "third"):
            add_usd_peer(work, name, incoming_token=name)

    def end(self, work: Work) -> None:
        """Ends one of each kind, and a token of each grant."""
        grants.revoke(work, self.grants[0].id)
        (token,) = work.execute("SELECT id FROM access_token WHERE grant_id = ?", (self.grants[1].id,)).fetchone()
        tokens.rotate_token(work, token)
        keys.revoke_key(work, "alice", "key-1")
        api_keys.revoke_api_key(work, api_keys.list_api_keys(work)[0].id)
        wallets.store_password(work, "alice", "second of alice")
        operators.make_link(work, "alice", read_only=True)
        wallets.deactivate(work, "bob")
        bob = owner_of(work, wallets.require_wallet(work, "bob").id)
        assert use_recovery_code(work, OF_OWNERS, bob.id, b"used", work.now)
        owner = owner_of(work, wallets.require_wallet(work, "alice").id)
        remove_passkey(work, OF_OWNERS, owner, passkey_of(owner.id).id)
        peers.remove_peer(work, "first")
        peers.change_peer(work, "second", incoming_token="other", outgoing_token="other")


@pytest.fixture
def books(tmp_path: Path) -> Books:
    books = Books(tmp_path / "payres.db")
    books.write(books.open)
    return books


@pytest.fixture
def backup(books: Books, tmp_path: Path) -> Path:
    return make_backup(books.path, tmp_path / "backup.db", False, NOW).path


@pytest.fixture
def ended(books: Books, backup: Path) -> Path:
    """The backup, once all that could end has ended in the database."""
    books.write(books.end)
    [(webhook,)] = books.rows("SELECT id FROM webhook WHERE url = 'https://alice.example'")
    asyncio.run(webhooks.remove(InSteps(books.write), webhook))
    return backup


def restore(books: Books, source: Path, *, carry_over: bool = False, other: Path | None = None) -> Comparison:
    left: list[str] = []

    def finish(tx: sqlite3.Connection, comparison: Comparison) -> None:
        if carry_over:
            left.extend(ended_rights.end_again(work_at(tx, books.now), comparison.ended))

    books.now += SECOND
    found = restore_backup(source, books.path, books.now, finish, other).comparison
    assert left == []
    return found


def test_restore_tells_each_right_that_it_makes_valid_again(books: Books, ended: Path) -> None:
    after = books.valid()
    found = restore(books, ended)
    assert found.unknown is None
    assert {one.kind: one.name for one in found.ended} == {
        "grant": books.grants[0].id,
        "token": books.grants[1].id,
        "key": "key-1",
        "apiKey": books.rows("SELECT max(id) FROM api_key")[0][0],
        "password": "alice",
        "operator": "alice",
        "wallet": "bob",
        "peer": "first",
        "peerTokens": "second",
        "webhook": books.rows("SELECT id FROM webhook WHERE url = 'https://alice.example'")[0][0],
        "passkey": "of 1",
        "recoveryCodes": "bob",
    }
    assert len(found.ended) == len(VALID)
    now = books.valid()
    assert not [kind for kind in VALID if now[kind] == after[kind]]
    said = ended_rights.lines(found.ended)
    assert f"    {books.grants[0].id}  of https://shop.example" in said
    assert not [one for one in said if books.rows("SELECT id FROM access_token")[0][0] in one], "it rotates the token"


def test_what_is_carried_over_ends_as_it_ended_first(books: Books, ended: Path) -> None:
    after = books.valid()
    restore(books, ended, carry_over=True)
    now = books.valid()
    assert now.pop("token") == after.pop("token") - 1, "the new one of the rotation is lost"
    assert now == after
    actions = {row[0] for row in books.rows("SELECT action FROM audit ORDER BY id DESC LIMIT 10")}
    assert {"grant.revoke", "key.revoke", "api_key.revoke", "wallet.set_password", "wallet.deactivate"} <= actions
    assert {"admin.lock_out", "peer.remove", "peer.change", "webhook.disable"} <= actions


def test_comparison_with_the_database_that_an_earlier_restore_replaced(books: Books, ended: Path) -> None:
    after = books.valid()
    books.now += SECOND
    replaced = restore_backup(ended, books.path, books.now).replaced
    assert not restore(books, ended).ended, "the restored database knows nothing of it"
    assert len(restore(books, ended, carry_over=True, other=replaced).ended) == len(VALID)
    assert books.valid()["grant"] == after["grant"]


def test_nothing_is_said_of_what_is_newer_in_the_backup(books: Books, ended: Path, tmp_path: Path) -> None:
    """The database that is replaced may be the older one."""
    bob = books.write(lambda work: owner_of(work, wallets.require_wallet(work, "bob").id))
    books.write(lambda work: replace_recovery_codes(work, OF_OWNERS, bob.id, [b"newer"], work.now))
    newer = make_backup(books.path, tmp_path / "newer.db", False, NOW).path
    restore(books, ended)
    assert restore(books, newer) == Comparison([])


def test_recovery_codes_that_were_replaced_since_have_ended(books: Books, backup: Path) -> None:
    def replace(work: Work) -> None:
        bob = owner_at(work, "bob")
        assert bob is not None
        PASSKEYS.insert(work, passkey_of(bob.id))
        new_recovery_codes(work, OF_OWNERS, bob)

    books.write(replace)
    found = restore(books, backup, carry_over=True)
    assert [(one.kind, one.about) for one in found.ended] == [("recoveryCodes", "2 used or replaced")]
    assert books.valid()["recoveryCodes"] == 0


def test_token_that_was_deleted_since_has_ended(books: Books, backup: Path) -> None:
    def rotate(work: Work) -> None:
        [token] = work.execute(
            "SELECT id FROM access_token WHERE grant_id = ? AND revoked_at IS NULL ORDER BY created_at LIMIT 1",
            (books.grants[0].id,),
        ).fetchone()
        tokens.rotate_token(work, token)

    for _ in range(20):  # both in turn
        books.write(rotate)
    assert [one.kind for one in restore(books, backup).ended] == ["token"] * 2


def test_everybody_is_signed_out_and_links_end(books: Books, backup: Path) -> None:
    counts = [f"SELECT count(owner_id), count(operator_id) FROM {one}" for one in ("session", "password_link")]
    assert books.rows(" UNION ALL ".join(counts)) == [(2, 2), (1, 1)]
    browsers = "SELECT count(*), count(trusted_until) FROM known_browser"
    [(known, trusted)] = books.rows(browsers)
    assert known == trusted > 0
    restore(books, backup)
    assert books.rows(" UNION ALL ".join(counts)) == [(0, 0)] * 2
    assert books.rows(browsers) == [(known, 0)], "nobody is locked out by guesses, and no trust returns"


def test_peer_that_cannot_be_removed_has_a_token_that_nobody_knows(books: Books, backup: Path) -> None:
    books.write(lambda work: peers.remove_peer(work, "first"))
    found = restore(books, backup)
    with closing(connect_writer(str(books.path))) as connection:
        work = work_at(connection, books.now)
        wallets.deposit(work, "alice", "1.00")
        connection.execute(
            "UPDATE account SET balance = 5 WHERE id = (SELECT account_id FROM peer WHERE name = 'first')"
        )
        [left] = ended_rights.end_again(work, found.ended)
        assert left.startswith("The peer first has a new incoming token that nobody knows, but is not removed.")
        with pytest.raises(DomainError, match="has this incoming token"):
            peers.change_peer(work, "second", incoming_token="third")
        peers.change_peer(work, "second", incoming_token="first")


@pytest.mark.parametrize("content", ["another", "damaged", "none"])
def test_what_cannot_be_compared_is_said(books: Books, backup: Path, tmp_path: Path, content: str) -> None:
    other = tmp_path / "other.db"
    if content == "another":
        make_newest(other)
    elif content == "damaged":
        other.write_bytes(b"nothing that SQLite reads" * 100)
    with pytest.raises(BackupError, match="Nothing was replaced"):
        restore_backup(backup, books.path, books.now, compare_with=other)
    found = restore_backup(backup, other, books.now).comparison
    assert not found.ended
    assert {
        "another": f"{other} is another database",
        "damaged": f"{other} cannot be compared",
        "none": "There is no other database",
    }[content] in (found.unknown or "")


def test_database_of_an_older_version_is_compared(books: Books, ended: Path, second_version: int) -> None:
    assert second_version
    assert len(restore(books, ended).ended) == len(VALID)


def test_reading_what_was_not_closed_changes_nothing_of_it(books: Books, ended: Path) -> None:
    log = side_file(books.path, "-wal")
    log.write_bytes(b"a log that does not belong to it")
    books.now += SECOND
    replaced = restore_backup(ended, books.path, books.now).replaced
    assert replaced is not None
    assert len(restore(books, ended, other=replaced).ended) == len(VALID)


@pytest.mark.parametrize(
    ("end", "about"),
    [
        (lambda work: operators.remove_operator(work, "alice"), "was removed"),
        (lambda work: operators.set_role(work, "alice", "read-only"), "the earlier password or role"),
    ],
)
def test_operator_who_was_removed_or_limited_is_so_again(
    books: Books, backup: Path, end: Callable[[Work], object], about: str
) -> None:
    books.write(end)
    operators_after = books.rows("SELECT name, role, password_hash FROM operator")
    assert [(one.name, one.about) for one in restore(books, backup).ended] == [("alice", about)]
    assert books.rows("SELECT role FROM operator WHERE name = 'alice'") == [("full",)]
    books.write(end)
    restore(books, backup, carry_over=True)
    assert books.rows("SELECT name, role, password_hash FROM operator") == operators_after


def test_passkey_that_may_have_been_copied_is_suspect_again(books: Books, backup: Path) -> None:
    [passkey] = books.write(lambda work: PASSKEYS.list(work, "ORDER BY id"))
    books.write(lambda work: PASSKEYS.update(work, passkey.id, suspect_at=NOW))
    [found] = restore(books, backup, carry_over=True).ended
    assert (found.kind, found.name, found.about) == ("passkey", passkey.id, "of alice")
    assert books.write(lambda work: PASSKEYS.by_id(work, passkey.id)).suspect_at == NOW


def test_password_of_an_owner_with_several_wallets_is_listed_and_ended_once(books: Books, tmp_path: Path) -> None:
    books.write(lambda work: wallets.create_wallet(work, "a-second", "USD", 2, None, None, "alice"))
    backup = make_backup(books.path, tmp_path / "backup.db", False, NOW).path
    books.write(lambda work: wallets.store_password(work, "alice", "second of alice"))
    books.write(lambda work: wallets.store_password(work, "a-second", "newest of a-second"))
    found = restore(books, backup, carry_over=True)
    assert [(one.kind, one.name) for one in found.ended] == [("password", "a-second")]
    passwords = "SELECT password_hash FROM owner o JOIN wallet_address w ON w.owner_id = o.id ORDER BY w.path"
    assert books.rows(passwords) == [("newest of a-second",), ("newest of a-second",), ("first of bob",)]


def test_password_that_ended_with_its_owner_is_not_valid_again(books: Books, backup: Path) -> None:
    """Bob's wallet was connected to Alice's, who changed the password then: the restored owners are two again."""

    def unit(work: Work) -> None:
        alice, bob = owner_at(work, "alice"), owner_at(work, "bob")
        assert alice is not None
        assert bob is not None
        join(work, alice, "bob", bob)
        wallets.store_password(work, "alice", "second of alice")

    books.write(unit)
    found = restore(books, backup, carry_over=True)
    assert [(one.kind, one.name) for one in found.ended] == [("password", "alice"), ("password", "bob")]
    assert books.rows("SELECT DISTINCT password_hash FROM owner") == [("second of alice",)]
