"""A small ledger with every kind of payment, and each invariant broken by direct changes to the database."""

from pathlib import Path

import msgspec
import pytest

from payres.core.payments import ledger
from payres.core.protocol.amounts import Asset, Terms
from payres.core.store import accounts, clients, grants, incoming_payments
from payres.core.store.connections import connect_writer
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Transaction, Work
from payres.interledger.store import outgoing_payments
from payres.operator import assets, movements, wallets
from payres.operator.refunds import WantedRefund
from payres.operator.store.invariants import LEDGER_INVARIANTS
from payres.operator.upkeep import invariant_checks
from payres.people.store.standing_orders import ORDERS, RUNS, RunRecord
from tests.works import NOW, refund, sending_payment, standing_order, work_at

MAX_DECIMAL = "92233720368547758.07"

SENDING = sending_payment(
    "3-sending",
    1,
    1,
    NOW,
    grant_id="grant",
    terms=Terms(
        receiver="http://127.0.0.1:8080/incoming-payments/1-open",
        incoming_payment_id="1-open",
        debit=110,
        fee=10,
        receive=100,
        asset=Asset("USD", 2),
    ),
)


@pytest.fixture
def tx(tx: Work) -> Work:
    tx.execute("BEGIN")
    keep_books(tx)
    return tx


def keep_books(tx: Work) -> None:
    """alice has sent one payment to bob, failed to send another, and is sending a third to carol in euros."""
    alice, bob, carol = (
        wallets.create_wallet(tx, path, code, 2, None, None)
        for path, code in (("alice", "USD"), ("bob", "USD"), ("carol", "EUR"))
    )
    wallets.deposit(tx, "alice", "10.00")
    wallets.deposit(tx, "carol", "1.00")
    assets.deposit_liquidity(tx, "EUR", 2, "50.00")
    client = clients.ensure_client(tx, "http://127.0.0.1:8080/bob", "http://127.0.0.1:8080/bob", None, NOW)
    GRANTS.insert(tx, GrantRecord("grant", client.id, None, "issued", "[]", None, alice.id, b"", NOW, NOW, None))
    for identifier, wallet in (("1-open", bob), ("2-euros", carol)):
        INCOMING.insert(tx, IncomingRecord(identifier, wallet.id, client.id, None, 0, None, NOW, NOW + 1, None))
    _complete(tx, _start(tx, alice, "1-completed"), alice, bob)
    _fail(tx, _start(tx, alice, "2-failed"))
    _start(tx, alice, "3-sending", "EUR", "2-euros")
    refund(tx, WantedRefund("1-open", "returned", "0.40"))
    movements.undo(tx, wallets.deposit(tx, "carol", "0.50").id)
    order = standing_order(alice.id, "http://127.0.0.1:8080/bob", id="monthly", value=110, most=110, next_window=1)
    ORDERS.insert(tx, order)
    RUNS.insert(tx, RunRecord(order.id, 0, NOW, "paid", "1-completed"))


def _start(
    tx: Work, sender: WalletRecord, identifier: str, code: str = "USD", receiver: str = "1-open"
) -> OutgoingRecord:
    terms = msgspec.structs.replace(SENDING.terms, asset=Asset(code, 2), incoming_payment_id=receiver)
    payment = msgspec.structs.replace(SENDING, id=identifier, terms=terms)
    OUTGOING.insert(tx, payment)
    ledger.hold(tx, sender.account_id, payment.terms.debit, outgoing_payment_id=identifier)
    grants.add_spending(tx, "grant", 0, payment.terms.asset, payment.terms.debit, payment.terms.receive, NOW)
    return payment


def _complete(tx: Work, payment: OutgoingRecord, sender: WalletRecord, receiver: WalletRecord) -> None:
    (promised,) = accounts.HOLDS.list(tx, outgoing_payment_id=payment.id)
    fees = ledger.operator_account(tx, sender.asset_id, "fees")
    ledger.post(tx, promised.id, fees, payment.terms.fee, "fee")
    ledger.post(
        tx,
        promised.id,
        receiver.account_id,
        payment.terms.receive,
        "payment",
        incoming_payment_id=payment.terms.incoming_payment_id,
    )
    assert payment.terms.incoming_payment_id
    incoming_payments.add_received(tx, payment.terms.incoming_payment_id, payment.terms.receive)
    outgoing_payments.end_outgoing(tx, payment.id, payment.terms.debit, payment.terms.receive, None, NOW)


