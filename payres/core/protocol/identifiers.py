"""Ids, tokens and nonces, and base64url."""

import hashlib
import re
import secrets
import time
import uuid
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from typing import Final

import uuid_utils

TOKEN_BYTES = 32
EVENT_ID = "evt_"
ID_TIME: Final = 13  # characters of a UUIDv7 with its time
URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def new_id() -> str:
    """A UUIDv7: later ids of the process sort after earlier ones. If the clock was set back by minutes since, they
    follow it, and rise by the millisecond: exports and lists of a period find their rows by the time in ids."""
    found, now = str(uuid_utils.uuid7()), time.time_ns()
    is_ahead = int(found[:8], 16) > (now // 1_000_000 >> 16) + 1  # in units of 65 seconds
    return str(uuid_utils.uuid7(nanoseconds=now)) if is_ahead else found


def new_secret() -> str:
    """An unguessable URL-safe text of 256 random bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_bearer_token(text: str) -> bool:
    """Whether a text can be sent as `Authorization: Bearer` (RFC 6750 section 2.1)."""
    return re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", text) is not None


def first_identifier(moment: int) -> str:
    """A text that sorts before every UUIDv7 of this time (microseconds since 1970) or later (RFC 9562 section 5.7)."""
    milliseconds = max(moment // 1000, 0)
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}"


def moment_of(identifier: str) -> int:
    """The time in a UUIDv7 (microseconds since 1970), to the millisecond."""
    return int(identifier.replace("-", "")[:12], 16) * 1000


def event_id(time: int, sequence: int) -> str:
    """The id of an event: a UUIDv7 (RFC 9562) of its time (microseconds) and its sequence, which identifies its row."""
    milliseconds, rest = divmod(time, 1000)
    number = milliseconds << 80 | 0x7 << 76 | rest << 64 | 0b10 << 62 | sequence
    return f"{EVENT_ID}{uuid.UUID(int=number)}"


def sequence_of(text: str) -> int | None:
    """The sequence in the id of an event; None if malformed."""
    try:
        number = uuid.UUID(text.removeprefix(EVENT_ID)).int
    except ValueError:
        return None
    return number & ((1 << 62) - 1)


def hash_secret(secret: str) -> bytes:
    """The SHA-256 of a token, which is stored instead. A token has 256 random bits, so no salt is needed."""
    return hashlib.sha256(secret.encode()).digest()


def base64url(data: bytes) -> str:
    """Base64url without padding (RFC 4648 section 5, RFC 7515 section 2)."""
    # urlsafe_b64encode takes the same three steps, with more Python calls.
    return b2a_base64(data, newline=False).rstrip(b"=").translate(URL_SAFE).decode("ascii")


def base64url_decoded(text: str) -> bytes:
    """Decodes base64url. Raises ValueError for an impossible length.

    Ignores characters outside base64: validate input before.
    """
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
