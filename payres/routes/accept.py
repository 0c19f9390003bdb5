"""Accept (RFC 9110 section 12.5.1): a request that rules JSON out is refused before it does anything."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from payres.errors import Refusal
from payres.routes.messages import JSON

# What nearly all clients send, so that nothing need be parsed.
COMMON: Final = frozenset({b"*/*", JSON.encode(), b""})
MEDIA_RANGE: Final = re.compile(r"\*/\*|[\w!#$%&'+.^`|~-]+/(?:\*|[\w!#$%&'+.^`|~-]+)", re.ASCII)
RANGES_OF_JSON: Final = (JSON, "application/*", "*/*")
REFUSED: Final = re.compile(r"q=0(?:\.0*)?")


class JsonRoute(Route):
    """A route whose answers are JSON. `types` are other names of what it answers with."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Collection[str] | None = None,
        types: Sequence[str] = (),
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.types = types

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Starlette's; refuses with 406 what accepts no JSON."""
        if self.methods is None or scope["method"] in self.methods:
            self._check(scope["headers"])
        await super().handle(scope, receive, send)

    def _check(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        for name, value in headers:
            if name == b"accept" and value not in COMMON:
                break
        else:
            return
        lines = [value.decode("latin-1") for name, value in headers if name == b"accept"]
        if not accepts(",".join(lines), self.types):
            raise Refusal(406, "not_acceptable", f"The answer is {JSON}: name it in Accept, or leave Accept out")


class WalletRoute(JsonRoute):
    """A route of a wallet address. It takes every method: a path without a wallet is unknown whatever the method."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, types: Sequence[str] = ()) -> None:
        super().__init__(path, endpoint, types=types)
        self.methods = None


def accepts(accept: str, types: Sequence[str] = ()) -> bool:
    """Whether an Accept header takes JSON, or names one of the other types. What is malformed in it is passed over."""
    ranges: dict[str, bool] = {}
    for member in accept.lower().split(","):
        media_range, *parameters = [part.strip() for part in member.split(";")]
        if MEDIA_RANGE.fullmatch(media_range):
            taken = not any(REFUSED.fullmatch(parameter) for parameter in parameters)
            ranges[media_range] = ranges.get(media_range, False) or taken
    if not ranges or any(ranges.get(media_type) for media_type in types):
        return True
    # The most specific range decides.
    return next((ranges[name] for name in RANGES_OF_JSON if name in ranges), False)
