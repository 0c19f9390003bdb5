"""The scenarios of scenarios/*.mjs with `payres.client`, which is strict: the same steps, with the same facts.

Where JavaScript has an answer, a fact here is its JSON. The client is the one for threads; that for asyncio sends the
same, as test_client_shape.py has it.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from payres.client import Client, Grant, PendingGrant, access
from payres.client.errors import ApiError, ConfigurationError
from payres.core.protocol.gnap import interaction_hash
from payres.core.protocol.wire import Amount, WalletAddress, encode
from payres.core.signatures.jwk import generate_private_key, jwk_from_public_bytes
from tests.helpers import TIMEOUT, Json, wait_until

Decide = Callable[[str, str], None]


def facts(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Grant):
        names = ("value", "manage", "access", "expires_in")
        token = {"access_token": {name: getattr(value, name) for name in names}} if value.value else {}
        return {**token, **({"subject": value.subject} if value.subject else {})}
    if isinstance(value, PendingGrant):
        return {"interact": {"redirect": value.redirect, "finish": value.server_nonce}}
    return json.loads(encode(value), object_hook=_written)


def _written(members: Json) -> Json:
    """An object whose times are as servers write them, to the millisecond."""
    times = {name: datetime.fromisoformat(members[name]) for name in ("createdAt", "expiresAt") if name in members}
    return members | {name: time.isoformat(timespec="milliseconds")[:-6] + "Z" for name, time in times.items()}


class Told:
    """A scenario while it is told: its settings, its steps, and the clients of its apps."""

    def __init__(self, settings: Json, decide: Decide | None, stack: ExitStack) -> None:
        self.settings = settings
        self.steps: dict[str, Json] = {}
        self._decide, self._stack = decide, stack

    def connect(self, app: Mapping[str, Any]) -> Any:
        key = app["privateKey"]
        named = app["walletAddress"], Path(key) if isinstance(key, str) else key, app["kid"]
        return self._stack.enter_context(Client(*named, strict=True, timeout=TIMEOUT))

    def step(self, name: str, **told: Any) -> None:
        assert name not in self.steps
        self.steps[name] = {fact: facts(value) for fact, value in told.items()}

    def refused(self, name: str, call: Callable[..., Any], *args: Any, **named: Any) -> None:
        """What a refusal says; `before` for what is not even sent."""
        try:
            answer = call(*args, **named)
        except ApiError as error:
            self.step(name, status=error.status, code=error.code, details=error.details)
        except (ConfigurationError, TypeError) as error:
            self.step(name, before=type(error).__name__)
        else:
            raise AssertionError(f"{name} was not refused: {answer}")

    def choose(self, redirect: str, choice: str) -> None:
        assert self._decide is not None
        self._decide(redirect, choice)

    def ask(self, client: Any, wallet: WalletAddress, *items: Any, choice: str = "approve", **named: Any) -> "Asked":
        """Asks for what the owner alone can give, has it decided, and waits for the owner's return."""
        with finish_page() as (uri, visited):
            interact = {"start": ["redirect"], "finish": {"method": "redirect", "uri": uri, "nonce": "n"}}
            pending = client.grant.request(wallet, *items, interact=interact, **named)
            assert isinstance(pending, PendingGrant)
            self.choose(pending.redirect, choice)
            return Asked(client, pending, visited.get(timeout=TIMEOUT), wallet.auth_server)


class Asked:
    """A grant that was decided: `answer` is the query with which the owner came back."""

    def __init__(self, client: Any, pending: PendingGrant, url: str, server: str) -> None:
        self.pending, self.url, self._client = pending, url, client
        self.answer = dict(parse_qsl(urlsplit(url).query))
        reference = self.answer.get("interact_ref", "")
        self.expected_hash = interaction_hash("n", pending.server_nonce, reference, server)

    def finish(self) -> Grant:
        grant: Grant = self._client.grant.finish(self.pending, self.url)
        return grant

    def continue_(self, reference: str | None = None, by: Any = None) -> Any:
        by = by or self._client
        return by.grant.continue_(self.pending.continue_uri, self.pending.continue_token, reference)


