"""Where payres deliberately differs from the published OpenAPI documents: the one list, with reasons.

docs/generate.py writes it into `docs/reference/errors.md`.
"""

from typing import Any, NamedTuple


class Deviation(NamedTuple):
    """Errors of one status and code that the documents do not have for these operations."""

    operations: tuple[str, ...]
    status: int
    code: str
    reason: str


class Leniency(NamedTuple):
    """What these operations take although the documents do not."""

    operations: tuple[str, ...]
    request: str
    reason: str


class Amendment(NamedTuple):
    """What is read otherwise than it is written: `value` stands at `place`, instead of the member `replaces` there."""

    document: str
    place: tuple[str, ...]
    replaces: str | None
    value: Any
    reason: str


LISTED = ("paths", "/incoming-payments", "get", "responses", "200", "content", "application/json", "schema")
COMPLETED = ("paths", "/incoming-payments/{id}/complete", "post", "responses", "200", "content", "application/json")
NO_MEMBER_FITS = (
    "`additionalProperties` knows only the properties beside it, and there are none, so that no incoming payment would "
    "be valid. Those of the referenced schema are meant, and the official client reads it so"
)

AMENDMENTS = (
    Amendment(
        "resource-server",
        (*LISTED, "properties", "result", "items", "unevaluatedProperties"),
        "additionalProperties",
        False,
        NO_MEMBER_FITS,
    ),
    Amendment(
        "resource-server",
        (*COMPLETED, "schema", "unevaluatedProperties"),
        "additionalProperties",
        False,
        NO_MEMBER_FITS,
    ),
    Amendment(
        "auth-server",
        ("components", "schemas", "access-quote", "properties", "identifier"),
        None,
        {"type": "string", "format": "uri"},
        "Access to quotes can be narrowed to one wallet address like the other kinds. The answer says what was granted",
    ),
)

CREATE = ("create-incoming-payment", "create-quote", "create-outgoing-payment")
READ = ("get-incoming-payment", "get-quote", "get-outgoing-payment", "get-outgoing-payment-grant")
LIST = ("list-incoming-payments", "list-outgoing-payments")
CONTINUE = ("post-continue", "delete-continue")
TOKEN = ("post-token", "delete-token")
SIGNED = (*CREATE, *READ, *LIST, "complete-incoming-payment", "post-request", *CONTINUE, *TOKEN)
PUBLIC = ("get-wallet-address", "get-wallet-address-keys")
DID = "get-wallet-address-did-document"

