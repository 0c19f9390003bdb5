from contextlib import closing

import pytest

from payres.store.connections import connect_writer
from payres.store.secrets import decrypt, encrypt
from payres.store.work import Damaged


def test_secret_that_is_missing_is_damage_to_what_is_encrypted_under_it() -> None:
    with closing(connect_writer(":memory:")) as connection:
        encrypted = encrypt(connection, "webhook", "whsec")
        assert decrypt(connection, "webhook", encrypted) == "whsec"
        connection.execute("DELETE FROM secret")
        with pytest.raises(Damaged, match="webhook"):
            decrypt(connection, "webhook", encrypted)


@pytest.mark.parametrize("secret", [b"", b"short", bytes(32)])
def test_secret_that_is_another_is_damage_to_what_is_encrypted_under_it(secret: bytes) -> None:
    with closing(connect_writer(":memory:")) as connection:
        encrypted = encrypt(connection, "webhook", "whsec")
        connection.execute("UPDATE secret SET value = ?", (secret,))
        with pytest.raises(Damaged, match="webhook"):
            decrypt(connection, "webhook", encrypted)


@pytest.mark.parametrize("kept", [0, 5, 20])
def test_what_is_cut_off_is_damage(kept: int) -> None:
    with closing(connect_writer(":memory:")) as connection:
        encrypted = encrypt(connection, "webhook", "whsec")
        with pytest.raises(Damaged, match="webhook"):
            decrypt(connection, "webhook", encrypted[:kept])
