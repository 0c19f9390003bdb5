"""What a request of the control API gives to the function that serves it."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from payres.errors import InvalidRequest
from payres.routes.requests import other_parameters
from payres.testing.sandbox import Sandbox
from payres.testing.server import Server
from payres.wire import decode

T = TypeVar("T", bound=msgspec.Struct)
Answer = tuple[int, Any]


class Call(msgspec.Struct, frozen=True):
    """One request: of which server, and what it says. `named` are the variable parts of the path, `query` the struct
    that its parameters are declared with."""

    sandbox: Sandbox
    server: Server
    body: bytes
    named: Mapping[str, str]
    query: Any

    def read(self, kind: type[T]) -> T:
        """The body. Raises InvalidRequest, which names the members that there are."""
        try:
            return decode(msgspec.json.Decoder(kind), self.body, has_defaults=True)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error}. The members are: {_names(kind)}", **error.details) from error


def read_query(scope: Scope, kind: type[T]) -> T:
    """The parameters of the query. Raises InvalidRequest, which names those that there are."""
    try:
        return msgspec.convert(other_parameters(Request(scope), ()), kind, strict=False)
    except msgspec.ValidationError as error:
        sentence = f"The query breaks a rule: {error}. The parameters are: {_names(kind)}"
        raise InvalidRequest(sentence, field="query") from error


def _names(kind: type[msgspec.Struct]) -> str:
    return ", ".join(field.encode_name for field in msgspec.structs.fields(kind)) or "none"
