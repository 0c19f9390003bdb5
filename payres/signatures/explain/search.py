"""The search for a cause: guesses that differ from the request in one thing or two, until the signature verifies."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from payres.signatures.explain.capture import Capture
from payres.signatures.explain.cause import Cause
from payres.signatures.explain.changes import other_bases, other_components, other_headers, other_keys, other_methods
from payres.signatures.explain.guess import Guess, KnownKey
from payres.signatures.explain.targets import other_targets
from payres.signatures.explain.variation import Variation

# A second or two of work: each guess is one verification.
_MAX_TRIES: Final = 10_000
_PAIRED_TARGETS: Final = 100


class Search:
    """Tries guesses and counts them."""

    def __init__(self, capture: Capture, keys: Sequence[KnownKey]) -> None:
        self.tried = 0
        self._capture = capture
        self._keys = keys

    def cause(self, guess: Guess) -> Cause | None:
        """The first change, or pair of changes, with which the signature verifies.

        A signature verifies for one base only, so a second change that did the same would say nothing new.
        """
        one = self._first(self._changes(guess))
        if one is not None:
            return Cause(one.cause, f"The signature verifies when {one.when}, so {one.advice}.")
        for first in self._paired(guess):
            second = self._first(self._changes_beside(first))
            if second is not None:
                when = f"{first.when} and {second.when}"
                return Cause(
                    first.cause, f"The signature verifies when {when}, so {first.advice}; and {second.advice}."
                )
        return None

    def _first(self, variations: Iterator[Variation]) -> Variation | None:
        for variation in variations:
            if self.tried >= _MAX_TRIES:
                return None
            self.tried += 1
            if variation.guess.verifies():
                return variation
        return None

    def _changes(self, guess: Guess) -> Iterator[Variation]:
        return chain(
            other_keys(guess, self._keys),
            other_targets(guess, self._capture),
            other_methods(guess),
            other_headers(guess),
            other_components(guess),
            other_bases(guess),
        )

    def _paired(self, guess: Guess) -> Iterator[Variation]:
        """The changes worth combining with another: what goes wrong together is where, and with which key."""
        targets = islice(other_targets(guess, self._capture), _PAIRED_TARGETS)
        return chain(targets, other_keys(guess, self._keys))

    def _changes_beside(self, first: Variation) -> Iterator[Variation]:
        guess = first.guess
        if first.kind == "target":
            return chain(other_keys(guess, self._keys), other_methods(guess), other_headers(guess))
        return chain(other_methods(guess), other_headers(guess), other_components(guess), other_bases(guess))
