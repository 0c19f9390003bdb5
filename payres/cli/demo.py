"""`payres demo`: one whole payment against a throw-away server, printed step by step."""

import secrets
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import click
import httpx2

from payres.amounts import Asset, describe_amount
from payres.cli.commands import Command
from payres.gnap import interaction_hash
from payres.operator import assets
from payres.testing.client import Json
from payres.testing.instance import Instance, run_instance

FINISH_URI = "https://shop.example/finish"
BILL = {"value": "2500", "assetCode": "USD", "assetScale": 2}
ALLOWANCE = {"value": "5000", "assetCode": "USD", "assetScale": 2}
METADATA = {"description": "Order 42"}


@click.command(cls=Command, example="payres demo")
def demo() -> None:
    """A shop requests money for one wallet, the owner of another consents and pays. No settings and no database are
    read.
    """
    with TemporaryDirectory(prefix="payres-demo-") as directory, run_instance(Path(directory) / "payres.db") as payres:
        Demonstration(payres).run()


class Demonstration:
    """A shop bills bob's wallet, alice consents, her wallet pays."""

    def __init__(self, payres: Instance) -> None:
        self.payres = payres
        self.shop = payres.client
        self.alice = payres.wallet("alice")
        self.bob = payres.wallet("bob")
        self._steps = 0

    def run(self) -> None:
        """Prints the payment from grant to receipt. Raises AssertionError when an answer is not the expected one."""
        self.payres.write(lambda work: assets.set_fee(work, "USD", 2, "0.10", 50))
        click.echo(
            f"One payment over Open Payments, at a payres that runs at {self.payres.base_url} for this demo only."
        )
        click.echo("")
        click.echo(f"   alice pays:     {self.alice}  USD {self.payres.balance('alice')}")
        click.echo(f"   bob is paid:    {self.bob}    USD {self.payres.balance('bob')}")
        click.echo(f"   the shop asks:  {self.shop.wallet_address}   signs each request with its key")
        click.echo("   Sending USD costs 0.10 and 0.5 % of the amount.")
        receiver, receive_token = self._bill()
        quote = self._quote(receiver)
        pay_token = self._obtain_consent()
        payment = self._pay(quote, pay_token)
        self._show_receipt(payment, pay_token, receiver, receive_token)
        self.payres.check_ledger()
        click.echo("")
        click.echo(f"alice has USD {self.payres.balance('alice')}, bob has USD {self.payres.balance('bob')}.")
        click.echo("Every invariant of the ledger holds (`payres ledger check`). The server and its data are gone now.")

    def _bill(self) -> tuple[Json, str]:
        self._step("The shop asks for access to incoming payments of bob's wallet.")
        access = {"type": "incoming-payment", "actions": ["create", "read"], "identifier": self.bob}
        _ask("POST /", "access: incoming-payment, create and read")
        grant = _answer(self.shop.request_grant(access), 200, "an access token at once; nobody has to consent")
        token: str = grant["access_token"]["value"]

        self._step("The shop makes a bill: an incoming payment.")
        _ask("POST /incoming-payments", f"walletAddress: bob's, incomingAmount: {_money(BILL)}")
        body = {"walletAddress": self.bob, "incomingAmount": BILL, "metadata": METADATA}
        receiver = _answer(self.shop.post("/incoming-payments", body, token), 201, "the incoming payment")
        _show("id", receiver["id"])
        _show("receivedAmount", _money(receiver["receivedAmount"]))
        _show("expiresAt", receiver["expiresAt"])
        return receiver, token

    def _quote(self, receiver: Json) -> Json:
        self._step("The shop asks what paying the bill costs alice.")
        token = self.shop.grant({"type": "quote", "actions": ["create"], "identifier": self.alice})
        _ask("POST /quotes", "walletAddress: alice's, receiver: the incoming payment, method: ilp")
        body = {"walletAddress": self.alice, "receiver": receiver["id"], "method": "ilp"}
        quote = _answer(self.shop.post("/quotes", body, token), 201, "the quote")
        _show("debitAmount", f"{_money(quote['debitAmount'])}  leaves alice's wallet, the fee included")
        _show("receiveAmount", f"{_money(quote['receiveAmount'])}  arrives in bob's")
        return quote

    def _obtain_consent(self) -> str:
        self._step("The shop asks for access to alice's money. That needs her consent.")
        access = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": self.alice}
        limited = access | {"limits": {"debitAmount": ALLOWANCE}}
        nonce = secrets.token_urlsafe(16)
        interact = {"start": ["redirect"], "finish": {"method": "redirect", "uri": FINISH_URI, "nonce": nonce}}
        _ask("POST /", f"access: outgoing-payment, create and read, at most {_money(ALLOWANCE)}")
        asked = self.shop.request_grant(limited, interact=interact)
        pending = _answer(asked, 200, "where alice decides, and how the shop continues")
        _show("redirect", pending["interact"]["redirect"])

        self._step("Alice's browser opens that page. Here the demo says yes in her stead.")
        finish = self.payres.approve(pending["interact"]["redirect"])
        assert finish is not None
        query = {name: values[0] for name, values in parse_qs(urlsplit(finish).query).items()}
        click.echo(f"   <- the browser goes on to {FINISH_URI} with a hash and an interact_ref")
        reference = query["interact_ref"]
        expected = interaction_hash(nonce, pending["interact"]["finish"], reference, f"{self.payres.base_url}/")
        assert query["hash"] == expected
        click.echo("      The shop checks the hash: it shows that this server sent the browser.")

        self._step("The shop continues its grant request.")
        follow_up = pending["continue"]
        _ask("POST /continue/...", "interact_ref: what the browser brought")
        answer = self.shop.post(follow_up["uri"], {"interact_ref": reference}, follow_up["access_token"]["value"])
        token = _answer(answer, 200, "an access token for alice's wallet")["access_token"]
        _show("expires_in", f"{token['expires_in']} s")
        return str(token["value"])

    def _pay(self, quote: Json, token: str) -> Json:
        self._step("The shop pays: an outgoing payment from alice's wallet on the terms of the quote.")
        _ask("POST /outgoing-payments", "walletAddress: alice's, quoteId: the quote")
        body = {"walletAddress": self.alice, "quoteId": quote["id"], "metadata": METADATA}
        payment = _answer(self.shop.post("/outgoing-payments", body, token), 201, "the outgoing payment")
        _show("id", payment["id"])
        _show("debitAmount", f"{_money(payment['debitAmount'])}  has left alice's wallet")
        _show("grantSpent", f"{_money(payment['grantSpentDebitAmount'])} of {_money(ALLOWANCE)}")
        return payment

    def _show_receipt(self, payment: Json, pay_token: str, receiver: Json, receive_token: str) -> None:
        self._step("The receipt: both ends as they are now.")
        _ask("GET /outgoing-payments/...")
        sent = _answer(self.shop.get(payment["id"], pay_token), 200, "the outgoing payment")
        assert not sent["failed"]
        _show("sentAmount", f"{_money(sent['sentAmount'])}, failed: no")
        _ask("GET /incoming-payments/...")
        received = _answer(self.shop.get(receiver["id"], receive_token), 200, "the incoming payment")
        assert received["completed"]
        _show("receivedAmount", f"{_money(received['receivedAmount'])}, completed: yes")

    def _step(self, sentence: str) -> None:
        self._steps += 1
        click.echo(f"\n{self._steps}. {sentence}")


def _ask(request: str, content: str = "") -> None:
    click.echo(f"   -> {request}" + (f"  {content}" if content else ""))


def _answer(response: httpx2.Response, status: int, meaning: str) -> Json:
    """Prints what the answer means, and returns its body. Raises AssertionError for another status."""
    assert response.status_code == status, f"{response.status_code} instead of {status}: {response.text}"
    click.echo(f"   <- {status}  {meaning}")
    body: Json = response.json()
    return body


def _show(member: str, text: str) -> None:
    click.echo(f"      {member:<14}  {text}")


def _money(amount: Json) -> str:
    return describe_amount(int(amount["value"]), Asset(amount["assetCode"], amount["assetScale"]))
