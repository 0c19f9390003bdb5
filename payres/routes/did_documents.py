"""DID documents: a wallet address as a did:web identifier that lists the wallet's keys (W3C DID Core, did:web method).

Whoever resolves the identifier finds the same keys as in jwks.json.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from payres.routes.context import context_of
from payres.routes.messages import json_response
from payres.routes.wallet_addresses import KEYS_CACHE, keys_in_force
from payres.signatures.jwk import JWK

CONTEXT: Final = ("https://www.w3.org/ns/did/v1", "https://w3id.org/security/suites/jws-2020/v1")
# What resolvers ask for; the document is sent as application/json, as the Open Payments document has it.
MEDIA_TYPES: Final = ("application/did+json", "application/did+ld+json", "application/ld+json")


async def read(request: Request) -> Response:
    """GET {wallet address}/did.json: 404 when the wallet address is unknown or inactive."""
    urls = context_of(request).urls
    path, keys = await keys_in_force(request, MEDIA_TYPES)
    return json_response(did_document(urls.did(path), urls.wallet(path), keys), headers=KEYS_CACHE)


def did_document(did: str, wallet_address: str, keys: Sequence[JWK]) -> dict[str, Any]:
    """The document of a wallet address. Its keys authenticate and make assertions; none encrypts."""
    methods = [
        {"id": f"{did}#{quote(key.kid, safe='')}", "type": "JsonWebKey2020", "controller": did, "publicKeyJwk": key}
        for key in keys
    ]
    ids = [method["id"] for method in methods]
    return {
        "@context": CONTEXT,
        "id": did,
        "alsoKnownAs": [wallet_address],
        "verificationMethod": methods,
        "authentication": ids,
        "assertionMethod": ids,
    }
