"""How every endpoint of the operator's API is served: the key, the parameters, the body, one unit of work, the answer.

The order of the steps is the order of errors: 401, 403, 429, the path, the query, the body, the rules.

Exports are files of any length, sent in batches at the speed of the reader. Between two batches only the position is
held: no transaction, no thread. An export ends when its reader disconnects.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.request_head import credentials
from payres.core.http.requests import ActorRequest, idempotency_key, other_parameters, page_query, read_json_body
from payres.core.http.responses import JSON, asks_for, json_response
from payres.core.http.routing import Route
from payres.core.payments.idempotency import KeyedRequest, cache_response, find_response
from payres.core.protocol.errors import BearerTokenInvalid, InvalidRequest, NotFound, TokenInvalid, Unavailable
from payres.core.protocol.urls import ADMIN_API
from payres.core.protocol.wire import broken_rule, decode, encode
from payres.core.store.work import Work
from payres.html.exports import MEDIA_TYPES, Export, send_export
from payres.openapi import documents
from payres.operator import api_keys
from payres.operator.api_keys import SCOPES
from payres.operator.declared.declarations import Operation, declared, operation
from payres.operator.declared.etags import Conditions, is_shown, thing_of
from payres.operator.declared.nouns import NOUNS
from payres.operator.services import operator_of
from payres.operator.store.api_keys import API_KEYS, ApiKeyRecord

T = TypeVar("T")
PAGE_PARAMETERS: Final = ("first", "last", "cursor")


class ApiCall(ActorRequest, frozen=True):
    """One request with a valid key. An operation of several transactions uses `read` and `write`."""

    key: ApiKeyRecord


class ConditionalCall(ApiCall, frozen=True):
    """A call of an operation of several units, whose conditions the first one that writes checks."""

    conditions: list[Conditions]

    async def write(self, unit: Callable[[Work], T]) -> T:
        def checked(work: Work) -> T:
            for one in self.conditions:
                one.check(work)
            return unit(work)

        found = await ActorRequest.write(self, checked)
        self.conditions.clear()
        return found


def admin_endpoints() -> Sequence[Operation]:
    """The operations that are endpoints of the operator's API; their paths are below ADMIN_API."""
    return [one for one in declared() if one.method]


def admin_routes() -> Sequence[Route]:
    by_path: dict[str, list[Operation]] = {}
    for one in admin_endpoints():
        by_path.setdefault(one.path, []).append(one)
    return [
        Route(
            ADMIN_API + path,
            {one.method: partial(_serve, operation=one) for one in found},
            streams=[media_type for one in found for media_type in one.media_types],
        )
        for path, found in by_path.items()
    ]


async def _serve(request: Request, operation: Operation) -> Response:
    if not operation.scopes:  # anyone may read the OpenAPI document
        return json_response(await asyncio.to_thread(operation.function, context_of(request).urls.base))
    try:
        call = await _authorize(request, operation.scopes)
        given, body = await _given(request, operation)
        if operation.answer_type is Export:
            export = operation.function(**given)
            return await send_export(call, export, call.key.actor, operator_of(call.context).export_slots)
        headers = request.scope["headers"]
        if operation.stream is not None and any(asks_for(headers, one) for one in operation.media_types):
            streamed: Response = await operation.stream(call, **given)
            return streamed
        keyed, condition = _keyed(request, operation, call, body), Conditions.of(request, operation)
        answer, tag = await _answer(call, operation, given, keyed, condition)
        return json_response(msgspec.Raw(answer), operation.status, {"ETag": tag} if tag else None)
    except TokenInvalid as error:
        raise BearerTokenInvalid(str(error), error.details["reason"]) from error


