import pytest

from payres import ledger
from payres.amounts import MAX_LEDGER
from payres.errors import DomainError
from payres.grants.sign_in import hash_password, verify_password
from payres.operator import wallets
from payres.store import accounts
from payres.store import wallets as wallet_store
from payres.store.accounts import ACCOUNTS
from payres.store.work import Work
from tests.works import NOW, work_at

MAX_LEDGER_DECIMAL = "92233720368547758.07"


def balance(tx: Work, path: str) -> int:
    return ACCOUNTS.by_id(tx, wallets.require_wallet(tx, path).account_id).balance


def open_wallet(tx: Work, path: str = "alice") -> wallet_store.WalletRecord:
    return wallets.create_wallet(tx, path, "USD", 2, None, None)


def test_create_wallet_opens_an_empty_account_in_its_asset(tx: Work) -> None:
    wallet = wallets.create_wallet(tx, "/Alice/", "USD", 2, "Alice Ångström", None)
    assert (wallet.path, wallet.public_name, wallet.asset_code, wallet.asset_scale) == (
        *("alice", "Alice Ångström", "USD", 2),
    )
    assert wallet.active
    assert wallet.created_at == NOW
    account = ACCOUNTS.by_id(tx, wallet.account_id)
    assert (account.kind, account.balance, account.floor) == ("wallet", 0, 0)
    assert account.asset_id == wallet.asset_id


def test_wallet_at_a_path_reserved_since_can_still_be_emptied(tx: Work) -> None:
    wallet = open_wallet(tx)
    tx.execute("UPDATE wallet_address SET path = 'pay' WHERE id = ?", (wallet.id,))
    wallets.deposit(tx, "pay", "1.00")
    wallets.withdraw(tx, "pay", "1.00")
    assert balance(tx, "pay") == 0


@pytest.mark.parametrize("path", ["alice", "ALICE", "/alice/"])
def test_create_wallet_refuses_a_taken_path(tx: Work, path: str) -> None:
    open_wallet(tx)
    with pytest.raises(DomainError, match="There is a wallet alice already") as refusal:
        wallets.create_wallet(tx, path, "EUR", 2, None, None)
    assert (refusal.value.status, refusal.value.code) == (409, "wrong_state")


@pytest.mark.parametrize("path", ["", "quotes", "a b", "al/../ice", "ilp", "bob/jwks.json", "é"])
def test_create_wallet_refuses_what_is_no_path(tx: Work, path: str) -> None:
    with pytest.raises(DomainError) as refusal:
        open_wallet(tx, path)
    assert refusal.value.status == 400


@pytest.mark.parametrize("code", ["", "U SD", "US\tD", "É", "X" * 33])
def test_create_wallet_refuses_what_is_no_asset_code(tx: Work, code: str) -> None:
    with pytest.raises(DomainError, match="cannot be an asset code"):
        wallets.create_wallet(tx, "alice", code, 2, None, None)


@pytest.mark.parametrize("code", ["USD", "X", "USDC.e", "!" * 32])
def test_create_wallet_takes_any_printable_asset_code(tx: Work, code: str) -> None:
    assert wallets.create_wallet(tx, "alice", code, 0, None, None).asset_code == code


@pytest.mark.parametrize("scale", [-1, 256])
def test_create_wallet_refuses_a_scale_out_of_range(tx: Work, scale: int) -> None:
    with pytest.raises(DomainError, match="scale is from 0 to 255"):
        wallets.create_wallet(tx, "alice", "USD", scale, None, None)


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "x" * 201, "\udcff"])
def test_create_wallet_refuses_a_name_that_cannot_be_shown(tx: Work, name: str) -> None:
    with pytest.raises(DomainError, match="public name"):
        wallets.create_wallet(tx, "alice", "USD", 2, name, None)


def test_deposit_comes_from_the_external_account(tx: Work) -> None:
    wallet = open_wallet(tx)
    wallets.deposit(tx, "alice", "100.00")
    wallets.deposit(tx, "alice", "0.01")
    assert balance(tx, "alice") == 10_001
    external = ACCOUNTS.by_id(tx, ledger.operator_account(tx, wallet.asset_id, "external"))
    assert external.balance == -10_001


