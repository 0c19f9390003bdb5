import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from payres.core.payments import ledger
from payres.core.protocol.amounts import Asset, Terms
from payres.core.protocol.clock import DAY, HOUR, LATEST, MILLISECOND, format_time
from payres.core.protocol.errors import InvalidRequest
from payres.core.store import clients
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.html.exports import FORMULA, Export, ExportRow, Walk
from payres.operator import exports, wallets
from payres.operator.declared.shapes import Cell, Column, make_table
from payres.operator.refunds import WantedRefund
from payres.people import statements
from tests.works import NOW, refund, sending_payment, work_at

RECEIVER = "http://127.0.0.1:8080/incoming-payments/in"
TERMS = Terms(receiver=RECEIVER, incoming_payment_id=None, debit=110, fee=10, receive=100, asset=Asset("USD", 2))


@pytest.fixture
def tx(tx: Work) -> Work:
    open_wallets(tx)
    return tx


def open_wallets(work: Work) -> None:
    for path in ("alice", "bob"):
        wallets.create_wallet(work, path, "USD", 2, None, None)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "BATCH_TRANSFERS", 3)
    monkeypatch.setattr(exports, "BATCH_PAYMENTS", 2)


def statement_of(path: str, since: int = 0, until: int = LATEST) -> Export:
    return exports.export_statement(path, format_time(since), format_time(until))


def query(since: int = 0, until: int = LATEST, path: str = "") -> dict[str, Any]:
    return {"from_": format_time(since), "to": format_time(until)} | ({"wallet": path} if path else {})


def rows_of(work: Work, export: Export) -> Sequence[ExportRow]:
    rows: list[ExportRow] = []
    parts = [export.part]
    while not export.done:
        rows += export.step(work)
        parts.append(export.part)
    assert parts == sorted(parts)
    assert parts[-1] == 1
    assert all(tuple(row) == export.columns for row in rows)
    return rows


def pay(work: Work, payment_id: str, bill_id: str | None = None) -> None:
    """alice pays bob 1.00 for 1.10."""
    bill_id = bill_id or payment_id
    alice, bob = (require_wallet(work, path) for path in ("alice", "bob"))
    client = clients.ensure_client(work, "http://c.example", "http://c.example", None, work.now)
    bill = IncomingRecord(bill_id, bob.id, client.id, None, 0, None, work.now, work.now + DAY, None)
    INCOMING.insert(work, bill)
    OUTGOING.insert(work, sending_payment(payment_id, alice.id, client.id, work.now, TERMS))
    fees = ledger.operator_account(work, alice.asset_id, "fees")
    ledger.transfer(work, alice.account_id, fees, 10, "fee", outgoing_payment_id=payment_id)
    payments = {"outgoing_payment_id": payment_id, "incoming_payment_id": bill_id}
    ledger.transfer(work, alice.account_id, bob.account_id, 100, "payment", **payments)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        *((text, f"'{text}") for text in ("=1+2", "+1", "-1+2", "@SUM(A1)", "-", "-A1", "\uff1d1+2")),
        *((text, text) for text in ("-1.00", "-100", "1.00", "a=1", "{}", "", "a;b", "a;-1.00")),
        *(("\t=1", "'\t'=1"), ("-1\n=1", "'-1\n'=1"), ("\n=1", "'\n'=1"), ('"x;=1+2', "\"x;'=1+2"), (";@A1", ";'@A1")),
        ("\u200b=1", "'=1"),  # what is hidden is left out first
    ],
)
def test_no_text_is_a_formula_and_numbers_stay_numbers(tx: Work, text: str, written: str) -> None:
    def walk(work: Work) -> Walk:
        yield [{"text": text, "number": -1, "nothing": None}], 1

    [_, cells] = csv.reader(io.StringIO(Export("x", ["text", "number", "nothing"], walk, "csv").text(tx)))
    assert cells == [written, "-1", ""]
    printed = Cell(text).printed
    [_, shown] = csv.reader(io.StringIO(make_table("x", [Column("text", Cell)], [text], "").csv, newline=""))
    assert shown == [FORMULA.sub("'", printed)]
    [line] = Export("x", [], walk, "jsonl").text(tx).splitlines()
    assert json.loads(line)["text"] == text


def test_statement_shows_each_line_with_its_balance(tx: Work) -> None:
    wallets.deposit(tx, "alice", "10.00")
    pay(work_at(tx, NOW + HOUR), "p1")
    wallets.withdraw(work_at(tx, NOW + DAY), "alice", "3.00")
    later = work_at(tx, NOW + 2 * DAY)
    found = rows_of(later, statement_of("alice", NOW + HOUR))
    assert [tuple(row.values()) for row in found] == [
        (format_time(NOW + HOUR), "opening balance", None, "10.00", "USD", None, None),
        (format_time(NOW + HOUR), "fee", "-0.10", "9.90", "USD", "fees USD 2", "p1"),
        (format_time(NOW + HOUR), "payment", "-1.00", "8.90", "USD", RECEIVER, "p1"),
        (format_time(NOW + DAY), "withdrawal", "-3.00", "5.90", "USD", "external USD 2", None),
        (format_time(later.now), "closing balance", None, "5.90", "USD", None, None),
    ]
    received = rows_of(later, statement_of("bob"))[1]
    assert (received["amount"], received["counterpart"]) == ("1.00", "http://127.0.0.1:8080/alice")


