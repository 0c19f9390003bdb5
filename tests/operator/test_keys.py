import pytest

from payres.errors import DomainError
from payres.operator import keys, wallets
from payres.signatures.jwk import JWK, jwk_from_public_bytes
from payres.store import wallets as wallet_store
from payres.store.work import Work
from tests.works import NOW, work_at


@pytest.fixture(autouse=True)
def alice(tx: Work) -> None:
    wallets.create_wallet(tx, "alice", "USD", 2, None, None)


def public_key(kid: str, fill: bytes = b"\x01") -> JWK:
    return jwk_from_public_bytes(kid, fill * 32)


def test_added_key_is_found_by_its_kid(tx: Work) -> None:
    jwk = public_key("app")
    keys.add_key(tx, "Alice", jwk)
    assert wallet_store.find_key(tx, "alice", "app") == jwk.x
    assert wallet_store.find_key(tx, "alice", "other") is None


def test_add_key_refuses_the_kid_of_a_valid_key(tx: Work) -> None:
    keys.add_key(tx, "alice", public_key("app"))
    with pytest.raises(DomainError, match="has a valid key app") as refusal:
        keys.add_key(tx, "alice", public_key("app", b"\x02"))
    assert (refusal.value.status, refusal.value.code) == (409, "wrong_state")


def test_add_key_again_changes_nothing_but_the_name(tx: Work) -> None:
    first = keys.add_key(tx, "alice", public_key("app"), "Firefox")
    assert keys.add_key(work_at(tx, NOW + 1), "alice", public_key("app")) == first
    assert keys.add_key(work_at(tx, NOW + 2), "alice", public_key("app"), "Chromium").created_at == NOW
    wallet = wallets.require_wallet(tx, "alice")
    assert [(key.name, key.created_at) for key in wallet_store.list_keys(tx, wallet.id)] == [("Chromium", NOW)]


def test_revoked_kid_may_come_back_with_another_key(tx: Work) -> None:
    keys.add_key(tx, "alice", public_key("app"))
    revoked = keys.revoke_key(work_at(tx, NOW + 1), "alice", "app")
    assert revoked.revoked_at == NOW + 1
    assert wallet_store.find_key(tx, "alice", "app") is None
    again = public_key("app", b"\x02")
    keys.add_key(work_at(tx, NOW + 2), "alice", again)
    assert wallet_store.find_key(tx, "alice", "app") == again.x
    wallet = wallets.require_wallet(tx, "alice")
    assert [key.revoked_at for key in wallet_store.list_keys(tx, wallet.id, revoked=True)] == [NOW + 1, None]


def test_revoke_key_refuses_what_is_not_valid(tx: Work) -> None:
    keys.add_key(tx, "alice", public_key("app"))
    keys.revoke_key(tx, "alice", "app")
    for kid in ("app", "never"):
        with pytest.raises(DomainError, match=f"no valid key {kid}") as refusal:
            keys.revoke_key(tx, "alice", kid)
        assert refusal.value.status == 404


def test_keys_of_an_unknown_wallet_are_not_found(tx: Work) -> None:
    with pytest.raises(DomainError, match="There is no wallet bob"):
        keys.add_key(tx, "bob", public_key("app"))
