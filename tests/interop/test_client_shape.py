"""`payres.client` and the official JavaScript client send the same bytes, signatures among them, at the same second."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from payres.client import AsyncClient, OpenPaymentsError
from payres.core.protocol.clock import SECOND
from payres.core.protocol.wire import Amount
from payres.core.signatures.jwk import generate_private_key, private_pem
from payres.testing.clock import MovableClock
from payres.testing.receiver import QuickHandler, QuickServer
from tests.client.clients import opened
from tests.helpers import Json
from tests.interop.conftest import RunProgram

NOW = 1_790_000_000
# What tells one program from another and is not signed.
OWN = {"user-agent", "accept-language", "sec-fetch-mode"}
USD = {"value": "1500", "assetCode": "USD", "assetScale": 2}
AMOUNT = Amount(value="1500", asset_code="USD", asset_scale=2)
TOKEN = "tok-123"
CREATIONS = ("/incoming-payments", "/quotes", "/outgoing-payments")
Calls = list[tuple[list[Any], list[Any], Json]]
NO_KEY: Json = {"idempotency_key": ""}


class Recorder(QuickServer):
    """Answers everything with {}, and keeps it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Recording)
        self.requests: list[Json] = []

    def take(self) -> list[Json]:
        found, self.requests = self.requests, []
        return found


class Recording(QuickHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in OWN}
        self.server.requests.append({"line": self.requestline, "headers": headers, "body": body})
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - as http.server calls them


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    server = Recorder()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def each_call(base: str) -> Calls:
    """Each call: as JavaScript makes it, and as Python does."""
    wallet, one = f"{base}/w~1", f"{base}/things/1"
    at: Json = {"url": base, "accessToken": TOKEN}
    this: Json = {"url": one, "accessToken": TOKEN}
    quoting = {"type": "quote", "actions": ["create"], "identifier": wallet}
    paying = {"type": "outgoing-payment", "actions": ["create"], "identifier": wallet, "limits": {"debitAmount": USD}}
    interact = {"start": ["redirect"], "finish": {"method": "redirect", "uri": "https://shop.example/ü", "nonce": "n"}}
    asked = {"access_token": {"access": [quoting, paying]}, "interact": interact}
    meta = {"note": 'Käse ☕ \u2028 </x> "q" \\', "n": [1, 1.5, None, True]}
    bill = {"walletAddress": wallet, "incomingAmount": USD, "expiresAt": "2027-01-01T00:00:00.000Z", "metadata": meta}
    bill_py = {"incoming_amount": AMOUNT, "expires_at": bill["expiresAt"], "metadata": meta}
    fixed = {"walletAddress": wallet, "receiver": one, "method": "ilp", "debitAmount": USD}
    fixed_py: Json = {"receiver": one, "debit_amount": AMOUNT}
    direct = {"walletAddress": wallet, "incomingPayment": one, "debitAmount": USD, "metadata": meta}
    of: Json = {"wallet_address": wallet}
    of_js = {**at, "walletAddress": wallet}
    page = {"first": 10, "cursor": "a b/c+~*"}
    incoming, outgoing = "incomingPayment", "outgoingPayment"
    creating = {**of, **NO_KEY}
    return [
        (["walletAddress.get", {"url": wallet}], ["wallet_address.get", wallet], {}),
        (["walletAddress.get", {"url": base}], ["wallet_address.get", base], {}),
        (["walletAddress.getKeys", {"url": wallet}], ["wallet_address.get_keys", wallet], {}),
        (["walletAddress.getDIDDocument", {"url": wallet}], ["wallet_address.get_did_document", wallet], {}),
        (["grant.request", {"url": base}, asked], ["grant.request", base, quoting, paying], {"interact": interact}),
        (["grant.continue", this, {"interact_ref": "r"}], ["grant.continue_", one, TOKEN, "r"], {}),
        (["grant.continue", this], ["grant.continue_", one, TOKEN], {}),
        (["grant.cancel", this], ["grant.cancel", one, TOKEN], {}),
        ([f"{incoming}.create", at, bill], ["incoming_payment.create", base, TOKEN], {**creating, **bill_py}),
        ([f"{incoming}.get", this], ["incoming_payment.get", one, TOKEN], {}),
        ([f"{incoming}.getPublic", {"url": one}], ["incoming_payment.get_public", one], {}),
        ([f"{incoming}.complete", this], ["incoming_payment.complete", one, TOKEN], {}),
        ([f"{incoming}.list", of_js], ["incoming_payment.list", base, TOKEN], of),
        ([f"{outgoing}.list", of_js, page], ["outgoing_payment.list", base, TOKEN], of | page),
        (["quote.create", at, fixed], ["quote.create", base, TOKEN], creating | fixed_py),
        (["quote.get", this], ["quote.get", one, TOKEN], {}),
        (
            [f"{outgoing}.create", at, {"walletAddress": wallet, "quoteId": one}],
            ["outgoing_payment.create", base, TOKEN],
            {**creating, "quote_id": one},
        ),
        (
            [f"{outgoing}.create", at, direct],
            ["outgoing_payment.create", base, TOKEN],
            {**creating, "incoming_payment": one, "debit_amount": AMOUNT, "metadata": meta},
        ),
        ([f"{outgoing}.get", this], ["outgoing_payment.get", one, TOKEN], {}),
        ([f"{outgoing}.getGrantSpentAmounts", at], ["outgoing_payment.get_grant_spent_amounts", base, TOKEN], {}),
        (["token.rotate", this], ["token.rotate", one, TOKEN], {}),
        (["token.revoke", this], ["token.revoke", one, TOKEN], {}),
    ]


