"""The OpenAPI document of the Open Payments endpoints, served at `/openapi.json`.

It is generated from the routes and structs on the first request, when this module is imported.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from payres.core.http import openapi
from payres.core.http.examples import COMPLETED, EXAMPLES
from payres.core.http.responses import JSON
from payres.core.http.routing import ROUTES
from payres.core.http.wallet_addresses import SPSP_TYPE
from payres.core.protocol.gnap import ContinueRequest, GrantRequest, GrantResponse, TokenResponse
from payres.core.protocol.limits import MAX_WAIT_SECONDS
from payres.core.protocol.wire import (
    GrantSpending,
    IncomingPayment,
    IncomingPaymentRequest,
    OutgoingPayment,
    OutgoingPaymentRequest,
    Page,
    PublicIncomingPayment,
    Quote,
    QuoteRequest,
    WalletAddress,
)

TITLE: Final = "Open Payments at payres"
DESCRIPTION: Final = (
    "Wallet addresses, grants (GNAP, RFC 9635), incoming payments, quotes and outgoing payments. All requests but those"
    " for wallet addresses and public forms are signed (RFC 9421) with the key of the client."
)
OBJECT: Final[openapi.Schema] = {"type": "object"}
TEXT: Final[openapi.Schema] = {"type": "string"}
URL: Final[openapi.Schema] = {"type": "string", "format": "uri"}
TAGS: Final = {
    "wallet-address": "Who can be paid, in which asset, and the keys of clients",
    "incoming-payment": "What is to be received: bills",
    "quote": "What a payment will cost",
    "outgoing-payment": "Payments, and what a grant has spent",
    "grant": "Grants: asking, continuing after consent, cancelling",
    "token": "Access tokens: rotating, revoking",
}
# The tag of an operation, by the first segment of its path.
TAG_OF: Final = {
    "{path:wallet}": "wallet-address",
    "incoming-payments": "incoming-payment",
    "quotes": "quote",
    "outgoing-payments": "outgoing-payment",
    "outgoing-payment-grant": "outgoing-payment",
    "": "grant",
    "continue": "grant",
    "token": "token",
}
ERRORS_HERE: Final = openapi.ERRORS | {
    401: "The signature, the key or the token is missing, unknown or not valid: `details.reason` says which",
    403: "The grant does not permit it, or there is not enough money",
    404: "It does not exist, or not for this client",
    408: "The request did not come in time",
    431: "The request line or the headers are too long",
    500: "A fault of payres",
}
# Prefixes of the paths that need access.
RESOURCES: Final = ("/incoming-payments", "/quotes", "/outgoing-payment")
ALWAYS: Final = {406, 408, 429, 431, 500, 503}
SIGNED: Final = {400, 401, 413, 415}
GNAP: Final = "`GNAP `, then the access token of a grant; at /continue/{id} the continuation token."
SIGNED_WITH: Final = (
    "Ed25519 over what `Signature-Input` covers (RFC 9421): `@method`, `@target-uri`, with a token `authorization`,"
    " with a body `content-digest`."
)
COVERED: Final = "The components covered, with `created` and the `keyid` of the client's key (RFC 9421)."
SECURITY_SCHEMES: Final = {
    scheme: {"type": "apiKey", "in": "header", "name": header, "description": description}
    for scheme, header, description in (
        ("gnap", "Authorization", GNAP),
        ("signature", "Signature", SIGNED_WITH),
        ("signatureInput", "Signature-Input", COVERED),
    )
}
SIGNATURE: Final[openapi.Schema] = {"signature": [], "signatureInput": []}
TOKEN: Final[openapi.Schema] = {"gnap": [], **SIGNATURE}
DIGEST: Final = openapi.header_parameter(
    "Content-Digest", "sha-256 or sha-512 of the body (RFC 9530). A request with a body needs it.", TEXT
)
WAIT: Final = openapi.header_parameter(
    "Prefer",
    f"`wait=20`: answers once the payment changes, or after so many seconds, {MAX_WAIT_SECONDS} at most.",
    TEXT,
)


class PublicKey(msgspec.Struct, frozen=True):
    """An Ed25519 key that is valid (RFC 8037)."""

    kid: str
    x: str
    alg: str
    kty: str
    crv: str
    use: str | msgspec.UnsetType = msgspec.UNSET


class PublicKeys(msgspec.Struct, frozen=True):
    keys: Sequence[PublicKey]


# The key of RFC 8037, appendix A.2.
KEYS: Final = PublicKeys(
    [PublicKey("key-1", "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", alg="EdDSA", kty="OKP", crv="Ed25519")]
)


class Operation(NamedTuple):
    """What the route does not specify. The ids are those of the published Open Payments documents."""

    id: str
    summary: str
    answer: Any = None
    body: Any = None
    parameters: Sequence[openapi.Schema] = ()
    media_types: Mapping[str, openapi.Schema] = {}
    has_public_form: bool = False
    can_be_late: bool = False  # the resource's state may no longer permit it


LISTED: Final = [{**openapi.query_parameter("wallet-address", URL), "required": True}, *openapi.page_parameters()]
OPERATIONS: Final[Mapping[str, Operation]] = {
    "POST /incoming-payments": Operation(
        "create-incoming-payment", "Creates an incoming payment.", IncomingPayment, IncomingPaymentRequest
    ),
    "GET /incoming-payments": Operation(
        "list-incoming-payments", "Lists incoming payments.", Page[IncomingPayment], parameters=LISTED
    ),
    "GET /incoming-payments/{id}": Operation(
        "get-incoming-payment",
        "Reads an incoming payment; without Authorization its public form.",
        (IncomingPayment, PublicIncomingPayment),
        parameters=[WAIT],
        has_public_form=True,
    ),
    "POST /incoming-payments/{id}/complete": Operation(
        "complete-incoming-payment",
        "Completes an incoming payment: it takes no more money.",
        IncomingPayment,
        can_be_late=True,
    ),
    "POST /quotes": Operation("create-quote", "Creates a quote.", Quote, QuoteRequest),
    "GET /quotes/{id}": Operation("get-quote", "Reads a quote.", Quote),
    "POST /outgoing-payments": Operation(
        "create-outgoing-payment",
        "Creates an outgoing payment, which moves money.",
        OutgoingPayment,
        OutgoingPaymentRequest,
        can_be_late=True,
    ),
    "GET /outgoing-payments": Operation(
        "list-outgoing-payments", "Lists outgoing payments.", Page[OutgoingPayment], parameters=LISTED
    ),
    "GET /outgoing-payments/{id}": Operation(
        "get-outgoing-payment", "Reads an outgoing payment.", OutgoingPayment, parameters=[WAIT]
    ),
    "GET /outgoing-payment-grant": Operation(
        "get-outgoing-payment-grant", "What the token's grant has spent in its current interval.", GrantSpending
    ),
    "POST /": Operation("post-request", "Asks for a grant.", GrantResponse, GrantRequest),
    "POST /continue/{id}": Operation(
        "post-continue", "Continues a grant after consent, or waits for it.", GrantResponse, ContinueRequest
    ),
    "DELETE /continue/{id}": Operation("delete-continue", "Cancels a grant, with all its tokens."),
    "OPTIONS /": Operation("discover", "What the authorization server can do (RFC 9635 section 9).", OBJECT),
    "POST /token/{id}": Operation("post-token", "Rotates an access token.", TokenResponse),
    "DELETE /token/{id}": Operation("delete-token", "Revokes an access token."),
    "GET /{path:wallet}": Operation(
        "get-wallet-address",
        "Shows a wallet address, or how to pay it by SPSP. Slashes in its path are sent as they are.",
        WalletAddress,
        media_types={SPSP_TYPE: OBJECT},
    ),
    "GET /{path:wallet}/jwks.json": Operation(
        "get-wallet-address-keys", "The keys of a client with this wallet address.", PublicKeys
    ),
    "GET /{path:wallet}/did.json": Operation(
        "get-wallet-address-did-document", "The same keys as a DID document.", OBJECT
    ),
}


@cache
def encoded_document(base_url: str) -> msgspec.Raw:
    """The encoded document."""
    return msgspec.Raw(openapi.as_text(public_document(base_url)).encode())


def public_document(base_url: str) -> dict[str, Any]:
    """The document of the server at a base URL."""
    shown = ((method, route.path, f"{method} {route.path}") for route in ROUTES for method in route.handlers)
    found = [
        (method, path, _operation(method, path, OPERATIONS[name])) for method, path, name in shown if name in OPERATIONS
    ]
    made = openapi.document(TITLE, DESCRIPTION, base_url, found, TAGS, SECURITY_SCHEMES, [TOKEN])
    schemas = made["components"]["schemas"]
    # The structs leave these as raw JSON; granted access has the form of requested access.
    schemas["AccessToken"]["properties"]["access"] = schemas["AccessTokenRequest"]["properties"]["access"]
    schemas["ClientInstance"]["properties"]["jwk"] = {"$ref": openapi.REFERENCE.format(name=PublicKey.__name__)}
    for schema in schemas.values():
        if "metadata" in schema.get("properties", {}):
            schema["properties"]["metadata"] = OBJECT
    return made


def _operation(method: str, path: str, operation: Operation) -> openapi.Schema:
    names, security = re.findall(r"{(\w+)", path), _security(method, path)
    needs_access = path.startswith(RESOURCES)
    creates = needs_access and operation.body is not None
    answers = {} if operation.answer is None else {JSON: operation.answer, **operation.media_types}
    statuses = ALWAYS | (SIGNED if security else set())
    may_be = {403: needs_access, 404: names, 409: operation.can_be_late, 422: creates}
    statuses |= {status for status, applies in may_be.items() if applies}
    return openapi.operation(
        {
            "operationId": operation.id,
            "summary": operation.summary,
            "tags": [TAG_OF[path.split("/")[1]]],
            "security": [*security, {}] if operation.has_public_form else security,
        },
        [
            *(openapi.path_parameter(name, TEXT) for name in names),
            *operation.parameters,
            *([openapi.idempotency_key()] if creates else []),
            *([] if operation.body is None else [DIGEST]),
        ],
        204 if operation.answer is None else 201 if creates else 200,
        "Done" if operation.answer is None else "The result",
        answers,
        {status: ERRORS_HERE[status] for status in statuses},
        operation.body,
        needs_body=operation.body is not ContinueRequest,  # polling sends none
        examples=EXAMPLES | {PublicKeys: KEYS} | ({IncomingPayment: COMPLETED} if path.endswith("/complete") else {}),
    )


def _security(method: str, path: str) -> Sequence[openapi.Schema]:
    """The alternatives of required security schemes."""
    if path.startswith("/{") or method == "OPTIONS":
        return []
    if path == "/":
        return [SIGNATURE]
    return [TOKEN, SIGNATURE] if path.startswith("/token/") else [TOKEN]  # /token/ also works without the token