def _fail(tx: Work, payment: OutgoingRecord) -> None:
    (promised,) = accounts.HOLDS.list(tx, outgoing_payment_id=payment.id)
    ledger.void(tx, promised.id)
    grants.add_spending(tx, "grant", 0, payment.terms.asset, -payment.terms.debit, -payment.terms.receive, NOW)
    outgoing_payments.end_outgoing(tx, payment.id, 0, 0, "the receiver has gone", NOW)


def test_check_proves_right_books_and_says_over_how_much(tx: Transaction) -> None:
    findings = invariant_checks.check(tx)
    assert [finding.breaches for finding in findings if not finding.holds] == []
    assert invariant_checks.first_broken(findings) is None
    examined = {finding.name: finding.examined for finding in findings}
    assert examined["zero_sum"] == 2
    assert examined["balances"] == 7
    assert examined["transfers"] == 8
    assert examined["refunds"] == examined["refunded"] == 1
    assert examined["held"] == examined["sending"] == 1
    assert examined["received"] == examined["sent"] == examined["delivered"] == examined["spending"] == 2


def test_check_proves_an_empty_database() -> None:
    connection = connect_writer(":memory:")
    assert invariant_checks.first_broken(invariant_checks.check(connection)) is None
    connection.close()


def test_check_counts_turnover_past_what_one_figure_holds(tx: Work) -> None:
    wallets.create_wallet(tx, "dora", "GBP", 2, None, None)
    for _ in range(3):
        wallets.deposit(tx, "dora", MAX_DECIMAL)
        wallets.withdraw(tx, "dora", MAX_DECIMAL)
    wallets.deposit(tx, "dora", MAX_DECIMAL)
    assert invariant_checks.first_broken(invariant_checks.check(tx)) is None


def test_check_takes_windows_in_which_all_was_given_back(tx: Transaction) -> None:
    grants.add_spending(tx, "grant", NOW, Asset("JPY", 0), 0, 0, NOW)
    assert invariant_checks.first_broken(invariant_checks.check(tx)) is None


FIRST = "(SELECT id FROM movement WHERE transfer_id = 1)"
CROSSED = """
    INSERT INTO transfer (debit_account_id, credit_account_id, amount, kind, created_at)
    SELECT d.id, c.id, 5, 'exchange', 0 FROM account d JOIN account c ON c.kind = 'wallet' AND c.asset_id <> d.asset_id
    WHERE d.id = {} AND c.id = {}
"""


