"""Why a captured request is accepted or rejected: the verifier's verdict, each of its rules, and the likely causes.

Verdict and rules come from the verifier's own functions. A cause is named only when it is confirmed: with one known
mistake of clients undone (`variations`), the signature or the digest is right.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from payres.signatures.base import Fields, Message, header_fields, signature_base
from payres.signatures.digest import ALGORITHMS, content_digest, digest_problem
from payres.signatures.fields import SignatureInput, covered_components, signature_bytes
from payres.signatures.jwk import JWK
from payres.signatures.parameters import SECOND, Parameters, Policy, check_freshness, read_parameters
from payres.signatures.reasons import Reason, Rejected, SignatureError, shown
from payres.signatures.variations import Signed, Variation, other_bodies, variations
from payres.signatures.verify import parse, required_components, signed_inputs, verify

T = TypeVar("T")

# The reason for which the server rejects a request without a readable access token, before it looks at the signature.
MISSING_TOKEN: Final = "missing_token"  # noqa: S105 - the name of a reason

_YEAR: Final = 365 * 24 * 3600
_NAME = re.compile(r'[^\s"()]+')


class KnownKey(msgspec.Struct, frozen=True):
    """A key of the client; `unusable` says why the server does not accept it, such as "was revoked", or is None."""

    jwk: JWK
    unusable: str | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What the server answers; `reason` is None when it accepts the signature, the one with `label`."""

    reason: str | None
    sentence: str
    label: str = ""


class Rule(msgspec.Struct, frozen=True):
    """One rule of the verifier; `holds` is None when it could not be checked, `sentence` says what was found."""

    name: str
    holds: bool | None
    sentence: str


class Cause(msgspec.Struct, frozen=True):
    """`cause` is a stable word for programs; `sentence` says what was confirmed and what to do about it."""

    cause: str
    sentence: str


class Explanation:
    """What the server decides about `message` at `now` (microseconds), if `keys` are the client's.

    `earlier` are the errors for which the server rejects it before it looks at the signature, in its order, and
    `remarks` sentences on the capture. `entry` is the member of Signature-Input that is explained. What could not be
    read is None. `tried` counts the variations that were tried.
    """

    def __init__(
        self,
        message: Message,
        keys: Sequence[KnownKey],
        policy: Policy,
        now: int,
        earlier: Sequence[Verdict] = (),
        remarks: Sequence[str] = (),
    ) -> None:
        judged = _judge(message, keys, policy, now)
        self.verdict = earlier[0] if earlier else judged
        self.message, self.keys = message, keys
        self.rules: list[Rule] = []
        self.remarks = list(remarks)
        self.causes: list[Cause] = []
        self.tried = 0
        self.entry: SignatureInput | None = None
        self.signature: bytes | None = None
        self.components: tuple[str, ...] | None = None
        self.parameters: Parameters | None = None
        self.base: bytes | None = None
        self.key: KnownKey | None = None
        self._apply_rules(policy, now, judged.label, any(error.reason == MISSING_TOKEN for error in earlier))
        if self.verdict.reason is not None:
            self._find_causes(policy, now)

    def _apply_rules(self, policy: Policy, now: int, label: str, lacks_token: bool) -> None:
        """Apply every rule, also after one that fails. Later rules use what earlier ones found."""
        message, fields, rule = self.message, header_fields(self.message.headers), self._rule
        found = rule("headers", "Signature-Input and Signature can be read", _signed_input, fields, label)
        if found is None:
            return
        count, entry, text = found
        self.entry = entry
        if count > 1:
            self.remarks.append(f"There are {count} signatures; examined here is {entry.label}.")
        self.signature = rule("signature", "the signature has 64 bytes", signature_bytes, text)
        all_can = "all components are of a kind that can be covered"
        self.components = rule("components", all_can, covered_components, entry.components)
        rule("coverage", None, _check_coverage, message, fields, self.components)
        as_needed = "keyid, created and the others are as they should be"
        self.parameters = rule("parameters", as_needed, read_parameters, entry.parameters)
        if self.parameters is not None and self.parameters.nonce is not None:
            self.remarks.append("The signature has a nonce. Whether it was used before, the server alone knows.")
        rule("freshness", None, _check_freshness, self.parameters, policy, now)
        rule("digest", None, _check_digest, message, fields, self.components or ())
        self.rules.append(_token_rule(fields, lacks_token))
        self.base = rule("base", "it is shown below", signature_base, message, self.components, entry.text, fields)
        self.key = rule("key", "keyid names a valid key", _find_key, self.keys, self.parameters)
        signed = None if self.base is None else Signed(message, self.components or (), entry)
        rule("verification", None, _check_signature, signed, self.signature, self.key)

    def _rule(self, name: str, kept: str | None, rule: Callable[..., T], *arguments: object) -> T | None:
        """Add a rule and return what it finds: None if it does not hold, or one of its arguments could not be read.

        `kept` is the sentence for a rule that holds, None when that is what it finds.
        """
        if any(argument is None for argument in arguments):
            self.rules.append(Rule(name, None, "could not be checked"))
            return None
        try:
            found = rule(*arguments)
        except SignatureError as error:
            self.rules.append(Rule(name, False, str(error)))
            return None
        self.rules.append(Rule(name, True, kept or str(found)))
        return found

    def _find_causes(self, policy: Policy, now: int) -> None:
        """Add the causes that can be confirmed; if the signature itself verifies, that another rule fails."""
        failed = {rule.name for rule in self.rules if rule.holds is False}
        right = self._explain_signature()
        if "digest" in failed:
            self.causes += _digest_causes(self.message)
        if "freshness" in failed and self.parameters is not None:
            self.causes += _time_causes(self.parameters.created, policy, now)
        if right is not None and not self.causes:
            says = f"The signature itself verifies with the key {right.jwk.kid}, so only this has to change:"
            self.causes.append(Cause("one_rule", f"{says} {self.verdict.sentence}"))

    def _explain_signature(self) -> KnownKey | None:
        """Return the key with which the signature verifies as it was sent; else try the variations with each key."""
        if self.entry is None or self.signature is None:
            return None
        # Read leniently: the rule says why a component cannot be covered.
        signed = Signed(self.message, tuple(_NAME.findall(self.entry.components)), self.entry)
        keyid = self.parameters.keyid if self.parameters else None
        keys = sorted(self.keys, key=lambda key: (key.jwk.kid != keyid, key.unusable is not None))
        for key in keys:
            if signed.has_signature(self.signature, key.jwk):
                self.causes += _key_causes(key, keyid, self.verdict)
                return key
        for key in keys:
            for variation in variations(signed):
                self.tried += 1
                if variation.signed.has_signature(self.signature, key.jwk):
                    self.causes.append(_variation_cause(variation, key, keyid))
                    return None
        return None


