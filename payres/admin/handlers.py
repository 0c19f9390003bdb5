"""What each endpoint of the table `ADMIN_ENDPOINTS` takes and answers, read from its function.

An endpoint is a plain function. It gets what its parameters name: `work`, the open transaction; `page`, the page that
the query asks for; `query`, a struct of the other parameters in the query; `body`, a struct of the body; `call`, the
request with its key, in place of `work`, for what needs that or cannot be one transaction; and each segment of the path
by its name. Its return annotation is the struct of the answer, or Download. From these follow how it is served and its
part of the OpenAPI document.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, get_type_hints

import msgspec
from starlette.responses import Response

from payres.admin.endpoints import ADMIN_ENDPOINTS
from payres.admin.exports import Download
from payres.endpoints import Endpoint


class Operation(NamedTuple):
    """One endpoint with its function. `segments` are the types of the path's parameters, `answer_type` is
    a struct."""

    endpoint: Endpoint
    function: Callable[..., Any]
    segments: Mapping[str, Any]
    query: type[msgspec.Struct] | None
    body: "msgspec.json.Decoder[Any] | None"
    answer_type: Any
    is_paged: bool
    is_async: bool
    stream: Callable[..., Awaitable[Response]] | None  # what answers who accepts the media type that it streams

    @property
    def status(self) -> int:
        """Of the answer when all went well."""
        return 201 if self.endpoint.method == "POST" else 200


@cache
def operations() -> tuple[Operation, ...]:
    """Every endpoint, in the order of the table."""
    return tuple(map(_read, ADMIN_ENDPOINTS))


@cache
def operation_of(function: Callable[..., Any]) -> Operation:
    """The endpoint with this function."""
    return next(one for one in operations() if one.function is function)


def _read(endpoint: Endpoint) -> Operation:
    module, _, name = endpoint.handler.partition(".")
    found = import_module(f"payres.admin.{module}")
    function = getattr(found, name)
    hints = get_type_hints(function, include_extras=True)
    return Operation(
        endpoint=endpoint,
        function=function,
        segments={name: hints[name] for name in re.findall(r"{(\w+)}", endpoint.path)},
        query=hints.get("query"),
        body=msgspec.json.Decoder(hints["body"]) if "body" in hints else None,
        answer_type=hints["return"],
        is_paged="page" in hints,
        is_async=inspect.iscoroutinefunction(function),
        stream=found.stream if endpoint.streams and hints["return"] is not Download else None,
    )
