"""What a request of the control API gives to the function that serves it."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from payres.errors import InvalidRequest
from payres.testing.sandbox import Sandbox
from payres.testing.server import Server
from payres.wire import decode

T = TypeVar("T", bound=msgspec.Struct)
Answer = tuple[int, Any]


class Call(msgspec.Struct, frozen=True):
    """One request: of which server, and what it says. `named` are the variable parts of the path."""

    sandbox: Sandbox
    server: Server
    body: bytes
    named: Mapping[str, str]

    def read(self, kind: type[T]) -> T:
        """The body. Raises InvalidRequest, which names the members that there are."""
        try:
            return decode(msgspec.json.Decoder(kind), self.body, has_defaults=True)
        except InvalidRequest as error:
            allowed = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
            raise InvalidRequest(f"{error}. The members are: {allowed or 'none'}", **error.details) from error