DEVIATIONS = (
    Deviation(
        ("create-incoming-payment", "create-outgoing-payment", *LIST),
        400,
        "invalid_request",
        "Among all that creates and lists, the document has a 400 for quotes only. The others have rules to break too, "
        "one of them on the length of `metadata`",
    ),
    Deviation(
        ("complete-incoming-payment",),
        400,
        "invalid_request",
        "Completing needs no body, and the document has none; what is sent all the same must be JSON",
    ),
    Deviation(
        (*READ, "delete-continue", *TOKEN, *PUBLIC, DID),
        400,
        "invalid_request",
        "What is not HTTP, such as a Content-Length that is no number, is answered before it is known what it is for",
    ),
    Deviation(
        ("create-incoming-payment", "create-outgoing-payment"),
        400,
        "invalid_amount",
        "An amount that no payment can have: no number, zero, in another asset, or more than can be moved",
    ),
    Deviation(
        ("create-incoming-payment",),
        400,
        "invalid_expiry",
        "The time of expiry is past, too far away, or no time at all",
    ),
    Deviation(
        ("create-outgoing-payment",),
        400,
        "invalid_quote",
        "The quote does not exist, has expired, or is not for this client",
    ),
    Deviation(
        ("create-outgoing-payment",),
        400,
        "invalid_receiver",
        "The incoming payment does not exist or takes no more money",
    ),
    Deviation(
        ("post-continue",),
        400,
        "invalid_request",
        "The document expects that the client can be wrong and too fast, but not that its body can be malformed",
    ),
    Deviation(
        ("create-outgoing-payment", "complete-incoming-payment"),
        409,
        "wrong_state",
        "The request is valid and comes too late: a quote pays once, and what has expired cannot be completed. A "
        "client that repeats a request after a lost answer must be able to tell this from a fault of its own",
    ),
    Deviation(
        ("post-continue",),
        401,
        "user_denied",
        "The code of RFC 9635 for an owner who said no; `request_denied` hides that",
    ),
    Deviation(
        TOKEN,
        401,
        "invalid_token",
        "The signature authenticates the client, but the Authorization header is not the right one; "
        "`invalid_client` would send the developer to the keys",
    ),
    Deviation(
        ("delete-continue",),
        404,
        "invalid_continuation",
        "The document answers a POST to a grant that does not exist so, and a DELETE with `invalid_request`",
    ),
    Deviation(
        ("delete-token",),
        404,
        "not_found",
        "There never was a token at this URL, and the document has no answer to that",
    ),
    Deviation(
        (DID,),
        404,
        "not_found",
        "There is no wallet address to have a DID document. The document does not think of that",
    ),
    Deviation(
        (*SIGNED, *PUBLIC, DID), 406, "not_acceptable", "The Accept header rules out JSON, which is the only media type"
    ),
    Deviation(
        SIGNED,
        415,
        "unsupported_media_type",
        "A body must be sent as it is, without a Content-Encoding, and where one is needed it must be JSON and say so; "
        "the documents take it for granted",
    ),
    Deviation(
        CREATE,
        422,
        "idempotency_key_reused",
        "The Idempotency-Key came before, with another request. The documents have no such keys",
    ),
    Deviation(SIGNED, 413, "too_large", "A body has a limit, or anyone could fill the server's memory"),
    Deviation(
        (*SIGNED, *PUBLIC, DID),
        431,
        "too_large",
        "The request line and the headers have a limit, or anyone could fill the server's memory",
    ),
    Deviation(
        (*SIGNED, *PUBLIC, DID),
        408,
        "too_slow",
        "The request did not come in time, or anyone could hold the server's connections",
    ),
    Deviation(
        (*SIGNED, *PUBLIC, DID),
        429,
        "too_many_requests",
        "The client, or the address that it asks from, asks more often than the server takes; Retry-After says when to "
        "go on",
    ),
    Deviation(
        (*SIGNED, *PUBLIC),
        500,
        "internal_error",
        "A fault of payres. The documents leave it out or call it `request_denied`, which sounds like a decision",
    ),
    Deviation(
        (*SIGNED, *PUBLIC, DID),
        503,
        "unavailable",
        "The database cannot take the work or the server is stopping: nothing was done, and Retry-After says when to "
        "try again",
    ),
)

NO_AUTHORIZATION = "without Authorization"
NO_WALLET_ADDRESS = "without walletAddress"
MORE_START_MODES = "with further modes in `interact.start`"
MORE_IN_ACCESS = "with unknown members in access items"

LENIENCIES = (
    Leniency(
        ("get-incoming-payment",),
        NO_AUTHORIZATION,
        "Anyone with the URL may see the public form of an incoming payment. The document describes and forbids it",
    ),
    Leniency(
        TOKEN,
        NO_AUTHORIZATION,
        "The official PHP client may send another token here, or none. The manage URL cannot be guessed, and the "
        "client's signature is checked",
    ),
    Leniency(
        ("create-incoming-payment",),
        NO_WALLET_ADDRESS,
        "The grant names it. The document demands it, and says beside that all members are optional",
    ),
    Leniency(
        ("post-request",),
        MORE_START_MODES,
        "The list says what the client can do (RFC 9635 section 2.5.1). `redirect` is used, and must be in it",
    ),
    Leniency(
        ("post-request",),
        MORE_IN_ACCESS,
        "GNAP lets access items have members that a server need not know; the answer says what was granted. Items for "
        "outgoing payments take none but their own, since a misspelt `limits` must not ask for access without limits",
    ),
)


def find_deviation(operation: str, status: int, code: str) -> Deviation | None:
    """The deviation that allows an operation to answer with this status and code."""
    wanted = (status, code)
    return next((one for one in DEVIATIONS if operation in one.operations and (one.status, one.code) == wanted), None)


def takes(operation: str, request: str) -> bool:
    """Whether a leniency allows an operation to take such a request."""
    return any(operation in one.operations and one.request == request for one in LENIENCIES)
