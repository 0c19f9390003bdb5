"""What an owner reads of a wallet's movements."""

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, timedelta, timezone
from decimal import Decimal
from itertools import accumulate, count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.payments import incoming
from payres.core.payments.incoming import open_receiver
from payres.core.payments.outgoing import insert, pay_or_hold
from payres.core.payments.quotes import local_terms
from payres.core.protocol.clock import DAY, HOUR, MINUTE, format_time
from payres.core.protocol.errors import NotFound
from payres.core.protocol.identifiers import first_identifier
from payres.core.store import clients, incoming_payments
from payres.core.store.accounts import ACCOUNTS, AccountRecord
from payres.core.store.connections import connect_writer
from payres.core.store.grants import GRANTS
from payres.core.store.incoming_payments import IncomingRecord
from payres.core.store.representations import amount
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger.clearing import end_sending
from payres.operator import exports, wallets
from payres.operator.refunds import WantedRefund
from payres.people import activity, statements
from payres.people.activity import ActivityPage, ActivityRow, Reader, WalletMovement, Wanted
from payres.people.store.activity import remote_payers, statement
from payres.people.store.checkouts import CheckoutRecord, Stage, change_checkout, insert_checkout
from tests.helpers import examples
from tests.works import NOW, USD, issued_grant, offer_elsewhere, refund, work_at

NUMBERS = count(1)
MARCH = 1_709_251_200_000_000  # 2024-03-01


@pytest.fixture(autouse=True)
def ids_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids have the time of the test's clock, as they have that of the machine otherwise."""

    def new_id() -> str:
        number = next(NUMBERS)
        return f"{first_identifier(Clock.now)}-7000-8000-{number:012x}"

    Clock.now = NOW
    monkeypatch.setattr(Work, "new_id", staticmethod(new_id))


class Clock:
    now = NOW


def at(work: Work, moment: int) -> Work:
    Clock.now = moment
    return work_at(work, moment)


@pytest.fixture
def tx(tx: Work) -> Work:
    for path in ("alice", "bob", "carol"):
        wallets.create_wallet(tx, path, "USD", 2, path.capitalize(), None)
    wallets.deposit(tx, "alice", "100.00")
    wallets.deposit(tx, "carol", "100.00")
    return tx


def bill(work: Work, path: str, value: int | None = None, lifetime: int = DAY, note: str = "") -> str:
    wallet = require_wallet(work, path)
    client = clients.ensure_client(work, "https://shop.example", "https://shop.example", None, work.now)
    made = IncomingRecord(
        id=work.new_id(),
        wallet_address_id=wallet.id,
        client_id=client.id,
        incoming_value=None if value is None else str(value),
        received=0,
        metadata=msgspec.json.encode({"description": note}).decode() if note else None,
        created_at=work.now,
        expires_at=work.now + lifetime,
        completed_at=None,
    )
    incoming.add(work, wallet, made)
    return made.id


def pay(work: Work, path: str, bill_id: str, value: int, grant_id: str | None = None, note: str = "") -> str:
    wallet = require_wallet(work, path)
    receiver = open_receiver(work, work.urls.resource("incoming-payments", bill_id), "receiver")
    terms = local_terms(work, wallet, receiver, amount(value, USD), None)
    metadata = msgspec.json.encode({"description": note}).decode() if note else None
    payment = insert(work, wallet, receiver.payment.client_id, terms, grant_id=grant_id, metadata=metadata)
    pay_or_hold(work, wallet, payment, receiver)
    return payment.id


def account_of(work: Work, path: str) -> AccountRecord:
    return ACCOUNTS.by_id(work, require_wallet(work, path).account_id)


def send_away(work: Work, path: str, value: int) -> str:
    """A payment to another server that is on its way."""
    wallet = require_wallet(work, path)
    client = clients.ensure_client(work, "https://shop.example", "https://shop.example", None, work.now)
    payment = insert(work, wallet, client.id, offer_elsewhere(value).terms)
    pay_or_hold(work, wallet, payment, None)
    return payment.id


def app(work: Work, name: str) -> str:
    client = clients.ensure_client(work, f"https://{name}.example", f"https://{name}.example", None, work.now)
    grant = issued_grant(work, client.id)
    GRANTS.update(work, grant.id, client_name=name)
    return grant.id


def page(work: Work, path: str, wanted: Wanted | None = None, rows: int = 50) -> ActivityPage:
    return Reader(work, require_wallet(work, path), UTC).page(wanted or Wanted(), rows)


def all_of(rows: Sequence[ActivityRow]) -> list[WalletMovement]:
    return [one for row in rows for one in row.movements]


