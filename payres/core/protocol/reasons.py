"""The reasons for rejecting a signature, with their meanings, and the rejection."""

from collections.abc import Mapping
from typing import Final

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
    "missing_digest": "The message has a body but no Content-Digest header",
    "digest_malformed": "The Content-Digest header is not a dictionary of base64 digests",
    "digest_unsupported": "The Content-Digest header has neither sha-256 nor sha-512",
    "digest_mismatch": "The Content-Digest header does not match the body; serialize the body once",
    "signature_mismatch": "The signature does not verify with the client's key; compare `details.signatureBase`",
}


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
