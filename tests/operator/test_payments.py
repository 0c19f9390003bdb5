import secrets

import pytest

from payres.webhooks import deliveries
from tests.cli.test_operations_peer_unresolved import PAYMENT, UNKNOWN, give_up
from tests.helpers import Json, usd, wait_until
from tests.instance import Instance
from tests.operator.declared.test_api import error_of
from tests.operator.programs import Program
from tests.webhooks.endpoint import Endpoint, answering


class Shop:
    """A wallet that others pay, with payments for one test."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.path, self.payer = (f"{name}-{secrets.token_hex(4)}" for name in ("shop", "payer"))
        instance.create_wallet(self.path)
        instance.create_wallet(self.payer, deposit="100.00")

    def bill(self, cents: int | None = None) -> Json:
        return self.instance.client.create_incoming_payment(
            self.instance.wallet(self.path), None if cents is None else usd(cents)
        )

    def pay(self, bill: Json, cents: int | None = None, payer: str | None = None) -> str:
        """The id of the outgoing payment."""
        members = {} if cents is None else {"receiveAmount": usd(cents)}
        wallet = self.instance.wallet(payer or self.payer)
        return id_of(self.instance.client.pay(wallet, bill["id"], **members))


def id_of(payment: Json) -> str:
    return str(payment["id"]).rpartition("/")[2]


@pytest.fixture
def shop(payres: Instance) -> Shop:
    return Shop(payres)


def listed(program: Program, **params: str) -> list[str]:
    return [one["id"] for one in program.get("/payments", **params)["result"]]


def test_payments_are_found_by_what_they_are(program: Program, shop: Shop) -> None:
    bills = [shop.bill(500), shop.bill(), shop.bill(700)]
    paid = [shop.pay(bills[0]), shop.pay(bills[1], 300)]
    ids = [id_of(bill) for bill in bills]
    assert listed(program, wallet=shop.path) == ids[::-1]
    assert listed(program, wallet=shop.path, state="completed") == ids[:1]
    assert listed(program, wallet=shop.path, state="pending") == ids[:0:-1]
    assert listed(program, wallet=shop.payer) == paid[::-1]
    assert listed(program, wallet=shop.payer, direction="incoming") == []
    assert listed(program, first="2") == paid[::-1], "of all wallets in one order"
    assert listed(program, wallet=shop.path, min="3.00", max="4.99") == [ids[1]]
    assert listed(program, wallet=shop.path, counterpart=shop.payer) == [ids[1], ids[0]]
    assert listed(program, counterpart=program.instance.wallet(shop.path)) == paid[::-1]
    assert listed(program, counterpart="https://nobody.example/") == []
    looked_at = id_of(shop.bill())
    assert listed(program, wallet=shop.path, first="1") == [looked_at]
    assert listed(program, wallet=shop.path, used="true") == ids[::-1], "it asks for nothing, and has nothing"
    made = program.get(f"/payments/{ids[1]}")["payment"]["createdAt"]
    assert listed(program, wallet=shop.path, to=made) == ids[:1]
    assert listed(program, wallet=shop.path, **{"from": "2100-01-01T00:00:00Z"}) == []
    assert listed(program, wallet=shop.payer, state="failed", reason="gone") == []
    page = program.get("/payments", wallet=shop.path, used="true", first=1)
    rest = program.get("/payments", wallet=shop.path, used="true", cursor=page["pagination"]["endCursor"])
    assert [one["id"] for one in page["result"] + rest["result"]] == ids[::-1]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"min": "1.00"}, 400),
        ({"wallet": "alice", "min": "1.001"}, 400),
        ({"from": "yesterday"}, 400),
        ({"state": "gone"}, 400),
        ({"direction": "sideways"}, 400),
        ({"wallet": "nobody"}, 404),
        ({"counterpart": "nobody"}, 404),
    ],
)
def test_filter_that_cannot_be_is_refused(program: Program, params: Json, status: int) -> None:
    assert program.ask("GET", "/payments", **params).status_code == status


def test_story_of_a_payment_has_all_that_belongs_to_it(program: Program, shop: Shop) -> None:
    bill = shop.bill(500)
    paid = shop.pay(bill)
    history = program.get(f"/payments/{paid}")
    assert (history["payment"]["state"], history["payment"]["moved"]) == ("completed", "5.00")
    assert history["payment"]["receiver"] == bill["id"]
    assert history["delivered"] == {"amount": "5.00", "assetCode": "USD", "assetScale": 2}
    assert history["grant"]["id"] == history["payment"]["grant"]
    assert history["grant"]["spending"]["debit"] == "5.00"
    assert history["quote"]["debit"]["amount"] == "5.00"
    [entry] = history["entries"]
    assert (entry["debit"], entry["credit"]) == (f"wallet {shop.payer}", f"wallet {shop.path}")
    assert program.get("/ledger/entries", payment=paid)["result"] == [entry]
    received = program.get(f"/payments/{id_of(bill)}")
    assert (received["payers"], received["entries"]) == ([paid], [entry])
    assert (received["grant"], received["quote"], received["delivered"]) == (None, None, None)
    error_of(program.ask("GET", "/payments/1"), 404, "not_found")


def test_story_tells_what_became_of_the_events(program: Program, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "LOOK_SECONDS", 0.02)
    with Endpoint().running() as well, Endpoint().running() as ill:
        ill.answer = answering(500)
        good, bad = (
            program.post("/webhooks", {"url": one.url, "private": True, "events": [events]})["id"]
            for one, events in ((well, "*"), (ill, "outgoing_payment.*"))
        )
        bill = shop.bill()
        paid = shop.pay(bill, 300)
        program.post(f"/payments/{id_of(bill)}/refunds", {"reference": "r"})

        def told(payment: str) -> list[tuple[str, list[tuple[str, str, int]]]]:
            return [
                (one["type"], [(each["webhook"], each["state"], each["attempts"]) for each in one["deliveries"]])
                for one in program.get(f"/payments/{payment}")["events"]
            ]

        taken, not_taken = (good, "delivered", 1), (bad, "pending", 1)
        expected = [
            ("outgoing_payment.created", [taken, not_taken]),
            ("outgoing_payment.completed", [taken, not_taken]),
            ("refund.completed", [taken]),
        ]
        wait_until(lambda: told(paid) == expected, lambda: str(told(paid)))
        assert told(id_of(bill)) == [
            ("incoming_payment.created", [taken]),
            ("incoming_payment.partial_payment_received", [taken]),
            ("refund.completed", [taken]),
        ]
        [*_, refunded] = program.get(f"/payments/{paid}")["events"]
        assert program.get("/events", after=refunded["sequence"] - 1)["result"][0]["id"] == refunded["id"]
        for webhook in (good, bad):
            program.change("DELETE", f"/webhooks/{webhook}")
    assert program.get(f"/payments/{paid}")["events"][0]["deliveries"] == []


def test_refund_goes_back_to_who_paid(program: Program, shop: Shop) -> None:
    bill = shop.bill()
    other = f"other-{secrets.token_hex(4)}"
    program.instance.create_wallet(other, deposit="10.00")
    first, second = shop.pay(bill, 300), shop.pay(bill, 400, other)
    path = f"/payments/{id_of(bill)}/refunds"
    [back] = program.post(path, {"amount": "1.00", "reference": "r-1"})["result"]
    assert (back["outgoingPayment"], back["amount"], back["returned"]) == (second, "1.00", "1.00")
    assert program.audited()[0][1:] == ("payment.refund", id_of(bill), {"amount": "1.00 USD", "reference": "r-1"})
    error_of(program.ask("POST", path, {"amount": "2.00", "reference": "r-1"}), 409, "wrong_state")
    error_of(program.ask("POST", "/payments/1/refunds", {"reference": "r-1"}), 404, "not_found")
    too_much = error_of(program.ask("POST", path, {"amount": "6.01", "reference": "r-2"}), 400, "invalid_amount")
    assert too_much["remaining"] == "600"
    rest = program.post(path, {"reference": "r-2"})["result"]
    assert [(one["outgoingPayment"], one["amount"]) for one in rest] == [(second, "3.00"), (first, "3.00")]
    balances = {path: program.instance.balance(path) for path in (shop.path, shop.payer, other)}
    assert balances == {shop.path: "0.00", shop.payer: "100.00", other: "10.00"}
    history = program.get(f"/payments/{id_of(bill)}")
    assert (history["payment"]["moved"], history["payment"]["refunded"]) == ("7.00", "7.00")
    assert history["refunds"] == [back, *rest]
    assert program.get(f"/payments/{second}")["refunds"] == [back, rest[0]]
    assert program.get(f"/payments/{second}")["payment"]["refunded"] == "4.00"
    entries = program.get("/ledger/entries", account=f"wallet {shop.path}", first=3)["result"]
    assert [one["refund"] for one in entries] == [one["id"] for one in (*rest[::-1], back)]
    program.instance.check_ledger()


def test_packets_of_a_payment_are_in_its_story_and_are_resolved(program: Program) -> None:
    program.instance.write(lambda work: give_up(work, "USD", "given-up"))
    history = program.get(f"/payments/{PAYMENT}")
    assert [(one["id"], one["state"], one["peer"]) for one in history["packets"]] == [
        *((packet, "doubtful", "bank") for packet in UNKNOWN),
        ("sent", "fulfilled", "bank"),
    ]
    assert (history["payment"]["state"], history["payment"]["failure"]) == ("failed", "nobody knows")
    assert listed(program, state="failed", reason="NOBODY") == [PAYMENT]
    assert listed(program, counterpart="https://elsewhere.example/") == [PAYMENT]
    assert (history["delivered"]["amount"], history["delivered"]["assetCode"]) == ("3.60", "GBP")
    found = program.get("/peers/bank/unresolved-packets")["result"]
    assert [one["id"] for one in found] == UNKNOWN
    program.post("/assets/USD/2/liquidity/deposits", {"amount": "10.00"})
    for packet, outcome in zip(UNKNOWN, ("delivered", "returned"), strict=True):
        resolved = program.change("PUT", f"/packets/{packet}/outcome", {"outcome": outcome})
        assert (resolved["id"], resolved["outcome"], resolved["payment"]) == (packet, outcome, PAYMENT)
        assert program.audited()[0][1:] == ("packet.resolve", packet, {"peer": "bank", "outcome": outcome})
    assert program.get("/peers/bank/unresolved-packets")["result"] == []
    again = program.ask("PUT", f"/packets/{UNKNOWN[0]}/outcome", {"outcome": "returned"})
    error_of(again, 409, "wrong_state")
    program.instance.check_ledger()
