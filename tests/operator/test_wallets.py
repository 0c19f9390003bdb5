from collections.abc import Callable
from typing import Any

import pytest

from payres.accounts import owners
from payres.accounts.passwords import hash_password, verify_password
from payres.accounts.store import browsers, sessions
from payres.accounts.store.owners import OF_OWNERS, owner_at, owner_of
from payres.core.protocol.clock import HOUR
from payres.core.protocol.errors import DomainError
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.wallets import WALLETS, WalletRecord, require_wallet
from payres.core.store.work import Work
from payres.operator import wallets
from tests.works import NOW, work_at


def open_wallet(tx: Work, path: str = "alice", password: str | None = None, **terms: Any) -> WalletRecord:
    hashed = None if password is None else hash_password(password)
    given: dict[str, Any] = {"asset_code": "USD", "scale": 2, "public_name": None} | terms
    return wallets.create_wallet(tx, path, password_hash=hashed, **given)


def balance(tx: Work, path: str) -> int:
    return ACCOUNTS.by_id(tx, require_wallet(tx, path).account_id).balance


def test_wallet_at_a_path_reserved_since_can_still_be_emptied(tx: Work) -> None:
    wallet = open_wallet(tx)
    tx.execute("UPDATE wallet_address SET path = 'pay' WHERE id = ?", (wallet.id,))
    wallets.deposit(tx, "pay", "1.00")
    wallets.withdraw(tx, "pay", "1.00")
    assert balance(tx, "pay") == 0


def refused(status: int, says: str, member: str, *values: Any) -> list[tuple[dict[str, Any], int, str]]:
    return [({member: value}, status, says) for value in values]


@pytest.mark.parametrize(
    ("terms", "status", "says"),
    [
        *refused(409, "There is a wallet alice already", "path", "alice", "ALICE", "/alice/"),
        *refused(400, "path", "path", "", "quotes", "a b", "al/../ice", "ilp", "bob/jwks.json", "é"),
        *refused(400, "cannot be an asset code", "asset_code", "", "U SD", "US\tD", "É", "X" * 33),
        *refused(400, "scale is from 0 to 255", "scale", -1, 256),
        *refused(400, "public name", "public_name", "", "   ", "a\nb", "x" * 201, "\udcff"),
    ],
)
def test_wallet_that_cannot_be_is_refused(tx: Work, terms: dict[str, Any], status: int, says: str) -> None:
    open_wallet(tx)
    with pytest.raises(DomainError, match=says) as refusal:
        open_wallet(tx, **{"path": "bob"} | terms)
    assert refusal.value.status == status


@pytest.mark.parametrize(
    "name", ["Alice", "ÁLICE", "A1ice", "Alíce Smith", "alice  smith", "\u0391LICE S\u039cIT\u041d", "Ali\u0441\u0435"]
)
def test_no_name_is_given_that_payers_can_take_for_another_owner_s(tx: Work, name: str) -> None:
    """By what opens a wallet, renames or changes it; what was called so before stays until it is renamed."""
    open_wallet(tx, public_name="Alice Smith")
    open_wallet(tx, "bob", public_name=name)
    open_wallet(tx, "dora")
    given: list[Callable[[], Any]] = [
        lambda: wallets.open_wallet(tx, "carl", "USD", 2, name),
        lambda: wallets.rename(tx, "dora", name),
        lambda: wallets.change_wallet(tx, "dora", public_name=name),
    ]
    for one in given:
        with pytest.raises(DomainError, match=r"wallet .*, which another owner has") as refusal:
            one()
        assert (refusal.value.status, refusal.value.details["field"]) == (409, "publicName")
    assert wallets.change_wallet(tx, "bob", public_name=name, state="inactive").public_name == name
    assert wallets.open_wallet(tx, "alice-2", "EUR", 2, "Alice Smith EUR", owner="alice").owner_id
    wallets.rename(tx, "bob", None)
    assert wallets.rename(tx, "alice-2", "Alice Smith").public_name == "Alice Smith"


@pytest.mark.parametrize("name", [*("{}", "{}/bob", "HTTPS://{}/bob", "Ask help@{}", "Pay: {}.", "\uff0f{}\u2044bob")])
def test_no_wallet_is_called_like_an_address_of_this_server(tx: Work, name: str) -> None:
    open_wallet(tx)
    named = name.format(tx.urls.host)
    given: list[Callable[[], Any]] = [
        lambda: wallets.open_wallet(tx, "b", "USD", 2, named),
        lambda: wallets.rename(tx, "alice", named),
    ]
    for one in given:
        with pytest.raises(DomainError, match="like an address of this server; choose another name") as refusal:
            one()
        assert (refusal.value.status, refusal.value.details["field"]) == (409, "publicName")
    other = name.format("other.invalid")
    assert wallets.rename(tx, "alice", other).public_name == other


