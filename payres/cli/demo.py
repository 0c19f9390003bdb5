"""`payres demo`: one whole payment against a throw-away server, printed step by step."""

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from payres.amounts import describe_amount
from payres.cli.commands import Command
from payres.client import Grant, PendingGrant, access, money
from payres.operator import assets
from payres.testing.instance import Instance, run_instance
from payres.wire import Amount, IncomingPayment, OutgoingPayment, Quote

FINISH_URI = "https://shop.example/finish"
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
        self.alice, self.bob = (self.shop.wallet_address.get(payres.wallet(path)) for path in ("alice", "bob"))
        self.allowance = money("50.00", self.alice)
        self._numbers = count(1)

    def run(self) -> None:
        """Prints the payment from grant to receipt. Raises OpenPaymentsError when an answer is not what it must be."""
        self.payres.write(lambda work: assets.set_fee(work, "USD", 2, "0.10", 50))
        _print(
            f"One payment over Open Payments, at a payres that runs at {self.payres.base_url} for this demo only.",
            "",
            f"   alice pays:     {self.alice.id}  USD {self.payres.balance('alice')}",
            f"   bob is paid:    {self.bob.id}    USD {self.payres.balance('bob')}",
            f"   the shop asks:  {self.payres.wallet('shop')}   signs each request with its key",
            "   Sending USD costs 0.10 and 0.5 % of the amount.",
        )
        billing = self._ask_for_bills()
        bill = self._bill(billing)
        quote = self._quote(bill)
        spending = self._continue(*self._ask_for_consent())
        payment = self._pay(quote, spending)
        self._show_receipt(payment, spending, bill, billing)
        self.payres.check_ledger()
        _print(
            "",
            f"alice has USD {self.payres.balance('alice')}, bob has USD {self.payres.balance('bob')}.",
            "Every invariant of the ledger holds (`payres ledger check`). The server and its data are gone now.",
        )

    def _ask_for_bills(self) -> Grant:
        self._step("The shop asks for access to incoming payments of bob's wallet.")
        _print("   -> POST /  access: incoming-payment, create and read")
        grant = self.shop.grant.obtain(self.bob, access.incoming_payment("create", "read", identifier=self.bob.id))
        _print("   <- 200  an access token at once; nobody has to consent")
        return grant

    def _bill(self, grant: Grant) -> IncomingPayment:
        amount = money("25.00", self.bob)
        self._step("The shop makes a bill: an incoming payment.")
        _print(f"   -> POST /incoming-payments  walletAddress: bob's, incomingAmount: {_money(amount)}")
        bill = self.shop.incoming_payment.create(self.bob, grant, incoming_amount=amount, metadata=METADATA)
        _print("   <- 201  the incoming payment")
        _show("id", bill.id)
        _show("receivedAmount", _money(bill.received_amount))
        _show("expiresAt", str(bill.expires_at))
        return bill

    def _quote(self, bill: IncomingPayment) -> Quote:
        self._step("The shop asks what paying the bill costs alice.")
        grant = self.shop.grant.obtain(self.alice, access.quote("create", identifier=self.alice.id))
        _print("   -> POST /quotes  walletAddress: alice's, receiver: the incoming payment, method: ilp")
        quote = self.shop.quote.create(self.alice, grant, receiver=bill.id)
        _print("   <- 201  the quote")
        _show("debitAmount", f"{_money(quote.debit_amount)}  leaves alice's wallet, the fee included")
        _show("receiveAmount", f"{_money(quote.receive_amount)}  arrives in bob's")
        return quote

    def _ask_for_consent(self) -> tuple[PendingGrant, str]:
        self._step("The shop asks for access to alice's money. That needs her consent.")
        _print(f"   -> POST /  access: outgoing-payment, create and read, at most {_money(self.allowance)}")
        item = access.outgoing_payment("create", "read", identifier=self.alice.id, debit_amount=self.allowance)
        pending = self.shop.grant.start(self.alice, item, finish=FINISH_URI)
        _print("   <- 200  where alice decides, and how the shop continues")
        _show("redirect", pending.redirect)
        self._step("Alice's browser opens that page. Here the demo says yes in her stead.")
        finish = self.payres.approve(pending.redirect)
        assert finish is not None
        _print(f"   <- the browser goes on to {FINISH_URI} with a hash and an interact_ref")
        return pending, finish

    def _continue(self, pending: PendingGrant, finish: str) -> Grant:
        _print("      The shop checks the hash: it shows that this server sent the browser.")
        self._step("The shop continues its grant request.")
        _print("   -> POST /continue/...  interact_ref: what the browser brought")
        grant = self.shop.grant.finish(pending, finish)
        _print("   <- 200  an access token for alice's wallet")
        _show("expires_in", f"{grant.expires_in} s")
        return grant

    def _pay(self, quote: Quote, grant: Grant) -> OutgoingPayment:
        self._step("The shop pays: an outgoing payment from alice's wallet on the terms of the quote.")
        _print("   -> POST /outgoing-payments  walletAddress: alice's, quoteId: the quote")
        payment = self.shop.outgoing_payment.create(self.alice, grant, quote_id=quote.id, metadata=METADATA)
        _print("   <- 201  the outgoing payment")
        _show("id", payment.id)
        _show("debitAmount", f"{_money(payment.debit_amount)}  has left alice's wallet")
        spent = payment.grant_spent_debit_amount or payment.debit_amount
        _show("grantSpent", f"{_money(spent)} of {_money(self.allowance)}")
        return payment

    def _show_receipt(self, payment: OutgoingPayment, spending: Grant, bill: IncomingPayment, billing: Grant) -> None:
        self._step("The receipt: both ends as they are now.")
        sent = self.shop.outgoing_payment.get(payment.id, spending)
        received = self.shop.incoming_payment.get(bill.id, billing)
        assert received.completed
        assert not sent.failed
        _print("   -> GET /outgoing-payments/...", "   <- 200  the outgoing payment")
        _show("sentAmount", f"{_money(sent.sent_amount)}, failed: no")
        _print("   -> GET /incoming-payments/...", "   <- 200  the incoming payment")
        _show("receivedAmount", f"{_money(received.received_amount)}, completed: yes")

    def _step(self, sentence: str) -> None:
        _print(f"\n{next(self._numbers)}. {sentence}")


def _print(*lines: str) -> None:
    for line in lines:
        click.echo(line)


def _show(member: str, text: str) -> None:
    click.echo(f"      {member:<14}  {text}")


def _money(amount: Amount) -> str:
    return describe_amount(int(amount.value), amount.asset)
