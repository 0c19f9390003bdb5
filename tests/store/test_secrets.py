from collections.abc import Callable

import pytest

from payres.store.secrets import decrypt, encrypt
from payres.store.work import Damaged, Transaction


def another(value: bytes) -> Callable[[Transaction], object]:
    return lambda tx: tx.execute("UPDATE secret SET value = ?", (value,))


@pytest.mark.parametrize(
    "spoil", [lambda tx: tx.execute("DELETE FROM secret"), another(b""), another(b"short"), another(bytes(32))]
)
def test_secret_that_is_missing_or_another_is_damage(tx: Transaction, spoil: Callable[[Transaction], object]) -> None:
    encrypted = encrypt(tx, "webhook", "whsec")
    assert decrypt(tx, "webhook", encrypted) == "whsec"
    spoil(tx)
    with pytest.raises(Damaged, match="webhook"):
        decrypt(tx, "webhook", encrypted)


@pytest.mark.parametrize("kept", [0, 5, 20])
def test_what_is_cut_off_is_damage(tx: Transaction, kept: int) -> None:
    encrypted = encrypt(tx, "webhook", "whsec")
    with pytest.raises(Damaged, match="webhook"):
        decrypt(tx, "webhook", encrypted[:kept])
