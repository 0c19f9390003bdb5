from functools import partial
from pathlib import Path

import httpx2
import pytest

from payres.operator import keys, wallets
from payres.testing.instance import Instance, run_instance
from tests.conftest import Refused
from tests.helpers import TIMEOUT, new_jwk


def test_wallet_address_says_what_payers_and_clients_need(shared: Instance, anonymous: httpx2.Client) -> None:
    wallet_address = shared.create_wallet("yen", "JPY", 0, name="Yen & Söhne")
    answer = anonymous.get(wallet_address)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "public, max-age=60"
    assert answer.json() == {
        "id": wallet_address,
        "publicName": "Yen & Söhne",
        "assetCode": "JPY",
        "assetScale": 0,
        "authServer": f"{shared.base_url}/",
        "resourceServer": shared.base_url,
    }


def test_wallet_address_without_a_name_leaves_it_out(shared: Instance, anonymous: httpx2.Client) -> None:
    body = anonymous.get(shared.create_wallet("nameless")).json()
    assert body.keys() == {"id", "assetCode", "assetScale", "authServer", "resourceServer"}


def test_own_key_of_the_server_may_be_cached_while_there_is_no_wallet_beside_it(tmp_path: Path) -> None:
    with run_instance(tmp_path / "payres.db") as instance, httpx2.Client(timeout=TIMEOUT, verify=False) as anonymous:
        root = f"{instance.base_url}/.well-known/pay"
        assert anonymous.get(f"{root}/jwks.json").headers["cache-control"] == "public, max-age=60"
        instance.create_wallet(".well-known/pay")
        assert anonymous.get(f"{root}/jwks.json").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["house", "accounts/house", ".well-known/pay", "~house/a.b_c-d"])
def test_wallet_address_has_other_spellings_and_one_id(shared: Instance, anonymous: httpx2.Client, path: str) -> None:
    wallet_address = shared.create_wallet(path)
    for spelling in (path, f"{path}/", path.upper(), path.replace("e", "%65")):
        answer = anonymous.get(f"{shared.base_url}/{spelling}")
        assert (answer.status_code, answer.json().get("id")) == (200, wallet_address)


@pytest.mark.parametrize(
    "path",
    [
        *("nobody", "alice/bob", "alice/did.jsonx", "ALICE/keys", "%00", "%ff", "a//b", "..%2Fx"),
        *("alice%2F", "alice%2f", "%2Falice", "alice//", "/alice"),
    ],
)
@pytest.mark.parametrize("suffix", ["", "/jwks.json", "/did.json"])
def test_wallet_address_that_does_not_exist_is_not_found(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, path: str, suffix: str
) -> None:
    refused(anonymous.get(f"{shared.base_url}/{path}{suffix}"), 404, "not_found")


def test_wallet_address_that_is_inactive_is_not_found(
    shared: Instance, anonymous: httpx2.Client, refused: Refused
) -> None:
    wallet_address = shared.create_wallet("resting")
    shared.write(lambda tx: wallets.deactivate(tx, "resting"))
    refused(anonymous.get(wallet_address), 404, "not_found")
    refused(anonymous.get(f"{wallet_address}/jwks.json"), 404, "not_found")
    shared.write(lambda tx: wallets.activate(tx, "resting"))
    assert anonymous.get(wallet_address).status_code == 200


def test_keys_are_those_in_force(shared: Instance, anonymous: httpx2.Client) -> None:
    wallet_address = shared.create_wallet("keyed")
    first, second = new_jwk("key-1"), new_jwk("key-2")
    assert anonymous.get(f"{wallet_address}/jwks.json").json() == {"keys": []}
    for key in (first, second):
        shared.write(partial(keys.add_key, wallet="keyed", jwk=key))
    answer = anonymous.get(f"{wallet_address}/jwks.json")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"
    shown = [{"kid": key.kid, "x": key.x, "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519"} for key in (first, second)]
    assert answer.json() == {"keys": shown}
    shared.write(lambda tx: keys.revoke_key(tx, "keyed", "key-1"))
    assert anonymous.get(f"{wallet_address}/jwks.json/").json() == {"keys": shown[1:]}