@contextmanager
def finish_page() -> Iterator[tuple[str, "SimpleQueue[str]"]]:
    """A page of the app, with a query of its own, and the URLs with which it is visited."""
    visited: SimpleQueue[str] = SimpleQueue()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_it = self.path.startswith("/finish")
            self.send_response(200 if is_it else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            if is_it:
                self.wfile.write(b"<!doctype html><title>Back in the app</title><h1>Back in the app</h1>")
                visited.put(self.path)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/finish?order=42", visited
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tell(scenario: str, settings: Json, decide: Decide | None = None) -> dict[str, Json]:
    """The steps of a scenario."""
    with ExitStack() as stack:
        told = Told(settings, decide, stack)
        SCENARIOS[scenario](told)
        return told.steps


def money(value: int | str, code: str = "USD") -> Amount:
    return Amount(value=str(value), asset_code=code, asset_scale=2)


def walk(pages: Callable[..., Any]) -> Json:
    """All at once; then page by page to the end, and back again."""
    first = pages(first=1)
    second = pages(first=1, cursor=first.pagination.end_cursor)
    return {
        "whole": pages(),
        "first": first,
        "second": second,
        "rest": pages(first=100, cursor=second.pagination.end_cursor),
        "back": pages(last=1, cursor=second.pagination.start_cursor),
    }


def payment(told: Told) -> None:
    settings, step = told.settings, told.step
    client = told.connect(settings["app"])
    alice, bob = client.wallet_address.get(settings["alice"]), client.wallet_address.get(settings["bob"])
    app = settings["app"]["walletAddress"]
    step("look up wallet addresses", alice=alice, bob=bob, app=client.wallet_address.get(app))
    keys = {name: {"keys": client.wallet_address.get_keys(url)} for name, url in (("alice", alice.id), ("app", app))}
    step("look up keys", **keys)
    receiving = client.grant.obtain(
        bob, access.incoming_payment("create", "read", "list", "complete", identifier=bob.id)
    )
    step("get an incoming-payment grant", **facts(receiving))

    expires = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S.000Z}"
    members = {"expires_at": expires, "metadata": {"description": "Coffee \u2615", "lines": [{"n": 1}]}}
    invoice = client.incoming_payment.create(bob, receiving, incoming_amount=money(1000), **members)
    step("create an incoming payment", payment=invoice, expiresAt=expires)
    step("read it privately", payment=client.incoming_payment.get(invoice.id, receiving))
    step("read it publicly", payment=client.incoming_payment.get_public(invoice.id))
    open_one, unpaid = (client.incoming_payment.create(bob, receiving) for _ in range(2))
    step("create incoming payments without an amount", payments=[open_one, unpaid])

    quoting = client.grant.obtain(alice, access.quote("create", "read", identifier=alice.id))
    quotes = {
        "inferred": client.quote.create(alice, quoting, receiver=invoice.id),
        "fixedSend": client.quote.create(alice, quoting, receiver=open_one.id, debit_amount=money(300)),
        "fixedReceive": client.quote.create(alice, quoting, receiver=open_one.id, receive_amount=money(200)),
    }
    step("quote it", **quotes)
    step("read a quote", quote=client.quote.get(quotes["inferred"].id, quoting))

    monthly = f"R/{datetime.now(UTC) - timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}/P1M"
    limits: Json = {"debit_amount": money(2000), "interval": monthly}
    wanted = access.outgoing_payment("create", "read", "list", identifier=alice.id, **limits)
    denied = told.ask(client, alice, wanted, choice="deny")
    step("return from denial", answer=denied.answer)
    told.refused("continue after denial", denied.continue_)
    told.refused("continue after denial all the same", denied.continue_, "made-up")

    asked = told.ask(client, alice, wanted)
    step("return from consent", answer=asked.answer, expectedHash=asked.expected_hash)
    sending = asked.finish()
    step("continue", **facts(sending))
    step("read the spent amounts of an unused grant", **spent(client, alice, sending))

    def pay(quote: Any) -> Any:
        return client.outgoing_payment.create(alice, sending, quote_id=quote.id, metadata={"order": "42"})

    made = pay(quotes["inferred"])
    step("create an outgoing payment", payment=made)
    step("read it", payment=client.outgoing_payment.get(made.id, sending))
    step("see the incoming payment completed", payment=client.incoming_payment.get(invoice.id, receiving))
    step("pay twice more", payments=[pay(quotes["fixedSend"]), pay(quotes["fixedReceive"])])
    step("read the spent amounts", **spent(client, alice, sending))
    outgoing = walk(lambda **page: client.outgoing_payment.list(alice, sending, **page))
    step("list outgoing payments", **outgoing)
    step("list incoming payments", **walk(lambda **page: client.incoming_payment.list(bob, receiving, **page)))
    assert list(client.outgoing_payment.iterate(alice, sending)) == list(outgoing["whole"].result)
    step("complete an incoming payment", payment=client.incoming_payment.complete(open_one.id, receiving))
    step("read it afterwards", payment=client.incoming_payment.get(open_one.id, receiving))


