"""Authorization of a request: its access token, the signature of the token's client, its nonce, and its access.

The order of errors is fixed: signature headers and token (401), then access (403); bodies and existence come later.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from payres.core.grants import clients
from payres.core.grants.access import Action, Caller, Holder, permit
from payres.core.grants.tokens import check_unfrozen, check_valid
from payres.core.http.context import Context, context_of
from payres.core.http.observation import observation_of
from payres.core.http.request_head import credentials
from payres.core.process.rate_limiter import count_for_client
from payres.core.protocol.clock import SECOND, Clock
from payres.core.protocol.errors import (
    ClientUnproven,
    DomainError,
    InvalidClient,
    LimitExceeded,
    Rejected,
    TokenInvalid,
    Unavailable,
)
from payres.core.protocol.gnap import AccessType
from payres.core.protocol.limits import FAILED_SERVER_SECONDS
from payres.core.remote.connection import FetchFailed, NoAddress, failing_as
from payres.core.remote.wallet_addresses import fetch_keys
from payres.core.signatures.jwk import JWK
from payres.core.signatures.sign import Message
from payres.core.signatures.verify import Unverified, Verified, parse, verify, with_likely_cause
from payres.core.store.clients import Client, use_nonce
from payres.core.store.grants import note_use
from payres.core.store.work import Work

T = TypeVar("T")
# Reasons of rejection that differing clocks can cause.
OF_TIME: Final = frozenset({"created_too_old", "created_in_future", "expired"})


async def authorize(request: Request, body: bytes, kind: AccessType, action: Action) -> Caller:
    """The caller of a request, with its access. Raises 401 and 403. Specification 5."""
    return await authorize_reading(request, body, kind, action, lambda _, caller: caller)


async def authorize_reading(
    request: Request, body: bytes, kind: AccessType, action: Action, read: Callable[[Work, Caller], T]
) -> T:
    """The result of `read` for the caller of a request. Raises 401 and 403, and the errors of `read`.

    `read` runs before the signature is verified, in the transaction that reads the token: another one would slow a GET
    by a seventh. An unauthorized request sees none of its results or errors.
    """
    context = context_of(request)
    is_post = request.scope["method"] == "POST"
    pays = is_post and kind == "outgoing-payment"
    token = credentials(request.scope["headers"], "gnap")
    if token is None:
        raise TokenInvalid("Send an access token as Authorization: GNAP <token>", reason="missing_token")
    unverified = parse_signature(request, body)

    # The type is quoted because an inner function's annotations are evaluated on each call.
    def unit(work: Work) -> "tuple[Holder, T | DomainError]":
        holder = context.holders.find(work, token, unverified.keyids)
        if holder is None:
            raise TokenInvalid("The access token is not known; ask for a grant", reason="unknown_token")
        try:
            caller = permit(holder, kind, action, pays=pays)
            return holder, read(work, check_unfrozen(caller, holder.record) if is_post else caller)
        except DomainError as error:
            return holder, error

    holder, outcome = await context.database.read(unit, for_write=is_post)
    observation_of(request.scope).grant = holder.record.grant_id
    try:
        check_valid(holder.record, unverified.now, pays=pays)
    except LimitExceeded as error:
        outcome = error  # raised only after the signature is verified
    except TokenInvalid:
        _prove_if_verified(request, unverified, holder)
        raise
    _count_for(holder.client)
    _, has_asked_remote = await _verify(request, holder.client, unverified, holder.keys)
    await _note_use(context, holder)
    if action == "create":
        _count_creation(request, holder.client, kind)
    if has_asked_remote:  # that may have taken seconds, in which the token or grant may have been revoked
        holder, outcome = await context.database.read(unit)
        check_valid(holder.record, context.clock.now(), pays=pays)
    if isinstance(outcome, DomainError):
        raise outcome
    return outcome


async def _note_use(context: Context, holder: Holder) -> None:
    if holder.record.is_unused:
        with suppress(Unavailable):  # the next use notes it
            await context.database.write(partial(note_use, token_id=holder.record.token_id))


def _count_creation(request: Request, client: Client, kind: AccessType) -> None:
    limits = context_of(request).rate_limits
    if client.jwk is not None:
        limits.check_unauthenticated(request.scope)  # anyone can have a key, and creations are stored
    if kind != "outgoing-payment":  # an owner has consented to these
        limits.creations.check(client.identity)


def _prove_if_verified(request: Request, unverified: Unverified, holder: Holder) -> None:
    if isinstance(verify(unverified, holder.keys), Verified):
        context_of(request).rate_limits.prove(request.scope)


async def verify_client(
    request: Request, unverified: Unverified, client: Client, *, asks_for_grant: bool = False
) -> Verified:
    """The verified signature of the client. Raises 401 `invalid_client`.

    In a grant request, a key that the client's wallet address does not list is 400 `invalid_client`.
    """

    def unit(work: Work) -> tuple[bool, dict[str, JWK]]:
        return clients.is_known(work, client), clients.find_keys(work, client, unverified.keyids)

    is_known, keys = await context_of(request).database.read(unit, for_write=True)
    if is_known:
        _count_for(client)
    verified, _ = await _verify(request, client, unverified, keys, asks_for_grant=asks_for_grant)
    _count_for(client)
    return verified


def parse_signature(request: Request, body: bytes) -> Unverified:
    """Parses the request's signature, without verifying it by a key. Raises 401 `invalid_client`.

    The signed URL is the public base URL followed by the request target as sent.
    """
    context = context_of(request)
    parsed = read_signature(context.urls.base, context.settings.signature_max_age, context.clock, request.scope, body)
    if isinstance(parsed, Rejected):
        raise _rejection(parsed)
    return parsed


def read_signature(base_url: str, max_age: int, clock: Clock, scope: Scope, body: bytes) -> Unverified | Rejected:
    """Like `parse_signature`, but returns a rejection; also for requests that are only observed."""
    target: bytes = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    message = Message(scope["method"], base_url + target.decode("utf-8", "replace"), scope["headers"], body)
    now = clock.now()
    parsed = parse(message, max_age, now)
    if isinstance(parsed, Rejected) and parsed.reason in OF_TIME:
        # Differs from `now` only in tests, where this clock has been moved but the app's has not.
        parsed = parse(message, max_age, clock.outside())
        parsed = parsed if isinstance(parsed, Rejected) else msgspec.structs.replace(parsed, now=now)
    return parsed


def _count_for(client: Client) -> None:
    """Counts outgoing requests to other servers against this client, which is known or verified."""
    count_for_client(client.identity, is_key=client.jwk is not None)


async def _verify(
    request: Request, client: Client, unverified: Unverified, keys: Mapping[str, JWK], *, asks_for_grant: bool = False
) -> tuple[Verified, bool]:
    """Verifies the signature with the client's keys and uses up its nonce; True if keys were fetched for it."""
    context = context_of(request)
    verified = verify(unverified, keys)
    asks_remote = (
        isinstance(verified, Rejected)
        and clients.is_remote_client(context.urls, client)
        # Cached keys may be outdated, but anyone can force this fetch, so it is rate-limited.
        and (not keys or not context.rate_limits.refetches.take(client.identity))
    )
    if asks_remote:
        keys = await _fetch_keys(context, client, are_stored=bool(keys))
        verified = verify(unverified, keys)
    if isinstance(verified, Rejected):
        if asks_for_grant and verified.reason == "unknown_key" and client.wallet_address is not None:
            # Clients treat a 401 as the end of their grants, and start again after a 400.
            raise InvalidClient(f"{verified.description} Publish it at the wallet address", reason=verified.reason)
        # Not for an address over its rate limit: it gets another error, without further computation.
        if verified.reason == "signature_mismatch" and not context.rate_limits.address_error(request.scope):
            verified = with_likely_cause(verified, unverified, keys)
        raise _rejection(verified)
    context.rate_limits.prove(request.scope)
    context.rate_limits.clients.check(client.identity)
    if verified.nonce is not None:
        await _use_nonce(context, client, verified, unverified.now)
    return verified, asks_remote