@pytest.mark.parametrize(
    ("name", "breach", "change"),
    [
        ("zero_sum", "USD with scale 2 sum to 1 ", "UPDATE account SET balance = balance + 1 WHERE id = 1"),
        ("zero_sum", "USD", "UPDATE account SET balance = 9223372036854775807 WHERE kind IN ('wallet', 'fees')"),
        ("balances", "account 1 ", "UPDATE account SET balance = balance + iif(id = 1, 1, -1) WHERE id IN (1, 2)"),
        ("balances", "account", "DELETE FROM transfer WHERE kind = 'deposit'"),
        ("transfers", "of another asset", f"{CROSSED.format(1, 3)}; {CROSSED.format(3, 1)}"),
        ("held", "account 1 holds back 111, its open", "UPDATE account SET held = 111 WHERE id = 1"),
        ("held", "sum to 0", "UPDATE hold SET remaining = 0"),
        ("floors", "its floor is 900", "UPDATE account SET floor = 900 WHERE id = 1"),
        ("floors", "its floor is -500", "UPDATE account SET floor = -500 WHERE kind = 'liquidity'"),
        ("floors", "its floor is missing", "UPDATE account SET floor = NULL WHERE kind = 'fees'"),
        ("floors", "its floor is -99", "UPDATE account SET floor = -99 WHERE kind = 'external'"),
        (
            "sides",
            "(fee) went from account 1 (wallet) to account 2 (wallet)",
            "UPDATE transfer SET credit_account_id = 2 WHERE kind = 'fee';"
            " UPDATE account SET balance = balance + iif(kind = 'fees', -10, 10) WHERE kind = 'fees' OR id = 2",
        ),
        ("sides", "(wallet) to account", "UPDATE transfer SET kind = 'fee' WHERE kind = 'payment'"),
        ("sides", "(payment) went from account", "UPDATE transfer SET kind = 'payment' WHERE kind = 'deposit'"),
        ("sides", "(liquidity)", "UPDATE account SET kind = 'liquidity' WHERE kind = 'fees'"),
        ("accounts", "1 (peer) is that of wallet alice", "UPDATE account SET kind = 'peer', floor = -9 WHERE id = 1"),
        ("accounts", "(wallet) is that of no wallet", "UPDATE account SET kind = 'wallet' WHERE kind = 'liquidity'"),
        (
            "accounts",
            "2 (wallet) is that of wallet bob",
            "UPDATE wallet_address SET asset_id = (SELECT id FROM asset WHERE code = 'EUR') WHERE path = 'bob'",
        ),
        (
            "received",
            "1-open says it received 99, its transfers sum to 100",
            "UPDATE incoming_payment SET received = 99 WHERE id = '1-open'",
        ),
        ("received", "2-euros", "UPDATE incoming_payment SET received = 1 WHERE id = '2-euros'"),
        ("sent", "1-completed says it sent 109", "UPDATE outgoing_payment SET sent = 109 WHERE id = '1-completed'"),
        ("sent", "2-failed says it sent 1", "UPDATE outgoing_payment SET sent = 1 WHERE id = '2-failed'"),
        ("debited", "2-failed says a debit of 111", "UPDATE outgoing_payment SET debit = 111 WHERE id = '2-failed'"),
        ("debited", "1-completed says", "UPDATE outgoing_payment SET fee = 9 WHERE id = '1-completed'"),
        (
            "debited",
            "1-completed says a debit of 111",
            "DELETE FROM hold WHERE remaining = 0; UPDATE outgoing_payment SET debit = 111 WHERE id = '1-completed'",
        ),
        ("movements", "(deposit) is no movement", "DELETE FROM movement"),
        ("movements", "transfer 1 (deposit)", "UPDATE movement SET account_id = 2 WHERE transfer_id = 1"),
        ("undone", "is not the opposite", f"UPDATE movement SET undoes = {FIRST} WHERE undoes IS NOT NULL"),
        ("standing_orders", "date 0 of standing order monthly was paid", "UPDATE standing_order SET value = 109"),
        ("standing_orders", "date 0 of standing order monthly was paid", "UPDATE standing_order SET most = 109"),
        ("standing_orders", "was paid otherwise", "UPDATE standing_order SET wallet_address_id = 2"),
        ("standing_orders", "was paid otherwise", "UPDATE standing_order_run SET outgoing_payment_id = 'lost'"),
        (
            "windows",
            "which is active, is missed before its time",
            "UPDATE standing_order SET next_window = 0;"
            " UPDATE standing_order_run SET state = 'missed', outgoing_payment_id = NULL",
        ),
        (
            "windows",
            "which is paused, is waiting before its time",
            "UPDATE standing_order_run SET state = 'waiting'; UPDATE standing_order SET state = 'paused'",
        ),
        ("delivered", "1-completed", "UPDATE outgoing_payment SET delivered = 99 WHERE id = '1-completed'"),
        (
            "ended",
            "still has 110 for the ended outgoing payment 3-sending",
            "UPDATE outgoing_payment SET state = 'failed', failure = 'x', ended_at = 1 WHERE state = 'sending'",
        ),
        ("sending", "3-sending", "UPDATE outgoing_payment SET debit = 111 WHERE state = 'sending'"),
        (
            "sending",
            "2-failed",
            "UPDATE outgoing_payment SET state = 'sending', sent = 0, ended_at = NULL, failure = NULL"
            " WHERE id = '2-failed'",
        ),
        ("refunds", "1-open received 100, and 101 of it", "UPDATE refund SET amount = 101"),
        ("refunded", "of 41, returned as 40, was", "UPDATE refund SET amount = 41"),
        ("refunded", "of 40, returned as 39, was", "UPDATE refund SET returned = 39"),
        ("refunded", "was transferred otherwise", "UPDATE transfer SET refund_id = NULL WHERE refund_id IS NOT NULL"),
        ("limits", "has spent a debit of -1", "UPDATE grant_spending SET debit = -1 WHERE receive_code = 'EUR'"),
        ("spending", "towards EUR misses", "UPDATE grant_spending SET debit = 109 WHERE receive_code = 'EUR'"),
        ("spending", "a receive of 1", "UPDATE grant_spending SET receive = 101 WHERE receive_code = 'USD'"),
        ("spending", "a debit of -110", "DELETE FROM grant_spending WHERE receive_code = 'USD'"),
        ("references", "incoming_payment", "UPDATE incoming_payment SET client_id = 99"),
        ("file", "CHECK", "UPDATE wallet_address SET state = 'odd'"),
    ],
)
def test_check_names_what_is_broken_first(tx: Transaction, name: str, breach: str, change: str) -> None:
    tx.execute("COMMIT")
    tx.execute("PRAGMA foreign_keys = OFF")
    tx.execute("PRAGMA ignore_check_constraints = ON")
    for statement in change.split("; "):
        assert tx.execute(statement).rowcount > 0
    tx.execute("PRAGMA ignore_check_constraints = OFF")
    broken = invariant_checks.first_broken(invariant_checks.check(tx))
    assert broken is not None
    assert broken.name == name
    assert breach in " ".join(broken.breaches)


