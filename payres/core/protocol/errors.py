"""Errors: why payres rejects a request, in a sentence that says what the caller can do.

Each class has an HTTP status, a code and fixed descriptions; docs/reference/errors.md is generated from them. Commands
print the sentence; the connector answers with ILP codes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

import msgspec

# Stable words for clients, with their meanings for the table of errors.
MEANINGS: Final[Mapping[str, str]] = {
    "missing_signature": "No label is in both the Signature-Input and the Signature header",
    "malformed_signature": "The Signature header is not a dictionary of 64-byte base64 signatures",
    "malformed_signature_input": "The Signature-Input header is not a dictionary of component lists with parameters",
    "too_many_signatures": "The message carries more signatures than are examined",
    "repeated_header": "A header that may appear once appears several times",
    "missing_component": "The signature does not cover `details.component`",
    "duplicate_component": "The signature lists one component twice",
    "unsupported_component": "A component is unknown, has parameters, or is not a lower-case header name",
    "malformed_component": "The value of a covered component cannot be part of a signature base",
    "component_not_in_message": "The signature covers a header that the message lacks; a proxy may have taken it away",
    "missing_keyid": "The keyid parameter is absent or not a string of 1 to 256 characters",
    "unknown_key": "The client has no key with this keyid, or it was revoked",
    "unsupported_algorithm": "The alg parameter is something other than `ed25519`",
    "unsupported_tag": "The tag parameter is something other than `gnap`",
    "missing_created": "The created parameter is absent or not an integer",
    "created_too_old": "The signature was created too long ago; check the clock",
    "created_in_future": "The signature was created in the future; check the clock",
    "expired": "The expires parameter is past or not an integer",
    "malformed_nonce": "The nonce parameter is not a string of 1 to 256 characters",
    "nonce_reused": "The nonce was already used with this key",
    "signature_reused": "The same signature got a token before; sign each request again",
    "missing_digest": "The message has a body but no Content-Digest header",
    "digest_malformed": "The Content-Digest header is not a dictionary of base64 digests",
    "digest_unsupported": "The Content-Digest header has neither sha-256 nor sha-512",
    "digest_mismatch": "The Content-Digest header does not match the body; serialize the body once",
    "signature_mismatch": "The signature does not verify with the client's key; compare `details.signatureBase`",
}
T = TypeVar("T")
# A client that is denied something must learn why without parsing sentences.
REASON_REQUIRED: Final = (401, 403)


class Rejected(msgspec.Struct, frozen=True):
    """A signature that is not accepted.

    `description` says what to do, `component` names the affected component, and `signature_base` (only for
    `signature_mismatch`) is the base computed here, to compare with the signer's.
    """

    reason: str
    description: str
    component: str | None = None
    signature_base: str | None = None


class SignatureError(Exception):
    """Raised with a `Rejected` when a rule is broken."""

    def __init__(self, reason: str, description: str, component: str | None = None) -> None:
        assert reason in MEANINGS, reason
        super().__init__(description)
        self.rejected = Rejected(reason, description, component)


def shown(value: str) -> str:
    """Return a client's text, quoted and shortened for a sentence."""
    return repr(value if len(value) <= 40 else value[:40] + "...")


class DomainError(Exception):
    """The text is one sentence for the caller.

    `details` is a JSON object for programs: `field` names the invalid member of the request, `reason` is a stable word
    for a case of the class; `reasons` maps these to their meanings. `headers` are added to the HTTP answer. Commands
    print the `advice` after the sentence: what the user of a shell can do.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    reasons: ClassVar[Mapping[str, str]]
    # Rafiki's descriptions, which clients compare, of the code ("") and some reasons. The default is the code in words.
    descriptions: ClassVar[Mapping[str, str]]

    def __init_subclass__(
        cls,
        status: int = 0,
        code: str = "",
        reasons: Mapping[str, str] | None = None,
        descriptions: Mapping[str, str] | None = None,
    ) -> None:
        if status:
            cls.status, cls.code, cls.reasons, cls.descriptions = status, code, reasons or {}, descriptions or {}

    def __init__(
        self, sentence: str, headers: Mapping[str, str] | None = None, /, *, advice: str = "", **details: Any
    ) -> None:
        super().__init__(sentence)
        self.headers = headers or {}
        self.advice = advice
        self.details = details
        reason = details.get("reason")
        self.description = self.described(reason)
        assert reason in self.reasons or (reason is None and self.status not in REASON_REQUIRED), (
            f"{reason} is not a documented reason of {self.code}"
        )

    @classmethod
    def described(cls, reason: str | None) -> str:
        """The fixed description of the code and reason."""
        return cls.descriptions.get(reason or "") or cls.descriptions.get("") or cls.code.replace("_", " ")


def kinds_of_errors(base: type[DomainError] = DomainError) -> Iterator[type[DomainError]]:
    """Every class of errors."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of_errors(kind)


