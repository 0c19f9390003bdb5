import pytest

from payres.store.secrets import decrypt, encrypt
from payres.store.work import Damaged, Transaction


@pytest.mark.parametrize("value", [None, b"", b"short", bytes(32)])
def test_secret_that_is_missing_or_another_is_damage(tx: Transaction, value: bytes | None) -> None:
    encrypted = encrypt(tx, "webhook", "whsec")
    assert decrypt(tx, "webhook", encrypted) == "whsec"
    tx.execute("DELETE FROM secret")
    if value is not None:
        tx.execute("INSERT INTO secret (name, value) VALUES ('webhook', ?)", (value,))
    with pytest.raises(Damaged, match="webhook"):
        decrypt(tx, "webhook", encrypted)


@pytest.mark.parametrize("kept", [0, 5, 20])
def test_what_is_cut_off_is_damage(tx: Transaction, kept: int) -> None:
    encrypted = encrypt(tx, "webhook", "whsec")
    with pytest.raises(Damaged, match="webhook"):
        decrypt(tx, "webhook", encrypted[:kept])
