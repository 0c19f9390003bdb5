"""What a secret opens: the account that it was made for, and not the other kind's account of the same id."""

import sqlite3

import pytest

from payres.accounts.limits import MAX_KNOWN_BROWSERS
from payres.accounts.password_links import make_link, open_link
from payres.accounts.sessions import Browser, close_session, find_session, known_browser, open_session
from payres.accounts.store import sessions
from payres.accounts.store.browsers import insert_browser
from payres.accounts.store.kinds import Kind, delete_of
from payres.accounts.store.owners import OF_OWNERS
from payres.core.protocol.errors import NotFound
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.work import Work
from payres.operator.store.operators import OF_OPERATORS, put_operator
from payres.operator.wallets import create_wallet
from tests.works import NOW

ID = 1
both_ways = pytest.mark.parametrize(("own", "other"), [(OF_OWNERS, OF_OPERATORS), (OF_OPERATORS, OF_OWNERS)])


@pytest.fixture(autouse=True)
def accounts(tx: Work) -> None:
    """A wallet and an operator with ID."""
    create_wallet(tx, "alice", "USD", 2, None, "hash")
    put_operator(tx, "alice", "full", "hash", NOW)


def sign_in(tx: Work, kind: Kind, browser: Browser) -> Browser:
    """The browser afterwards."""
    opened = open_session(tx, kind, kind.accounts.by_id(tx, ID), browser)
    return Browser(opened.session, {opened.account_id: opened.known})


@both_ways
def test_session_is_none_of_the_other_kind(tx: Work, own: Kind, other: Kind) -> None:
    session = sign_in(tx, own, Browser()).session
    assert session is not None
    assert find_session(tx, other, session) is None
    close_session(tx, other, session)
    sign_in(tx, other, Browser(session))
    sessions.change_session(tx, other, hash_secret(session), expires_at=NOW + 1)
    delete_of(tx, other, ID, "session")
    found = find_session(tx, own, session)
    assert found == sessions.SessionRecord(ID, ID if own is OF_OWNERS else None, NOW, NOW + own.lifetime)
    close_session(tx, own, session)
    assert find_session(tx, own, session) is None


@both_ways
def test_known_browser_is_none_of_the_other_kind(tx: Work, own: Kind, other: Kind) -> None:
    browser = sign_in(tx, own, Browser())
    assert known_browser(tx, other, ID, browser) is None
    sign_in(tx, other, browser)
    for number in range(MAX_KNOWN_BROWSERS + 1):
        insert_browser(tx, other, bytes([number]), ID, NOW + 1)
    sessions.end_access(tx, other, ID)
    assert known_browser(tx, own, ID, browser) == hash_secret(browser.known[ID])
    sign_in(tx, own, browser)
    assert known_browser(tx, own, ID, browser) is None, "the secret is another one now"


@both_ways
def test_link_is_none_of_the_other_kind(tx: Work, own: Kind, other: Kind) -> None:
    secret, _ = make_link(tx, own, ID)
    with pytest.raises(NotFound, match=f"`{other.link_command}` makes another"):
        open_link(tx, other, secret)
    make_link(tx, other, ID)
    sessions.end_access(tx, other, ID)
    assert open_link(tx, own, secret) == own.accounts.by_id(tx, ID)
    make_link(tx, own, ID)
    with pytest.raises(NotFound):
        open_link(tx, own, secret)


@pytest.mark.parametrize(
    ("table", "names", "values"),
    [
        *(
            (table, "owner_id, operator_id, expires_at", f"{both}, 1")
            for table in ("known_browser", "password_link")
            for both in ("NULL, NULL", f"{ID}, {ID}")
        ),
        *(
            ("session", "owner_id, wallet_address_id, operator_id, created_at, expires_at", f"{accounts}, 1, 1")
            for accounts in ("NULL, NULL, NULL", f"{ID}, {ID}, {ID}", f"{ID}, NULL, NULL", f"NULL, {ID}, {ID}")
        ),
    ],
)
def test_row_is_of_exactly_one_account(tx: Work, table: str, names: str, values: str) -> None:
    key = "link_hash" if table == "password_link" else "id_hash"
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        tx.execute(f"INSERT INTO {table} ({key}, {names}) VALUES (x'01', {values})")