async def _authorize(request: Request, scopes: Sequence[str]) -> ApiCall:
    """Raises 401, InsufficientAccess, TooManyRequests."""
    context = context_of(request)
    text = credentials(request.scope["headers"], "bearer")
    if text is None:
        raise BearerTokenInvalid("Send an API key as Authorization: Bearer <key>", "missing_token")
    key = await context.database.read(partial(api_keys.authenticate, text=text))
    context.rate_limits.prove(request.scope)
    api_keys.require_scopes(key, scopes)
    context.rate_limits.clients.check(key.actor)
    if api_keys.is_use_due(key, context.clock.now()):
        with suppress(Unavailable):  # reading still works
            await context.database.write(lambda work: API_KEYS.update(work, key.id, last_used_at=work.now))
    return ApiCall(request, lambda work: api_keys.authenticate(work, text).actor, key)


async def _given(request: Request, operation: Operation) -> tuple[dict[str, object], bytes]:
    """The arguments by name, and the body as it came. Raises NotFound, InvalidRequest."""
    given = operation_parameters(request, operation, read_filters(request, operation))
    body = b""
    if operation.takes_json:
        body = await read_json_body(request)
        given |= asdict(decode(operation.decoder, body, has_defaults=True))
    return given, body


def read_filters(request: Request, operation: Operation, besides: Sequence[str] = ()) -> dict[str, str]:
    """The parameters of the query, without those of a page and those in `besides`. Raises InvalidRequest."""
    return other_parameters(request, (*PAGE_PARAMETERS, *besides) if operation.is_paged else besides)


def operation_parameters(request: Request, operation: Operation, filters: Mapping[str, str]) -> dict[str, object]:
    """The parameters in the path, the page of the query, and its filters. Raises NotFound, InvalidRequest."""
    given: dict[str, object] = {}
    for name in operation.segments:
        try:
            given[name] = msgspec.convert(request.path_params[name], operation.inputs[name].kind, strict=False)
        except msgspec.ValidationError as error:
            raise NotFound(f"There is nothing at this address: {broken_rule(error, name)}") from error
    if operation.is_paged:
        given["page"] = page_query(request, numbers=True)
    if not operation.takes_json and operation.struct is not None:
        try:
            given |= asdict(msgspec.convert(filters, operation.struct, strict=False))
        except msgspec.ValidationError as error:
            raise broken_rule(error, "query") from error
    elif filters:
        raise InvalidRequest(f"There is no parameter {next(iter(filters))} here", field=next(iter(filters)))
    return given


def _keyed(request: Request, operation: Operation, call: ApiCall, body: bytes) -> KeyedRequest | None:
    """The request under its Idempotency-Key. Raises InvalidRequest if the answer must not be stored."""
    key = idempotency_key(request.scope["headers"]) if request.method == "POST" else None
    if key is None:
        return None
    if operation.shows_secret:
        sentence = "The answer has a secret, which is not stored: send this request without an Idempotency-Key"
        raise InvalidRequest(sentence, field="Idempotency-Key")
    return KeyedRequest(None, key, request.scope["path"], body, api_key_id=call.key.id)


async def _answer(
    call: ApiCall, operation: Operation, given: dict[str, object], keyed: KeyedRequest | None, condition: Conditions
) -> tuple[bytes, str | None]:
    """The answer, and the ETag that it shows. What is refused in any case is not refused for a condition."""
    if operation.is_async:
        call = ConditionalCall(call.request, call.authenticate, call.key, [condition])
        return await _in_steps(call, operation, given, keyed), None

    def unit(work: Work) -> tuple[bytes, str | None]:
        answer = find_response(work, keyed)
        if answer is not None:
            return answer, None
        tag = condition.tag(work) if is_shown(operation) or condition.is_sent else None
        answer = encode(operation.run(work, given))
        condition.compare(tag)
        cache_response(work, keyed, answer)
        return answer, tag if is_shown(operation) else None

    return await (call.read(unit) if operation.only_reads else call.write(unit))