def with_keys(calls: Calls) -> Calls:
    """The creations, with a key each."""
    creations = [call for call in calls if "idempotency_key" in call[2]]
    return [(javascript, python, {**named, "idempotency_key": "k-1"}) for javascript, python, named in creations]


def sent(recorder: Recorder, options: Json, calls: Calls) -> list[Json]:
    """What the client for threads sends, whatever it makes of the answers."""
    with opened(**options, is_documented=False) as client:
        for _, (path, *args), kwargs in calls:
            with suppress(OpenPaymentsError):
                attrgetter(path)(client)(*args, **kwargs)
    return recorder.take()


async def sent_by_tasks(recorder: Recorder, options: Json, calls: Calls) -> list[Json]:
    """The same of the asynchronous client."""
    async with AsyncClient(**options) as client:
        for _, (path, *args), kwargs in calls:
            with suppress(OpenPaymentsError):
                await attrgetter(path)(client)(*args, **kwargs)
    return recorder.take()


def test_same_bytes_as_the_official_client(recorder: Recorder, run_program: RunProgram, tmp_path: Path) -> None:
    key, file = generate_private_key(), tmp_path / "private.pem"
    file.write_bytes(private_pem(key))
    app = {"walletAddress": "https://shop.example/app", "privateKey": str(file), "kid": "key-1"}
    calls = each_call(f"https://127.0.0.1:{recorder.server_port}")
    run_program("shape", {"now": NOW, "app": app, "calls": [javascript for javascript, _, _ in calls]})
    theirs = recorder.take()
    assert len(theirs) == len(calls)
    clock = MovableClock(NOW * SECOND, frozen=True)
    options: Json = {"wallet_address": app["walletAddress"], "private_key": key, "kid": "key-1"}
    options |= {"use_http": True, "clock": clock}
    for one, other, (javascript, _, _) in zip(sent(recorder, options, calls), theirs, calls, strict=True):
        assert one == other, javascript
    with ThreadPoolExecutor(1) as thread:  # because Playwright has a loop in that of the tests
        assert thread.submit(asyncio.run, sent_by_tasks(recorder, options, calls)).result() == theirs
    keyed, theirs_without = with_keys(calls), [one for one in theirs if one["line"].split()[1] in CREATIONS]
    for one, other in zip(sent(recorder, options, keyed), theirs_without, strict=True):
        assert one["headers"].pop("idempotency-key") == '"k-1"'
        assert one["headers"].pop("signature") != other["headers"]["signature"]
        component = one["headers"].pop("signature-input").replace(' "idempotency-key")', ")")
        assert component == other["headers"]["signature-input"]
        rest = {**other["headers"]}
        del rest["signature"], rest["signature-input"]
        assert {**one, "headers": one["headers"]} == {**other, "headers": rest}