def spent(client: Any, wallet: WalletAddress, grant: Grant) -> Json:
    amounts: Json = facts(client.outgoing_payment.get_grant_spent_amounts(wallet, grant))
    return amounts


def direct_payment(told: Told) -> None:
    client = told.connect(told.settings["app"])
    carol, dave = (client.wallet_address.get(told.settings[name]) for name in ("carol", "dave"))
    receiving = client.grant.obtain(dave, access.incoming_payment("create", "read"))
    tip, other = (client.incoming_payment.create(dave, receiving) for _ in range(2))
    limits = {"receiver": tip.id, "debit_amount": money(2500, "GBP")}
    item = access.outgoing_payment("create", "read", identifier=carol.id, **limits)
    sending = told.ask(client, carol, item).finish()

    def pay(receiver: Any, value: int) -> Any:
        amount = money(value, "GBP")
        return client.outgoing_payment.create(carol, sending, incoming_payment=receiver.id, debit_amount=amount)

    told.refused("pay less than the fee", pay, tip, 10)
    made = pay(tip, 2000)
    told.step("pay", payment=made)
    told.step("read it", payment=client.outgoing_payment.get(made.id, sending))
    told.step("see it received", payment=client.incoming_payment.get(tip.id, receiving))
    told.refused("pay more than is left of the limit", pay, tip, 501)
    told.refused("pay another receiver", pay, other, 100)
    told.step("pay all that is left of the limit", payment=pay(tip, 500))
    told.step("read the spent amounts", **spent(client, carol, sending))


