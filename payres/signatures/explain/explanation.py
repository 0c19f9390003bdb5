"""The explanation of a request: what the verifier saw, its verdict, and the likely causes of a refusal."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from payres.signatures.base import Message, header_fields
from payres.signatures.explain.capture import Capture
from payres.signatures.explain.cause import Cause
from payres.signatures.explain.digests import digest_causes
from payres.signatures.explain.examination import Examination, Rule
from payres.signatures.explain.guess import Guess, KnownKey, Reading, is_taken
from payres.signatures.explain.places import lacks_token
from payres.signatures.explain.search import Search
from payres.signatures.explain.times import time_causes, unread_created
from payres.signatures.fields import SignatureInput
from payres.signatures.parameters import Policy
from payres.signatures.reasons import Rejected, shown
from payres.signatures.verify import Verified, parse, verify_with

# What the server says of a request whose token it cannot read; it looks there before it looks at the signature.
MISSING_TOKEN: Final = "missing_token"  # noqa: S105 - the name of a reason


class Verdict(msgspec.Struct, frozen=True):
    """What the server would say; `reason` is None when it accepts the signature, the one with `label`, else the word
    or, where there is none, the code of the refusal."""

    reason: str | None
    sentence: str
    label: str | None = None


class Explanation(msgspec.Struct, frozen=True):
    """All that is to be told about a request. What could not be read is None, or empty.

    `tried` counts the variations that were tried against the signature to find the causes.
    """

    message: Message
    remarks: tuple[str, ...]
    entry: SignatureInput | None
    components: tuple[str, ...]
    rules: tuple[Rule, ...]
    base: bytes | None
    key: KnownKey | None
    verdict: Verdict
    causes: tuple[Cause, ...]
    tried: int


def explain(
    capture: Capture,
    base_url: str,
    keys: Sequence[KnownKey],
    policy: Policy,
    now: int,
    before: Callable[[Message], Verdict | None] = lambda _: None,
) -> Explanation:
    """Explain what the server at `base_url` makes of a request, at `now` (microseconds) and knowing `keys`.

    `before` is what the server refuses before it looks at tokens and signatures.
    """
    message = capture.message(base_url)
    judged = _judge(message, keys, policy, now)
    verdict = before(message) or judged
    examined = Examination(message, keys, policy, now, judged.label)
    rules = tuple(examined.rules())
    search = Search(capture, keys)
    causes = tuple(_causes(examined, verdict, search)) if verdict.reason is not None else ()
    return Explanation(
        message=message,
        remarks=(*capture.remarks, *examined.remarks()),
        entry=examined.entry,
        components=examined.components,
        rules=rules,
        base=examined.base,
        key=examined.key,
        verdict=verdict,
        causes=causes,
        tried=search.tried,
    )


def _judge(message: Message, keys: Sequence[KnownKey], policy: Policy, now: int) -> Verdict:
    """The verdict, in the order in which the server looks, by the very functions that it uses."""
    if lacks_token(message, header_fields(message.headers)):
        return Verdict(MISSING_TOKEN, "Send the access token as Authorization: GNAP <token>.")
    parsed = parse(message, policy, now)
    if isinstance(parsed, Rejected):
        return Verdict(parsed.reason, parsed.description)
    in_force = {key.jwk.kid: key.jwk for key in keys if key.unusable is None}
    verified = verify_with(parsed, in_force)
    if isinstance(verified, Verified):
        return Verdict(None, f"The signature {verified.label} is one by the key {verified.keyid}.", verified.label)
    return Verdict(verified.reason, verified.description)


def _causes(examined: Examination, verdict: Verdict, search: Search) -> Iterator[Cause]:
    """What could be confirmed; if the signature itself is right, then at least that one rule alone is in the way."""
    guesses = list(_guesses(examined))
    right = next(((reading, guess) for reading, guess in guesses if is_taken(guess)), None)
    causes: list[Cause] = []
    if right is not None:
        causes += _odd_forms(*right)
    elif guesses and (cause := search.cause(guesses[0][1])) is not None:
        causes.append(cause)
    causes += _causes_of_rules(examined)
    if right is not None and not causes:
        says = f"The signature itself verifies with the key {right[1].key.jwk.kid}, so only this has to change:"
        causes.append(Cause("one_rule", f"{says} {verdict.sentence}"))
    yield from causes


def _guesses(examined: Examination) -> Iterator[tuple[Reading, Guess]]:
    """Each signature that can be made out, with each key; first of all with the key that it names."""
    for reading in examined.readings:
        named = [key for key in examined.keys if key.jwk.kid == reading.keyid]
        in_force_first = sorted(named, key=lambda key: key.unusable is not None)
        for key in (*in_force_first, *(key for key in examined.keys if key not in named)):
            yield reading, Guess(examined.message, reading.components, reading.entry.text, reading.signature, key)


def _odd_forms(reading: Reading, guess: Guess) -> Iterator[Cause]:
    """Causes why a signature that verifies was not accepted: how it is written, and what key it names."""
    kid, unusable = guess.key.jwk.kid, guess.key.unusable
    if reading.oddities:
        yield Cause(
            "signature_form", f"The signature verifies when it is read generously, so {'; '.join(reading.oddities)}."
        )
    if unusable is not None:
        says = f"The signature verifies with the key {kid}, which {unusable}, so sign with a key in force."
        yield Cause("unusable_key", says)
    elif reading.keyid is None:
        yield Cause("keyid", f'The signature verifies with the key {kid}, so send keyid="{kid}".')
    elif reading.keyid != kid:
        yield Cause(
            "other_key",
            f'The signature verifies with the key {kid}, so send keyid="{kid}" instead of {shown(reading.keyid)}, or'
            " sign with the private key that belongs to that name.",
        )


def _causes_of_rules(examined: Examination) -> Iterator[Cause]:
    """What explains the rules that have nothing to do with a key."""
    if "digest" in examined.failed:
        yield from digest_causes(examined.message)
    if "freshness" in examined.failed and examined.parameters is not None:
        yield from time_causes(examined.message, examined.parameters, examined.policy, examined.now)
    if "parameters" in examined.failed and examined.entry is not None:
        yield from unread_created(examined.entry.parameters)
