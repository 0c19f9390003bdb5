"""The examples for Python of docs/integrating.md, as they stand there."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payres.client import AsyncClient
from payres.core.signatures.jwk import private_pem
from payres.operator import wallets
from tests.helpers import Json
from tests.instance import Instance, run_instance
from tests.test_docs import blocks, text_of

[CHECKOUT] = blocks(text_of("docs/integrating.md").partition("## From Python")[2], "python")


@pytest.fixture
def payres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """A server by the machine's clock, in whose folder the key of `shop` is."""
    monkeypatch.chdir(tmp_path)
    with run_instance(tmp_path / "payres.db", continue_wait=1) as instance:
        yield instance


def shop(instance: Instance) -> str:
    client = instance.new_client("till", kid="key-1")
    Path("private.pem").write_bytes(private_pem(client.private_key))
    return client.wallet_address


def run(code: str, **names: Any) -> Json:
    exec(compile(code, "docs/integrating.md", "exec"), names)
    return names


def test_pay_from_a_script(payres: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    address, mine = shop(payres), payres.new_client("payer", kid="key-1")
    Path("private.pem").write_bytes(private_pem(mine.private_key))
    payres.write(lambda work: wallets.deposit(work, "payer", "100.00"))
    monkeypatch.setattr(sys, "argv", ["pay.py", address])
    code = text_of("docs/examples/pay.py").replace("https://pay.example.com/alice", mine.wallet_address)
    run(code, print=lambda _, url: payres.approve(url))
    assert payres.balance("payer") == "95.00"


@pytest.mark.parametrize("approve", [True, False])
async def test_pay_on_behalf_of_an_owner(payres: Instance, approve: bool) -> None:
    address = shop(payres)
    payer = payres.create_wallet("payer", deposit="100.00")
    amount = {"value": "700", "assetCode": "USD", "assetScale": 2}
    bill = payres.client.create_incoming_payment(address, amount)["id"]
    order = SimpleNamespace(bill=bill, key="order-42")
    order.save = lambda payer, quote, pending: vars(order).update(payer=payer, quote=quote, pending=pending)

    async def form() -> Json:
        return {"wallet": payer}

    asked = SimpleNamespace(session={"order": 42}, form=form, url_for=lambda _: "http://127.0.0.1/paid")
    async with AsyncClient(address, Path("private.pem"), "key-1") as client:
        names: Json = {"ORDERS": {42: order}, "client": client, "RedirectResponse": RedirectResponse}
        app = run(CHECKOUT, **names, Request=Request, Response=Response)
        sent = await app["checkout"](asked)
        back = (payres.approve if approve else payres.deny)(sent.headers["location"])
        answer = await app["paid"](SimpleNamespace(session={"order": 42}, url=back))
    assert answer.headers["location"] == ("/thanks" if approve else "/cart")
    assert payres.balance("payer") == ("93.00" if approve else "100.00")
