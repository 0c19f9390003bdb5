from functools import partial
from urllib.parse import unquote

import httpx2
import pytest

from payres.operator import keys, wallets
from payres.testing.instance import Instance
from tests.conftest import Refused
from tests.helpers import new_jwk


def resolved(did: str) -> str:
    """Where the did:web method finds the document of an identifier; over http, as loopback has no certificate."""
    method, name, *parts = did.split(":")
    assert (method, name) == ("did", "web")
    return "/".join(["http:/", unquote(parts[0]), *parts[1:], "did.json"])


@pytest.mark.parametrize("path", ["did-holder", "accounts/did-holder", "~did/a.b_c-d"])
def test_did_document_lists_the_keys_in_force(shared: Instance, anonymous: httpx2.Client, path: str) -> None:
    wallet_address = shared.create_wallet(path)
    first, second, revoked = new_jwk("key-1"), new_jwk("2026/09 #2"), new_jwk("old")
    for key in (first, second, revoked):
        shared.write(partial(keys.add_key, wallet=path, jwk=key))
    shared.write(lambda tx: keys.revoke_key(tx, path, "old"))
    answer = anonymous.get(f"{wallet_address}/did.json")
    assert answer.status_code == 200
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
            {
                "id": method_id,
                "type": "JsonWebKey2020",
                "controller": did,
                "publicKeyJwk": {"kid": key.kid, "x": key.x, "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519"},
            }
            for method_id, key in zip(ids, (first, second), strict=True)
        ],
        "authentication": ids,
        "assertionMethod": ids,
    }
    listed = anonymous.get(f"{wallet_address}/jwks.json").json()["keys"]
    assert [method["publicKeyJwk"] for method in document["verificationMethod"]] == listed
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


def test_did_document_of_an_unknown_or_inactive_wallet_is_not_found(
    shared: Instance, anonymous: httpx2.Client, refused: Refused
) -> None:
    wallet_address = shared.create_wallet("did-resting")
    assert anonymous.get(f"{wallet_address}/did.json").status_code == 200
    shared.write(lambda tx: wallets.deactivate(tx, "did-resting"))
    for path in ("did-resting", "nobody", "alice/did.json", "admin", ".well-known"):
        refused(anonymous.get(f"{shared.base_url}/{path}/did.json"), 404, "not_found")
    refused(anonymous.get(f"{shared.base_url}/did.json"), 404, "not_found")
