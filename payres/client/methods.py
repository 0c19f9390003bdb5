"""Calls as methods of either client, and what checks their arguments.

A call is a coroutine function. In a client for threads it never suspends: what it waits for blocks the thread.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from types import NoneType, UnionType
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import httpx2
from msgspec import UnsetType

from payres.client import errors
from payres.client.attempts import Core, T
from payres.core.protocol.wire import Amount

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., object])
Given = TypeVar("Given")
Awaited = TypeVar("Awaited")
Http = TypeVar("Http", bound=httpx2.Client | httpx2.AsyncClient)
ABSENT: Final = (NoneType, UnsetType)  # a resource lacks what an optional argument may lack
AN_AMOUNT: Final = '. An amount is money("5.00", wallet) or {"value": "500", "assetCode": "USD", "assetScale": 2}'
ADVICE: Final[Mapping[type, str]] = {
    Amount: AN_AMOUNT,
    memoryview: ": give the bytes as they came, because only these are signed",
}


class Options(TypedDict, total=False):
    """`timeout` is in seconds, for connecting, and again until the whole answer has come; by default the client's."""

    timeout: float | None


class ResourceCalls(Generic[Http]):
    """The calls of one kind of resource, in either client."""

    def __init__(self, core: Core) -> None:
        self.core = core


class Method(Generic[P, Given, Awaited]):
    """A call as a method: of a client for threads it returns the result, of an asynchronous one an awaitable of it.

    As an attribute of the class it is the coroutine function, by which calls use each other. An example, where a class
    has `@method async def get(self, url: str) -> WalletAddress`:

    | written | is | because |
    |---|---|---|
    | `Client().wallet_address.get(url)` | a WalletAddress | the coroutine runs to its end at once: it never suspends |
    | `AsyncClient().wallet_address.get(url)` | a coroutine | the caller awaits it |
    | `WalletAddresses.get(self, url)` | a coroutine | another call of either client awaits it |
    """

    def __init__(self, function: Callable[Concatenate[Any, P], Awaited], give: Callable[[Awaited], Given]) -> None:
        self._function, self._give = function, give
        self._signature, self._help = _with_options(function)
        self._check = _checker(self._signature)

    @overload
    def __get__(self, part: None, owner: object) -> Callable[Concatenate[Any, P], Awaited]: ...
    @overload
    def __get__(self, part: ResourceCalls[httpx2.Client], owner: object) -> Callable[P, Given]: ...
    @overload
    def __get__(self, part: ResourceCalls[httpx2.AsyncClient], owner: object) -> Callable[P, Awaited]: ...
    def __get__(self, part: ResourceCalls[Any] | None, owner: object) -> object:
        if part is None:
            return self._function

        @wraps(self._function)
        def bound(*args: P.args, **kwargs: P.kwargs) -> object:
            self._check(*args, **kwargs)
            made = self._function(part, *args, **kwargs)
            return made if isinstance(part.core.http, httpx2.AsyncClient) else self._give(made)

        bound.__signature__, bound.__doc__ = self._signature, self._help  # type: ignore[attr-defined]
        return bound


def method(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Method[P, T, Coroutine[Any, Any, T]]:
    """Makes a coroutine function a method of both clients."""
    return Method(function, _result)


def iteration(
    function: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Method[P, Iterator[T], AsyncGenerator[T, None]]:
    """Makes an asynchronous generator function a method of both clients."""
    return Method(function, _items)


def checked(function: F) -> F:
    """Lets a function raise ConfigurationError for arguments of other types than it takes."""
    check = _checker(inspect.signature(function))

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    return cast("F", call)


def _checker(signature: inspect.Signature) -> Callable[..., None]:
    takes = {name: kinds for name, one in signature.parameters.items() if (kinds := _kinds(one.annotation))}

    def check(*args: object, **kwargs: object) -> None:
        for name, given in signature.bind(*args, **kwargs).arguments.items():
            is_many = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for one in given if is_many else (given,):
                if name in takes and not isinstance(one, takes[name]):
                    shown = "None" if one is None else f"of type {type(one).__name__}"
                    wanted = " or ".join(kind.__name__ for kind in takes[name] if kind not in ABSENT)
                    told = (ADVICE[kind] for kind in takes[name] if kind in ADVICE)
                    named = ": give its .id" if str in takes[name] and isinstance(getattr(one, "id", None), str) else ""
                    advice = getattr(one, "instead", named or next(told, ""))
                    raise errors.ConfigurationError(f"{name} is {shown}, not {wanted}{advice}")

    return check


def _kinds(hint: Any) -> tuple[type, ...]:
    """The classes of the values that a hint permits; none where it cannot be told so."""
    if get_origin(hint) in (Union, UnionType):
        found = [_kinds(one) for one in get_args(hint)]
        return () if () in found else tuple(kind for kinds in found for kind in kinds)
    if hint in ABSENT:
        return ABSENT
    kind = get_origin(hint) or hint
    is_told = isinstance(kind, type) and kind not in (Any, inspect.Parameter.empty)
    return () if not is_told or getattr(kind, "_is_protocol", False) else (int, float) if kind is float else (kind,)


def _with_options(function: Callable[..., object]) -> tuple[inspect.Signature, str]:
    """The signature and the help of a call as a method, with each of its options."""
    whole, text = inspect.signature(function), inspect.getdoc(function) or ""
    _, *named = whole.parameters.values()
    if named and named[-1].kind is inspect.Parameter.VAR_KEYWORD:
        [options] = named.pop().annotation.__args__
        text = f"{text}\n\n{inspect.getdoc(options)}"
        for name, kind in get_type_hints(options).items():
            named.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind))
    return whole.replace(parameters=named), text


def _result(steps: Coroutine[object, None, T]) -> T:
    try:
        steps.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a call of a client for threads has suspended")


def _items(items: AsyncGenerator[T, None]) -> Iterator[T]:
    with suppress(StopAsyncIteration):
        while True:
            yield _result(anext(items))