async def _in_steps(call: ApiCall, operation: Operation, given: dict[str, object], keyed: KeyedRequest | None) -> bytes:
    """A repeated request waits for the first, and gets its answer."""

    async def answer_now() -> bytes:
        return encode(await operation.function(call, **given))

    if keyed is None:
        return await answer_now()
    async with call.context.idempotency_slots.slot(call.key.id, keyed.key):
        answer = await call.read(partial(find_response, request=keyed))
        if answer is None:
            answer = await answer_now()
            await call.write(partial(cache_response, request=keyed, response=answer))
        return answer


IF_MATCH: Final = r'^(\*|"[!#-~]*"(, "[!#-~]*")*)$'
IF_NONE_MATCH: Final = r'^(\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$'
ERRORS_HERE: Final = documents.ERRORS | {
    401: "The API key is missing, unknown, expired or revoked",
    403: "The API key lacks the scope, or there is not enough money",
    404: "It does not exist, or the request comes from an address without access",
    412: "It is not as If-Match says, or is there though If-None-Match says not",
}


@operation("GET /openapi.json")
@cache
def read(base_url: str) -> msgspec.Raw:
    """Read this document."""
    return msgspec.Raw(documents.as_text(admin_document(base_url)).encode())


def admin_document(base_url: str) -> dict[str, Any]:
    return documents.document(
        "The operator's API of payres",
        "Scopes: " + "; ".join(f"`{scope}`: {what}" for scope, what in SCOPES.items()) + ".",
        base_url,
        [(one.method, ADMIN_API + one.path, _operation(one)) for one in admin_endpoints() if one.scopes],
        {name: what for noun in NOUNS for name, what in noun.about.items()},
        {"apiKey": {"type": "http", "scheme": "bearer", "description": "A key of `payres api-key create`."}},
        [{"apiKey": []}],
    )


def _operation(operation: Operation) -> documents.Schema:
    needless = {409} if operation.method == "GET" else set()
    needless |= {412} if operation.method == "GET" and not is_shown(operation) else set()
    needless |= set() if operation.takes_json else {413, 415}
    needless |= set() if operation.method == "POST" else {422}
    meaning, answers = "The result", {JSON: operation.answer_type}
    if operation.answer_type is Export:
        meaning = "The rows: CSV with a heading, or a JSON object a line. A file that is cut off has no last chunk"
        answers = {media_type: {"type": "string"} for media_type in MEDIA_TYPES.values()}
    return documents.operation(
        {
            "operationId": operation.id,
            "summary": operation.summary,
            "tags": [operation.path.split("/")[1]],
            "description": f"Needs the scope `{'` and `'.join(operation.scopes).replace('|', '` or `')}`.",
        },
        _parameters(operation),
        operation.status,
        meaning,
        answers,
        {status: meant for status, meant in ERRORS_HERE.items() if status not in needless},
        operation.struct if operation.takes_json else None,
        headers={"ETag": "What If-Match of a change takes"} if is_shown(operation) else {},
    )


def _parameters(operation: Operation) -> list[documents.Schema]:
    kinds = {name: operation.inputs[name].kind for name in operation.segments}
    parameters = [documents.path_parameter(name, msgspec.json.schema(kind)) for name, kind in kinds.items()]
    if operation.is_paged:
        parameters += documents.page_parameters()
    if not operation.takes_json and operation.struct is not None:
        [_], components = msgspec.json.schema_components([operation.struct])
        found = components[operation.struct.__name__]["properties"]
        parameters += [documents.query_parameter(name, schema) for name, schema in found.items()]
    if operation.method == "POST" and not operation.shows_secret:
        parameters.append(documents.idempotency_key())
    if thing_of(operation) and operation.method != "GET":
        what = (
            "The ETag that the thing had when it was read, or several, or *: if it was changed since, nothing is done."
        )
        parameters.append(documents.header_parameter("If-Match", what, {"type": "string", "pattern": IF_MATCH}))
        if operation.method == "PUT":
            what = "* makes it only if it is not there yet; a tag, or several, only if it has none of them."
            parameters.append(
                documents.header_parameter("If-None-Match", what, {"type": "string", "pattern": IF_NONE_MATCH})
            )
    return parameters
