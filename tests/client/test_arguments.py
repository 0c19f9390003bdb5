"""Mistakes of an app in its arguments: each is a ConfigurationError that says what to give, and nothing is sent."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.client import AsyncClient, Client, Grant, PendingGrant, access, errors
from tests.client.clients import Script
from tests.client.test_client import BASE, KEY, ONE, WALLET, answer, scripted

NEVER: dict[str, Any] = {}
NEVER["itself"] = NEVER
METADATA: list[Any] = [{"x": object()}, {1.5: {object()}}, NEVER, ["x"]]
TIMEOUTS: list[Any] = ["5", float("nan"), float("inf"), -1]


def bill(client: Client, metadata: Any) -> object:
    return client.incoming_payment.create(BASE, "t", wallet_address=WALLET, metadata=metadata)


# A call with a mistake, and what the error says.
MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda client: client.quote.get(ONE, PendingGrant()), "of type PendingGrant, .* call grant.finish or grant.wait"),
    (lambda client: client.quote.get(ONE, None), "access_token is None, not str or Grant"),
    (lambda client: client.quote.get(ONE, Grant()), "There is no access token"),
    (lambda client: client.token.revoke(ONE, b"t"), "access_token is of type bytes"),
    (lambda client: client.wallet_address.get(None), "url is None, not str"),
    (lambda client: client.wallet_address.get_keys(None), "url is None"),
    (lambda client: client.outgoing_payment.list(None, "t"), "server is None, not str or WalletAddress"),
    (lambda client: client.grant.finish("x", "http://shop/"), "pending is of type str, not PendingGrant"),
    (lambda client: client.grant.request(BASE, "quote"), "access is of type str"),
    (lambda client: client.grant.request(BASE, {"type": "quote", "actions": ["pay"]}), "create, read, read-all"),
    (lambda client: client.grant.request(BASE, {"type": "x", "y": object()}), "cannot be sent as JSON"),
    (lambda client: client.grant.request(BASE, subject={"x": object()}), "cannot be sent as JSON"),
    *((lambda client, given=given: client.quote.get(ONE, "t", timeout=given), "timeout") for given in TIMEOUTS),
    (lambda client: client.grant.wait(PendingGrant(), timeout=float("nan")), "A timeout is a number"),
    (lambda client: client.incoming_payment.wait(ONE, "t", timeout=float("nan")), "A timeout is a number"),
    *((lambda client, given=given: bill(client, given), "metadata") for given in METADATA),
    (lambda _: access.quote("pay"), "There is no action 'pay' of quote, but: create, read, read-all"),  # type: ignore[arg-type]
    (lambda _: access.outgoing_payment("spend", identifier=WALLET), "create, read, read-all, list, list-all"),  # type: ignore[arg-type]
    (lambda _: Client(42), "wallet_address is of type int, not str"),  # type: ignore[arg-type]
    (lambda _: Client(WALLET, timeout=None), "timeout is None, not int or float"),  # type: ignore[arg-type]
    (lambda _: Client(WALLET, Path("/none/key.pem"), "k"), "from /none/key.pem: there is no such file"),
    (lambda _: Client(WALLET, Path("/"), "k"), "from /: Is a directory"),
    (lambda _: Client(WALLET, "key.pem", "k"), "is the PEM itself; give a file as a Path"),
    (lambda _: Client(WALLET, "x" * 32, "k"), "is the PEM itself; give a file as a Path"),
]


@pytest.mark.parametrize(("call", "says"), MISTAKES)
def test_mistake_is_named_and_nothing_is_sent(call: Callable[[Any], Any], says: str) -> None:
    script = Script()
    with scripted(script) as client, pytest.raises(errors.ConfigurationError, match=says):
        call(client)
    assert not script.asked


def test_client_of_one_loop_is_refused_in_another() -> None:
    transport = httpx2.MockTransport(lambda _: answer(404))
    client = AsyncClient(WALLET, KEY, "key-1", transport=transport)

    async def ask() -> None:
        await client.wallet_address.get(WALLET)

    with pytest.raises(errors.NotFound):
        asyncio.run(ask())
    with pytest.raises(errors.ConfigurationError, match="one event loop"):
        asyncio.run(ask())
    asyncio.run(client.aclose())