class InvalidRequest(DomainError, status=400, code="invalid_request"):
    """The request is malformed."""


class InvalidAmount(
    DomainError,
    status=400,
    code="invalid_amount",
    reasons={"nothing_arrives": "Nothing would arrive after the fee and in the receiver's currency"},
    descriptions={"nothing_arrives": "non-positive receive amount"},
):
    """An amount is malformed, in another asset, too small or too large."""


class InvalidReceiver(
    DomainError,
    status=400,
    code="invalid_receiver",
    reasons={
        "no_exchange_rate": "The server has no rate between the two currencies",
        "exchange_rate_expired": "The rate between the two currencies is too old; a new one is on its way",
        "no_path": "No Interledger path leads to the receiver, or none at an acceptable rate",
        "not_found": "Its server knows no such incoming payment",
        "no_wallet": "There is no wallet address at the URL",
        "no_address": "On pages: the text is no wallet address and no payment pointer",
        "own_wallet": "On pages: it is the wallet that pays",
        "unreachable": "Its server cannot be reached, or has a fault",
        "untrusted_certificate": "The TLS certificate of its server is not trusted",
        "refused": "Its server does not let this one read it",
        "bad_content": "Its server answers with something other than an incoming payment",
        "completed": "It takes no more money",
        "expired": "It has expired",
        "no_ilp_method": "It cannot be paid over Interledger",
    },
    descriptions={"": "invalid receiver"},
):
    """The receiver cannot be paid, or not at the moment."""


class NoRate(InvalidReceiver):
    """There is no current exchange rate between two currencies."""


class InvalidQuote(DomainError, status=400, code="invalid_quote"):
    """The quote is unknown or expired, or exceeds what its receiver still accepts."""


class InvalidExpiry(DomainError, status=400, code="invalid_expiry"):
    """The expiry is malformed, or outside the permitted range."""


class InvalidInteraction(DomainError, status=400, code="invalid_interaction"):
    """The request for consent has expired."""


class InvalidClient(DomainError, status=400, code="invalid_client", reasons={"unknown_key": MEANINGS["unknown_key"]}):
    """A grant request names no usable client, or one without the key of the signature."""


class TooEarly(DomainError, status=400, code="too_fast"):
    """A continuation request came before the end of its wait."""


class ClientUnproven(
    DomainError,
    status=401,
    code="invalid_client",
    reasons={
        **MEANINGS,
        "missing_token": "A continuation request has no `Authorization: GNAP <token>`",
        "unknown_client": "The client's wallet address, on another server, is none; 503 if that does not answer",
    },
    descriptions={reason: f"Signature validation error: {reason}" for reason in MEANINGS},
):
    """The signature, digest or key does not authenticate the client."""


class TokenInvalid(
    DomainError,
    status=401,
    code="invalid_token",
    reasons={
        "missing_token": "There is no `Authorization: GNAP <token>`; for peers and API keys, no `Bearer <token>`",
        "unknown_token": "The token was never issued, or was purged with a grant that was not used",
        "expired_token": "The token has expired; rotate it",
        "revoked_token": "The token was rotated or revoked, its grant was, or the API key; the hint says which",
        "other_token": "The token is not the one that this `manage` URL is for",
    },
    descriptions={"": "Invalid Token"},
):
    """The access token is missing, unknown, expired or revoked."""


class BearerTokenInvalid(TokenInvalid):
    """The same for a peer's token or an API key, sent as `Authorization: Bearer` (RFC 6750)."""

    def __init__(self, sentence: str, /, reason: str) -> None:
        super().__init__(sentence, {"WWW-Authenticate": "Bearer"}, reason=reason)


class RequestDenied(
    DomainError,
    status=401,
    code="request_denied",
    reasons={
        "undecided": "The owner has not decided, and the client waits for a redirect",
        "decision_expired": "The owner let the time to decide pass",
        "approval_expired": "The client did not continue within an hour of the approval",
        "missing_interact_ref": "The owner has decided, and the request lacks the `interact_ref` of the redirect",
        "already_issued": "The grant was given and cannot be continued",
        "wrong_password": "On pages: this is not the password",
        "signed_out": "On pages: the sign-in is over",
        "kept_out": "On pages: new browsers are kept out for a day, by the link of a mail",
    },
):
    """The request is denied, perhaps only for now; `reason` says why."""


class GrantNotIssued(RequestDenied):
    """The grant has no token, or not yet."""


class SignInFailed(RequestDenied):
    """The password is wrong, or the browser is signed out."""


class GrantDenied(DomainError, status=401, code="user_denied", reasons={"owner_denied": "The owner said no"}):
    """The wallet's owner denied the grant."""


class InsufficientAccess(
    DomainError,
    status=403,
    code="insufficient_access",
    reasons={
        "action": "No access item of the grant has `details.type` and `details.action`",
        "identifier": "The grant is for another wallet address",
        "frozen_client": "The operator lets grants of this client pay nothing for now",
        "csrf": "On pages: the form was not shown to this browser, or before another sign-in",
        "cross_site": "On pages: the form was sent from another site",
        "scope": "The API key lacks `details.scope`",
    },
):
    """The grant, API key or form does not permit this."""


