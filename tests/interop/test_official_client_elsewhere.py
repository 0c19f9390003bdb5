"""The official Open Payments client pays from a wallet at one payres to a wallet at another, which are peers."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pytest

from payres.testing.peering import peer
from tests.helpers import Json, amount
from tests.interop.conftest import RunScenario, decide_at
from tests.interop.node import Node, run_node


class Pair(NamedTuple):
    """Two nodes, each a peer of the other in USD; `app` is what a scenario needs to sign in the name of a client."""

    first: Node
    second: Node
    app: Json


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with run_node(folder / "first.db", "test.first") as first, run_node(folder / "second.db", "test.second") as second:
        peer(first.instance, second.instance)
        yield Pair(first, second, first.open_app("app", folder))


class Terms(NamedTuple):
    """Of paying an invoice over 2500 and a tip of 1000, each in the smallest unit of the asset that it is counted in.

    The invoice costs `most` at most and in fact `cost`, of which `paid` arrives; the tip brings `least`, in fact `tip`.
    """

    codes: tuple[str, str]
    most: int
    cost: int
    paid: int
    least: int
    tip: int


@pytest.mark.parametrize(
    "terms",
    [
        Terms(("USD", "USD"), most=2526, cost=2500, paid=2500, least=990, tip=1000),
        Terms(("USD", "EUR"), most=2745, cost=2718, paid=2500, least=910, tip=920),
        # No probe shows that 2300 would just do.
        Terms(("EUR", "USD"), most=2324, cost=2301, paid=2501, least=1076, tip=1086),
    ],
    ids=lambda terms: "-".join(terms.codes),
)
def test_payment_to_another_server(pair: Pair, tell: RunScenario, terms: Terms) -> None:
    before = pair.first.peer("test.second").balance
    paying, paid = terms.codes
    alice, bob = pair.first.open_wallet(paying, deposit="100.00"), pair.second.open_wallet(paid)
    settings = {"alice": alice, "bob": bob, "app": pair.app}
    steps = tell("elsewhere", settings, partial(decide_at, pair.first))
    check_quotes(steps, terms)
    check_payments(steps, terms)
    received = steps["see them received"]
    assert received["invoice"]["completed"]
    assert received["invoice"]["receivedAmount"] == amount(terms.paid, paid)
    assert received["tip"]["receivedAmount"] == amount(terms.tip, paid)
    assert pair.first.balance(alice) == 10_000 - terms.cost - 1000
    assert pair.second.balance(bob) == terms.paid + terms.tip
    owed, owing = pair.first.peer("test.second"), pair.second.peer("test.first")
    assert owed.balance == -owing.balance > before
    assert (owed.held, owing.held) == (0, 0)
    assert (owed.last_error, owing.last_error) == (None, None)
    for node in (pair.first, pair.second):
        node.instance.check_ledger()


def check_quotes(steps: Mapping[str, Json], terms: Terms) -> None:
    quotes, created = steps["quote them"], steps["create incoming payments"]
    found = {name: (quote["receiver"], quote["debitAmount"], quote["receiveAmount"]) for name, quote in quotes.items()}
    paying, paid = terms.codes
    assert found == {
        "invoice": (created["invoice"]["id"], amount(terms.most, paying), amount(2500, paid)),
        "tip": (created["tip"]["id"], amount(1000, paying), amount(terms.least, paid)),
    }
    assert steps["read a quote"]["quote"] == quotes["tip"]


def check_payments(steps: Mapping[str, Json], terms: Terms) -> None:
    for name, sent in (("invoice", terms.cost), ("tip", 1000)):
        quote, paid = steps["quote them"][name], steps[f"pay the {name}"]
        for payment in (paid["created"], paid["payment"]):
            assert payment["quoteId"] == quote["id"]
            assert {member: payment[member] for member in ("receiver", "debitAmount", "receiveAmount")} == {
                member: quote[member] for member in ("receiver", "debitAmount", "receiveAmount")
            }
            assert payment["failed"] is False
        assert paid["payment"]["sentAmount"] == paid["spent"]["spentDebitAmount"] == amount(sent, terms.codes[0])
        assert paid["list"]["result"][0]["id"] == paid["payment"]["id"]