def grants(told: Told) -> None:
    client, other = told.connect(told.settings["app"]), told.connect(told.settings["other"])
    step, refused = told.step, told.refused
    bob = client.wallet_address.get(told.settings["bob"])
    item = access.incoming_payment("create", "list", identifier=bob.id)
    mine, theirs = client.grant.obtain(bob, item), other.grant.obtain(bob, item)
    made = client.incoming_payment.create(bob, mine.value), other.incoming_payment.create(bob, theirs)
    step("create a payment with each app", mine=made[0].id, theirs=made[1].id)
    listed = client.incoming_payment.list
    step("list", **facts(listed(bob, mine.value)))

    rotated = client.token.rotate(mine.manage, mine.value)  # as text, so that the grant keeps the old value
    step("rotate", before=facts(mine)["access_token"], after=rotated)
    refused("use the old value", listed, bob, mine.value)
    step("use the new value", **facts(listed(bob, rotated.value)))
    refused("rotate at the old URL", client.token.rotate, mine.manage, mine.value)
    refused("revoke the token of another app", other.token.revoke, rotated.manage, rotated.value)
    client.token.revoke(rotated.manage, rotated.value)
    refused("use a revoked token", listed, bob, rotated.value)
    refused("rotate a revoked token", client.token.rotate, rotated.manage, rotated.value)
    client.token.revoke(rotated.manage, rotated.value)

    doomed = client.grant.obtain(bob, item)
    continued = doomed.continue_uri, doomed.continue_token
    refused("cancel the grant of another app", other.grant.cancel, *continued)
    client.grant.cancel(*continued)
    refused("use a token of a cancelled grant", listed, bob, doomed.value)
    refused("cancel twice", client.grant.cancel, *continued)

    every = access.incoming_payment("list-all", identifier=bob.id)
    asked = told.ask(client, bob, every, subject={"sub_ids": [{"id": bob.id, "format": "uri"}]})
    reference = asked.answer["interact_ref"]
    refused("continue with another reference", asked.continue_, "x")
    refused("continue without a reference", asked.continue_)
    refused("continue as another app", asked.continue_, reference, other)
    seeing = asked.finish()
    step("continue", **facts(seeing))
    step("list all", **facts(listed(bob, seeing)))
    refused("continue twice", asked.continue_, reference)

    polled = client.grant.start(bob, every)
    refused("poll at once", client.grant.continue_, polled.continue_uri, polled.continue_token)
    time.sleep(polled.wait)  # as long as the server wants
    undecided = client.grant.continue_(polled.continue_uri, polled.continue_token)
    step("poll before the decision", **facts(undecided))
    told.choose(polled.redirect, "approve")
    step("poll after the decision", **facts(client.grant.wait(undecided, timeout=TIMEOUT)))


def directed_identity(told: Told) -> None:
    def app(kid: str) -> tuple[Any, Json]:
        key = generate_private_key()
        jwk = jwk_from_public_bytes(kid, key.public_key().public_bytes_raw())
        unused = "http://app.invalid/unused"
        return told.connect({"walletAddress": unused, "privateKey": key, "kid": kid}), {"jwk": msgspec.to_builtins(jwk)}

    (first, mine), (second, theirs) = app("first"), app("second")
    bob = first.wallet_address.get(told.settings["bob"])
    item = access.incoming_payment("create", "read", "list", identifier=bob.id)
    receiving = first.grant.request(bob, item, client=mine)
    told.step("get an incoming-payment grant", **facts(receiving))
    made = first.incoming_payment.create(bob, receiving)
    told.step("create an incoming payment", payment=made)
    told.step("list", **facts(first.incoming_payment.list(bob, receiving)))
    grant = second.grant.request(bob, item, client=theirs)
    told.step("list as another app", **facts(second.incoming_payment.list(bob, grant)))
    told.refused("read as another app", second.incoming_payment.get, made.id, grant)
    told.refused("use the token of another app", second.incoming_payment.list, bob, receiving.value)
    told.refused("ask in the name of another app", second.grant.request, bob, access.quote("create"), client=mine)
    finish = {"method": "redirect", "uri": "http://127.0.0.1:9/", "nonce": "n"}
    spending = access.outgoing_payment("create", identifier=bob.id)
    interact = {"start": ["redirect"], "finish": finish}
    told.refused("ask for consent", first.grant.request, bob, spending, client=mine, interact=interact)


