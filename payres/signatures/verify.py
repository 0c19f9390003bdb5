"""Verify the signature of a request (RFC 9421 section 3.2, RFC 9635 section 7.3.1).

Two steps, because the key is looked up by what the first one finds: `parse` does all that needs no key, `verify` the
rest. Both are pure and return a `Rejected` for any bytes of an unauthenticated client; neither raises. How old a
signature may be is checked in `parameters.check_freshness`; whether its nonce was used before, in
`payres.store.nonces.use_nonce`.
"""

from collections.abc import Mapping

import msgspec
from nacl.bindings import crypto_sign_BYTES, crypto_sign_open
from nacl.exceptions import BadSignatureError

from payres.signatures.base import Fields, Message, field_value, header_fields, signature_base
from payres.signatures.digest import digest_problem
from payres.signatures.fields import (
    SignatureInput,
    covered_components,
    signature_bytes,
    split_signature,
    split_signature_input,
)
from payres.signatures.jwk import JWK, public_bytes
from payres.signatures.parameters import Parameters, Policy, check_freshness, read_parameters
from payres.signatures.reasons import Reason, Rejected, SignatureError, shown


class Verified(msgspec.Struct, frozen=True):
    """A signature that verifies: who signed (`keyid`), when (`created`, Unix seconds), and what else it says."""

    label: str
    keyid: str
    created: int
    nonce: str | None
    expires: int | None


class Candidate(msgspec.Struct, frozen=True):
    """A signature that passes every check that needs no key."""

    signature_input: SignatureInput
    components: tuple[str, ...]
    parameters: Parameters
    base: bytes
    signature: bytes


class Unverified(msgspec.Struct, frozen=True):
    """What `parse` found. None of it is verified: use `keyid` to look the key up, and nothing else before `verify`.

    `now` is the time at which it was fresh: all else that depends on the clock must use this one.
    """

    message: Message
    candidates: tuple[Candidate, ...]
    now: int

    @property
    def keyids(self) -> tuple[str, ...]:
        """The keyids of all candidates, in order; nearly always one."""
        if len(self.candidates) == 1:
            return (self.candidates[0].parameters.keyid,)
        return tuple(dict.fromkeys([candidate.parameters.keyid for candidate in self.candidates]))


def parse(message: Message, policy: Policy, now: int) -> Unverified | Rejected:
    """Check structure, coverage, freshness and digest; `now` is microseconds since the Unix epoch.

    Every signature of the message is examined (RFC 9635 section 7.3.1). If none is acceptable, the answer is what is
    wrong with the first.
    """
    fields = header_fields(message.headers)
    try:
        signed = signed_inputs(fields)
        if len(fields.get(b"authorization", ())) > 1:  # the wrong one may be read
            raise SignatureError(Reason.REPEATED_HEADER, "Send the Authorization header only once.", "authorization")
    except SignatureError as error:
        return error.rejected
    required = required_components(message, fields)
    candidates: list[Candidate] = []
    problems: list[Rejected] = []
    for signature_input, signature in signed:
        try:
            candidates.append(_candidate(message, fields, required, signature_input, signature, policy, now))
        except SignatureError as error:
            problems.append(error.rejected)
    problem = _digest_rejection(message, fields, candidates)
    if problem is not None:
        # The digest belongs to the message, not to one signature: with a wrong digest every signature over it fails.
        candidates = [candidate for candidate in candidates if "content-digest" not in candidate.components]
        problems.append(problem)
    return Unverified(message, tuple(candidates), now) if candidates else problems[0]


def verify(unverified: Unverified, keys: Mapping[str, JWK]) -> Verified | Rejected:
    """Check each candidate with the key that its keyid names, and return the first that verifies.

    `keys` are the client's by kid. If none verifies, the answer is what is wrong with the first candidate.
    """
    problem = None
    for candidate in unverified.candidates:
        parameters, base = candidate.parameters, candidate.base
        key = keys.get(parameters.keyid)
        if key is not None and _is_valid(unverified.message, candidate, key):
            label = candidate.signature_input.label
            return Verified(label, parameters.keyid, parameters.created, parameters.nonce, parameters.expires)
        if problem is None and key is None:
            says = f"The client has no valid key with kid {shown(parameters.keyid)}."
            problem = Rejected(Reason.UNKNOWN_KEY, says)
        elif problem is None:
            says = "The signature does not verify with this key. Compare the signature base computed here with yours."
            shown_base = base.decode("utf-8", "backslashreplace")
            problem = Rejected(Reason.SIGNATURE_MISMATCH, says, signature_base=shown_base)
    assert problem is not None, "there is a candidate"
    return problem


