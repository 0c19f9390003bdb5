"""Verify the signature of a request (RFC 9421 section 3.2, RFC 9635 section 7.3.1).

In two steps, because the first one finds the key id: `parse` does everything that needs no key, `verify` the rest. Both
are pure and return a `Rejected` for any bytes of an unauthenticated client; neither raises. The caller checks whether a
nonce was used before.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec
from nacl.bindings import crypto_sign_BYTES, crypto_sign_open
from nacl.exceptions import BadSignatureError

from payres.core.protocol.errors import Rejected, SignatureError, shown
from payres.core.signatures.fields import (
    Parameters,
    SignatureMember,
    covered_components,
    digest_problem,
    read_parameters,
    read_signatures,
    signature_bytes,
)
from payres.core.signatures.jwk import JWK, public_bytes
from payres.core.signatures.sign import Fields, Message, field_value, header_fields, signature_base

SECOND: Final = 1_000_000  # microseconds
MAX_FUTURE_SECONDS: Final = 60  # tolerance for `created` in the future
_WRONG_DIGEST: Final = {
    "digest_malformed": "The Content-Digest header is not a dictionary of base64 digests.",
    "digest_unsupported": "The Content-Digest header has neither sha-256 nor sha-512.",
    "digest_mismatch": "The Content-Digest header does not match the body. The body was changed after signing, or"
    " serialized again.",
}


class Verified(msgspec.Struct, frozen=True):
    """A verified signature: its key (`keyid`, and the public `x`), time (`created`, Unix seconds) and nonce, if any."""

    keyid: str
    created: int
    nonce: str | None
    x: str
    signature: bytes


class Candidate(msgspec.Struct, frozen=True):
    """A signature that passes every check that needs no key."""

    components: tuple[str, ...]
    parameters: Parameters
    text: str
    base: bytes
    signature: bytes


class Unverified(msgspec.Struct, frozen=True):
    """The result of `parse`. Nothing in it is verified: use only `keyids`, to look up the keys, before `verify`.

    `now` is the time of the freshness check: all other time checks must use it too.
    """

    message: Message
    fields: Fields
    candidates: tuple[Candidate, ...]
    now: int

    @property
    def keyids(self) -> tuple[str, ...]:
        """The distinct keyids of all candidates, in order; usually one."""
        return tuple(dict.fromkeys([candidate.parameters.keyid for candidate in self.candidates]))


class Description(msgspec.Struct):
    """A signature as far as it can be read."""

    components: tuple[str, ...] | None = None
    base: bytes | None = None
    keyid: str | None = None
    created: int | None = None


def parse(message: Message, max_age: int, now: int) -> Unverified | Rejected:
    """Check structure, coverage, freshness and digest. `max_age` of a signature is in seconds, `now` in microseconds
    since the Unix epoch.

    Every signature of the message is examined (RFC 9635 section 7.3.1). Return the first one's problem if none is
    acceptable.
    """
    fields = header_fields(message.headers)
    try:
        members = read_signatures(_value(fields, b"signature-input"), _value(fields, b"signature"))
        if len(fields.get(b"authorization", ())) > 1:  # another reader may use the other one
            raise SignatureError("repeated_header", "Send the Authorization header only once.", "authorization")
    except SignatureError as error:
        return error.rejected
    candidates: list[Candidate] = []
    problems: list[Rejected] = []
    for member in members:
        try:
            candidates.append(_candidate(message, fields, member, max_age, now))
        except SignatureError as error:
            problems.append(error.rejected)
    problem = _digest_rejection(message, fields, candidates)
    if problem is not None:
        # The digest belongs to the message: if it is wrong, every signature that covers it fails.
        candidates = [candidate for candidate in candidates if "content-digest" not in candidate.components]
        problems.append(problem)
    return Unverified(message, fields, tuple(candidates), now) if candidates else problems[0]


def verify(unverified: Unverified, keys: Mapping[str, JWK]) -> Verified | Rejected:
    """Check each candidate with the key of its keyid, and return the first that verifies.

    `keys` are the client's by kid. If none verifies, return the problem of the first candidate.
    """
    for candidate in unverified.candidates:
        found, key = candidate.parameters, keys.get(candidate.parameters.keyid)
        if key is not None and (
            is_signature(candidate.signature, candidate.base, key)
            or _signed_target(unverified, candidate, key, _respelled(unverified.message.target_uri)) is not None
        ):
            return Verified(found.keyid, found.created, found.nonce, key.x, candidate.signature)
    first = unverified.candidates[0]
    if first.parameters.keyid not in keys:
        says = f"The client has no valid key with kid {shown(first.parameters.keyid)}."
        return Rejected("unknown_key", says)
    says = "The signature does not verify with this key. Compare the signature base computed here with yours."
    return Rejected("signature_mismatch", says, signature_base=first.base.decode("utf-8", "backslashreplace"))


def with_likely_cause(rejected: Rejected, unverified: Unverified, keys: Mapping[str, JWK]) -> Rejected:
    """Extend the description of a `signature_mismatch` if another origin was signed, of two that are tried.

    They are this server's with the other scheme, and the request's Host: clients then call a URL other than base_url.
    It costs at most two verifications.
    """
    candidate = unverified.candidates[0]
    scheme, _, rest = unverified.message.target_uri.partition("://")
    host, slash, path = rest.partition("/")
    origins = ["http://" + host if scheme == "https" else "https://" + host]
    called = _value(unverified.fields, b"host").decode("latin-1")
    if called and called.lower() != host.lower():
        # The scheme is not in the request; a name without a domain, or with a port, is rarely called over https.
        origins.append(("http://" if ":" in called or "." not in called else "https://") + called)
    targets = [origin + slash + path for origin in origins]
    target = _signed_target(unverified, candidate, keys[candidate.parameters.keyid], targets)
    if target is None:
        return rejected
    says = (
        f"{rejected.description} It verifies if @target-uri begins with {shown(origins[targets.index(target)])}: call"
        f" {scheme}://{host} and sign that, or have the operator set base_url to the URL that clients call."
    )
    return msgspec.structs.replace(rejected, description=says)


def describe_signature(message: Message) -> Description:
    """What can be read of a message's first signature, also of one that is refused."""
    fields, found = header_fields(message.headers), Description()
    with suppress(SignatureError):
        member = read_signatures(_value(fields, b"signature-input"), _value(fields, b"signature"))[0]
        found.components = covered_components(member.components)
        found.base = signature_base(message, found.components, member.signed_text, fields)
        parameters = read_parameters(member.parameters)
        found.keyid, found.created = parameters.keyid, parameters.created
    return found


