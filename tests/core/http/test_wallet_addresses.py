"""Wallet addresses in all their spellings, and the keys of the clients that they name, as a key set and as a DID
document."""

from functools import partial
from pathlib import Path
from urllib.parse import unquote

import httpx2
import pytest

from payres.operator import keys, wallets
from tests.conftest import Refused
from tests.helpers import TIMEOUT, new_jwk
from tests.instance import Instance, run_instance


@pytest.mark.parametrize("path", ["house", "accounts/house", ".well-known/pay", "~house/a.b_c-d"])
def test_wallet_address_has_other_spellings_and_one_id(shared: Instance, anonymous: httpx2.Client, path: str) -> None:
    wallet_address = shared.create_wallet(path)
    for spelling in (path, f"{path}/", path.upper(), path.replace("e", "%65")):
        answer = anonymous.get(f"{shared.base_url}/{spelling}")
        assert (answer.status_code, answer.json().get("id")) == (200, wallet_address)
        assert answer.headers["cache-control"] == "public, max-age=60"


@pytest.mark.parametrize(
    "path",
    [
        *("nobody", "alice/bob", "alice/did.jsonx", "ALICE/keys", "%00", "%ff", "a//b", "..%2Fx", ".well-known"),
        *("alice%2F", "alice%2f", "%2Falice", "alice//", "/alice"),
    ],
)
@pytest.mark.parametrize("suffix", ["", "/jwks.json", "/did.json", "/did.json/did.json"])
def test_wallet_address_that_does_not_exist_is_not_found(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, path: str, suffix: str
) -> None:
    refused(anonymous.get(f"{shared.base_url}/{path}{suffix}"), 404, "not_found")


def test_wallet_address_that_is_inactive_is_not_found(
    shared: Instance, anonymous: httpx2.Client, refused: Refused
) -> None:
    wallet_address = shared.create_wallet("resting")
    for suffix in ("", "/jwks.json", "/did.json"):
        assert anonymous.get(wallet_address + suffix).status_code == 200
        shared.write(lambda tx: wallets.deactivate(tx, "resting"))
        refused(anonymous.get(wallet_address + suffix), 404, "not_found")
        shared.write(lambda tx: wallets.activate(tx, "resting"))


def test_own_key_of_the_server_may_be_cached_while_there_is_no_wallet_beside_it(tmp_path: Path) -> None:
    with run_instance(tmp_path / "payres.db") as instance, httpx2.Client(timeout=TIMEOUT, verify=False) as anonymous:
        root = f"{instance.base_url}/.well-known/pay"
        assert anonymous.get(f"{root}/jwks.json").headers["cache-control"] == "public, max-age=60"
        instance.create_wallet(".well-known/pay")
        assert anonymous.get(f"{root}/jwks.json").headers["cache-control"] == "no-cache"


def resolved(did: str) -> str:
    """Where the did:web method finds the document of an identifier; over http, as loopback has no certificate."""
    method, name, *parts = did.split(":")
    assert (method, name) == ("did", "web")
    return "/".join(["http:/", unquote(parts[0]), *parts[1:], "did.json"])


@pytest.mark.parametrize("path", ["did-holder", "accounts/did-holder", "~did/a.b_c-d"])
def test_keys_in_force_are_listed_and_in_the_did_document(
    shared: Instance, anonymous: httpx2.Client, path: str
) -> None:
    wallet_address = shared.create_wallet(path)
    first, second, revoked = new_jwk("key-1"), new_jwk("2026/09 #2"), new_jwk("old")
    for key in (first, second, revoked):
        shared.write(partial(keys.add_key, wallet=path, jwk=key))
    shared.write(lambda tx: keys.revoke_key(tx, path, "old"))
    shown = [{"kid": key.kid, "x": key.x, "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519"} for key in (first, second)]
    for slash in ("", "/"):
        assert anonymous.get(f"{wallet_address}/jwks.json{slash}").json() == {"keys": shown}
    answer = anonymous.get(f"{wallet_address}/did.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-cache"
    document = answer.json()
    did = document["id"]
    ids = [f"{did}#key-1", f"{did}#2026%2F09%20%232"]
    assert document == {
        "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/suites/jws-2020/v1"],
        "id": did,
        "alsoKnownAs": [wallet_address],
        "verificationMethod": [
            {"id": method_id, "type": "JsonWebKey2020", "controller": did, "publicKeyJwk": key}
            for method_id, key in zip(ids, shown, strict=True)
        ],
        "authentication": ids,
        "assertionMethod": ids,
    }
    assert anonymous.get(resolved(did)).json() == document
    assert anonymous.get(f"{wallet_address}/did.json/").json() == document


def test_did_document_of_the_wallet_without_a_path_can_be_resolved(payres: Instance, anonymous: httpx2.Client) -> None:
    address = payres.create_wallet(".well-known/pay")
    document = anonymous.get(f"{address}/did.json").json()
    assert document["id"].endswith(":.well-known:pay")
    assert document["alsoKnownAs"] == [address]
    assert resolved(document["id"]) == f"{address}/did.json"


def test_did_document_without_keys_has_no_methods(shared: Instance, anonymous: httpx2.Client) -> None:
    document = anonymous.get(f"{shared.create_wallet('keyless')}/did.json").json()
    assert document["verificationMethod"] == document["authentication"] == document["assertionMethod"] == []