class LimitExceeded(
    DomainError,
    status=403,
    code="limit_exceeded",
    reasons={
        "debitAmount": "The payment costs more than the grant has left in this window",
        "receiveAmount": "The payment delivers more than the grant has left in this window, or in another asset",
        "interval": "No window of the interval is open now",
        "receiver": "The grant is for another receiver only",
        "revoked_grant": "The grant was revoked. Other requests with its tokens get `revoked_token`",
    },
    descriptions={"": "unauthorized"},
):
    """A limit of the grant is exceeded, or it was revoked; `reason` says which."""


class InsufficientFunds(
    DomainError,
    status=403,
    code="insufficient_funds",
    reasons={
        "wallet": "The wallet does not have enough that is not held",
        "liquidity": "The server cannot exchange so much at the moment",
        "fees": "Fewer fees were collected than are to be taken out",
        "peer": "The peer would owe more than its credit limit",
    },
    descriptions={"wallet": "unauthorized"},
):
    """An account's free balance is too low; `reason` is the kind of account."""


class NotFound(DomainError, status=404, code="not_found"):
    """It does not exist, or the caller must not learn that it does."""


def require(found: T | None, sentence: str, advice: str = "") -> T:
    """The value, if found. Raises NotFound with this sentence, and advice for a shell."""
    if found is None:
        raise NotFound(sentence, advice=advice)
    return found


def nothing_here() -> NotFound:
    """The error for an address that does not exist, or that the caller must not know of."""
    return NotFound("There is nothing at this address")


class InteractionUnknown(DomainError, status=404, code="unknown_interaction"):
    """There is no such request for consent."""


class RotationUnknown(DomainError, status=404, code="invalid_rotation"):
    """There is no access token to rotate."""


class ContinuationUnknown(
    DomainError,
    status=404,
    code="invalid_continuation",
    reasons={"unknown_continuation": "No grant has this URI, token and interact_ref"},
):
    """There is no grant to continue with this URI, token and interact_ref."""


class MethodNotAllowed(DomainError, status=405, code="method_not_allowed"):
    """The address exists, but only accepts other methods: `allowed`, separated by commas."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"This address takes {allowed} only", {"Allow": allowed})


class NotAcceptable(DomainError, status=406, code="not_acceptable"):
    """The Accept header excludes every type of the answer."""


class TooSlow(DomainError, status=408, code="too_slow"):
    """The request was not complete in time."""


class WrongState(
    DomainError,
    status=409,
    code="wrong_state",
    reasons={"inactive_wallet": "The wallet is not active, so nothing can be allowed for it"},
):
    """The state of the resource does not permit the request."""


class PreconditionFailed(DomainError, status=412, code="precondition_failed"):
    """The resource is not as `If-Match` or `If-None-Match` says: changed since, not there, or there already."""


class BodyTooLarge(DomainError, status=413, code="too_large"):
    """The body is too long."""


class UnsupportedMediaType(DomainError, status=415, code="unsupported_media_type"):
    """The address does not accept the body's media type."""


class KeyReused(
    DomainError,
    status=422,
    code="idempotency_key_reused",
    reasons={"path": "The key created something of another kind", "body": "The body differs, byte for byte"},
):
    """An Idempotency-Key was used before, for another request."""


class TooManyRequests(DomainError, status=429, code="too_many_requests"):
    """Too many requests. `retry_after` is the number of seconds until the next is accepted."""

    def __init__(self, sentence: str, /, *, retry_after: int) -> None:
        super().__init__(sentence, {"Retry-After": str(retry_after)})
        self.retry_after = retry_after


class HeadTooLarge(DomainError, status=431, code="too_large"):
    """The request line and headers are too long."""


class ServerFailed(DomainError, status=500, code="internal_error"):
    """A fault of this server."""


class Unavailable(DomainError, status=503, code="unavailable"):
    """Storage or capacity is missing; nothing was changed. `retry_after` is the number of seconds to wait."""

    def __init__(self, sentence: str, /, *, retry_after: int = 1) -> None:
        super().__init__(sentence, {"Retry-After": str(retry_after)})


class OutcomeUnknown(DomainError, status=504, code="unavailable"):
    """The requested operation is in progress, and its outcome is unknown yet."""

    def __init__(self, sentence: str, /) -> None:
        super().__init__(sentence, {"Retry-After": "1"})


def explain_missing(error: ModuleNotFoundError) -> str:
    """The sentence for a machine without the modules of Unix. Raises the error if another module is missing."""
    if error.name not in {"fcntl", "pwd", "resource"}:
        raise error
    return "payres needs Linux, and this is another system: run it in a container, as docs/sandbox.md shows"