def refusals(told: Told) -> None:
    settings, refused = told.settings, told.refused
    client, other = told.connect(settings["app"]), told.connect(settings["other"])
    impostor = told.connect({**settings["app"], "privateKey": generate_private_key()})
    keyless = told.connect({**settings["app"], "privateKey": generate_private_key(), "kid": "no-such-key"})
    alice, bob = (client.wallet_address.get(settings[name]) for name in ("alice", "bob"))
    server = alice.resource_server
    nowhere = f"{server}/incoming-payments/01890000-0000-7000-8000-000000000000"

    # Wallet addresses
    refused("look up a wallet address that is none", client.wallet_address.get, f"{server}/nobody")
    refused("look up the keys of nobody", client.wallet_address.get_keys, f"{server}/nobody")

    # Grants
    receiving = access.incoming_payment("create", "read", identifier=bob.id)
    interact = {"start": ["redirect"]}

    def limited(**limits: Any) -> Any:
        return client.grant.request(
            alice, access.outgoing_payment("create", "read", identifier=alice.id, **limits), interact=interact
        )

    ask = client.grant.request
    spending = access.outgoing_payment("create", "read", identifier=alice.id)
    refused("sign with the wrong key", impostor.grant.request, alice, receiving)
    refused("sign with a key that is not published", keyless.grant.request, alice, receiving)
    elsewhere = access.incoming_payment("create", "read", identifier=f"{server}/nobody")
    refused("ask for a wallet address that is none", ask, alice, elsewhere)
    burning = {"type": "incoming-payment", "actions": ["burn"], "identifier": bob.id}
    refused("ask for an action that is none", ask, alice, burning)
    refused("ask to spend without saying how to interact", ask, alice, spending)
    refused("ask to spend in another asset", limited, debit_amount=money(100, "EUR"))
    refused("ask to spend in windows of no length", limited, interval="R/2025-01-01T00:00:00Z/PT0S")

    # Tokens and access
    mine = client.grant.obtain(bob, receiving)
    create, read = client.incoming_payment.create, client.incoming_payment.get
    bill, open_one = create(bob, mine, incoming_amount=money(1000)), create(bob, mine)
    refused("use a token that is none", create, bob, "nonsense")
    refused("use the token of another app", other.incoming_payment.create, bob, mine.value)
    refused("list without access", client.incoming_payment.list, bob, mine)
    refused("complete without access", client.incoming_payment.complete, bill.id, mine)
    refused("create for another wallet address", create, bob, mine, wallet_address=alice.id)

    # Incoming payments
    refused("create in another asset", create, bob, mine, incoming_amount=money(1000, "EUR"))
    refused("create with an amount of nothing", create, bob, mine, incoming_amount=money(0))
    refused("create with an amount that is none", create, bob, mine, incoming_amount=money(-1))
    refused("create with an expiry in the past", create, bob, mine, expires_at="2020-01-01T00:00:00Z")
    refused("create with an unknown member", create, bob, mine, note="hello")
    refused("read what does not exist", read, nowhere, mine)
    refused("read publicly what does not exist", client.incoming_payment.get_public, nowhere)
    theirs = other.grant.obtain(bob, receiving)
    refused("read the payment of another app", other.incoming_payment.get, bill.id, theirs)
    listing = client.grant.obtain(bob, access.incoming_payment("list", identifier=bob.id))
    page = client.incoming_payment.list
    cursor = bill.id.rpartition("/")[2]
    refused("list forward and backward at once", page, bob, listing, first=1, last=1, cursor=cursor)
    refused("list backward from nowhere", page, bob, listing, last=1)
    refused("list more than a page holds", page, bob, listing, first=101)
    refused("list from a cursor that is none", page, bob, listing, first=1, cursor="yesterday")

    # Quotes
    quoting = client.grant.obtain(alice, access.quote("create", identifier=alice.id))
    quote = client.quote.create
    refused("quote without access", quote, alice, mine, receiver=bill.id)
    refused("quote for a receiver that does not exist", quote, alice, quoting, receiver=nowhere)
    both = {"debit_amount": money(1), "receive_amount": money(1)}
    refused("quote both amounts", quote, alice, quoting, receiver=open_one.id, **both)
    refused("quote with nothing to infer the amount from", quote, alice, quoting, receiver=open_one.id)
    more = {"receiver": bill.id, "debit_amount": money(1001)}
    refused("quote more than the receiver takes", quote, alice, quoting, **more)
    strange = {"receiver": open_one.id, "debit_amount": money(1, "EUR")}
    refused("quote in another asset", quote, alice, quoting, **strange)

    # Outgoing payments
    allowed = access.outgoing_payment("create", "read", identifier=alice.id, debit_amount=money(9000))
    grant = told.ask(client, alice, allowed).finish()
    pay = client.outgoing_payment.create

    def direct(value: int) -> Json:
        return {"incoming_payment": open_one.id, "debit_amount": money(value)}

    quoted = quote(alice, quoting, receiver=open_one.id, debit_amount=money(100)).id
    pay(alice, grant, quote_id=quoted)
    refused("pay without access", pay, alice, mine, **direct(100))
    refused("pay with a quote twice", pay, alice, grant, quote_id=quoted)
    refused("pay with a quote that does not exist", pay, alice, grant, quote_id=f"{server}/quotes/nothing")
    refused("pay with a quote and an amount", pay, alice, grant, quote_id=quoted, **direct(100))
    refused("pay with neither", pay, alice, grant)
    refused("pay more than the grant allows", pay, alice, grant, **direct(8901))
    refused("pay more than the wallet has", pay, alice, grant, **direct(5000))
    refused("read a payment that does not exist", client.outgoing_payment.get, f"{server}/outgoing-payments/no", grant)
    refused("list payments without access", client.outgoing_payment.list, alice, grant)


