"""Passwords as they are stored."""

import subprocess
import sys

import argon2
import pytest

from payres.accounts.passwords import hash_password, verify_password
from payres.accounts.store.owners import OwnerRecord
from payres.core.protocol.errors import DomainError


def owner(password_hash: str | None) -> OwnerRecord:
    return OwnerRecord(1, "wallet1", 1, password_hash)


def test_password_is_stored_as_salted_argon2id() -> None:
    one, other = (hash_password("correct horse") for _ in range(2))
    assert one != other
    assert one.startswith("$argon2id$")
    for attempt in ("correct horse", "correct horse ", ""):
        assert verify_password(owner(one), attempt) == (attempt == "correct horse")


def test_hashing_takes_as_much_work_as_rfc_9106_recommends() -> None:
    """Section 4, the second recommended option; in a process of its own, because this one saves the work."""
    program = "from payres.accounts.passwords import hash_password; print(hash_password('long secret'))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("$argon2id$v=19$m=65536,t=3,p=4$")


@pytest.mark.parametrize("password", ["", "x" * 7, "e\u0301" * 7, "x" * 1025, "x" * 8 + "\udcff"])
def test_password_of_a_wrong_length_or_no_unicode_is_refused(password: str) -> None:
    with pytest.raises(DomainError, match="A password has"):
        hash_password(password)


@pytest.mark.parametrize(
    ("password", "attempt", "is_right"),
    [
        ("caf\u00e9 au lait", "cafe\u0301 au lait", True),  # two spellings of accents
        ("old", "old", True),  # too short by now
        ("x" * 1024, "x" * 1024, True),
        ("x" * 1024, "x" * 1025, False),
    ],
)
def test_password_is_compared_as_people_type_it(password: str, attempt: str, is_right: bool) -> None:
    stored = argon2.PasswordHasher().hash(password.encode())
    assert verify_password(owner(stored), attempt) is is_right


@pytest.mark.parametrize("attempt", ["secret", "\udcff", "x" * 100_000])
@pytest.mark.parametrize("record", [None, owner(None)])
def test_looking_takes_as_long_when_there_is_nothing_to_compare_with(
    record: OwnerRecord | None, attempt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str | bytes] = []
    original = argon2.PasswordHasher.hash

    def counting(self: argon2.PasswordHasher, password: str | bytes) -> str:
        hashed.append(password)
        return original(self, password)

    monkeypatch.setattr(argon2.PasswordHasher, "hash", counting)
    assert not verify_password(record, attempt)
    assert len(hashed) == 1