def lines(work: Work, path: str, wanted: Wanted | None = None) -> list[tuple[str, str, int, str]]:
    return [(one.kind, one.counterpart.text, one.amount, one.state) for one in all_of(page(work, path, wanted).rows)]


def test_each_kind_of_movement_is_shown_to_those_it_is_of(tx: Work) -> None:
    paid_bill = bill(at(tx, NOW + 1 * HOUR), "bob", 1250, note="Order 2041")
    work = at(tx, NOW + 2 * HOUR)
    pay(work, "alice", paid_bill, 1250)
    bill(work, "bob", 700)
    bill(work, "bob")  # of any amount
    part = bill(work, "bob", 900)
    pay(at(tx, NOW + 3 * HOUR), "alice", part, 400)
    work = at(tx, NOW + 4 * HOUR)
    gone, failed = send_away(work, "alice", 506), send_away(work, "alice", 1800)
    end_sending(work, failed, "Nothing has arrived for 30 seconds.")
    refund(work, WantedRefund(paid_bill, "r1", "2.00"))
    wallets.withdraw(at(tx, NOW + 5 * HOUR), "bob", "1.00")
    assert lines(work, "alice") == [
        ("came back", "Bob", 200, "done"),
        ("sent", "elsewhere.example", -1800, "failed"),
        ("sent", "elsewhere.example", -506, "sending"),
        ("sent", "Bob", -400, "done"),
        ("sent", "Bob", -1250, "done"),
        ("deposit", "", 10000, "done"),
    ]
    assert lines(work, "bob") == [
        ("withdrawal", "", -100, "done"),
        ("sent back", "Alice", -200, "done"),
        ("received", "Alice", 400, "part paid"),
        ("received", "", 700, "unpaid"),
        ("received", "Alice", 1250, "done"),
    ]
    assert lines(work, "carol") == [("deposit", "", 10000, "done")]
    received = all_of(page(work, "bob").rows)[-1]
    assert (received.note, received.time) == ("Order 2041", NOW + 2 * HOUR)
    reader = Reader(work, require_wallet(work, "alice"), UTC)
    assert [one.id for one in reader.in_progress(5)] == [gone]


@pytest.mark.parametrize("is_noticed", [True, False])
def test_what_has_expired_unpaid_or_was_cancelled_is_hidden(tx: Work, is_noticed: bool) -> None:
    bill(tx, "bob", 500, HOUR)
    cancelled = bill(tx, "bob", 600)
    part, cancelled_part = bill(tx, "bob", 900, HOUR), bill(tx, "bob", 800)
    pay(tx, "alice", part, 100)
    pay(tx, "alice", cancelled_part, 200)
    assert [line[2] for line in lines(tx, "bob")] == [200, 100, 600, 500]
    wallet = require_wallet(tx, "bob")
    for one in (cancelled, cancelled_part):
        incoming.complete(tx, wallet, incoming_payments.INCOMING.by_id(tx, one))
    later = at(tx, NOW + 2 * HOUR)
    if is_noticed:
        incoming._expire_due(later)
    shown = [(one.amount, one.whole, one.state) for one in all_of(page(later, "bob").rows)]
    assert shown == [(200, 800, "cancelled"), (100, 900, "expired")], "what has come says what has not"


def test_payments_of_one_app_to_one_receiver_on_one_day_are_one_row(tx: Work) -> None:
    paper, podcast = app(tx, "Paper"), app(tx, "Podcast")
    for number in range(4):
        work = at(tx, NOW + number * MINUTE)
        pay(work, "alice", bill(work, "bob"), 2, paper)
        pay(work, "alice", bill(work, "carol"), 3, paper)
        pay(work, "alice", bill(work, "bob"), 5, podcast)
        pay(work, "alice", bill(work, "bob"), 7)
    work = at(tx, NOW + DAY)
    pay(work, "alice", bill(work, "bob"), 2, paper)
    pay(work, "alice", bill(work, "bob"), 2, paper)  # two stay two
    found = page(work, "alice").rows
    shown = [(len(row.movements), row.amount, row.newest.app.name if row.newest.app else "") for row in found]
    assert shown[:2] == [(1, -2, "Paper"), (1, -2, "Paper")]
    assert sorted(shown[2:]) == sorted(
        [(4, -8, "Paper"), (4, -12, "Paper"), (4, -20, "Podcast"), *[(1, -7, "")] * 4, (1, 10000, "")]
    )
    folded = next(row for row in found if row.amount == -8)
    like = page(work, "alice", Wanted(like=folded.newest.id), 3)
    rest = page(work, "alice", Wanted(like=folded.newest.id, below=like.next), 3)
    assert [row.newest for row in [*like.rows, *rest.rows]] == folded.movements
    assert rest.next is None
    for nothing in (all_of(page(work, "bob").rows)[0].id, all_of(page(work, "alice").rows)[-1].id, "x"):
        with pytest.raises(NotFound):
            page(work, "alice", Wanted(like=nothing))


