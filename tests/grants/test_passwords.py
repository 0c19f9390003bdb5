import subprocess
import sys

import argon2
import pytest

from payres.errors import DomainError
from payres.grants.sign_in import hash_password, verify_password
from payres.store.wallets import WalletRecord


def wallet(password_hash: str | None) -> WalletRecord:
    return WalletRecord(1, "alice", None, 1, "USD", 2, 0, 0, 1, password_hash, "active", 0)


def test_verify_password_knows_the_right_one() -> None:
    record = wallet(hash_password("correct horse"))
    assert verify_password(record, "correct horse")
    assert not verify_password(record, "correct horse ")
    assert not verify_password(record, "")


def test_hash_password_is_salted_argon2id_and_holds_no_password() -> None:
    one, other = hash_password("long secret"), hash_password("long secret")
    assert one != other
    assert one.startswith("$argon2id$")
    assert "secret" not in one


def test_hashing_takes_as_much_work_as_rfc_9106_recommends() -> None:
    """Section 4, the second recommended option; in a process of its own, because this one saves the work."""
    program = "from payres.grants.sign_in import hash_password; print(hash_password('long secret'))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("$argon2id$v=19$m=65536,t=3,p=4$")


def test_one_spelling_of_accents_is_as_good_as_the_other() -> None:
    assert verify_password(wallet(hash_password("caf\u00e9 au lait")), "cafe\u0301 au lait")


@pytest.mark.parametrize("password", ["", "x" * 7, "e\u0301" * 7, "x" * 1025, "x" * 8 + "\udcff"])
def test_hash_password_refuses_what_cannot_be_one(password: str) -> None:
    with pytest.raises(DomainError, match="A password has"):
        hash_password(password)


@pytest.mark.parametrize("attempt", ["secret", "\udcff", "x" * 100_000])
@pytest.mark.parametrize("record", [None, wallet(None)])
def test_verify_password_works_as_hard_when_there_is_nothing_to_verify(
    record: WalletRecord | None, attempt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str | bytes] = []
    original = argon2.PasswordHasher.hash

    def counting(self: argon2.PasswordHasher, password: str | bytes) -> str:
        hashed.append(password)
        return original(self, password)

    monkeypatch.setattr(argon2.PasswordHasher, "hash", counting)
    assert not verify_password(record, attempt)
    assert len(hashed) == 1


def test_verify_password_takes_a_short_one_of_an_earlier_version() -> None:
    assert verify_password(wallet(argon2.PasswordHasher().hash(b"old")), "old")


def test_verify_password_refuses_a_long_text_that_begins_with_the_password() -> None:
    record = wallet(hash_password("x" * 1024))
    assert verify_password(record, "x" * 1024)
    assert not verify_password(record, "x" * 1025)
