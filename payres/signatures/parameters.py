"""The parameters of a signature (RFC 9421 section 2.3): their types, allowed values and freshness."""

import re
from collections.abc import Mapping
from typing import Final, cast

import http_sf
import msgspec

from payres.limits import MAX_KEYID_LENGTH, MAX_NONCE_LENGTH
from payres.signatures.fields import reject_duplicate
from payres.signatures.reasons import Reason, SignatureError

SECOND: Final = 1_000_000  # microseconds
# What nearly every client sends: strings without escapes, and whole numbers (RFC 9651 sections 4.2.4 and 4.2.5).
_PLAIN = r';([a-z]++)=(?:"([ !#-\[\]-~]*+)"|([0-9]{1,15}+))'
_PLAIN_PARAMETER = re.compile(_PLAIN)
_PLAIN_PARAMETERS = re.compile(rf"(?:{_PLAIN})*+")


class Policy(msgspec.Struct, frozen=True):
    """How old `created` may be and how far in the future, in seconds.

    A nonce is single-use if it is remembered for the sum of both.
    """

    max_age_seconds: int = 300
    max_future_seconds: int = 60


class Parameters(msgspec.Struct, frozen=True):
    """What a signature says about itself; `created` and `expires` are Unix seconds."""

    keyid: str
    created: int
    nonce: str | None
    expires: int | None


def read_parameters(text: str) -> Parameters:
    """Read `;created=...;keyid=...`; raise SignatureError for the first parameter that is malformed or not allowed.

    Parameters without a meaning here are signed like the others, and ignored.
    """
    found = _parse(text)
    keyid = found.get("keyid")
    # type() rather than isinstance() or ==: to Python a structured-field boolean is an int and a token equals its text.
    if type(keyid) is not str or not 0 < len(keyid) <= MAX_KEYID_LENGTH:
        raise SignatureError(Reason.MISSING_KEYID, "Give the kid of your key as the string parameter keyid.")
    _check_fixed(found, "alg", "ed25519", Reason.UNSUPPORTED_ALGORITHM)
    _check_fixed(found, "tag", "gnap", Reason.UNSUPPORTED_TAG)
    created, expires, nonce = found.get("created"), found.get("expires"), found.get("nonce")
    if type(created) is not int:
        raise SignatureError(Reason.MISSING_CREATED, "Give the time of signing as created, an integer of Unix seconds.")
    if expires is not None and type(expires) is not int:
        raise SignatureError(Reason.EXPIRED, "The expires parameter must be an integer of Unix seconds.")
    if nonce is not None and (type(nonce) is not str or not 0 < len(nonce) <= MAX_NONCE_LENGTH):
        raise SignatureError(
            Reason.MALFORMED_NONCE, f"The nonce must be a string of 1 to {MAX_NONCE_LENGTH} characters."
        )
    return Parameters(keyid, created, nonce, expires)


def check_freshness(parameters: Parameters, policy: Policy, now: int) -> None:
    """Raise SignatureError unless the signature is fresh at `now`, microseconds since the Unix epoch."""
    age = now - parameters.created * SECOND
    if age > policy.max_age_seconds * SECOND:
        raise SignatureError(
            Reason.CREATED_TOO_OLD,
            f"The signature is {age // SECOND} s old, and {policy.max_age_seconds} s are allowed; "
            "sign the request again, and check your clock.",
        )
    if -age > policy.max_future_seconds * SECOND:
        raise SignatureError(
            Reason.CREATED_IN_FUTURE,
            f"The signature was created {-age // SECOND} s in the future; check your clock.",
        )
    if parameters.expires is not None and now >= parameters.expires * SECOND:
        raise SignatureError(Reason.EXPIRED, "The signature has expired; sign the request again.")


def _parse(text: str) -> Mapping[str, object]:
    if _PLAIN_PARAMETERS.fullmatch(text):
        members = _PLAIN_PARAMETER.findall(text)
        found = {name: int(number) if number else string for name, string, number in members}
        if len(found) == len(members):
            return found
    return _parse_structured(text)


def _parse_structured(text: str) -> Mapping[str, object]:
    try:
        # The components have been read; an empty list stands in for them and carries the parameters.
        parsed = http_sf.parse(b"()" + text.encode("ascii"), tltype="list", on_duplicate_key=reject_duplicate)
        [(_, parameters)] = cast("list[tuple[object, dict[str, object]]]", parsed)
    except ValueError as error:
        raise SignatureError(
            Reason.MALFORMED_SIGNATURE_INPUT, f"The parameters of Signature-Input are malformed: {str(error)[:160]}."
        ) from None
    return parameters


def _check_fixed(found: Mapping[str, object], name: str, only: str, reason: Reason) -> None:
    value = found.get(name, only)
    if type(value) is not str or value != only:
        raise SignatureError(reason, f'Leave the {name} parameter out or send {name}="{only}".')