def _judge(message: Message, keys: Sequence[KnownKey], policy: Policy, now: int) -> Verdict:
    """The verifier's verdict on the signature."""
    unverified = parse(message, policy, now)
    valid = {key.jwk.kid: key.jwk for key in keys if key.unusable is None}
    found = unverified if isinstance(unverified, Rejected) else verify(unverified, valid)
    if isinstance(found, Rejected):
        return Verdict(found.reason, found.description)
    return Verdict(None, f"The signature {found.label} is one by the key {found.keyid}.", found.label)


# The rules that are not functions of the verifier. They raise SignatureError; checks return what was found, in words.


def _signed_input(fields: Fields, label: str) -> tuple[int, SignatureInput, str]:
    """How many signatures there are, and the one with this label or else the first."""
    signed = signed_inputs(fields)
    entry, text = next((one for one in signed if one[0].label == label), signed[0])
    return len(signed), entry, text


def _check_coverage(message: Message, fields: Fields, components: tuple[str, ...]) -> str:
    required = required_components(message, fields)
    missing = [name for name in required if name not in components]
    if missing:
        raise SignatureError(Reason.MISSING_COMPONENT, f"not covered: {', '.join(missing)}, which must be")
    return f"covers what it must: {', '.join(required)}"


def _check_freshness(parameters: Parameters, policy: Policy, now: int) -> str:
    check_freshness(parameters, policy, now)
    age = now // SECOND - parameters.created
    when = f"{age} s ago" if age >= 0 else f"{-age} s ahead"
    return f"created {_moment(parameters.created)}, {when}; at most {policy.max_age_seconds} s are allowed"


def _check_digest(message: Message, fields: Fields, components: tuple[str, ...]) -> str:
    body = message.body
    if not body and "content-digest" not in components:
        return "there is no body, and no Content-Digest is needed"
    if b"content-digest" not in fields:
        raise SignatureError(Reason.MISSING_DIGEST, f"no Content-Digest; this body's is {content_digest(body)}")
    sent = message.header("content-digest")
    problem = digest_problem(sent, body)
    if problem is not None:
        algorithm = next((name for name in ALGORITHMS if sent.lower().startswith(name)), "sha-512")
        raise SignatureError(problem, f"sent was {sent[:200]}, and this body has {content_digest(body, algorithm)}")
    return f"Content-Digest matches the {len(body)} bytes of the body"


