"""A restore makes valid again what was ended since the backup was made: it is listed, or ended again."""

import base64
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from payres.accounts import notices, owners, second_factors, second_step, totp
from payres.accounts.passkeys import PASSKEYS
from payres.accounts.password_links import follow_link
from payres.accounts.recovery_codes import RECOVERY
from payres.accounts.second_factors import new_recovery_codes, remove_step
from payres.accounts.sessions import Browser, HalfSignIn, SignedIn, begin, open_session
from payres.accounts.store.browsers import insert_browser
from payres.accounts.store.codes import replace_recovery_codes, use_recovery_code
from payres.accounts.store.kinds import Kind
from payres.accounts.store.mail import MAILS
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, keep_closed, owner_at, owner_of
from payres.accounts.store.passkeys import PASSKEY_TABLE, PasskeyRecord
from payres.accounts.store.sign_ins import NOWHERE
from payres.accounts.totp import CODES, WRONG_CODE
from payres.core.grants import tokens
from payres.core.grants.clients import remember
from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.errors import DomainError
from payres.core.protocol.event_types import WebhookEvent
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.audit import record
from payres.core.store.clients import Client
from payres.core.store.connections import connect_writer
from payres.core.store.copies import change as change_copy
from payres.core.store.copies import side_file
from payres.core.store.events import last_sequence
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.wallets import WALLETS, require_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from payres.operator import api_keys, clients, grants, keys, operators, peers, wallets, webhooks
from payres.operator.separations import separate
from payres.operator.store.api_keys import API_KEYS
from payres.operator.store.operators import OF_OPERATORS, OPERATORS, OperatorRecord
from payres.operator.store.restored_rights import ENDED
from payres.operator.upkeep import restored_rights
from payres.operator.upkeep.backup_and_restore import BackupError, Comparison, make_backup, restore_backup
from payres.people import standing_orders
from payres.people.store.standing_orders import ORDERS
from payres.webhooks.store.webhooks import WEBHOOKS
from tests.helpers import ROOT, new_jwk
from tests.people.test_own_wallets import join_in_time
from tests.versions import make_newest
from tests.works import NOW, add_usd_peer, in_steps, issued_grant, standing_order, work_at

T = TypeVar("T")
GRANT: Final = "state IN ('revoked', 'denied') FROM \"grant\" ORDER BY id LIMIT 1 OFFSET {}"
ADDRESS: Final = "email FROM mail_address WHERE owner_id = {}"


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
        return self.write(
            lambda work: {case: work.execute(f"SELECT {of}").fetchall() for case, (_, of) in CASES.items()}
        )

    def open(self, work: Work) -> None:
        for name in ("alice", "bob", "dora"):
            wallet = wallets.create_wallet(work, name, "USD", 2, None, f"first of {name}")
            if name == "dora":
                wallets.create_wallet(work, "second", "USD", 2, None, None, "dora")
                continue
            open_session(work, OF_OWNERS, owner_of(work, wallet.id), Browser())
            take_address(work, name, f"{name}@mail.example")
            times = {"next_window": 1, "next_at": work.now + DAY}
            ORDERS.insert(work, standing_order(wallet.id, "https://b.example/b", id=name, **times))
            keys.add_key(work, name, new_jwk("key-1"))
            if name == "alice":
                PASSKEY_TABLE.insert(work, passkey_of(wallet.owner_id))
            else:
                replace_recovery_codes(work, OF_OWNERS, wallet.owner_id, [b"used", b"unused"], work.now)
            api_keys.create_api_key(work, name, ["wallets:read"], None)
            webhooks.add(work, f"https://{name}.example")
            secret = operators.make_link(work, name).url.rpartition("/")[2]
            follow_link(work, OF_OPERATORS, secret, f"first of {name}", Browser(), operators.set_password)
        client = remember(work, Client("https://shop.example", "https://shop.example", None))
        self.grants = [issued_grant(work, client.id) for _ in range(4)]
        for grant in self.grants[:2]:
            for _ in range(2):
                tokens.issue_token(work, grant)
        for grant, state in zip(self.grants[2:], ("approved", "pending"), strict=True):
            GRANTS.update(work, grant.id, state=state)
        webhooks.add(work, "https://third.example")
        webhooks.add(work, "https://gone.example")
        WEBHOOKS.update(work, webhook_of(work, "gone"), state="disabled")  # it answered 410
        turn_codes_on(work, OF_OWNERS, owner(work, "alice"))
        for number in (1, 2):
            WALLETS.update(work, number, asked_above=5000)
        wallets.make_password_link(work, "bob")
        operators.make_link(work, "carol")
        for name in ("first", "second", "third"):
            add_usd_peer(work, name, "100", incoming_token=name)