def test_days_are_those_of_the_reader(tx: Work) -> None:
    paper = app(tx, "Paper")
    for number in range(6):
        work = at(tx, NOW - NOW % DAY + DAY + (number - 3) * MINUTE)
        pay(work, "alice", bill(work, "bob"), 2, paper)
    wallet = require_wallet(work, "alice")
    for zone, sizes in ((UTC, [3, 3, 1]), (timezone(timedelta(hours=1)), [6, 1])):
        assert [len(row.movements) for row in Reader(work, wallet, zone).page(Wanted(), 9).rows] == sizes


FILTERS = [
    (Wanted(show="in"), [200, 10000]),
    (Wanted(show="out"), [-30, -1250]),
    (Wanted(show="failed"), [-1800]),
    (Wanted(text="oRdEr"), [-1250]),
    (Wanted(text="BOB"), [-30, 200, -1250]),
    (Wanted(text="elsewhere"), [-1800]),
    (Wanted(text="%"), []),
    (Wanted(since=MARCH), [-30]),
    (Wanted(until=MARCH), [200, -1800, -1250, 10000]),
]


@pytest.mark.parametrize(("wanted", "expected"), FILTERS)
def test_filters(tx: Work, wanted: Wanted, expected: list[int]) -> None:
    first = bill(tx, "bob")
    pay(tx, "alice", first, 1250, note="Order 2041")
    end_sending(tx, send_away(tx, "alice", 1800), "no")
    refund(at(tx, NOW + HOUR), WantedRefund(first, "r1", "2.00"))
    work = at(tx, MARCH + HOUR)
    pay(work, "alice", bill(work, "bob"), 30)
    assert [one.amount for one in all_of(page(work, "alice", wanted).rows)] == expected


DEEDS = st.lists(st.sampled_from(["app", "app", "app", "other app", "pay", "bill", "away", "deposit", "refund"]))


@given(DEEDS, st.integers(1, 5), st.integers(2, 9), st.sampled_from(["all", "in", "out", "failed"]))
@examples(25)
def test_pages_have_no_gaps_and_no_doubles(deeds: Sequence[str], rows: int, scanned: int, show: activity.Show) -> None:
    with closing(connect_writer(":memory:")) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(activity, "SCANNED", scanned)
        patch.setattr(activity, "BATCH", 3)
        work = at(work_at(opened, NOW), NOW)
        for path in ("alice", "bob"):
            wallets.create_wallet(work, path, "USD", 2, None, None)
            wallets.deposit(work, path, "100.00")
        apps, last = {"app": app(work, "A"), "other app": app(work, "B")}, bill(work, "bob")
        pay(work, "alice", last, 5)
        for number, deed in enumerate(deeds):
            work = at(work, NOW + number * 3 * HOUR)
            match deed:
                case "bill":
                    last = bill(work, "bob", 40, 9 * DAY)
                    pay(work, "alice", last, 5)
                case "away":
                    send_away(work, "alice", 3)
                case "deposit":
                    wallets.deposit(work, "alice", "1.00")
                case "refund":
                    refund(work, WantedRefund(last, f"r{number}", "0.01")) if number < 4 else None
                case _:
                    pay(work, "alice", bill(work, "bob"), 2, apps.get(deed))
        for path in ("alice", "bob"):
            walked = walk(work, path, show, rows)
            patch.setattr(activity, "SCANNED", 1000)
            whole = all_of(page(work, path, Wanted(show=show), 1000).rows)
            patch.setattr(activity, "SCANNED", scanned)
            keys = [one.key for one in walked]
            assert len(keys) == len(set(keys))
            assert sorted(keys) == sorted(one.key for one in whole)
        if show == "all":
            account = account_of(work, "alice")
            moved = sum(one.amount for one in walk(work, "alice", show, rows))
            assert moved == account.balance - account.held


def walk(work: Work, path: str, show: activity.Show, rows: int) -> list[WalletMovement]:
    """All movements, page by page."""
    walked, below = list[WalletMovement](), None
    while True:
        found = page(work, path, Wanted(below, show=show), rows)
        keys = [row.newest.key for row in found.rows]
        assert keys == sorted(keys, reverse=True)
        assert found.next != below or below is None
        walked += all_of(found.rows)
        below = found.next
        if below is None:
            return walked