def _token_rule(fields: Fields, lacks_token: bool) -> Rule:
    lines = fields.get(b"authorization", ())
    if len(lines) > 1:
        return Rule("token", False, "there is more than one Authorization header")
    if lacks_token and lines:
        return Rule("token", False, "the Authorization header is not GNAP and a token, which this address needs")
    if lines:
        read = "the Authorization header can be read; if its token is good, the server alone knows"
        return Rule("token", True, read)
    needs = "which this address needs" if lacks_token else "and this address does not need one"
    return Rule("token", not lacks_token, f"there is no Authorization header, {needs}")


def _find_key(keys: Sequence[KnownKey], parameters: Parameters) -> KnownKey:
    named = sorted((key for key in keys if key.jwk.kid == parameters.keyid), key=lambda key: key.unusable is not None)
    if named and named[0].unusable is None:
        return named[0]
    valid = ", ".join(key.jwk.kid for key in keys if key.unusable is None) or "none"
    why = f"it {named[0].unusable}" if named else f"valid keys: {valid}"
    raise SignatureError(Reason.UNKNOWN_KEY, f"there is no valid key {shown(parameters.keyid)}; {why}")


def _check_signature(signed: Signed, signature: bytes, key: KnownKey) -> str:
    kid = key.jwk.kid
    if not signed.has_signature(signature, key.jwk):
        raise SignatureError(Reason.SIGNATURE_MISMATCH, f"the signature is not one by {kid} over this base")
    return f"the signature is one by {kid} over this base"


# The causes.


def _key_causes(key: KnownKey, keyid: str | None, verdict: Verdict) -> Iterator[Cause]:
    """Why a signature that verifies is not accepted: the key, or its keyid."""
    kid = key.jwk.kid
    if key.unusable is not None:
        says = f"The signature verifies with the key {kid}, which {key.unusable}, so sign with a valid key."
        yield Cause("unusable_key", says)
    elif verdict.reason == Reason.MISSING_KEYID:
        yield Cause("keyid", f'The signature verifies with the key {kid}, so send keyid="{kid}".')
    elif keyid not in (None, kid):
        yield Cause(
            "other_key",
            f'The signature verifies with the key {kid}, so send keyid="{kid}" instead of {shown(keyid)}, or sign with'
            " the private key that belongs to that name.",
        )


def _variation_cause(variation: Variation, key: KnownKey, keyid: str | None) -> Cause:
    when, advice, kid = variation.when, variation.advice, key.jwk.kid
    if kid != keyid:
        when += f" and the key is {kid}"
        advice += f'; and send keyid="{kid}" with signatures by that key'
    if key.unusable is not None:
        advice += f"; and sign with a valid key: that one {key.unusable}"
    return Cause(variation.cause, f"The signature verifies when {when}, so {advice}.")


def _digest_causes(message: Message) -> Iterator[Cause]:
    """Of which other body the digest is."""
    sent = message.header("content-digest")
    for cause, what, content in other_bodies(message.body):
        if content != message.body and digest_problem(sent, content) is None:
            advice = "take the digest of the very bytes that are sent: serialise once, sign that, send that"
            yield Cause(cause, f"The digest matches when the body is {what}, so {advice}.")
            return


def _time_causes(created: int, policy: Policy, now: int) -> Iterator[Cause]:
    """What explains a `created` too far from `now`."""
    seconds = now // SECOND
    for unit, factor in (("milliseconds", 10**3), ("microseconds", 10**6)):
        if created > seconds * 100 and abs(created // factor - seconds) <= _YEAR:
            yield Cause(
                "created_unit",
                f"The created parameter is a time of this year when read as {unit} ({_moment(created // factor)}),"
                f" so divide it by {factor}: it is in whole seconds.",
            )
            return
    if seconds - created > policy.max_age_seconds:
        yield Cause(
            "old_capture",
            f"The signature was fresh at {_moment(created)}, so if the request was sent then, look at it with"
            f" --at {_moment(created)}; if it was sent just now, set the client's clock and sign each request when it"
            " is sent.",
        )
    elif created - seconds > policy.max_future_seconds:
        early = created - seconds - policy.max_future_seconds
        yield Cause("clock", f"The signature becomes fresh in {early} s, so set the client's clock.")


def _moment(seconds: int) -> str:
    """Unix seconds in RFC 3339, or the number itself outside the years 1 to 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s since 1970"
