"""ETags: programs change a thing only if it is still as they have read it (RFC 9110 section 13.1.1).

A tag stands for what can be changed of a thing. What moves by itself, such as balances and counters, is left out: a
payment meanwhile is no reason to refuse a change.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from msgspec import UNSET
from starlette.requests import Request

from payres.core.protocol.errors import InvalidRequest, NotFound, PreconditionFailed
from payres.core.store.work import Work
from payres.operator.declared.declarations import Operation, declared
from payres.operator.declared.shapes import Shape, digest_of, members_of

TAG: Final = re.compile(r'[ \t]*(?:(W/)?("[!\x23-\x7e\x80-\xff]*"))?[ \t]*(?:,|\Z)')


@cache
def things() -> Mapping[str, Shape]:
    """The things that a GET shows, by its path."""
    operations = declared()
    shapes = {shape for one in operations for shape in (one.shows, one.form and one.form.about) if shape and shape.read}
    read = {one.path for one in operations if one.method == "GET"}
    return {shape.page: shape for shape in shapes if shape.page in read}


def thing_of(operation: Operation) -> Shape | None:
    """What the operation is about: the thing whose path its own begins with."""
    return next((shape for path, shape in things().items() if f"{operation.path}/".startswith(f"{path}/")), None)


def is_shown(operation: Operation) -> bool:
    """Whether it is the GET whose answers have the ETag of a thing."""
    return operation.method == "GET" and operation.path in things()


class Conditions(NamedTuple):
    """The conditions of a request: `tags` are those of If-Match, `others` those of If-None-Match, None without one;
    `thing` and its `names` are what the path names."""

    tags: frozenset[str] | None
    others: frozenset[str] | None
    thing: Shape | None
    names: Mapping[str, str]

    @classmethod
    def of(cls, request: Request, operation: Operation) -> "Conditions":
        """Raises InvalidRequest if a header is malformed."""
        changes, thing = operation.method != "GET", thing_of(operation)
        tags = _tags(request, "If-Match") if changes or is_shown(operation) else None
        others = _tags(request, "If-None-Match", is_weak=True) if changes and thing else None
        return cls(tags, others, thing, request.path_params)

    @property
    def is_sent(self) -> bool:
        return self.tags is not None or self.others is not None

    def tag(self, work: Work) -> str | None:
        """The tag of the thing as it is; None if there is none."""
        if self.thing is None:
            return None
        try:
            found = members_of(self.thing.find(work, **self.names))
            secrets = self.thing.secrets_of(work, **self.names)
        except NotFound:
            return None
        fixed = {name: one for name, one in found.items() if one is not UNSET and name not in self.thing.moving}
        return f'"{digest_of([fixed, secrets])}"'

    def check(self, work: Work) -> None:
        """Raises PreconditionFailed unless one of the tags is that of the thing, by the strong comparison, and none of
        the others, by the weak one."""
        self.compare(self.tag(work) if self.is_sent else None)

    def compare(self, tag: str | None) -> None:
        """The same for the tag that the thing had."""
        if tag is not None and self.others and self.others & {"*", tag}:
            raise PreconditionFailed("It is there, which If-None-Match excludes: read it, and change it with If-Match")
        if self.tags is None or tag in self.tags or ("*" in self.tags and tag is not None):
            return
        if self.thing is None:
            raise PreconditionFailed("Nothing at this address has an ETag: send this without If-Match")
        if tag is None:
            raise PreconditionFailed(
                "Nothing is there to match: it was removed, or never made. Send this without If-Match"
            )
        sentence = "It is not as you have read it: somebody has changed it since"
        raise PreconditionFailed(f"{sentence}. Read it again, then send your change with the new ETag")


def _tags(request: Request, header: str, is_weak: bool = False) -> frozenset[str] | None:
    """The tags of the header, the weak ones only where they match, or `*`; None without the header."""
    if header not in request.headers:
        return None
    text = ", ".join(request.headers.getlist(header))
    if text.strip() == "*":
        return frozenset("*")
    found, end = set(), 0
    while end < len(text):
        one = TAG.match(text, end)
        if one is None:
            sentence = f'{header} is *, or tags in quotes as ETag has them, with commas between: "a", "b"'
            raise InvalidRequest(sentence, field=header)
        end = one.end()
        found |= {one[2]} if one[2] and (is_weak or not one[1]) else set()
    return frozenset(found)
