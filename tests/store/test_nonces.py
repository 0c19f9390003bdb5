import pytest

from payres.store.clients import ensure_client, use_nonce
from payres.store.retention import NONCES
from payres.store.work import Transaction

AGE = 300


@pytest.fixture(autouse=True)
def client(tx: Transaction) -> None:
    ensure_client(tx, "https://shop.example", "https://shop.example", None, 0)


# When each signature was made and when its request came, in the order in which they use their nonce.
@pytest.mark.parametrize(
    ("uses", "taken"),
    [
        ([(0, 0), (0, 0)], [True, False]),
        ([(0, 0), (0, AGE)], [True, False]),
        ([(0, 0), (60, AGE)], [True, False]),
        ([(0, 0), (AGE + 1, AGE + 1)], [True, True]),
        ([(0, 0), (AGE + 1, AGE + 1), (0, AGE)], [True, True, False]),
        ([(0, 0), (AGE + 1, AGE + 1), (AGE + 1, AGE + 2)], [True, True, False]),
        ([(5, 0), (5, AGE + 5)], [True, False]),
    ],
)
def test_use_nonce_takes_it_once_while_a_signature_is_fresh(
    tx: Transaction, uses: list[tuple[int, int]], taken: list[bool]
) -> None:
    assert [use_nonce(tx, 1, "kid", "nonce", created + AGE, came) for created, came in uses] == taken


def test_use_nonce_tells_keys_and_nonces_apart(tx: Transaction) -> None:
    pairs = [("kid", "nonce"), ("kid", "other"), ("other", "nonce")]
    assert [use_nonce(tx, 1, kid, nonce, AGE, 0) for kid, nonce in pairs * 2] == [True] * 3 + [False] * 3


def test_use_nonce_remembers_those_that_are_over_for_requests_that_still_wait(tx: Transaction) -> None:
    assert use_nonce(tx, 1, "kid", "nonce", AGE, 0)
    assert use_nonce(tx, 1, "kid", "later", AGE * 3 + NONCES.after, AGE + NONCES.after - 1)
    assert not use_nonce(tx, 1, "kid", "nonce", AGE, AGE)
    assert use_nonce(tx, 1, "kid", "last", AGE * 3 + NONCES.after, AGE + NONCES.after)
    assert tx.execute("SELECT nonce FROM signature_nonce ORDER BY nonce").fetchall() == [("last",), ("later",)]