@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
@pytest.mark.parametrize("account_ids", [1, 2, 100])
def test_batches_of_any_size_check_what_holds_and_end(
    tx: Transaction, monkeypatch: pytest.MonkeyPatch, rows: int, account_ids: int
) -> None:
    monkeypatch.setattr(invariant_checks, "BATCH_ROWS", rows)
    monkeypatch.setattr(invariant_checks, "BATCH_ACCOUNTS", account_ids)
    findings = invariant_checks.check(tx)
    assert [finding for finding in findings if not finding.holds] == []
    assert [*(one.name for one in LEDGER_INVARIANTS), "references", "file"] == [finding.name for finding in findings]


@pytest.mark.parametrize("rows", [1, 2, 1000])
@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("balances", "UPDATE account SET balance = balance + iif(id = {0}, 1, -1) WHERE id IN ({0}, {1})"),
        ("received", "UPDATE incoming_payment SET received = 99 WHERE id = (SELECT {2}(id) FROM incoming_payment)"),
        ("transfers", CROSSED.format(1, 3)),
        ("spending", "DELETE FROM grant_spending"),
        ("references", "DELETE FROM asset WHERE id = (SELECT {2}(id) FROM asset)"),
        ("references", "UPDATE transfer SET packet_id = 'lost' WHERE id = (SELECT {2}(id) FROM transfer)"),
    ],
)
@pytest.mark.parametrize("which", ["min", "max"])
def test_batches_find_what_is_broken_in_the_first_row_and_in_the_last(
    tx: Transaction, monkeypatch: pytest.MonkeyPatch, rows: int, name: str, statement: str, which: str
) -> None:
    monkeypatch.setattr(invariant_checks, "BATCH_ROWS", rows)
    monkeypatch.setattr(invariant_checks, "BATCH_ACCOUNTS", rows)
    tx.execute("COMMIT")
    tx.execute("PRAGMA foreign_keys = OFF")
    (account,) = tx.execute(f"SELECT {which}(id) FROM account").fetchone()
    (other,) = tx.execute("SELECT id FROM account WHERE id <> ? AND kind <> 'wallet'", (account,)).fetchone()
    assert tx.execute(statement.format(account, other, which)).rowcount > 0
    assert name in {finding.name for finding in invariant_checks.check(tx) if not finding.holds}


def test_steps_count_transfers_that_come_in_between(tx: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariant_checks, "BATCH_ROWS", 1)
    number = 0
    for scan in invariant_checks.scans(tx):
        while not scan.done:
            assert scan.step(tx) == []
            number += 1
            if number < 20:  # each time one transfer is read, and one is added
                wallets.deposit(tx, "alice", "1.00")


def test_check_reports_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "books.db"
    connection = connect_writer(str(path))
    connection.execute("BEGIN")
    keep_books(work_at(connection, NOW))
    connection.execute("COMMIT")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'transfer'").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    connection = connect_writer(str(path))
    broken = invariant_checks.first_broken(invariant_checks.check(connection))
    connection.close()
    assert broken is not None
    assert broken.name == "balances"
    assert "malformed" in broken.breaches[0]
