"""Signatures of webhooks as in Standard Webhooks 1.0: HMAC-SHA256 over id, timestamp and body."""

import base64
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from payres.encoding import base64url_decoded
from payres.store.work import Work

PREFIX: Final = "whsec_"


def new_secret(work: Work) -> str:
    """A secret of 256 random bits, in the form that receivers' libraries expect."""
    return PREFIX + base64.b64encode(base64url_decoded(work.new_secret())).decode()


def signed_headers(event_id: str, seconds: int, body: bytes, secrets: Sequence[str]) -> Mapping[str, str]:
    """The headers of one attempt at this time (seconds since 1970), with a signature under each secret."""
    content = f"{event_id}.{seconds}.".encode() + body
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{_signature(secret, content)}" for secret in secrets),
    }


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.digest(key, content, "sha256")).decode()
