"""The Idempotency-Key header: a creation is done once under it, and answered the same however often it is asked for."""

import re
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TypeVar, cast

import http_sf
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.errors import InvalidRequest
from payres.grants.access import Permission
from payres.grants.tokens import require_token_in_force
from payres.limits import MAX_IDEMPOTENCY_KEY_LENGTH
from payres.payments.idempotency import KeyedRequest, find_answer, keep_answer
from payres.routes.context import context_of
from payres.routes.messages import json_response
from payres.store.database import Transaction
from payres.store.grants import keep_grant
from payres.store.idempotency import KeptAnswer
from payres.wire import Resource, encode

T = TypeVar("T")

HEADER: Final = b"idempotency-key"
BARE_KEY: Final = re.compile(rb"[\w!#$%&'*+.^`|~:/=@-]+", re.ASCII)
CREATED: Final = 201


class Creation:
    """A request that creates something, with or without an Idempotency-Key. What it is authorized for comes first.

    Inside `async with` it is the only one under its key. Refuses with 400 a header that is no key.
    """

    def __init__(
        self, request: Request, body: bytes, permission: Permission, wallet_address: str | None = None
    ) -> None:
        """`wallet_address` is what the grant says in place of a body without one."""
        self._context = context_of(request)
        self._permission = permission
        key = idempotency_key(request.scope["headers"])
        path = request.scope["path"]
        self._keyed = None if key is None else KeyedRequest(permission.client_id, key, path, body, wallet_address)
        self._turn = None if self._keyed is None else self._context.turns.of(self._keyed)

    async def __aenter__(self) -> None:
        if self._turn is not None:
            await self._turn.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._turn is not None:
            self._turn.release()

    async def earlier_answer(self) -> Response | None:
        """The answer that this request had before; for who must ask other servers before it can create anything.

        Refuses with 401 a token that has ended meanwhile, and with 422 `idempotency_key_reused`.
        """
        permission, keyed = self._permission, self._keyed
        if keyed is None:
            return None
        now = self._context.clock.now()

        def unit(tx: Transaction) -> KeptAnswer | None:
            require_token_in_force(tx, permission, now)  # it may have ended while other requests had their turn
            return find_answer(tx, keyed, now)

        kept = await self._context.database.read(unit)
        return None if kept is None else _repeated(kept)

    async def create(
        self, unit: Callable[[Transaction], T], show: Callable[[T], Resource], now: int
    ) -> tuple[T | None, Response]:
        """What the unit creates, and the answer 201 that shows it; or None, and the answer when it was created before.

        With a key, both are one commit: there is never one without the other. Refuses with 401 a token that has ended
        meanwhile, with 422 `idempotency_key_reused`, and as the unit does; a refusal leaves the key unused.
        """
        permission, keyed = self._permission, self._keyed

        def create_with_grant(tx: Transaction) -> T:
            if not permission.grant_stays:
                keep_grant(tx, permission.grant_id)
            return unit(tx)

        def create_only(tx: Transaction) -> T:
            require_token_in_force(tx, permission, now)
            return create_with_grant(tx)

        if keyed is None:
            made = await self._context.database.write(create_only)
            return made, json_response(show(made), CREATED)

        def create_once(tx: Transaction) -> tuple[T | None, Response]:
            require_token_in_force(tx, permission, now)
            kept = find_answer(tx, keyed, now)
            if kept is not None:
                return None, _repeated(kept)
            made = create_with_grant(tx)
            answer = encode(show(made))
            keep_answer(tx, keyed, CREATED, answer, now)
            return made, json_response(msgspec.Raw(answer), CREATED)

        return await self._context.database.write(create_once)


def idempotency_key(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The key in the Idempotency-Key header, None without one. Refuses with 400 what is none.

    The draft's form is a string of structured fields (RFC 9651 section 3.3.3); it is taken without its quotes too.
    """
    values = [value for name, value in headers if name == HEADER]
    if not values:
        return None
    if len(values) > 1:
        raise _malformed("Send one Idempotency-Key only")
    key = _string(values[0]) if values[0].startswith(b'"') else values[0].decode("latin-1")
    if not key or len(key) > MAX_IDEMPOTENCY_KEY_LENGTH:
        raise _malformed(f"An Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} characters")
    if not values[0].startswith(b'"') and not BARE_KEY.fullmatch(values[0]):
        raise _malformed("The Idempotency-Key has characters that it can only have in quotes, or not at all")
    return key


def _string(value: bytes) -> str:
    try:
        text, _ = cast("tuple[str, object]", http_sf.parse(value, tltype="item"))
    except ValueError as error:
        raise _malformed(f"The Idempotency-Key is no string of a structured field (RFC 9651): {error}") from error
    return text


def _malformed(description: str) -> InvalidRequest:
    return InvalidRequest(description, field="Idempotency-Key")


def _repeated(kept: KeptAnswer) -> Response:
    return json_response(msgspec.Raw(kept.answer), kept.status)
