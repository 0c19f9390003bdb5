from contextlib import closing

import pytest

from payres.store.connections import connect_writer
from payres.store.fail_stop import Damaged
from payres.store.secrets import decrypt, encrypt


def test_secret_that_is_missing_is_damage_to_what_is_encrypted_under_it() -> None:
    with closing(connect_writer(":memory:")) as connection:
        encrypted = encrypt(connection, "webhook", "whsec")
        assert decrypt(connection, "webhook", encrypted) == "whsec"
        connection.execute("DELETE FROM secret")
        with pytest.raises(Damaged, match="webhook"):
            decrypt(connection, "webhook", encrypted)