def is_signature(signature: bytes, base: bytes, key: JWK) -> bool:
    """Whether the signature is the key's over exactly this signature base (RFC 8032 section 5.1.7).

    Rejects keys and points of small order or not in canonical encoding.
    """
    if len(signature) != crypto_sign_BYTES:
        return False
    try:
        crypto_sign_open(signature + base, public_bytes(key.x))
    except BadSignatureError:
        return False
    return True


def _candidate(message: Message, fields: Fields, member: SignatureMember, max_age: int, now: int) -> Candidate:
    """Return a signature ready for verification; raise SignatureError for the first violated rule."""
    signature = signature_bytes(member.signature)
    components = covered_components(member.components)
    _check_coverage(message, fields, components)
    parameters = read_parameters(member.parameters)
    _check_freshness(parameters, max_age, now)
    base = signature_base(message, components, member.signed_text, fields)
    return Candidate(components, parameters, member.signed_text, base, signature)


def _check_coverage(message: Message, fields: Fields, components: tuple[str, ...]) -> None:
    """Raises SignatureError unless everything required is covered (RFC 9635 section 7.3.1)."""
    required = ["@method", "@target-uri"]
    if b"authorization" in fields:
        required.append("authorization")
    for name in required:
        if name not in components:
            raise SignatureError("missing_component", f"The signature must cover {shown(name)}.", name)
    if message.body and b"content-digest" not in fields:
        says = "Send a Content-Digest header with the body, and cover it."
        raise SignatureError("missing_digest", says, "content-digest")
    if message.body and "content-digest" not in components:
        raise SignatureError("missing_component", "The signature must cover 'content-digest'.", "content-digest")


def _check_freshness(parameters: Parameters, max_age: int, now: int) -> None:
    """Raises SignatureError unless the signature is fresh."""
    age = now - parameters.created * SECOND
    if age > max_age * SECOND:
        says = (
            f"The signature is {age // SECOND} s old, and {max_age} s are allowed; sign the request again, and check"
            " your clock."
        )
        raise SignatureError("created_too_old", says)
    if -age > MAX_FUTURE_SECONDS * SECOND:
        says = f"The signature was created {-age // SECOND} s in the future; check your clock."
        raise SignatureError("created_in_future", says)
    if parameters.expires is not None and now >= parameters.expires * SECOND:
        raise SignatureError("expired", "The signature has expired; sign the request again.")


def _digest_rejection(message: Message, fields: Fields, candidates: list[Candidate]) -> Rejected | None:
    """Check Content-Digest against the raw body if any candidate covers it, as all do if there is a body."""
    if not any("content-digest" in found.components for found in candidates):
        return None
    reason = digest_problem(_value(fields, b"content-digest").decode("latin-1"), message.body)
    if reason is None:
        return None
    advice = "Send Content-Digest as sha-512=:<base64>: over the exact bytes of the body."
    return Rejected(reason, f"{_WRONG_DIGEST[reason]} {advice}", "content-digest")


def _value(fields: Fields, name: bytes) -> bytes:
    return field_value(fields.get(name, ()))


def _respelled(target_uri: str) -> list[str]:
    """The accepted alternative spellings of a target, at most one: both name the same resource."""
    path, mark, query = target_uri.partition("?")
    if not query:
        # ASGI does not distinguish a bare question mark from none, so either spelling may have been sent.
        return [path if mark else f"{path}?"]
    # .NET signs Uri.ToString(), which shows %3A in a query as a colon, and sends the escaped form.
    return [path + mark + query.replace("%3A", ":")] if "%3A" in query else []


def _signed_target(unverified: Unverified, candidate: Candidate, key: JWK, targets: Iterable[str]) -> str | None:
    """The first of these targets for which the signature verifies."""
    for target in targets:
        other = msgspec.structs.replace(unverified.message, target_uri=target)
        base = signature_base(other, candidate.components, candidate.text, unverified.fields)
        if is_signature(candidate.signature, base, key):
            return target
    return None