async def _fetch_keys(context: Context, client: Client, are_stored: bool) -> dict[str, JWK]:
    assert client.wallet_address is not None
    with failing_as(partial(unreadable_client, "unknown_key", "The client's keys could not be fetched")):
        found = await fetch_keys(context.http, client.wallet_address)
    if found.max_age != 0 or are_stored:
        unit = partial(clients.remember_remote_keys, client=client, keys=found.keys, max_age=found.max_age)
        await context.database.write(unit)
    return {key.kid: key for key in found.keys}


def unreadable_client(reason: str, sentence: str, error: FetchFailed) -> DomainError:
    """The error for a client whose server failed: 401, or 503 if it may recover, because clients treat a 401 as the end
    of their grants."""
    if error.reason == "busy":
        return Unavailable(error.sentence)
    is_down = error.reason in {"unreachable", "untrusted_certificate"}
    if is_down and error.retryable and not isinstance(error, NoAddress):
        return Unavailable(f"{sentence}: {error}", retry_after=FAILED_SERVER_SECONDS)
    return ClientUnproven(f"{sentence}: {error}", reason=reason)


async def _use_nonce(context: Context, client: Client, verified: Verified, now: int) -> None:
    kid, nonce = verified.keyid, verified.nonce
    assert nonce is not None
    expires_at = (verified.created + context.settings.signature_max_age) * SECOND

    def unit(work: Work) -> bool:
        record = clients.remember(work, client)
        return use_nonce(work, record.id, kid, nonce, expires_at, now)

    if not await context.database.write(unit):
        raise ClientUnproven("The signature's nonce was used before; sign each request again", reason="nonce_reused")


def _rejection(rejected: Rejected) -> ClientUnproven:
    details = {"component": rejected.component, "signatureBase": rejected.signature_base}
    given = {name: value for name, value in details.items() if value is not None}
    return ClientUnproven(rejected.description, reason=rejected.reason, **given)
