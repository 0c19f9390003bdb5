"""`payres demo`: one whole payment against a throw-away server, printed step by step."""

import secrets
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import httpx2

from payres.amounts import Asset, describe_amount
from payres.grants.gnap import interaction_hash
from payres.operator import assets
from payres.testing.client import Json
from payres.testing.instance import Instance, run_instance

Print = Callable[[str], object]

FINISH_URI = "https://shop.example/finish"
BILL = {"value": "2500", "assetCode": "USD", "assetScale": 2}
ALLOWANCE = {"value": "5000", "assetCode": "USD", "assetScale": 2}


def demonstrate(print_line: Print) -> None:
    """Runs the demonstration on a free port with a database that is gone afterwards."""
    with TemporaryDirectory(prefix="payres-demo-") as directory, run_instance(Path(directory) / "payres.db") as payres:
        Demonstration(payres, print_line).run()


class Demonstration:
    """A shop bills bob's wallet, alice consents, her wallet pays."""

    def __init__(self, payres: Instance, print_line: Print) -> None:
        self.payres = payres
        self.shop = payres.client
        self.alice = payres.wallet("alice")
        self.bob = payres.wallet("bob")
        self._print = print_line
        self._steps = 0

    def run(self) -> None:
        """Prints the payment from grant to receipt. Raises AssertionError when an answer is not the expected one."""
        self.payres.write(lambda work: assets.set_fee(work, "USD", 2, "0.10", 50))
        self._introduce()
        receiver, receive_token = self._bill()
        quote = self._quote(receiver)
        pay_token = self._obtain_consent()
        payment = self._pay(quote, pay_token)
        self._show_receipt(payment, pay_token, receiver, receive_token)
        self._check_ledger()

    def _introduce(self) -> None:
        self._print(
            f"One payment over Open Payments, at a payres that runs at {self.payres.base_url} for this demo only."
        )
        self._print("")
        self._print(f"   alice pays:     {self.alice}  USD {self.payres.balance('alice')}")
        self._print(f"   bob is paid:    {self.bob}    USD {self.payres.balance('bob')}")
        self._print(f"   the shop asks:  {self.shop.wallet_address}   signs each request with its key")
        self._print("   Sending USD costs 0.10 and 0.5 % of the amount.")

    def _bill(self) -> tuple[Json, str]:
        self._step("The shop asks for access to incoming payments of bob's wallet.")
        access = {"type": "incoming-payment", "actions": ["create", "read"], "identifier": self.bob}
        self._ask("POST /", "access: incoming-payment, create and read")
        grant = self._answer(self.shop.request_grant(access), 200, "an access token at once; nobody has to consent")
        token: str = grant["access_token"]["value"]

        self._step("The shop makes a bill: an incoming payment.")
        self._ask("POST /incoming-payments", f"walletAddress: bob's, incomingAmount: {_money(BILL)}")
        body = {"walletAddress": self.bob, "incomingAmount": BILL, "metadata": {"description": "Order 42"}}
        receiver = self._answer(self.shop.post("/incoming-payments", body, token), 201, "the incoming payment")
        self._print(f"      id              {receiver['id']}")
        self._print(f"      receivedAmount  {_money(receiver['receivedAmount'])}")
        self._print(f"      expiresAt       {receiver['expiresAt']}")
        return receiver, token

    def _quote(self, receiver: Json) -> Json:
        self._step("The shop asks what paying the bill costs alice.")
        token = self.shop.grant({"type": "quote", "actions": ["create"], "identifier": self.alice})
        self._ask("POST /quotes", "walletAddress: alice's, receiver: the incoming payment, method: ilp")
        body = {"walletAddress": self.alice, "receiver": receiver["id"], "method": "ilp"}
        quote = self._answer(self.shop.post("/quotes", body, token), 201, "the quote")
        self._print(f"      debitAmount     {_money(quote['debitAmount'])}  leaves alice's wallet, the fee included")
        self._print(f"      receiveAmount   {_money(quote['receiveAmount'])}  arrives in bob's")
        return quote

    def _obtain_consent(self) -> str:
        self._step("The shop asks for access to alice's money. That needs her consent.")
        item = {
            "type": "outgoing-payment",
            "actions": ["create", "read"],
            "identifier": self.alice,
            "limits": {"debitAmount": ALLOWANCE},
        }
        nonce = secrets.token_urlsafe(16)
        interact = {"start": ["redirect"], "finish": {"method": "redirect", "uri": FINISH_URI, "nonce": nonce}}
        self._ask("POST /", f"access: outgoing-payment, create and read, at most {_money(ALLOWANCE)}")
        pending = self._answer(
            self.shop.request_grant(item, interact=interact), 200, "where alice decides, and how the shop continues"
        )
        self._print(f"      redirect        {pending['interact']['redirect']}")

        self._step("Alice's browser opens that page. Here the demo says yes in her stead.")
        finish = self.payres.approve(pending["interact"]["redirect"])
        assert finish is not None
        query = {name: values[0] for name, values in parse_qs(urlsplit(finish).query).items()}
        self._print(f"   <- the browser goes on to {FINISH_URI} with a hash and an interact_ref")
        reference = query["interact_ref"]
        expected = interaction_hash(nonce, pending["interact"]["finish"], reference, f"{self.payres.base_url}/")
        assert query["hash"] == expected
        self._print("      The shop checks the hash: it shows that this server sent the browser.")

        self._step("The shop continues its grant request.")
        follow_up = pending["continue"]
        self._ask("POST /continue/...", "interact_ref: what the browser brought")
        answer = self.shop.post(follow_up["uri"], {"interact_ref": reference}, follow_up["access_token"]["value"])
        grant = self._answer(answer, 200, "an access token for alice's wallet")
        self._print(f"      expires_in      {grant['access_token']['expires_in']} s")
        return str(grant["access_token"]["value"])

    def _pay(self, quote: Json, token: str) -> Json:
        self._step("The shop pays: an outgoing payment from alice's wallet on the terms of the quote.")
        self._ask("POST /outgoing-payments", "walletAddress: alice's, quoteId: the quote")
        body = {"walletAddress": self.alice, "quoteId": quote["id"], "metadata": {"description": "Order 42"}}
        payment = self._answer(self.shop.post("/outgoing-payments", body, token), 201, "the outgoing payment")
        self._print(f"      id              {payment['id']}")
        self._print(f"      debitAmount     {_money(payment['debitAmount'])}  has left alice's wallet")
        self._print(f"      grantSpent      {_money(payment['grantSpentDebitAmount'])} of {_money(ALLOWANCE)}")
        return payment

    def _show_receipt(self, payment: Json, pay_token: str, receiver: Json, receive_token: str) -> None:
        self._step("The receipt: both ends as they are now.")
        self._ask("GET /outgoing-payments/...", "")
        sent = self._answer(self.shop.get(payment["id"], pay_token), 200, "the outgoing payment")
        self._print(f"      sentAmount      {_money(sent['sentAmount'])}, failed: {_yes_or_no(sent['failed'])}")
        self._ask("GET /incoming-payments/...", "")
        received = self._answer(self.shop.get(receiver["id"], receive_token), 200, "the incoming payment")
        is_completed = _yes_or_no(received["completed"])
        self._print(f"      receivedAmount  {_money(received['receivedAmount'])}, completed: {is_completed}")
        assert (sent["failed"], received["completed"]) == (False, True)

    def _check_ledger(self) -> None:
        self._print("")
        self.payres.check_ledger()
        self._print(f"alice has USD {self.payres.balance('alice')}, bob has USD {self.payres.balance('bob')}.")
        self._print(
            "Every invariant of the ledger holds (`payres ledger check`). The server and its data are gone now."
        )

    def _step(self, sentence: str) -> None:
        self._steps += 1
        self._print("")
        self._print(f"{self._steps}. {sentence}")

    def _ask(self, request: str, content: str) -> None:
        self._print(f"   -> {request}" + (f"  {content}" if content else ""))

    def _answer(self, response: httpx2.Response, status: int, meaning: str) -> Json:
        """Prints what the answer means, and returns its body. Raises AssertionError for another status."""
        assert response.status_code == status, f"{response.status_code} instead of {status}: {response.text}"
        self._print(f"   <- {status}  {meaning}")
        body: Json = response.json()
        return body


def _money(amount: Json) -> str:
    return describe_amount(int(amount["value"]), Asset(amount["assetCode"], amount["assetScale"]))


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
