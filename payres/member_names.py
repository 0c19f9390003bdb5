"""Finds repeated members in JSON objects, which programs would read in different ways."""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

# Members that are returned byte for byte and that only the client reads.
UNREAD: Final = "metadata"


class _Repeated(msgspec.Struct, frozen=True):
    """Stands for an object with two members of this name."""

    name: str


def repeated_member(body: bytes) -> str | None:
    """Where a member is repeated, such as `incomingAmount.value`; None when none is, or only inside of `metadata`.

    Raises ValueError for what is not JSON, RecursionError for what is nested too deeply.
    """
    found: list[_Repeated] = []

    def members(pairs: Sequence[tuple[str, object]]) -> object:
        named = dict(pairs)
        if len(named) == len(pairs):
            return named
        names = [name for name, _ in pairs]
        found.append(_Repeated(next(name for name in named if names.count(name) > 1)))
        return found[-1]

    # Numbers stay texts: of those in metadata nothing is known.
    decoder = json.JSONDecoder(object_pairs_hook=members, parse_int=str, parse_float=str)
    whole = decoder.decode(body.decode("utf-8", "replace"))
    if not found:
        return None
    if isinstance(whole, dict):
        whole.pop(UNREAD, None)
    return _find(whole, "")


def _find(value: object, path: str) -> str | None:
    """The path of the first repeated member in a decoded value, which is itself at `path`."""
    if isinstance(value, _Repeated):
        return f"{path}.{value.name}".lstrip(".")
    if isinstance(value, dict):
        inner = [_find(member, f"{path}.{name}".lstrip(".")) for name, member in value.items()]
    elif isinstance(value, list):
        inner = [_find(item, f"{path}[{index}]") for index, item in enumerate(value)]
    else:
        return None
    return next((found for found in inner if found is not None), None)
