"""A cause: what was confirmed about a request, in a sentence."""

import msgspec


class Cause(msgspec.Struct, frozen=True):
    """`cause` is a stable word for programs; `sentence` says what was found to hold and what to do about it."""

    cause: str
    sentence: str
