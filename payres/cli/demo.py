"""`payres demo`: one whole payment against a temporary server, printed step by step."""

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from payres.cli.commands import Command
from payres.cli.open_payments import in_words
from payres.client import Grant, access, money
from payres.core.protocol.wire import IncomingPayment
from payres.operator import assets
from payres.testing.instance import Instance, run_instance

FINISH_URI = "https://shop.example/finish"
METADATA = {"description": "Order 42"}


@click.command(cls=Command, example="payres demo")
def demo() -> None:
    """A shop requests money for one wallet, the owner of another consents and pays. Neither settings nor a database are
    read."""
    with TemporaryDirectory(prefix="payres-demo-") as directory, run_instance(Path(directory) / "payres.db") as payres:
        Demonstration(payres).run()


class Demonstration:
    """A shop bills bob's wallet, alice consents, her wallet pays."""

    def __init__(self, payres: Instance) -> None:
        self.payres = payres
        self.shop = payres.client
        self.alice, self.bob = (self.shop.wallet_address.get(payres.wallet(path)) for path in ("alice", "bob"))
        self._numbers = count(1)

    def run(self) -> None:
        """Prints the payment from grant to receipt. Raises OpenPaymentsError for an unexpected answer."""
        self.payres.write(lambda work: assets.set_fee(work, "USD", 2, "0.10", 50))
        click.echo(
            f"One payment over Open Payments, at a payres that runs at {self.payres.base_url} for this demo only.\n\n"
            f"   alice pays:     {self.alice.id}  USD {self.payres.balance('alice')}\n"
            f"   bob is paid:    {self.bob.id}    USD {self.payres.balance('bob')}\n"
            f"   the shop asks:  {self.payres.wallet('shop')}   signs each request with its key\n"
            "   Sending USD costs 0.10 and 0.5 % of the amount."
        )
        self._pay(*self._bill())
        self.payres.check_ledger()
        click.echo(
            f"\nalice has USD {self.payres.balance('alice')}, bob has USD {self.payres.balance('bob')}.\n"
            "Every invariant of the ledger holds (`payres ledger check`). The server and its data are gone now."
        )

    def _bill(self) -> tuple[Grant, IncomingPayment]:
        self._step("The shop asks for access to incoming payments of bob's wallet.")
        _sent("POST /  access: incoming-payment, create and read")
        billing = self.shop.grant.obtain(self.bob, access.incoming_payment("create", "read", identifier=self.bob.id))
        _answered("200  an access token at once; nobody has to consent")

        self._step("The shop makes a bill: an incoming payment.")
        amount = money("25.00", self.bob)
        _sent(f"POST /incoming-payments  walletAddress: bob's, incomingAmount: {in_words(amount)}")
        bill = self.shop.incoming_payment.create(self.bob, billing, incoming_amount=amount, metadata=METADATA)
        received = in_words(bill.received_amount)
        _answered("201  the incoming payment", id=bill.id, receivedAmount=received, expiresAt=bill.expires_at)
        return billing, bill

    def _pay(self, billing: Grant, bill: IncomingPayment) -> None:
        self._step("The shop asks what paying the bill costs alice.")
        quoting = self.shop.grant.obtain(self.alice, access.quote("create", identifier=self.alice.id))
        _sent("POST /quotes  walletAddress: alice's, receiver: the incoming payment, method: ilp")
        quote = self.shop.quote.create(self.alice, quoting, receiver=bill.id)
        leaves = f"{in_words(quote.debit_amount)}  leaves alice's wallet, the fee included"
        _answered(
            "201  the quote", debitAmount=leaves, receiveAmount=f"{in_words(quote.receive_amount)}  arrives in bob's"
        )

        spending = self._ask_for_consent()
        self._step("The shop pays: an outgoing payment from alice's wallet on the terms of the quote.")
        _sent("POST /outgoing-payments  walletAddress: alice's, quoteId: the quote")
        payment = self.shop.outgoing_payment.create(self.alice, spending, quote_id=quote.id, metadata=METADATA)
        left = f"{in_words(payment.debit_amount)}  has left alice's wallet"
        spent = f"{in_words(payment.grant_spent_debit_amount or payment.debit_amount)} of USD 50.00"
        _answered("201  the outgoing payment", id=payment.id, debitAmount=left, grantSpent=spent)

        self._step("The receipt: both ends as they are now.")
        sent = self.shop.outgoing_payment.get(payment.id, spending)
        received = self.shop.incoming_payment.get(bill.id, billing)
        assert received.completed
        assert not sent.failed
        _sent("GET /outgoing-payments/...")
        _answered("200  the outgoing payment", sentAmount=f"{in_words(sent.sent_amount)}, failed: no")
        _sent("GET /incoming-payments/...")
        _answered("200  the incoming payment", receivedAmount=f"{in_words(received.received_amount)}, completed: yes")

    def _ask_for_consent(self) -> Grant:
        self._step("The shop asks for access to alice's money. That needs her consent.")
        allowance = money("50.00", self.alice)
        _sent(f"POST /  access: outgoing-payment, create and read, at most {in_words(allowance)}")
        item = access.outgoing_payment("create", "read", identifier=self.alice.id, debit_amount=allowance)
        pending = self.shop.grant.start(self.alice, item, finish=FINISH_URI)
        _answered("200  where alice decides, and how the shop continues", redirect=pending.redirect)

        self._step("Alice's browser opens that page. Here the demo approves for her.")
        finish = self.payres.approve(pending.redirect)
        assert finish is not None
        _answered(f"the browser goes on to {FINISH_URI} with a hash and an interact_ref")
        click.echo("      The shop checks the hash: it shows that this server sent the browser.")

        self._step("The shop continues its grant request.")
        _sent("POST /continue/...  interact_ref: what the browser brought")
        grant = self.shop.grant.finish(pending, finish)
        _answered("200  an access token for alice's wallet", expires_in=f"{grant.expires_in} s")
        return grant

    def _step(self, sentence: str) -> None:
        click.echo(f"\n{next(self._numbers)}. {sentence}")


def _sent(request: str) -> None:
    click.echo(f"   -> {request}")


def _answered(answer: str, **members: object) -> None:
    click.echo(f"   <- {answer}")
    for name, value in members.items():
        click.echo(f"      {name:<14}  {value}")
