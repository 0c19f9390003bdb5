"""The reasons for rejecting a signature, and the rejection."""

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """A stable code for clients and documentation; `meaning` explains it in one line."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> "Reason":
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    MISSING_SIGNATURE = (
        "missing_signature",
        "No label appears in both the Signature-Input and the Signature header.",
    )
    MALFORMED_SIGNATURE = (
        "malformed_signature",
        "The Signature header is not a dictionary of 64-byte base64 signatures.",
    )
    MALFORMED_SIGNATURE_INPUT = (
        "malformed_signature_input",
        "The Signature-Input header is not a dictionary of component lists with parameters.",
    )
    TOO_MANY_SIGNATURES = ("too_many_signatures", "The message carries more signatures than are examined.")
    REPEATED_HEADER = ("repeated_header", "A header that may appear once appears several times.")
    MISSING_COMPONENT = ("missing_component", "The signature does not cover a component that it must cover.")
    DUPLICATE_COMPONENT = ("duplicate_component", "The signature lists one component twice.")
    UNSUPPORTED_COMPONENT = (
        "unsupported_component",
        "A component is an unknown derived one, has parameters, or is not a lower-case header name.",
    )
    MALFORMED_COMPONENT = (
        "malformed_component",
        "The value of a covered component cannot be part of a signature base.",
    )
    COMPONENT_NOT_IN_MESSAGE = ("component_not_in_message", "The signature covers a header that the message lacks.")
    MISSING_KEYID = ("missing_keyid", "The keyid parameter is absent or not a string of 1 to 256 characters.")
    UNKNOWN_KEY = ("unknown_key", "The client has no key with this keyid.")
    UNSUPPORTED_ALGORITHM = ("unsupported_algorithm", 'The alg parameter is something other than "ed25519".')
    UNSUPPORTED_TAG = ("unsupported_tag", 'The tag parameter is something other than "gnap".')
    MISSING_CREATED = ("missing_created", "The created parameter is absent or not an integer.")
    CREATED_TOO_OLD = ("created_too_old", "The signature was created too long ago.")
    CREATED_IN_FUTURE = ("created_in_future", "The signature was created in the future.")
    EXPIRED = ("expired", "The expires parameter is past or not an integer.")
    MALFORMED_NONCE = ("malformed_nonce", "The nonce parameter is not a string of 1 to 256 characters.")
    NONCE_REUSED = ("nonce_reused", "The nonce was already used with this key.")
    MISSING_DIGEST = ("missing_digest", "The message has a body but no Content-Digest header.")
    DIGEST_MALFORMED = ("digest_malformed", "The Content-Digest header is not a dictionary of base64 digests.")
    DIGEST_UNSUPPORTED = ("digest_unsupported", "The Content-Digest header has neither sha-256 nor sha-512.")
    DIGEST_MISMATCH = ("digest_mismatch", "The Content-Digest header does not match the body.")
    SIGNATURE_MISMATCH = ("signature_mismatch", "The signature does not verify with the client's key.")


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
