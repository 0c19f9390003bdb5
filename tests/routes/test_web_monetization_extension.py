"""What the Web Monetization extension (1.3.2) reads in errors: it chooses what to do by `description`."""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import httpx2
import pytest

from payres.clock import SECOND, format_time
from payres.operator import assets, keys
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json, amount, usd

Ask = Callable[[Instance, Client], httpx2.Response]

ROTATES = (401, "invalid_token", "Invalid Token")
RENEWS_THE_RECEIVER = (400, "invalid_receiver", "invalid receiver")
SWITCHES_GRANTS = (403, "limit_exceeded", "unauthorized")
IS_OUT_OF_FUNDS = (403, "insufficient_funds", "unauthorized")
RAISES_THE_AMOUNT = (400, "invalid_amount", "non-positive receive amount")
RECONNECTS = (400, "invalid_client", "invalid client")


USERS = count()


@pytest.fixture
def extension(shared: Instance) -> Client:
    """The extension of another user each time, with a wallet and a key of its own."""
    return shared.new_client(f"extension-{next(USERS)}")


def item(instance: Instance, wallet: str = "alice", **limits: Json) -> Json:
    access = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": instance.wallet(wallet)}
    return {**access, "limits": limits} if limits else access


def bill(instance: Instance, client: Client, wallet: str = "bob", **members: Any) -> str:
    url: str = client.create_incoming_payment(instance.wallet(wallet), **members)["id"]
    return url


def pay(instance: Instance, client: Client, token: str, receiver: str, wallet: str = "alice") -> httpx2.Response:
    body = {"walletAddress": instance.wallet(wallet), "incomingPayment": receiver, "debitAmount": usd(100)}
    return client.post("/outgoing-payments", body, token)


def with_an_unknown_token(instance: Instance, client: Client) -> httpx2.Response:
    return pay(instance, client, "never-issued", bill(instance, client))


def with_an_expired_token(instance: Instance, client: Client) -> httpx2.Response:
    token, receiver = client.grant(item(instance)), bill(instance, client)
    instance.clock.advance(instance.context.settings.access_token_lifetime + 1)
    return pay(instance, client, token, receiver)


def with_a_rotated_token(instance: Instance, client: Client) -> httpx2.Response:
    token = client.obtain_grant(item(instance))["access_token"]
    assert client.post(token["manage"], token=token["value"]).status_code == 200
    return pay(instance, client, token["value"], bill(instance, client))


def with_a_revoked_token(instance: Instance, client: Client) -> httpx2.Response:
    token = client.obtain_grant(item(instance))["access_token"]
    assert client.delete(token["manage"], token=token["value"]).status_code == 204
    return pay(instance, client, token["value"], bill(instance, client))


def expired_receiver(instance: Instance, client: Client) -> httpx2.Response:
    receiver = bill(instance, client, expiresAt=format_time(instance.clock.now() + 30 * SECOND))
    instance.clock.advance(31)
    return pay(instance, client, client.grant(item(instance)), receiver)


def expired_receiver_of_a_quote(instance: Instance, client: Client) -> httpx2.Response:
    receiver = bill(instance, client, expiresAt=format_time(instance.clock.now() + 30 * SECOND))
    instance.clock.advance(31)
    return quote(instance, client, receiver, usd(1))


def receiver_without_an_exchange_rate(instance: Instance, client: Client) -> httpx2.Response:
    instance.create_wallet("extension-silver", "XAG", 3)
    return quote(instance, client, bill(instance, client, "extension-silver"), usd(100))


def above_the_limit(instance: Instance, client: Client) -> httpx2.Response:
    return pay(instance, client, client.grant(item(instance, debitAmount=usd(99))), bill(instance, client))


def from_an_empty_wallet(instance: Instance, client: Client) -> httpx2.Response:
    instance.create_wallet("extension-empty")
    token = client.grant(item(instance, "extension-empty"))
    return pay(instance, client, token, bill(instance, client), "extension-empty")


def of_too_little(instance: Instance, client: Client) -> httpx2.Response:
    wallet = f"crowns-{next(USERS)}"
    instance.create_wallet(wallet, "DKK")
    instance.write(partial(assets.set_fee, code="DKK", scale=2, fixed="0.10", basis_points=0))
    receiver = bill(instance, client, wallet)
    return quote(instance, client, receiver, amount(1, "DKK"), wallet)


def with_a_key_that_is_not_listed(instance: Instance, client: Client) -> httpx2.Response:
    instance.write(lambda work: keys.revoke_key(work, client.wallet_address.rsplit("/")[-1], client.jwk.kid))
    return client.request_grant(item(instance))


def quote(instance: Instance, client: Client, receiver: str, debit: Json, wallet: str = "alice") -> httpx2.Response:
    token = client.grant({"type": "quote", "actions": ["create"]})
    body = {"walletAddress": instance.wallet(wallet), "receiver": receiver, "method": "ilp", "debitAmount": debit}
    return client.post("/quotes", body, token)


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (with_an_unknown_token, ROTATES),
        (with_an_expired_token, ROTATES),
        (with_a_rotated_token, ROTATES),
        (with_a_revoked_token, ROTATES),
        (expired_receiver, RENEWS_THE_RECEIVER),
        (expired_receiver_of_a_quote, RENEWS_THE_RECEIVER),
        (receiver_without_an_exchange_rate, RENEWS_THE_RECEIVER),
        (above_the_limit, SWITCHES_GRANTS),
        (from_an_empty_wallet, IS_OUT_OF_FUNDS),
        (of_too_little, RAISES_THE_AMOUNT),
        (with_a_key_that_is_not_listed, RECONNECTS),
    ],
)
def test_description_is_the_one_that_the_extension_knows(
    shared: Instance, extension: Client, ask: Ask, expected: tuple[int, str, str]
) -> None:
    answer = ask(shared, extension)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["description"]) == expected
    assert error["details"]["hint"] != error["description"]


def test_smallest_amount_comes_with_the_error_of_too_little(shared: Instance, extension: Client) -> None:
    error = of_too_little(shared, extension).json()["error"]
    assert error["details"]["minSendAmount"] == amount(11, "DKK")


def test_lack_of_liquidity_does_not_read_as_an_empty_wallet(shared: Instance, extension: Client) -> None:
    shared.create_wallet("extension-gold", "XAU", 6)
    shared.write(partial(assets.set_rate, base="USD", counter="XAU", rate="0.001"))
    token, receiver = extension.grant(item(shared)), bill(shared, extension, "extension-gold")
    error = pay(shared, extension, token, receiver).json()["error"]
    assert (error["code"], error["details"]["reason"]) == ("insufficient_funds", "liquidity")
    assert error["description"] != "unauthorized"


def test_revoked_key_reads_as_a_signature_that_does_not_validate(shared: Instance, extension: Client) -> None:
    token, receiver = extension.grant(item(shared)), bill(shared, extension)
    shared.write(lambda work: keys.revoke_key(work, extension.wallet_address.rsplit("/")[-1], extension.jwk.kid))
    answer = pay(shared, extension, token, receiver)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (401, "invalid_client")
    assert error["description"].startswith("Signature validation error: ")