def owner(work: Work, path: str) -> OwnerRecord:
    found = owner_at(work, path)
    assert found is not None
    return found


def take_address(work: Work, path: str, email: str) -> None:
    """The owner confirms an address for notices."""
    language = Language("en", work.now)
    notices.ask(work, owner(work, path).id, email, language)
    assert notices.confirm(work, owner(work, path).id, MAILS.list(work, "ORDER BY id")[-1].data["code"], language)
    record(work, "wallet.change_notices", path)


def forget_address(work: Work, path: str) -> None:
    notices.forget(work, owner(work, path).id)
    record(work, "wallet.change_notices", path)


def turn_codes_on(work: Work, kind: Kind, account: OwnerRecord | OperatorRecord) -> None:
    totp.begin_codes(work, kind, account.id)
    secret = base64.b32decode(str(totp.unconfirmed_secret(work, kind, account.id)))
    code = totp.code_at(secret, work.now // totp.STEP)
    assert totp.confirm_codes(work, kind, account, code)


def close_sign_in(work: Work) -> None:
    """As the link in a mail does."""
    owners.close_sign_in(work, owner(work, "bob").id)
    record(work, "wallet.not_me", "bob")


def keep_out(work: Work) -> None:
    """As the link in a mail does."""
    keep_closed(work, owner(work, "dora").id, work.now)
    record(work, "wallet.not_me", "dora")


def guard(work: Work) -> None:
    """With codes, and recovery codes."""
    turn_codes_on(work, OF_OWNERS, owner(work, "dora"))
    new_recovery_codes(work, OF_OWNERS, owner(work, "dora"))


def make_codes_anew(work: Work) -> None:
    remove_step(work, OF_OWNERS, owner(work, "alice"), CODES)
    turn_codes_on(work, OF_OWNERS, owner(work, "alice"))


def add_passkey(work: Work) -> None:
    dora = owner(work, "dora")
    PASSKEY_TABLE.insert(work, passkey_of(dora.id))
    second_step.record(work, OF_OWNERS, dora, "passkey_added", name="Pixel 9")


def webhook_of(work: Work, name: str) -> str:
    [found] = WEBHOOKS.list(work, "WHERE url = ?", f"https://{name}.example")
    return found.id


def revoke_token(work: Work) -> None:
    (token,) = work.execute("SELECT id FROM access_token WHERE grant_id = ?", (grant(work, 1),)).fetchone()
    tokens.revoke_token(work, token)


def grant(work: Work, number: int) -> str:
    return GRANTS.list(work, "ORDER BY id")[number].id


# By the kinds of `ENDED`, before a comma if there are several: what an owner or operator does after the backup, and
# what is compared of the databases.
CASES: Final[Mapping[str, tuple[Callable[[Work], object], str]]] = {
    "grant": (lambda work: grants.revoke(work, grant(work, 0)), GRANT.format(0)),
    "grant, that was only approved": (lambda work: grants.revoke(work, grant(work, 2)), GRANT.format(2)),
    "grant, that was asked for": (lambda work: GRANTS.update(work, grant(work, 3), state="denied"), GRANT.format(3)),
    "token": (revoke_token, "count(*) FROM access_token WHERE revoked_at IS NULL"),
    "key": (lambda work: keys.revoke_key(work, "alice", "key-1"), "count(revoked_at) FROM wallet_key"),
    "apiKey": (
        lambda work: api_keys.revoke_api_key(work, API_KEYS.list(work, "ORDER BY id DESC")[0].id),
        "count(revoked_at) FROM api_key",
    ),
    "separation": (
        lambda work: separate(work, "second", "its owner called"),
        "count(DISTINCT owner_id) FROM wallet_address",
    ),
    "password": (lambda work: owners.store_password(work, "alice", "second of alice"), "password_hash FROM owner"),
    "password, of who closed the sign-in": (close_sign_in, "password_hash, closed_until NOTNULL FROM owner"),
    "keptOut": (keep_out, "closed_until FROM owner WHERE id = 3"),
    "operator": (lambda work: operators.make_link(work, "alice", role="reads"), "name, password_hash FROM operator"),
    "wallet": (lambda work: wallets.deactivate(work, "bob"), "state FROM wallet_address"),
    "frozenClient": (lambda work: clients.freeze(work, "https://shop.example/"), "client FROM frozen_client"),
    "peer": (lambda work: peers.remove_peer(work, "first"), "count(removed_at) FROM peer"),
    "peerTokens": (
        lambda work: peers.change_peer(work, "second", incoming_token="other", outgoing_token="other"),
        "incoming_token_hash FROM peer WHERE name = 'second'",
    ),
    "peerTokens, the URL": (
        lambda work: peers.change_peer(work, "third", url="https://moved.example/ilp"),
        "url FROM peer WHERE name = 'third'",
    ),
    "peerLimits": (
        lambda work: peers.change_peer(work, "second", credit_limit="50"),
        "floor FROM account WHERE kind = 'peer'",
    ),
    "peerLimits, of packets": (
        lambda work: peers.change_peer(work, "third", max_packet=7),
        "max_packet FROM peer WHERE name = 'third'",
    ),
    "webhook": (
        lambda work: in_steps(webhooks.remove, work, webhook_of(work, "alice")),
        "count(*) FROM webhook WHERE url = 'https://alice.example'",
    ),
    "webhook, that was disabled": (
        lambda work: in_steps(webhooks.remove, work, webhook_of(work, "gone")),
        "count(*) FROM webhook WHERE url = 'https://gone.example'",
    ),
    "webhook, paused": (
        lambda work: webhooks.pause(work, webhook_of(work, "third")),
        "state FROM webhook WHERE url = 'https://third.example'",
    ),
    "webhook, with another secret": (
        lambda work: webhooks.rotate(work, webhook_of(work, "bob")),
        "secret, previous_secret, previous_until FROM webhook WHERE url = 'https://bob.example'",
    ),
    "standingOrder": (
        lambda work: standing_orders.end(work, require_wallet(work, "alice"), "alice"),
        "state, ended_at, next_at FROM standing_order WHERE id = 'alice'",
    ),
    "standingOrder, paused": (
        lambda work: standing_orders.pause(work, require_wallet(work, "bob"), "bob"),
        "state, ended_at, next_at FROM standing_order WHERE id = 'bob'",
    ),
    "askedAbove": (
        lambda work: WALLETS.update(work, 1, asked_above=100),
        "asked_above FROM wallet_address WHERE id = 1",
    ),
    "askedAbove, always": (
        lambda work: WALLETS.update(work, 2, asked_above=None),
        "asked_above FROM wallet_address WHERE id = 2",
    ),
    "mailAddress": (lambda work: take_address(work, "alice", "new@mail.example"), ADDRESS.format(1)),
    "mailAddress, taken away": (lambda work: forget_address(work, "bob"), ADDRESS.format(2)),
    "mailAddress, the first": (lambda work: take_address(work, "dora", "dora@mail.example"), ADDRESS.format(3)),
    "passkey": (
        lambda work: remove_step(work, OF_OWNERS, owner(work, "alice"), PASSKEYS, "of 1"),
        "id FROM passkey WHERE owner_id = 1",
    ),
    "recoveryCodes": (
        lambda work: use_recovery_code(work, OF_OWNERS, owner(work, "bob").id, b"used", work.now),
        "count(*) FROM recovery_code WHERE used_at IS NULL AND owner_id = 2",
    ),
    "codes": (
        guard,
        "t.secret, r.hash FROM recovery_code r LEFT JOIN totp t USING (owner_id) WHERE owner_id = 3 ORDER BY hash",
    ),
    "codes, made anew": (make_codes_anew, "secret FROM totp WHERE owner_id = 1"),
    "codes, of an operator": (
        lambda work: turn_codes_on(work, OF_OPERATORS, OPERATORS.by_id(work, 2)),
        "operator_id, secret FROM totp WHERE operator_id > 0",
    ),
    "newPasskey": (add_passkey, "name, credential_id FROM passkey WHERE owner_id = 3"),
}
KINDS: Final = {case.partition(",")[0] for case in CASES}
# By the tables of `BY_RESTORE`: what the backup has besides, and a query of how many rows a restore has still to end.
ENDED_BY_RESTORE: Final[Mapping[str, tuple[str, str]]] = {
    "session": ("", "SELECT count(*) FROM session"),
    "half_sign_in": (
        "INSERT INTO half_sign_in (id_hash, owner_id, wallet_address_id, created_at, expires_at)"
        " VALUES (x'01', 1, 1, 1, 1)",
        "SELECT count(*) FROM half_sign_in",
    ),
    "password_link": ("", "SELECT count(*) FROM password_link"),
    "wallet_join": (
        "INSERT INTO wallet_join (wallet_address_id, owner_id, due_at, purge_at) VALUES (2, 1, 1, 1)",
        "SELECT count(*) FROM wallet_join",
    ),
    "factor_removal": (
        "INSERT INTO factor_removal (owner_id, asked_at, due_at) VALUES (1, 1, 1)",
        "SELECT count(*) FROM factor_removal",
    ),
    "known_browser": ("", "SELECT count(trusted_until) FROM known_browser"),
    "standing_order_run": (
        "INSERT INTO standing_order_run (order_id, window, window_at, state, retry_at)"
        " VALUES ('alice', 0, 1, 'waiting', 1)",
        "SELECT count(*) FROM standing_order_run WHERE state = 'waiting'",
    ),
    "standing_order": ("", "SELECT count(*) FROM standing_order WHERE not_before = 0"),
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """What each test gets a copy of."""
    books = Books(tmp_path_factory.mktemp("opened") / "payres.db")
    books.write(books.open)
    make_backup(books.path, books.path.with_name("backup.db"), False, NOW)
    return books


@pytest.fixture
def books(opened: Books, tmp_path: Path) -> Books:
    books = copy(opened)
    books.path = Path(shutil.copy(opened.path, tmp_path))
    return books


@pytest.fixture
def backup(opened: Books, tmp_path: Path) -> Path:
    return Path(shutil.copy(opened.path.with_name("backup.db"), tmp_path))


@pytest.fixture
def ended(books: Books, backup: Path) -> Path:
    """The backup, once all that could end has ended in the database."""
    for change, _ in CASES.values():
        books.write(change)
    return backup


def restore(books: Books, source: Path, *, carry_over: bool = False, other: Path | None = None) -> Comparison:
    left: list[str] = []

    def finish(tx: sqlite3.Connection, comparison: Comparison) -> None:
        if carry_over:
            left.extend(restored_rights.end_again(work_at(tx, books.now), comparison.ended))

    books.now += SECOND
    found = restore_backup(source, books.path, books.now, finish, other).comparison
    assert left == []
    return found


@pytest.mark.parametrize("case", CASES)
def test_restore_tells_what_has_ended_since_and_ends_it_again(books: Books, backup: Path, case: str) -> None:
    kind, (change, compared) = case.partition(",")[0], CASES[case]
    before = books.rows(f"SELECT {compared}")
    books.write(change)
    after = books.rows(f"SELECT {compared}")
    books.now += SECOND
    first = restore_backup(backup, books.path, books.now)
    assert [one.kind for one in first.comparison.ended] == [kind]
    assert books.rows(f"SELECT {compared}") == before != after
    [found] = restore(books, backup, carry_over=True, other=first.replaced).ended
    assert books.rows(f"SELECT {compared}") == after
    assert f"  {restored_rights.KINDS[kind][0]}: 1" in restored_rights.lines([found])
    assert found.name not in {token for (token,) in books.rows("SELECT id FROM access_token")}, "it rotates the token"


def test_each_kind_has_its_query_its_words_its_end_and_a_case() -> None:
    assert restored_rights.KINDS.keys() == ENDED.keys() == KINDS
    document = (ROOT / "docs/how-to/backup.md").read_text(encoding="utf-8")
    assert {noun for noun, _ in restored_rights.KINDS.values()} <= {
        *re.findall(r"^\| ([^|]+) \|", document, re.MULTILINE)
    }


def test_all_together_ends_as_it_ended_first(books: Books, ended: Path) -> None:
    after = books.valid()
    found = restore(books, ended, carry_over=True).ended
    assert {one.kind for one in found} == KINDS
    assert [one for one in found if re.search("earlier|higher", one.about)] == [], "which is not so by now"
    assert books.valid() == after
    actions = {row[0] for row in books.rows("SELECT action FROM audit ORDER BY id DESC LIMIT 40")}
    assert {"grant.revoke", "key.revoke", "api_key.revoke", "wallet.set_password", "wallet.deactivate"} <= actions
    assert {
        "admin.lock_out",
        "peer.remove",
        "peer.change",
        "webhook.change",
        "order.change",
        "wallet.ask_above",
    } <= actions


def test_comparison_with_the_database_that_an_earlier_restore_replaced(books: Books, ended: Path) -> None:
    after = books.valid()
    books.now += SECOND
    replaced = restore_backup(ended, books.path, books.now).replaced
    assert not restore(books, ended).ended, "the restored database knows nothing of it"
    assert len(restore(books, ended, carry_over=True, other=replaced).ended) == len(CASES)
    assert books.valid()["grant"] == after["grant"]


def test_sequences_of_events_that_are_lost_are_not_used_again(books: Books, backup: Path) -> None:
    def emit(work: Work) -> int:
        work.emit("webhook.test", "1", WebhookEvent(webhook="1", url="https://a.example"))
        return last_sequence(work)

    lost = books.write(emit)
    restore(books, backup)
    assert books.write(emit) == lost + 1


def test_nothing_is_said_of_what_is_newer_in_the_backup(books: Books, ended: Path, tmp_path: Path) -> None:
    """The database that is replaced may be the older one."""
    bob = books.write(lambda work: owner_of(work, require_wallet(work, "bob").id))
    books.write(lambda work: replace_recovery_codes(work, OF_OWNERS, bob.id, [b"newer"], work.now))
    newer = make_backup(books.path, tmp_path / "newer.db", False, NOW).path
    restore(books, ended)
    assert restore(books, newer).ended == []


def test_nothing_is_said_of_what_was_turned_off_or_resumed_in_the_newer_backup(books: Books, tmp_path: Path) -> None:
    def begin_all(work: Work) -> None:
        turn_codes_on(work, OF_OWNERS, owner(work, "bob"))
        standing_orders.pause(work, require_wallet(work, "bob"), "bob")
        webhooks.pause(work, webhook_of(work, "third"))

    def undo_all(work: Work) -> None:
        remove_step(work, OF_OWNERS, owner(work, "bob"), CODES)
        standing_orders.resume(work, require_wallet(work, "bob"), "bob")
        webhooks.resume(work, webhook_of(work, "third"))

    backups = []
    for change in (begin_all, undo_all):
        books.write(change)
        backups.append(make_backup(books.path, tmp_path / f"{change.__name__}.db", False, NOW).path)
    restore(books, backups[0])
    assert restore(books, backups[1]).ended == []


def test_nothing_is_said_of_factors_that_are_not_taken(books: Books, backup: Path) -> None:
    """Codes that were turned off again and wait to be confirmed, and a passkey that may have been copied."""

    def change(work: Work) -> None:
        make_codes_anew(work)
        remove_step(work, OF_OWNERS, owner(work, "alice"), CODES)
        totp.begin_codes(work, OF_OWNERS, owner(work, "alice").id)
        add_passkey(work)
        PASSKEY_TABLE.update(work, "of 3", suspect_at=work.now)

    books.write(change)
    assert restore(books, backup).ended == []


def test_recovery_codes_that_were_replaced_since_have_ended(books: Books, backup: Path) -> None:
    def replace(work: Work) -> None:
        bob = owner_at(work, "bob")
        assert bob is not None
        PASSKEY_TABLE.insert(work, passkey_of(bob.id))
        new_recovery_codes(work, OF_OWNERS, bob)

    books.write(replace)
    found = restore(books, backup, carry_over=True)
    assert [(one.kind, one.about) for one in found.ended] == [("recoveryCodes", "2 used or replaced")]
    assert books.valid()["recoveryCodes"] == [(0,)]


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


@pytest.mark.parametrize("table", ENDED_BY_RESTORE)
def test_restore_ends_by_itself_what_nobody_knows_to_have_ended(books: Books, tmp_path: Path, table: str) -> None:
    inserted, left = ENDED_BY_RESTORE[table]
    books.rows(inserted)
    assert books.rows(left)[0][0] > 0
    restore(books, make_backup(books.path, tmp_path / "backup.db", False, NOW).path)
    assert books.rows(left) == [(0,)]
    assert books.rows("SELECT count(*) > 0 FROM known_browser") == [(1,)], "nobody is locked out by guesses"


def test_codes_that_are_carried_over_are_asked_for_in_every_browser(books: Books, backup: Path) -> None:
    """Also in one that was trusted before they were on, which the backup has; recovery codes stand in for them."""
    known = b"k" * 32

    def know(work: Work) -> None:
        insert_browser(work, OF_OWNERS, hash_secret(known.decode()), 3, work.now, work.now + DAY)

    change_copy(backup, lambda tx: know(work_at(tx, NOW)))
    change_copy(backup, lambda tx: tx.execute("DELETE FROM secret WHERE name = 'second_factors'"))  # of the first codes
    books.write(guard)
    recovery = books.write(lambda work: new_recovery_codes(work, OF_OWNERS, owner(work, "dora")))
    browser = Browser(known={3: known.decode()})

    def sign_in(work: Work) -> SignedIn | HalfSignIn:
        return begin(work, OF_OWNERS, owner(work, "dora"), browser, NOWHERE)

    first = restore_backup(backup, books.path, books.now)
    assert isinstance(books.write(sign_in), SignedIn), "as it was"
    restore(books, backup, carry_over=True, other=first.replaced)
    assert isinstance(books.write(sign_in), HalfSignIn)
    assert books.write(lambda work: second_factors.verify(work, OF_OWNERS, 3, "000000")) == WRONG_CODE, (
        "it can be decrypted"
    )
    assert books.write(lambda work: second_factors.verify(work, OF_OWNERS, 3, recovery[0])) == RECOVERY


def test_what_cannot_be_carried_over_whole_is_said(books: Books, backup: Path) -> None:
    """Codes that the restored server cannot decrypt would stop it; a credit limit may be used up already."""
    books.write(guard)
    books.write(lambda work: peers.change_peer(work, "second", credit_limit="50"))
    found = restore(books, backup).ended
    books.rows("UPDATE secret SET value = x'01' WHERE name = 'second_factors'")
    books.write(lambda work: wallets.deposit(work, "alice", "1.00"))
    used = "UPDATE account SET balance = -6000 WHERE id = (SELECT account_id FROM peer WHERE name = 'second')"
    books.rows(used)
    limit, codes = books.write(lambda work: restored_rights.end_again(work, found))
    assert limit.startswith("The peer second keeps the earlier credit limit, and not 50.00. The peer second uses")
    assert codes.startswith("The codes of dora cannot be read with the secret that the backup has")
    assert books.rows("SELECT count(*) FROM totp WHERE owner_id = 3") == [(0,)]


def test_limit_that_was_not_lowered_stays(books: Books, backup: Path) -> None:
    books.write(lambda work: peers.change_peer(work, "second", credit_limit="50"))
    books.write(lambda work: peers.change_peer(work, "third", max_packet=7, credit_limit="200"))
    restore(books, backup, carry_over=True)
    told = "SELECT object, details FROM audit WHERE action = 'peer.change' ORDER BY id"
    assert [(name, json.loads(details)) for name, details in books.rows(told)] == [
        ("second", {"creditLimit": "50.00"}),
        ("third", {"maxPacket": 7}),
    ]


def test_passkey_of_owners_who_became_one_is_one_owners(books: Books, backup: Path) -> None:
    def change(work: Work) -> None:
        join_in_time(work, owner(work, "dora"), "bob", owner(work, "bob"))
        add_passkey(work)

    books.write(change)
    found = restore(books, backup).ended
    [left] = books.write(
        lambda work: restored_rights.end_again(work, [one for one in found if one.kind == "newPasskey"])
    )
    assert left == "The passkey Pixel 9 signs in to another wallet, and not to dora"


def test_peer_that_cannot_be_removed_has_a_token_that_nobody_knows(books: Books, backup: Path) -> None:
    books.write(lambda work: peers.remove_peer(work, "first"))
    found = restore(books, backup)
    with closing(connect_writer(str(books.path))) as connection:
        work = work_at(connection, books.now)
        wallets.deposit(work, "alice", "1.00")
        connection.execute(
            "UPDATE account SET balance = 5 WHERE id = (SELECT account_id FROM peer WHERE name = 'first')"
        )
        [left] = restored_rights.end_again(work, found.ended)
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
    assert len(restore(books, ended).ended) == len(CASES)


def test_reading_what_was_not_closed_changes_nothing_of_it(books: Books, ended: Path) -> None:
    log = side_file(books.path, "-wal")
    log.write_bytes(b"a log that does not belong to it")
    books.now += SECOND
    replaced = restore_backup(ended, books.path, books.now).replaced
    assert replaced is not None
    assert len(restore(books, ended, other=replaced).ended) == len(CASES)


@pytest.mark.parametrize(
    ("end", "about"),
    [
        (lambda work: operators.remove_operator(work, "alice"), "was removed"),
        (lambda work: operators.set_role(work, "alice", "reads"), "the password or role was changed"),
        (lambda work: operators.set_role(work, "alice", "support", "9.00", "USD"), "the password or role was changed"),
    ],
)
def test_operator_who_was_removed_or_limited_is_so_again(
    books: Books, backup: Path, end: Callable[[Work], object], about: str
) -> None:
    books.write(end)
    columns = "SELECT name, role, password_hash, refund_limit, refund_asset_id FROM operator"
    operators_after = books.rows(columns)
    assert [(one.name, one.about) for one in restore(books, backup).ended] == [("alice", about)]
    assert books.rows("SELECT role FROM operator WHERE name = 'alice'") == [("full",)]
    books.write(end)
    restore(books, backup, carry_over=True)
    assert books.rows(columns) == operators_after


def test_passkey_that_may_have_been_copied_is_suspect_again(books: Books, backup: Path) -> None:
    [passkey] = books.write(lambda work: PASSKEY_TABLE.list(work, "ORDER BY id"))
    books.write(lambda work: PASSKEY_TABLE.update(work, passkey.id, suspect_at=NOW))
    [found] = restore(books, backup, carry_over=True).ended
    assert (found.kind, found.name, found.about) == ("passkey", passkey.id, "of alice")
    assert books.write(lambda work: PASSKEY_TABLE.by_id(work, passkey.id)).suspect_at == NOW


def test_password_of_an_owner_with_several_wallets_is_listed_and_ended_once(books: Books, tmp_path: Path) -> None:
    books.write(lambda work: wallets.create_wallet(work, "a-second", "USD", 2, None, None, "alice"))
    backup = make_backup(books.path, tmp_path / "backup.db", False, NOW).path
    books.write(lambda work: owners.store_password(work, "alice", "second of alice"))
    books.write(lambda work: owners.store_password(work, "a-second", "newest of a-second"))
    found = restore(books, backup, carry_over=True)
    assert [(one.kind, one.name) for one in found.ended] == [("password", "a-second")]
    passwords = "SELECT password_hash FROM owner o JOIN wallet_address w ON w.owner_id = o.id ORDER BY w.path"
    assert books.rows(passwords) == [
        ("newest of a-second",),
        ("newest of a-second",),
        ("first of bob",),
        *[("first of dora",)] * 2,
    ]


def test_password_that_ended_with_its_owner_is_not_valid_again(books: Books, backup: Path) -> None:
    """Bob's wallet was connected to Alice's, who changed the password then: the restored owners are two again."""

    def unit(work: Work) -> None:
        alice, bob = owner_at(work, "alice"), owner_at(work, "bob")
        assert alice is not None
        assert bob is not None
        join_in_time(work, alice, "bob", bob)
        owners.store_password(work, "alice", "second of alice")

    books.write(unit)
    found = restore(books, backup, carry_over=True)
    assert [(one.kind, one.name) for one in found.ended] == [("password", "alice"), ("password", "bob")]
    assert books.rows("SELECT DISTINCT password_hash FROM owner WHERE id < 3") == [("second of alice",)]