def test_export_leaves_out_what_is_written_after_its_first_step(tx: Work) -> None:
    for _ in range(5):
        wallets.deposit(tx, "alice", "1.00")
    statement, whole = statement_of("alice"), exports.export_ledger(**query())
    rows, entries = [*statement.step(tx)], [*whole.step(tx)]
    wallets.deposit(tx, "alice", "7.00")
    rows += rows_of(tx, statement)
    entries += rows_of(tx, whole)
    assert (len(rows), rows[-1]["balance"], len(entries)) == (7, "5.00", 5)


def test_statement_of_a_period_that_goes_on_closes_when_it_was_asked_for(tx: Work) -> None:
    wallets.deposit(work_at(tx, NOW - 1), "alice", "5.00")
    statement = statement_of("alice", NOW, NOW + DAY)
    rows = [*statement.step(work_at(tx, NOW + HOUR))]
    wallets.deposit(work_at(tx, NOW + HOUR + 1), "alice", "7.00")
    rows += rows_of(work_at(tx, NOW + 2 * HOUR), statement)
    assert [(row["createdAt"], row["balance"]) for row in rows] == [
        (format_time(NOW), "5.00"),
        (format_time(NOW + HOUR), "5.00"),
    ]


def test_there_is_no_statement_of_what_is_to_come(tx: Work) -> None:
    with pytest.raises(InvalidRequest, match="from is in the future"):
        statement_of("alice", NOW + MILLISECOND).step(tx)


def test_ledger_names_both_accounts(tx: Work) -> None:
    wallets.deposit(tx, "alice", "10.00")
    pay(work_at(tx, NOW + DAY), "p1")
    work = work_at(tx, NOW + DAY)
    found = rows_of(work, exports.export_ledger(**query(NOW + DAY)))
    assert [(row["debitAccount"], row["creditAccount"], row["amount"]) for row in found] == [
        ("wallet alice", "fees USD 2", "0.10"),
        ("wallet alice", "wallet bob", "1.00"),
    ]
    assert [row["kind"] for row in rows_of(work, exports.export_ledger(**query(path="bob")))] == ["payment"]


def test_refund_is_one_and_names_its_payments(tx: Work) -> None:
    wallets.deposit(tx, "alice", "10.00")
    pay(tx, "p1")
    tx.execute("UPDATE outgoing_payment SET delivered = 100, sent = 110, state = 'completed', ended_at = 1")
    tx.execute("UPDATE incoming_payment SET received = 100")
    work = work_at(tx, NOW + DAY)
    refund(work, WantedRefund("p1", "goods 1", "0.40"))
    for path, amount in (("bob", "-0.40"), ("alice", "0.40")):
        line = rows_of(work, statement_of(path, NOW + DAY))[1]
        assert (line["kind"], line["amount"], line["payment"]) == ("refund", amount, "p1")
    [entry] = rows_of(work, exports.export_ledger(**query(NOW + DAY)))
    assert (entry["kind"], entry["incomingPayment"], entry["outgoingPayment"]) == ("refund", "p1", "p1")


def test_payments_of_both_directions_are_in_order(tx: Work) -> None:
    wallets.deposit(tx, "alice", "10.00")
    ids = [f"018bcfe5-{number:04x}" for number in range(5)]
    for number, payment_id in enumerate(ids):
        pay(work_at(tx, NOW + number * MILLISECOND), f"{payment_id}-o", f"{payment_id}-i")
    work = work_at(tx, NOW + DAY)
    found = rows_of(work, exports.export_payments(**query()))
    assert [str(row["id"]).rpartition("/")[2] for row in found] == [f"{one}-{way}" for one in ids for way in "io"]
    assert [row["direction"] for row in found] == ["incoming", "outgoing"] * 5
    assert (found[0]["state"], found[0]["amount"]) == ("expired", None)
    assert (found[-1]["amount"], found[-1]["moved"], found[-1]["receiver"]) == ("1.10", "0.00", RECEIVER)
    assert len(rows_of(work, exports.export_payments(**query(NOW + MILLISECOND, NOW + 3 * MILLISECOND)))) == 4
    assert {row["walletAddress"] for row in rows_of(work, exports.export_payments(**query(path="bob")))} == {
        "http://127.0.0.1:8080/bob"
    }
