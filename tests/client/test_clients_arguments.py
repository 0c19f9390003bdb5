"""Mistakes of an app in its arguments: each is a ConfigurationError that says what to give, and nothing is sent."""

import asyncio
import json
from collections import UserDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import pytest

from payres.client import AsyncClient, Client, Grant, PendingGrant, WalletAddress, access, decimal, errors, money
from tests.client.clients import Script, opened
from tests.client.test_client import BASE, BILL, GRANTED, KEY, ONE, WALLET, answer, scripted
from tests.client.test_webhooks import bill_of
from tests.helpers import Json

HERE = WalletAddress(**dict.fromkeys(("id", "asset_code", "auth_server", "resource_server"), WALLET), asset_scale=2)
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
    (lambda client: client.grant.request(BASE, {"type": "quote", "actions": "create"}), "actions is a list such as"),
    (lambda client: client.grant.request(BASE, {"type": "quote", "actions": 5}), "actions is a list .* not 5"),
    (lambda client: client.quote.create(BASE, "t", receiver=bill_of(ONE)), "type IncomingPayment, .*give its .id$"),
    (lambda client: client.grant.request(BASE, subject={"x": object()}), "cannot be sent as JSON"),
    *((lambda client, given=given: client.quote.get(ONE, "t", timeout=given), "timeout") for given in TIMEOUTS),
    (lambda client: client.grant.wait(PendingGrant(), timeout=float("nan")), "A timeout is a number"),
    (lambda client: client.incoming_payment.wait(ONE, "t", timeout=float("nan")), "A timeout is a number"),
    *((lambda client, given=given: bill(client, given), "metadata") for given in METADATA),
    (lambda _: access.quote("pay"), "There is no action 'pay' of quote, but: create, read, read-all"),  # type: ignore[arg-type]
    (lambda _: access.outgoing_payment("spend", identifier=WALLET), "create, read, read-all, list, list-all"),  # type: ignore[arg-type]
    (lambda _: access.quote("create", identifier=HERE), "identifier is of type WalletAddress, .*: give its .id$"),  # type: ignore[arg-type]
    (
        lambda _: access.outgoing_payment("create", identifier=WALLET, interval=timedelta(1)),  # type: ignore[arg-type]
        "of type timedelta, not str$",
    ),
    (lambda _: access.outgoing_payment("create", identifier=WALLET, debit_amount="5.00"), "An amount is money"),  # type: ignore[arg-type]
    *((lambda _, given=given: Grant.load(given), "no text of Grant.dump$") for given in (None, "x", "{}", "[" * 9**6)),
    (lambda _: Grant.load(PendingGrant().dump()), "no text of Grant.dump: it is of a PendingGrant"),
    (lambda _: PendingGrant.load(Grant().dump()), "no text of PendingGrant.dump: it is of a Grant"),
    (lambda _: decimal(None), "amount is None, not Amount. An amount is money"),  # type: ignore[arg-type]
    (lambda _: Client(42), "wallet_address is of type int, not str"),  # type: ignore[arg-type]
    (lambda _: Client(WALLET, timeout=None), "timeout is None, not int or float"),  # type: ignore[arg-type]
    (lambda _: Client(WALLET, Path("/none/key.pem"), "k"), "from /none/key.pem: there is no such file"),
    (lambda _: Client(WALLET, Path("/"), "k"), "from /: Is a directory"),
    (lambda _: Client(WALLET, "key.pem", "k"), "is the PEM itself; give a file as a Path"),
    (lambda _: Client(WALLET, "x" * 32, "k"), "is the PEM itself; give a file as a Path"),
]


class Text(str):
    """As markupsafe's, which frameworks give to templates."""


class Whole(int):
    pass


class Part(float):
    pass


class Moment(datetime):
    """As freezegun's."""


def test_values_of_subclasses_and_mappings_that_are_no_dict_are_sent_as_what_they_are() -> None:
    script, at = Script(answer(201, BILL), GRANTED), Moment(2030, 1, 1, tzinfo=UTC)
    metadata = MappingProxyType({"text": Text("a"), "of": UserDict({"n": Whole(1), "part": Part(0.5), "at": at})})
    item: Json = {"type": Text("quote"), "actions": [Text("create")], "identifier": Text(WALLET)}
    with opened(Text(WALLET), KEY, Text("key-1"), transport=script, is_documented=False) as client:
        client.incoming_payment.create(
            Text(BASE), Text("t"), wallet_address=Text(WALLET), metadata=metadata, expires_at=at
        )
        client.grant.obtain(BASE, MappingProxyType(item))
    made, asked = (json.loads(one.content) for one in script.asked)
    whole = "2030-01-01T00:00:00+00:00"
    assert made["metadata"] == {"text": "a", "of": {"n": 1, "part": 0.5, "at": whole}}
    assert datetime.fromisoformat(made["expiresAt"]) == at
    assert asked == {"client": WALLET, "access_token": {"access": [item]}}


def test_money_needs_the_wallet_whose_asset_it_is() -> None:
    with pytest.raises(TypeError, match="give the WalletAddress"):
        money("5.00", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("call", "says"), MISTAKES)
def test_mistake_is_named_and_nothing_is_sent(call: Callable[[Any], Any], says: str) -> None:
    script = Script()
    with scripted(script) as client, pytest.raises(errors.ConfigurationError, match=says):
        call(client)
    assert not script.asked


class OfOneLoop(httpx2.MockTransport):
    """Has a connection, which can be closed by its own loop alone."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        super().__init__(self.connect)

    async def connect(self, _: httpx2.Request) -> httpx2.Response:
        self.loop = asyncio.get_running_loop()
        return answer(404)

    async def aclose(self) -> None:
        if self.loop is not None:
            self.loop.call_soon(lambda: None)


def test_client_of_one_loop_is_refused_in_another_and_closed_once_that_has_ended() -> None:
    client = AsyncClient(WALLET, KEY, "key-1", transport=OfOneLoop())

    async def ask() -> None:
        await client.wallet_address.get(WALLET)

    with asyncio.Runner() as first:
        with pytest.raises(errors.NotFound):
            first.run(ask())
        for call, says in ((ask, "one event loop"), (client.aclose, "the event loop that it was used in")):
            with pytest.raises(errors.ConfigurationError, match=says), ThreadPoolExecutor() as other:
                other.submit(asyncio.run, call()).result()
    asyncio.run(client.aclose())
    assert client._core.http.is_closed