MOVES = st.lists(
    st.tuples(st.sampled_from(["deposit", "withdraw", "pay", "away", "other"]), st.integers(0, 20 * DAY)), max_size=10
)


@given(MOVES, st.integers(0, 70), st.integers(1, 40))
@examples(40)
def test_statement_sums_to_the_balance_of_the_ledger(moves: Sequence[tuple[str, int]], start: int, days: int) -> None:
    with closing(connect_writer(":memory:")) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements, "BATCH_TRANSFERS", 3)
        work = at(work_at(opened, NOW), NOW)
        for path in ("alice", "bob"):
            wallets.create_wallet(work, path, "USD", 2, None, None)
        wallets.deposit(work, "alice", "100.00")
        now = NOW
        for number, (move, wait) in enumerate(moves):
            now += wait
            work = at(work, now)
            match move:
                case "deposit":
                    wallets.deposit(work, "alice", f"{number}.07")
                case "withdraw":
                    wallets.withdraw(work, "alice", "1.01")
                case "pay":
                    pay(work, "alice", bill(work, "bob"), 110)
                case "away":
                    end_sending(work, send_away(work, "alice", 3), "no")
                case _:
                    wallets.deposit(work, "bob", "9.00")
        since, until = NOW + start * DAY, NOW + (start + days) * DAY
        work = at(work, max(now, since))
        found = statement(work, account_of(work, "alice"), since, until)
        assert found.opening + found.credits - found.debits == found.closing
        export, text = exports.export_statement("alice", format_time(since), format_time(until)), ""
        while not export.done:
            text += export.text(work)
        rows = list(csv.DictReader(io.StringIO(text)))
        amounts = [Decimal(row["amount"]) for row in rows if row["amount"]]
        figures = [Decimal(one).scaleb(-2) for one in found]
        balances = [*accumulate(amounts, initial=figures[0])]
        assert [Decimal(row["balance"]) for row in rows] == [*balances, figures[3]]
        times = [row["createdAt"] for row in rows]
        assert (times, times[-1]) == (sorted(times), format_time(min(until, work.now)))
        assert figures[1:3] == [sum(one for one in amounts if one > 0), -sum(one for one in amounts if one < 0)]
        whole = statement(work, account_of(work, "alice"), 0, work.now + 1)
        [balance] = opened.execute("SELECT balance FROM account WHERE kind = 'wallet' ORDER BY id").fetchone()
        assert (whole.opening, whole.closing) == (0, balance)


def test_sums_pass_what_sqlite_adds_up(tx: Work) -> None:
    wallets.create_wallet(tx, "rich", "XXL", 0, None, None)
    big = 2**62
    wallets.deposit(tx, "rich", str(big))
    wallets.withdraw(tx, "rich", str(big))
    wallets.deposit(tx, "rich", str(big))
    assert statement(tx, account_of(tx, "rich"), 0, tx.now + 1) == (0, 2 * big, big, big)


def test_names_of_apps_are_looked_up_once(tx: Work) -> None:
    paper = app(tx, "Paper")
    for _ in range(30):
        pay(tx, "alice", bill(tx, "bob"), 2, paper)
    asked: list[str] = []
    run: Callable[..., object] = tx.execute

    def execute(sql: str, *values: object) -> object:
        asked.append(sql)
        return run(sql, *values)

    tx.execute = execute  # type: ignore[assignment]
    page(tx, "alice")
    assert len([sql for sql in asked if '"grant"' in sql]) == 1


def test_payers_of_a_payment_page_are_named_by_their_address(tx: Work) -> None:
    paid = bill(tx, "bob", 1400)

    def pays(number: int, payer: str, state: Stage) -> None:
        record = CheckoutRecord(bytes([number]), paid, b"browser %d" % number, payer, 700, "asked", NOW)
        insert_checkout(tx, record, "pending", ("https://a.example/continue", "T"))
        assert change_checkout(tx, record, state, NOW, failure="denied" if state == "failed" else None)

    def counterpart() -> tuple[str, bool]:
        found = Reader(tx, require_wallet(tx, "bob"), UTC).find(paid)
        assert found is not None
        return found.counterpart.text, found.counterpart.several

    pays(1, "https://two.example/carol", "failed")
    assert counterpart() == ("", False)
    for number, several in ((2, False), (3, False), (4, True)):
        pays(number, f"https://{'two' if several else 'one'}.example/carol", "paid")
        assert counterpart() == ("one.example/carol", several)
    assert remote_payers(at(tx, NOW + 900 * DAY), paid), "who has paid stays known"