def with_likely_cause(rejected: Rejected, unverified: Unverified, keys: Mapping[str, JWK]) -> Rejected:
    """A `signature_mismatch` whose description also says if another origin was signed, of two that are tried.

    They are this server's with the other scheme, and the Host of the request: clients then call another URL than its
    base_url. It costs two verifications at most.
    """
    message, candidate = unverified.message, unverified.candidates[0]
    scheme, _, rest = message.target_uri.partition("://")
    host, slash, path = rest.partition("/")
    origins = ["http://" + host if scheme == "https" else "https://" + host]
    called = message.header("host")
    if called and called.lower() != host.lower():
        # The scheme is not in the request; a name without a domain, or with a port, is seldom called over https.
        origins.append(("http://" if ":" in called or "." not in called else "https://") + called)
    for origin in origins:
        signed = msgspec.structs.replace(message, target_uri=f"{origin}{slash}{path}")
        base = signature_base(signed, candidate.components, candidate.signature_input.text)
        if is_signature(candidate.signature, base, keys[candidate.parameters.keyid]):
            says = (
                f"{rejected.description} It verifies if @target-uri begins with {shown(origin)}: call {scheme}://{host}"
                " and sign that, or have the operator set base_url to the URL that clients call."
            )
            return msgspec.structs.replace(rejected, description=says)
    return rejected


def signed_inputs(fields: Fields) -> list[tuple[SignatureInput, str]]:
    """Return each member of Signature-Input that has a signature, with the signature's text.

    Raises SignatureError if there is none, or if one of the two headers cannot be read.
    """
    input_value = field_value(fields.get(b"signature-input", ()))
    signature_value = field_value(fields.get(b"signature", ()))
    if not input_value or not signature_value:
        absent = "Signature" if input_value else "Signature-Input"
        raise SignatureError(Reason.MISSING_SIGNATURE, f"Sign the request: it has no {absent} header.")
    inputs = split_signature_input(input_value)
    signatures = split_signature(signature_value, inputs)
    signed = [(entry, signatures[entry.label]) for entry in inputs if entry.label in signatures]
    if not signed:
        raise SignatureError(
            Reason.MISSING_SIGNATURE, "Use the same label in the Signature-Input and the Signature header."
        )
    return signed


def required_components(message: Message, fields: Fields) -> list[str]:
    """Return what a signature of this message must cover (RFC 9635 section 7.3.1)."""
    required = ["@method", "@target-uri"]
    if b"authorization" in fields:
        required.append("authorization")
    if message.body:
        required.append("content-digest")
    return required


def _candidate(
    message: Message,
    fields: Fields,
    required: list[str],
    signature_input: SignatureInput,
    signature: str,
    policy: Policy,
    now: int,
) -> Candidate:
    """Return one signature ready for the key; raise SignatureError for the first rule it breaks."""
    raw_signature = signature_bytes(signature)
    components = covered_components(signature_input.components)
    for name in required:
        if name not in components or (name == "content-digest" and b"content-digest" not in fields):
            raise _uncovered(name, fields)
    parameters = read_parameters(signature_input.parameters)
    check_freshness(parameters, policy, now)
    base = signature_base(message, components, signature_input.text, fields)
    return Candidate(signature_input, components, parameters, base, raw_signature)


def _uncovered(name: str, fields: Fields) -> SignatureError:
    if name == "content-digest" and b"content-digest" not in fields:
        return SignatureError(Reason.MISSING_DIGEST, "Send a Content-Digest header with the body, and cover it.", name)
    return SignatureError(Reason.MISSING_COMPONENT, f"The signature must cover {shown(name)}.", name)


def _digest_rejection(message: Message, fields: Fields, candidates: list[Candidate]) -> Rejected | None:
    """Check Content-Digest against the raw body if any candidate covers it, as all do when there is a body."""
    lines = fields.get(b"content-digest")
    if lines is None or not any("content-digest" in found.components for found in candidates):
        return None
    reason = digest_problem(field_value(lines).decode("latin-1"), message.body)
    if reason is None:
        return None
    cause = "The body was changed after signing, or serialized again. " if reason is Reason.DIGEST_MISMATCH else ""
    advice = "Send Content-Digest as sha-512=:<base64>: over the exact bytes of the body."
    return Rejected(reason, f"{reason.meaning} {cause}{advice}", "content-digest")


def respelled(message: Message) -> Message | None:
    """The message with the one other spelling of its target that is taken, or None if it has none.

    Both spellings name the same resource, so a signature over the other one is as good. Nothing else is tried.
    """
    path, mark, query = message.target_uri.partition("?")
    if not query:
        # ASGI does not distinguish a bare question mark from none, so both spellings may be the one that was sent.
        return msgspec.structs.replace(message, target_uri=path if mark else f"{path}?")
    if "%3A" not in query:
        return None
    # .NET signs Uri.ToString(), which shows %3A in a query as a colon, and sends the escaped form.
    return msgspec.structs.replace(message, target_uri=path + mark + query.replace("%3A", ":"))


def _is_valid(message: Message, candidate: Candidate, key: JWK) -> bool:
    if is_signature(candidate.signature, candidate.base, key):
        return True
    other = respelled(message)
    if other is None:
        return False
    base = signature_base(other, candidate.components, candidate.signature_input.text)
    return is_signature(candidate.signature, base, key)


def is_signature(signature: bytes, base: bytes, key: JWK) -> bool:
    """Whether the signature is one by the key over just this signature base (RFC 8032 section 5.1.7).

    Keys and points that are of small order, or not in their canonical encoding, sign nothing.
    """
    if len(signature) != crypto_sign_BYTES:
        return False
    try:
        crypto_sign_open(signature + base, public_bytes(key.x))
    except BadSignatureError:
        return False
    return True
