"""The examination of one signature: every rule of the verifier in turn, whatever the others say."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from payres.signatures.base import Message, field_value, header_fields, signature_base
from payres.signatures.digest import ALGORITHMS, content_digest, digest_problem
from payres.signatures.explain.guess import Guess, KnownKey, is_taken, read_patiently
from payres.signatures.explain.places import is_grant_request, lacks_token
from payres.signatures.explain.times import moment
from payres.signatures.fields import SignatureInput, covered_components, signature_bytes
from payres.signatures.parameters import Parameters, Policy, check_freshness, read_parameters
from payres.signatures.reasons import SignatureError, shown
from payres.signatures.verify import required_components, signed_inputs

_MICROSECONDS: Final = 1_000_000


class Rule(msgspec.Struct, frozen=True):
    """`holds` is None when the rule could not be applied; `sentence` tells what was found."""

    name: str
    holds: bool | None
    sentence: str


class _RuleError(Exception):
    """A rule does not hold; the text says what was found."""


def key_in_force(keys: Sequence[KnownKey], keyid: str) -> KnownKey | None:
    return next((key for key in keys if key.jwk.kid == keyid and key.unusable is None), None)


class Examination:
    """One signature of the message under every rule. What a rule finds, the next ones use."""

    def __init__(
        self, message: Message, keys: Sequence[KnownKey], policy: Policy, now: int, label: str | None = None
    ) -> None:
        """Of several signatures the one with this label is examined, or the first."""
        self._label = label
        self.message, self.keys, self.policy, self.now = message, keys, policy, now
        self.fields = header_fields(message.headers)
        self.readings = list(read_patiently(message))
        self.entry: SignatureInput | None = self.readings[0].entry if self.readings else None
        self.signature_text: str | None = None
        self.signature: bytes | None = None
        self.components: tuple[str, ...] = ()
        self.parameters: Parameters | None = None
        self.base: bytes | None = None
        self.key: KnownKey | None = None
        self.signed: list[tuple[SignatureInput, str]] = []
        self.failed: set[str] = set()

    def rules(self) -> Iterator[Rule]:
        """Every rule in turn."""
        yield self._rule("headers", self._read_headers)
        if self.entry is None:
            return
        yield self._rule("signature", self._read_signature)
        yield self._rule("components", self._read_components)
        yield self._rule("coverage", self._check_coverage)
        yield self._rule("parameters", self._read_parameters)
        yield self._rule("freshness", self._check_freshness)
        yield self._rule("digest", self._check_digest)
        yield self._rule("token", self._check_token)
        yield self._rule("base", self._build_base)
        yield self._rule("key", self._find_key)
        yield self._rule("verification", self._verify)

    def remarks(self) -> Iterator[str]:
        """What is odd about the message without being wrong."""
        if len(self.signed) > 1 and self.entry is not None:
            yield f"There are {len(self.signed)} signatures; examined here is {self.entry.label}."
        if self.parameters is not None and self.parameters.nonce is not None:
            yield "The signature has a nonce. Whether it was used before, the server alone knows."
        if b"authorization" not in self.fields and not is_grant_request(self.message):
            yield "There is no Authorization header. Only grant requests and public reading do without."

    def _rule(self, name: str, check: Callable[[], str | None]) -> Rule:
        try:
            found = check()
        except (SignatureError, _RuleError) as error:
            self.failed.add(name)
            return Rule(name, False, str(error))
        except UnicodeError:
            self.failed.add(name)
            return Rule(name, False, "there are characters in it that are not ASCII")
        return Rule(name, None if found is None else True, found or "could not be checked")

    def _read_headers(self) -> str:
        self.signed = signed_inputs(self.fields)
        labelled = [(entry, text) for entry, text in self.signed if entry.label == self._label]
        self.entry, self.signature_text = (labelled or self.signed)[0]
        return f"Signature-Input and Signature can be read, with the label {self.entry.label}"

    def _read_signature(self) -> str | None:
        if self.signature_text is None:
            return None
        self.signature = signature_bytes(self.signature_text)
        return "the signature has 64 bytes"

    def _read_components(self) -> str:
        assert self.entry is not None
        self.components = covered_components(self.entry.components)
        return f"{len(self.components)} components, all of a kind that can be covered"

    def _check_coverage(self) -> str:
        required = required_components(self.message, self.fields)
        covered = self.components or (self.readings[0].components if self.readings else ())
        missing = [name for name in required if name not in covered]
        if missing:
            raise _RuleError(f"not covered: {', '.join(missing)}, which must be")
        return f"covers what it must: {', '.join(required)}"

    def _read_parameters(self) -> str:
        assert self.entry is not None
        self.parameters = read_parameters(self.entry.parameters)
        return "keyid, created and the others are as they should be"

    def _check_freshness(self) -> str | None:
        if self.parameters is None:
            return None
        check_freshness(self.parameters, self.policy, self.now)
        age = self.now // _MICROSECONDS - self.parameters.created
        when = f"{age} s ago" if age >= 0 else f"{-age} s ahead"
        return f"created {moment(self.parameters.created)}, {when}; at most {self.policy.max_age_seconds} s are allowed"

    def _check_digest(self) -> str | None:
        body = self.message.body
        lines = self.fields.get(b"content-digest")
        if lines is None:
            if not body:
                return "there is no body, and no Content-Digest is needed"
            raise _RuleError(f"no Content-Digest; this body's is {content_digest(body)}")
        sent = field_value(lines).decode("latin-1")
        if not body and "content-digest" not in self.components:
            return "there is no body, and the Content-Digest is neither covered nor looked at"
        problem = digest_problem(sent, body)
        if problem is None:
            return f"Content-Digest matches the {len(body)} bytes of the body"
        algorithm = next((name for name in ALGORITHMS if sent.lower().startswith(name)), "sha-512")
        raise _RuleError(f"sent was {sent[:200]}, and this body has {content_digest(body, algorithm)}")

    def _check_token(self) -> str:
        lines = self.fields.get(b"authorization", ())
        if len(lines) > 1:
            raise _RuleError("there is more than one Authorization header")
        if lacks_token(self.message, self.fields):
            if not lines:
                raise _RuleError("there is no Authorization header, which this address needs")
            scheme = lines[0].decode("latin-1").partition(" ")[0]
            raise _RuleError(f"the Authorization header is {shown(scheme)} and not GNAP with a token")
        return "the Authorization header can be read; if its token is good, the server alone knows" if lines else "none"

    def _build_base(self) -> str | None:
        if self.entry is None or not self.components:
            return None
        self.base = signature_base(self.message, self.components, self.entry.text, self.fields)
        return f"{len(self.base)} bytes in {self.base.count(10) + 1} lines, shown below"

    def _find_key(self) -> str | None:
        keyid = self.parameters.keyid if self.parameters else next((r.keyid for r in self.readings), None)
        if keyid is None:
            return None
        self.key = key_in_force(self.keys, keyid)
        if self.key is None:
            former = next((key.unusable for key in self.keys if key.jwk.kid == keyid), None)
            known = ", ".join(key.jwk.kid for key in self.keys if key.unusable is None) or "none"
            why = f"it {former}" if former else f"in force: {known}"
            raise _RuleError(f"there is no key {shown(keyid)} in force; {why}")
        return f"keyid names {keyid}"

    def _verify(self) -> str | None:
        if self.base is None or self.key is None or self.signature is None or self.entry is None:
            return None
        kid = self.key.jwk.kid
        if not is_taken(Guess(self.message, self.components, self.entry.text, self.signature, self.key)):
            raise _RuleError(f"the signature is not one by {kid} over this base")
        return f"the signature is one by {kid} over this base"
