"""The reasons for rejecting a signature, and the rejection. docs/errors.md says what each means to a client."""

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """A stable word for clients and documentation."""

    MISSING_SIGNATURE = "missing_signature"
    MALFORMED_SIGNATURE = "malformed_signature"
    MALFORMED_SIGNATURE_INPUT = "malformed_signature_input"
    TOO_MANY_SIGNATURES = "too_many_signatures"
    REPEATED_HEADER = "repeated_header"
    MISSING_COMPONENT = "missing_component"
    DUPLICATE_COMPONENT = "duplicate_component"
    UNSUPPORTED_COMPONENT = "unsupported_component"
    MALFORMED_COMPONENT = "malformed_component"
    COMPONENT_NOT_IN_MESSAGE = "component_not_in_message"
    MISSING_KEYID = "missing_keyid"
    UNKNOWN_KEY = "unknown_key"
    UNSUPPORTED_ALGORITHM = "unsupported_algorithm"
    UNSUPPORTED_TAG = "unsupported_tag"
    MISSING_CREATED = "missing_created"
    CREATED_TOO_OLD = "created_too_old"
    CREATED_IN_FUTURE = "created_in_future"
    EXPIRED = "expired"
    MALFORMED_NONCE = "malformed_nonce"
    NONCE_REUSED = "nonce_reused"
    MISSING_DIGEST = "missing_digest"
    DIGEST_MALFORMED = "digest_malformed"
    DIGEST_UNSUPPORTED = "digest_unsupported"
    DIGEST_MISMATCH = "digest_mismatch"
    SIGNATURE_MISMATCH = "signature_mismatch"


class Rejected(msgspec.Struct, frozen=True):
    """A signature that is not accepted.

    `description` says what to do, `component` names the covered component concerned, and
    `signature_base` (only for `signature_mismatch`) is the base computed here, to compare with the signer's.
    """

    reason: Reason
    description: str
    component: str | None = None
    signature_base: str | None = None


class SignatureError(Exception):
    """Raised with a `Rejected` when a rule is broken."""

    def __init__(self, reason: Reason, description: str, component: str | None = None) -> None:
        super().__init__(description)
        self.rejected = Rejected(reason, description, component)


def shown(value: str) -> str:
    """Return text that a client sent, quoted and short enough for a sentence."""
    return repr(value if len(value) <= 40 else value[:40] + "...")
