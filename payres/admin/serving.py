"""How every endpoint of the operator's API is served: the key, the parameters, the body, one unit of work, the answer.

The order of the steps is the order of errors: 401, 403, 429, what the path, the query and the body say, the rules.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.admin.call import Call
from payres.admin.endpoints import ADMIN_ENDPOINTS
from payres.admin.exports import Download, send_download
from payres.admin.handlers import Operation, operations
from payres.errors import BearerTokenInvalid, InvalidRequest, NotFound, TokenInvalid, Unavailable
from payres.http.accept import asks_for
from payres.http.request_head import credentials
from payres.http.responses import json_response
from payres.operator import api_keys
from payres.payments.idempotency import KeyedRequest, cache_response, find_response
from payres.routes.bodies import read_json_body
from payres.routes.context import context_of
from payres.routes.requests import idempotency_key, other_parameters, page_query
from payres.routes.routing import Handler, Route, build_routes
from payres.store.work import Work
from payres.wire import decode, encode

PAGE_PARAMETERS: Final = ("first", "last", "cursor")


def admin_routes() -> Sequence[Route]:
    """The routes of the operator's API."""
    served = {operation.endpoint: operation for operation in operations()}
    return build_routes(ADMIN_ENDPOINTS, lambda endpoint: _handler(served[endpoint]))


def _handler(operation: Operation) -> Handler:
    if not operation.endpoint.scope:
        return partial(_serve_openly, operation=operation)
    return partial(_serve, operation=operation)


async def _serve_openly(request: Request, operation: Operation) -> Response:
    return json_response(operation.function())


async def _serve(request: Request, operation: Operation) -> Response:
    try:
        call = await _authorize(request, operation.endpoint.scope)
        arguments, body = await _arguments(request, operation)
        if operation.answer_type is Download:
            return await send_download(request, operation.function(**arguments), call.key.actor, call.read)
        headers, streams = request.scope["headers"], operation.endpoint.streams
        if operation.stream is not None and any(asks_for(headers, one) for one in streams):
            return await operation.stream(call, **arguments)
        keyed = _keyed(request, operation, call, body)
        return json_response(msgspec.Raw(await _answer(call, operation, arguments, keyed)), operation.status)
    except TokenInvalid as error:
        raise BearerTokenInvalid(str(error), error.details["reason"]) from error


async def _authorize(request: Request, scope: str) -> Call:
    """Raises 401, InsufficientAccess, TooManyRequests."""
    context = context_of(request)
    text = credentials(request.scope["headers"], "bearer")
    if text is None:
        raise BearerTokenInvalid("Send an API key as Authorization: Bearer <key>", "missing_token")
    key = await context.database.read(partial(api_keys.authenticate, text=text))
    context.rate_limits.prove(request.scope)
    api_keys.require_scope(key, scope)
    context.rate_limits.check_client(key.actor)
    if api_keys.is_use_due(key, context.clock.now()):
        with suppress(Unavailable):  # what is stored can still be read
            await context.database.write(partial(api_keys.note_use, key=key))
    return Call(request, lambda work: api_keys.authenticate(work, text).actor, key)


async def _arguments(request: Request, operation: Operation) -> tuple[dict[str, Any], bytes]:
    """What the function gets besides its transaction, and the body as it came. Raises NotFound, InvalidRequest."""
    arguments = read_arguments(request, operation, read_filters(request, operation))
    body = b""
    if operation.endpoint.takes_json:
        body = await read_json_body(request)
        if operation.body is not None:
            arguments["body"] = decode(operation.body, body, has_defaults=True)
    return arguments, body


def read_filters(request: Request, operation: Operation, besides: Sequence[str] = ()) -> dict[str, str]:
    """The parameters of the query but for those of a page and `besides`. Raises InvalidRequest."""
    return other_parameters(request, (*PAGE_PARAMETERS, *besides) if operation.is_paged else besides)


def read_arguments(request: Request, operation: Operation, filters: Mapping[str, str]) -> dict[str, Any]:
    """What the function gets of the path, the page that the query asks for and its filters.

    Raises NotFound, InvalidRequest.
    """
    arguments: dict[str, Any] = {}
    for name, kind in operation.segments.items():
        try:
            arguments[name] = msgspec.convert(request.path_params[name], kind, strict=False)
        except msgspec.ValidationError as error:
            raise NotFound(f"There is nothing at this address: {name} is not one ({error})") from error
    if operation.is_paged:
        arguments["page"] = page_query(request, numbers=True)
    if operation.query is not None:
        arguments["query"] = _read_query(filters, operation.query)
    elif filters:
        raise InvalidRequest(f"There is no parameter {next(iter(filters))} here", field=next(iter(filters)))
    return arguments


def _read_query(parameters: Mapping[str, str], kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The struct of the parameters of a query. Raises InvalidRequest, naming the one that breaks a rule."""
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at `$.")
        raise InvalidRequest(f"The query breaks a rule: {sentence}", field=path.rstrip("`") or "query") from error


def _keyed(request: Request, operation: Operation, call: Call, body: bytes) -> KeyedRequest | None:
    """The request under its Idempotency-Key. Raises InvalidRequest for one where no answer may be kept."""
    key = idempotency_key(request.scope["headers"]) if request.method == "POST" else None
    if key is None:
        return None
    if operation.endpoint.shows_secret:
        sentence = "The answer has a secret, which is not kept: send this request without an Idempotency-Key"
        raise InvalidRequest(sentence, field="Idempotency-Key")
    return KeyedRequest(None, key, request.scope["path"], body, api_key_id=call.key.id)


async def _answer(call: Call, operation: Operation, arguments: dict[str, Any], keyed: KeyedRequest | None) -> bytes:
    if operation.is_async:
        return await _answer_in_steps(call, operation, arguments, keyed)

    def unit(work: Work) -> bytes:
        if keyed is None:
            return encode(operation.function(work, **arguments))
        answer = find_response(work, keyed)
        if answer is None:
            answer = encode(operation.function(work, **arguments))
            cache_response(work, keyed, answer)
        return answer

    return await (call.read(unit) if operation.endpoint.method == "GET" else call.write(unit))


async def _answer_in_steps(
    call: Call, operation: Operation, arguments: dict[str, Any], keyed: KeyedRequest | None
) -> bytes:
    """A repeated request waits for the first, and gets its answer."""
    if keyed is None:
        return encode(await operation.function(call, **arguments))
    async with call.context.idempotency_slots.slot(call.key.id, keyed.key):
        answer = await call.read(partial(find_response, request=keyed))
        if answer is None:
            answer = encode(await operation.function(call, **arguments))
            await call.write(partial(cache_response, request=keyed, response=answer))
        return answer
