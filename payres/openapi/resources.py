"""The OpenAPI document of the Open Payments endpoints, with examples.

It is generated from the routes and structs on the first request, when this module is imported.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from payres.core.http.responses import JSON
from payres.core.http.routing import ROUTES
from payres.core.http.wallet_addresses import SPSP_TYPE
from payres.core.protocol import gnap, wire
from payres.core.protocol.limits import MAX_WAIT_SECONDS
from payres.openapi import documents

BASE: Final = "https://pay.example.com"
ALICE, BOB, SHOP = f"{BASE}/alice", f"{BASE}/bob", f"{BASE}/shop"
BILL: Final = f"{BASE}/incoming-payments/019aabf2-7f00-7c51-a7a4-0f4a4d1c1d7e"
QUOTE: Final = f"{BASE}/quotes/019aabf3-0a10-7d0b-b3f5-5f0f2e9b6a31"
PAYMENT: Final = f"{BASE}/outgoing-payments/019aabf3-51c8-7b7e-9d64-3f6f1f0b7c55"
CREATED: Final = "2026-11-22T10:15:00Z"
EXPIRES: Final = "2026-11-23T10:15:00Z"
METADATA: Final = Raw(b'{"description":"Invoice 2026-0137"}')


def dollars(value: int) -> wire.Amount:
    return wire.Amount(value=str(value), asset_code="USD", asset_scale=2)


INCOMING: Final = wire.IncomingPayment(
    id=BILL,
    wallet_address=BOB,
    completed=False,
    incoming_amount=dollars(2500),
    received_amount=dollars(0),
    expires_at=EXPIRES,
    metadata=METADATA,
    created_at=CREATED,
    methods=[
        wire.PaymentMethod(
            type="ilp",
            ilp_address="g.example.pay.bob.s5vFmQhNnqQ",
            shared_secret="1c7eaXa4rd2fFOBl1iydvCT1tV5TbM3RW1WLCafu_JA",  # noqa: S106
        )
    ],
)
# Lists and the answer to complete have no methods.
COMPLETED: Final = replace(INCOMING, completed=True, received_amount=dollars(2500), methods=UNSET)
OUTGOING: Final = wire.OutgoingPayment(
    id=PAYMENT,
    wallet_address=ALICE,
    quote_id=QUOTE,
    failed=False,
    receiver=BILL,
    receive_amount=dollars(2500),
    debit_amount=dollars(2525),
    sent_amount=dollars(2525),
    metadata=METADATA,
    created_at=CREATED,
)
# The first page is the last one.
PAGINATION: Final = wire.Pagination(has_next_page=False, has_previous_page=False)
BUDGET: Final = gnap.OutgoingPaymentAccess(
    actions=["create", "read"],
    identifier=ALICE,
    limits=gnap.Limits(debit_amount=dollars(10000), interval="R12/2026-11-22T10:15:00Z/P1M"),
)
EXAMPLE_TOKEN: Final = gnap.AccessToken(
    value="OS9M2PMHKUR64TB8N6BW7OZB8CDFONP219RP1LT0",
    manage=f"{BASE}/token/019aabf4-2b70-7e6c-8f10-6f1f1a2b3c4d",
    expires_in=600,
    access=Raw(wire.encode([gnap.IncomingPaymentAccess(actions=["create", "read"], identifier=BOB)])),
)
CONTINUE: Final = gnap.Continue(
    access_token=gnap.ContinueToken(value="33OMUKMKSKU80UPRY5NM"),
    uri=f"{BASE}/continue/019aabf4-9c40-7a3d-8a51-7d2e3f4a5b6c",
)
EXAMPLES: Final[dict[Any, Any]] = {
    wire.IncomingPaymentRequest: wire.IncomingPaymentRequest(
        wallet_address=BOB, incoming_amount=dollars(2500), expires_at=EXPIRES, metadata=METADATA
    ),
    wire.IncomingPayment: INCOMING,
    wire.Page[wire.IncomingPayment]: wire.Page(pagination=PAGINATION, result=[COMPLETED]),
    wire.PublicIncomingPayment: wire.PublicIncomingPayment(received_amount=dollars(0), auth_server=BASE),
    wire.QuoteRequest: wire.QuoteRequest(wallet_address=ALICE, receiver=BILL, method="ilp"),
    wire.Quote: wire.Quote(
        id=QUOTE,
        wallet_address=ALICE,
        receiver=BILL,
        receive_amount=dollars(2500),
        debit_amount=dollars(2525),
        expires_at=EXPIRES,
        created_at=CREATED,
    ),
    wire.OutgoingPaymentRequest: wire.OutgoingPaymentRequest(wallet_address=ALICE, quote_id=QUOTE, metadata=METADATA),
    wire.OutgoingPayment: OUTGOING,
    wire.Page[wire.OutgoingPayment]: wire.Page(pagination=PAGINATION, result=[OUTGOING]),
    wire.GrantSpending: wire.GrantSpending(spent_debit_amount=dollars(2525), spent_receive_amount=dollars(2500)),
    gnap.GrantRequest: gnap.GrantRequest(
        client=SHOP,
        access_token=gnap.AccessTokenRequest(access=[BUDGET]),
        interact=gnap.Interact(
            start=["redirect"],
            finish=gnap.Finish(method="redirect", uri="https://shop.example/return", nonce="4edb2194-dbdf-46bb-9397"),
        ),
    ),
    gnap.GrantResponse: gnap.GrantResponse(
        continue_=CONTINUE,
        interact=gnap.InteractResponse(
            redirect=f"{BASE}/interact/019aabf5-10b0-7f21-9e3c-8e4f5a6b7c8d/vPBmbc6QBg", finish="MBDOFXG4Y5CVJCX821LH"
        ),
    ),
    gnap.ContinueRequest: gnap.ContinueRequest(interact_ref="ad82597c-bbfa-4eb0-b72e-328e005b8689"),
    gnap.TokenResponse: gnap.TokenResponse(access_token=EXAMPLE_TOKEN),
    wire.WalletAddress: wire.WalletAddress(
        id=ALICE, public_name="Alice", asset_code="USD", asset_scale=2, auth_server=BASE, resource_server=BASE
    ),
}


TITLE: Final = "Open Payments at payres"
DESCRIPTION: Final = (
    "Wallet addresses, grants (GNAP, RFC 9635), incoming payments, quotes and outgoing payments. All requests but those"
    " for wallet addresses and public forms are signed (RFC 9421) with the key of the client."
)
OBJECT: Final[documents.Schema] = {"type": "object", "additionalProperties": True}
TEXT: Final[documents.Schema] = {"type": "string"}
URL: Final[documents.Schema] = {"type": "string", "format": "uri"}
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
ERRORS_HERE: Final = documents.ERRORS | {
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
SIGNATURE: Final[documents.Schema] = {"signature": [], "signatureInput": []}
TOKEN: Final[documents.Schema] = {"gnap": [], **SIGNATURE}
DIGEST: Final = documents.header_parameter(
    "Content-Digest", "sha-256 or sha-512 of the body (RFC 9530). A request with a body needs it.", TEXT
)
WAIT: Final = documents.header_parameter(
    "Prefer",
    f"`wait=20`: answers once the payment changes, or after so many seconds, {MAX_WAIT_SECONDS} at most.",
    TEXT,
)


class PublicKeys(msgspec.Struct, frozen=True):
    keys: Sequence[documents.PublicKey]


# The key of RFC 8037, appendix A.2.
KEYS: Final = PublicKeys(
    [documents.PublicKey("key-1", "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", alg="EdDSA", kty="OKP", crv="Ed25519")]
)


class PublishedOperation(NamedTuple):
    """What the route does not specify. The ids are those of the published Open Payments documents."""

    id: str
    summary: str
    answer: Any = None
    body: Any = None
    parameters: Sequence[documents.Schema] = ()
    media_types: Mapping[str, documents.Schema] = {}
    has_public_form: bool = False
    can_be_late: bool = False  # the resource's state may no longer permit it


LISTED: Final = [{**documents.query_parameter("wallet-address", URL), "required": True}, *documents.page_parameters()]
OPERATIONS: Final[Mapping[str, PublishedOperation]] = {
    "POST /incoming-payments": PublishedOperation(
        "create-incoming-payment", "Creates an incoming payment.", wire.IncomingPayment, wire.IncomingPaymentRequest
    ),
    "GET /incoming-payments": PublishedOperation(
        "list-incoming-payments", "Lists incoming payments.", wire.Page[wire.IncomingPayment], parameters=LISTED
    ),
    "GET /incoming-payments/{id}": PublishedOperation(
        "get-incoming-payment",
        "Reads an incoming payment; without Authorization its public form.",
        (wire.IncomingPayment, wire.PublicIncomingPayment),
        parameters=[WAIT],
        has_public_form=True,
    ),
    "POST /incoming-payments/{id}/complete": PublishedOperation(
        "complete-incoming-payment",
        "Completes an incoming payment: it takes no more money.",
        wire.IncomingPayment,
        can_be_late=True,
    ),
    "POST /quotes": PublishedOperation("create-quote", "Creates a quote.", wire.Quote, wire.QuoteRequest),
    "GET /quotes/{id}": PublishedOperation("get-quote", "Reads a quote.", wire.Quote),
    "POST /outgoing-payments": PublishedOperation(
        "create-outgoing-payment",
        "Creates an outgoing payment, which moves money.",
        wire.OutgoingPayment,
        wire.OutgoingPaymentRequest,
        can_be_late=True,
    ),
    "GET /outgoing-payments": PublishedOperation(
        "list-outgoing-payments", "Lists outgoing payments.", wire.Page[wire.OutgoingPayment], parameters=LISTED
    ),
    "GET /outgoing-payments/{id}": PublishedOperation(
        "get-outgoing-payment", "Reads an outgoing payment.", wire.OutgoingPayment, parameters=[WAIT]
    ),
    "GET /outgoing-payment-grant": PublishedOperation(
        "get-outgoing-payment-grant", "What the token's grant has spent in its current interval.", wire.GrantSpending
    ),
    "POST /": PublishedOperation("post-request", "Asks for a grant.", gnap.GrantResponse, gnap.GrantRequest),
    "POST /continue/{id}": PublishedOperation(
        "post-continue", "Continues a grant after consent, or waits for it.", gnap.GrantResponse, gnap.ContinueRequest
    ),
    "DELETE /continue/{id}": PublishedOperation("delete-continue", "Cancels a grant, with all its tokens."),
    "OPTIONS /": PublishedOperation("discover", "What the authorization server can do (RFC 9635 section 9).", OBJECT),
    "POST /token/{id}": PublishedOperation("post-token", "Rotates an access token.", gnap.TokenResponse),
    "DELETE /token/{id}": PublishedOperation("delete-token", "Revokes an access token."),
    "GET /{path:wallet}": PublishedOperation(
        "get-wallet-address",
        "Shows a wallet address, or how to pay it by SPSP. Slashes in its path are sent as they are.",
        wire.WalletAddress,
        media_types={SPSP_TYPE: OBJECT},
    ),
    "GET /{path:wallet}/jwks.json": PublishedOperation(
        "get-wallet-address-keys", "The keys of a client with this wallet address.", PublicKeys
    ),
    "GET /{path:wallet}/did.json": PublishedOperation(
        "get-wallet-address-did-document", "The same keys as a DID document.", OBJECT
    ),
}


@cache
def encoded_document(base_url: str) -> msgspec.Raw:
    """The encoded document."""
    return msgspec.Raw(documents.as_text(public_document(base_url)).encode())


def public_document(base_url: str) -> dict[str, Any]:
    """The document of the server at a base URL."""
    shown = ((method, route.path, f"{method} {route.path}") for route in ROUTES for method in route.handlers)
    found = [
        (method, path, _operation(method, path, OPERATIONS[name])) for method, path, name in shown if name in OPERATIONS
    ]
    return documents.document(TITLE, DESCRIPTION, base_url, found, TAGS, SECURITY_SCHEMES, [TOKEN])


def _operation(method: str, path: str, operation: PublishedOperation) -> documents.Schema:
    names, security = re.findall(r"{(\w+)", path), security_of(method, path)
    needs_access = path.startswith(RESOURCES)
    creates = needs_access and operation.body is not None
    answers = {} if operation.answer is None else {JSON: operation.answer, **operation.media_types}
    statuses = ALWAYS | (SIGNED if security else set())
    may_be = {403: needs_access, 404: names, 409: operation.can_be_late, 422: creates}
    statuses |= {status for status, applies in may_be.items() if applies}
    return documents.operation(
        {
            "operationId": operation.id,
            "summary": operation.summary,
            "tags": [TAG_OF[path.split("/")[1]]],
            "security": [*security, {}] if operation.has_public_form else security,
        },
        [
            *(documents.path_parameter(name, TEXT) for name in names),
            *operation.parameters,
            *([documents.idempotency_key()] if creates else []),
            *([] if operation.body is None else [DIGEST]),
        ],
        204 if operation.answer is None else 201 if creates else 200,
        "Done" if operation.answer is None else "The result",
        answers,
        {status: ERRORS_HERE[status] for status in statuses},
        operation.body,
        needs_body=operation.body is not gnap.ContinueRequest,  # polling sends none
        examples=EXAMPLES
        | {PublicKeys: KEYS}
        | ({wire.IncomingPayment: COMPLETED} if path.endswith("/complete") else {}),
    )


def security_of(method: str, path: str) -> Sequence[documents.Schema]:
    """The alternatives of required security schemes."""
    if path.startswith("/{") or method == "OPTIONS":
        return []
    if path == "/":
        return [SIGNATURE]
    return [TOKEN, SIGNATURE] if path.startswith("/token/") else [TOKEN]  # /token/ also works without the token