@pytest.mark.parametrize(
    "text", ["", "0", "0.00", "-1", "1.001", "1,00", "1e3", "ten", "92233720368547758.08", "9" * 400]
)
def test_deposit_and_withdraw_refuse_what_is_no_amount(tx: Work, text: str) -> None:
    open_wallet(tx)
    for move in (wallets.deposit, wallets.withdraw):
        with pytest.raises(DomainError) as refusal:
            move(tx, "alice", text)
        assert (refusal.value.status, refusal.value.code) == (400, "invalid_amount")
    assert balance(tx, "alice") == 0


def test_deposit_refuses_more_than_an_account_can_hold(tx: Work) -> None:
    open_wallet(tx)
    wallets.deposit(tx, "alice", MAX_LEDGER_DECIMAL)
    with pytest.raises(DomainError, match="at most 9223372036854775807") as refusal:
        wallets.deposit(tx, "alice", "0.01")
    assert refusal.value.code == "invalid_amount"


def test_withdraw_takes_up_to_the_whole_balance(tx: Work) -> None:
    open_wallet(tx)
    wallets.deposit(tx, "alice", "5.00")
    wallets.withdraw(tx, "alice", "2.00")
    wallets.withdraw(tx, "alice", "3")
    assert balance(tx, "alice") == 0


def test_withdraw_refuses_more_than_is_free_and_says_what_is(tx: Work) -> None:
    wallet = open_wallet(tx)
    wallets.deposit(tx, "alice", "5.00")
    accounts.change_account(tx, wallet.account_id, 0, 150, MAX_LEDGER)
    with pytest.raises(DomainError, match=r"The wallet alice has 3.50 USD free, less than 4.00 USD") as refusal:
        wallets.withdraw(tx, "alice", "4")
    assert (refusal.value.status, refusal.value.code) == (403, "insufficient_funds")
    assert refusal.value.details == {"reason": "wallet", "free": "3.50"}
    assert balance(tx, "alice") == 500


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


def test_deactivate_twice_is_the_same_as_once(tx: Work) -> None:
    open_wallet(tx)
    assert wallets.deactivate(tx, "alice") == wallets.deactivate(tx, "alice")


def test_set_password_replaces_the_old_one_and_ends_sessions_of_this_wallet_only(tx: Work) -> None:
    alice = wallets.create_wallet(tx, "alice", "USD", 2, None, "old words")
    bob = open_wallet(tx, "bob")
    wallet_store.insert_session(tx, b"a", alice.id, NOW, NOW + 10)
    wallet_store.insert_session(tx, b"b", bob.id, NOW, NOW + 10)
    changed = wallets.set_password(tx, "alice", hash_password("new words"))
    assert verify_password(changed, "new words")
    assert not verify_password(changed, "old words")
    assert wallet_store.session_wallet(tx, b"a", NOW) is None
    assert wallet_store.session_wallet(tx, b"b", NOW) == bob.id


@pytest.mark.parametrize("forget", [False, True])
def test_set_password_forgets_the_browsers_of_this_wallet_when_asked_to(tx: Work, forget: bool) -> None:
    alice, bob = open_wallet(tx), open_wallet(tx, "bob")
    for name, wallet in ((b"a", alice), (b"b", bob)):
        wallet_store.insert_browser(tx, name, wallet.id, NOW)
    wallets.set_password(tx, "alice", hash_password("battery staple"), forget)
    assert wallet_store.knows_browser(tx, b"a", alice.id, NOW) is not forget
    assert wallet_store.knows_browser(tx, b"b", bob.id, NOW)


def test_unlock_says_since_when_wrong_passwords_count(tx: Work) -> None:
    assert open_wallet(tx).unlocked_at is None
    assert wallets.unlock(tx, "alice").unlocked_at == NOW
    assert wallets.set_password(work_at(tx, NOW + 5), "alice", hash_password("battery staple")).unlocked_at == NOW + 5
