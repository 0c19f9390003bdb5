"""A variation: one thing in a guess changed, and what it would mean if the signature verified with it."""

from typing import TypeVar

import msgspec

from payres.signatures.base import Message
from payres.signatures.explain.guess import Guess

Varied = TypeVar("Varied", Guess, Message)


class Variation(msgspec.Struct, frozen=True):
    """`kind` is what was changed (two of one kind are never combined), `cause` a stable word, `when` and `advice`
    complete the sentence "The signature verifies when ..., so ..."."""

    kind: str
    cause: str
    when: str
    advice: str
    guess: Guess


def varied(original: Varied, **changes: object) -> Varied:
    """The guess or message with other members."""
    return msgspec.structs.replace(original, **changes)