def elsewhere(told: Told) -> None:
    client = told.connect(told.settings["app"])
    alice, bob = (client.wallet_address.get(told.settings[name]) for name in ("alice", "bob"))
    receiving = client.grant.obtain(bob, access.incoming_payment("create", "read"))
    amount, described = money(2500, bob.asset_code), {"description": "Invoice 42"}
    bills = {
        "invoice": client.incoming_payment.create(bob, receiving, incoming_amount=amount, metadata=described),
        "tip": client.incoming_payment.create(bob, receiving),
    }
    told.step("create incoming payments", **bills)
    quoting = client.grant.obtain(alice, access.quote("create", "read"))
    tip = money(1000, alice.asset_code)
    quotes = {
        "invoice": client.quote.create(alice, quoting, receiver=bills["invoice"].id),
        "tip": client.quote.create(alice, quoting, receiver=bills["tip"].id, debit_amount=tip),
    }
    told.step("quote them", **quotes)
    told.step("read a quote", quote=client.quote.get(quotes["tip"].id, quoting))
    for name, quote in quotes.items():
        limit = {"debit_amount": quote.debit_amount}
        item = access.outgoing_payment("create", "read", "list", identifier=alice.id, **limit)
        grant = told.ask(client, alice, item).finish()
        made = client.outgoing_payment.create(alice, grant, quote_id=quote.id)
        wait_until(partial(has_ended, client, alice, grant, made.id))
        told.step(
            f"pay the {name}",
            created=made,
            payment=client.outgoing_payment.get(made.id, grant),
            spent=spent(client, alice, grant),
            list=client.outgoing_payment.list(alice, grant),
        )
    read = client.incoming_payment.get
    told.step("see them received", **{name: read(bill.id, receiving) for name, bill in bills.items()})


def has_ended(client: Any, wallet: WalletAddress, grant: Grant, url: str) -> bool:
    """Whether the grant has spent what the payment has sent."""
    amounts = client.outgoing_payment.get_grant_spent_amounts(wallet, grant)
    made = client.outgoing_payment.get(url, grant)
    return bool(made.failed) or made.sent_amount == amounts.spent_debit_amount


SCENARIOS: dict[str, Callable[[Told], None]] = {
    "payment": payment,
    "direct_payment": direct_payment,
    "grants": grants,
    "directed_identity": directed_identity,
    "refusals": refusals,
    "elsewhere": elsewhere,
}