@pytest.mark.parametrize("code", ["USD", "X", "USDC.e", "!" * 32])
def test_any_printable_code_may_be_that_of_an_asset(tx: Work, code: str) -> None:
    assert open_wallet(tx, asset_code=code, scale=0).asset_code == code


def test_deactivated_wallet_takes_nothing_in_but_can_be_emptied(tx: Work) -> None:
    open_wallet(tx)
    wallets.deposit(tx, "alice", "5.00")
    assert not wallets.deactivate(tx, "alice").active
    with pytest.raises(DomainError, match="inactive") as refusal:
        wallets.deposit(tx, "alice", "5.00")
    assert refusal.value.code == "wrong_state"
    wallets.withdraw(tx, "alice", "5.00")
    assert balance(tx, "alice") == 0
    assert wallets.activate(tx, "alice").active
    wallets.deposit(tx, "alice", "1.00")


@pytest.mark.parametrize("forget", [False, True])
def test_new_password_ends_what_the_old_one_opened_in_this_wallet_only(tx: Work, forget: bool) -> None:
    alice, bob = open_wallet(tx, password="old words"), open_wallet(tx, "bob")
    for name, wallet in ((b"a", alice), (b"b", bob)):
        sessions.insert_session(tx, OF_OWNERS, name, wallet.owner_id, NOW, wallet.id)
        browsers.insert_browser(tx, OF_OWNERS, name, wallet.owner_id, NOW)
    owners.store_password(tx, "alice", hash_password("new words"), forget)
    changed = owner_of(tx, alice.id)
    assert verify_password(changed, "new words")
    assert not verify_password(changed, "old words")
    left = [sessions.find_session(tx, OF_OWNERS, name, NOW) for name in (b"a", b"b")]
    assert [one and one.account_id for one in left] == [None, bob.id]
    assert browsers.knows_browser(tx, OF_OWNERS, b"a", alice.id, NOW) is not forget
    assert browsers.knows_browser(tx, OF_OWNERS, b"b", bob.id, NOW)


def test_signing_out_leaves_the_password_and_the_browsers_that_are_known(tx: Work) -> None:
    alice, bob = open_wallet(tx, password="old words"), open_wallet(tx, "bob")
    for name, wallet in ((b"a", alice), (b"c", alice), (b"b", bob)):
        sessions.insert_session(tx, OF_OWNERS, name, wallet.owner_id, NOW, wallet.id)
        browsers.insert_browser(tx, OF_OWNERS, name, wallet.owner_id, NOW)
    assert sessions.count_sessions(tx, OF_OWNERS, alice.id, NOW) == 2
    wallets.sign_out(tx, "alice")
    assert verify_password(owner_of(tx, alice.id), "old words")
    counts = [sessions.count_sessions(tx, OF_OWNERS, one.id, NOW) for one in (alice, bob)]
    assert counts == [0, 1]
    assert sessions.count_sessions(tx, OF_OWNERS, bob.id, NOW - HOUR) == 0, "the clock was ahead"
    assert browsers.knows_browser(tx, OF_OWNERS, b"a", alice.id, NOW)


def test_wrong_passwords_count_since_the_wallet_was_unlocked_or_got_a_password(tx: Work) -> None:
    wallet = open_wallet(tx)
    assert owner_of(tx, wallet.id).unlocked_at is None
    wallets.unlock(tx, "alice")
    assert owner_of(tx, wallet.id).unlocked_at == NOW
    owners.store_password(work_at(tx, NOW + 5), "alice", hash_password("new words"))
    assert owner_of(tx, wallet.id).unlocked_at == NOW + 5


def test_owner_of_a_wallet_gets_another(tx: Work) -> None:
    first = open_wallet(tx, password="correct horse")
    second = wallets.open_wallet(tx, "household", "EUR", 2, "Household", owner="alice")
    third = open_wallet(tx, "pottery", owner="household")
    assert {one.owner_id for one in (first, second, third)} == {first.owner_id}
    shown = [wallets.wallet(tx, one) for one in (first, second, third)]
    assert [one.other_wallets for one in shown] == [
        ["household", "pottery"],
        ["alice", "pottery"],
        ["alice", "household"],
    ]
    assert {one.can_sign_in for one in shown} == {True}
    owners.store_password(tx, "pottery", hash_password("battery staple"))
    owner = owner_at(tx, "alice")
    assert owner == owner_of(tx, first.id)
    assert verify_password(owner, "battery staple")
    details = tx.execute("SELECT details FROM audit WHERE object = 'pottery' AND action = 'wallet.create'").fetchone()
    assert '"ownerOf":"household"' in str(details[0]).replace(" ", "")


@pytest.mark.parametrize(("owner", "status"), [("nobody", 404), ("", 400), ("a b", 400), ("https://elsewhere/x", 404)])
def test_another_wallet_of_nobody_is_not_opened(tx: Work, owner: str, status: int) -> None:
    with pytest.raises(DomainError) as refusal:
        open_wallet(tx, "household", owner=owner)
    assert refusal.value.status in {400, status}
    assert WALLETS.list(tx) == []
